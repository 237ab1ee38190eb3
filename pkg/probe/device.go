package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/pkg/driver/simulation"
)

// Open makes the device of a module's spec, without connecting. What it returns is an *driver.Error.
type Open func(spec v1alpha1.IOModuleSpec) (driver.Device, error)

// Drivers are those of every protocol that this probe speaks (P-13); a protocol whose driver is nil is told as NotSupported.
type Drivers struct {
	Modbus     *modbus.Driver
	OPCUA      *opcua.Driver
	EtherNetIP *ethernetip.Driver
	// Now is the time by which simulated devices go on, and Start when they began; nil and zero leave that to the driver.
	Now   func() time.Time
	Start time.Time
}

// Dialer opens connections to devices of a protocol.
type Dialer func(protocol v1alpha1.Protocol) func(ctx context.Context, network, address string) (net.Conn, error)

// NewDrivers are all of them. They read credentials from a directory, and serial begins the connection serial numbers of EtherNet/IP,
// which no two programs should share.
func NewDrivers(dial Dialer, connects *driver.ConnectLimit, credentialsDir string, serial uint32) Drivers {
	return Drivers{
		Modbus: modbus.New(dial(v1alpha1.ProtocolModbus), connects),
		OPCUA: opcua.New(dial(v1alpha1.ProtocolOPCUA), connects, opcua.Options{
			Credentials: CredentialFiles(credentialsDir).Read, ApplicationKey: ApplicationKey,
		}),
		EtherNetIP: ethernetip.New(dial(v1alpha1.ProtocolEtherNetIP), connects, serial),
		Now:        time.Now,
		Start:      time.Now(),
	}
}

// Open is an Open.
func (d Drivers) Open(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
	switch {
	case spec.Protocol == v1alpha1.ProtocolModbus && d.Modbus != nil:
		return d.openModbus(spec)
	case spec.Protocol == v1alpha1.ProtocolOPCUA && d.OPCUA != nil:
		return d.openOPCUA(spec)
	case spec.Protocol == v1alpha1.ProtocolEtherNetIP && d.EtherNetIP != nil:
		return d.openEtherNetIP(spec)
	case spec.Protocol == v1alpha1.ProtocolSimulation:
		return d.openSimulation(spec)
	default:
		return nil, &driver.Error{Reason: driver.ReasonNotSupported, Err: fmt.Errorf("this probe has no driver for protocol %q", spec.Protocol)}
	}
}

// Endpoints is how many connections the drivers have, or would have if the devices answered.
func (d Drivers) Endpoints() int {
	n := 0
	if d.Modbus != nil {
		n += d.Modbus.Endpoints()
	}
	if d.OPCUA != nil {
		n += d.OPCUA.Sessions()
	}
	if d.EtherNetIP != nil {
		n += d.EtherNetIP.Endpoints()
	}
	return n
}

func (d Drivers) openModbus(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
	connection := spec.Modbus
	if connection == nil {
		return nil, configurationError("spec.modbus is missing, and protocol is modbus")
	}
	if connection.UnitID == nil {
		return nil, configurationError("spec.modbus.unitID is missing")
	}
	if id := *connection.UnitID; id < 0 || id > 255 {
		return nil, configurationError("spec.modbus.unitID is %d, and unit ids go from 0 to 255", id)
	}
	return typed(d.Modbus.Open(modbus.Config{
		Endpoint:       connection.Endpoint,
		UnitID:         uint8(*connection.UnitID),
		WordOrder:      modbus.WordOrder(connection.WordOrder),
		Addressing:     modbus.Addressing(connection.Addressing),
		CloseAfterPoll: connection.CloseAfterPoll,
		Timeout:        spec.Probe.Timeout.Duration,
		Channels:       declaredChannels(spec),
		Verify:         true,
	}))
}

func (d Drivers) openOPCUA(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
	connection := spec.OPCUA
	if connection == nil {
		return nil, configurationError("spec.opcua is missing, and protocol is opcua")
	}
	return typed(d.OPCUA.Open(opcua.Config{
		Endpoint:              connection.Endpoint,
		SecurityPolicy:        opcua.SecurityPolicy(connection.SecurityPolicy),
		SecurityMode:          opcua.SecurityMode(connection.SecurityMode),
		Identity:              opcua.IdentityKind(connection.Identity),
		UserName:              connection.UserName,
		CredentialsKey:        connection.CredentialsKey,
		AllowInsecureAuth:     connection.AllowInsecureAuth,
		TrustedThumbprint:     connection.TrustedThumbprint,
		TrustedCertificateKey: connection.TrustedCertificateKey,
		Timeout:               spec.Probe.Timeout.Duration,
		Channels:              declaredChannels(spec),
	}))
}

func (d Drivers) openEtherNetIP(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
	connection := spec.Ethernetip
	if connection == nil {
		return nil, configurationError("spec.ethernetip is missing, and protocol is ethernetip")
	}
	return typed(d.EtherNetIP.Open(ethernetip.Config{
		Endpoint:     connection.Endpoint,
		Path:         connection.Path,
		IdentityOnly: connection.IdentityOnly,
		Timeout:      spec.Probe.Timeout.Duration,
		Channels:     readableFirst(declaredChannels(spec)),
	}))
}

func (d Drivers) openSimulation(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
	c := simulation.Config{Now: d.Now, Start: d.Start, Channels: declaredChannels(spec)}
	if spec.Simulation != nil && spec.Simulation.Seed != nil {
		c.Seed = *spec.Simulation.Seed
	}
	return typed(simulation.Open(c))
}

// typed keeps to the promise of Open, whatever a driver returns.
func typed(device driver.Device, err error) (driver.Device, error) {
	if err == nil {
		return device, nil
	}
	if _, ok := errors.AsType[*driver.Error](err); !ok {
		err = configurationError("%w", err)
	}
	return nil, err
}

func declaredChannels(spec v1alpha1.IOModuleSpec) []driver.Channel {
	var channels []driver.Channel
	for _, ch := range spec.Channels {
		c := driver.Channel{
			Name:      ch.Name,
			Address:   ch.Address,
			DataType:  driver.DataType(ch.DataType),
			Access:    driver.Access(ch.Access),
			WordOrder: string(ch.WordOrder),
		}
		if ch.Count != nil {
			c.Count = int(*ch.Count)
		}
		channels = append(channels, c)
	}
	return channels
}

// readableFirst puts a channel that may be read before all others: the first is read to see whether the device answers.
func readableFirst(channels []driver.Channel) []driver.Channel {
	for i, c := range channels {
		if c.Access != driver.AccessWrite {
			copy(channels[1:], channels[:i])
			channels[0] = c
			break
		}
	}
	return channels
}
