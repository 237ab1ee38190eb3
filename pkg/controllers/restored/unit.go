package restored

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	controller "github.com/fieldplane/fieldplane/pkg/controllers/unit"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// maxCauses is how many causes a hold lists.
const maxCauses = 64

// units brings every Unit to what it is after a restore, and counts those that it has changed.
//
// It writes every one of them, also those that stay as they are: a runtime takes no order of a Unit's lower revision than the one
// that it had last, which may be of after the snapshot, and only what is written now has a higher one.
func (p *Processor) units(ctx context.Context, mark Mark) (int, error) {
	var names []types.NamespacedName
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := p.client.PhysicalV1alpha1().Units(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return 0, fmt.Errorf("units: %w", err)
		}
		for i := range list.Items {
			if _, changed := p.unitAfter(&list.Items[i], mark); changed {
				names = append(names, types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	return each(ctx, names, func(ctx context.Context, name types.NamespacedName) (bool, error) { return p.unit(ctx, name, mark) })
}

func (p *Processor) unit(ctx context.Context, name types.NamespacedName, mark Mark) (changed bool, err error) {
	units := p.client.PhysicalV1alpha1().Units(name.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		unit, err := units.Get(ctx, name.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		message, wanted := p.unitAfter(unit, mark)
		if !wanted {
			return nil
		}
		if _, err := units.UpdateStatus(ctx, unit, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		changed = true
		if message != "" {
			p.tell("Unit", unit, v1alpha1.SchemeGroupVersion.String(), message)
		}
		return nil
	})
	if err != nil {
		return changed, fmt.Errorf("unit %s: %w", name, err)
	}
	return changed, nil
}

// unitAfter changes a Unit's status to what it is after a restore: what people are told, and whether there was anything to change.
func (p *Processor) unitAfter(unit *v1alpha1.Unit, mark Mark) (message string, changed bool) {
	now, was := metav1.NewTime(p.clock.Now()), unit.Status.State
	message, changed = hold(unit, mark, now, p.newID)
	// Not joined by ||: each has its effect.
	commandVoid, writesUncertain := voidCommand(unit, mark), closeWrites(unit, mark)
	explained := explain(unit, mark, was, message, now)
	return message, changed || commandVoid || writesUncertain || explained
}

// explain leaves word of the restore in the Unit itself, once.
func explain(unit *v1alpha1.Unit, mark Mark, was v1alpha1.UnitState, message string, now metav1.Time) bool {
	if told := meta.FindStatusCondition(unit.Status.Conditions, controller.ConditionRestored); told != nil && strings.HasPrefix(told.Message, mark.String()) {
		return false
	}
	switch {
	case message != "":
	case was != "" && isa88.Active(isa88.State(was)):
		message = fmt.Sprintf("%s: the Unit was %s in it, and goes on from there", mark, was)
	default:
		message = fmt.Sprintf("%s: the Unit was %s in it; if it was started since, its devices have their last values and nobody runs it: look at the equipment",
			mark, cmp.Or(was, v1alpha1.UnitIdle))
	}
	return meta.SetStatusCondition(&unit.Status.Conditions, metav1.Condition{
		Type: controller.ConditionRestored, Status: metav1.ConditionTrue, Reason: "FromSnapshot", Message: message,
		ObservedGeneration: unit.Generation, LastTransitionTime: now,
	})
}

// hold is the rule of A-02, by state. Nobody knows what became of the Unit since the snapshot; so whatever it was doing, it
// must not go on, nor come to Running, without somebody who has looked at the equipment.
//
//   - Running, Pausing, Paused, Restarting, and a state that nobody knows: Holding, with the cause Restored.
//   - Holding, Held: stays, with the cause Restored added, and is another episode: its hold values are written anew, since the
//     devices may have been sent others after the snapshot.
//   - Completing, Stopping, Aborting, Resetting: go on to their end, which is never Running. To hold a Unit that is being
//     aborted would make it one that can be restarted.
//   - Idle, Complete, Stopped, Aborted: stay.
func hold(unit *v1alpha1.Unit, mark Mark, now metav1.Time, newID func() string) (message string, changed bool) {
	status := &unit.Status
	cause := v1alpha1.UnitHoldCause{Cause: v1alpha1.HoldCauseRestored, At: &now, Message: mark.String()}
	known := func(c v1alpha1.UnitHoldCause) bool { return c.Cause == cause.Cause && c.Message == cause.Message }

	switch state := isa88.State(status.State); {
	case status.State == "", !isa88.Active(state), state == isa88.Completing, state == isa88.Stopping, state == isa88.Aborting, state == isa88.Resetting:
		return "", false
	case state == isa88.Holding, state == isa88.Held:
		if status.Hold == nil {
			status.Hold = &v1alpha1.UnitHold{Cause: cause.Cause, Since: &now}
		}
		if slices.ContainsFunc(status.Hold.Causes, known) {
			return "", false
		}
		if len(status.Hold.Causes) >= maxCauses {
			// The first one is what began the hold.
			status.Hold.Causes = slices.Delete(status.Hold.Causes, 1, len(status.Hold.Causes)-maxCauses+2)
		}
		status.Hold.Causes = append(status.Hold.Causes, cause)
		status.Hold.Episode = newID()
		message = fmt.Sprintf("%s: the Unit stays held, and its hold values are written anew", mark)
	default:
		status.Hold = &v1alpha1.UnitHold{
			Cause: cause.Cause, Since: &now, PreviousState: status.State, Episode: newID(), Causes: []v1alpha1.UnitHoldCause{cause},
		}
		status.State, status.LastTransitionTime = v1alpha1.UnitHolding, &now
		message = fmt.Sprintf("%s: the Unit was %s in it, and is held; look at the equipment before RESTART", mark, status.Hold.PreviousState)
	}
	status.Overridden = nil
	return message, true
}

// voidCommand ends a command that waited to be carried out when the snapshot was taken. One that was sent since the restore stays.
func voidCommand(unit *v1alpha1.Unit, mark Mark) bool {
	command := unit.Status.LastCommand
	if command == nil || command.Outcome != v1alpha1.CommandAccepted || mark.since(unit, command.Time) {
		return false
	}
	command.Outcome = v1alpha1.CommandSuperseded
	command.Message = mark.String() + ", in which this command was not carried out yet: send it again if it is still meant"
	return true
}

// closeWrites ends writes that were recorded, and of which nobody knows any more what came.
func closeWrites(unit *v1alpha1.Unit, mark Mark) (changed bool) {
	for i := range unit.Status.Writes {
		write := &unit.Status.Writes[i]
		if write.Outcome != v1alpha1.WritePending {
			continue
		}
		var at *metav1.Time
		if write.Time != nil {
			at = &metav1.Time{Time: write.Time.Time}
		}
		if mark.since(unit, at) {
			continue
		}
		write.Outcome, write.Message, changed = v1alpha1.WriteUncertain, mark.String(), true
	}
	return changed
}
