package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:conversion-gen:explicit-from=net/url.Values
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ChannelListOptions are the query of iomodules/channels.
type ChannelListOptions struct {
	metav1.TypeMeta `json:",inline"`

	// How many channels the answer has at most (1 to 1000). Default 500.
	// +optional
	// +k8s:optional
	Limit int64 `json:"limit,omitempty" protobuf:"varint,1,opt,name=limit"`
	// The continue of the page before, for the one after it.
	// +optional
	// +k8s:optional
	Continue string `json:"continue,omitempty" protobuf:"bytes,2,opt,name=continue"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IOModuleChannels is a page of the channels that an IOModule's device has, found
// on it or declared in the specification. It is read from the module's probe when
// it is asked for, at iomodules/channels, and not stored.
type IOModuleChannels struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata: continue asks for the page after this one, and
	// remainingItemCount is how many channels are on those that follow.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// When the device was looked through.
	// +optional
	// +k8s:optional
	DiscoveredAt *metav1.Time `json:"discoveredAt,omitempty" protobuf:"bytes,2,opt,name=discoveredAt"`
	// Whether the device has more than the 10000 channels that are listed.
	// +optional
	// +k8s:optional
	Truncated bool `json:"truncated,omitempty" protobuf:"varint,3,opt,name=truncated"`
	// The channels of this page.
	Items []ModuleChannel `json:"items" protobuf:"bytes,4,rep,name=items"`
}

// ModuleChannel is one value that a device has.
type ModuleChannel struct {
	// What people call it; of a found channel the path to it.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// Its address in the protocol's own notation, as a tag of a ControlModule names it.
	Address string `json:"address" protobuf:"bytes,2,opt,name=address"`
	// Type of one element; absent where the device has a type that is none of these.
	// +optional
	// +k8s:optional
	DataType DataType `json:"dataType,omitempty" protobuf:"bytes,3,opt,name=dataType,casttype=DataType"`
	// The device's own word for its type.
	// +optional
	// +k8s:optional
	DeviceType string `json:"deviceType,omitempty" protobuf:"bytes,4,opt,name=deviceType"`
	// Number of elements; absent where the device does not tell.
	// +optional
	// +k8s:optional
	Count int32 `json:"count,omitempty" protobuf:"varint,5,opt,name=count"`
	// Read, Write or ReadWrite.
	// +optional
	// +k8s:optional
	Access Access `json:"access,omitempty" protobuf:"bytes,6,opt,name=access,casttype=Access"`
	// Engineering unit as shown to people.
	// +optional
	// +k8s:optional
	Unit string `json:"unit,omitempty" protobuf:"bytes,7,opt,name=unit"`
	// Range of values in engineering units, as the device tells it.
	// +optional
	// +k8s:optional
	Range *ValueRange `json:"range,omitempty" protobuf:"bytes,8,opt,name=range"`
	// Whether the channel is declared in the specification.
	// +optional
	// +k8s:optional
	Declared bool `json:"declared,omitempty" protobuf:"varint,9,opt,name=declared"`
	// Why the device refuses this channel, in one word; absent when it does not.
	// +optional
	// +k8s:optional
	Problem string `json:"problem,omitempty" protobuf:"bytes,10,opt,name=problem"`
	// Why, in a sentence.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,11,opt,name=message"`
}

// ValueRange is a range of values in engineering units.
type ValueRange struct {
	// Lowest value.
	Low float64 `json:"low" protobuf:"fixed64,1,opt,name=low"`
	// Highest value.
	High float64 `json:"high" protobuf:"fixed64,2,opt,name=high"`
}
