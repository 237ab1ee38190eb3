package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UnitCommand sends a command to a Unit. It is posted to units/command, and not
// stored: the Unit's status.lastCommand is what remains of it.
type UnitCommand struct {
	metav1.TypeMeta
	// Object metadata; a name, if given, is that of the Unit.
	metav1.ObjectMeta

	// The command.
	Spec UnitCommandSpec
	// What came of it.
	Status UnitCommandStatus
}

// UnitCommandSpec is a command.
type UnitCommandSpec struct {
	// Id that the sender chooses, at most 128 characters; one that is repeated is the same command, and does nothing
	// more. Absent: one is made.
	ID string
	// START, PAUSE, RESUME, HOLD, RESTART, STOP, ABORT or RESET; AUTOMATIC or MANUAL to change the mode.
	Command UnitCommandName
	// Why, at most 1024 characters. Override needs one.
	Reason string
	// START or RESTART although a required module is not Online or was not measured yet, or the runtime does not answer.
	// Needs the verb override on units/command, and a reason.
	Override bool
}

// UnitCommandStatus is what came of a command.
type UnitCommandStatus struct {
	// The command as it is recorded.
	Record *UnitCommandRecord
	// State of the Unit after it.
	State UnitState
}
