// Package machineconfiguration sends each approved TalosMachine its first configuration, exactly once, and only to the
// machine that was approved (T-11, T-12, T-15, T-16, T-18).
package machineconfiguration

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	informers "github.com/fieldplane/fieldplane/generated/informers/talos/v1alpha1"
	listers "github.com/fieldplane/fieldplane/generated/listers/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

const (
	// workers is how many machines are configured at once.
	workers = 8
	// firstRetry and lastRetry bound the pause between attempts that may succeed unchanged.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// pollInterval is how soon something is looked at again that no watch tells about, such as the bundle.
	pollInterval = 30 * time.Second
	// reconcileTimeout bounds one attempt; dialTimeout and applyTimeout its parts that a machine can make slow: unlike
	// a sweep, this has time for a machine that answers slowly.
	reconcileTimeout = 120 * time.Second
	dialTimeout      = 30 * time.Second
	applyTimeout     = 30 * time.Second
	// recordTimeout is how long what was done is still written down when the controller is told to stop.
	recordTimeout = 5 * time.Second
	// settling is how long after an attempt with an unknown end a machine in maintenance mode may still be one that is
	// about to leave it.
	settling = 30 * time.Second

	fieldManager = "fieldplane-machineconfiguration"
)

// Config is what a Controller needs; every member is required.
type Config struct {
	// Client reads TalosMachines and TalosClusters live and writes the status of TalosMachines.
	Client versioned.Interface
	// Clusters and Machines are informers over all namespaces; whoever made them starts them.
	Clusters informers.TalosClusterInformer
	Machines informers.TalosMachineInformer
	// Bundles reads the clusters' secrets bundles (T-16).
	Bundles *bundle.Store
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	// Dial opens sessions with machines in maintenance mode.
	Dial maintenance.Factory
}

// Controller configures approved machines.
type Controller struct {
	client          versioned.Interface
	clusterInformer cache.SharedIndexInformer
	machineInformer cache.SharedIndexInformer
	clusters        listers.TalosClusterLister
	machines        listers.TalosMachineLister
	bundles         *bundle.Store
	recorder        record.EventRecorder
	clock           clock.WithTicker
	dial            maintenance.Factory
}

// New returns a controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{
		client:          cfg.Client,
		clusterInformer: cfg.Clusters.Informer(),
		machineInformer: cfg.Machines.Informer(),
		clusters:        cfg.Clusters.Lister(),
		machines:        cfg.Machines.Lister(),
		bundles:         cfg.Bundles,
		recorder:        cfg.Recorder,
		clock:           cfg.Clock,
		dial:            cfg.Dial,
	}
}

// Run configures machines until the context is over, and returns when nothing of it runs any more. It may be called
// again, never twice at a time.
func (c *Controller) Run(ctx context.Context) error {
	q := work.NewQueue("machineconfiguration", firstRetry, lastRetry, c.clock)
	defer q.ShutDown()

	machines := watch.Source{Informer: c.machineInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { enqueue(q, obj) },
		UpdateFunc: func(before, after any) {
			if machineChanged(before, after) {
				enqueue(q, after)
			}
		},
	}}

	clusters := watch.Source{Informer: c.clusterInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueueMachines(q, obj) },
		UpdateFunc: func(before, after any) {
			if clusterChanged(before, after) {
				c.enqueueMachines(q, after)
			}
		},
	}}

	stop, synced, err := watch.Follow(ctx, machines, clusters)
	defer stop()

	if err != nil || !synced {
		return err
	}

	work.Workers{
		Kind: "machine", Count: workers, Timeout: reconcileTimeout,
		Reconcile: func(ctx context.Context, key types.NamespacedName) (work.Again, error) {
			again, err := c.reconcile(ctx, key)

			return again.work(), err
		},
	}.Run(ctx, q)

	return nil
}

func enqueue(q work.Queue, obj any) {
	if machine, ok := obj.(*v1alpha1.TalosMachine); ok && configurable(machine) {
		q.Add(types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name})
	}
}

func (c *Controller) enqueueMachines(q work.Queue, obj any) {
	cluster, ok := obj.(*v1alpha1.TalosCluster)
	if !ok {
		return
	}

	machines, err := c.machines.TalosMachines(cluster.Namespace).List(labels.Everything())
	if err != nil {
		return // a lister of a cache does not fail
	}

	for _, machine := range machines {
		if machine.Spec.ClusterRef.Name == cluster.Name {
			enqueue(q, machine)
		}
	}
}

// machineChanged tells whether a change may let a machine be configured. What this controller writes itself is no such
// change: it would undo every pause between attempts.
func machineChanged(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosMachine)
	is, okIs := after.(*v1alpha1.TalosMachine)

	return okWas && okIs && (was.UID != is.UID ||
		!equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		!equality.Semantic.DeepEqual(was.Status.Approval, is.Status.Approval) ||
		!equality.Semantic.DeepEqual(was.Status.Hardware, is.Status.Hardware) ||
		was.Status.ObservedEndpoint != is.Status.ObservedEndpoint)
}

func clusterChanged(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosCluster)
	is, okIs := after.(*v1alpha1.TalosCluster)

	return okWas && okIs && (was.UID != is.UID || !equality.Semantic.DeepEqual(was.Spec, is.Spec))
}
