package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
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
	// How long Holding may take before an alarm is raised, 1s to 1h. Default 30s.
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
	// Conditions: EquipmentHealthy, RuntimeReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,7,rep,name=conditions"`
}

// UnitHold says why a Unit is held.
type UnitHold struct {
	// Cause: IOModuleFault, Operator, Runtime, Unknown or Restored.
	// +optional
	// +k8s:optional
	Cause string `json:"cause,omitempty" protobuf:"bytes,1,opt,name=cause"`
	// IOModules at fault.
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
}

// UnitCommandRecord is a command and what became of it.
type UnitCommandRecord struct {
	// Id that the sender chose; a repeated id is the same command.
	// +optional
	// +k8s:optional
	ID string `json:"id,omitempty" protobuf:"bytes,1,opt,name=id"`
	// Command: START, HOLD, RESTART, PAUSE, RESUME, STOP, ABORT or RESET.
	// +optional
	// +k8s:optional
	Command string `json:"command,omitempty" protobuf:"bytes,2,opt,name=command"`
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
	// What became of it.
	// +optional
	// +k8s:optional
	Outcome string `json:"outcome,omitempty" protobuf:"bytes,6,opt,name=outcome"`
}
