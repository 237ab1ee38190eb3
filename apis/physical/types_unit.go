package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// How long Holding, or any other transient state, may take before an alarm is raised, 1s to 1h. Default 30s.
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
	// Conditions: EquipmentHealthy, RuntimeReady, RuntimeDeployed, RuntimeDevicesConnected, HoldValuesWritten,
	// TransientStateTimeout, Restored.
	Conditions []metav1.Condition
	// When the state last changed.
	LastTransitionTime *metav1.Time
	// Commands before the last one, newest first; at most 15. An id among them is known.
	RecentCommands []UnitCommandRecord
	// Values that users wrote to the Unit's tags, newest first; at most 32.
	Writes []TagWriteRecord
	// Modules that the last START, RESTART or RESUME passed over by override. One of them does not hold the Unit until
	// its state changes; all are forgotten when the Unit is held, or Idle.
	Overridden []OverriddenModule
}

// OverriddenModule is an IOModule that an override passed over.
type OverriddenModule struct {
	// Name of the IOModule.
	Module string
	// UID of the IOModule; absent if there was none.
	UID types.UID
	// State that it was in; absent if there was no such module.
	State ModuleState
	// Since when it was in that state.
	Since *metav1.Time
}

// HoldCause is what holds a Unit.
type HoldCause string

const (
	// HoldCauseIOModuleFault: a required module is in a state that spec.holdOn names.
	HoldCauseIOModuleFault HoldCause = "IOModuleFault"
	// HoldCauseIOModuleMissing: a tag names a module that does not exist.
	HoldCauseIOModuleMissing HoldCause = "IOModuleMissing"
	// HoldCauseIOModuleUnknown: a required module was Unknown for longer than spec.unknownHoldAfter.
	HoldCauseIOModuleUnknown HoldCause = "IOModuleUnknown"
	// HoldCauseOperator: somebody sent HOLD.
	HoldCauseOperator HoldCause = "Operator"
	// HoldCauseRuntime: the runtime lost a device while it could not reach the server, and held by itself.
	HoldCauseRuntime HoldCause = "Runtime"
	// HoldCauseRestored: the store was restored from a snapshot.
	HoldCauseRestored HoldCause = "Restored"
)

// UnitHold says why a Unit is held. It stays until the Unit is Running or Idle again.
type UnitHold struct {
	// What began the hold.
	Cause HoldCause
	// IOModules of all causes.
	Modules []string
	// When the hold began.
	Since *metav1.Time
	// State that the Unit was in.
	PreviousState UnitState
	// Name of this hold and of no other, as its Events have it.
	Episode string
	// Everything that holds or held the Unit in this hold, in the order in which it came; at most 64.
	Causes []UnitHoldCause
}

// UnitHoldCause is one cause of a hold.
type UnitHoldCause struct {
	// What it is.
	Cause HoldCause
	// IOModule, where the cause is one.
	Module string
	// When it was seen.
	At *metav1.Time
	// Who sent HOLD, where somebody did.
	Actor string
	// Why, in a sentence.
	Message string
}

// UnitCommandName is a command of ISA-88, or a change of mode.
type UnitCommandName string

// The commands. Which are allowed in which state says the state table.
const (
	CommandStart     UnitCommandName = "START"
	CommandPause     UnitCommandName = "PAUSE"
	CommandResume    UnitCommandName = "RESUME"
	CommandHold      UnitCommandName = "HOLD"
	CommandRestart   UnitCommandName = "RESTART"
	CommandStop      UnitCommandName = "STOP"
	CommandAbort     UnitCommandName = "ABORT"
	CommandReset     UnitCommandName = "RESET"
	CommandAutomatic UnitCommandName = "AUTOMATIC"
	CommandManual    UnitCommandName = "MANUAL"
)

// CommandOutcome is what became of a command.
type CommandOutcome string

const (
	// CommandAccepted: it is stored, and the controller has yet to carry it out.
	CommandAccepted CommandOutcome = "Accepted"
	// CommandDone: the Unit's state changed by it.
	CommandDone CommandOutcome = "Done"
	// CommandRefused: the controller refused it; the message says why.
	CommandRefused CommandOutcome = "Refused"
	// CommandSuperseded: a command or a hold that goes before it came first.
	CommandSuperseded CommandOutcome = "Superseded"
	// CommandExpired: nobody carried it out within 10 s, and to do so later would surprise.
	CommandExpired CommandOutcome = "Expired"
)

// UnitCommandRecord is a command and what became of it.
type UnitCommandRecord struct {
	// Id that the sender chose; a repeated id is the same command.
	ID string
	// Command: START, PAUSE, RESUME, HOLD, RESTART, STOP, ABORT, RESET, AUTOMATIC or MANUAL.
	Command UnitCommandName
	// Authenticated user who sent it.
	Actor string
	// Reason that the sender gave.
	Reason string
	// When it was accepted.
	Time *metav1.Time
	// What became of it: Accepted, Done, Refused, Superseded or Expired.
	Outcome CommandOutcome
	// Why it was refused, or what it did.
	Message string
	// Whether the sender, who has the verb override, asked to pass over modules that are not Online and not measured.
	Override bool
}

// WriteOutcome is what became of a write.
type WriteOutcome string

const (
	// WritePending: it is recorded, and about to be sent.
	WritePending WriteOutcome = "Pending"
	// WriteDone: the device took it.
	WriteDone WriteOutcome = "Done"
	// WriteRefused: it was not sent, or the device refused it.
	WriteRefused WriteOutcome = "Refused"
	// WriteUncertain: no answer came, and nobody knows whether the device took it.
	WriteUncertain WriteOutcome = "Uncertain"
)

// TagWriteRecord is a value that a user wrote to a tag. It is recorded before it is sent.
type TagWriteRecord struct {
	// ControlModule that has the tag.
	ControlModule string
	// Name of the tag.
	Name string
	// Value in engineering units, as text.
	Value string
	// Authenticated user who wrote it.
	Actor string
	// When it was recorded.
	Time *metav1.MicroTime
	// What became of it: Pending, Done, Refused or Uncertain.
	Outcome WriteOutcome
	// Why it was refused.
	Message string
	// Reason that the user gave.
	Reason string
}
