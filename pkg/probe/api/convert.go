package api

import (
	"errors"
	"fmt"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// ChannelOf is a driver's channel as it is told.
func ChannelOf(c driver.Channel) Channel {
	return Channel{Name: c.Name, Address: c.Address, DataType: c.DataType, Count: c.Count, Access: c.Access, WordOrder: c.WordOrder}
}

// Driver is the channel as drivers take it.
func (c Channel) Driver() driver.Channel {
	return driver.Channel{Name: c.Name, Address: c.Address, DataType: c.DataType, Count: c.Count, Access: c.Access, WordOrder: c.WordOrder}
}

// DeviceErrorOf is an error of a device as it is told; nil of nil. What is no *driver.Error concerns the link.
func DeviceErrorOf(err error) *DeviceError {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*driver.Error](err)
	switch {
	case !ok:
		return &DeviceError{Reason: driver.LinkReason(err), Message: err.Error()}
	case e.Err == nil:
		return &DeviceError{Reason: e.Reason, Answered: e.Answered}
	default:
		return &DeviceError{Reason: e.Reason, Answered: e.Answered, Message: e.Err.Error()}
	}
}

// Driver is the error as drivers return it; nil of nil.
func (e *DeviceError) Driver() *driver.Error {
	if e == nil {
		return nil
	}
	d := &driver.Error{Reason: e.Reason, Answered: e.Answered}
	if e.Message != "" {
		d.Err = errors.New(e.Message)
	}
	return d
}

// SampleOf is a driver's sample as it is told.
func SampleOf(s driver.Sample) Sample {
	sample := Sample{Status: s.Status, SourceTime: s.SourceTime}
	if s.Err != nil {
		sample.Error = DeviceErrorOf(s.Err)
	}
	if s.Value != nil {
		if value, ok := ValueOf(s.Value); ok {
			sample.Value = &value
		} else if sample.Error == nil {
			return SampleOf(driver.Refused(&driver.Error{Reason: driver.ReasonNotSupported, Answered: true,
				Err: fmt.Errorf("a value of the type %T cannot be told", s.Value)}))
		}
	}
	return sample
}

// Driver is the sample as drivers return it.
func (s Sample) Driver() (driver.Sample, error) {
	sample := driver.Sample{Status: s.Status, SourceTime: s.SourceTime, Err: s.Error.Driver()}
	if s.Value == nil {
		return sample, nil
	}
	value, err := s.Value.Raw()
	sample.Value = value
	return sample, err
}
