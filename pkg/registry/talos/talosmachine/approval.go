package talosmachine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/installdisk"
)

// conditionBackInMaintenance is True on a machine that was configured and answers in maintenance mode again.
const conditionBackInMaintenance = "BackInMaintenance"

// conditionApprovalLapsed is True on a machine whose approval came from a snapshot and was not acted on in it.
const conditionApprovalLapsed = "ApprovalLapsed"

const (
	// conditionReady is what a configured machine says of itself, and Unknown while it is not asked.
	conditionReady = "Ready"
	// reasonNotApproved is its reason on a machine that was configured, and whose approval was taken back.
	reasonNotApproved = "NotApproved"
	unwatchedMessage  = "the approval was taken back: the machine is not looked at any more, and goes on with what it has"
)

// conditionsOfAnInstallation speak of a Talos that is no longer there once a machine is installed anew.
func conditionsOfAnInstallation() []string {
	return []string{conditionBackInMaintenance, conditionReady, "UpToDate", "Drifted", "RebootRequired"}
}

// recordApproval keeps in status who approved the machine, when, and for what (T-13, T-18), and the phase that follows
// from it. Whoever changes what was approved is the one who approved it from then on. Whether the user may is admission's
// to decide.
func recordApproval(ctx context.Context, clock clock.PassiveClock, machine, stored *talos.TalosMachine) {
	was, is := talos.IsApproved(stored), talos.IsApproved(machine)
	switch {
	case is && (!was || len(talos.ChangedApproval(&stored.Spec, &machine.Spec)) > 0):
		machine.Status.Approval = approvalOf(ctx, clock, machine)
	case !is:
		machine.Status.Approval = nil
	}
	if was && !is {
		unwatch(clock, machine)
	}
	// Whoever decides anew has answered it.
	if is && !was || machine.Spec.Rejected != nil {
		meta.RemoveStatusCondition(&machine.Status.Conditions, conditionApprovalLapsed)
	}
	if is && !was && meta.IsStatusConditionTrue(machine.Status.Conditions, conditionBackInMaintenance) {
		renew(&machine.Status)
	}

	// Once configuration went out, the phase tells how that goes.
	if machine.Status.Configuration != nil && machine.Status.Configuration.AppliedAt != nil {
		return
	}
	switch {
	case is && !was:
		machine.Status.Phase = talos.MachineApproved
	case !is && machine.Spec.Rejected != nil:
		machine.Status.Phase = talos.MachineRejected
	case !is && (was || stored.Spec.Rejected != nil || machine.Status.Phase == ""):
		machine.Status.Phase = talos.MachinePending
	}
}

func approvalOf(ctx context.Context, clock clock.PassiveClock, machine *talos.TalosMachine) *talos.MachineApproval {
	approval := &talos.MachineApproval{
		Time:                  metav1.NewTime(clock.Now()),
		Identity:              *machine.Spec.Identity.DeepCopy(),
		Fingerprint:           machine.Spec.AcceptedFingerprint,
		UnverifiedFingerprint: machine.Spec.AcceptUnverifiedFingerprint,
		Role:                  machine.Spec.Role,
		InstallDisk:           installDisk(machine),
		SharedHardware:        machine.Spec.AcceptSharedHardware,
	}
	if user, ok := genericapirequest.UserFrom(ctx); ok {
		approval.User = user.GetName()
	}
	return approval
}

// renew forgets the configuration that a machine was sent before it came back in maintenance mode: the new approval stands
// for another.
func renew(status *talos.TalosMachineStatus) {
	status.Configuration, status.ConfigHash = nil, ""
	status.Update, status.Reboot = nil, nil
	for _, condition := range conditionsOfAnInstallation() {
		meta.RemoveStatusCondition(&status.Conditions, condition)
	}
}

// unwatch has the conditions of a configured machine say that nobody looks at it any more: what they said last would stay,
// whatever becomes of the machine.
func unwatch(clock clock.PassiveClock, machine *talos.TalosMachine) {
	conditions := &machine.Status.Conditions
	if meta.FindStatusCondition(*conditions, conditionReady) == nil {
		return
	}
	for _, condition := range []string{"UpToDate", "Drifted", "RebootRequired"} {
		meta.RemoveStatusCondition(conditions, condition)
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionUnknown, Reason: reasonNotApproved,
		LastTransitionTime: metav1.NewTime(clock.Now()),
		Message:            unwatchedMessage,
	})
}

// installDisk is the one disk, of those that the machine has reported, that its installation means; nil when there is none
// or more than one.
func installDisk(machine *talos.TalosMachine) *talos.MachineDisk {
	if machine.Status.Hardware == nil || machine.Spec.Install == nil {
		return nil
	}
	// The rule is written for the served version, whose types differ from these in nothing but their names.
	var install v1alpha1.MachineInstall
	if err := v1alpha1.Convert_talos_MachineInstall_To_v1alpha1_MachineInstall(machine.Spec.Install.DeepCopy(), &install, nil); err != nil {
		return nil
	}
	disks := make([]v1alpha1.MachineDisk, len(machine.Status.Hardware.Disks))
	for i := range disks {
		if err := v1alpha1.Convert_talos_MachineDisk_To_v1alpha1_MachineDisk(&machine.Status.Hardware.Disks[i], &disks[i], nil); err != nil {
			return nil
		}
	}
	choice := installdisk.Choose(&install, disks)
	if choice.Count != 1 {
		return nil
	}
	for i, chosen := range choice.Chosen {
		if chosen {
			return machine.Status.Hardware.Disks[i].DeepCopy()
		}
	}
	return nil
}
