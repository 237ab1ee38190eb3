package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
)

const (
	uuid        = "4c4c4544-004d-4b10-8056-b4c04f4a3133"
	fingerprint = "xA9a1t2dMxB0NJ0qH1pDzilWbA3+DK/DjVbFaJBYheE="
	other       = "rMWhs9V9Y30sbs9W5KNCgVRReKGrfvV0FwMtqEX4OW8="
)

func now() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

func pendingMachine(edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	machine := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "site-a", Name: uuid, ResourceVersion: "4711", CreationTimestamp: metav1.NewTime(now().Add(-5 * time.Minute)),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "fieldplane"}},
		},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "plant"},
			Identity:   v1alpha1.MachineIdentity{UUID: uuid, Serial: "7MK1J33", MACAddresses: []string{"b4:45:06:aa:00:01", "b4:45:06:aa:00:02"}},
			Endpoint:   "192.0.2.10",
			Approved:   ptr.To(false),
		},
		Status: v1alpha1.TalosMachineStatus{
			Phase:            v1alpha1.MachinePending,
			ObservedEndpoint: "192.0.2.10",
			Hardware: &v1alpha1.MachineHardware{
				Manufacturer: "Dell Inc.", Product: "PowerEdge R650", Fingerprint: fingerprint,
				Disks: []v1alpha1.MachineDisk{
					{Path: "/dev/nvme0n1", SizeBytes: 960e9, Model: "PM9A3", Serial: "S64G", WWID: "eui.1", Transport: "nvme"},
					{Path: "/dev/sda", SizeBytes: 4e12, Model: "ST4000NM", Serial: "ZC1A", WWID: "naa.1", Transport: "sata", Rotational: true},
					{Path: "/dev/sdb", SizeBytes: 4e12, Model: "ST4000NM", Serial: "ZC1B", WWID: "naa.2", Transport: "sata", Rotational: true, BusPath: "/pci0000:00/ata2"},
				},
				Links: []v1alpha1.MachineLink{
					{Name: "eno1", PermanentMAC: "b4:45:06:aa:00:01", Driver: "tg3", Up: true},
					{Name: "eno2", PermanentMAC: "b4:45:06:aa:00:02", Driver: "tg3"},
				},
			},
		},
	}
	for _, edit := range edits {
		edit(machine)
	}
	return machine
}

func plantCluster(edits ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	cluster := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "site-a", Name: "plant", ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubectl", Time: ptr.To(metav1.NewTime(now().Add(-8 * time.Minute)))},
				{Manager: "fieldplane", Subresource: "status", Time: ptr.To(metav1.NewTime(now()))},
			},
		},
		Spec: v1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://192.0.2.5:6443", KubernetesVersion: "v1.36.2", TalosVersion: "v1.13",
			SecretsRef: v1alpha1.SecretReference{Name: "plant-secrets"}, ConfigPatches: []string{"machine: {}"},
			Discovery: v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/24"}},
		},
	}
	for _, edit := range edits {
		edit(cluster)
	}
	return cluster
}

// session is one run of the plugin against the generated fake: a store without admission and without resourceVersions.
type session struct {
	client     *fake.Clientset
	core       *kubefake.Clientset
	namespace  string
	input      string
	noTerminal bool
	// draws is set where progress goes to a terminal.
	draws bool
	// configuration is what the server answers to talosmachines/config, and asked which were asked for.
	configuration    string
	configurationErr error
	asked            []string
	// pages is what the server answers to iomodules/channels.
	pages func(next string) (*physical.IOModuleChannels, error)
	// generate makes secrets; by default the same ones every time, since making them takes a second.
	generate func(talosVersion string) ([]byte, error)
	// steps happen one after another, each while the plugin pauses.
	steps []func()
	// display is what Out is; by default no terminal.
	display display
	// streams are opened one after another by tags -w.
	streams []func() (watch.Interface, error)
	ticks   chan time.Time
	clock   *clocktesting.FakePassiveClock
	// interrupt is what Ctrl-C does; interrupted is that somebody pressed it before anything happens.
	interrupt   context.CancelFunc
	interrupted bool
	ids         int

	out, errOut string
	code        int
}

func newSession(objects ...runtime.Object) *session {
	s := &session{client: fake.NewSimpleClientset(objects...), core: kubefake.NewClientset(), namespace: "site-a", generate: func(string) ([]byte, error) { return oneBundle() }}
	s.display = display{size: func() (int, int) { return usualWidth, usualHeight }}
	s.ticks, s.clock = make(chan time.Time), clocktesting.NewFakePassiveClock(now())
	s.pages = func(string) (*physical.IOModuleChannels, error) { return &physical.IOModuleChannels{}, nil }
	// The fake knows no requests that are posted and not stored.
	s.client.PrependReactor("create", "talosclusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "discover", &v1alpha1.DiscoveryRequest{Status: v1alpha1.DiscoveryRequestStatus{RequestedAt: ptr.To(metav1.NewTime(now()))}}, nil
	})
	s.client.PrependReactor("create", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "reboot", &v1alpha1.RebootRequest{}, nil
	})
	return s
}

// thenMachine makes something happen to the first machine at the next pause.
func (s *session) thenMachine(t *testing.T, edit func(*v1alpha1.TalosMachine)) *session {
	s.steps = append(s.steps, func() {
		t.Helper()
		machines := v1alpha1.SchemeGroupVersion.WithResource("talosmachines")
		stored, err := s.client.Tracker().Get(machines, "site-a", uuid)
		if err != nil {
			t.Fatal(err)
		}
		machine := stored.DeepCopyObject().(*v1alpha1.TalosMachine)
		edit(machine)
		if err := s.client.Tracker().Update(machines, machine, "site-a"); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

// then makes something happen to the cluster plant at the next pause.
func (s *session) then(t *testing.T, edit func(*v1alpha1.TalosCluster)) *session {
	s.steps = append(s.steps, func() {
		t.Helper()
		clusters := v1alpha1.SchemeGroupVersion.WithResource("talosclusters")
		stored, err := s.client.Tracker().Get(clusters, "site-a", "plant")
		if err != nil {
			t.Fatal(err)
		}
		cluster := stored.DeepCopyObject().(*v1alpha1.TalosCluster)
		edit(cluster)
		if err := s.client.Tracker().Update(clusters, cluster, "site-a"); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

func (s *session) run(t *testing.T, args ...string) *session {
	t.Helper()
	var out, errOut bytes.Buffer
	s.code = s.execute(&out, &errOut, args)
	s.out, s.errOut = out.String(), errOut.String()
	return s
}

func (s *session) execute(out, errOut io.Writer, args []string) int {
	flags := genericclioptions.NewConfigFlags(true)
	cmd := newCommand(plugin{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(s.input), Out: out, ErrOut: errOut},
		clock:     s.clock,
		connect: func() (target, error) {
			return target{
				client: s.client, secrets: s.core.CoreV1(), namespace: cmp.Or(*flags.Namespace, s.namespace),
				configuration: func(_ context.Context, namespace, machine string, diff bool) ([]byte, error) {
					s.asked = append(s.asked, fmt.Sprintf("%s/%s diff=%v", namespace, machine, diff))
					return []byte(s.configuration), s.configurationErr
				},
				channels: func(_ context.Context, namespace, module, next string) (*physical.IOModuleChannels, error) {
					s.asked = append(s.asked, fmt.Sprintf("%s/%s %q", namespace, module, next))
					return s.pages(next)
				},
				watchTags: func(ctx context.Context, namespace, unit string) (watch.Interface, error) {
					s.asked = append(s.asked, namespace+"/"+unit)
					if len(s.streams) == 0 {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					next := s.streams[0]
					s.streams = s.streams[1:]
					return next()
				},
			}, nil
		},
		interactive: func() bool { return !s.noTerminal },
		generate:    s.generate,
		draws:       func() bool { return s.draws },
		pause: func(ctx context.Context, duration time.Duration) error {
			s.clock.SetTime(s.clock.Now().Add(duration))
			if len(s.steps) > 0 {
				s.steps[0]()
				s.steps = s.steps[1:]
			}
			return ctx.Err()
		},
		display: func() display { return s.display },
		interruptible: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, s.interrupt = context.WithCancel(ctx)
			if s.interrupted {
				s.interrupt()
			}
			return ctx, s.interrupt
		},
		ticks: func(time.Duration) (<-chan time.Time, func()) { return s.ticks, func() {} },
		newID: func() string { s.ids++; return fmt.Sprintf("id-%d", s.ids) },
	})
	flags.AddFlags(cmd.PersistentFlags())
	cmd.SetArgs(args)
	return execute(cmd, errOut)
}

// writes are the writes that were asked for, of whatever kind.
func (s *session) writes() []clienttesting.Action {
	return slices.DeleteFunc(append(s.client.Actions(), s.core.Actions()...), func(action clienttesting.Action) bool {
		return action.GetVerb() == "get" || action.GetVerb() == "list"
	})
}

// approval returns the one write that was asked for.
func (s *session) approval(t *testing.T) clienttesting.UpdateActionImpl {
	t.Helper()
	writes := s.writes()
	if len(writes) != 1 {
		t.Fatalf("want one write, have %v\n%s%s", writes, s.out, s.errOut)
	}
	update, ok := writes[0].(clienttesting.UpdateActionImpl)
	if !ok || update.Subresource != "approval" || update.Resource.Resource != "talosmachines" || update.Namespace != "site-a" {
		t.Fatalf("want an update of talosmachines/approval in site-a, have %#v", writes[0])
	}
	return update
}

// answer makes the server answer approvals with an error.
func (s *session) answer(err error) *session {
	s.client.PrependReactor("update", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "approval", nil, err
	})
	return s
}

// wantRefused asserts a refusal: a code other than 0, what happened on the first line and what to do after it, no write.
func (s *session) wantRefused(t *testing.T, what, todo string) {
	t.Helper()
	if s.code == 0 {
		t.Errorf("exit code 0\n%s", s.out)
	}
	first, rest, _ := strings.Cut(s.errOut, "\n")
	if !strings.HasPrefix(first, "error: ") || !strings.Contains(first, what) {
		t.Errorf("first line: want %q, have %q", what, first)
	}
	if !strings.Contains(rest, todo) {
		t.Errorf("what to do: want %q, have %q", todo, rest)
	}
	if writes := s.writes(); len(writes) != 0 {
		t.Errorf("written in spite of it: %v", writes)
	}
}

func (s *session) wantOK(t *testing.T) *session {
	t.Helper()
	if s.code != 0 {
		t.Fatalf("exit code %d\n%s%s", s.code, s.out, s.errOut)
	}
	return s
}

func wantText(t *testing.T, have, want string) {
	t.Helper()
	lines := strings.Split(have, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	if have = strings.Join(lines, "\n"); have != want {
		t.Errorf("have:\n%s\nwant:\n%s", have, want)
	}
}

func wantContains(t *testing.T, have string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(have, want) {
			t.Errorf("%q is missing in:\n%s", want, have)
		}
	}
}

// approvalArgs is a complete approval of a worker, and what a case adds to it.
func approvalArgs(more ...string) []string {
	return append([]string{"approve", "machine", uuid, "--role", "worker", "--install-disk", "/dev/sda"}, more...)
}
