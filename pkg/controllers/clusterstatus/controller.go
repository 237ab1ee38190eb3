// Package clusterstatus tells in each TalosCluster's status how many machines it has and whether its secrets bundle is
// there (T-16).
package clusterstatus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	informers "github.com/fieldplane/fieldplane/generated/informers/talos/v1alpha1"
	listers "github.com/fieldplane/fieldplane/generated/listers/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
)

const (
	// gather is how long changes are gathered: a sweep that registers hundreds of machines makes a few writes.
	gather = time.Second
	// writeTimeout bounds one attempt.
	writeTimeout = 10 * time.Second

	fieldManager = "fieldplane-clusterstatus"
)

// Config is what a Controller needs; every member is required.
type Config struct {
	// Client writes the status of TalosClusters.
	Client versioned.Interface
	// Clusters and Machines are informers over all namespaces; whoever made them starts them.
	Clusters informers.TalosClusterInformer
	Machines informers.TalosMachineInformer
	// Bundles reads the clusters' secrets bundles (T-16).
	Bundles *bundle.Store
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	Clock    clock.WithTicker
}

// Controller keeps status.machines, status.bundleHash and the condition BundleReady of every TalosCluster.
type Controller struct {
	client          versioned.Interface
	clusterInformer cache.SharedIndexInformer
	machineInformer cache.SharedIndexInformer
	clusters        listers.TalosClusterLister
	machines        listers.TalosMachineLister
	bundles         *bundle.Store
	recorder        record.EventRecorder
	clock           clock.WithTicker

	readings *readings
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
		readings:        newReadings(),
	}
}

// Run keeps the status until the context is over, and returns when nothing of it runs any more. It may be called again,
// never twice at a time.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName](),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "clusterstatus", Clock: c.clock},
	)
	defer queue.ShutDown()

	// Bundles are read beside the counting: a host cluster that is slow to give a Secret delays no count.
	secrets := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Name: "clusterbundles", Clock: c.clock})
	defer secrets.ShutDown()

	clusters := watch.Source{Informer: c.clusterInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
				key := types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
				queue.Add(key)
				secrets.Add(key)
			}
		},
		UpdateFunc: func(before, after any) {
			was, okWas := before.(*v1alpha1.TalosCluster)
			is, okIs := after.(*v1alpha1.TalosCluster)

			if !okWas || !okIs {
				return
			}

			key := types.NamespacedName{Namespace: is.Namespace, Name: is.Name}

			if was.UID != is.UID {
				c.readings.forget(was.UID)
				secrets.Add(key)
			}

			// The condition says of which generation it speaks.
			if was.UID != is.UID || was.Generation != is.Generation {
				queue.Add(key)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}

			if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
				c.readings.forget(cluster.UID)
			}
		},
	}}

	changed := func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}

		if machine, ok := obj.(*v1alpha1.TalosMachine); ok {
			queue.AddAfter(types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterRef.Name}, gather)
		}
	}

	machines := watch.Source{Informer: c.machineInformer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: changed,
	}}

	stop, synced, err := watch.Follow(ctx, clusters, machines)
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

			switch err := c.reconcile(ctx, key); {
			case err == nil || ctx.Err() != nil:
				queue.Forget(key)
			case apierrors.IsConflict(err):
				queue.AddRateLimited(key)
			default:
				utilruntime.HandleErrorWithContext(ctx, err, "Status of a cluster not written")
				queue.AddRateLimited(key)
			}

			queue.Done(key)
		}
	})

	for range readers {
		running.Go(func() {
			for {
				key, shutdown := secrets.Get()
				if shutdown {
					return
				}

				exists, news := c.read(ctx, key)
				if exists {
					secrets.AddAfter(key, readInterval)
				}

				if news {
					queue.Add(key)
				}

				secrets.Done(key)
			}
		})
	}

	<-ctx.Done()
	queue.ShutDown()
	secrets.ShutDown()
	running.Wait()

	return nil
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	cluster, err := c.clusters.TalosClusters(key.Namespace).Get(key.Name)
	if err != nil {
		return nil // gone, or named by a machine only
	}

	machines, err := c.machines.TalosMachines(key.Namespace).List(labels.Everything())
	if err != nil {
		return err
	}

	desired := cluster.DeepCopy()
	desired.Status.Machines = count(machines, key.Name)
	c.assess(desired, machines)

	if equality.Semantic.DeepEqual(cluster.Status, desired.Status) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	_, err = c.client.TalosV1alpha1().TalosClusters(key.Namespace).UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

	switch {
	case err == nil:
		c.tell(cluster, desired)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("status of TalosCluster %s: %w", key, err)
	}

	return nil
}

// count counts the machines of one cluster.
func count(machines []*v1alpha1.TalosMachine, cluster string) v1alpha1.MachineCounts {
	var counts v1alpha1.MachineCounts

	for _, machine := range machines {
		if machine.Spec.ClusterRef.Name != cluster {
			continue
		}

		counts.Total++

		switch {
		case ptr.Deref(machine.Spec.Approved, false):
			counts.Approved++
		case machine.Spec.Rejected == nil:
			counts.Pending++
		}

		switch machine.Status.Phase {
		case v1alpha1.MachineRunning:
			counts.Running++
		case v1alpha1.MachineFailed:
			counts.Failed++
		}
	}

	return counts
}
