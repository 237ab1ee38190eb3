package unit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// The fake API server panics when a watcher falls more than a hundred events behind, as a thousand Units make it.
func TestMain(m *testing.M) {
	watch.DefaultChanSize = 100000
	m.Run()
}

// errCrashed is what a request answers when its process has ended.
var errCrashed = errors.New("the process has ended")

// plant is a store with modules and Units in one namespace, their runtimes, and whoever leads. The store checks resourceVersions, and
// keeps status and spec apart; it leaves out admission, validation and defaults.
type plant struct {
	t        testing.TB
	fake     *fake.Clientset
	runtimes *runtimes
	clock    *wallClock

	mu      sync.Mutex
	version int
	calls   int
	// before is called with each request of the controllers, and after behind it, when its effect is there: an error is the request's.
	// They may change what is stored by the plant's own methods.
	before, after func(call string, number int) error
	// stored is told of each status that is written.
	stored func(*v1alpha1.Unit)
	// unmeasured are modules of which nothing was heard in this leadership.
	unmeasured map[string]bool
	// unstored are modules of which the store does not take what they are found to be.
	unstored   map[string]bool
	onUnstored func(module types.NamespacedName)
	episodes   int
	events     []string
}

// wallClock is a clock that somebody may set.
type wallClock struct {
	mu  sync.Mutex
	set time.Duration
}

func (c *wallClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.set)
}

func (c *wallClock) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set += by
}

var (
	unitResource   = v1alpha1.SchemeGroupVersion.WithResource("units")
	moduleResource = v1alpha1.SchemeGroupVersion.WithResource("iomodules")
	moduleOfTags   = v1alpha1.SchemeGroupVersion.WithResource("controlmodules")
)

func newPlant(t testing.TB) *plant {
	p := &plant{t: t, fake: fake.NewSimpleClientset(), runtimes: newRuntimes(), clock: &wallClock{}, unmeasured: map[string]bool{}, unstored: map[string]bool{}}
	p.fake.PrependReactor("*", "*", p.serve)
	return p
}

// serve stands before the fake API server. It is called with the fake's lock held, and so uses its tracker.
func (p *plant) serve(action clienttesting.Action) (bool, kruntime.Object, error) {
	verb := action.GetVerb()
	if verb == "watch" {
		return false, nil, nil
	}
	call := verb + " " + action.GetResource().Resource
	p.mu.Lock()
	p.calls++
	number, before, after := p.calls, p.before, p.after
	p.mu.Unlock()
	if before != nil {
		if err := before(call, number); err != nil {
			return true, nil, err
		}
	}
	var object kruntime.Object
	var err error
	switch a := action.(type) {
	case clienttesting.UpdateAction:
		object, err = p.updateStatus(a)
	case clienttesting.PatchAction:
		object, err = p.patchStatus(a)
	default:
		var handled bool
		handled, object, err = clienttesting.ObjectReaction(p.fake.Tracker())(action)
		if !handled {
			return false, nil, nil
		}
	}
	if err == nil && after != nil {
		err = after(call, number)
	}
	if err != nil {
		return true, nil, err
	}
	return true, object, nil
}

func (p *plant) updateStatus(action clienttesting.UpdateAction) (kruntime.Object, error) {
	update, ok := action.GetObject().(*v1alpha1.Unit)
	if !ok || action.GetSubresource() != "status" {
		return nil, fmt.Errorf("the controller writes %T, subresource %q", action.GetObject(), action.GetSubresource())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stored, err := p.fake.Tracker().Get(unitResource, update.Namespace, update.Name)
	if err != nil {
		return nil, err
	}
	is := stored.(*v1alpha1.Unit).DeepCopy()
	if update.ResourceVersion != is.ResourceVersion || update.ResourceVersion == "" {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "units"}, update.Name, errors.New("it is newer"))
	}
	p.check(is, update)
	is.Status = *update.Status.DeepCopy()
	p.put(unitResource, is)
	if p.stored != nil {
		p.stored(is)
	}
	return is.DeepCopy(), nil
}

// patchStatus applies a patch to what is stored, whatever that is by now.
func (p *plant) patchStatus(action clienttesting.PatchAction) (kruntime.Object, error) {
	if action.GetSubresource() != "status" || action.GetPatchType() != types.JSONPatchType {
		return nil, fmt.Errorf("the controller patches subresource %q by %s", action.GetSubresource(), action.GetPatchType())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stored, err := p.fake.Tracker().Get(unitResource, action.GetNamespace(), action.GetName())
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(action.GetPatch())
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Unit"}, action.GetName(), nil)
	}
	is := &v1alpha1.Unit{}
	if err := json.Unmarshal(after, is); err != nil {
		return nil, err
	}
	p.check(stored.(*v1alpha1.Unit), is)
	p.put(unitResource, is)
	if p.stored != nil {
		p.stored(is)
	}
	return is.DeepCopy(), nil
}

// check is what no write of a controller may do. RESTART, START and RESUME come from commands.
func (p *plant) check(from, to *v1alpha1.Unit) {
	was, is := isa88.State(from.Status.State), isa88.State(to.Status.State)
	if was == is {
		return
	}
	if is != isa88.Running && is != isa88.Restarting || was == isa88.Restarting {
		return
	}
	if c := from.Status.LastCommand; c == nil || c.Outcome != v1alpha1.CommandAccepted || !runs(c.Command) {
		p.t.Errorf("%s becomes %s without a command", was, is)
	}
}

// put stores an object under a new resourceVersion; the caller has the lock.
func (p *plant) put(resource schema.GroupVersionResource, object kruntime.Object) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		p.t.Fatal(err)
	}
	p.version++
	accessor.SetResourceVersion(strconv.Itoa(p.version))
	if accessor.GetUID() == "" {
		accessor.SetUID(types.UID("uid-of-" + accessor.GetName()))
	}
	if err := p.fake.Tracker().Update(resource, object, accessor.GetNamespace()); apierrors.IsNotFound(err) {
		if err := p.fake.Tracker().Create(resource, object, accessor.GetNamespace()); err != nil {
			p.t.Error(err)
		}
	} else if err != nil {
		p.t.Error(err)
	}
}

func (p *plant) store(resource schema.GroupVersionResource, object kruntime.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(resource, object)
}

// module stores a module in a state, as the iomodule controller does.
func (p *plant) module(name string, state v1alpha1.ModuleState) {
	now := metav1.NewTime(p.clock.Now()).Rfc3339Copy()
	m := &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Generation: 1}}
	m.Status = v1alpha1.IOModuleStatus{State: state, Reason: "Told", LastTransitionTime: &now, ObservedGeneration: 1}
	if stored, err := p.fake.Tracker().Get(moduleResource, ns, name); err == nil {
		if is := stored.(*v1alpha1.IOModule); is.Status.State == state {
			return
		}
	}
	p.store(moduleResource, m)
}

func (p *plant) deleteModule(name string) {
	if err := p.fake.Tracker().Delete(moduleResource, ns, name); err != nil {
		p.t.Error(err)
	}
}

// unit stores a Unit in a state, and a ControlModule whose tags use the modules.
func (p *plant) unit(name string, state isa88.State, modules ...string) {
	unit := unitIn(state)
	unit.Name, unit.UID = name, ""
	now := metav1.NewTime(p.clock.Now()).Rfc3339Copy()
	unit.Status.LastTransitionTime = &now
	p.store(unitResource, unit)
	p.tags(name, name, modules...)
}

func (p *plant) tags(controlModule, unit string, modules ...string) {
	c := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: controlModule}, Spec: v1alpha1.ControlModuleSpec{UnitRef: v1alpha1.UnitReference{Name: unit}}}
	for i, m := range modules {
		for j := range 2 {
			c.Spec.Tags = append(c.Spec.Tags, v1alpha1.Tag{Name: fmt.Sprintf("t%d-%d", i, j), IOModuleRef: v1alpha1.IOModuleReference{Name: m}})
		}
	}
	p.store(moduleOfTags, c)
}

// change changes a stored Unit as another writer does.
func (p *plant) change(name string, change func(*v1alpha1.Unit)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stored, err := p.fake.Tracker().Get(unitResource, ns, name)
	if err != nil {
		p.t.Error(err)
		return
	}
	unit := stored.(*v1alpha1.Unit).DeepCopy()
	change(unit)
	p.put(unitResource, unit)
}

// send stores a command, as the registry does.
func (p *plant) send(unit string, name v1alpha1.UnitCommandName, override bool) {
	now := metav1.NewTime(p.clock.Now()).Rfc3339Copy()
	p.change(unit, func(u *v1alpha1.Unit) {
		u.Status.LastCommand = &v1alpha1.UnitCommandRecord{ID: "id", Command: name, Actor: "alice", Reason: "batch 7", Time: &now, Outcome: v1alpha1.CommandAccepted, Override: override}
	})
}

func (p *plant) get(name string) *v1alpha1.Unit {
	p.t.Helper()
	stored, err := p.fake.Tracker().Get(unitResource, ns, name)
	if err != nil {
		p.t.Fatal(err)
	}
	return stored.(*v1alpha1.Unit).DeepCopy()
}

// settle waits until nothing happens any more, and says where the Unit is.
func (p *plant) settle(name string) isa88.State {
	p.t.Helper()
	synctest.Wait()
	return isa88.State(p.get(name).Status.State)
}

// want fails unless the Unit is in a state when nothing happens any more.
func (p *plant) want(name string, state isa88.State) *v1alpha1.Unit {
	p.t.Helper()
	if got := p.settle(name); got != state {
		p.t.Fatalf("%s is %s, want %s: %+v\nevents %s", name, got, state, p.get(name).Status, strings.Join(p.told(""), "\n"))
	}
	return p.get(name)
}

// hook sets what happens with each request from now on; requests are counted from 1.
func (p *plant) hook(before, after func(call string, number int) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after, p.calls = before, after, 0
}

func (p *plant) measured(name string, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unmeasured[name] = !is
}

// Event records an Event; a plant is its own recorder.
func (p *plant) Event(object kruntime.Object, eventType, reason, message string) {
	unit := object.(*v1alpha1.Unit)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, unit.Name+" "+eventType+" "+reason+" "+message)
}

func (p *plant) Eventf(object kruntime.Object, eventType, reason, format string, args ...any) {
	p.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

func (p *plant) AnnotatedEventf(object kruntime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	p.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// told are the Events with a reason, or all.
func (p *plant) told(reason string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, e := range p.events {
		if strings.Contains(e, " "+reason) {
			all = append(all, e)
		}
	}
	return all
}

// cacheSync is how long it takes until the controllers begin.
const cacheSync = 150 * time.Millisecond

// evidence is what a plant's modules are found to be.
type evidence struct{ *plant }

func (e evidence) Confirmed(module types.NamespacedName, uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.unmeasured[module.Name] && uid == types.UID("uid-of-"+module.Name)
}

func (e evidence) Unstored(module types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unstored[module.Name]
}

func (e evidence) OnUnstored(changed func(types.NamespacedName)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.onUnstored = changed
}

// fails has a module be found in a state that the store does not take, or does by now.
func (p *plant) fails(name string, unstored bool) {
	p.mu.Lock()
	p.unstored[name] = unstored
	changed := p.onUnstored
	p.mu.Unlock()
	changed(types.NamespacedName{Namespace: ns, Name: name})
}

// leader is one leadership.
type leader struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	plant   *plant
	informs informers.SharedInformerFactory
}

// lead starts controllers that know nothing but what is stored.
func (p *plant) lead() *leader {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leader{cancel: cancel, plant: p, informs: informers.NewSharedInformerFactory(p.fake, 0)}
	physical := l.informs.Physical().V1alpha1()
	c := New(Options{
		Client: p.fake.PhysicalV1alpha1(), Units: physical.Units(), ControlModules: physical.ControlModules(), Modules: physical.IOModules(),
		Runtimes: p.runtimes, Evidence: evidence{p},
		Recorder: p, Clock: clock.RealClock{}, Wall: p.clock.Now,
		NewEpisode: func() string {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.episodes++
			return "episode-" + strconv.Itoa(p.episodes)
		},
	})
	physical.Units().Informer()
	physical.ControlModules().Informer()
	physical.IOModules().Informer()
	l.informs.Start(ctx.Done())
	l.running.Go(func() {
		if err := c.Run(ctx); err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(l.crash)
	// Whether the caches are filled is looked at every 100 ms.
	time.Sleep(cacheSync)
	return l
}

// crash ends a leadership wherever it is, and returns when nothing of it runs any more.
func (l *leader) crash() {
	l.cancel()
	l.running.Wait()
	l.informs.Shutdown()
}

// runtimes are the runtimes of all Units: each does at once what it is told, unless it is away or slow.
type runtimes struct {
	mu      sync.Mutex
	away    map[string]bool
	slow    map[string]bool
	units   map[string]*told
	changed []func(types.NamespacedName)
	gone    []string
}

type told struct {
	order  api.Order
	report api.Report
	orders []api.Order
}

func newRuntimes() *runtimes {
	return &runtimes{away: map[string]bool{}, slow: map[string]bool{}, units: map[string]*told{}}
}

func (r *runtimes) Tell(unit types.NamespacedName, order api.Order) {
	r.mu.Lock()
	u := r.of(unit.Name)
	if order.Revision < u.order.Revision {
		r.mu.Unlock()
		return
	}
	news := u.order != order
	u.order = order
	if news {
		u.orders = append(u.orders, order)
	}
	if !news || r.away[unit.Name] {
		r.mu.Unlock()
		return
	}
	r.do(unit.Name)
	changed := r.changed
	r.mu.Unlock()
	for _, f := range changed {
		f(unit)
	}
}

// do has a runtime do what it was told.
func (r *runtimes) do(name string) {
	u := r.of(name)
	order := u.order
	u.report.Runtime = api.RuntimeInfo{BootID: "boot", Unit: name, UID: order.UID, ConfigHash: "hash"}
	u.report.Order, u.report.Applied = &order, !r.slow[name]
	if latch := u.report.Latch; latch != nil && order.LatchAcknowledged == latch.ID && !isa88.Holdable(order.State) {
		u.report.Latch = nil
	}
}

func (r *runtimes) of(name string) *told {
	if r.units[name] == nil {
		r.units[name] = &told{}
	}
	return r.units[name]
}

func (r *runtimes) Forget(unit types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = append(r.gone, unit.Name)
	r.of(unit.Name).order = api.Order{}
}

func (r *runtimes) Report(unit types.NamespacedName) (api.Report, string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.of(unit.Name)
	report := u.report
	return report, "unit-runtime-" + unit.Name, !r.away[unit.Name] && report.Runtime.UID != ""
}

func (r *runtimes) OnChange(changed func(types.NamespacedName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A former leader's controllers hear nothing any more.
	r.changed = []func(types.NamespacedName){changed}
}

// set changes what a runtime is, and tells it.
func (r *runtimes) set(name string, set func(*told)) {
	r.mu.Lock()
	set(r.of(name))
	changed := r.changed
	r.mu.Unlock()
	for _, f := range changed {
		f(types.NamespacedName{Namespace: ns, Name: name})
	}
}

func (r *runtimes) orders(name string) []api.Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]api.Order(nil), r.of(name).orders...)
}
