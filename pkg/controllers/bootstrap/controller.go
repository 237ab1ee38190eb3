// Package bootstrap bootstraps the etcd of each TalosCluster exactly once, on a control plane that was recorded
// beforehand, and only when no control plane has one already (issue 3, A-02, A-06).
//
// A second bootstrap makes a second cluster with the same keys, and nothing merges the two. So everything here errs on the
// side of waiting: whoever may have an etcd is asked first, each time, whatever the status says.
package bootstrap

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

const (
	// workers is how many clusters are looked at once: one whose machines keep silent takes its time.
	workers = 4
	// firstRetry and lastRetry bound the pause after an API call that failed.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// reconcileTimeout bounds one look at a cluster, askTimeout what one machine may cost of it, sweepTimeout one that
	// need not answer.
	reconcileTimeout = 5 * time.Minute
	askTimeout       = 40 * time.Second
	sweepTimeout     = 3 * time.Second
	// meetTimeout bounds what one address costs of it.
	meetTimeout = 7 * time.Second
	// asks and sweeps are how many machines of a cluster are asked at once.
	asks   = 8
	sweeps = 32
	// sendWindow is how long after the intent was recorded Bootstrap may still be sent: a process that was stopped in
	// between, and woke up when another one leads, sends nothing.
	sendWindow  = 20 * time.Second
	sendTimeout = 15 * time.Second
	// settling is how long after an intent nothing is concluded from a machine that says it has no etcd: what was sent may
	// be on its way, and etcd takes a moment to write anything. It is longer than sendWindow and sendTimeout together.
	settling = 60 * time.Second
	// leaving is how long after its configuration a machine may still answer in maintenance mode.
	leaving = 2 * time.Minute
	// recordTimeout is how long what was found is still written down when the controller is told to stop.
	recordTimeout = 5 * time.Second

	fieldManager = "fieldplane-bootstrap"
)

// Config is what a Controller needs; every member is required.
type Config struct {
	// Client reads TalosMachines and TalosClusters live and writes the status of TalosClusters.
	Client versioned.Interface
	// Clusters and Machines are informers over all namespaces; whoever made them starts them.
	Clusters informers.TalosClusterInformer
	Machines informers.TalosMachineInformer
	// Bundles reads the clusters' secrets bundles (T-16).
	Bundles *bundle.Store
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	// Dial opens sessions with configured machines.
	Dial machine.Factory
}

// Controller bootstraps clusters.
type Controller struct {
	client          versioned.Interface
	clusterInformer cache.SharedIndexInformer
	machineInformer cache.SharedIndexInformer
	clusters        listers.TalosClusterLister
	machines        listers.TalosMachineLister
	bundles         *bundle.Store
	recorder        record.EventRecorder
	clock           clock.WithTicker
	dial            machine.Factory

	vain *vainIntents
	// swept are the clusters of which everybody was asked in the life of this controller.
	swept sync.Map
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
		vain:            &vainIntents{of: make(map[types.UID]time.Time)},
	}
}

// Run bootstraps clusters until the context is over, and returns when nothing of it runs any more. It may be called
// again, never twice at a time.
func (c *Controller) Run(ctx context.Context) error {
	q := work.NewQueue("bootstrap", firstRetry, lastRetry, c.clock)
	defer q.ShutDown()

	clusters := watch.Source{Informer: c.clusterInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { enqueueCluster(q, obj) },
		UpdateFunc: func(before, after any) {
			if clusterChanged(before, after) {
				enqueueCluster(q, after)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}

			if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
				c.vain.forget(cluster.UID)
				c.swept.Delete(cluster.UID)
			}
		},
	}}

	machines := watch.Source{Informer: c.machineInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { enqueueClusterOf(q, obj) },
		UpdateFunc: func(before, after any) {
			if machineChanged(before, after) {
				enqueueClusterOf(q, after)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}

			enqueueClusterOf(q, obj)
		},
	}}

	stop, synced, err := watch.Follow(ctx, clusters, machines)
	defer stop()

	if err != nil || !synced {
		return err
	}

	work.Workers{
		Kind: "cluster", Count: workers, Timeout: reconcileTimeout,
		Reconcile: func(ctx context.Context, key types.NamespacedName) (work.Again, error) {
			pause, err := c.reconcile(ctx, key)

			return work.After(pause), err
		},
	}.Run(ctx, q)

	return nil
}

func enqueueCluster(q work.Queue, obj any) {
	if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
		q.Add(types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name})
	}
}

func enqueueClusterOf(q work.Queue, obj any) {
	if m, ok := obj.(*v1alpha1.TalosMachine); ok {
		q.Add(types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterRef.Name})
	}
}

// clusterChanged tells whether a change may let a cluster be bootstrapped. What this controller writes itself is no such
// change: it would undo every pause.
func clusterChanged(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosCluster)
	is, okIs := after.(*v1alpha1.TalosCluster)

	return okWas && okIs && (was.UID != is.UID || was.Spec.Paused != is.Spec.Paused || was.Spec.SecretsRef != is.Spec.SecretsRef ||
		was.Status.BundleHash != is.Status.BundleHash)
}

// machineChanged tells whether a machine is to be asked, or need not be asked any more, or may have something new to say.
func machineChanged(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosMachine)
	is, okIs := after.(*v1alpha1.TalosMachine)

	return okWas && okIs && (was.UID != is.UID || was.Generation != is.Generation ||
		!equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		was.Status.Phase != is.Status.Phase ||
		!equality.Semantic.DeepEqual(was.Status.Configuration, is.Status.Configuration))
}

// vainIntents remembers of each cluster the last intent that certainly had no effect, so that it need not settle. A
// process that starts knows of none, and waits.
type vainIntents struct {
	mu sync.Mutex
	of map[types.UID]time.Time
}

func (v *vainIntents) note(cluster types.UID, intendedAt time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.of[cluster] = intendedAt
}

func (v *vainIntents) was(cluster types.UID, intendedAt time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()

	at, ok := v.of[cluster]

	return ok && at.Equal(intendedAt)
}

func (v *vainIntents) forget(cluster types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()

	delete(v.of, cluster)
}
