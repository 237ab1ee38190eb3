package unit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalclient "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// workers is how many Units are reconciled at once: one module may fail under a thousand, and each write waits for a disk.
	workers = 64
	// reconcileTimeout bounds the reads and the write for one Unit.
	reconcileTimeout = 10 * time.Second
	// awaitLimit is how long after a start a runtime that was not heard yet counts as it did for the former controllers. It takes the
	// server for gone no sooner.
	awaitLimit = api.Contact

	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
)

// Options are what the controller needs from outside; every member is required.
type Options struct {
	// Client reads past the caches, and writes the status of Units.
	Client physicalclient.PhysicalV1alpha1Interface
	// Units, ControlModules and Modules are informers over all namespaces; whoever made them starts them.
	Units          physicalinformers.UnitInformer
	ControlModules physicalinformers.ControlModuleInformer
	Modules        physicalinformers.IOModuleInformer
	Runtimes       Runtimes
	Evidence       Evidence
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	// Clock measures what passes; Wall is the time that is stored, which somebody may set.
	Clock clock.WithTicker
	Wall  func() time.Time
	// NewEpisode names a hold that begins, as nothing else is named.
	NewEpisode func() string
}

// Evidence is what is known of modules beyond what is stored of them; *iomodule.Controller is one.
type Evidence interface {
	// Confirmed tells whether a module is Online by evidence of this leadership (P-16c).
	Confirmed(module types.NamespacedName, uid types.UID) bool
	// Unstored tells whether a module was found in a state other than Online that the store has yet to take (P-16b).
	Unstored(module types.NamespacedName) bool
	// OnUnstored has a function called whenever what Unstored says of a module has changed.
	OnUnstored(changed func(module types.NamespacedName))
}

// Controller reconciles Units.
type Controller struct {
	client   physicalclient.PhysicalV1alpha1Interface
	runtimes Runtimes
	clock    clock.WithTicker
	// began is when its Run did.
	began      time.Time
	evidence   Evidence
	wall       func() time.Time
	newEpisode func() string

	units   physicallisters.UnitLister
	modules physicallisters.IOModuleLister

	required               *required
	newestUnits            *newest[*v1alpha1.Unit]
	newestModules          *newest[*v1alpha1.IOModule]
	unitsSeen, modulesSeen *sightings
	// storeSilent: the last look past the watches had no answer.
	storeSilent atomic.Bool

	sources []watch.Source
	urgency *urgency
	queue   work.Queue
	// announcements are what is still to be told of what was stored.
	announcements *announcements
}

// New returns a controller that does nothing before Run, and has the runtimes tell it of changes.
func New(o Options) *Controller {
	c := &Controller{
		client: o.Client, runtimes: o.Runtimes, evidence: o.Evidence, clock: o.Clock, wall: o.Wall, newEpisode: o.NewEpisode,
		units: o.Units.Lister(), modules: o.Modules.Lister(),
		required:    newRequired(),
		newestUnits: newNewest[*v1alpha1.Unit](), newestModules: newNewest[*v1alpha1.IOModule](),
		unitsSeen: newSightings(o.Clock), modulesSeen: newSightings(o.Clock),
		urgency: newUrgency(),
	}
	c.announcements = &announcements{recorder: o.Recorder, urgent: c.urgency.urgentWaits}
	const name = "unit"
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			Name: name, Clock: o.Clock,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
				Name: name, Clock: o.Clock,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: name, Clock: o.Clock, Queue: c.urgency}),
			}),
		},
	)
	c.sources = []watch.Source{
		watch.OnChange(o.Units.Informer(), c.unitChanged),
		watch.OnChange(o.ControlModules.Informer(), c.controlModuleChanged),
		watch.OnChange(o.Modules.Informer(), c.moduleChanged),
	}
	o.Runtimes.OnChange(func(unit types.NamespacedName) { c.queue.Add(unit) })
	o.Evidence.OnUnstored(func(module types.NamespacedName) { c.urge(c.required.unitsOf(module)) })
	return c
}

// Run reconciles until the context is over, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("unit"))
	defer c.queue.ShutDown()
	// Without all of them a Unit would require too few modules, and miss others.
	stop, synced, err := watch.Follow(ctx, c.sources...)
	defer stop()
	if err != nil || !synced {
		return err
	}
	c.began = c.clock.Now()
	var patrolling sync.WaitGroup
	patrolling.Go(func() { c.patrols(ctx) })
	defer patrolling.Wait()
	defer c.announcements.tellAll()
	work.Workers{Kind: "unit", Count: workers, Timeout: reconcileTimeout, Reconcile: c.reconcile}.Run(ctx, c.queue)
	return nil
}

func (c *Controller) unitChanged(before, after metav1.Object) {
	unit, _ := after.(*v1alpha1.Unit)
	if unit == nil {
		if before != nil {
			c.queue.Add(keyOf(before))
		}
		return
	}
	if command := unit.Status.LastCommand; command != nil && command.Outcome == v1alpha1.CommandAccepted {
		c.urgency.mark(keyOf(unit))
	}
	c.queue.Add(keyOf(unit))
}

func (c *Controller) controlModuleChanged(before, after metav1.Object) {
	var concerned []types.NamespacedName
	if is, _ := after.(*v1alpha1.ControlModule); is != nil {
		concerned = c.required.set(is)
	} else if before != nil {
		concerned = c.required.remove(keyOf(before))
	}
	c.urge(concerned)
}

// urge has Units decided on before all that is not urgent.
func (c *Controller) urge(units []types.NamespacedName) {
	for _, unit := range units {
		c.urgency.mark(unit)
		c.queue.Add(unit)
	}
}

func (c *Controller) moduleChanged(before, after metav1.Object) {
	was, _ := before.(*v1alpha1.IOModule)
	is, _ := after.(*v1alpha1.IOModule)
	if was == nil && is == nil || was != nil && is != nil && moduleOf(was).same(moduleOf(is)) {
		return
	}
	module := is
	if is == nil {
		module = was
		c.newestModules.forget(keyOf(was))
		c.modulesSeen.forget(keyOf(was))
	}
	urgent := is == nil || is.Status.State != v1alpha1.ModuleOnline
	for _, unit := range c.required.unitsOf(keyOf(module)) {
		if urgent {
			c.urgency.mark(unit)
		}
		c.queue.Add(unit)
	}
}
