package iomodule

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	conditionReady           = "Ready"
	conditionControllerFound = "ControllerFound"
)

// verdict is everything that a status is made of.
type verdict struct {
	state    v1alpha1.ModuleState
	reason   string
	message  string
	health   v1alpha1.ModuleHealth
	identity *v1alpha1.DeviceIdentity
	// channels is how many the probe found on the device; nil if it did not look yet, or does not answer.
	channels *int32
	// otherDevice: what the former device said of itself is not true of this one.
	otherDevice        bool
	probePod           string
	observedGeneration int64
	// confirmed: the module is Online by what was heard since this controller began.
	confirmed bool
	// controllerFound is nil on the controller-less path, where such a condition is removed (P-06).
	controllerFound *metav1.Condition
}

// conclude turns evidence into a verdict; entry is what the probe says, if it says anything that counts.
func conclude(e evidence, entry *api.ModuleState) verdict {
	c := consequences[e]
	v := verdict{state: c.state, reason: c.reason, health: c.health}
	if !c.fromProbe {
		return v
	}
	v.reason = probeReason(entry, c.reason)
	v.message = probeMessage(entry)
	if c.health != "" {
		v.health = health(entry.Health, c.health)
	}
	if c.state == v1alpha1.ModuleFault {
		// A device that does not answer gives no valid output, whatever it said last.
		v.health = v1alpha1.HealthFailure
	}
	v.identity = probeIdentity(entry.Identity)
	v.channels = probeChannels(entry.Channels)
	return v
}

// nextStatus is the module's status after a verdict; the same as before if nothing of it is new.
func nextStatus(module *v1alpha1.IOModule, v verdict, now metav1.Time) v1alpha1.IOModuleStatus {
	status := *module.Status.DeepCopy()
	if status.State != v.state || status.LastTransitionTime == nil {
		status.LastTransitionTime = &now
	}
	status.State, status.Reason, status.Message, status.Health = v.state, v.reason, v.message, v.health
	status.ChannelCount = channelCount(module, v)
	status.ObservedGeneration = v.observedGeneration
	status.ProbePodName = v.probePod
	// What a device said of itself stays known while it is silent.
	if v.identity != nil || v.otherDevice {
		status.Identity = v.identity
	}

	ready := metav1.Condition{
		Type: conditionReady, Status: readiness(v.state), Reason: v.reason, Message: v.message,
		ObservedGeneration: v.observedGeneration, LastTransitionTime: now,
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	if v.controllerFound == nil {
		meta.RemoveStatusCondition(&status.Conditions, conditionControllerFound)
	} else {
		found := *v.controllerFound
		found.ObservedGeneration, found.LastTransitionTime = v.observedGeneration, now
		meta.SetStatusCondition(&status.Conditions, found)
	}
	return status
}

func readiness(state v1alpha1.ModuleState) metav1.ConditionStatus {
	switch state {
	case v1alpha1.ModuleOnline:
		return metav1.ConditionTrue
	case v1alpha1.ModuleFault, v1alpha1.ModuleOffline:
		return metav1.ConditionFalse
	default:
		return metav1.ConditionUnknown
	}
}

// channelCount is the number of channels: of a protocol that can be browsed those that the probe found, which stay known
// while nobody can look; of any other those that are declared. Before the first look a device that can be browsed and
// declares none has a number that is not known.
func channelCount(module *v1alpha1.IOModule, v verdict) *int32 {
	declared := ptr.To(int32(len(module.Spec.Channels)))
	if module.Spec.Protocol != v1alpha1.ProtocolOPCUA && module.Spec.Protocol != v1alpha1.ProtocolEtherNetIP {
		return declared
	}
	switch {
	case v.channels != nil:
		return v.channels
	case module.Status.ChannelCount != nil && module.Status.ObservedGeneration == v.observedGeneration && !v.otherDevice:
		return module.Status.ChannelCount
	case *declared > 0:
		return declared
	default:
		return nil
	}
}
