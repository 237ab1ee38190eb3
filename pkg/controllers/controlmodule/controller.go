// Package controlmodule tells in each ControlModule's status whether what it refers to is there (P-14).
package controlmodule

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalclient "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers/physical/v1alpha1"
	physicallisters "github.com/fieldplane/fieldplane/generated/listers/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
)

const (
	// workers is how many ControlModules are reconciled at once.
	workers = 4
	// timeout bounds one reconcile.
	timeout = 10 * time.Second
	// batchWindow gathers events that come together: in a plant's manifests Units, modules and tags come in any order.
	batchWindow = 200 * time.Millisecond

	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Options are what the controller needs from outside.
type Options struct {
	// Client writes the ControlModules' status.
	Client         physicalclient.ControlModulesGetter
	ControlModules physicalinformers.ControlModuleInformer
	Units          physicalinformers.UnitInformer
	Modules        physicalinformers.IOModuleInformer
	Clock          clock.WithTicker
}

// Controller reconciles the status of ControlModules.
type Controller struct {
	client         physicalclient.ControlModulesGetter
	clock          clock.WithTicker
	controlModules physicallisters.ControlModuleLister
	units          physicallisters.UnitLister
	modules        physicallisters.IOModuleLister

	referrers *referrers
	sources   []watch.Source
	queue     work.Queue
}

// New returns a controller; the informers it asks for are started by the caller, before or after.
func New(o Options) *Controller {
	c := &Controller{
		client: o.Client, clock: o.Clock,
		controlModules: o.ControlModules.Lister(), units: o.Units.Lister(), modules: o.Modules.Lister(),
		referrers: newReferrers(),
		queue:     work.NewQueue("controlmodule", firstRetry, lastRetry, o.Clock),
	}
	c.sources = []watch.Source{
		watch.OnChange(o.ControlModules.Informer(), c.controlModuleChanged),
		watch.OnChange(o.Units.Informer(), func(before, after metav1.Object) { c.targetChanged(before, after, unitTarget) }),
		watch.OnChange(o.Modules.Informer(), func(before, after metav1.Object) { c.targetChanged(before, after, moduleTarget) }),
	}
	return c
}

// Run reconciles until ctx ends, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("controlmodule"))
	defer c.queue.ShutDown()
	// Without all of them a reference would be taken for dangling only because its target is not known yet.
	stop, synced, err := watch.Follow(ctx, c.sources...)
	defer stop()
	if err != nil || !synced {
		return err
	}
	work.Workers{Kind: "controlModule", Count: workers, Timeout: timeout, Reconcile: c.reconcile}.Run(ctx, c.queue)
	return nil
}

// reconcile writes the condition if it says something new, against the resourceVersion that was judged.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (work.Again, error) {
	controlModule, err := c.controlModules.ControlModules(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return work.Again{}, nil
	}
	if err != nil {
		return work.Again{}, err
	}
	_, err = c.units.Units(key.Namespace).Get(controlModule.Spec.UnitRef.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return work.Again{}, err
	}
	reason, message, err := resolve(controlModule, err == nil, func(name string) (*v1alpha1.IOModule, error) {
		module, err := c.modules.IOModules(key.Namespace).Get(name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return module, err
	})
	if err != nil {
		return work.Again{}, fmt.Errorf("ControlModule %s: %w", key, err)
	}
	condition := metav1.Condition{
		Type: ConditionReferencesResolved, Status: metav1.ConditionFalse, Reason: reason, Message: notice.Bounded(message),
		ObservedGeneration: controlModule.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	if reason == ReasonResolved {
		condition.Status = metav1.ConditionTrue
	}
	updated := controlModule.DeepCopy()
	updated.Status.ObservedGeneration = controlModule.Generation
	meta.SetStatusCondition(&updated.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(updated.Status, controlModule.Status) {
		return work.Again{}, nil
	}
	_, err = c.client.ControlModules(key.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return work.Again{}, err
}

func (c *Controller) controlModuleChanged(before, after metav1.Object) {
	switch to, _ := after.(*v1alpha1.ControlModule); {
	case to != nil:
		c.referrers.set(keyOf(to), to)
		c.queue.AddAfter(keyOf(to), batchWindow)
	case before != nil:
		c.referrers.set(keyOf(before), nil)
	}
}

// targetChanged looks at what comes, goes or is specified anew. A status is no news here.
func (c *Controller) targetChanged(before, after metav1.Object, of func(types.NamespacedName) target) {
	if before != nil && after != nil && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration() {
		return
	}
	object := after
	if object == nil {
		object = before
	}
	if object == nil {
		return
	}
	for _, key := range c.referrers.of(of(keyOf(object))) {
		c.queue.AddAfter(key, batchWindow)
	}
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}
