package driver

// MaxChannels is how many channels of a device are listed at most; what is beyond is cut off, and told.
const MaxChannels = 10_000

// Access says whether a channel may be read, written or both, as the device or the module's specification has it.
type Access string

// The kinds of access.
const (
	AccessRead      Access = "Read"
	AccessWrite     Access = "Write"
	AccessReadWrite Access = "ReadWrite"
)

// Range is a range of values in engineering units.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// ChannelInfo is one channel that a device has, found on it or declared in the module's specification. Its Address is
// what Read takes, and stays valid when the device restarts.
type ChannelInfo struct {
	// Name is what people call it; for a found channel the path to it, such as "Plant/Mixer/Speed".
	Name    string `json:"name"`
	Address string `json:"address"`
	// DataType is "" where the device has a type that is none of ours; DeviceType is the device's own word for it.
	DataType   DataType `json:"dataType,omitempty"`
	DeviceType string   `json:"deviceType,omitempty"`
	// Count is the number of elements, 1 for a scalar and 0 where the device does not tell.
	Count  int    `json:"count,omitempty"`
	Access Access `json:"access,omitempty"`
	// Unit is the engineering unit as shown to people, Range the range of values that the device tells.
	Unit  string `json:"unit,omitempty"`
	Range *Range `json:"range,omitempty"`
	// Declared tells that the channel stands in the module's specification.
	Declared bool `json:"declared,omitempty"`
	// Problem is set when the device refuses this channel, and Message explains it.
	Problem Reason `json:"problem,omitempty"`
	Message string `json:"message,omitempty"`
}

// ChannelList is what a device has, in a fixed order.
type ChannelList struct {
	Items []ChannelInfo `json:"items"`
	// Truncated tells that the device has more.
	Truncated bool `json:"truncated,omitempty"`
}
