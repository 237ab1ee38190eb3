package discovery

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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientretry "k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

func TestMain(m *testing.M) {
	// The fake clientset's watch panics when more events wait than this.
	watch.DefaultChanSize = 1 << 16

	os.Exit(m.Run())
}

const namespace = "site-a"

// node is one simulated machine, or whatever else is at an address.
type node struct {
	hardware maintenance.Hardware
	// dialErr and readErr are what dialing and reading fail with.
	dialErr, readErr error
	// silent accepts and never says anything.
	silent bool
	// dialTakes and readTakes are how long both take.
	dialTakes, readTakes time.Duration
}

// plant is the network: what is not in it does not answer. It opens no socket (T-19).
type plant struct {
	mu       sync.Mutex
	nodes    map[string]*node
	predials map[string]int
	dials    map[string]int
	open     int
	mostOpen int
	calls    int
	mostCall int
	odd      []string
}

func newPlant() *plant {
	return &plant{nodes: make(map[string]*node), predials: make(map[string]int), dials: make(map[string]int)}
}

func (p *plant) put(addr string, n *node) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if n == nil {
		delete(p.nodes, addr)
	} else {
		p.nodes[addr] = n
	}
}

func (p *plant) at(address string, counts map[string]int) *node {
	p.mu.Lock()
	defer p.mu.Unlock()

	target, err := netip.ParseAddrPort(address)
	if err != nil || target.Port() != 50000 {
		p.odd = append(p.odd, address)

		return nil
	}

	counts[target.Addr().String()]++

	return p.nodes[target.Addr().String()]
}

func (p *plant) enter() func() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.calls++
	p.mostCall = max(p.mostCall, p.calls)

	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
	}
}

func unreachable(ctx context.Context, address string) error {
	<-ctx.Done()

	return &maintenance.Error{Class: maintenance.ClassUnreachable, Address: address, Op: "dial", Detail: "i/o timeout"}
}

// Predial behaves as maintenance.Predial does, with its limit.
func (p *plant) Predial(ctx context.Context, address string) error {
	defer p.enter()()

	ctx, cancel := context.WithTimeout(ctx, maintenance.PredialTimeout)
	defer cancel()

	if p.at(address, p.predials) == nil {
		return unreachable(ctx, address)
	}

	return nil
}

func (p *plant) Dial(ctx context.Context, address string) (maintenance.Client, error) {
	defer p.enter()()

	n := p.at(address, p.dials)

	switch {
	case n == nil:
		return nil, unreachable(ctx, address)
	case n.dialErr != nil:
		return nil, n.dialErr
	}

	if err := wait(ctx, n.dialTakes); err != nil {
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.open++
	p.mostOpen = max(p.mostOpen, p.open)

	return &session{plant: p, node: n, address: address}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

type session struct {
	maintenance.Client

	plant   *plant
	node    *node
	address string
}

func (s *session) Identity(ctx context.Context) (maintenance.Hardware, error) {
	if s.node.silent {
		return maintenance.Hardware{}, unreachable(ctx, s.address)
	}

	if err := wait(ctx, s.node.readTakes); err != nil {
		return maintenance.Hardware{}, err
	}

	return s.node.hardware, s.node.readErr
}

func (s *session) Close() error {
	s.plant.mu.Lock()
	defer s.plant.mu.Unlock()
	s.plant.open--

	return nil
}

func (p *plant) dialed(addr string) int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.dials[addr]
}

func (p *plant) predialed(addr string) int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.predials[addr]
}

func (p *plant) touched() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	total := len(p.odd)
	for _, n := range p.predials {
		total += n
	}

	for _, n := range p.dials {
		total += n
	}

	return total
}

// events records what was told.
type events struct {
	mu    sync.Mutex
	lines []string
	times []time.Time
}

func (e *events) Event(object runtime.Object, kind, reason, message string) {
	ref := object.(*corev1.ObjectReference) //nolint:forcetypeassert // as the controller makes them

	e.mu.Lock()
	defer e.mu.Unlock()

	e.lines = append(e.lines, fmt.Sprintf("%s %s/%s %s %s: %s", ref.Kind, ref.Namespace, ref.Name, kind, reason, message))
	e.times = append(e.times, time.Now())
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

func (e *events) of(reason string) []string {
	var out []string

	for _, line := range e.all() {
		if strings.Contains(line, " "+reason+": ") {
			out = append(out, line)
		}
	}

	return out
}

// world is a running controller with all around it. It lives in a synctest bubble: its time stands still while anything
// can run.
type world struct {
	t      *testing.T
	api    *fakeapi.API
	plant  *plant
	events *events
	stop   func()

	mu   sync.Mutex
	logs []string
}

func start(t *testing.T, p *plant, objects ...runtime.Object) *world {
	t.Helper()

	w := &world{t: t, api: fakeapi.New(objects...), plant: p, events: &events{}}
	w.run()
	t.Cleanup(func() { w.stop() })

	return w
}

// run starts a controller as a new process would.
func (w *world) run() {
	logger := funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.logs = append(w.logs, prefix+" "+args)
	}, funcr.Options{Verbosity: 10})

	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	factory := informers.NewSharedInformerFactory(w.api.Fake, 0)

	controller := w.controller(factory)

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

func (w *world) controller(factory informers.SharedInformerFactory) *Controller {
	return New(Config{
		Client:   w.api,
		Clusters: factory.Talos().V1alpha1().TalosClusters(),
		Machines: factory.Talos().V1alpha1().TalosMachines(),
		Recorder: w.events,
		Clock:    clock.RealClock{},
		Dial:     w.plant.Dial,
		Predial:  w.plant.Predial,
	})
}

// unstarted is a controller whose informers know nothing.
func (w *world) unstarted() *Controller {
	return w.controller(informers.NewSharedInformerFactory(w.api.Fake, 0))
}

func candidatesOf(cluster *v1alpha1.TalosCluster) []netip.Addr {
	candidates, _ := readiness(cluster)

	return candidates
}

// settle gives the caches the moment that they need to fill, and lets everything run that needs no more time.
func (w *world) settle() { w.pass(250 * time.Millisecond) }

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) machine(name string) *v1alpha1.TalosMachine {
	w.t.Helper()

	machine, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatalf("machine %s: %v", name, err)
	}

	return machine
}

func (w *world) machines() []v1alpha1.TalosMachine {
	w.t.Helper()

	list, err := w.api.Fake.TalosV1alpha1().TalosMachines("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return list.Items
}

// ask has a user ask for a sweep, as the API server records it: in whole seconds.
func (w *world) ask(name string) time.Time {
	w.t.Helper()

	asked := time.Now().Truncate(time.Second)
	if asked.Before(time.Now()) {
		asked = asked.Add(time.Second)
	}

	w.retried(func() error {
		cluster := w.cluster(name)
		if cluster.Status.Discovery == nil {
			cluster.Status.Discovery = &v1alpha1.DiscoveryStatus{}
		}

		if last := cluster.Status.Discovery.RequestedAt; last != nil && !asked.After(last.Time) {
			asked = last.Add(time.Second)
		}

		cluster.Status.Discovery.RequestedAt = &metav1.Time{Time: asked}

		_, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).UpdateStatus(context.Background(), cluster, metav1.UpdateOptions{})

		return err
	})

	return asked
}

// register makes a machine by hand.
func (w *world) register(machine *v1alpha1.TalosMachine) {
	w.t.Helper()

	if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(machine.Namespace).Create(context.Background(), machine, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()

	if err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// byHand is a machine as somebody registers it who has read its identity off a box.
func byHand(read maintenance.Hardware) *v1alpha1.TalosMachine {
	return &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: read.UUID},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "c"},
			Identity:   hardware.Stored(hardware.Identity(read)),
		},
	}
}

func (w *world) cluster(name string) *v1alpha1.TalosCluster {
	w.t.Helper()

	cluster, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return cluster
}

func (w *world) found(name string) v1alpha1.DiscoveryStatus {
	w.t.Helper()

	status := w.cluster(name).Status.Discovery
	if status == nil {
		w.t.Fatalf("cluster %s: no sweep is shown", name)
	}

	return *status
}

func (w *world) change(name string, edit func(*v1alpha1.TalosCluster)) {
	w.t.Helper()
	w.retried(func() error {
		cluster := w.cluster(name)
		edit(cluster)

		_, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Update(context.Background(), cluster, metav1.UpdateOptions{})

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

func clusterOf(name string, discovery v1alpha1.TalosDiscovery) *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec:       v1alpha1.TalosClusterSpec{Discovery: discovery},
	}
}

func addresses(list ...string) v1alpha1.TalosDiscovery {
	return v1alpha1.TalosDiscovery{Addresses: list}
}

const (
	uuidA = "6f7a1c52-3b1e-4d8f-9a60-0cc47ab01056"
	uuidB = "0c1d2e3f-8899-4aab-bccd-ddeeff001122"
)

// box is a machine with a full identity; n sets its serial and MACs apart.
func box(uuid string, n int) maintenance.Hardware {
	return maintenance.Hardware{
		UUID:         uuid,
		Serial:       fmt.Sprintf("SN-%04d-X", n),
		Manufacturer: "Example Inc.",
		Product:      "Box 9",
		Links: []maintenance.Link{
			{Name: "eth1", Physical: true, PermanentAddr: fmt.Sprintf("b4:45:06:%02x:%02x:02", n>>8, n&0xff), Driver: "igb"},
			{Name: "eth0", Physical: true, PermanentAddr: fmt.Sprintf("b4:45:06:%02x:%02x:01", n>>8, n&0xff), Driver: "igb", Up: true},
			{Name: "bond0"},
		},
		Disks: []maintenance.Disk{
			{DevPath: "/dev/sr0", CDROM: true},
			{DevPath: "/dev/sda", SizeBytes: 1 << 40, Model: "Disk", Serial: "D1", WWID: "w1", Transport: "sata", Rotational: true},
			{DevPath: "/dev/nvme0n1", SizeBytes: 1 << 39, Transport: "nvme"},
		},
		TalosVersion: "v1.13.9",
		Stage:        "maintenance",
		Fingerprint:  "FINGERPRINT",
	}
}

func uuidOf(n int) string { return fmt.Sprintf("6f7a1c52-3b1e-4d8f-9a60-%012x", n) }
