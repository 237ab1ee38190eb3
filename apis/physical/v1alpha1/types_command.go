package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UnitCommand sends a command to a Unit. It is posted to units/command, and not
// stored: the Unit's status.lastCommand is what remains of it.
type UnitCommand struct {
	metav1.TypeMeta `json:",inline"`
	// Object metadata; a name, if given, is that of the Unit.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The command.
	Spec UnitCommandSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// What came of it.
	Status UnitCommandStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// UnitCommandSpec is a command.
type UnitCommandSpec struct {
	// Id that the sender chooses, at most 128 characters; one that is repeated is the same command, and does nothing
	// more. Absent: one is made.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=128
	ID string `json:"id,omitempty" protobuf:"bytes,1,opt,name=id"`
	// START, PAUSE, RESUME, HOLD, RESTART, STOP, ABORT or RESET; AUTOMATIC or MANUAL to change the mode.
	// +k8s:required
	Command UnitCommandName `json:"command" protobuf:"bytes,2,opt,name=command,casttype=UnitCommandName"`
	// Why, at most 1024 characters. Override needs one.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1024
	Reason string `json:"reason,omitempty" protobuf:"bytes,3,opt,name=reason"`
	// START or RESTART although a required module is not Online or was not measured yet, or the runtime does not answer.
	// Needs the verb override on units/command, and a reason.
	// +optional
	// +k8s:optional
	Override bool `json:"override,omitempty" protobuf:"varint,4,opt,name=override"`
}

// UnitCommandStatus is what came of a command.
type UnitCommandStatus struct {
	// The command as it is recorded.
	// +optional
	// +k8s:optional
	Record *UnitCommandRecord `json:"record,omitempty" protobuf:"bytes,1,opt,name=record"`
	// State of the Unit after it.
	// +optional
	// +k8s:optional
	State UnitState `json:"state,omitempty" protobuf:"bytes,2,opt,name=state,casttype=UnitState"`
}
