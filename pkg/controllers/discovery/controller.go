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
	Clock    clock.Clock
	// Dial opens sessions with machines in maintenance mode.
	Dial    maintenance.Factory
	Predial Predial
}

// Controller sweeps the declared ranges, one cluster at a time (T-10).
type Controller struct {
	client   versioned.Interface
	informer cache.SharedIndexInformer
	synced   []cache.InformerSynced
	clusters listers.TalosClusterLister
	machines listers.TalosMachineLister
	recorder record.EventRecorder
	clock    clock.Clock
	dial     maintenance.Factory
	predial  Predial

	schedule  *schedule
	addresses *addressBook
	findings  *findings

	mu      sync.Mutex
	running runningSweep
}

// runningSweep is the one sweep that runs, so that a change of its cluster can end it.
type runningSweep struct {
	key    types.NamespacedName
	cancel context.CancelFunc
}

// New returns a controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{
		client:    cfg.Client,
		informer:  cfg.Clusters.Informer(),
		synced:    []cache.InformerSynced{cfg.Clusters.Informer().HasSynced, cfg.Machines.Informer().HasSynced},
		clusters:  cfg.Clusters.Lister(),
		machines:  cfg.Machines.Lister(),
		recorder:  cfg.Recorder,
		clock:     cfg.Clock,
		dial:      cfg.Dial,
		predial:   cfg.Predial,
		schedule:  newSchedule(cfg.Clock),
		addresses: newAddressBook(),
		findings:  newFindings(),
	}
}

// Run sweeps until the context is over, and returns when nothing of it runs any more. It may be called again, never
// twice at a time (T-10).
func (c *Controller) Run(ctx context.Context) error {
	registration, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.added,
		UpdateFunc: c.updated,
		DeleteFunc: c.deleted,
	})
	if err != nil {
		return fmt.Errorf("discovery: watching TalosClusters: %w", err)
	}

	defer c.informer.RemoveEventHandler(registration) //nolint:errcheck // it fails only for a stranger's registration

	if !cache.WaitForCacheSync(ctx.Done(), append(c.synced, registration.HasSynced)...) {
		return nil // stopped before it began
	}

	for {
		key, asked, ok := c.schedule.next(ctx)
		if !ok {
			return nil
		}

		if c.sweep(ctx, key, asked) {
			c.schedule.after(key, Interval)
		}
	}
}

func (c *Controller) added(obj any) {
	if key, ok := keyOf(obj); ok {
		c.schedule.now(key)
	}
}

func (c *Controller) updated(before, after any) {
	was, okWas := before.(*v1alpha1.TalosCluster)
	is, okIs := after.(*v1alpha1.TalosCluster)

	if !okWas || !okIs {
		return
	}

	key := types.NamespacedName{Namespace: is.Namespace, Name: is.Name}

	switch {
	case was.UID != is.UID,
		was.Spec.Paused != is.Spec.Paused,
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero(),
		!equality.Semantic.DeepEqual(was.Spec.Discovery, is.Spec.Discovery):
		// The running sweep asks addresses that are perhaps no longer declared.
		c.interrupt(key)
		c.schedule.now(key)
	case requested(was) != requested(is):
		c.schedule.now(key)
	case was.Generation != is.Generation && !sweeps(is):
		// Nothing is asked; the condition that says so is to speak of this generation, or nobody can wait for it.
		c.schedule.now(key)
	}
}

func sweeps(cluster *v1alpha1.TalosCluster) bool {
	_, ready := readiness(cluster)
	return ready.Status == metav1.ConditionTrue
}

func (c *Controller) deleted(obj any) {
	if key, ok := keyOf(obj); ok {
		c.interrupt(key)
		c.schedule.drop(key)
	}

	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}

	if cluster, ok := obj.(*v1alpha1.TalosCluster); ok {
		c.findings.drop(cluster.UID)
	}
}

func keyOf(obj any) (types.NamespacedName, bool) {
	key, err := cache.DeletionHandlingObjectToName(obj)

	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, err == nil
}

func requested(cluster *v1alpha1.TalosCluster) int64 {
	if cluster.Status.Discovery == nil || cluster.Status.Discovery.RequestedAt == nil {
		return 0
	}

	return cluster.Status.Discovery.RequestedAt.Unix()
}

// interrupt ends the running sweep if it is that cluster's.
func (c *Controller) interrupt(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.running.cancel != nil && c.running.key == key {
		c.running.cancel()
	}
}

func (c *Controller) begin(ctx context.Context, key types.NamespacedName) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)

	c.mu.Lock()
	c.running = runningSweep{key: key, cancel: cancel}
	c.mu.Unlock()

	return ctx, func() {
		c.mu.Lock()
		c.running = runningSweep{}
		c.mu.Unlock()

		cancel()
	}
}

// sweep asks every candidate of a cluster once, and tells whether the cluster wants another sweep later. A cluster
// that is paused, or declares nothing, wants one when it changes (T-01).
func (c *Controller) sweep(ctx context.Context, key types.NamespacedName, asked bool) (again bool) {
	// Before the cluster is read: a change that comes after it is read then finds a sweep to interrupt.
	ctx, end := c.begin(ctx, key)
	defer end()

	logger := klog.FromContext(ctx).WithValues("cluster", key)
	ctx = klog.NewContext(ctx, logger)

	cluster, err := c.clusters.TalosClusters(key.Namespace).Get(key.Name)
	if err != nil || !cluster.DeletionTimestamp.IsZero() {
		return false // gone, or going
	}

	candidates, ready := readiness(cluster)
	if ready.Status != metav1.ConditionTrue {
		if err := c.writeStatus(ctx, cluster, func(status *v1alpha1.TalosClusterStatus) {
			c.setCondition(status, cluster, ready)
		}); err != nil && ctx.Err() == nil {
			logger.Error(err, "Status of discovery not written")
		}

		return false
	}

	started := c.clock.Now()
	c.findings.remember(cluster, started)

	var announcing sync.WaitGroup

	if asked {
		// Beside the sweep, not before it: a slow API server delays no machine.
		announcing.Go(func() { c.announce(ctx, cluster, started, len(candidates)) })
	}

	result := c.DiscoverAll(ctx, cluster, candidates, asked)

	announcing.Wait()

	if ctx.Err() != nil {
		return false // stopped, or interrupted by a change that has asked for the next one
	}

	c.findings.forget(cluster, c.clock.Now())

	if result.Failure != nil {
		logger.Error(result.Failure, "Machines were found but not registered")
	}

	if err := c.conclude(ctx, cluster, started, len(candidates), result); err != nil && ctx.Err() == nil {
		logger.Error(err, "Status of discovery not written")
	}

	logger.V(2).Info("Sweep ended", "candidates", len(candidates), "answered", result.Answered, "registered", result.Registered)

	return true
}
