package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// ControlModule is the ISA-88 control module: a set of tags, each read from a
// channel of an IOModule, that belongs to a Unit.
type ControlModule struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Tags and the Unit they belong to.
	Spec ControlModuleSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// Whether the references resolve.
	Status ControlModuleStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControlModuleList is a list of ControlModules.
type ControlModuleList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The ControlModules.
	Items []ControlModule `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// ControlModuleSpec holds tags and the Unit they belong to.
type ControlModuleSpec struct {
	// Unit in the same namespace that this module belongs to.
	UnitRef UnitReference `json:"unitRef" protobuf:"bytes,1,opt,name=unitRef"`
	// Tags of the module; at most 1024.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=1024
	Tags []Tag `json:"tags,omitempty" protobuf:"bytes,2,rep,name=tags"`
}

// UnitReference names a Unit in the same namespace.
type UnitReference struct {
	// Name of the Unit.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// IOModuleReference names an IOModule in the same namespace.
type IOModuleReference struct {
	// Name of the IOModule.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// Tag is one process value, read from or written to a channel of an IOModule.
type Tag struct {
	// Name of the tag, unique in the ControlModule.
	// +k8s:required
	// +k8s:maxLength=253
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// IOModule that the tag is read from.
	IOModuleRef IOModuleReference `json:"ioModuleRef" protobuf:"bytes,2,opt,name=ioModuleRef"`
	// Address of the value in the module's protocol, as in the module's channels.
	// +k8s:required
	// +k8s:maxLength=1024
	Address string `json:"address" protobuf:"bytes,3,opt,name=address"`
	// Type of the raw value.
	// +optional
	// +k8s:optional
	DataType DataType `json:"dataType,omitempty" protobuf:"bytes,4,opt,name=dataType,casttype=DataType"`
	// Read (default), Write or ReadWrite.
	// +optional
	// +k8s:optional
	Access Access `json:"access,omitempty" protobuf:"bytes,5,opt,name=access,casttype=Access"`
	// Time between two reads, 100ms to 1h. Default 1s.
	// +optional
	// +k8s:optional
	Period *metav1.Duration `json:"period,omitempty" protobuf:"bytes,6,opt,name=period"`
	// From the raw value to engineering units.
	// +optional
	// +k8s:optional
	Scaling *Scaling `json:"scaling,omitempty" protobuf:"bytes,7,opt,name=scaling"`
	// Engineering unit as shown to people.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=32
	Unit string `json:"unit,omitempty" protobuf:"bytes,8,opt,name=unit"`
	// Value, in engineering units and written as text ("0", "false"), that is
	// sent to the device when the Unit goes to HOLD. Absent: nothing is sent.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	HoldValue *string `json:"holdValue,omitempty" protobuf:"bytes,9,opt,name=holdValue"`
}

// ControlModuleStatus says whether the references resolve.
type ControlModuleStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// Conditions: ReferencesResolved.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,2,rep,name=conditions"`
}
