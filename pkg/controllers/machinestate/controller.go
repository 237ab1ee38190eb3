// Package machinestate follows each approved TalosMachine from its first configuration on: whether it runs and is ready,
// whether it runs what was sent, and, one machine of a cluster at a time, what changed since (T-18a). Bootstrapping etcd
// is not its duty.
//
// One look at a machine is: read what the API says, ask the machine, render, decide, and do what was decided, until
// there is nothing left to do. Deciding is pure; doing is thin, and each effect on a machine is preceded by a record of
// the intent.
package machinestate

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
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

const (
	// workers is how many machines are looked at at once, and therefore how many sessions are open at most.
	workers = 8
	// soon and later are the pauses between looks: at what is under way, and at what runs.
	soon  = 15 * time.Second
	later = time.Minute
	// firstRetry and lastRetry bound the pause while a machine does not answer.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// lookTimeout bounds one look; the others its parts that a machine can make slow.
	lookTimeout  = 3 * time.Minute
	meetTimeout  = 10 * time.Second
	readTimeout  = 15 * time.Second
	applyTimeout = time.Minute
	// recordTimeout is how long what was done is still written down when the controller is told to stop.
	recordTimeout = 5 * time.Second

	fieldManager = "fieldplane-machinestate"
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
	// Dial opens sessions with configured machines.
	Dial machine.Factory
	// Render is render.Render if nil; tests remember what it makes.
	Render func(render.Input) ([]byte, error)
}

// Controller follows configured machines.
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
	render          func(render.Input) ([]byte, error)

	// turns has one place, which is held while a machine takes its cluster's turn to be changed.
	turns chan struct{}
}

// New returns a controller that does nothing before Run.
func New(cfg Config) *Controller {
	if cfg.Render == nil {
		cfg.Render = render.Render
	}

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
		render:          cfg.Render,
		turns:           make(chan struct{}, 1),
	}
}

// Run follows machines until the context is over, and returns when nothing of it runs any more. It may be called again,
// never twice at a time.
func (c *Controller) Run(ctx context.Context) error {
	q := work.NewQueue("machinestate", firstRetry, lastRetry, c.clock)
	defer q.ShutDown()

	machines := watch.Source{Informer: c.machineInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { enqueue(q, obj) },
		UpdateFunc: func(before, after any) {
			if machineChanged(before, after) {
				enqueue(q, after)
			}

			if turnReturned(before, after) {
				c.enqueuePeers(q, after)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}

			c.enqueuePeers(q, obj)
		},
	}}

	clusters := watch.Source{Informer: c.clusterInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueueCluster(q, obj) },
		UpdateFunc: func(before, after any) {
			if clusterChanged(before, after) {
				c.enqueueCluster(q, after)
			}
		},
	}}

	stop, synced, err := watch.Follow(ctx, machines, clusters)
	defer stop()

	if err != nil || !synced {
		return err
	}

	work.Workers{
		Kind: "machine", Count: workers, Timeout: lookTimeout,
		Reconcile: func(ctx context.Context, key types.NamespacedName) (work.Again, error) {
			again, err := c.look(ctx, key)

			return again.work(), err
		},
	}.Run(ctx, q)

	return nil
}

func enqueue(q work.Queue, obj any) {
	if m, ok := obj.(*v1alpha1.TalosMachine); ok && followed(m) {
		q.Add(types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
	}
}

func (c *Controller) enqueueCluster(q work.Queue, obj any) {
	if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
		c.enqueueMachines(q, cluster.Namespace, cluster.Name, func(*v1alpha1.TalosMachine) bool { return true })
	}
}

// enqueuePeers has the machines looked at that may have waited for this one.
func (c *Controller) enqueuePeers(q work.Queue, obj any) {
	if m, ok := obj.(*v1alpha1.TalosMachine); ok {
		c.enqueueMachines(q, m.Namespace, m.Spec.ClusterRef.Name, func(peer *v1alpha1.TalosMachine) bool {
			return peer.Name != m.Name && peer.Status.Update != nil
		})
	}
}

func (c *Controller) enqueueMachines(q work.Queue, namespace, cluster string, want func(*v1alpha1.TalosMachine) bool) {
	machines, err := c.machines.TalosMachines(namespace).List(labels.Everything())
	if err != nil {
		return // a lister of a cache does not fail
	}

	for _, m := range machines {
		if m.Spec.ClusterRef.Name == cluster && want(m) {
			enqueue(q, m)
		}
	}
}

// machineChanged tells whether a change asks for a look before its time. What this controller writes itself is no such
// change: it would undo every pause.
func machineChanged(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosMachine)
	is, okIs := after.(*v1alpha1.TalosMachine)

	return okWas && okIs && (was.UID != is.UID ||
		followed(was) != followed(is) ||
		!equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		!equality.Semantic.DeepEqual(was.Status.Approval, is.Status.Approval) ||
		!equality.Semantic.DeepEqual(was.Status.Configuration, is.Status.Configuration) ||
		askedAnew(was.Status.Reboot, is.Status.Reboot))
}

func askedAnew(was, is *v1alpha1.MachineRebootStatus) bool {
	return is != nil && is.IntendedAt == nil && is.CompletedAt == nil && !equality.Semantic.DeepEqual(was, is)
}

func turnReturned(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosMachine)
	is, okIs := after.(*v1alpha1.TalosMachine)

	return okWas && okIs && holdsTurn(was) && !holdsTurn(is)
}

func clusterChanged(before, after any) bool {
	was, okWas := before.(*v1alpha1.TalosCluster)
	is, okIs := after.(*v1alpha1.TalosCluster)

	return okWas && okIs && (was.UID != is.UID || !equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		was.Status.BundleHash != is.Status.BundleHash || bootstrapped(was) != bootstrapped(is))
}
