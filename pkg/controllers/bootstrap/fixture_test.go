package bootstrap

import (
	"context"
	"fmt"
	"os"
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
	"k8s.io/client-go/tools/record"
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

// material is two bundles, made once: their keys take time.
var material = sync.OnceValues(func() ([2][]byte, error) {
	var both [2][]byte

	for i := range both {
		data, err := render.GenerateBundle("v1.13")
		if err != nil {
			return both, err
		}

		both[i] = data
	}

	return both, nil
})

func bundleData(t *testing.T, i int) []byte {
	t.Helper()

	both, err := material()
	if err != nil {
		t.Fatal(err)
	}

	return both[i]
}

func bundleOf(t *testing.T, i int) *secrets.Bundle {
	t.Helper()

	parsed, err := render.ParseBundle(bundleData(t, i))
	if err != nil {
		t.Fatal(err)
	}

	return parsed
}

func hashOf(t *testing.T, i int) string {
	t.Helper()

	hash, err := bundle.HashOf(bundleOf(t, i))
	if err != nil {
		t.Fatal(err)
	}

	return hash
}

func secret(data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "c-bundle", Labels: map[string]string{bundle.ClusterLabel: namespace + ".c"}},
		Data:       map[string][]byte{bundle.Key: data},
	}
}

func cluster(edits ...func(*v1alpha1.TalosCluster)) *v1alpha1.TalosCluster {
	c := &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", Generation: 1},
		Spec:       v1alpha1.TalosClusterSpec{SecretsRef: v1alpha1.SecretReference{Name: "c-bundle"}},
	}
	for _, edit := range edits {
		edit(c)
	}

	return c
}

func uuid(n int) string { return fmt.Sprintf("6f7a1c52-3b1e-4d8f-9a60-0cc47ab0100%d", n) }

func address(n int) string { return fmt.Sprintf("192.0.2.%d", n) }

// controlPlane is an approved and configured one, whose install is long past.
func controlPlane(n int, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	// Tables are made outside the bubble, whose time starts with the year 2000.
	long := metav1.NewTime(time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC))

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuid(n), Generation: 1},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "c"},
			Identity:   v1alpha1.MachineIdentity{UUID: uuid(n), Serial: fmt.Sprint("SN-", n), MACAddresses: []string{"b4:45:06:00:00:01"}},
			Role:       v1alpha1.RoleControlPlane,
			Approved:   ptr.To(true),
			Endpoint:   address(n),
		},
		Status: v1alpha1.TalosMachineStatus{
			Phase:         v1alpha1.MachineRunning,
			Configuration: &v1alpha1.MachineConfiguration{IntendedAt: &long, AppliedAt: &long, Endpoint: address(n)},
		},
	}
	for _, edit := range edits {
		edit(m)
	}

	return m
}

func worker(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleWorker }

func unapproved(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) }

func unconfigured(m *v1alpha1.TalosMachine) {
	m.Status.Configuration, m.Status.Phase = nil, v1alpha1.MachineApproved
}

func pending(m *v1alpha1.TalosMachine) {
	m.Spec.Approved, m.Spec.Role, m.Status = nil, "", v1alpha1.TalosMachineStatus{Phase: v1alpha1.MachinePending}
}

func installing(m *v1alpha1.TalosMachine) {
	now := metav1.NewTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	m.Status.Phase, m.Status.Configuration.AppliedAt = v1alpha1.MachineInstalling, &now
}

func hardwareOf(n int) maintenance.Hardware {
	return maintenance.Hardware{
		UUID: strings.ToUpper(uuid(n)), Serial: fmt.Sprint("SN-", n),
		Links: []maintenance.Link{{Name: "eth0", Physical: true, PermanentAddr: "b4:45:06:00:00:01"}},
	}
}

// world is a running controller with all around it, in a synctest bubble.
type world struct {
	t       *testing.T
	api     *fakeapi.API
	host    *kubefake.Clientset
	network *machinetest.Network
	events  *record.FakeRecorder
	stops   []func()

	mu   sync.Mutex
	logs []string
}

// prepare serves the objects, with a control plane at the address of each machine that waits for its etcd; nothing runs
// yet. Secrets are the host cluster's.
func prepare(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()

	var ours, host []runtime.Object

	for _, object := range objects {
		if _, ok := object.(*corev1.Secret); ok {
			host = append(host, object)
		} else {
			ours = append(ours, object)
		}
	}

	if host == nil {
		host = []runtime.Object{secret(bundleData(t, 0))}
	}

	w := &world{
		t: t, api: fakeapi.New(ours...), host: kubefake.NewClientset(host...),
		network: machinetest.NewNetwork(), events: record.NewFakeRecorder(1000),
	}

	for _, object := range ours {
		if m, ok := object.(*v1alpha1.TalosMachine); ok {
			var n int
			if _, err := fmt.Sscanf(m.Name[len(m.Name)-1:], "%d", &n); err != nil {
				t.Fatal(err)
			}

			w.node(n).OfCluster(bundleOf(t, 0)).SetHardware(hardwareOf(n)).
				SetStatus(machine.Status{Stage: "booting", Hostname: fmt.Sprint("cp-", n)})
		}
	}

	t.Cleanup(w.stop)

	return w
}

func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()

	w := prepare(t, objects...)
	w.run()
	w.pass(time.Second)

	return w
}

// node is the control plane at an address of the plan.
func (w *world) node(n int) *machinetest.Node { return w.network.Node(address(n) + ":50000") }

// run starts a controller, as a process that becomes the leader does.
func (w *world) run() {
	logger := funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.logs = append(w.logs, prefix+" "+args)
	}, funcr.Options{Verbosity: 10})

	bundles, err := bundle.NewStore(w.host.CoreV1(), own)
	if err != nil {
		w.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	factory := informers.NewSharedInformerFactory(w.api.Fake, 0)
	controller := New(Config{
		Client:   w.api,
		Clusters: factory.Talos().V1alpha1().TalosClusters(),
		Machines: factory.Talos().V1alpha1().TalosMachines(),
		Bundles:  bundles,
		Recorder: w.events,
		Clock:    clock.RealClock{},
		Dial:     w.network.Dial,
	})

	factory.Start(ctx.Done())

	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()

	w.stops = append(w.stops, sync.OnceFunc(func() {
		cancel()

		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}

		factory.Shutdown()
	}))
}

func (w *world) stop() {
	for _, stop := range w.stops {
		stop()
	}

	w.stops = nil
}

func (w *world) restart() {
	w.stop()
	w.run()
	w.pass(time.Second)
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) cluster() *v1alpha1.TalosCluster {
	w.t.Helper()

	c, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Get(context.Background(), "c", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return c
}

func (w *world) editCluster(change func(*v1alpha1.TalosCluster)) {
	w.t.Helper()
	w.retried(func() error {
		c := w.cluster()
		change(c)

		_, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Update(context.Background(), c, metav1.UpdateOptions{})

		return err
	})
}

// retried writes again what somebody else wrote to meanwhile, as kubectl does.
func (w *world) retried(write func() error) {
	w.t.Helper()

	if err := clientretry.RetryOnConflict(clientretry.DefaultRetry, write); err != nil {
		w.t.Fatal(err)
	}
}

// edit changes a machine, spec and status.
func (w *world) edit(n int, change func(*v1alpha1.TalosMachine)) {
	w.t.Helper()

	machines := w.api.Fake.TalosV1alpha1().TalosMachines(namespace)

	for _, write := range []func(context.Context, *v1alpha1.TalosMachine, metav1.UpdateOptions) (*v1alpha1.TalosMachine, error){machines.Update, machines.UpdateStatus} {
		w.retried(func() error {
			m, err := machines.Get(context.Background(), uuid(n), metav1.GetOptions{})
			if err != nil {
				return err
			}

			change(m)

			_, err = write(context.Background(), m, metav1.UpdateOptions{})

			return err
		})
	}
}

func (w *world) delete(n int) {
	w.t.Helper()

	if err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Delete(context.Background(), uuid(n), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// expect checks the condition, and its message for words.
func (w *world) expect(r reason, inMessage ...string) {
	w.t.Helper()

	got := meta.FindStatusCondition(w.cluster().Status.Conditions, ConditionBootstrapped)
	if got == nil || got.Reason != string(r) || got.Status != outcomes()[r].status {
		w.t.Errorf("Bootstrapped is %+v, want %s", got, r)

		return
	}

	for _, words := range inMessage {
		if !strings.Contains(got.Message, words) {
			w.t.Errorf("Bootstrapped says %q, and not %q", got.Message, words)
		}
	}
}

// expectDone checks that etcd is known to be on a control plane, and whether it was bootstrapped from here.
func (w *world) expectDone(r reason, n int) {
	w.t.Helper()
	w.expect(r)

	got := w.cluster().Status.Bootstrap
	if got == nil || got.CompletedAt == nil || got.MachineName != uuid(n) || got.Endpoint != address(n) ||
		(got.IntendedAt != nil) != (r == reasonBootstrapped) {
		w.t.Errorf("status.bootstrap is %+v, want %s on %d", got, r, n)
	}
}

// expectSends checks how often each control plane was told to bootstrap.
func (w *world) expectSends(want map[int]int) {
	w.t.Helper()

	for n := range 10 {
		if got := len(w.node(n).Calls(machine.OpBootstrap)); got != want[n] {
			w.t.Errorf("control plane %d was told to bootstrap %d times, want %d", n, got, want[n])
		}
	}
}

func (w *world) told() []string {
	var out []string

	for {
		select {
		case line := <-w.events.Events:
			out = append(out, line)
		default:
			return out
		}
	}
}

type (
	machineCall = machinetest.Call
	apiCall     = fakeapi.Call
)
