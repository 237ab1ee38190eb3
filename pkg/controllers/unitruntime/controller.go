// Package unitruntime keeps the runtime of each Unit: one pod on the nodes that the Unit names, and one ConfigMap with the Unit's tags
// and the modules that they are read from (P-14, P-15). Both go with the Unit.
//
// RBAC in the host cluster: pods and configmaps get, list, watch, create, update, patch, delete; nodes get, list, watch;
// namespaces get, list, watch; events create, patch; and what the namespace's certificate needs.
package unitruntime

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalclient "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// workers is how many Units are reconciled at once.
	workers = 4
	// timeout bounds one reconcile.
	timeout = 30 * time.Second
	// batchWindow gathers events that come together, such as a plant's manifests, into one new configuration.
	batchWindow = 100 * time.Millisecond

	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Options are what the controller needs from outside.
type Options struct {
	// Image is unit-runtime's.
	Image string
	// Host is the host cluster's client.
	Host kubernetes.Interface
	// Client writes the Units' status.
	Client physicalclient.UnitsGetter
	// Pods and ConfigMaps are of all namespaces; they may be filtered by the label probepod.RuntimeLabel.
	Pods       coreinformers.PodInformer
	ConfigMaps coreinformers.ConfigMapInformer
	// ProbePods are those of probes, of all namespaces; they may be filtered by the label probepod.KindLabel.
	ProbePods      coreinformers.PodInformer
	Nodes          coreinformers.NodeInformer
	Namespaces     coreinformers.NamespaceInformer
	Units          physicalinformers.UnitInformer
	ControlModules physicalinformers.ControlModuleInformer
	Modules        physicalinformers.IOModuleInformer
	// EnsureCertificate makes the Secret probepod.TLSSecret of a namespace, or renews it if that is due (P-11).
	EnsureCertificate func(ctx context.Context, namespace string) error
	Recorder          record.EventRecorder
	Clock             clock.WithTicker
}

// Controller reconciles the runtimes, one Unit at a time.
type Controller struct {
	image        string
	host         kubernetes.Interface
	client       physicalclient.UnitsGetter
	objects      hosted.Objects
	events       *hosted.Events
	certificates *certificates
	clock        clock.WithTicker

	pods           corelisters.PodLister
	configMaps     corelisters.ConfigMapLister
	probePods      corelisters.PodLister
	nodes          corelisters.NodeLister
	namespaces     corelisters.NamespaceLister
	units          physicallisters.UnitLister
	controlModules physicallisters.ControlModuleLister
	modules        physicallisters.IOModuleLister

	facts   *facts
	sources []watch.Source
	queue   work.Queue
	// wake has Units looked at soon.
	wake func(units ...types.NamespacedName)
}

// New returns a controller; the informers it asks for are started by the caller, before or after.
func New(o Options) *Controller {
	c := &Controller{
		image:  o.Image,
		host:   o.Host,
		client: o.Client,
		objects: hosted.Objects{
			Host: o.Host, What: "a Unit's runtime",
			Ours: func(object metav1.Object) bool { return probepod.IsOurs(object, probepod.Unit) },
		},
		events:         hosted.NewEvents(o.Recorder, o.Clock),
		certificates:   newCertificates(o.EnsureCertificate, o.Clock),
		clock:          o.Clock,
		pods:           o.Pods.Lister(),
		configMaps:     o.ConfigMaps.Lister(),
		probePods:      o.ProbePods.Lister(),
		nodes:          o.Nodes.Lister(),
		namespaces:     o.Namespaces.Lister(),
		units:          o.Units.Lister(),
		controlModules: o.ControlModules.Lister(),
		modules:        o.Modules.Lister(),
		facts:          newFacts(),
		queue:          work.NewQueue("unitruntime", firstRetry, lastRetry, o.Clock),
	}
	c.wake = c.enqueue
	c.sources = []watch.Source{
		watch.OnChange(o.Units.Informer(), c.unitChanged),
		watch.OnChange(o.ControlModules.Informer(), c.controlModuleChanged),
		watch.OnChange(o.Modules.Informer(), c.moduleChanged),
		watch.OnChange(o.Pods.Informer(), c.ownChanged),
		watch.OnChange(o.ConfigMaps.Informer(), c.ownChanged),
		watch.OnChange(o.ProbePods.Informer(), c.probeChanged),
		watch.OnChange(o.Nodes.Informer(), c.nodeChanged),
		{Informer: o.Namespaces.Informer(), Handler: cache.ResourceEventHandlerFuncs{}},
	}
	return c
}

// Run reconciles until ctx ends, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("unitruntime"))
	defer c.queue.ShutDown()
	// Before it has heard of all of them, a config would lack the rest, and who shares a device would not be known.
	stop, synced, err := watch.Follow(ctx, c.sources...)
	defer stop()
	if err != nil || !synced {
		return err
	}
	work.Workers{Kind: "unit", Count: workers, Timeout: timeout, Reconcile: c.reconcile}.Run(ctx, c.queue)
	return nil
}

// Reconsider has a namespace's Units looked at soon, and its certificate before. Whoever finds a runtime's certificate refused asks for
// that: Secrets are not watched (P-11).
func (c *Controller) Reconsider(namespace string) {
	c.certificates.forget(namespace)
	units, err := c.units.Units(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, unit := range units {
		c.wake(keyOf(unit))
	}
}

func (c *Controller) enqueue(units ...types.NamespacedName) {
	for _, unit := range units {
		c.queue.AddAfter(unit, batchWindow)
	}
}

// unitChanged does not look at the status, which is others' to write.
func (c *Controller) unitChanged(before, after metav1.Object) {
	if sameSpec(before, after) {
		return
	}
	if after != nil {
		c.wake(c.facts.setUnit(keyOf(after), true)...)
	} else if before != nil {
		c.wake(c.facts.setUnit(keyOf(before), false)...)
	}
}

func (c *Controller) controlModuleChanged(before, after metav1.Object) {
	if sameSpec(before, after) {
		return
	}
	switch to, _ := after.(*v1alpha1.ControlModule); {
	case to != nil:
		c.wake(c.facts.setControlModule(keyOf(to), to)...)
	case before != nil:
		c.wake(c.facts.setControlModule(keyOf(before), nil)...)
	}
}

// moduleChanged looks at which pod measures a module, and at nothing else of its status.
func (c *Controller) moduleChanged(before, after metav1.Object) {
	from, _ := before.(*v1alpha1.IOModule)
	to, _ := after.(*v1alpha1.IOModule)
	switch {
	case from != nil && to != nil && sameSpec(before, after) && from.Status.ProbePodName == to.Status.ProbePodName:
	case to != nil:
		c.wake(c.facts.setModule(keyOf(to), to)...)
	case from != nil:
		c.wake(c.facts.setModule(keyOf(from), nil)...)
	}
}

// ownChanged looks at pods and ConfigMaps. Both sides count, lest the loss of a label or an annotation go unseen.
func (c *Controller) ownChanged(before, after metav1.Object) {
	for _, object := range []metav1.Object{before, after} {
		if object == nil {
			continue
		}
		if unit := object.GetAnnotations()[probepod.UnitAnnotation]; unit != "" && probepod.IsOurs(object, probepod.Unit) {
			c.wake(types.NamespacedName{Namespace: object.GetNamespace(), Name: unit})
		}
	}
}

// probeChanged wakes the Units that read through a probe that is elsewhere now.
func (c *Controller) probeChanged(before, after metav1.Object) {
	from, _ := before.(*corev1.Pod)
	to, _ := after.(*corev1.Pod)
	if from != nil && to != nil && from.UID == to.UID && addressOf(from) == addressOf(to) {
		return
	}
	for _, pod := range []*corev1.Pod{to, from} {
		if pod != nil {
			c.wake(c.facts.readThrough(keyOf(pod))...)
			return
		}
	}
}

// nodeChanged wakes the Units whose runtimes are on a node whose health or labels changed, and those whose runtimes wait for one.
func (c *Controller) nodeChanged(before, after metav1.Object) {
	from, _ := before.(*corev1.Node)
	to, _ := after.(*corev1.Node)
	if from != nil && to != nil && hosted.HealthOf(from) == hosted.HealthOf(to) && from.Spec.Unschedulable == to.Spec.Unschedulable &&
		maps.Equal(from.Labels, to.Labels) {
		return
	}
	node := to
	if node == nil {
		node = from
	}
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return
	}
	for _, pod := range pods {
		if unit, ours := probepod.UnitOf(pod); ours && (pod.Spec.NodeName == node.Name || pod.Spec.NodeName == "") {
			c.wake(types.NamespacedName{Namespace: pod.Namespace, Name: unit})
		}
	}
}

// sameSpec tells that an update changed nothing but status or metadata. A resync, in which nothing changes, is none.
func sameSpec(before, after metav1.Object) bool {
	return before != nil && after != nil && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration() &&
		before.GetResourceVersion() != after.GetResourceVersion() && (before.GetDeletionTimestamp() == nil) == (after.GetDeletionTimestamp() == nil)
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

func sortedKeys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// sortedTags are pointers to a ControlModule's tags by name.
func sortedTags(controlModule *v1alpha1.ControlModule) []*v1alpha1.Tag {
	tags := make([]*v1alpha1.Tag, len(controlModule.Spec.Tags))
	for i := range tags {
		tags[i] = &controlModule.Spec.Tags[i]
	}
	slices.SortFunc(tags, func(a, b *v1alpha1.Tag) int { return cmp.Compare(a.Name, b.Name) })
	return tags
}
