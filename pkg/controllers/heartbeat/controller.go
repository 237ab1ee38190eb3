// Package heartbeat keeps simulation Controllers alive whose spec.heartbeat is Managed (P-05).
//
// Inputs are the Controllers. Output is their status.lastAlive, and nothing else: of one that is External it is the
// simulator's, and of one that is Suspended nobody's.
package heartbeat

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalclient "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
)

const (
	// interval is the least time between two beats of one Controller. lastAlive is cut to the second, and whoever takes over
	// goes by it: with a second more than 10 s there are never two writes within 10 s.
	interval = 11 * time.Second
	// jitter is how much later a beat may be, lest all hearts beat at once for ever. Two beats may be lost before a Controller
	// counts as dead (30 s).
	jitter = 3 * time.Second

	// workers is how many Controllers are written at once.
	workers = 4
	// writeTimeout bounds one write.
	writeTimeout = 5 * time.Second
	// firstRetry and lastRetry bound the pause after a beat that was not written.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second

	fieldManager = "fieldplane-heartbeat"
)

// Config is what a Controller needs; every member is required.
type Config struct {
	// Client writes the status of Controllers.
	Client physicalclient.ControllersGetter
	// Controllers is an informer over all namespaces; whoever made it starts it.
	Controllers physicalinformers.ControllerInformer
	Clock       clock.WithTicker
	// Random returns a number in [0, 1); it is called from several goroutines.
	Random func() float64
}

// Controller beats.
type Controller struct {
	client      physicalclient.ControllersGetter
	informer    cache.SharedIndexInformer
	controllers physicallisters.ControllerLister
	clock       clock.WithTicker
	random      func() float64
	queue       workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu  sync.Mutex
	due map[types.NamespacedName]beat
}

// beat is when a Controller's next one is due.
type beat struct {
	uid types.UID
	at  time.Time
}

// New returns a controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{
		client:      cfg.Client,
		informer:    cfg.Controllers.Informer(),
		controllers: cfg.Controllers.Lister(),
		clock:       cfg.Clock,
		random:      cfg.Random,
		due:         map[types.NamespacedName]beat{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "heartbeat", Clock: cfg.Clock},
		),
	}
}

// Run beats until the context ends, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("heartbeat"))
	defer c.queue.ShutDown()
	controllers := watch.Source{Informer: c.informer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue,
		UpdateFunc: func(before, after any) {
			from, _ := before.(*v1alpha1.Controller)
			to, _ := after.(*v1alpha1.Controller)
			// Its beats are our own.
			if from == nil || to == nil || from.UID != to.UID || managed(from) != managed(to) {
				c.enqueue(after)
			}
		},
		DeleteFunc: c.enqueue,
	}}
	stop, synced, err := watch.Follow(ctx, controllers)
	defer stop()
	if err != nil || !synced {
		return err
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

func (c *Controller) enqueue(object any) {
	if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
		c.queue.Add(key.AsNamespacedName())
	}
}

// next looks at the next Controller; it returns false when the queue is shut down.
func (c *Controller) next(ctx context.Context) bool {
	key, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(key)
	after, err := c.reconcile(ctx, key)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		if !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Info("A beat is tried again", "controller", klog.KRef(key.Namespace, key.Name), "err", err.Error())
		}
		c.queue.AddRateLimited(key)
	default:
		c.queue.Forget(key)
		if after > 0 {
			c.queue.AddAfter(key, after)
		}
	}
	return true
}

// managed tells whether the server has to beat for a Controller.
func managed(controller *v1alpha1.Controller) bool {
	return controller.Spec.Simulation && controller.Spec.Heartbeat == v1alpha1.HeartbeatManaged && controller.DeletionTimestamp == nil
}

// reconcile beats if that is due, and says when to look again.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	controller, err := c.controllers.Controllers(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !managed(controller) {
		c.forget(key)
		return 0, nil
	}
	if left := c.left(key, controller); left > 0 {
		return left, nil
	}
	now := c.clock.Now()
	if err := c.write(ctx, controller, now); err != nil {
		// It may have been written all the same: whether it was is seen by the next look.
		c.forget(key)
		return 0, err
	}
	return c.schedule(key, controller.UID, now.Add(interval+c.jitter())), nil
}

// left is how long it is until the next beat. Of a Controller that was not looked at before it goes by the last one.
func (c *Controller) left(key types.NamespacedName, controller *v1alpha1.Controller) time.Duration {
	now := c.clock.Now()
	c.mu.Lock()
	due, known := c.due[key]
	c.mu.Unlock()
	if known && due.uid == controller.UID {
		return due.at.Sub(now)
	}
	if controller.Status.LastAlive == nil {
		return 0
	}
	// One that is stamped in the future was a moment ago at the earliest.
	last := controller.Status.LastAlive.Time
	if last.After(now) {
		last = now
	}
	at := last.Add(interval + c.jitter())
	if at.Before(now) {
		// After a stop of the server all are overdue, and need not all be first.
		at = now.Add(c.jitter())
	}
	return c.schedule(key, controller.UID, at)
}

func (c *Controller) schedule(key types.NamespacedName, uid types.UID, at time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[key] = beat{uid, at}
	return at.Sub(c.clock.Now())
}

func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.due, key)
}

func (c *Controller) jitter() time.Duration { return time.Duration(c.random() * float64(jitter)) }

// write stamps one beat, of the very Controller that was looked at: its heart may have been suspended a moment ago.
func (c *Controller) write(ctx context.Context, controller *v1alpha1.Controller, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	desired := controller.DeepCopy()
	desired.Status.LastAlive = &metav1.Time{Time: now}
	_, err := c.client.Controllers(controller.Namespace).UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of Controller %s/%s: %w", controller.Namespace, controller.Name, err)
	}
	return nil
}
