package bootstrap

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
)

// ConditionBootstrapped tells whether the cluster has an etcd, and what it waits for if not.
const ConditionBootstrapped = "Bootstrapped"

// reason is the reason of the condition Bootstrapped.
type reason string

const (
	// No control plane is approved.
	reasonNoControlPlane reason = "NoControlPlane"
	// The approved control planes have no configuration yet, or install it.
	reasonAwaitingControlPlane reason = "AwaitingControlPlane"
	reasonPaused               reason = "Paused"
	reasonBundleNotFound              = reason(bundle.NotFound)
	reasonBundleInvalid               = reason(bundle.Invalid)
	reasonBundleNotForThis            = reason(bundle.NotForThisCluster)
	// A control plane was configured with another bundle than today's.
	reasonBundleRotated reason = "BundleRotated"
	// A control plane that may have an etcd does not answer.
	reasonUnreachable reason = "ControlPlaneUnreachable"
	// At its address something in maintenance mode answers: it was wiped, or is another machine.
	reasonInMaintenance reason = "ControlPlaneInMaintenance"
	// At its address something answers that is not known to be of this cluster.
	reasonUntrusted reason = "ControlPlaneUntrusted"
	// At its address another machine of the cluster answers.
	reasonIdentityMismatch reason = "IdentityMismatch"
	// It answers, and cannot say whether it has an etcd.
	reasonEtcdUnknown reason = "EtcdUnknown"
	// The recorded control plane cannot be bootstrapped yet.
	reasonBusy reason = "ControlPlaneBusy"
	// It was told to, and its etcd starts.
	reasonBootstrapping reason = "Bootstrapping"
	// The connection was lost while it was told.
	reasonOutcomeUnknown reason = "OutcomeUnknown"
	// It refuses.
	reasonRefused reason = "Refused"
	// Etcd runs, since it was bootstrapped from here.
	reasonBootstrapped reason = "Bootstrapped"
	// Etcd ran already.
	reasonEtcdFound reason = "EtcdFound"
)

// outcome is what a reason means for the condition, for Events, and for when the cluster is looked at again.
type outcome struct {
	status metav1.ConditionStatus
	// event is the type of the Event when the reason is new; "" for what passes by itself.
	event string
	// again is when to look again, beside whenever something changes; 0 waits for a change.
	again time.Duration
}

func outcomes() map[reason]outcome {
	const (
		yes = metav1.ConditionTrue
		no  = metav1.ConditionFalse
	)

	return map[reason]outcome{
		// Nobody was asked.
		reasonNoControlPlane: {no, "", 0},
		reasonPaused:         {no, "", 0},
		// The condition BundleReady tells it.
		reasonBundleNotFound:   {no, "", 30 * time.Second},
		reasonBundleInvalid:    {no, "", 30 * time.Second},
		reasonBundleNotForThis: {no, "", 30 * time.Second},
		// Asked, and nothing sent.
		reasonAwaitingControlPlane: {no, "", 15 * time.Second},
		reasonBundleRotated:        {no, corev1.EventTypeWarning, 30 * time.Second},
		reasonUnreachable:          {no, corev1.EventTypeWarning, 15 * time.Second},
		reasonInMaintenance:        {no, corev1.EventTypeWarning, 30 * time.Second},
		reasonUntrusted:            {no, corev1.EventTypeWarning, 30 * time.Second},
		reasonIdentityMismatch:     {no, corev1.EventTypeWarning, 30 * time.Second},
		reasonEtcdUnknown:          {no, "", 15 * time.Second},
		// Sent. That it is about to be is told when the intent is recorded.
		reasonBusy:           {no, "", 10 * time.Second},
		reasonBootstrapping:  {no, "", 5 * time.Second},
		reasonOutcomeUnknown: {no, corev1.EventTypeWarning, 5 * time.Second},
		reasonRefused:        {no, corev1.EventTypeWarning, settling},
		// Done, for good.
		reasonBootstrapped: {yes, corev1.EventTypeNormal, 0},
		reasonEtcdFound:    {yes, corev1.EventTypeNormal, 0},
	}
}
