package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ChannelListOptions are the query of iomodules/channels.
type ChannelListOptions struct {
	metav1.TypeMeta

	// How many channels the answer has at most (1 to 1000). Default 500.
	Limit int64
	// The continue of the page before, for the one after it.
	Continue string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IOModuleChannels is a page of the channels that an IOModule's device has, found
// on it or declared in the specification. It is read from the module's probe when
// it is asked for, at iomodules/channels, and not stored.
type IOModuleChannels struct {
	metav1.TypeMeta
	// Standard list metadata: continue asks for the page after this one, and
	// remainingItemCount is how many channels are on those that follow.
	metav1.ListMeta

	// When the device was looked through.
	DiscoveredAt *metav1.Time
	// Whether the device has more than the 10000 channels that are listed.
	Truncated bool
	// The channels of this page.
	Items []ModuleChannel
}

// ModuleChannel is one value that a device has.
type ModuleChannel struct {
	// What people call it; of a found channel the path to it.
	Name string
	// Its address in the protocol's own notation, as a tag of a ControlModule names it.
	Address string
	// Type of one element; absent where the device has a type that is none of these.
	DataType DataType
	// The device's own word for its type.
	DeviceType string
	// Number of elements; absent where the device does not tell.
	Count int32
	// Read, Write or ReadWrite.
	Access Access
	// Engineering unit as shown to people.
	Unit string
	// Range of values in engineering units, as the device tells it.
	Range *ValueRange
	// Whether the channel is declared in the specification.
	Declared bool
	// Why the device refuses this channel, in one word; absent when it does not.
	Problem string
	// Why, in a sentence.
	Message string
}

// ValueRange is a range of values in engineering units.
type ValueRange struct {
	// Lowest value.
	Low float64
	// Highest value.
	High float64
}
