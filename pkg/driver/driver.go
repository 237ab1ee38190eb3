// Package driver says what every industrial protocol offers to those who supervise and read devices.
// It imports nothing of Kubernetes, and each protocol lives in a package below it with a typed Config of its own
// and an Open that returns a Device.
package driver

import (
	"context"
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

	// Read reads one channel and returns its raw value, before scaling: bool, an integer of the channel's width,
	// float32 or float64. An Error with Answered set concerns this channel only.
	Read(ctx context.Context, channel Channel) (any, error)

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
	// WordOrder overrides the device's order for this channel; only Modbus has one.
	WordOrder string
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
