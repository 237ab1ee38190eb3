package api

import (
	"net/url"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// MaxDeviceRequest bounds the body of a POST, in bytes, and MaxDeviceChannels how many channels one may read: more make more requests.
const (
	MaxDeviceRequest  = 1 << 20
	MaxDeviceChannels = driver.MaxChannels
)

// MaxDeviceTime is the longest that a probe works on a POST; it answers in that time whatever the device does.
const MaxDeviceTime = 4 * time.Second

// CheckPath is where a POST has the device of a module, named by its uid, checked now; the answer is a CheckResponse, or an Error.
func CheckPath(uid string) string { return devicePath(uid, "check") }

// ReadPath is where a POST of a ReadRequest reads channels of a module, named by its uid, over the connection that the probe
// has with the device (P-13). The answer is a ReadResponse, or an Error.
func ReadPath(uid string) string { return devicePath(uid, "read") }

// WritePath is where a POST of a WriteRequest writes to a module, named by its uid. The answer is a WriteResponse; an Error
// says that nothing was written.
func WritePath(uid string) string { return devicePath(uid, "write") }

func devicePath(uid, verb string) string {
	return ModulesPath + "/" + url.PathEscape(uid) + "/" + verb
}

// Channel is a driver.Channel.
type Channel struct {
	Name      string          `json:"name,omitempty"`
	Address   string          `json:"address"`
	DataType  driver.DataType `json:"dataType,omitempty"`
	Count     int             `json:"count,omitempty"`
	Access    driver.Access   `json:"access,omitempty"`
	WordOrder string          `json:"wordOrder,omitempty"`
}

// DeviceError is a driver.Error.
type DeviceError struct {
	Reason driver.Reason `json:"reason"`
	// Answered tells that the device itself answered, so that the error concerns what was asked and not the link.
	Answered bool   `json:"answered,omitempty"`
	Message  string `json:"message,omitempty"`
}

// CheckRequest has a device checked.
type CheckRequest struct {
	// TimeoutMilliseconds is how long the answer is waited for; 0, and more than MaxDeviceTime, count as that.
	TimeoutMilliseconds int64 `json:"timeoutMilliseconds,omitempty"`
}

// CheckResponse is a driver.Answer, or an error of the link.
type CheckResponse struct {
	Reason  driver.Reason `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	Health  driver.Health `json:"health,omitempty"`
	Error   *DeviceError  `json:"error,omitempty"`
}

// ReadRequest asks for channels.
type ReadRequest struct {
	Channels []Channel `json:"channels"`
	// TimeoutMilliseconds is how long the answer is waited for; 0, and more than MaxDeviceTime, count as that.
	TimeoutMilliseconds int64 `json:"timeoutMilliseconds,omitempty"`
}

// ReadResponse carries one sample for each channel of the request, in its order, or an error of the link.
type ReadResponse struct {
	Samples []Sample     `json:"samples,omitempty"`
	Error   *DeviceError `json:"error,omitempty"`
}

// Sample is a driver.Sample.
type Sample struct {
	Value      *Value            `json:"value,omitempty"`
	Status     driver.StatusCode `json:"status"`
	SourceTime time.Time         `json:"sourceTime,omitzero"`
	Error      *DeviceError      `json:"error,omitempty"`
}

// WriteRequest asks for one value to be written. A client's writes to a module are done one at a time and in the order of their
// Sequence: one that comes after a later one, or a second time, is not done. So a client that gave up waiting for a write need only
// send the next, such as a hold value, to know that the former is not done after it.
type WriteRequest struct {
	// Client is unlike that of any other, and of any earlier start of the same one.
	Client string `json:"client"`
	// Sequence grows from one write of a client to a module to the next; the first is 1 or more.
	Sequence uint64  `json:"sequence"`
	Channel  Channel `json:"channel"`
	Value    Value   `json:"value"`
	// TimeoutMilliseconds is how long the answer is waited for; 0, and more than MaxDeviceTime, count as that.
	TimeoutMilliseconds int64 `json:"timeoutMilliseconds,omitempty"`
}

// WriteResponse has an Error unless the device took the value.
type WriteResponse struct {
	Error *DeviceError `json:"error,omitempty"`
}
