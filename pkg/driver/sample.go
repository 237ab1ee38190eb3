package driver

import (
	"context"
	"fmt"
	"time"
)

// StatusCode is an OPC UA StatusCode (OPC 10000-4, 7.39): the two highest bits are the severity.
type StatusCode uint32

// The status codes that we give ourselves (docs/design.md has which situation gives which).
const (
	StatusGood                     StatusCode = 0
	StatusBadNoCommunication       StatusCode = 0x80310000
	StatusBadWaitingForInitialData StatusCode = 0x80320000
	StatusBadNotReadable           StatusCode = 0x803A0000
	StatusUncertainLastUsableValue StatusCode = 0x40900000
	StatusBadConfigurationError    StatusCode = 0x80890000
	StatusBadDeviceFailure         StatusCode = 0x808B0000
	StatusBadSensorFailure         StatusCode = 0x808C0000
)

// Good tells that the severity bits are 00.
func (s StatusCode) Good() bool { return s>>30 == 0 }

// Uncertain tells that the severity bits are 01.
func (s StatusCode) Uncertain() bool { return s>>30 == 1 }

// Bad tells that the severity bits are 10, or 11, which nobody should send.
func (s StatusCode) Bad() bool { return s>>31 == 1 }

// String is OPC UA's name with its severity, such as Bad_NoCommunication; or the number in hexadecimal.
func (s StatusCode) String() string {
	names := map[StatusCode]string{
		StatusGood:                     "Good",
		StatusBadNoCommunication:       "Bad_NoCommunication",
		StatusBadWaitingForInitialData: "Bad_WaitingForInitialData",
		StatusBadNotReadable:           "Bad_NotReadable",
		StatusUncertainLastUsableValue: "Uncertain_LastUsableValue",
		StatusBadConfigurationError:    "Bad_ConfigurationError",
		StatusBadDeviceFailure:         "Bad_DeviceFailure",
		StatusBadSensorFailure:         "Bad_SensorFailure",
	}
	if name, ok := names[s]; ok {
		return name
	}
	return fmt.Sprintf("0x%08X", uint32(s))
}

// Sample is what came of reading one channel.
type Sample struct {
	// Value is the raw value, before scaling: bool, an integer of the channel's width, float32, float64 or string; nil when the
	// device gave none, or none that the channel can hold.
	Value any
	// Status is the device's own where its protocol has one, else it follows from Err (StatusOf).
	Status StatusCode
	// SourceTime is the device's own time of the value where it tells one; else zero.
	SourceTime time.Time
	// Err is set when there is no value, or one that is Bad: the device refused this channel, which has Answered set, or the channel cannot
	// be what it says, and the device was not asked.
	Err *Error
}

// Refused is the sample of a channel that gave no value (P-15).
func Refused(err *Error) Sample { return Sample{Status: StatusOf(err), Err: err} }

// ReadOne reads a single channel and returns its value. A value that the device calls Bad is an error; one that is Uncertain is not.
func ReadOne(ctx context.Context, device Device, channel Channel) (any, error) {
	samples, err := device.Read(ctx, []Channel{channel})
	if err != nil {
		return nil, err
	}
	if samples[0].Err != nil {
		return nil, samples[0].Err
	}
	return samples[0].Value, nil
}
