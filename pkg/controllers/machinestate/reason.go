package machinestate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

// Conditions that always stand on a machine once it was looked at.
const (
	// ConditionReady tells whether the machine has all that it waits for, as it says itself; Unknown while it is not heard.
	ConditionReady = "Ready"
	// ConditionUpToDate tells whether the machine was sent what is rendered for it now.
	ConditionUpToDate = "UpToDate"
	// ConditionDrifted tells whether the machine runs something else than it was sent.
	ConditionDrifted = "Drifted"
	// ConditionRebootRequired tells whether a change waits for somebody to ask for a reboot.
	ConditionRebootRequired = "RebootRequired"
)

// Conditions that stand on a machine, True, as long as the problem does.
const (
	// ConditionIdentityMismatch: another machine of the cluster answers at the machine's address (T-18).
	ConditionIdentityMismatch = "IdentityMismatch"
	// ConditionBackInMaintenance: it was configured, and answers in maintenance mode. Discovery sets it too.
	ConditionBackInMaintenance = "BackInMaintenance"
)

// reason is the reason of a condition.
type reason string

// The reasons of Ready.
const (
	reasonReady              reason = "Ready"
	reasonNotReady           reason = "NotReady"
	reasonNotRunning         reason = "NotRunning"
	reasonAwaitingBootstrap  reason = "AwaitingBootstrap"
	reasonInstallTimedOut    reason = "InstallTimedOut"
	reasonUnreachable        reason = "Unreachable"
	reasonNotTalos           reason = "NotTalos"
	reasonNodeError          reason = "NodeError"
	reasonLeavingMaintenance reason = "LeavingMaintenance"
	reasonBackInMaintenance  reason = "BackInMaintenance"
	reasonAnotherMachine     reason = "AnotherMachine"
	reasonUntrusted          reason = "Untrusted"
	reasonDenied             reason = "Denied"
	reasonIdentityAbsent     reason = "IdentityAbsent"
	reasonIdentityMismatch   reason = "IdentityMismatch"
	reasonEndpointNotSet     reason = "EndpointNotSet"
	reasonPaused             reason = "Paused"
	reasonClusterNotFound    reason = "ClusterNotFound"
)

// The reasons of UpToDate.
const (
	reasonUpToDate         reason = "UpToDate"
	reasonRenderFailed     reason = "RenderFailed"
	reasonBundleRotated    reason = "BundleRotated"
	reasonNotAnswering     reason = "NotAnswering"
	reasonAnswersElsewhere reason = "AnswersElsewhere"
	reasonMachineBusy      reason = "MachineBusy"
	reasonNoControlPlane   reason = "NoControlPlane"
	reasonRefused          reason = "Refused"
	reasonRebootRequired   reason = "RebootRequired"
	reasonRebootFailed     reason = "RebootFailed"
	reasonWaitingForTurn   reason = "WaitingForTurn"
	reasonWaitingForHealth reason = "WaitingForHealth"
	reasonUpdating         reason = "Updating"
	reasonRebooting        reason = "Rebooting"
)

// The reasons of Drifted and of RebootRequired.
const (
	reasonAsSent      reason = "AsSent"
	reasonChanged     reason = "ChangedOnTheMachine"
	reasonUnreadable  reason = "Unreadable"
	reasonNotRequired reason = "NotRequired"
)

// retry is when a machine is looked at again, beside whenever it or its cluster changes.
type retry int

// The sooner one is less.
const (
	// retryBackoff looks again at once, and ever less often.
	retryBackoff retry = iota
	// retrySoon looks again after soon.
	retrySoon
	// retryLater looks again after later.
	retryLater
	// retryNever waits for a change.
	retryNever
)

// work says it to the queue.
func (r retry) work() work.Again {
	switch r {
	case retryBackoff:
		return work.Backoff()
	case retrySoon:
		return work.After(soon)
	case retryLater:
		return work.After(later)
	default:
		return work.Again{}
	}
}

// meaning is what a reason means for its condition, for people and for the queue.
type meaning struct {
	condition string
	status    metav1.ConditionStatus
	// event is the type of the Event that tells of it; "" when none does.
	event string
	retry retry
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown

	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// meanings is every verdict on a machine.
func meanings() map[reason]meaning {
	return map[reason]meaning{
		reasonReady:             {ConditionReady, yes, normal, retryLater},
		reasonNotReady:          {ConditionReady, no, warning, retryLater},
		reasonNotRunning:        {ConditionReady, no, "", retrySoon},
		reasonAwaitingBootstrap: {ConditionReady, no, "", retrySoon},
		reasonInstallTimedOut:   {ConditionReady, no, warning, retryLater},
		// Time may heal it.
		reasonUnreachable:        {ConditionReady, unknown, warning, retryBackoff},
		reasonNotTalos:           {ConditionReady, unknown, warning, retryBackoff},
		reasonNodeError:          {ConditionReady, unknown, "", retryBackoff},
		reasonIdentityAbsent:     {ConditionReady, unknown, "", retryBackoff},
		reasonLeavingMaintenance: {ConditionReady, unknown, "", retrySoon},
		// Somebody has to act.
		reasonBackInMaintenance:          {ConditionReady, no, warning, retryLater},
		reasonAnotherMachine:             {ConditionReady, unknown, warning, retryLater},
		reasonUntrusted:                  {ConditionReady, unknown, warning, retryLater},
		reasonDenied:                     {ConditionReady, unknown, warning, retryLater},
		reasonIdentityMismatch:           {ConditionReady, unknown, warning, retryLater},
		reason(bundle.NotFound):          {ConditionReady, unknown, warning, retrySoon},
		reason(bundle.Invalid):           {ConditionReady, unknown, warning, retryLater},
		reason(bundle.NotForThisCluster): {ConditionReady, unknown, warning, retryLater},
		reasonEndpointNotSet:             {ConditionReady, unknown, warning, retryNever},
		reasonPaused:                     {ConditionReady, unknown, "", retryNever},
		reasonClusterNotFound:            {ConditionReady, unknown, warning, retryNever},

		reasonUpToDate: {ConditionUpToDate, yes, normal, retryLater},
		// Somebody has to act.
		reasonRenderFailed:     {ConditionUpToDate, no, warning, retryLater},
		reasonBundleRotated:    {ConditionUpToDate, no, warning, retryLater},
		reasonAnswersElsewhere: {ConditionUpToDate, no, warning, retryLater},
		reasonNoControlPlane:   {ConditionUpToDate, no, warning, retryLater},
		reasonRefused:          {ConditionUpToDate, no, warning, retryLater},
		reasonRebootRequired:   {ConditionUpToDate, no, normal, retryLater},
		reasonRebootFailed:     {ConditionUpToDate, no, warning, retryLater},
		// It waits.
		reasonNotAnswering:     {ConditionUpToDate, no, "", retryLater},
		reasonMachineBusy:      {ConditionUpToDate, no, "", retrySoon},
		reasonWaitingForTurn:   {ConditionUpToDate, no, "", retrySoon},
		reasonWaitingForHealth: {ConditionUpToDate, no, "", retrySoon},
		reasonUpdating:         {ConditionUpToDate, no, normal, retrySoon},
		reasonRebooting:        {ConditionUpToDate, no, normal, retrySoon},

		reasonAsSent:      {ConditionDrifted, no, "", retryLater},
		reasonChanged:     {ConditionDrifted, yes, warning, retryLater},
		reasonUnreadable:  {ConditionDrifted, unknown, "", retryLater},
		reasonNotRequired: {ConditionRebootRequired, no, "", retryLater},
	}
}

// unheard is what it means when a machine does not let itself be read.
func unheard(class machine.Class) reason {
	switch class {
	case machine.ClassUnreachable, machine.ClassOutcomeUnknown:
		return reasonUnreachable
	case machine.ClassNotTalos:
		return reasonNotTalos
	case machine.ClassInMaintenance:
		return reasonBackInMaintenance
	case machine.ClassUntrusted:
		return reasonUntrusted
	case machine.ClassDenied:
		return reasonDenied
	case machine.ClassIdentityAbsent:
		return reasonIdentityAbsent
	case machine.ClassInvalidAccess:
		return reason(bundle.Invalid)
	default:
		return reasonNodeError
	}
}

// answer is what it means when something that changes a machine fails.
type answer int

const (
	// answerRefused: it did not do it, and will not.
	answerRefused answer = iota
	// answerNot: it did not do it; later it may.
	answerNot
	// answerPerhaps: it may have done it.
	answerPerhaps
)

// answerOf tells what a failure says. Whatever does not say clearly that the machine did nothing leaves open whether it
// did.
func answerOf(class machine.Class) answer {
	switch class {
	case machine.ClassRejected:
		return answerRefused
	case machine.ClassBusy, machine.ClassDenied, machine.ClassInvalidAccess:
		return answerNot
	default:
		return answerPerhaps
	}
}
