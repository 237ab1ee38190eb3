package machineconfiguration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
)

// record writes a verdict into the machine's status, if it changes anything, and tells a new one as an Event.
func (c *Controller) record(ctx context.Context, v verdict) error {
	// What was done to a machine is written down even when the controller is being stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()

	machines := c.client.TalosV1alpha1().TalosMachines(v.machine.Namespace)
	current := v.machine

	for {
		desired := current.DeepCopy()
		c.apply(&desired.Status, current, v)

		if equality.Semantic.DeepEqual(current.Status, desired.Status) {
			return nil
		}

		_, err := machines.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

		switch {
		case err == nil:
			c.tell(current, v)

			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("status of TalosMachine %s/%s: %w", current.Namespace, current.Name, err)
		}

		latest, err := machines.Get(ctx, current.Name, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("status of TalosMachine %s/%s: %w", current.Namespace, current.Name, err)
		// Un-approved meanwhile: it is left untouched (T-12). The intent that stands says that it may have been sent.
		case latest.UID != current.UID || !configurable(latest):
			return nil
		case !equality.Semantic.DeepEqual(latest.Status.Configuration, current.Status.Configuration):
			return fmt.Errorf("status of TalosMachine %s/%s: somebody else records configuration", current.Namespace, current.Name)
		}

		current = latest
	}
}

// apply puts a verdict into a status.
func (c *Controller) apply(status *v1alpha1.TalosMachineStatus, machine *v1alpha1.TalosMachine, v verdict) {
	meaning := outcomes()[v.reason]

	status.ObservedGeneration = v.machine.Generation

	if meaning.phase != "" {
		status.Phase = meaning.phase
	}

	if v.configuration != nil {
		status.Configuration = v.configuration.DeepCopy()
	}

	if applied(&v1alpha1.TalosMachine{Status: *status}) {
		status.ConfigHash = status.Configuration.Hash
	}

	set := func(kind string, value metav1.ConditionStatus) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               kind,
			Status:             value,
			Reason:             string(v.reason),
			Message:            notice.Bounded(v.message),
			ObservedGeneration: v.machine.Generation,
			LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	}

	for kind := range problems() {
		if kind != meaning.problem || v.anew {
			meta.RemoveStatusCondition(&status.Conditions, kind)
		}
	}

	if meaning.problem != "" {
		set(meaning.problem, metav1.ConditionTrue)
	}

	set(ConditionConfigured, meaning.configured)

	switch meaning.rendered {
	case metav1.ConditionFalse:
		set(ConditionRendered, metav1.ConditionFalse)
	case metav1.ConditionTrue:
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               ConditionRendered,
			Status:             metav1.ConditionTrue,
			Reason:             "Rendered",
			Message:            "the configuration was made",
			ObservedGeneration: v.machine.Generation,
			LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	}
}

// tell makes an Event of a verdict that is not the one that stood before.
func (c *Controller) tell(before *v1alpha1.TalosMachine, v verdict) {
	if stood := meta.FindStatusCondition(before.Status.Conditions, ConditionConfigured); stood != nil && stood.Reason == string(v.reason) {
		return
	}

	kind := corev1.EventTypeNormal
	if outcomes()[v.reason].problem != "" {
		kind = corev1.EventTypeWarning
	}

	c.recorder.Event(&corev1.ObjectReference{
		APIVersion:      v1alpha1.SchemeGroupVersion.String(),
		Kind:            "TalosMachine",
		Namespace:       before.Namespace,
		Name:            before.Name,
		UID:             before.UID,
		ResourceVersion: before.ResourceVersion,
	}, kind, string(v.reason), notice.Bounded(v.message))
}
