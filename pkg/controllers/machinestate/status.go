package machinestate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// record writes what was decided into the machine's status, if it changes anything, and tells what is new as Events.
func (c *Controller) record(ctx context.Context, p picture, status *v1alpha1.TalosMachineStatus) error {
	// What was done to a machine is written down even when the controller is being stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()

	machines := c.client.TalosV1alpha1().TalosMachines(p.machine.Namespace)

	for {
		if equality.Semantic.DeepEqual(&p.machine.Status, status) {
			return nil
		}

		desired := p.machine.DeepCopy()
		desired.Status = *status

		_, err := machines.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

		switch {
		case err == nil:
			c.tell(p.machine, status)

			return nil
		case apierrors.IsNotFound(err):
			return nil
		// What was only seen is seen again; what was done is not done again to be told.
		case !apierrors.IsConflict(err), p.sent == nil && p.rebooted == nil:
			return fmt.Errorf("status of TalosMachine %s/%s: %w", p.machine.Namespace, p.machine.Name, err)
		}

		latest, err := machines.Get(ctx, p.machine.Name, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("status of TalosMachine %s/%s: %w", p.machine.Namespace, p.machine.Name, err)
		// Un-approved meanwhile: it is left untouched (T-12). The intent that stands says that it may have been sent.
		case latest.UID != p.machine.UID || !followed(latest):
			return nil
		case !equality.Semantic.DeepEqual(latest.Status.Update, p.machine.Status.Update):
			return fmt.Errorf("status of TalosMachine %s/%s: somebody else records an update", p.machine.Namespace, p.machine.Name)
		}

		p.machine = latest
		status, _ = decide(p)
	}
}

// tell makes an Event of each verdict that is not the one that stood before.
func (c *Controller) tell(before *v1alpha1.TalosMachine, after *v1alpha1.TalosMachineStatus) {
	for _, kind := range []string{ConditionReady, ConditionUpToDate, ConditionDrifted} {
		was := reasonOf(&before.Status, kind)
		is := meta.FindStatusCondition(after.Conditions, kind)

		if is == nil || reason(is.Reason) == was || silent(before, was, reason(is.Reason)) {
			continue
		}

		c.recorder.Event(&corev1.ObjectReference{
			APIVersion:      v1alpha1.SchemeGroupVersion.String(),
			Kind:            "TalosMachine",
			Namespace:       before.Namespace,
			Name:            before.Name,
			UID:             before.UID,
			ResourceVersion: before.ResourceVersion,
		}, meanings()[reason(is.Reason)].event, is.Reason, is.Message)
	}
}

// silent tells whether a verdict is the ordinary course of things, and no Event.
func silent(before *v1alpha1.TalosMachine, was, is reason) bool {
	switch {
	case meanings()[is].event == "":
		return true
	case is == reasonUpToDate:
		return was == "" // as every machine begins
	case is == reasonUnreachable || is == reasonNotTalos || is == reasonNotReady:
		return !ran(before) // an installation comes along there
	}

	return false
}
