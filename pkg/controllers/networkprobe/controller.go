package networkprobe

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// workers is how many namespaces are reconciled at once.
	workers = 4
	// batchWindow gathers events that come together, such as a plant's manifests, into one new configuration.
	batchWindow = 100 * time.Millisecond

	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Options are what the controller needs from outside.
type Options struct {
	// Image is io-probe's.
	Image string
	// Host is the host cluster's client.
	Host kubernetes.Interface
	// Pods and ConfigMaps are of all namespaces; they may be filtered by the label probepod.KindLabel.
	Pods       coreinformers.PodInformer
	ConfigMaps coreinformers.ConfigMapInformer
	Nodes      coreinformers.NodeInformer
	Namespaces coreinformers.NamespaceInformer
	Modules    physicalinformers.IOModuleInformer
	// Controllers have probes of their own (P-04).
	Controllers physicalinformers.ControllerInformer
	// EnsureCertificate makes the Secret probepod.TLSSecret of a namespace, or renews it if that is due (P-11).
	EnsureCertificate func(ctx context.Context, namespace string) error
	Recorder          record.EventRecorder
	Clock             clock.WithTicker
}

// Controller reconciles the probes, one namespace at a time (P-08).
type Controller struct {
	image             string
	host              kubernetes.Interface
	ensureCertificate func(ctx context.Context, namespace string) error
	events            *hosted.Events
	objects           hosted.Objects
	clock             clock.WithTicker

	pods        corelisters.PodLister
	configMaps  corelisters.ConfigMapLister
	nodes       corelisters.NodeLister
	namespaces  corelisters.NamespaceLister
	modules     physicallisters.IOModuleLister
	controllers physicallisters.ControllerLister

	sources []watch.Source
	queue   workqueue.TypedRateLimitingInterface[string]
}

// New returns a controller; the informers it asks for are started by the caller, before or after.
func New(o Options) *Controller {
	c := &Controller{
		image:             o.Image,
		host:              o.Host,
		ensureCertificate: o.EnsureCertificate,
		events:            hosted.NewEvents(o.Recorder, o.Clock),
		objects:           hosted.Objects{Host: o.Host, Ours: probepod.IsProbe, What: "a probe"},
		clock:             o.Clock,
		pods:              o.Pods.Lister(),
		configMaps:        o.ConfigMaps.Lister(),
		nodes:             o.Nodes.Lister(),
		namespaces:        o.Namespaces.Lister(),
		modules:           o.Modules.Lister(),
		controllers:       o.Controllers.Lister(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "networkprobe", Clock: o.Clock},
		),
	}
	c.sources = []watch.Source{
		watch.OnChange(o.Modules.Informer(), c.moduleChanged),
		watch.OnChange(o.Pods.Informer(), c.ownChanged),
		watch.OnChange(o.ConfigMaps.Informer(), c.ownChanged),
		watch.OnChange(o.Nodes.Informer(), c.nodeChanged),
		watch.OnChange(o.Controllers.Informer(), c.controllerChanged),
		{Informer: o.Namespaces.Informer(), Handler: cache.ResourceEventHandlerFuncs{}},
	}
	return c
}

// Run reconciles until ctx ends, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("networkprobe"))
	defer c.queue.ShutDown()
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
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

// next reconciles the next namespace; it returns false when the queue is shut down.
func (c *Controller) next(ctx context.Context) bool {
	namespace, down := c.queue.Get()
	if down {
		return false
	}
	defer c.queue.Done(namespace)
	after, err := c.reconcile(ctx, namespace)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Info("A namespace's probes are tried again", "namespace", namespace, "err", err.Error())
		c.queue.AddRateLimited(namespace)
	default:
		c.queue.Forget(namespace)
		if after > 0 {
			c.queue.AddAfter(namespace, after)
		}
	}
	return true
}

// Reconsider has a namespace looked at soon. Whoever finds a probe's certificate refused asks for that: Secrets are not watched
// (P-11).
func (c *Controller) Reconsider(namespace string) { c.enqueue(namespace) }

func (c *Controller) enqueue(namespace string) { c.queue.AddAfter(namespace, batchWindow) }

// moduleChanged reads both sides of an update: a change of selector or protocol concerns a probe that only the former
// module knows. Statuses are no news here.
func (c *Controller) moduleChanged(before, after metav1.Object) {
	if before != nil && after != nil && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration() &&
		before.GetResourceVersion() != after.GetResourceVersion() {
		return
	}
	for _, object := range []metav1.Object{before, after} {
		if object != nil {
			c.enqueue(object.GetNamespace())
			return
		}
	}
}

// controllerChanged looks at where a Controller's probe belongs, and whose it is. Hearts beat, which is no news here.
func (c *Controller) controllerChanged(before, after metav1.Object) {
	from, _ := before.(*v1alpha1.Controller)
	to, _ := after.(*v1alpha1.Controller)
	if from != nil && to != nil && from.UID == to.UID && NodeOf(from) == NodeOf(to) {
		return
	}
	for _, controller := range []*v1alpha1.Controller{from, to} {
		if NodeOf(controller) != "" {
			c.enqueue(controller.Namespace)
			return
		}
	}
}

// ownChanged looks at pods and ConfigMaps. Labels count on both sides, lest the loss of a label go unseen; an object that
// is not ours counts when it goes, since it may have had the name of a probe.
func (c *Controller) ownChanged(before, after metav1.Object) {
	for _, object := range []metav1.Object{before, after} {
		if object == nil {
			continue
		}
		_, _, named := parseName(object.GetName())
		if named || probepod.IsProbe(object) {
			c.enqueue(object.GetNamespace())
			return
		}
	}
}

// nodeChanged wakes the namespaces whose probes run on a node whose health or labels changed, and those whose probes
// wait for one.
func (c *Controller) nodeChanged(before, after metav1.Object) {
	from, _ := before.(*corev1.Node)
	to, _ := after.(*corev1.Node)
	if from != nil && to != nil && hosted.HealthOf(from) == hosted.HealthOf(to) && from.Spec.Unschedulable == to.Spec.Unschedulable && maps.Equal(from.Labels, to.Labels) {
		return
	}
	name := ""
	if to != nil {
		name = to.Name
	} else {
		name = from.Name
	}
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return
	}
	woken := map[string]bool{}
	for _, pod := range pods {
		if probepod.IsProbe(pod) && (pod.Spec.NodeName == name || pod.Spec.NodeName == "") && !woken[pod.Namespace] {
			woken[pod.Namespace] = true
			c.enqueue(pod.Namespace)
		}
	}
}
