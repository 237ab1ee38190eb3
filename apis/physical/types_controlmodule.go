package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControlModule is the ISA-88 control module: a set of tags, each read from a
// channel of an IOModule, that belongs to a Unit.
type ControlModule struct {
	metav1.TypeMeta
	// Standard object metadata.
	metav1.ObjectMeta

	// Tags and the Unit they belong to.
	Spec ControlModuleSpec
	// Whether the references resolve.
	Status ControlModuleStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControlModuleList is a list of ControlModules.
type ControlModuleList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta

	// The ControlModules.
	Items []ControlModule
}

// ControlModuleSpec holds tags and the Unit they belong to.
type ControlModuleSpec struct {
	// Unit in the same namespace that this module belongs to.
	UnitRef UnitReference
	// Tags of the module; at most 1024.
	Tags []Tag
}

// UnitReference names a Unit in the same namespace.
type UnitReference struct {
	// Name of the Unit.
	Name string
}

// IOModuleReference names an IOModule in the same namespace.
type IOModuleReference struct {
	// Name of the IOModule.
	Name string
}

// Tag is one process value, read from or written to a channel of an IOModule.
type Tag struct {
	// Name of the tag, unique in the ControlModule.
	Name string
	// IOModule that the tag is read from.
	IOModuleRef IOModuleReference
	// Address of the value in the module's protocol, as in the module's channels.
	Address string
	// Type of the raw value.
	DataType DataType
	// Read (default), Write or ReadWrite.
	Access Access
	// Time between two reads, 100ms to 1h. Default 1s.
	Period *metav1.Duration
	// From the raw value to engineering units.
	Scaling *Scaling
	// Engineering unit as shown to people.
	Unit string
	// Value, in engineering units and written as text ("0", "false"), that is
	// sent to the device when the Unit goes to HOLD. Absent: nothing is sent.
	HoldValue *string
}

// ControlModuleStatus says whether the references resolve.
type ControlModuleStatus struct {
	// Generation of the spec that this status speaks of.
	ObservedGeneration int64
	// Conditions: ReferencesResolved.
	Conditions []metav1.Condition
}
