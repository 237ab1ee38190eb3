package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Unit is the ISA-88 unit: equipment that runs a batch, held when an IOModule
// that its ControlModules use goes to Fault.
type Unit struct {
	metav1.TypeMeta
	// Standard object metadata.
	metav1.ObjectMeta

	// Where the Unit's runtime runs and what holds it.
	Spec UnitSpec
	// ISA-88 state. Written by the server's own controllers alone.
	Status UnitStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UnitList is a list of Units.
type UnitList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta

	// The Units.
	Items []Unit
}

// UnitSpec says where the Unit's runtime runs and what holds it.
type UnitSpec struct {
	// Labels of the nodes on which the runtime pod may run.
	NodeSelector map[string]string
	// Module states that hold the Unit: Fault always, Offline by default, Unknown if wanted.
	HoldOn []ModuleState
	// How long a required module may be Unknown (its probe lost) before the Unit
	// is held. Default 60s; 0 is never.
	UnknownHoldAfter *metav1.Duration
	// How long Holding may take before an alarm is raised, 1s to 1h. Default 30s.
	HoldTimeout *metav1.Duration
}

// UnitState is a state of the ISA-88 procedural state machine.
type UnitState string

// The states of ISA-88.
const (
	UnitIdle       UnitState = "Idle"
	UnitRunning    UnitState = "Running"
	UnitPausing    UnitState = "Pausing"
	UnitPaused     UnitState = "Paused"
	UnitHolding    UnitState = "Holding"
	UnitHeld       UnitState = "Held"
	UnitRestarting UnitState = "Restarting"
	UnitCompleting UnitState = "Completing"
	UnitComplete   UnitState = "Complete"
	UnitStopping   UnitState = "Stopping"
	UnitStopped    UnitState = "Stopped"
	UnitAborting   UnitState = "Aborting"
	UnitAborted    UnitState = "Aborted"
	UnitResetting  UnitState = "Resetting"
)

// UnitMode is an ISA-88 mode of equipment.
type UnitMode string

const (
	// UnitModeAutomatic follows the control logic.
	UnitModeAutomatic UnitMode = "Automatic"
	// UnitModeManual follows the operator.
	UnitModeManual UnitMode = "Manual"
)

// UnitStatus is where the Unit stands.
type UnitStatus struct {
	// Generation of the spec that this status speaks of.
	ObservedGeneration int64
	// ISA-88 state.
	State UnitState
	// ISA-88 mode: Automatic or Manual.
	Mode UnitMode
	// Why the Unit is held.
	Hold *UnitHold
	// The last command and what became of it.
	LastCommand *UnitCommandRecord
	// Pod that runs the Unit.
	RuntimePodName string
	// Conditions: EquipmentHealthy, RuntimeReady.
	Conditions []metav1.Condition
}

// UnitHold says why a Unit is held.
type UnitHold struct {
	// Cause: IOModuleFault, Operator, Runtime, Unknown or Restored.
	Cause string
	// IOModules at fault.
	Modules []string
	// When the hold began.
	Since *metav1.Time
	// State that the Unit was in.
	PreviousState UnitState
}

// UnitCommandRecord is a command and what became of it.
type UnitCommandRecord struct {
	// Id that the sender chose; a repeated id is the same command.
	ID string
	// Command: START, HOLD, RESTART, PAUSE, RESUME, STOP, ABORT or RESET.
	Command string
	// Authenticated user who sent it.
	Actor string
	// Reason that the sender gave.
	Reason string
	// When it was accepted.
	Time *metav1.Time
	// What became of it.
	Outcome string
}
