package runtimelink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	ns      = "site-north"
	patient = 10 * time.Second
)

func mixer() types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: "mixer"} }

// fakeRuntime is a runtime without a network: it reports whenever it is told to, and takes orders or refuses them.
type fakeRuntime struct {
	mu      sync.Mutex
	report  api.Report
	orders  []api.Order
	streams map[chan struct{}]bool
	// refuse is why streams and orders fail; nil lets them through.
	refuse error
	// hang has orders wait until they are given up.
	hang      bool
	following int
	closed    int
	watches   int
}

func newFakeRuntime(uid string) *fakeRuntime {
	return &fakeRuntime{report: api.Report{Runtime: api.RuntimeInfo{BootID: "b1", UID: uid, ConfigHash: "h"}}, streams: map[chan struct{}]bool{}}
}

func (f *fakeRuntime) WatchReports(ctx context.Context, handle func(api.Report)) error {
	f.mu.Lock()
	if err := f.refuse; err != nil {
		f.mu.Unlock()
		return err
	}
	news := make(chan struct{}, 1)
	f.streams[news] = true
	f.following++
	f.watches++
	report := f.report
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, news)
		f.following--
	}()
	for {
		handle(report)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
		f.mu.Lock()
		err := f.refuse
		report = f.report
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (f *fakeRuntime) Put(ctx context.Context, order api.Order) (*api.Report, error) {
	f.mu.Lock()
	f.orders = append(f.orders, order)
	refuse, hang := f.refuse, f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if refuse != nil {
		return nil, refuse
	}
	f.say(func(r *api.Report) { r.Order, r.Applied = &order, true })
	return &api.Report{}, nil
}

func (f *fakeRuntime) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
}

// say changes the report and sends it, as a heartbeat if nothing changes.
func (f *fakeRuntime) say(change func(*api.Report)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if change != nil {
		change(&f.report)
	}
	for news := range f.streams {
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

func (f *fakeRuntime) set(change func()) {
	f.mu.Lock()
	change()
	f.mu.Unlock()
	f.say(nil)
}

func (f *fakeRuntime) taken() []api.Order {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]api.Order(nil), f.orders...)
}

func (f *fakeRuntime) now(read func() int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return read()
}

// site is a namespace whose runtimes are fakes.
type site struct {
	t          *testing.T
	host       *fake.Clientset
	c          *Controller
	clock      clock.WithTicker
	changes    atomic.Int32
	distrusted atomic.Int32
	stop       func()

	mu       sync.Mutex
	runtimes map[string]*fakeRuntime
}

func newSite(t *testing.T, ticking clock.WithTicker, runtimes map[string]*fakeRuntime) *site {
	t.Helper()
	s := &site{t: t, host: fake.NewClientset(), clock: ticking, runtimes: runtimes}
	factory := informers.NewSharedInformerFactory(s.host, 0)
	s.c = New(Options{
		Pods: factory.Core().V1().Pods(),
		Connect: func(_, address string) Runtime {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.runtimes[address]
		},
		Distrusted: func(string) { s.distrusted.Add(1) },
		Clock:      ticking,
	})
	s.c.OnChange(func(types.NamespacedName) { s.changes.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- s.c.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		factory.Shutdown()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patient):
			t.Error("the controller does not stop")
		}
	})
	t.Cleanup(s.stop)
	return s
}

// fakes have a port that nobody asks for.
func at(ip string) string { return ip + ":9443" }

func podOf(unit, ip string, uid types.UID) *corev1.Pod {
	pod := probepod.Build(probepod.Pod{
		Namespace: ns, Name: probepod.RuntimeName(unit), Kind: probepod.Unit,
		Owner: &metav1.OwnerReference{Kind: "Unit", Name: unit, UID: types.UID("uid-of-" + unit), Controller: ptr.To(true)},
	})
	pod.UID = uid
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, probepod.UnitAnnotation, unit)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip}
	return pod
}

func (s *site) create(pod *corev1.Pod) {
	s.t.Helper()
	if _, err := s.host.CoreV1().Pods(ns).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) update(pod *corev1.Pod) {
	s.t.Helper()
	if _, err := s.host.CoreV1().Pods(ns).Update(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) await(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patient); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: in vain", what)
		}
	}
}

func (s *site) contact(want bool) func() bool {
	return func() bool {
		_, _, is := s.c.Report(mixer())
		return is == want
	}
}

func order(revision int64, state isa88.State) api.Order {
	return api.Order{UID: "uid-of-mixer", Revision: revision, State: state}
}

// Req: P-16b
func TestAnOrderReachesTheRuntimeAtOnceAndItsReportComesBack(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.c.Tell(mixer(), order(1, isa88.Idle))
	if report, pod, contact := s.c.Report(mixer()); pod != "" || contact || report.Applied {
		t.Errorf("without a pod there is a report %+v of %q, contact %t", report, pod, contact)
	}
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.await("contact", s.contact(true))
	report, pod, _ := s.c.Report(mixer())
	if pod != "unit-runtime-mixer" || report.Runtime.BootID != "b1" {
		t.Errorf("report %+v of %s", report, pod)
	}
	s.await("the order is applied", func() bool {
		report, _, _ := s.c.Report(mixer())
		return report.Applied && report.Order.Revision == 1
	})
	told := time.Now()
	s.c.Tell(mixer(), order(2, isa88.Holding))
	s.await("the next one too", func() bool {
		report, _, _ := s.c.Report(mixer())
		return report.Order.Revision == 2
	})
	if took := time.Since(told); took > time.Second {
		t.Errorf("an order took %s", took)
	}
	if s.changes.Load() == 0 {
		t.Error("nobody was told of changes")
	}
}

// Req: P-16b
func TestWhatIsToldAgainOrOlderIsNotSent(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.c.Tell(mixer(), order(5, isa88.Running))
	s.await("contact", s.contact(true))
	// The first report of a stream has the order repeated, should it be unknown there.
	s.await("both", func() bool { return len(f.taken()) >= 1 })
	time.Sleep(50 * time.Millisecond)
	before := len(f.taken())
	s.c.Tell(mixer(), order(5, isa88.Running))
	s.c.Tell(mixer(), order(4, isa88.Idle))
	time.Sleep(50 * time.Millisecond)
	if orders := f.taken(); len(orders) != before {
		t.Errorf("orders %+v, want none after the first %d", orders, before)
	}
	renewed := api.Order{UID: "another", Revision: 1, State: isa88.Idle}
	s.c.Tell(mixer(), renewed)
	s.await("a new Unit of the name begins anew", func() bool {
		orders := f.taken()
		return orders[len(orders)-1] == renewed
	})
	if _, _, contact := s.c.Report(mixer()); contact {
		t.Error("the runtime of the former Unit counts as the new one's")
	}
}

// Req: P-16b
func TestAnOrderIsRepeatedAndAfterAFailureSoon(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	fakeClock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s := newSite(t, fakeClock, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.c.Tell(mixer(), order(1, isa88.Running))
	s.await("contact", s.contact(true))
	// settled waits until the sender sleeps again.
	settled := func() int {
		n := -1
		s.await("the sender rests", func() bool {
			last := n
			n = len(f.taken())
			time.Sleep(5 * time.Millisecond)
			return last == n
		})
		return n
	}
	step := func(d time.Duration) {
		f.say(func(r *api.Report) { r.Runtime.Time = r.Runtime.Time.Add(d) })
		settled()
		fakeClock.Step(d)
	}
	n := settled()
	step(api.KeepAlive)
	s.await("it is repeated", func() bool { return len(f.taken()) > n })

	f.mu.Lock()
	f.refuse = errors.New("it is busy")
	f.mu.Unlock()
	n = settled()
	fakeClock.Step(api.KeepAlive)
	s.await("it fails", func() bool { return len(f.taken()) > n })
	n = settled()
	for range 5 {
		fakeClock.Step(lastRetry)
		settled()
	}
	if tried := len(f.taken()) - n; tried < 4 {
		t.Errorf("%d attempts in five seconds, want about one a second", tried)
	}
}

// Req: P-16b (HOLD is not kept waiting by an order that hangs)
func TestAnOrderThatHangsIsGivenUpForOneThatAsksForSomethingElse(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	f.hang = true
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.c.Tell(mixer(), order(1, isa88.Running))
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.await("it hangs", func() bool { return len(f.taken()) == 1 })
	s.c.Tell(mixer(), order(2, isa88.Running))
	time.Sleep(20 * time.Millisecond)
	if n := len(f.taken()); n != 1 {
		t.Errorf("%d orders: one that says the same interrupts", n)
	}
	s.c.Tell(mixer(), order(3, isa88.Holding))
	s.await("HOLD goes past it", func() bool { orders := f.taken(); return orders[len(orders)-1].State == isa88.Holding })
}

// Req: P-16b
func TestWhenARuntimeIsInContact(t *testing.T) {
	now := time.Unix(1e9, 0)
	told := order(1, isa88.Running)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tc := range []struct {
		name         string
		order        *api.Order
		uid          string
		heard, taken time.Time
		want         bool
	}{
		{name: "never heard", uid: "uid-of-mixer"},
		{name: "heard, and nothing to tell it yet", uid: "uid-of-mixer", heard: now, want: true},
		{name: "heard, and it has not taken the order", order: &told, uid: "uid-of-mixer", heard: now},
		{name: "heard, and it took the order", order: &told, uid: "uid-of-mixer", heard: now, taken: now, want: true},
		{name: "heard three beats ago", order: &told, uid: "uid-of-mixer", heard: ago(silence), taken: now, want: true},
		{name: "silent for longer", order: &told, uid: "uid-of-mixer", heard: ago(silence + 1), taken: now},
		{name: "it took the last order ten seconds ago", order: &told, uid: "uid-of-mixer", heard: now, taken: ago(orderAge), want: true},
		{name: "it takes no orders any more", order: &told, uid: "uid-of-mixer", heard: now, taken: ago(orderAge + 1)},
		{name: "without a configuration", order: &told, heard: now, taken: now},
		{name: "a former Unit's", order: &told, uid: "another", heard: now, taken: now},
		{name: "a former Unit's, before any order", uid: "another", heard: now},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &link{clock: clocktesting.NewFakeClock(now), pod: podFacts{unitUID: "uid-of-mixer"}, order: tc.order, heard: tc.heard, taken: tc.taken}
			l.report.Runtime.UID = tc.uid
			if _, got := l.look(); got != tc.want {
				t.Errorf("in contact %t, want %t", got, tc.want)
			}
		})
	}
}

// Req: P-16b
func TestLostContactIsTold(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	fakeClock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s := newSite(t, fakeClock, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.c.Tell(mixer(), order(1, isa88.Running))
	s.await("contact", s.contact(true))
	f.set(func() { f.refuse = io.ErrUnexpectedEOF })
	s.await("the stream ends", func() bool { return f.now(func() int { return f.following }) == 0 })
	if !s.contact(true)() {
		t.Error("a stream that broke just now costs the contact")
	}
	told := s.changes.Load()
	s.await("silence is told", func() bool { fakeClock.Step(contactCheck); return s.changes.Load() > told && s.contact(false)() })
	report, pod, _ := s.c.Report(mixer())
	if report.Runtime.BootID != "b1" || pod != "unit-runtime-mixer" {
		t.Errorf("what was heard last is forgotten: %+v of %q", report, pod)
	}
	f.mu.Lock()
	f.refuse = nil
	f.mu.Unlock()
	s.await("contact again", func() bool { fakeClock.Step(contactCheck); return s.contact(true)() })
}

// Req: P-16b
func TestAnotherPodStartsFromNothing(t *testing.T) {
	first, second := newFakeRuntime("uid-of-mixer"), newFakeRuntime("uid-of-mixer")
	second.report.Runtime.BootID = "b2"
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): first, at("192.0.2.2"): second})
	s.c.Tell(mixer(), order(1, isa88.Running))
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.await("contact", s.contact(true))

	failed := podOf("mixer", "192.0.2.1", "p1")
	failed.Status.Phase = corev1.PodFailed
	s.update(failed)
	s.await("a pod that ended is no runtime", func() bool { _, pod, contact := s.c.Report(mixer()); return pod == "" && !contact })
	if first.now(func() int { return first.following }) != 0 || first.now(func() int { return first.closed }) != 1 {
		t.Error("the former runtime is followed still, or not closed")
	}
	s.update(podOf("mixer", "192.0.2.2", "p2"))
	s.await("the new one is told the order and reports", func() bool {
		report, _, contact := s.c.Report(mixer())
		return contact && report.Runtime.BootID == "b2" && len(second.taken()) > 0
	})
	s.c.Forget(mixer())
	if err := s.host.CoreV1().Pods(ns).Delete(context.Background(), "unit-runtime-mixer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("nothing is left", func() bool { _, pod, _ := s.c.Report(mixer()); return pod == "" })
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if len(s.c.links)+len(s.c.orders) != 0 {
		t.Errorf("%d links and %d orders are left", len(s.c.links), len(s.c.orders))
	}
}

// Req: P-12
func TestAPodThatIsNotTheUnitsRuntimeIsNotAsked(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): f})
	for name, change := range map[string]func(*corev1.Pod){
		"a copy":                  func(p *corev1.Pod) { p.Name = "copy" },
		"somebody's of that name": func(p *corev1.Pod) { p.Labels[probepod.ManagedByLabel] = "Helm" },
	} {
		pod := podOf("mixer", "192.0.2.1", "p1")
		change(pod)
		s.create(pod)
		time.Sleep(20 * time.Millisecond)
		if _, pod, _ := s.c.Report(mixer()); pod != "" || f.now(func() int { return f.watches }) != 0 {
			t.Errorf("%s is followed", name)
		}
	}
}

// Req: P-11
func TestARefusedCertificateIsReported(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	f.refuse = fmt.Errorf("handshake: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.await("it is told", func() bool { return s.distrusted.Load() > 0 })
}

// Req: P-16b
func TestARuntimeThatStartsAnewIsToldItsOrderAtOnce(t *testing.T) {
	f := newFakeRuntime("uid-of-mixer")
	s := newSite(t, clock.RealClock{}, map[string]*fakeRuntime{at("192.0.2.1"): f})
	s.c.Tell(mixer(), order(1, isa88.Running))
	s.create(podOf("mixer", "192.0.2.1", "p1"))
	s.await("contact", s.contact(true))
	f.set(func() { f.refuse = io.EOF })
	s.await("it ends", func() bool { return f.now(func() int { return f.following }) == 0 })
	before := len(f.taken())
	began := time.Now()
	f.mu.Lock()
	f.refuse, f.report = nil, api.Report{Runtime: api.RuntimeInfo{BootID: "b2", UID: "uid-of-mixer"}}
	f.mu.Unlock()
	s.await("it is told", func() bool { return len(f.taken()) > before })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s: the next repetition, and not the stream, told it", took)
	}
}

// Req: P-16b (a thousand Units)
func TestAThousandRuntimesAndNothingIsLeftOfThem(t *testing.T) {
	units := 1000
	if testing.Short() {
		units = 100
	}
	before := runtime.NumGoroutine()
	runtimes := map[string]*fakeRuntime{}
	ip := func(i int) string { return fmt.Sprintf("192.0.%d.%d", i/250, i%250) }
	for i := range units {
		runtimes[at(ip(i))] = newFakeRuntime(fmt.Sprintf("uid-of-u%d", i))
	}
	s := newSite(t, clock.RealClock{}, runtimes)
	for i := range units {
		key := types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("u%d", i)}
		s.c.Tell(key, api.Order{UID: fmt.Sprintf("uid-of-u%d", i), Revision: 1, State: isa88.Idle})
		s.create(podOf(key.Name, ip(i), types.UID(fmt.Sprint("p", i))))
	}
	all := func(revision int64) func() bool {
		return func() bool {
			for i := range units {
				report, _, contact := s.c.Report(types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("u%d", i)})
				if !contact || report.Order == nil || report.Order.Revision != revision {
					return false
				}
			}
			return true
		}
	}
	s.await("all are in contact", all(1))
	if n := runtime.NumGoroutine() - before; n > 3*units+50 {
		t.Errorf("%d goroutines for %d Units", n, units)
	}
	told := time.Now()
	for i := range units {
		s.c.Tell(types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("u%d", i)}, api.Order{UID: fmt.Sprintf("uid-of-u%d", i), Revision: 2, State: isa88.Holding})
	}
	s.await("all hold", all(2))
	t.Logf("%d orders were applied in %s", units, time.Since(told))
	s.stop()
	for end := time.Now().Add(patient); runtime.NumGoroutine() > before+5; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
}
