package iomodule

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalclient "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/networkprobe"
)

const (
	// workers is how many modules are reconciled at once: one fault may take down a thousand.
	workers = 8

	firstRetry = 5 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Options are what the controller needs from outside.
type Options struct {
	// Client writes the modules' status.
	Client      physicalclient.IOModulesGetter
	Modules     physicalinformers.IOModuleInformer
	Controllers physicalinformers.ControllerInformer
	// Pods and ConfigMaps of all namespaces of the host cluster; they may be filtered by the label probepod.KindLabel.
	Pods       coreinformers.PodInformer
	ConfigMaps coreinformers.ConfigMapInformer
	Nodes      coreinformers.NodeInformer
	Follow     Follow
	// Distrusted is told of namespaces where a probe's certificate, or the controllers' by a probe, is refused; it is told
	// again and again while that lasts, and must not block.
	Distrusted func(namespace string)
	Clock      clock.WithTicker
}

// Controller reconciles the status of modules.
type Controller struct {
	client physicalclient.IOModulesGetter
	clock  clock.WithTicker

	modules     physicallisters.IOModuleLister
	controllers physicallisters.ControllerLister
	pods        corelisters.PodLister
	nodes       corelisters.NodeLister

	assignments *assignments
	hearts      *hearts
	paces       *paces
	connections *connections
	streams     *streams
	unstored    *unstored

	sources []watch.Source
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// probes are the pods whose stream has to be looked at.
	probes workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu        sync.Mutex
	startedAt time.Time
}

// New returns a controller; the informers it asks for are started by the caller, before or after.
func New(o Options) *Controller {
	newQueue := func(name string) workqueue.TypedRateLimitingInterface[types.NamespacedName] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: name, Clock: o.Clock},
		)
	}
	c := &Controller{
		client:      o.Client,
		clock:       o.Clock,
		modules:     o.Modules.Lister(),
		controllers: o.Controllers.Lister(),
		pods:        o.Pods.Lister(),
		nodes:       o.Nodes.Lister(),
		assignments: newAssignments(),
		hearts:      newHearts(o.Clock),
		paces:       newPaces(o.Clock),
		connections: newConnections(),
		unstored:    newUnstored(),
		queue:       newQueue("iomodule"),
		probes:      newQueue("iomodule-probes"),
	}
	c.streams = newStreams(o.Follow, o.Clock, c.queue.Add, c.enqueueModulesOf, o.Distrusted)
	c.sources = []watch.Source{
		watch.OnChange(o.Modules.Informer(), c.moduleChanged),
		watch.OnChange(o.Controllers.Informer(), c.controllerChanged),
		watch.OnChange(o.Pods.Informer(), c.podChanged),
		watch.OnChange(o.ConfigMaps.Informer(), c.configMapChanged),
		watch.OnChange(o.Nodes.Informer(), c.nodeChanged),
	}
	return c
}

// Run reconciles until ctx ends, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("iomodule"))
	c.begin()
	defer c.queue.ShutDown()
	defer c.probes.ShutDown()
	// Without all of them a module would be Unknown for a moment only because its probe is not known yet.
	stop, synced, err := watch.Follow(ctx, c.sources...)
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
	running.Go(func() {
		for c.nextProbe(ctx) {
		}
		c.streams.stop()
	})
	running.Go(func() {
		ticker := c.clock.NewTicker(silenceCheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				c.streams.checkSilence()
			}
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	c.probes.ShutDown()
	running.Wait()
	return nil
}

func (c *Controller) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startedAt = c.clock.Now()
}

func (c *Controller) started() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startedAt
}

// nextProbe looks at the next pod's stream; it returns false when the queue is shut down.
func (c *Controller) nextProbe(ctx context.Context) bool {
	probe, down := c.probes.Get()
	if down {
		return false
	}
	defer c.probes.Done(probe)
	if ctx.Err() != nil {
		return true
	}
	pod, err := c.podOf(probe)
	if err != nil {
		c.probes.AddRateLimited(probe)
		return true
	}
	c.probes.Forget(probe)
	c.streams.ensure(ctx, probe, pod)
	return true
}

// next reconciles the next module; it returns false when the queue is shut down.
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
		// A conflict is the cache being behind, which is nobody's trouble.
		if !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Info("A module's status is tried again", "module", klog.KRef(key.Namespace, key.Name), "err", err.Error())
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

// reconcile has a module's status be stored, says when to look again, and tells whoever goes by what is stored if it cannot be.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	after, failed, err := c.settle(ctx, key)
	// A conflict is the cache being behind: what is newer than it is looked at in a moment.
	if !apierrors.IsConflict(err) {
		c.unstored.set(key, failed && err != nil)
	}
	return after, err
}

// settle writes a module's status if it has changed, against the resourceVersion that it was judged by, and says when to look
// again, and whether the module left the stored state for one that is not Online.
func (c *Controller) settle(ctx context.Context, key types.NamespacedName) (after time.Duration, failed bool, err error) {
	module, err := c.modules.IOModules(key.Namespace).Get(key.Name)
	if err != nil {
		return 0, false, ignoreNotFound(err)
	}
	var (
		v    verdict
		keep bool
	)
	if networkprobe.Monitors(module) {
		v, keep, err = c.assessProbed(module, nil)
	} else {
		v, keep, after, err = c.assessBound(module)
	}
	if err != nil || keep {
		return 0, false, err
	}
	status := nextStatus(module, v, metav1.NewTime(c.clock.Now()))
	if equality.Semantic.DeepEqual(status, module.Status) {
		return after, false, nil
	}
	if wait := c.paces.wait(key, &module.Status, &status); wait > 0 {
		return wait, false, nil
	}
	if before := module.Status.State; before != status.State {
		klog.FromContext(ctx).Info("Module", "module", klog.KObj(module), "before", before, "state", status.State, "reason", status.Reason)
	}
	updated := module.DeepCopy()
	updated.Status = status
	_, err = c.client.IOModules(key.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	failed = status.State != v1alpha1.ModuleOnline && status.State != module.Status.State
	if apierrors.IsConflict(err) && failed {
		err = c.storeAnyway(ctx, module, status)
	}
	return after, failed, ignoreNotFound(err)
}

// storeAnyway stores a status that met a conflict by a patch, which the server applies to whatever is stored by then: who writes labels
// without a pause would else come first again and again, and keep a failure from being told (P-16). It is not for a specification that
// is another by now, or a module of which another state was stored.
func (c *Controller) storeAnyway(ctx context.Context, module *v1alpha1.IOModule, status v1alpha1.IOModuleStatus) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{
		{"test", "/metadata/uid", module.UID},
		{"test", "/metadata/generation", module.Generation},
	}
	if module.Status.State != "" {
		patch = append(patch, operation{"test", "/status/state", module.Status.State})
	}
	text, err := json.Marshal(append(patch, operation{"add", "/status", status}))
	if err != nil {
		return err
	}
	_, err = c.client.IOModules(module.Namespace).Patch(ctx, module.Name, types.JSONPatchType, text, metav1.PatchOptions{}, "status")
	if apierrors.IsInvalid(err) {
		// The cache will say what is new.
		return apierrors.NewConflict(v1alpha1.Resource("iomodules"), module.Name, err)
	}
	return err
}

func (c *Controller) enqueueModulesOf(probe types.NamespacedName) {
	for _, module := range c.assignments.modulesOf(probe) {
		c.queue.Add(module)
	}
}

func (c *Controller) moduleChanged(before, after metav1.Object) {
	from, _ := before.(*v1alpha1.IOModule)
	to, _ := after.(*v1alpha1.IOModule)
	if from == nil && to == nil {
		return
	}
	c.connections.observe(from, to)
	if to == nil {
		c.paces.forget(keyOf(from))
	}
	if to != nil {
		c.queue.Add(keyOf(to))
	}
}

func (c *Controller) controllerChanged(before, after metav1.Object) {
	controller := after
	if controller == nil {
		controller = before
	}
	if controller == nil {
		return
	}
	from, _ := before.(*v1alpha1.Controller)
	to, _ := after.(*v1alpha1.Controller)
	c.hearts.observe(from, to)
	modules, err := c.modules.IOModules(controller.GetNamespace()).List(labels.Everything())
	if err != nil {
		return
	}
	for _, module := range modules {
		if ref := module.Spec.ControllerRef; ref != nil && ref.Name == controller.GetName() {
			c.queue.Add(keyOf(module))
		}
	}
}

func (c *Controller) podChanged(before, after metav1.Object) {
	from, _ := before.(*corev1.Pod)
	to, _ := after.(*corev1.Pod)
	for _, pod := range []*corev1.Pod{to, from} {
		if pod == nil {
			continue
		}
		if from != nil && to != nil && factsOfPod(from) == factsOfPod(to) {
			return
		}
		probe := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		c.probes.Add(probe)
		c.enqueueModulesOf(probe)
		return
	}
}

// nodeChanged wakes the modules whose probes are on a node that is lost, or found again.
func (c *Controller) nodeChanged(before, after metav1.Object) {
	from, _ := before.(*corev1.Node)
	to, _ := after.(*corev1.Node)
	if from == nil || to == nil || hosted.HealthOf(from).Why == hosted.HealthOf(to).Why {
		return
	}
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == to.Name {
			c.enqueueModulesOf(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
}

func (c *Controller) configMapChanged(before, after metav1.Object) {
	from, _ := before.(*corev1.ConfigMap)
	to, _ := after.(*corev1.ConfigMap)
	if to == nil {
		if from == nil {
			return
		}
		to = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name}}
	}
	for _, module := range c.assignments.set(types.NamespacedName{Namespace: to.Namespace, Name: to.Name}, assignedBy(to)) {
		c.queue.Add(module)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
