package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +genclient:method=Command,verb=create,subresource=command,input=github.com/fieldplane/fieldplane/apis/physical/v1alpha1.UnitCommand,result=github.com/fieldplane/fieldplane/apis/physical/v1alpha1.UnitCommand
// +genclient:method=GetTags,verb=get,subresource=tags,result=github.com/fieldplane/fieldplane/apis/physical/v1alpha1.UnitTags
// +genclient:method=WriteTags,verb=update,subresource=tags,input=github.com/fieldplane/fieldplane/apis/physical/v1alpha1.UnitTags,result=github.com/fieldplane/fieldplane/apis/physical/v1alpha1.UnitTags
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// Unit is the ISA-88 unit: equipment that runs a batch, held when an IOModule
// that its ControlModules use goes to Fault.
type Unit struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Where the Unit's runtime runs and what holds it.
	Spec UnitSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	// ISA-88 state. Written by the server's own controllers alone.
	Status UnitStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UnitList is a list of Units.
type UnitList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The Units.
	Items []Unit `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// UnitSpec says where the Unit's runtime runs and what holds it.
type UnitSpec struct {
	// Labels of the nodes on which the runtime pod may run.
	// +optional
	// +k8s:optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty" protobuf:"bytes,1,rep,name=nodeSelector"`
	// Module states that hold the Unit: Fault always, Offline by default, Unknown if wanted.
	// +optional
	// +listType=set
	// +k8s:optional
	// +k8s:listType=set
	// +k8s:maxItems=3
	HoldOn []ModuleState `json:"holdOn,omitempty" protobuf:"bytes,2,rep,name=holdOn,casttype=ModuleState"`
	// How long a required module may be Unknown (its probe lost) before the Unit
	// is held. Default 60s; 0 is never.
	// +optional
	// +k8s:optional
	UnknownHoldAfter *metav1.Duration `json:"unknownHoldAfter,omitempty" protobuf:"bytes,3,opt,name=unknownHoldAfter"`
	// How long Holding, or any other transient state, may take before an alarm is raised, 1s to 1h. Default 30s.
	// +optional
	// +k8s:optional
	HoldTimeout *metav1.Duration `json:"holdTimeout,omitempty" protobuf:"bytes,4,opt,name=holdTimeout"`
}

// UnitState is a state of the ISA-88 procedural state machine.
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// ISA-88 state.
	// +optional
	// +k8s:optional
	State UnitState `json:"state,omitempty" protobuf:"bytes,2,opt,name=state,casttype=UnitState"`
	// ISA-88 mode: Automatic or Manual.
	// +optional
	// +k8s:optional
	Mode UnitMode `json:"mode,omitempty" protobuf:"bytes,3,opt,name=mode,casttype=UnitMode"`
	// Why the Unit is held.
	// +optional
	// +k8s:optional
	Hold *UnitHold `json:"hold,omitempty" protobuf:"bytes,4,opt,name=hold"`
	// The last command and what became of it.
	// +optional
	// +k8s:optional
	LastCommand *UnitCommandRecord `json:"lastCommand,omitempty" protobuf:"bytes,5,opt,name=lastCommand"`
	// Pod that runs the Unit.
	// +optional
	// +k8s:optional
	RuntimePodName string `json:"runtimePodName,omitempty" protobuf:"bytes,6,opt,name=runtimePodName"`
	// Conditions: EquipmentHealthy, RuntimeReady, RuntimeDeployed, RuntimeDevicesConnected, HoldValuesWritten,
	// TransientStateTimeout, Restored.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,7,rep,name=conditions"`
	// When the state last changed.
	// +optional
	// +k8s:optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty" protobuf:"bytes,8,opt,name=lastTransitionTime"`
	// Commands before the last one, newest first; at most 15. An id among them is known.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=15
	RecentCommands []UnitCommandRecord `json:"recentCommands,omitempty" protobuf:"bytes,9,rep,name=recentCommands"`
	// Values that users wrote to the Unit's tags, newest first; at most 32.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=32
	Writes []TagWriteRecord `json:"writes,omitempty" protobuf:"bytes,10,rep,name=writes"`
	// Modules that the last START, RESTART or RESUME passed over by override. One of them does not hold the Unit until
	// its state changes; all are forgotten when the Unit is held, or Idle.
	// +optional
	// +listType=map
	// +listMapKey=module
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=module
	Overridden []OverriddenModule `json:"overridden,omitempty" protobuf:"bytes,11,rep,name=overridden"`
}

// OverriddenModule is an IOModule that an override passed over.
type OverriddenModule struct {
	// Name of the IOModule.
	// +k8s:required
	Module string `json:"module" protobuf:"bytes,1,opt,name=module"`
	// UID of the IOModule; absent if there was none.
	// +optional
	// +k8s:optional
	UID types.UID `json:"uid,omitempty" protobuf:"bytes,2,opt,name=uid,casttype=k8s.io/apimachinery/pkg/types.UID"`
	// State that it was in; absent if there was no such module.
	// +optional
	// +k8s:optional
	State ModuleState `json:"state,omitempty" protobuf:"bytes,3,opt,name=state,casttype=ModuleState"`
	// Since when it was in that state.
	// +optional
	// +k8s:optional
	Since *metav1.Time `json:"since,omitempty" protobuf:"bytes,4,opt,name=since"`
}

// HoldCause is what holds a Unit.
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	Cause HoldCause `json:"cause,omitempty" protobuf:"bytes,1,opt,name=cause,casttype=HoldCause"`
	// IOModules of all causes.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Modules []string `json:"modules,omitempty" protobuf:"bytes,2,rep,name=modules"`
	// When the hold began.
	// +optional
	// +k8s:optional
	Since *metav1.Time `json:"since,omitempty" protobuf:"bytes,3,opt,name=since"`
	// State that the Unit was in.
	// +optional
	// +k8s:optional
	PreviousState UnitState `json:"previousState,omitempty" protobuf:"bytes,4,opt,name=previousState,casttype=UnitState"`
	// Name of this hold and of no other, as its Events have it.
	// +optional
	// +k8s:optional
	Episode string `json:"episode,omitempty" protobuf:"bytes,5,opt,name=episode"`
	// Everything that holds or held the Unit in this hold, in the order in which it came; at most 64.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=64
	Causes []UnitHoldCause `json:"causes,omitempty" protobuf:"bytes,6,rep,name=causes"`
}

// UnitHoldCause is one cause of a hold.
type UnitHoldCause struct {
	// What it is.
	// +k8s:required
	Cause HoldCause `json:"cause" protobuf:"bytes,1,opt,name=cause,casttype=HoldCause"`
	// IOModule, where the cause is one.
	// +optional
	// +k8s:optional
	Module string `json:"module,omitempty" protobuf:"bytes,2,opt,name=module"`
	// When it was seen.
	// +optional
	// +k8s:optional
	At *metav1.Time `json:"at,omitempty" protobuf:"bytes,3,opt,name=at"`
	// Who sent HOLD, where somebody did.
	// +optional
	// +k8s:optional
	Actor string `json:"actor,omitempty" protobuf:"bytes,4,opt,name=actor"`
	// Why, in a sentence.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,5,opt,name=message"`
}

// UnitCommandName is a command of ISA-88, or a change of mode.
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	ID string `json:"id,omitempty" protobuf:"bytes,1,opt,name=id"`
	// Command: START, PAUSE, RESUME, HOLD, RESTART, STOP, ABORT, RESET, AUTOMATIC or MANUAL.
	// +optional
	// +k8s:optional
	Command UnitCommandName `json:"command,omitempty" protobuf:"bytes,2,opt,name=command,casttype=UnitCommandName"`
	// Authenticated user who sent it.
	// +optional
	// +k8s:optional
	Actor string `json:"actor,omitempty" protobuf:"bytes,3,opt,name=actor"`
	// Reason that the sender gave.
	// +optional
	// +k8s:optional
	Reason string `json:"reason,omitempty" protobuf:"bytes,4,opt,name=reason"`
	// When it was accepted.
	// +optional
	// +k8s:optional
	Time *metav1.Time `json:"time,omitempty" protobuf:"bytes,5,opt,name=time"`
	// What became of it: Accepted, Done, Refused, Superseded or Expired.
	// +optional
	// +k8s:optional
	Outcome CommandOutcome `json:"outcome,omitempty" protobuf:"bytes,6,opt,name=outcome,casttype=CommandOutcome"`
	// Why it was refused, or what it did.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,7,opt,name=message"`
	// Whether the sender, who has the verb override, asked to pass over modules that are not Online and not measured.
	// +optional
	// +k8s:optional
	Override bool `json:"override,omitempty" protobuf:"varint,8,opt,name=override"`
}

// WriteOutcome is what became of a write.
// +enum
// +k8s:enum
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
	ControlModule string `json:"controlModule" protobuf:"bytes,1,opt,name=controlModule"`
	// Name of the tag.
	Name string `json:"name" protobuf:"bytes,2,opt,name=name"`
	// Value in engineering units, as text.
	Value string `json:"value" protobuf:"bytes,3,opt,name=value"`
	// Authenticated user who wrote it.
	// +optional
	// +k8s:optional
	Actor string `json:"actor,omitempty" protobuf:"bytes,4,opt,name=actor"`
	// When it was recorded.
	// +optional
	// +k8s:optional
	Time *metav1.MicroTime `json:"time,omitempty" protobuf:"bytes,5,opt,name=time"`
	// What became of it: Pending, Done, Refused or Uncertain.
	// +optional
	// +k8s:optional
	Outcome WriteOutcome `json:"outcome,omitempty" protobuf:"bytes,6,opt,name=outcome,casttype=WriteOutcome"`
	// Why it was refused.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,7,opt,name=message"`
	// Reason that the user gave.
	// +optional
	// +k8s:optional
	Reason string `json:"reason,omitempty" protobuf:"bytes,8,opt,name=reason"`
}
