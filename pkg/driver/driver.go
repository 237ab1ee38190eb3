// Package driver says what every industrial protocol offers to those who supervise and read devices.
// It imports nothing of Kubernetes, and each protocol lives in a package below it with a typed Config of its own
// and an Open that returns a Device.
package driver

import (
	"context"
	"fmt"
	"math"
)

// Device is one device as an IOModule names it: for Modbus one unit id behind an endpoint (P-13).
//
// A Device connects lazily, by whatever call needs it first, and again after a loss; there is no Connect to forget.
// Every call obeys the context's deadline and, below it, the device's own request timeout. Every error is an *Error,
// except that a call whose context was cancelled may return the context's error.
type Device interface {
	// Check proves connectivity by one successful read: nil means that the device itself answered just now, be it
	// with a refusal. An open connection alone is never connectivity.
	Check(ctx context.Context) (Answer, error)

	// Identify reads what the device says of itself. ReasonNotSupported is an answer, not a fault.
	Identify(ctx context.Context) (Identity, error)

	// Read reads channels in as few requests as the protocol allows, and returns as many samples, in their order (P-15). The
	// error is of the link, and then there are no samples: what was read before the link failed is not told. A Sample's own Err
	// concerns its channel only. Samples prove that the device answered if one of them has a Good or Uncertain status or an Err
	// with Answered set; a channel that cannot be what it says is told without asking.
	Read(ctx context.Context, channels []Channel) ([]Sample, error)

	// Write writes one channel's raw value, of the channel's data type and before scaling. It is never sent twice; MaybeDone tells
	// whether one that failed may have been done all the same.
	Write(ctx context.Context, channel Channel, value any) error

	// Channels lists what the device has, found and declared, at most limit (0 is MaxChannels), bounded in time by ctx. It
	// may run beside the other calls, and does not keep them from their turn.
	Channels(ctx context.Context, limit int) (ChannelList, error)

	// Close gives up the device's share of its connection.
	Close() error
}

// Answer is what a successful Check learned beyond the fact that the device answers.
type Answer struct {
	// Reason is set when the device answers but an operator should know more, e.g. that it refused the read.
	Reason Reason
	// Message explains Reason and does not change from one check to the next while the cause stays.
	Message string
	// Health is the device's own NE 107 verdict; empty counts as Normal.
	Health Health
}

// Health is a NAMUR NE 107 status signal, or Normal.
type Health string

// The NE 107 signals with their OPC 10000-100 values 0 to 4, in that order.
const (
	HealthNormal              Health = "Normal"
	HealthFailure             Health = "Failure"
	HealthFunctionCheck       Health = "FunctionCheck"
	HealthOutOfSpecification  Health = "OutOfSpecification"
	HealthMaintenanceRequired Health = "MaintenanceRequired"
)

// Identity is the nameplate that a device reports of itself; members that it does not report are empty.
type Identity struct {
	Vendor   string `json:"vendor,omitempty"`
	Product  string `json:"product,omitempty"`
	Serial   string `json:"serial,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// Channel is one value of a device, addressed in the protocol's own notation.
type Channel struct {
	Name     string
	Address  string
	DataType DataType
	// Count is the number of consecutive elements; 0 counts as 1.
	Count int
	// Access is what the specification allows; empty where it says nothing.
	Access Access
	// WordOrder overrides the device's order for this channel; only Modbus has one.
	WordOrder string
}

// Array is the error of a Read or Write of a channel of several elements: single values are read and written.
func (c Channel) Array() *Error {
	return &Error{Reason: ReasonNotSupported, Err: fmt.Errorf("channel %q has %d elements, and single values are read and written: name one of them", c.Name, c.Count)}
}

// DataType is the type of a channel's raw value.
type DataType string

// The data types that channels may have.
const (
	Bool    DataType = "bool"
	Int16   DataType = "int16"
	Uint16  DataType = "uint16"
	Int32   DataType = "int32"
	Uint32  DataType = "uint32"
	Int64   DataType = "int64"
	Uint64  DataType = "uint64"
	Float32 DataType = "float32"
	Float64 DataType = "float64"
	String  DataType = "string"
)

// FromBits interprets the lowest bits of a raw value as t; false when t is no numeric type.
func FromBits(t DataType, bits uint64) (any, bool) {
	switch t {
	case Int16:
		return int16(bits), true
	case Uint16:
		return uint16(bits), true
	case Int32:
		return int32(bits), true
	case Uint32:
		return uint32(bits), true
	case Int64:
		return int64(bits), true
	case Uint64:
		return bits, true
	case Float32:
		return math.Float32frombits(uint32(bits)), true
	case Float64:
		return math.Float64frombits(bits), true
	default:
		return nil, false
	}
}

// ToBits is the inverse of FromBits: the bits of a value that t holds exactly, whatever numeric type the value has; false when t
// cannot hold it. A float64 loses digits as a float32, which is not an error unless it is out of range.
func ToBits(t DataType, value any) (uint64, bool) {
	var integer int64
	var natural uint64
	var real float64
	switch v := value.(type) {
	case int:
		integer = int64(v)
	case int8:
		integer = int64(v)
	case int16:
		integer = int64(v)
	case int32:
		integer = int64(v)
	case int64:
		integer = v
	case uint:
		natural = uint64(v)
	case uint8:
		natural = uint64(v)
	case uint16:
		natural = uint64(v)
	case uint32:
		natural = uint64(v)
	case uint64:
		natural = v
	case float32:
		real = float64(v)
		if t == Float32 {
			return uint64(math.Float32bits(v)), true
		}
	case float64:
		real = v
	default:
		return 0, false
	}

	// One of the three is the value; the other two are zero.
	switch t {
	case Float32, Float64:
		if real == 0 && !math.Signbit(real) {
			real = float64(integer) + float64(natural)
			if integer != 0 && (real >= 1<<63 || int64(real) != integer) || natural != 0 && (real >= 1<<64 || uint64(real) != natural) {
				return 0, false
			}
		}
		if t == Float64 {
			return math.Float64bits(real), true
		}
		narrow := float32(real)
		if math.IsInf(float64(narrow), 0) && !math.IsInf(real, 0) {
			return 0, false
		}
		return uint64(math.Float32bits(narrow)), true
	}
	if real != 0 {
		if real != math.Trunc(real) || real < -(1<<63) || real >= 1<<64 {
			return 0, false
		}
		if real < 0 {
			integer = int64(real)
		} else {
			natural = uint64(real)
		}
	}
	if integer > 0 {
		natural, integer = uint64(integer), 0
	}
	limits := map[DataType]struct {
		low  int64
		high uint64
	}{
		Int16: {math.MinInt16, math.MaxInt16}, Uint16: {0, math.MaxUint16},
		Int32: {math.MinInt32, math.MaxInt32}, Uint32: {0, math.MaxUint32},
		Int64: {math.MinInt64, math.MaxInt64}, Uint64: {0, math.MaxUint64},
	}
	limit, ok := limits[t]
	if !ok || integer < limit.low || natural > limit.high {
		return 0, false
	}
	return natural | uint64(integer), true
}
