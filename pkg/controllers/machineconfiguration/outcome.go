package machineconfiguration

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Conditions that always stand on a machine once it was looked at.
const (
	// ConditionRendered tells whether the configuration could be made.
	ConditionRendered = "Rendered"
	// ConditionConfigured tells whether the machine took its configuration; its reason is that of the problem, if any.
	ConditionConfigured = "Configured"
)

// Conditions that stand on a machine, True, as long as the problem does (T-11, T-15, T-16, T-18).
const (
	ConditionRenderFailed            = "RenderFailed"
	ConditionBundleNotFound          = "BundleNotFound"
	ConditionBundleInvalid           = "BundleInvalid"
	ConditionBundleNotForThisCluster = "BundleNotForThisCluster"
	ConditionFingerprintRequired     = "FingerprintRequired"
	ConditionFingerprintMismatch     = "FingerprintMismatch"
	ConditionIdentityMismatch        = "IdentityMismatch"
	ConditionSharedNotAccepted       = "SharedHardwareNotAccepted"
	ConditionInstallDiskNotFound     = "InstallDiskNotFound"
	ConditionInstallDiskChanged      = "InstallDiskChanged"
	ConditionUnreachable             = "Unreachable"
	ConditionConfigurationRefused    = "ConfigurationRefused"
	ConditionOutcomeUnknown          = "OutcomeUnknown"
)

// reason is what came of an attempt, and the reason of the condition Configured.
type reason string

const (
	reasonClusterNotFound         reason = "ClusterNotFound"
	reasonPaused                  reason = "Paused"
	reasonEndpointNotSet          reason = "EndpointNotSet"
	reasonBundleNotFound          reason = reason(bundle.NotFound)
	reasonBundleInvalid           reason = reason(bundle.Invalid)
	reasonBundleNotForThisCluster reason = reason(bundle.NotForThisCluster)
	reasonRenderFailed            reason = "RenderFailed"
	reasonFingerprintRequired     reason = "FingerprintRequired"
	reasonUnreachable             reason = "Unreachable"
	reasonNotTalos                reason = "NotTalos"
	reasonNodeError               reason = "NodeError"
	reasonNotInMaintenance        reason = "NotInMaintenance"
	reasonIdentityAbsent          reason = "IdentityAbsent"
	reasonIdentityMismatch        reason = "IdentityMismatch"
	reasonFingerprintMismatch     reason = "FingerprintMismatch"
	reasonInstallDiskNotFound     reason = "InstallDiskNotFound"
	reasonInstallDiskChanged      reason = "InstallDiskChanged"
	reasonSharedNotAccepted       reason = "SharedHardwareNotAccepted"
	reasonMachineBusy             reason = "MachineBusy"
	reasonRefused                 reason = "Refused"
	reasonOutcomeUnknown          reason = "OutcomeUnknown"
	reasonApplied                 reason = "Applied"
	reasonAppliedUnconfirmed      reason = "AppliedUnconfirmed"
)

// retry is when a machine is looked at again, beside whenever it or its cluster changes.
type retry int

const (
	// retryNever waits for a change.
	retryNever retry = iota
	// retryPoll looks again after pollInterval: somebody has to do something that no watch tells about.
	retryPoll
	// retryBackoff tries again soon, and ever less often.
	retryBackoff
)

// work says it to the queue.
func (r retry) work() work.Again {
	switch r {
	case retryPoll:
		return work.After(pollInterval)
	case retryBackoff:
		return work.Backoff()
	default:
		return work.Again{}
	}
}

// outcome is what a reason means for the machine's status and for the queue.
type outcome struct {
	// problem is the condition that stands while the reason does; "" when it is no problem.
	problem string
	// rendered and configured are the standing conditions; an empty rendered leaves that condition as it is.
	rendered, configured metav1.ConditionStatus
	// phase is the machine's; "" leaves it.
	phase v1alpha1.MachinePhase
	retry retry
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// outcomes is the whole state machine after approval: Approved while time heals, Failed while somebody has to act,
// Configuring from the intent to send until its end is known, Installing when the machine has its configuration.
func outcomes() map[reason]outcome {
	return map[reason]outcome{
		// Nothing is known of the rendering yet.
		reasonClusterNotFound: {"", "", no, v1alpha1.MachineApproved, retryNever},
		reasonPaused:          {"", "", no, "", retryNever},
		// Before the rendering.
		reasonSharedNotAccepted:       {ConditionSharedNotAccepted, "", no, v1alpha1.MachineFailed, retryPoll},
		reasonBundleNotFound:          {ConditionBundleNotFound, no, no, v1alpha1.MachineFailed, retryBackoff},
		reasonBundleInvalid:           {ConditionBundleInvalid, no, no, v1alpha1.MachineFailed, retryPoll},
		reasonBundleNotForThisCluster: {ConditionBundleNotForThisCluster, no, no, v1alpha1.MachineFailed, retryPoll},
		reasonRenderFailed:            {ConditionRenderFailed, no, no, v1alpha1.MachineFailed, retryPoll},
		// Rendered, nothing sent.
		reasonEndpointNotSet:      {ConditionUnreachable, yes, no, v1alpha1.MachineFailed, retryNever},
		reasonFingerprintRequired: {ConditionFingerprintRequired, yes, no, v1alpha1.MachineFailed, retryNever},
		reasonUnreachable:         {ConditionUnreachable, yes, no, v1alpha1.MachineApproved, retryBackoff},
		reasonNotTalos:            {ConditionUnreachable, yes, no, v1alpha1.MachineApproved, retryBackoff},
		reasonNodeError:           {ConditionUnreachable, yes, no, v1alpha1.MachineApproved, retryBackoff},
		reasonNotInMaintenance:    {ConditionUnreachable, yes, no, v1alpha1.MachineFailed, retryPoll},
		reasonIdentityAbsent:      {ConditionIdentityMismatch, yes, no, v1alpha1.MachineApproved, retryBackoff},
		reasonIdentityMismatch:    {ConditionIdentityMismatch, yes, no, v1alpha1.MachineFailed, retryPoll},
		reasonFingerprintMismatch: {ConditionFingerprintMismatch, yes, no, v1alpha1.MachineFailed, retryPoll},
		reasonInstallDiskNotFound: {ConditionInstallDiskNotFound, yes, no, v1alpha1.MachineFailed, retryPoll},
		reasonInstallDiskChanged:  {ConditionInstallDiskChanged, yes, no, v1alpha1.MachineFailed, retryPoll},
		// Sent, and not taken.
		reasonMachineBusy: {"", yes, no, v1alpha1.MachineApproved, retryBackoff},
		reasonRefused:     {ConditionConfigurationRefused, yes, no, v1alpha1.MachineFailed, retryNever},
		// Perhaps sent. The rendering may have been anything meanwhile.
		reasonOutcomeUnknown: {ConditionOutcomeUnknown, "", unknown, v1alpha1.MachineConfiguring, retryBackoff},
		// Sent and taken.
		reasonApplied:            {"", yes, yes, v1alpha1.MachineInstalling, retryNever},
		reasonAppliedUnconfirmed: {"", "", yes, v1alpha1.MachineInstalling, retryNever},
	}
}

// problems are the conditions that go when their problem does.
func problems() map[string]bool {
	out := make(map[string]bool)

	for _, o := range outcomes() {
		if o.problem != "" {
			out[o.problem] = true
		}
	}

	return out
}

// answered tells that a machine at the endpoint told what is in the way: more than that an earlier attempt has an unknown
// end.
func answered(r reason) bool {
	switch r {
	case reasonIdentityMismatch, reasonFingerprintMismatch, reasonInstallDiskNotFound, reasonInstallDiskChanged:
		return true
	}

	return false
}

// askReason is what it means when a machine cannot be asked who it is. Nothing was sent.
func askReason(class maintenance.Class) reason {
	switch class {
	case maintenance.ClassNotTalos:
		return reasonNotTalos
	case maintenance.ClassNotInMaintenance:
		return reasonNotInMaintenance
	case maintenance.ClassIdentityAbsent:
		return reasonIdentityAbsent
	case maintenance.ClassNodeError:
		return reasonNodeError
	default:
		return reasonUnreachable
	}
}

// applyReason is what it means when sending fails. Whatever does not say clearly that the machine did not take the
// configuration leaves open whether it did.
func applyReason(class maintenance.Class) reason {
	switch class {
	case maintenance.ClassRejected:
		return reasonRefused
	case maintenance.ClassBusy:
		return reasonMachineBusy
	case maintenance.ClassNotInMaintenance:
		return reasonNotInMaintenance
	default:
		return reasonOutcomeUnknown
	}
}
