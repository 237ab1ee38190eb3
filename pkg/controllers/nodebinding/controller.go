// Package nodebinding finds the Node that each configured TalosMachine became, and tells in the status of Controllers
// whether their Node is there and ready (P-03, P-04). It never creates a Controller or a Node.
//
// Inputs are the Nodes of the host cluster, TalosMachines and Controllers. Outputs are status.nodeName and the condition
// NodeAmbiguous of TalosMachines, and all of the status of Controllers but lastAlive, which is the heart's.
package nodebinding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	informers "github.com/fieldplane/fieldplane/generated/informers/talos/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	listers "github.com/fieldplane/fieldplane/generated/listers/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
)

const (
	// gather is how long changes are gathered: one Node concerns a machine, and that a Controller.
	gather = 200 * time.Millisecond
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
	// firstRetry and lastRetry bound the pause after a pass in which something was not written.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second

	fieldManager = "fieldplane-nodebinding"
)

// Config is what a Controller needs; every member is required.
type Config struct {
	// Client writes the status of TalosMachines and Controllers.
	Client versioned.Interface
	// Machines and Controllers are informers over all namespaces, Nodes is the host cluster's; whoever made them starts
	// them.
	Machines    informers.TalosMachineInformer
	Controllers physicalinformers.ControllerInformer
	Nodes       coreinformers.NodeInformer
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	Clock    clock.WithTicker
}

// Controller binds machines and Controllers to Nodes.
type Controller struct {
	client      versioned.Interface
	watched     []cache.SharedIndexInformer
	machines    listers.TalosMachineLister
	controllers physicallisters.ControllerLister
	nodes       corelisters.NodeLister
	recorder    record.EventRecorder
	clock       clock.WithTicker
}

// New returns a controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{
		client:      cfg.Client,
		watched:     []cache.SharedIndexInformer{cfg.Machines.Informer(), cfg.Controllers.Informer(), cfg.Nodes.Informer()},
		machines:    cfg.Machines.Lister(),
		controllers: cfg.Controllers.Lister(),
		nodes:       cfg.Nodes.Lister(),
		recorder:    cfg.Recorder,
		clock:       cfg.Clock,
	}
}

// everything is the only key: who is bound to whom is decided over all Nodes and machines at once.
type everything struct{}

// Run binds until the context is over, and returns when nothing of it runs any more. It may be called again, never twice
// at a time.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[everything](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[everything]{Name: "nodebinding", Clock: c.clock},
	)
	defer queue.ShutDown()

	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { queue.AddAfter(everything{}, gather) },
		UpdateFunc: func(before, after any) {
			if changed(before, after) {
				queue.AddAfter(everything{}, gather)
			}
		},
		DeleteFunc: func(any) { queue.AddAfter(everything{}, gather) },
	}

	var sources []watch.Source
	for _, informer := range c.watched {
		sources = append(sources, watch.Source{Informer: informer, Handler: handler})
	}

	stop, synced, err := watch.Follow(ctx, sources...)
	defer stop()

	if err != nil || !synced {
		return err
	}

	var running sync.WaitGroup

	running.Go(func() {
		for {
			key, shutdown := queue.Get()
			if shutdown {
				return
			}

			switch err := c.pass(ctx); {
			case err == nil || ctx.Err() != nil:
				queue.Forget(key)
			default:
				klog.FromContext(ctx).V(2).Info("Some status was not written: tried again", "err", err)
				queue.AddRateLimited(key)
			}

			queue.Done(key)
		}
	})

	<-ctx.Done()
	queue.ShutDown()
	running.Wait()

	return nil
}

// changed tells whether a change may change a binding. Nodes and hearts beat.
func changed(before, after any) bool {
	switch is := after.(type) {
	case *corev1.Node:
		was, ok := before.(*corev1.Node)

		return !ok || was.UID != is.UID || was.Status.NodeInfo.SystemUUID != is.Status.NodeInfo.SystemUUID ||
			readyStatus(was) != readyStatus(is)
	case *v1alpha1.TalosMachine:
		was, ok := before.(*v1alpha1.TalosMachine)

		return !ok || was.UID != is.UID || bindable(was) != bindable(is) || approved(was) != approved(is) ||
			was.Status.NodeName != is.Status.NodeName
	case *physicalv1alpha1.Controller:
		was, ok := before.(*physicalv1alpha1.Controller)

		if !ok || was.UID != is.UID || was.Generation != is.Generation || !equality.Semantic.DeepEqual(was.Spec, is.Spec) {
			return true
		}

		// Whoever may write the status may have written ours.
		stood, stands := was.Status, is.Status
		stood.LastAlive, stands.LastAlive = nil, nil

		return !equality.Semantic.DeepEqual(stood, stands)
	}

	return true
}

// pass brings every status up to date. What fails for one object does not keep the others waiting.
func (c *Controller) pass(ctx context.Context) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}

	machines, err := c.machines.List(labels.Everything())
	if err != nil {
		return err
	}

	controllers, err := c.controllers.List(labels.Everything())
	if err != nil {
		return err
	}

	var failures []error

	found := bind(machines, nodes)

	for _, machine := range machines {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		failures = append(failures, c.writeMachine(ctx, machine, found))
	}

	for _, controller := range controllers {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		failures = append(failures, c.writeController(ctx, controller, found))
	}

	return errors.Join(failures...)
}

// written makes an error of a write one worth trying again, with the object's name.
func written(kind, namespace, name string, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}

	return fmt.Errorf("status of %s %s/%s: %w", kind, namespace, name, err)
}
