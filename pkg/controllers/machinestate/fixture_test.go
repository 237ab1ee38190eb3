package machinestate

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clientretry "k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/machine/machinetest"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

func TestMain(m *testing.M) {
	// The fake clientset's watch panics when more events wait than this.
	watch.DefaultChanSize = 1 << 16

	os.Exit(m.Run())
}

const (
	namespace = "site-a"
	own       = "fieldplane-system"
)

func bundleYAML(n int) []byte {
	data, err := onceBundles()
	if err != nil {
		panic(err)
	}

	return data[n]
}

// onceBundles makes the bundles for all tests, the cluster's and another: keys take time.
var onceBundles = sync.OnceValues(func() (out [2][]byte, err error) {
	for n := range out {
		if out[n], err = render.GenerateBundle("v1.13"); err != nil {
			return out, err
		}
	}

	return out, nil
})

func bundleOf(n int) *secrets.Bundle {
	parsed, err := onceParsed()
	if err != nil {
		panic(err)
	}

	return parsed[n]
}

var onceParsed = sync.OnceValues(func() (out [2]*secrets.Bundle, err error) {
	for n := range out {
		if out[n], err = render.ParseBundle(bundleYAML(n)); err != nil {
			return out, err
		}
	}

	return out, nil
})

func bundleHash(n int) string {
	hashes, err := onceHashed()
	if err != nil {
		panic(err)
	}

	return hashes[n]
}

var onceHashed = sync.OnceValues(func() (out [2]string, err error) {
	for n := range out {
		if out[n], err = bundle.HashOf(bundleOf(n)); err != nil {
			return out, err
		}
	}

	return out, nil
})

// name and address are those of machine n.
func name(n int) string    { return fmt.Sprintf("6f7a1c52-3b1e-4d8f-9a60-0cc47ab01%03d", n) }
func address(n int) string { return fmt.Sprintf("192.0.2.%d", n) }
func target(n int) string  { return address(n) + ":50000" }

func newCluster() *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", Generation: 1},
		Spec: v1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://192.0.2.100:6443",
			SecretsRef:           v1alpha1.SecretReference{Name: "c-bundle"},
			TalosVersion:         "v1.13",
			KubernetesVersion:    "v1.36.2",
		},
		Status: v1alpha1.TalosClusterStatus{Bootstrap: &v1alpha1.ClusterBootstrap{CompletedAt: ptr.To(metav1.Now())}},
	}
}

// member is machine n as it was approved and configured, and has run since.
func member(n int, role v1alpha1.MachineRole, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	now := metav1.Now()

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(n), Generation: 1},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "c"},
			Identity:   v1alpha1.MachineIdentity{UUID: name(n), Serial: "SN", MACAddresses: []string{"b4:45:06:00:00:01"}},
			Role:       role,
			Approved:   ptr.To(true),
			Endpoint:   address(n),
			Install:    &v1alpha1.MachineInstall{Disk: "/dev/sda"},
		},
		Status: v1alpha1.TalosMachineStatus{
			Phase:    v1alpha1.MachineRunning,
			Approval: &v1alpha1.MachineApproval{User: "ada", Time: now},
			Configuration: &v1alpha1.MachineConfiguration{
				Endpoint: address(n), IntendedAt: &now, AppliedAt: &now, BundleHash: bundleHash(0),
			},
			Conditions: []metav1.Condition{{Type: ConditionReady, Status: yes, Reason: string(reasonReady), LastTransitionTime: now}},
		},
	}

	hash := renderFor(m, newCluster(), bundleOf(0)).hash
	m.Status.Configuration.Hash, m.Status.ConfigHash = hash, hash

	for _, edit := range edits {
		edit(m)
	}

	return m
}

func worker(n int, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	return member(n, v1alpha1.RoleWorker, edits...)
}

func controlPlane(n int, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	return member(n, v1alpha1.RoleControlPlane, edits...)
}

func installing(m *v1alpha1.TalosMachine) {
	m.Status.Phase, m.Status.Conditions = v1alpha1.MachineInstalling, nil
}

// sysctl is a patch; what is in it is a number that can be told from others.
func sysctl(value int) []string {
	return []string{fmt.Sprintf("machine:\n  sysctls:\n    vm.swappiness: %q\n", fmt.Sprint(value))}
}

// events records what was told.
type events struct {
	mu    sync.Mutex
	lines []string
}

func (e *events) Event(object runtime.Object, kind, reason, message string) {
	ref := object.(*corev1.ObjectReference) //nolint:forcetypeassert // as the controller makes them

	e.mu.Lock()
	defer e.mu.Unlock()

	e.lines = append(e.lines, fmt.Sprintf("%s %s %s %s: %s", ref.Kind, ref.Name, kind, reason, message))
}

func (e *events) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	e.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (e *events) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	e.Eventf(object, kind, reason, format, args...)
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()

	return slices.Clone(e.lines)
}

// world is a running controller with all around it, in a synctest bubble.
type world struct {
	t      *testing.T
	api    *fakeapi.API
	host   *kubefake.Clientset
	net    *machinetest.Network
	events *events
	stop   func()

	mu   sync.Mutex
	logs []string
	// begun is what was applied to whom, and rebooted, in order.
	begun []string
}

// start serves a cluster and its machines, each of which runs what it was sent.
func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()

	w := prepare(t, objects...)
	w.run()

	return w
}

// prepare is start without the controller.
func prepare(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()

	w := &world{
		t: t, api: fakeapi.New(objects...), net: machinetest.NewNetwork(), events: &events{}, stop: func() {},
		host: kubefake.NewClientset(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "c-bundle", Labels: map[string]string{bundle.ClusterLabel: namespace + ".c"}},
			Data:       map[string][]byte{bundle.Key: bundleYAML(0)},
		}),
	}

	var etcd []machine.EtcdMember

	for _, object := range objects {
		if m, ok := object.(*v1alpha1.TalosMachine); ok && m.Spec.Role == v1alpha1.RoleControlPlane {
			etcd = append(etcd, machine.EtcdMember{ID: uint64(len(etcd) + 1), Hostname: m.Name})
		}
	}

	for _, object := range objects {
		m, ok := object.(*v1alpha1.TalosMachine)
		if !ok {
			continue
		}

		node := w.net.Node(m.Spec.Endpoint + ":50000").
			OfCluster(bundleOf(0)).
			SetHardware(maintenance.Hardware{UUID: strings.ToUpper(m.Name), Serial: "SN"}).
			SetConfiguration(renderFor(m, newCluster(), bundleOf(0)).config)

		if m.Spec.Role == v1alpha1.RoleControlPlane {
			node.SetEtcd(etcd...)
		}

		for _, op := range []machine.Op{machine.OpApply, machine.OpReboot} {
			node.After(op, func(_ context.Context, call machinetest.Call) error {
				w.note(fmt.Sprintf("%s %s %s", op, call.Mode, m.Name[len(m.Name)-3:]))

				return nil
			})
		}
	}

	t.Cleanup(func() { w.stop() })

	return w
}

func (w *world) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.begun = append(w.begun, strings.Join(strings.Fields(line), " "))
}

// effects are what was done to machines, in order.
func (w *world) effects() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Clone(w.begun)
}

func (w *world) run() {
	w.stop = w.controller()
	synctest.Wait()
}

// controller runs one more controller, and returns what stops it.
func (w *world) controller() func() {
	logger := funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.logs = append(w.logs, prefix+" "+args)
	}, funcr.Options{Verbosity: 10})

	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	factory := informers.NewSharedInformerFactory(w.api.Fake, 0)

	bundles, err := bundle.NewStore(w.host.CoreV1(), own)
	if err != nil {
		w.t.Fatal(err)
	}

	controller := New(Config{
		Client:   w.api,
		Clusters: factory.Talos().V1alpha1().TalosClusters(),
		Machines: factory.Talos().V1alpha1().TalosMachines(),
		Bundles:  bundles,
		Recorder: w.events,
		Clock:    clock.RealClock{},
		Dial:     w.net.Dial,
		Render:   rendered,
	})

	factory.Start(ctx.Done())

	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()

	return sync.OnceFunc(func() {
		cancel()

		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}

		factory.Shutdown()
	})
}

func (w *world) settle() { w.pass(250 * time.Millisecond) }

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) node(n int) *machinetest.Node { return w.net.Node(target(n)) }

func (w *world) machine(n int) *v1alpha1.TalosMachine {
	w.t.Helper()

	m, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Get(context.Background(), name(n), metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return m
}

// edit changes a machine as a user does.
func (w *world) edit(n int, change func(*v1alpha1.TalosMachine)) {
	w.t.Helper()
	w.retried(func() error {
		m := w.machine(n)
		change(m)

		_, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Update(context.Background(), m, metav1.UpdateOptions{})

		return err
	})
}

// editStatus changes a machine's status as another part of the server does.
func (w *world) editStatus(n int, change func(*v1alpha1.TalosMachineStatus)) {
	w.t.Helper()
	w.retried(func() error {
		m := w.machine(n)
		change(&m.Status)

		_, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(context.Background(), m, metav1.UpdateOptions{})

		return err
	})
}

func (w *world) retried(write func() error) {
	w.t.Helper()

	if err := clientretry.RetryOnConflict(clientretry.DefaultRetry, write); err != nil {
		w.t.Fatal(err)
	}
}

// askReboot asks for a reboot into whatever waits, as the subresource does.
func (w *world) askReboot(n int) {
	w.t.Helper()
	w.editStatus(n, func(s *v1alpha1.TalosMachineStatus) {
		s.Reboot = &v1alpha1.MachineRebootStatus{RequestedAt: ptr.To(metav1.Now()), RequestedBy: "ada", Hash: s.Update.Hash}
	})
}

func (w *world) editCluster(change func(*v1alpha1.TalosCluster)) {
	w.t.Helper()

	clusters := w.api.Fake.TalosV1alpha1().TalosClusters(namespace)

	w.retried(func() error {
		c, err := clusters.Get(context.Background(), "c", metav1.GetOptions{})
		if err != nil {
			return err
		}

		change(c)

		_, err = clusters.Update(context.Background(), c, metav1.UpdateOptions{})

		return err
	})
}

// expect checks the reasons that stand in a machine's conditions.
func (w *world) expect(n int, reasons ...reason) {
	w.t.Helper()
	expectReasons(w.t, &w.machine(n).Status, reasons...)
}

func expectReasons(t *testing.T, status *v1alpha1.TalosMachineStatus, reasons ...reason) {
	t.Helper()

	for _, r := range reasons {
		want := meanings()[r]

		have := meta.FindStatusCondition(status.Conditions, want.condition)
		if have == nil || have.Reason != string(r) || have.Status != want.status {
			t.Errorf("%s is %+v, want %s %s", want.condition, have, want.status, r)
		}
	}
}

func (w *world) expectEffects(want ...string) {
	w.t.Helper()

	if have := w.effects(); !slices.Equal(have, want) {
		w.t.Errorf("done to machines: %q, want %q", have, want)
	}
}

// needsReboot tells that a machine needs a reboot for every change.
func needsReboot(running, next []byte) bool { return string(running) != string(next) }

// running tells whether a node runs what is rendered for its machine now.
func (w *world) running(n int) bool {
	w.t.Helper()

	cluster, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Get(context.Background(), "c", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	running, _ := w.node(n).Configuration()

	return string(running) == string(renderFor(w.machine(n), cluster, bundleOf(0)).config)
}
