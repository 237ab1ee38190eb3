package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UnitTags are the values of a Unit's tags, read from its runtime when they are
// asked for, at units/tags, and not stored. On the watch path each event carries
// the tags that changed. A PUT writes what writes lists.
type UnitTags struct {
	metav1.TypeMeta `json:",inline"`
	// Object metadata; the name is that of the Unit.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The values, sorted by ControlModule and name; on a watch those that changed.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Items []TagValue `json:"items,omitempty" protobuf:"bytes,2,rep,name=items"`
	// What to write; at most 32. Never part of an answer.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=32
	Writes []TagWrite `json:"writes,omitempty" protobuf:"bytes,3,rep,name=writes"`
	// Tags that are no more; on a watch alone.
	// +optional
	// +listType=atomic
	// +k8s:optional
	Removed []TagReference `json:"removed,omitempty" protobuf:"bytes,4,rep,name=removed"`
	// Why the values are written, at most 1024 characters; recorded with each of them.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1024
	Reason string `json:"reason,omitempty" protobuf:"bytes,5,opt,name=reason"`
}

// TagQuality is how far a value may be trusted, by OPC UA's severity.
// +enum
// +k8s:enum
type TagQuality string

const (
	// QualityGood: the value is what the device says, and young enough.
	QualityGood TagQuality = "Good"
	// QualityUncertain: the value is older than three periods, or the device doubts it.
	QualityUncertain TagQuality = "Uncertain"
	// QualityBad: the value is of no use now.
	QualityBad TagQuality = "Bad"
)

// TagReference names a tag of a Unit.
type TagReference struct {
	// ControlModule that has the tag.
	ControlModule string `json:"controlModule" protobuf:"bytes,1,opt,name=controlModule"`
	// Name of the tag.
	Name string `json:"name" protobuf:"bytes,2,opt,name=name"`
}

// TagValue is the value of a tag (P-15).
type TagValue struct {
	// ControlModule that has the tag.
	ControlModule string `json:"controlModule" protobuf:"bytes,1,opt,name=controlModule"`
	// Name of the tag.
	Name string `json:"name" protobuf:"bytes,2,opt,name=name"`
	// Last value in engineering units, as text ("25.5", "true"); absent before the first.
	// +optional
	// +k8s:optional
	Value *string `json:"value,omitempty" protobuf:"bytes,3,opt,name=value"`
	// Good, Uncertain or Bad.
	// +k8s:required
	Quality TagQuality `json:"quality" protobuf:"bytes,4,opt,name=quality,casttype=TagQuality"`
	// OPC UA's name of the status, such as Bad_NoCommunication; or its number in hexadecimal where it has none.
	// +optional
	// +k8s:optional
	Status string `json:"status,omitempty" protobuf:"bytes,5,opt,name=status"`
	// OPC UA's number of the status.
	StatusCode int64 `json:"statusCode" protobuf:"varint,6,opt,name=statusCode"`
	// Engineering unit.
	// +optional
	// +k8s:optional
	Unit string `json:"unit,omitempty" protobuf:"bytes,7,opt,name=unit"`
	// When the value was true: the device's own time where it tells one, else when it was read.
	// +optional
	// +k8s:optional
	SourceTime *metav1.MicroTime `json:"sourceTime,omitempty" protobuf:"bytes,8,opt,name=sourceTime"`
	// IOModule that the tag is read from.
	// +optional
	// +k8s:optional
	IOModule string `json:"ioModule,omitempty" protobuf:"bytes,9,opt,name=ioModule"`
	// Address in the module's protocol.
	// +optional
	// +k8s:optional
	Address string `json:"address,omitempty" protobuf:"bytes,10,opt,name=address"`
	// Read, Write or ReadWrite.
	// +optional
	// +k8s:optional
	Access Access `json:"access,omitempty" protobuf:"bytes,11,opt,name=access,casttype=Access"`
	// Why the quality is not Good, in a sentence.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,12,opt,name=message"`
}

// TagWrite is a value to write.
type TagWrite struct {
	// ControlModule that has the tag.
	ControlModule string `json:"controlModule" protobuf:"bytes,1,opt,name=controlModule"`
	// Name of the tag.
	Name string `json:"name" protobuf:"bytes,2,opt,name=name"`
	// Value in engineering units, as text ("25.5", "true"); empty is an empty string.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=1024
	Value string `json:"value" protobuf:"bytes,3,opt,name=value"`
}
