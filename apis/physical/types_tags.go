package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UnitTags are the values of a Unit's tags, read from its runtime when they are
// asked for, at units/tags, and not stored. On the watch path each event carries
// the tags that changed. A PUT writes what writes lists.
type UnitTags struct {
	metav1.TypeMeta
	// Object metadata; the name is that of the Unit.
	metav1.ObjectMeta

	// The values, sorted by ControlModule and name; on a watch those that changed.
	Items []TagValue
	// What to write; at most 32. Never part of an answer.
	Writes []TagWrite
	// Tags that are no more; on a watch alone.
	Removed []TagReference
	// Why the values are written, at most 1024 characters; recorded with each of them.
	Reason string
}

// TagQuality is how far a value may be trusted, by OPC UA's severity.
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
	ControlModule string
	// Name of the tag.
	Name string
}

// TagValue is the value of a tag (P-15).
type TagValue struct {
	// ControlModule that has the tag.
	ControlModule string
	// Name of the tag.
	Name string
	// Last value in engineering units, as text ("25.5", "true"); absent before the first.
	Value *string
	// Good, Uncertain or Bad.
	Quality TagQuality
	// OPC UA's name of the status, such as Bad_NoCommunication; or its number in hexadecimal where it has none.
	Status string
	// OPC UA's number of the status.
	StatusCode int64
	// Engineering unit.
	Unit string
	// When the value was true: the device's own time where it tells one, else when it was read.
	SourceTime *metav1.MicroTime
	// IOModule that the tag is read from.
	IOModule string
	// Address in the module's protocol.
	Address string
	// Read, Write or ReadWrite.
	Access Access
	// Why the quality is not Good, in a sentence.
	Message string
}

// TagWrite is a value to write.
type TagWrite struct {
	// ControlModule that has the tag.
	ControlModule string
	// Name of the tag.
	Name string
	// Value in engineering units, as text ("25.5", "true").
	Value string
}
