// Package discovery looks for Talos machines in maintenance mode at the addresses that TalosClusters declare, and
// registers each one with a strong identity as a TalosMachine that waits for approval (T-01 to T-10).
//
// It has no access to Secrets and never approves: nothing that is found here gets a configuration by that alone (T-03).
package discovery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	informers "github.com/fieldplane/fieldplane/generated/informers/talos/v1alpha1"
	listers "github.com/fieldplane/fieldplane/generated/listers/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// The fixed bounds of a sweep; none is a setting (T-08, T-10).
const (
	// Concurrency is how many candidates are asked at once.
	Concurrency = 32
	// CandidateTimeout is what one candidate may cost: pre-dial, dial, reading and the API calls that follow.
	CandidateTimeout = 2 * time.Second
	// Interval lies between the end of a cluster's sweep and the start of its next one.
	Interval = 60 * time.Second
)

const fieldManager = "fieldplane-discovery"

// Predial tells cheaply whether anything listens at an address; maintenance.Predial is the one that dials (T-08).
type Predial func(ctx context.Context, address string) error

// Config is what a Controller needs; every member is required.
type Config struct {
	// Client writes TalosMachines and the status of TalosClusters.
	Client versioned.Interface
	// Clusters and Machines are informers over all namespaces; whoever made them starts them.
	Clusters informers.TalosClusterInformer
	Machines informers.TalosMachineInformer
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	// Dial opens sessions with machines in maintenance mode.
	Dial    maintenance.Factory
	Predial Predial
}

// Controller sweeps the declared ranges, one cluster at a time (T-10), and keeps the condition SharesHardware of every
// machine right, however it was registered.
type Controller struct {
	client          versioned.Interface
	clusterInformer cache.SharedIndexInformer
	machineInformer cache.SharedIndexInformer
	clusters        listers.TalosClusterLister
	machines        listers.TalosMachineLister
	recorder        record.EventRecorder
	clock           clock.WithTicker
	dial            maintenance.Factory
	predial         Predial
	// noIndex is why machines cannot be looked up by what they are.
	noIndex error

	schedule  *schedule
	addresses *addressBook
	findings  *findings
	creations *creations
}

// New returns a controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{
		client:          cfg.Client,
		clusterInformer: cfg.Clusters.Informer(),
		machineInformer: cfg.Machines.Informer(),
		clusters:        cfg.Clusters.Lister(),
		machines:        cfg.Machines.Lister(),
		recorder:        cfg.Recorder,
		clock:           cfg.Clock,
		dial:            cfg.Dial,
		predial:         cfg.Predial,
		noIndex:         addIndexes(cfg.Machines.Informer()),
		schedule:        newSchedule(cfg.Clock),
		addresses:       newAddressBook(),
		findings:        newFindings(),
		creations:       newCreations(),
	}
}

// Run sweeps until the context is over, and returns when nothing of it runs any more. It may be called again, never
// twice at a time (T-10).
func (c *Controller) Run(ctx context.Context) error {
	if c.noIndex != nil {
		return fmt.Errorf("discovery: indexing TalosMachines: %w", c.noIndex)
	}

	c.schedule.reset()

	upkeep := newUpkeep(c)
	defer upkeep.queue.ShutDown()

	clusters := watch.Source{Informer: c.clusterInformer, Handler: cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initially bool) { c.added(obj, initially, upkeep) },
		UpdateFunc: func(before, after any) {
			was, okWas := before.(*v1alpha1.TalosCluster)
			is, okIs := after.(*v1alpha1.TalosCluster)

			if okWas && okIs {
				c.updated(was, is, upkeep)
			}
		},
		DeleteFunc: c.deleted,
	}}

	machines := watch.Source{Informer: c.machineInformer, Handler: upkeep.handler()}

	stop, synced, err := watch.Follow(ctx, clusters, machines)
	defer stop()

	if err != nil || !synced {
		return err
	}

	var running sync.WaitGroup
	defer running.Wait()

	running.Go(func() { upkeep.run(ctx) })

	for {
		within, t := c.schedule.next(ctx)
		if t == nil {
			upkeep.queue.ShutDown()

			return nil
		}

		rest, again := c.sweep(within, t)
		c.schedule.done(t, rest)

		if again {
			c.schedule.after(t.key, Interval)
		}
	}
}

func (c *Controller) added(obj any, initially bool, upkeep *upkeep) {
	cluster, ok := obj.(*v1alpha1.TalosCluster)
	if !ok {
		return
	}

	switch key := nameOf(cluster); {
	case !sweeps(cluster):
		upkeep.cluster(key)
	case !initially:
		c.schedule.changed(key)
	case unanswered(cluster):
		c.schedule.asked(key)
	default:
		c.schedule.known(key)
	}
}

func (c *Controller) updated(was, is *v1alpha1.TalosCluster, upkeep *upkeep) {
	key := nameOf(is)

	if !sweeps(is) {
		c.schedule.drop(key)

		// The condition that says so is to speak of this generation, or nobody can wait for it.
		if sweeps(was) || was.Generation != is.Generation || was.UID != is.UID {
			upkeep.cluster(key)
		}

		return
	}

	switch {
	case !sweeps(was), was.UID != is.UID, !equality.Semantic.DeepEqual(was.Spec.Discovery, is.Spec.Discovery):
		c.schedule.changed(key)
	case !requestedAt(is).IsZero() && !requestedAt(is).Equal(requestedAt(was)):
		c.schedule.asked(key)
	}
}

func (c *Controller) deleted(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}

	if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
		c.schedule.forget(nameOf(cluster))
		c.findings.drop(cluster.UID)
	}
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// sweep uses a turn: it asks every candidate of a cluster once. It tells what is left of it when it was suspended, and
// whether the cluster wants another sweep later. A cluster that is paused, or declares nothing, wants one when it changes
// (T-01).
func (c *Controller) sweep(ctx context.Context, t *turn) (rest *sweep, again bool) {
	logger := klog.FromContext(ctx).WithValues("cluster", t.key)
	ctx = klog.NewContext(ctx, logger)

	cluster, err := c.clusters.TalosClusters(t.key.Namespace).Get(t.key.Name)
	if err != nil || !sweeps(cluster) {
		return nil, false // gone, or its status says so already
	}

	s := t.rest

	if s == nil {
		candidates, _ := readiness(cluster)
		s = c.newSweep(cluster, candidates, t.urgent)
		c.findings.remember(cluster, c.clock.Now())
	}

	telling := c.tellProgress(ctx, s)
	done := s.run(ctx, t.suspend)

	telling()

	if ctx.Err() != nil {
		return nil, false // stopped, or ended by a change that has asked for the next one
	}

	if !done {
		logger.V(2).Info("Sweep suspended for another cluster's", "asked", s.asked.Load(), "candidates", s.candidates)

		return s, false
	}

	result := s.result()

	c.findings.forget(s.cluster, c.clock.Now())

	if result.Failure != nil {
		logger.Error(result.Failure, "Machines were found but not registered")
	}

	if err := c.conclude(ctx, s, result); err != nil && ctx.Err() == nil {
		logger.Error(err, "Status of discovery not written")
	}

	logger.V(2).Info("Sweep ended", "candidates", s.candidates, "answered", result.Answered, "registered", result.Registered)

	return nil, true
}
