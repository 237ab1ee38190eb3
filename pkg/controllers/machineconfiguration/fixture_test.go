package machineconfiguration

import (
	"context"
	"fmt"
	"net/netip"
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
	clientretry "k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
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
	endpoint  = "192.0.2.7"
	uuid      = "6f7a1c52-3b1e-4d8f-9a60-0cc47ab01056"
	// print is a fingerprint in the form of a console.
	print      = "tgvfg7oOHTEAlYaVgZZhOJOa3rzZXNuFUQG44kyzB5o="
	otherPrint = "AAvfg7oOHTEAlYaVgZZhOJOa3rzZXNuFUQG44kyzB5o="
)

// bundleYAML makes one bundle for all tests: its keys take time.
func bundleYAML(t *testing.T) []byte {
	t.Helper()

	data, err := onceBundle()
	if err != nil {
		t.Fatal(err)
	}

	return data
}

var onceBundle = sync.OnceValues(func() ([]byte, error) { return render.GenerateBundle("v1.13") })

func bundleOf(t *testing.T) *secrets.Bundle {
	t.Helper()

	bundle, err := render.ParseBundle(bundleYAML(t))
	if err != nil {
		t.Fatal(err)
	}

	return bundle
}

func cluster() *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", Generation: 1},
		Spec: v1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://192.0.2.100:6443",
			SecretsRef:           v1alpha1.SecretReference{Name: "c-bundle"},
			TalosVersion:         "v1.13",
			KubernetesVersion:    "v1.36.2",
		},
	}
}

func machine(edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuid, Generation: 1},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "c"},
			Identity: v1alpha1.MachineIdentity{
				UUID: uuid, Serial: "SN-1-X", MACAddresses: []string{"b4:45:06:00:00:01", "b4:45:06:00:00:02"},
			},
			Role:     v1alpha1.RoleWorker,
			Approved: ptr.To(true),
			Endpoint: endpoint,
			Install:  &v1alpha1.MachineInstall{Disk: "/dev/sda"},
		},
		Status: v1alpha1.TalosMachineStatus{Phase: v1alpha1.MachinePending},
	}
	for _, edit := range edits {
		edit(m)
	}

	return m
}

func secret(data []byte, edits ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "c-bundle", Labels: map[string]string{bundle.ClusterLabel: namespace + ".c"}},
		Data:       map[string][]byte{bundle.Key: data},
	}
	for _, edit := range edits {
		edit(s)
	}

	return s
}

func hardwareOf(edits ...func(*maintenance.Hardware)) maintenance.Hardware {
	h := maintenance.Hardware{
		UUID: strings.ToUpper(uuid), Serial: "SN-1-X", Manufacturer: "Example Inc.", Stage: "maintenance",
		Links: []maintenance.Link{
			{Name: "eth1", Physical: true, PermanentAddr: "b4:45:06:00:00:02"},
			{Name: "eth0", Physical: true, PermanentAddr: "b4:45:06:00:00:01"},
		},
		Disks: []maintenance.Disk{
			{DevPath: "/dev/sda", SizeBytes: 4e12, Model: "ST4000NM", Serial: "S-A", Transport: "sata", Rotational: true},
			{DevPath: "/dev/sdb", SizeBytes: 960e9, Model: "PM893", Serial: "S-B", Transport: "sata"},
		},
	}
	for _, edit := range edits {
		edit(&h)
	}

	return h
}

// node is one simulated machine. It opens no socket (T-19).
type node struct {
	mu       sync.Mutex
	hardware maintenance.Hardware
	// dialErr, readErr and applyErr are what each step fails with.
	dialErr, readErr error
	applyErr         func(config []byte) error
	// onApply runs while the configuration is under way.
	onApply func()
	// accepted tells that it has its configuration, and asks for a certificate from then on.
	accepted bool
	warnings []string

	dials int
	reads int
	sent  [][]byte
	open  int
	// odd are calls that must not be.
	odd []string
}

func newNode() *node { return &node{hardware: hardwareOf()} }

func (n *node) set(edit func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()

	edit(n)
}

func (n *node) sends() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return len(n.sent)
}

func (n *node) dialed() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.dials
}

type session struct {
	node *node
	read bool
}

func failure(class maintenance.Class, op string) error {
	return &maintenance.Error{Class: class, Address: endpoint, Op: op}
}

func (n *node) Dial(_ context.Context, address string) (maintenance.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.dials++

	if target, err := netip.ParseAddrPort(address); err != nil || target.Port() != 50000 {
		n.odd = append(n.odd, "dialed "+address)
	} else if target.Addr().String() != endpoint {
		return nil, failure(maintenance.ClassUnreachable, "dial")
	}

	if n.dialErr != nil {
		return nil, n.dialErr
	}

	n.open++

	return &session{node: n}, nil
}

func (s *session) Identity(context.Context) (maintenance.Hardware, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()

	if s.node.accepted {
		return maintenance.Hardware{}, failure(maintenance.ClassNotInMaintenance, "read identity")
	}

	s.read = true
	s.node.reads++

	return s.node.hardware, s.node.readErr
}

func (s *session) ApplyConfiguration(_ context.Context, config []byte, options maintenance.ApplyOptions) (maintenance.ApplyResult, error) {
	s.node.mu.Lock()
	hook := s.node.onApply
	s.node.mu.Unlock()

	if hook != nil {
		hook()
	}

	s.node.mu.Lock()
	defer s.node.mu.Unlock()

	if !s.read || options.DryRun {
		s.node.odd = append(s.node.odd, "sent on a connection on which nobody asked who is there")
	}

	if s.node.accepted {
		s.node.odd = append(s.node.odd, "sent again after it was accepted")
	}

	s.node.sent = append(s.node.sent, config)

	if s.node.applyErr != nil {
		if err := s.node.applyErr(config); err != nil {
			return maintenance.ApplyResult{}, err
		}
	}

	s.node.accepted = true

	return maintenance.ApplyResult{Mode: "NO_REBOOT", Warnings: s.node.warnings}, nil
}

func (s *session) Fingerprint() string { return print }

func (s *session) Close() error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.node.open--

	return nil
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

	e.lines = append(e.lines, fmt.Sprintf("%s %s/%s %s %s: %s", ref.Kind, ref.Namespace, ref.Name, kind, reason, message))
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

	return append([]string(nil), e.lines...)
}

// world is a running controller with all around it, in a synctest bubble.
type world struct {
	t      *testing.T
	api    *fakeapi.API
	host   *kubefake.Clientset
	node   *node
	events *events
	stop   func()

	mu   sync.Mutex
	logs []string
}

// start serves the objects; Secrets are the host cluster's.
func start(t *testing.T, n *node, objects ...runtime.Object) *world {
	t.Helper()

	var ours, host []runtime.Object

	for _, object := range objects {
		if _, ok := object.(*corev1.Secret); ok {
			host = append(host, object)
		} else {
			ours = append(ours, object)
		}
	}

	w := &world{t: t, api: fakeapi.New(ours...), host: kubefake.NewClientset(host...), node: n, events: &events{}}
	w.run()
	t.Cleanup(func() {
		w.stop()

		if len(n.odd) > 0 {
			t.Errorf("the machine saw what must not be: %v", n.odd)
		}

		if n.open != 0 {
			t.Errorf("%d sessions left open", n.open)
		}
	})

	return w
}

func (w *world) run() {
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
		Dial:     w.node.Dial,
	})

	factory.Start(ctx.Done())

	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()

	w.stop = sync.OnceFunc(func() {
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

func (w *world) machine() *v1alpha1.TalosMachine {
	w.t.Helper()

	m, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Get(context.Background(), uuid, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return m
}

// edit changes the machine as a user does.
func (w *world) edit(change func(*v1alpha1.TalosMachine)) {
	w.t.Helper()
	w.retried(func() error {
		m := w.machine()
		change(m)

		_, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Update(context.Background(), m, metav1.UpdateOptions{})

		return err
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

// retried writes again what somebody else wrote to meanwhile, as kubectl does.
func (w *world) retried(write func() error) {
	w.t.Helper()

	if err := clientretry.RetryOnConflict(clientretry.DefaultRetry, write); err != nil {
		w.t.Fatal(err)
	}
}

// expect checks what stands on the machine: the reason of Configured, the only problem, and the phase.
func (w *world) expect(r reason) {
	w.t.Helper()

	status := w.machine().Status
	meaning := outcomes()[r]

	configured := meta.FindStatusCondition(status.Conditions, ConditionConfigured)
	if configured == nil || configured.Reason != string(r) || configured.Status != meaning.configured {
		w.t.Errorf("Configured is %+v, want %s", configured, r)
	}

	for kind := range problems() {
		if standing := meta.IsStatusConditionTrue(status.Conditions, kind); standing != (kind == meaning.problem) {
			w.t.Errorf("condition %s stands: %t, with the reason %s", kind, standing, r)
		}
	}

	if meaning.rendered != "" && !meta.IsStatusConditionPresentAndEqual(status.Conditions, ConditionRendered, meaning.rendered) {
		w.t.Errorf("Rendered is %+v", meta.FindStatusCondition(status.Conditions, ConditionRendered))
	}

	if meaning.phase != "" && status.Phase != meaning.phase {
		w.t.Errorf("phase %s, want %s", status.Phase, meaning.phase)
	}
}

func (w *world) expectSends(want int) {
	w.t.Helper()

	if got := w.node.sends(); got != want {
		w.t.Errorf("configuration was sent %d times, want %d", got, want)
	}
}
