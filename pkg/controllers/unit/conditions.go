package unit

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// The conditions of a Unit; docs/units.md explains them.
const (
	// ConditionEquipmentHealthy tells whether every required module is Online. It tells of overridden modules too.
	ConditionEquipmentHealthy = "EquipmentHealthy"
	// ConditionRuntimeReady tells whether the runtime is in contact and has loaded its configuration.
	ConditionRuntimeReady = "RuntimeReady"
	// ConditionRuntimeDevicesConnected tells whether the runtime reaches the devices that are Online by their probes.
	ConditionRuntimeDevicesConnected = "RuntimeDevicesConnected"
	// ConditionHoldValuesWritten tells whether the devices have taken the hold values; it stands where they are written.
	ConditionHoldValuesWritten = "HoldValuesWritten"
	// ConditionTransientStateTimeout stands only while True: a transient state lasts longer than spec.holdTimeout.
	ConditionTransientStateTimeout = "TransientStateTimeout"
	// ConditionRestored stands on a Unit from when the store was restored until the Unit runs again (A-02; package restored sets it).
	ConditionRestored = "Restored"
)

// The reasons in conditions of a Unit; docs/units.md explains them.
const (
	ReasonModulesOnline = "ModulesOnline"
	ReasonNoModules     = "NoModules"
	ReasonModuleFault   = "ModuleFault"
	ReasonModuleOffline = "ModuleOffline"
	ReasonModuleMissing = "ModuleMissing"
	ReasonModuleUnknown = "ModuleUnknown"

	ReasonRuntimeInContact     = "RuntimeInContact"
	ReasonRuntimeUnreachable   = "RuntimeUnreachable"
	ReasonRuntimeConfigPending = "RuntimeConfigPending"
	ReasonRuntimeConfigRefused = "RuntimeConfigRefused"

	ReasonDevicesConnected = "DevicesConnected"
	ReasonDevicesLost      = "DevicesLost"

	ReasonHoldValuesTaken       = "HoldValuesTaken"
	ReasonHoldValuesPending     = "HoldValuesPending"
	ReasonHoldValuesUnreachable = "HoldValuesUnreachable"
	ReasonHoldValuesRefused     = "HoldValuesRefused"

	ReasonStateTooLong = "StateTooLong"
)

// The reasons of Events on a Unit that are not reasons of conditions; docs/units.md explains them.
const (
	ReasonHeldByFault         = "HeldByFault"
	ReasonHeldByMissingModule = "HeldByMissingModule"
	ReasonHeldByUnknown       = "HeldByUnknown"
	ReasonHeldByOperator      = "HeldByOperator"
	ReasonHeldByRuntime       = "HeldByRuntime"
	ReasonHoldCauseAdded      = "HoldCauseAdded"
	ReasonEquipmentRecovered  = "EquipmentRecovered"
	ReasonStateChanged        = "StateChanged"
	ReasonCommandRefused      = "CommandRefused"
	ReasonCommandExpired      = "CommandExpired"
)

// reasonsOfHolds are the reasons of the Events that tell the begin of a hold.
func reasonsOfHolds() map[v1alpha1.HoldCause]string {
	return map[v1alpha1.HoldCause]string{
		v1alpha1.HoldCauseIOModuleFault:   ReasonHeldByFault,
		v1alpha1.HoldCauseIOModuleMissing: ReasonHeldByMissingModule,
		v1alpha1.HoldCauseIOModuleUnknown: ReasonHeldByUnknown,
		v1alpha1.HoldCauseOperator:        ReasonHeldByOperator,
		v1alpha1.HoldCauseRuntime:         ReasonHeldByRuntime,
	}
}

// set sets a condition and returns what it was before; nil if it is new, or the same as before.
func (d *draft) set(condition string, status metav1.ConditionStatus, reason, message string) (was *metav1.Condition, changed bool) {
	if before := meta.FindStatusCondition(d.status.Conditions, condition); before != nil {
		copied := *before
		was = &copied
	}
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: notice.Bounded(message),
		ObservedGeneration: d.unit.Generation, LastTransitionTime: d.now,
	})
	return was, was == nil || was.Status != status || was.Reason != reason
}

// describeEquipment is the condition EquipmentHealthy, and its alarms (P-16). It tells how the modules are, not what they do to
// the Unit.
func (d *draft) describeEquipment() {
	if d.missing {
		return // a live look will tell
	}
	status, reason, message := d.equipment()
	was, changed := d.set(ConditionEquipmentHealthy, status, reason, message)
	state := d.state()
	held := state == isa88.Holding || state == isa88.Held
	if !changed || d.moved || !isa88.Holdable(state) && state != isa88.Completing && !held {
		return
	}
	switch {
	case status == metav1.ConditionUnknown, status == metav1.ConditionFalse && !held:
		d.event(corev1.EventTypeWarning, reason, "%s; the Unit is %s", message, state)
	case status == metav1.ConditionTrue && was != nil && was.Status != metav1.ConditionTrue:
		d.event(corev1.EventTypeNormal, ReasonEquipmentRecovered, "%s; the Unit stays %s", message, state)
	}
}

func (d *draft) equipment() (metav1.ConditionStatus, string, string) {
	var texts [4][]string
	reasons := [...]string{ReasonModuleMissing, ReasonModuleFault, ReasonModuleOffline, ReasonModuleUnknown}
	for _, m := range d.modules {
		kind := -1
		switch {
		case !m.found:
			kind = 0
		case m.state == v1alpha1.ModuleFault:
			kind = 1
		case m.state == v1alpha1.ModuleOffline:
			kind = 2
		case m.state == v1alpha1.ModuleUnknown:
			kind = 3
		default:
			continue
		}
		text := m.describe()
		if d.overridden(m) {
			text += ", overridden"
		}
		texts[kind] = append(texts[kind], text)
	}
	var all []string
	reason := ""
	for kind, found := range texts {
		if len(found) > 0 && reason == "" {
			reason = reasons[kind]
		}
		all = append(all, found...)
	}
	switch {
	case reason == ReasonModuleUnknown:
		return metav1.ConditionUnknown, reason, some(all)
	case reason != "":
		return metav1.ConditionFalse, reason, some(all)
	case len(d.modules) == 0:
		return metav1.ConditionTrue, ReasonNoModules, "no ControlModule of the Unit has a tag"
	case len(d.modules) == 1:
		return metav1.ConditionTrue, ReasonModulesOnline, "the required module is Online"
	default:
		return metav1.ConditionTrue, ReasonModulesOnline, fmt.Sprintf("all %d required modules are Online", len(d.modules))
	}
}

// trouble is why the Unit's runtime is not ready; "" if it is.
func (r runtime) trouble(unit *v1alpha1.Unit) (reason, message string) {
	switch {
	case !r.inContact && r.pod == "":
		return ReasonRuntimeUnreachable, "the Unit has no runtime that answers"
	case !r.inContact:
		return ReasonRuntimeUnreachable, fmt.Sprintf("the runtime %s does not answer", r.pod)
	case !r.isOf(unit):
		return ReasonRuntimeConfigPending, fmt.Sprintf("the runtime %s has not loaded the Unit's configuration yet", r.pod)
	case r.report.Runtime.ConfigError != "":
		return ReasonRuntimeConfigRefused, fmt.Sprintf("the runtime %s refuses its configuration: %s", r.pod, r.report.Runtime.ConfigError)
	default:
		return "", ""
	}
}

// describeRuntime are the conditions RuntimeReady and RuntimeDevicesConnected. They alarm, and hold nothing: a device counts as
// lost when its probe says so.
func (d *draft) describeRuntime() {
	if d.runtime.awaited && meta.IsStatusConditionTrue(d.status.Conditions, ConditionRuntimeReady) {
		// What the former controllers heard stands until these have had the time to hear it.
		d.again(awaitLimit)
		return
	}
	reason, message := d.runtime.trouble(d.unit)
	if reason == "" {
		d.set(ConditionRuntimeReady, metav1.ConditionTrue, ReasonRuntimeInContact, fmt.Sprintf("the runtime %s answers", d.runtime.pod))
	} else if was, changed := d.set(ConditionRuntimeReady, metav1.ConditionFalse, reason, message); changed && was != nil && isa88.Active(d.state()) {
		d.event(corev1.EventTypeWarning, reason, "%s; the Unit is %s", notice.Bounded(message), d.state())
	}

	if !d.runtime.inContact || !d.runtime.isOf(d.unit) {
		d.set(ConditionRuntimeDevicesConnected, metav1.ConditionUnknown, ReasonRuntimeUnreachable, "the runtime does not tell")
		return
	}
	var lost []string
	for _, link := range d.runtime.report.Modules {
		// By halves: a runtime in the wrong hands may list more than there are.
		i, required := slices.BinarySearchFunc(d.modules, link.Name, func(m module, name string) int { return strings.Compare(m.name, name) })
		if !required || link.Connected || !link.Known || string(d.modules[i].uid) != link.UID || d.modules[i].state != v1alpha1.ModuleOnline {
			continue
		}
		text := link.Name
		if link.Reason != "" {
			text += " (" + link.Reason + ")"
		}
		lost = append(lost, text)
	}
	if len(lost) == 0 {
		d.set(ConditionRuntimeDevicesConnected, metav1.ConditionTrue, ReasonDevicesConnected, "the runtime reaches every device that is Online")
		return
	}
	message = fmt.Sprintf("Online, and not reached by the runtime: %s", some(lost))
	if _, changed := d.set(ConditionRuntimeDevicesConnected, metav1.ConditionFalse, ReasonDevicesLost, message); changed && isa88.Active(d.state()) {
		d.event(corev1.EventTypeWarning, ReasonDevicesLost, "%s; the Unit is %s", message, d.state())
	}
}

// writesHoldValues tells whether hold values are written, or were, in a state.
func writesHoldValues(state isa88.State) bool {
	switch state {
	case isa88.Holding, isa88.Held, isa88.Stopping, isa88.Stopped, isa88.Aborting, isa88.Aborted:
		return true
	default:
		return false
	}
}

// describeHoldValues is the condition HoldValuesWritten (P-16b).
func (d *draft) describeHoldValues() {
	state := d.state()
	if !writesHoldValues(state) {
		meta.RemoveStatusCondition(&d.status.Conditions, ConditionHoldValuesWritten)
		return
	}
	report, order := d.runtime.report, orderOf(d.unit, d.runtime)
	if d.moved || report.Order == nil || report.Order.UID != order.UID || report.Order.State != state || report.Order.Episode != order.Episode {
		// Nothing was heard of this state yet. What was heard of Holding is true of Held.
		if d.moved && isa88.Transient(state) || meta.FindStatusCondition(d.status.Conditions, ConditionHoldValuesWritten) == nil {
			d.set(ConditionHoldValuesWritten, metav1.ConditionUnknown, ReasonHoldValuesPending, "the runtime has not reported yet")
		}
		return
	}
	var unreachable, refused []string
	for _, write := range report.Outstanding {
		text := fmt.Sprintf("%s/%s of %s", write.ControlModule, write.Name, write.IOModule)
		switch {
		case write.Unreachable:
			unreachable = append(unreachable, text)
		case write.Reason != "":
			refused = append(refused, fmt.Sprintf("%s (%s)", text, write.Reason))
		}
	}
	var was *metav1.Condition
	var changed bool
	switch {
	case len(refused) > 0:
		was, changed = d.set(ConditionHoldValuesWritten, metav1.ConditionFalse, ReasonHoldValuesRefused, "not taken: "+some(append(refused, unreachable...)))
	case len(unreachable) > 0:
		was, changed = d.set(ConditionHoldValuesWritten, metav1.ConditionFalse, ReasonHoldValuesUnreachable, "they follow when the device is back: "+some(unreachable))
	case !report.Applied:
		d.set(ConditionHoldValuesWritten, metav1.ConditionUnknown, ReasonHoldValuesPending, "they are on their way")
		return
	default:
		d.set(ConditionHoldValuesWritten, metav1.ConditionTrue, ReasonHoldValuesTaken, "every device has taken its hold values")
		return
	}
	if c := meta.FindStatusCondition(d.status.Conditions, ConditionHoldValuesWritten); changed && (was == nil || was.Reason != c.Reason) {
		d.event(corev1.EventTypeWarning, c.Reason, "%s; the Unit is %s", c.Message, state)
	}
}

// watch is the watchdog of transient states: it alarms, and never acts by itself (P-16b).
func (d *draft) watch() {
	state := d.state()
	if d.moved || !isa88.Transient(state) {
		meta.RemoveStatusCondition(&d.status.Conditions, ConditionTransientStateTimeout)
	}
	if !isa88.Transient(state) {
		return
	}
	limit := defaultHoldTimeout
	if timeout := d.unit.Spec.HoldTimeout; timeout != nil && timeout.Duration > 0 {
		limit = timeout.Duration
	}
	if d.moved {
		d.again(limit)
		return
	}
	if meta.FindStatusCondition(d.status.Conditions, ConditionTransientStateTimeout) != nil || !d.elapsed(limit, d.inState, d.status.LastTransitionTime) {
		return
	}
	message := fmt.Sprintf("the Unit has been %s for longer than %s", state, limit)
	if reason, trouble := d.runtime.trouble(d.unit); reason != "" {
		message += ": " + trouble
	}
	d.set(ConditionTransientStateTimeout, metav1.ConditionTrue, ReasonStateTooLong, message)
	d.event(corev1.EventTypeWarning, ReasonStateTooLong, "%s", message)
}
