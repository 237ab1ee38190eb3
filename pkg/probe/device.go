package probe

import (
	"fmt"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
)

// Open makes the device of a module's spec, without connecting. What it returns is an *driver.Error.
type Open func(spec v1alpha1.IOModuleSpec) (driver.Device, error)

// Drivers opens devices of every protocol that this probe speaks (P-13).
func Drivers(m *modbus.Driver) Open {
	return func(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
		switch spec.Protocol {
		case v1alpha1.ProtocolModbus:
			return openModbus(m, spec)
		default:
			return nil, &driver.Error{Reason: driver.ReasonNotSupported, Err: fmt.Errorf("this probe has no driver for protocol %q", spec.Protocol)}
		}
	}
}

func openModbus(m *modbus.Driver, spec v1alpha1.IOModuleSpec) (driver.Device, error) {
	connection := spec.Modbus
	if connection == nil {
		return nil, configurationError("spec.modbus is missing, and protocol is modbus")
	}
	if id := *connection.UnitID; id < 0 || id > 255 {
		return nil, configurationError("spec.modbus.unitID is %d, and unit ids go from 0 to 255", id)
	}
	c := modbus.Config{
		Endpoint:       connection.Endpoint,
		UnitID:         uint8(*connection.UnitID),
		WordOrder:      modbus.WordOrder(connection.WordOrder),
		Addressing:     modbus.Addressing(connection.Addressing),
		CloseAfterPoll: connection.CloseAfterPoll,
		Timeout:        spec.Probe.Timeout.Duration,
	}
	for _, ch := range spec.Channels {
		if ch.Access == v1alpha1.AccessWrite {
			// The first channel is read to see whether the device answers, and this one cannot be read.
			continue
		}
		c.Channels = append(c.Channels, driver.Channel{
			Name:      ch.Name,
			Address:   ch.Address,
			DataType:  driver.DataType(ch.DataType),
			WordOrder: string(ch.WordOrder),
		})
	}
	return m.Open(c)
}
