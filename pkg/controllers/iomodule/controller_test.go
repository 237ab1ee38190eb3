package iomodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalfake "github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/networkprobe"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

const ns = "site-north"

func nn(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// The fake API server panics when a watcher falls more than a hundred events behind, as a thousand modules make it.
func TestMain(m *testing.M) {
	watch.DefaultChanSize = 100000
	m.Run()
}

// fakeProbe says what a test has it say, on one stream at a time. It computes no differences: that is the client's.
type fakeProbe struct {
	mu      sync.Mutex
	modules map[string]api.ModuleState
	streams map[string]func(probeclient.Update)
	breaks  map[string]chan struct{}
	opened  atomic.Int32
	open    atomic.Int32
	silent  bool
	// refuse is why no stream is to be had.
	refuse error
}

var errBroken = errors.New("the stream broke")

func (f *fakeProbe) follow(ctx context.Context, namespace, address string, handle func(probeclient.Update)) error {
	f.mu.Lock()
	if f.refuse != nil {
		defer f.mu.Unlock()
		return f.refuse
	}
	if f.silent {
		f.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	f.opened.Add(1)
	f.open.Add(1)
	defer f.open.Add(-1)
	if f.streams == nil {
		f.streams, f.breaks = map[string]func(probeclient.Update){}, map[string]chan struct{}{}
	}
	ends := make(chan struct{})
	f.streams[address], f.breaks[address] = handle, ends
	handle(f.update(f.names()...))
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.breaks[address] == ends {
			delete(f.streams, address)
			delete(f.breaks, address)
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ends:
		return errBroken
	}
}

func (f *fakeProbe) names() []string {
	var all []string
	for name := range f.modules {
		all = append(all, name)
	}
	return all
}

func (f *fakeProbe) update(changed ...string) probeclient.Update {
	u := probeclient.Update{Modules: map[string]api.ModuleState{}, Changed: changed}
	for name, m := range f.modules {
		u.Modules[name] = m
	}
	return u
}

// say tells all followers of changed modules; of none it is a heartbeat.
func (f *fakeProbe) say(changed ...api.ModuleState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.modules == nil {
		f.modules = map[string]api.ModuleState{}
	}
	var names []string
	for _, m := range changed {
		f.modules[m.Name] = m
		names = append(names, m.Name)
	}
	for _, handle := range f.streams {
		handle(f.update(names...))
	}
}

func (f *fakeProbe) breakStreams(andFallSilent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = andFallSilent
	for address, ends := range f.breaks {
		close(ends)
		delete(f.streams, address)
		delete(f.breaks, address)
	}
}

// site is one namespace with its controllers.
type site struct {
	t     *testing.T
	ctx   context.Context
	host  *fake.Clientset
	ours  *physicalfake.Clientset
	probe *fakeProbe
	// writes counts the statuses that were stored.
	writes atomic.Int32
	// refuse is how many of the next writes meet a conflict; it is negative once one was tried after them.
	refuse atomic.Int32
	// full: no write of a status has space; noSpace is how many had none.
	full       atomic.Bool
	noSpace    atomic.Int32
	informs    physicalinformers.SharedInformerFactory
	kube       informers.SharedInformerFactory
	running    sync.WaitGroup
	stop       func()
	controller *Controller
	// distrusted is how often a namespace was reported.
	distrusted atomic.Int32
}

func (s *site) distrust(namespace string) {
	if namespace != ns {
		s.t.Errorf("namespace %s is reported", namespace)
	}
	s.distrusted.Add(1)
}

// newSite starts the controller; what it finds is what objects are.
func newSite(t *testing.T, c clock.WithTicker, hostObjects, objects []runtime.Object) *site {
	ctx, cancel := context.WithCancel(context.Background())
	s := &site{t: t, ctx: ctx, host: fake.NewClientset(hostObjects...), ours: physicalfake.NewSimpleClientset(objects...), probe: &fakeProbe{}}
	s.versionModules()
	s.informs = physicalinformers.NewSharedInformerFactory(s.ours, 0)
	s.kube = informers.NewSharedInformerFactory(s.host, 0)
	s.controller = New(Options{
		Client:  s.ours.PhysicalV1alpha1(),
		Modules: s.informs.Physical().V1alpha1().IOModules(), Controllers: s.informs.Physical().V1alpha1().Controllers(),
		Pods: s.kube.Core().V1().Pods(), ConfigMaps: s.kube.Core().V1().ConfigMaps(), Nodes: s.kube.Core().V1().Nodes(),
		Follow: s.probe.follow, Distrusted: s.distrust, Clock: c,
	})
	s.start(cancel, s.controller.Run)
	return s
}

// versionModules gives modules resourceVersions and a status of their own, which the fake API server lacks: without them,
// whoever writes a status takes back what was written to the spec meanwhile.
func (s *site) versionModules() {
	var mu sync.Mutex
	version := 0
	resource := v1alpha1.SchemeGroupVersion.WithResource("iomodules")
	s.ours.PrependReactor("update", "iomodules", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		update := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.IOModule).DeepCopy()
		stored, err := s.ours.Tracker().Get(resource, update.Namespace, update.Name)
		if err != nil {
			return true, nil, err
		}
		is := stored.(*v1alpha1.IOModule)
		if action.GetSubresource() == "status" {
			if s.full.Load() {
				s.noSpace.Add(1)
				return true, nil, errors.New("etcdserver: mvcc: database space exceeded")
			}
			if s.refuse.Add(-1) >= 0 || update.ResourceVersion != is.ResourceVersion {
				return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "iomodules"}, update.Name, errors.New("it is newer"))
			}
			s.writes.Add(1)
			update.Spec, update.ObjectMeta = is.Spec, is.ObjectMeta
		} else {
			update.Status = is.Status
		}
		version++
		update.ResourceVersion = strconv.Itoa(version)
		return true, update, s.ours.Tracker().Update(resource, update, update.Namespace)
	})
}

func (s *site) start(cancel context.CancelFunc, runs ...func(context.Context) error) {
	for _, run := range runs {
		s.running.Go(func() {
			if err := run(s.ctx); err != nil {
				s.t.Error(err)
			}
		})
	}
	s.informs.Start(s.ctx.Done())
	s.kube.Start(s.ctx.Done())
	s.stop = func() {
		cancel()
		s.running.Wait()
		s.informs.Shutdown()
		s.kube.Shutdown()
	}
	s.t.Cleanup(func() {
		s.stop()
		if open := s.probe.open.Load(); open != 0 {
			s.t.Errorf("%d streams are left open", open)
		}
	})
}

func (s *site) module(name string) *v1alpha1.IOModule {
	m, err := s.ours.PhysicalV1alpha1().IOModules(ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// await waits until a module has this state and reason.
func (s *site) await(name string, state v1alpha1.ModuleState, reason string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s is %s (%s)", name, state, reason), func() bool {
		got := s.module(name).Status
		return got.State == state && got.Reason == reason
	})
}

func (s *site) eventually(what string, done func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not so: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func modbus(name string) *v1alpha1.IOModule {
	return &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolModbus,
			Modbus: &v1alpha1.ModbusConnection{Endpoint: "tcp://192.0.2.1:502"}},
	}
}

func listing(modules string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: networkprobe.BaseName, Labels: probepod.Labels(probepod.Network)},
		Data:       map[string]string{probepod.ConfigKey: `{"modules":[` + modules + `]}`},
	}
}

func running(uid types.UID) *corev1.Pod {
	pod := probepod.Build(probepod.Pod{Namespace: ns, Name: networkprobe.BaseName, Kind: probepod.Network, Image: "v1"})
	pod.UID, pod.CreationTimestamp = uid, metav1.NewTime(begin().Add(time.Hour))
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "192.0.2.100"
	return pod
}

func says(name string, found, connected bool, reason string) api.ModuleState {
	m := api.ModuleState{Name: name, UID: "uid-" + name, Generation: 1, Found: found, Connected: connected, Reason: reason}
	if connected {
		m.Health = driver.HealthNormal
	}
	return m
}

func (s *site) createPod(pod *corev1.Pod) {
	s.t.Helper()
	if _, err := s.host.CoreV1().Pods(ns).Create(s.ctx, pod, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) updatePod(pod *corev1.Pod) {
	s.t.Helper()
	if _, err := s.host.CoreV1().Pods(ns).Update(s.ctx, pod, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// Req: P-06, P-07
func TestAModuleFromItsFirstMomentOn(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	s := newSite(t, c, nil, []runtime.Object{modbus("flow")})
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)

	if _, err := s.host.CoreV1().ConfigMaps(ns).Create(s.ctx, listing(`{"name":"flow"}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbePending)

	pod := running("p1")
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	s.createPod(pod)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeUnschedulable)

	s.updatePod(running("p1"))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	s.probe.say(says("flow", false, false, api.ReasonMeasuring))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonNotMeasured)
	online := says("flow", true, true, api.ReasonConnected)
	s.probe.say(online)
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	online.Identity = &driver.Identity{Vendor: "Acme", Serial: "7"}
	s.probe.say(online)
	s.eventually("the nameplate is known", func() bool {
		i := s.module("flow").Status.Identity
		return i != nil && i.Vendor == "Acme" && i.Serial == "7"
	})
	s.probe.say(says("flow", true, false, "Timeout"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")

	status := s.module("flow").Status
	if status.ProbePodName != networkprobe.BaseName || status.ObservedGeneration != 1 || status.Health != v1alpha1.HealthFailure {
		t.Errorf("status %+v", status)
	}
	if n := s.probe.opened.Load(); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
}

// online is a site whose module flow is Online.
func online(t *testing.T, c clock.WithTicker) *site {
	s := newSite(t, c, []runtime.Object{listing(`{"name":"flow"}`), running("p1")}, []runtime.Object{modbus("flow")})
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	return s
}

// Req: P-07
func TestAProbeThatFallsSilentMakesItsModulesUnknown(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	s := online(t, c)
	s.probe.say(says("flow", true, false, "Timeout"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")

	s.probe.breakStreams(true)
	for range 7 {
		c.Step(silenceCheck)
	}
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeUnavailable)
	if health := s.module("flow").Status.Health; health != "" {
		t.Errorf("health %s of what was not measured", health)
	}

	s.probe.breakStreams(false)
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	pod := running("p1")
	pod.Status.PodIP = "192.0.2.101"
	s.updatePod(pod)
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
}

// Req: P-07
func TestAStreamThatComesBackInTimeCostsNothing(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	s := online(t, c)
	before := s.writes.Load()
	for range 3 {
		opened := s.probe.opened.Load()
		s.probe.breakStreams(false)
		s.eventually("the stream waits to be opened again", c.HasWaiters)
		s.eventually("the stream is opened again", func() bool {
			c.Step(firstReconnect)
			return s.probe.opened.Load() > opened
		})
	}
	if n := s.writes.Load() - before; n != 0 {
		t.Errorf("%d writes", n)
	}
	if state := s.module("flow").Status.State; state != v1alpha1.ModuleOnline {
		t.Errorf("state %s", state)
	}
}

// Req: P-07
func TestAMeasurementThatIsTooOldIsUnknown(t *testing.T) {
	s := online(t, clocktesting.NewFakeClock(begin()))
	old := says("flow", true, true, api.ReasonConnected)
	old.Stale = true
	s.probe.say(old)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeUnavailable)
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
}

// Req: P-07, P-11
func TestAnotherPodStartsFromNothing(t *testing.T) {
	s := online(t, clocktesting.NewFakeClock(begin()))
	if err := s.host.CoreV1().Pods(ns).Delete(s.ctx, networkprobe.BaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbePending)
	s.eventually("the stream is closed", func() bool { return s.probe.open.Load() == 0 })
	s.probe.say(says("flow", false, false, api.ReasonMeasuring))
	s.createPod(running("p2"))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonNotMeasured)
}

// Req: P-08, P-12
func TestAPodThatIsNotOursIsNotAsked(t *testing.T) {
	pod := running("p1")
	pod.Labels = nil
	cm := listing(`{"name":"flow"}`)
	cm.Annotations = map[string]string{networkprobe.ProblemAnnotation: "Pod network-io-probe is not fieldplane's"}
	s := newSite(t, clocktesting.NewFakeClock(begin()), []runtime.Object{cm, pod}, []runtime.Object{modbus("flow")})
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbePending)
	if m := s.module("flow").Status.Message; m != cm.Annotations[networkprobe.ProblemAnnotation] {
		t.Errorf("message %q", m)
	}
	if n := s.probe.opened.Load(); n != 0 {
		t.Error("it was asked")
	}
}

// Req: P-06
func TestAVerdictOnAFormerSpecification(t *testing.T) {
	s := online(t, clocktesting.NewFakeClock(begin()))
	change := func(generation int64, change func(*v1alpha1.IOModule)) {
		m := s.module("flow")
		m.Generation = generation
		change(m)
		if _, err := s.ours.PhysicalV1alpha1().IOModules(ns).Update(s.ctx, m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change(2, func(m *v1alpha1.IOModule) { m.Spec.Channels = []v1alpha1.Channel{{Name: "c", Address: "holding:0"}} })
	s.eventually("the channels are counted", func() bool { return *s.module("flow").Status.ChannelCount == 1 })
	if got := s.module("flow").Status; got.State != v1alpha1.ModuleOnline || got.ObservedGeneration != 1 {
		t.Errorf("other channels: state %s of generation %d, want Online of 1", got.State, got.ObservedGeneration)
	}

	change(3, func(m *v1alpha1.IOModule) { m.Spec.Modbus.Endpoint = "tcp://192.0.2.2:502" })
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)

	loaded := says("flow", true, true, api.ReasonConnected)
	loaded.Generation = 3
	s.probe.say(loaded)
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	if got := s.module("flow").Status.ObservedGeneration; got != 3 {
		t.Errorf("generation %d, want 3", got)
	}

	former := says("flow", true, false, "Timeout")
	former.UID, former.Generation = "another", 9
	s.probe.say(former)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
}

// Req: A-06, P-16c
func TestANewServerGivesProbesTimeToRepeatTheirVerdicts(t *testing.T) {
	module := modbus("flow")
	module.Status = v1alpha1.IOModuleStatus{State: v1alpha1.ModuleFault, Reason: "Timeout", ProbePodName: networkprobe.BaseName, ObservedGeneration: 1}
	old := running("p1")
	old.CreationTimestamp = metav1.NewTime(begin().Add(-time.Hour))
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.IOModule, *corev1.Pod)
		want   string
	}{
		{"the verdict stays", func(*v1alpha1.IOModule, *corev1.Pod) {}, "Timeout"},
		{"not that of a pod that came later", func(_ *v1alpha1.IOModule, p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(begin().Add(time.Second))
		}, ReasonProbePending},
		{"not that of another probe", func(m *v1alpha1.IOModule, _ *corev1.Pod) { m.Status.ProbePodName = "network-io-probe-2" }, ReasonProbePending},
		{"not that of a former specification", func(m *v1alpha1.IOModule, _ *corev1.Pod) { m.Generation = 2 }, ReasonProbePending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, p := module.DeepCopy(), old.DeepCopy()
			tc.change(m, p)
			c := clocktesting.NewFakeClock(begin())
			// Another module shows when the controller has looked at all of them.
			s := newSite(t, c, []runtime.Object{listing(`{"name":"flow"}`), p}, []runtime.Object{m, modbus("zz")})
			s.probe.mu.Lock()
			s.probe.silent = true
			s.probe.mu.Unlock()
			s.probe.breakStreams(true)
			s.await("zz", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
			if tc.want != "Timeout" {
				s.await("flow", v1alpha1.ModuleUnknown, tc.want)
				return
			}
			if got := s.module("flow").Status; got.State != v1alpha1.ModuleFault {
				t.Fatalf("state %s (%s)", got.State, got.Reason)
			}
			s.eventually("the silence is noticed", func() bool {
				c.Step(silenceCheck)
				return s.module("flow").Status.Reason == ReasonProbeUnavailable
			})
		})
	}
}

// Req: P-04, P-05
func TestModulesOfAController(t *testing.T) {
	bound := func(name string, protocol v1alpha1.Protocol, controller string) *v1alpha1.IOModule {
		m := modbus(name)
		m.Spec.Protocol, m.Spec.ControllerRef = protocol, &v1alpha1.ControllerReference{Name: controller}
		return m
	}
	controller := func(name string, phase v1alpha1.ControllerPhase, alive time.Duration) *v1alpha1.Controller {
		c := &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Status: v1alpha1.ControllerStatus{Phase: phase}}
		if alive >= 0 {
			c.Status.LastAlive = &metav1.Time{Time: begin().Add(-alive)}
		}
		return c
	}
	const never = -1
	c := clocktesting.NewFakeClock(begin())
	stopped := bound("stopped", v1alpha1.ProtocolSimulation, "dead")
	stopped.Status.State = v1alpha1.ModuleOnline
	s := newSite(t, c, nil, []runtime.Object{
		controller("new", "", never), controller("awaiting", v1alpha1.ControllerAwaitingNode, never),
		controller("broken", v1alpha1.ControllerNotReady, never), controller("edge", v1alpha1.ControllerReady, never),
		controller("unborn", v1alpha1.ControllerSimulated, never), controller("sim", v1alpha1.ControllerSimulated, 29*time.Second),
		controller("dead", v1alpha1.ControllerSimulated, time.Hour),
		bound("a", v1alpha1.ProtocolModbus, "absent"), bound("b", v1alpha1.ProtocolModbus, "new"), bound("c", v1alpha1.ProtocolModbus, "awaiting"),
		bound("d", v1alpha1.ProtocolModbus, "broken"), bound("e", v1alpha1.ProtocolModbus, "edge"),
		bound("f", v1alpha1.ProtocolSimulation, "absent"), bound("g", v1alpha1.ProtocolSimulation, "unborn"),
		bound("h", v1alpha1.ProtocolSimulation, "sim"), stopped,
	})
	for name, want := range map[string]struct {
		state  v1alpha1.ModuleState
		reason string
		found  metav1.ConditionStatus
	}{
		"a":       {v1alpha1.ModuleUnknown, ReasonControllerNotFound, metav1.ConditionFalse},
		"b":       {v1alpha1.ModuleUnknown, ReasonAwaitingNode, metav1.ConditionTrue},
		"c":       {v1alpha1.ModuleUnknown, ReasonAwaitingNode, metav1.ConditionTrue},
		"d":       {v1alpha1.ModuleUnknown, ReasonControllerNotReady, metav1.ConditionTrue},
		"e":       {v1alpha1.ModuleUnknown, ReasonConfigNotPropagated, metav1.ConditionTrue},
		"f":       {v1alpha1.ModuleUnknown, ReasonControllerNotFound, metav1.ConditionFalse},
		"g":       {v1alpha1.ModuleUnknown, ReasonNeverSeen, metav1.ConditionTrue},
		"h":       {v1alpha1.ModuleOnline, ReasonControllerAlive, metav1.ConditionTrue},
		"stopped": {v1alpha1.ModuleOnline, ReasonControllerAlive, metav1.ConditionTrue},
	} {
		s.await(name, want.state, want.reason)
		if found := meta.FindStatusCondition(s.module(name).Status.Conditions, conditionControllerFound); found == nil || found.Status != want.found {
			t.Errorf("%s: ControllerFound %+v, want %s", name, found, want.found)
		}
	}
	// A whole period after the start, and not before, what does not live is Offline.
	c.Step(29 * time.Second)
	s.await("h", v1alpha1.ModuleOnline, ReasonControllerAlive)
	s.await("stopped", v1alpha1.ModuleOnline, ReasonControllerAlive)
	s.passes(c, "what was found Online is Offline", s.is("stopped", ReasonControllerSilent))
	s.passes(c, "what was heard is Offline", s.is("h", ReasonControllerSilent))
	for _, name := range []string{"stopped", "h"} {
		if state := s.module(name).Status.State; state != v1alpha1.ModuleOffline {
			t.Errorf("%s is %s", name, state)
		}
	}

	alive := controller("sim", v1alpha1.ControllerSimulated, -30*time.Second)
	alive.Status.LastAlive = &metav1.Time{Time: c.Now()}
	if _, err := s.ours.PhysicalV1alpha1().Controllers(ns).Update(s.ctx, alive, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("h", v1alpha1.ModuleOnline, ReasonControllerAlive)

	// Without its controllerRef, a module is nobody's, and the condition goes.
	m := s.module("a")
	m.Spec.ControllerRef = nil
	if _, err := s.ours.PhysicalV1alpha1().IOModules(ns).Update(s.ctx, m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("a", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	if meta.FindStatusCondition(s.module("a").Status.Conditions, conditionControllerFound) != nil {
		t.Error("a stale ControllerFound stays")
	}
}

// Req: A-06
func TestAConflictIsTriedAgain(t *testing.T) {
	s := newSite(t, clock.RealClock{}, []runtime.Object{listing(`{"name":"flow"}`), running("p1")}, nil)
	s.refuse.Store(3)
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	if _, err := s.ours.PhysicalV1alpha1().IOModules(ns).Create(s.ctx, modbus("flow"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	if left := s.refuse.Load(); left >= 0 {
		t.Errorf("%d more conflicts were to be met", left)
	}
}

// Both controllers together, from a thousand manifests to nothing.
//
// Req: P-06, P-08, P-16
func TestAThousandModulesOfOneProbe(t *testing.T) {
	const count = 1000
	ctx, cancel := context.WithCancel(context.Background())
	s := &site{t: t, ctx: ctx, host: fake.NewClientset(), ours: physicalfake.NewSimpleClientset(), probe: &fakeProbe{}}
	s.versionModules()
	s.host.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.UID, pod.CreationTimestamp = "p1", metav1.Now()
		return false, nil, nil
	})
	s.informs = physicalinformers.NewSharedInformerFactory(s.ours, 0)
	s.kube = informers.NewSharedInformerFactory(s.host, 0)
	core, modules := s.kube.Core().V1(), s.informs.Physical().V1alpha1().IOModules()
	probes := networkprobe.New(networkprobe.Options{
		Image: "io-probe:v1", Host: s.host, Pods: core.Pods(), ConfigMaps: core.ConfigMaps(), Nodes: core.Nodes(), Namespaces: core.Namespaces(),
		Modules: modules, Controllers: s.informs.Physical().V1alpha1().Controllers(),
		EnsureCertificate: func(context.Context, string) error { return nil },
		Recorder:          record.NewFakeRecorder(100), Clock: clock.RealClock{},
	})
	states := New(Options{
		Client: s.ours.PhysicalV1alpha1(), Modules: modules, Controllers: s.informs.Physical().V1alpha1().Controllers(),
		Pods: core.Pods(), ConfigMaps: core.ConfigMaps(), Nodes: core.Nodes(),
		Follow: s.probe.follow, Distrusted: probes.Reconsider, Clock: clock.RealClock{},
	})
	s.start(cancel, probes.Run, states.Run)

	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf("m-%04d", i))
		if _, err := s.ours.PhysicalV1alpha1().IOModules(ns).Create(ctx, modbus(all[i]), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("the ConfigMap lists them all", func() bool {
		cm, err := s.host.CoreV1().ConfigMaps(ns).Get(ctx, networkprobe.BaseName, metav1.GetOptions{})
		return err == nil && slices.Equal(networkprobe.ListedModules(cm), all)
	})
	var pod *corev1.Pod
	s.eventually("the pod is there", func() (ok bool) {
		var err error
		pod, err = s.host.CoreV1().Pods(ns).Get(ctx, networkprobe.BaseName, metav1.GetOptions{})
		return err == nil
	})
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "192.0.2.100"
	s.updatePod(pod)

	everybody := func(connected bool, reason string) (list []api.ModuleState) {
		for _, name := range all {
			list = append(list, says(name, true, connected, reason))
		}
		return list
	}
	lister := modules.Lister().IOModules(ns)
	allAre := func(state v1alpha1.ModuleState) func() bool {
		return func() bool {
			for _, name := range all {
				if m, err := lister.Get(name); err != nil || m.Status.State != state {
					return false
				}
			}
			return true
		}
	}
	s.probe.say(everybody(true, api.ReasonConnected)...)
	s.running.Go(func() {
		heart := time.NewTicker(api.DefaultHeartbeat / 2)
		defer heart.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-heart.C:
				s.probe.say()
			}
		}
	})
	s.eventually("all are Online", allAre(v1alpha1.ModuleOnline))

	// Whoever was judged by a cache that was behind meets a conflict, after the last of them is Online.
	s.eventually("nothing is written any more", func() bool {
		settled := s.writes.Load()
		time.Sleep(100 * time.Millisecond)
		return s.writes.Load() == settled
	})
	before, fastest := s.writes.Load(), time.Hour
	const faults = 3
	for _, name := range all[500 : 500+faults] {
		began := time.Now()
		s.probe.say(says(name, true, false, "Timeout"))
		s.await(name, v1alpha1.ModuleFault, "Timeout")
		fastest = min(fastest, time.Since(began))
	}
	// The machine that tests may be busy, but not each time.
	if fastest > 500*time.Millisecond {
		t.Errorf("a fault took %s to be stored", fastest)
	}
	if n := s.writes.Load() - before; n != faults {
		t.Errorf("%d writes for heartbeats and %d faults", n, faults)
	}

	began := time.Now()
	s.probe.say(everybody(false, "Refused")...)
	s.eventually("all are at Fault", allAre(v1alpha1.ModuleFault))
	t.Logf("a fault under all of them took %s to be stored", time.Since(began))
	if n := s.probe.opened.Load(); n != 1 {
		t.Errorf("%d streams for one probe", n)
	}

	for _, name := range all {
		if err := s.ours.PhysicalV1alpha1().IOModules(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("pod and ConfigMap are gone", func() bool {
		pods, err1 := s.host.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		cms, err2 := s.host.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err1 == nil && err2 == nil && len(pods.Items)+len(cms.Items) == 0
	})
	s.eventually("the stream is closed", func() bool { return s.probe.open.Load() == 0 })
}
