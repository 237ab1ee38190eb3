package restored

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// ConditionApprovalLapsed is True on a machine whose approval is void, and has to be given again. Approving or rejecting the
// machine takes it away (registry).
const ConditionApprovalLapsed = "ApprovalLapsed"

// machines takes back what was decided about machines and not acted on, and counts those that it has changed.
func (p *Processor) machines(ctx context.Context, mark Mark) (int, error) {
	var names []types.NamespacedName
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := p.client.TalosV1alpha1().TalosMachines(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return 0, fmt.Errorf("talosmachines: %w", err)
		}
		for i := range list.Items {
			if machine := &list.Items[i]; unacted(machine, mark) || unactedReboot(machine) {
				names = append(names, types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name})
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	return each(ctx, names, func(ctx context.Context, name types.NamespacedName) (bool, error) { return p.machine(ctx, name, mark) })
}

// unacted tells whether a machine would be sent something now because of an approval in the snapshot: its first configuration,
// or a change that nobody needs to ask for again.
func unacted(m *v1alpha1.TalosMachine, mark Mark) bool {
	if !ptr.Deref(m.Spec.Approved, false) || m.Status.Approval != nil && mark.since(m, &m.Status.Approval.Time) {
		return false
	}
	if m.Status.Configuration == nil || m.Status.Configuration.AppliedAt == nil {
		return true
	}
	update := m.Status.Update
	return update != nil && update.IntendedAt == nil && !update.RebootRequired
}

// unactedReboot tells whether somebody asked for a reboot that has not begun.
func unactedReboot(m *v1alpha1.TalosMachine) bool {
	return m.Status.Reboot != nil && m.Status.Reboot.IntendedAt == nil && m.Status.Reboot.CompletedAt == nil
}

func (p *Processor) machine(ctx context.Context, name types.NamespacedName, mark Mark) (changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		did, err := p.takeBack(ctx, name, mark)
		changed = changed || did
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return changed, fmt.Errorf("TalosMachine %s: %w", name, err)
	}
	return changed, nil
}

// takeBack says first why, and then un-approves: whoever sees the machine un-approved also sees what to do.
func (p *Processor) takeBack(ctx context.Context, name types.NamespacedName, mark Mark) (bool, error) {
	machines := p.client.TalosV1alpha1().TalosMachines(name.Namespace)
	stored, err := machines.Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	lapsed, reboot := unacted(stored, mark), unactedReboot(stored)
	if !lapsed && !reboot {
		return false, nil
	}

	desired := stored.DeepCopy()
	var message string
	if reboot {
		desired.Status.Reboot = nil
		message = mark.String() + ": the reboot that " + stored.Status.Reboot.RequestedBy + " had asked for was not begun in it, and has to be asked for again"
	}
	if lapsed {
		message = lapse(stored, mark)
		meta.SetStatusCondition(&desired.Status.Conditions, metav1.Condition{
			Type: ConditionApprovalLapsed, Status: metav1.ConditionTrue, Reason: eventReason, Message: message,
			ObservedGeneration: stored.Generation, LastTransitionTime: metav1.NewTime(p.clock.Now()),
		})
	}
	if !equality.Semantic.DeepEqual(stored.Status, desired.Status) {
		if desired, err = machines.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return false, err
		}
	}
	if lapsed {
		desired.Spec.Approved = ptr.To(false)
		if desired, err = machines.UpdateApproval(ctx, desired.Name, desired, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return false, err
		}
	}
	p.tell("TalosMachine", desired, v1alpha1.SchemeGroupVersion.String(), message)
	return true, nil
}

// lapse says what was approved, by whom, and what to do.
func lapse(m *v1alpha1.TalosMachine, mark Mark) string {
	what := "its configuration was not sent in it yet"
	if m.Status.Configuration != nil && m.Status.Configuration.AppliedAt != nil {
		what = "a change of its configuration was not sent in it yet"
	}
	by := "the approval"
	if approval := m.Status.Approval; approval != nil && approval.User != "" {
		by = fmt.Sprintf("the approval of %s (%s)", approval.User, approval.Time.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s, and %s: %s is void, look at the machine and approve it again", mark, what, by)
}
