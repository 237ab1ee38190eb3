package plant

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua/opcuatest"
)

// device is a simulated field device.
type device interface {
	// inject heals the device and then makes the fault, if one is named.
	inject(fault string) error
	status() Status
	stop()
}

// slow is how late the answers of a slow device are: later than the probes wait, by default 1 s.
const slow = 3 * time.Second

// deviceFaults are the faults that every device has.
func deviceFaults() []string { return []string{"closed", "silent", "slow", "reset"} }

// fixture is what the simulated devices of all protocols have in common.
type fixture interface {
	Start() error
	Stop()
	Reset()
	Addr() string
	Requests() int
}

// faulty is a device's present fault, and how the faults that every device has are made.
type faulty struct {
	fixture

	blackhole func(on bool)
	delay     func(time.Duration)

	mu    sync.Mutex
	fault string
}

// inject heals the device, lets more make the faults of its protocol, and then makes the fault, if one is named.
func (f *faulty) inject(mode string, more ...string) error {
	if all := slices.Concat(deviceFaults(), more); mode != "" && !slices.Contains(all, mode) {
		return fmt.Errorf("no fault %q, only %s", mode, strings.Join(all, ", "))
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.blackhole(mode == "silent")
	f.delay(0)

	if mode == "slow" {
		f.delay(slow)
	}

	f.fault = mode

	switch mode {
	case "closed":
		f.Stop()

		return nil
	case "reset":
		f.Reset()
		f.fault = "" // it happens once
	}

	return f.Start()
}

func (f *faulty) statusOf(kind string) Status {
	f.mu.Lock()
	defer f.mu.Unlock()

	return Status{Kind: kind, Address: f.Addr(), State: "on", Fault: f.fault, Asked: f.Requests()}
}

func (f *faulty) stop() { f.Stop() }

// modbusDevice is a Modbus device.
type modbusDevice struct {
	faulty

	device *modbustest.Device
	units  []uint8
}

func startModbus(spec ModbusSpec) (*modbusDevice, error) {
	address, err := loopback(spec.Address, 502)
	if err != nil {
		return nil, err
	}

	d := &modbusDevice{device: modbustest.New(address)}
	d.faulty = faulty{
		fixture: d.device, blackhole: func(on bool) { d.device.Blackhole(on) }, delay: func(by time.Duration) { d.device.Delay(by) },
	}
	d.device.MaxClients(spec.MaxClients)

	for _, u := range spec.Units {
		unit := d.device.Unit(u.ID)
		d.units = append(d.units, u.ID)

		identity := make(map[byte]string)

		for id, text := range map[byte]string{0: u.Vendor, 1: u.Product, 2: u.Revision} {
			if text != "" {
				identity[id] = text
			}
		}

		if len(identity) > 0 {
			unit.SetIdentity(identity)
		}

		for _, r := range u.Registers {
			bits := make([]bool, len(r.Values))
			for i, v := range r.Values {
				bits[i] = v != 0
			}

			switch r.Table {
			case "holding":
				unit.SetHolding(r.Address, r.Values...)
			case "input":
				unit.SetInput(r.Address, r.Values...)
			case "coil":
				unit.SetCoil(r.Address, bits...)
			case "discrete":
				unit.SetDiscrete(r.Address, bits...)
			default:
				return nil, fmt.Errorf("unit %d: no table %q, only holding, input, coil and discrete", u.ID, r.Table)
			}
		}
	}

	return d, d.device.Start()
}

func (d *modbusDevice) status() Status { return d.statusOf("modbus") }

func (d *modbusDevice) inject(mode string) error {
	const (
		exception               = "exception"
		slaveDeviceFailure      = 0x04
		noException        byte = 0
	)

	if err := d.faulty.inject(mode, exception); err != nil {
		return err
	}

	for _, id := range d.units {
		failure := noException
		if mode == exception {
			failure = slaveDeviceFailure
		}

		d.device.Unit(id).Fail(failure)
	}

	return nil
}

// opcuaDevice is an OPC UA server.
type opcuaDevice struct {
	faulty

	server *opcuatest.Server
}

func startOPCUA(spec OPCUASpec) (*opcuaDevice, error) {
	address, err := loopback(spec.Address, 4840)
	if err != nil {
		return nil, err
	}

	o := opcuatest.Options{Address: address, Name: spec.Product, Users: spec.Users}
	for _, v := range spec.Variables {
		o.Variables = append(o.Variables, opcuatest.Variable{
			Path: v.Path, Value: v.Value, Unit: v.Unit, Low: v.Low, High: v.High, Writable: v.Writable,
		})
	}

	server, err := opcuatest.New(o)
	if err != nil {
		return nil, err
	}

	d := &opcuaDevice{server: server, faulty: faulty{fixture: server, blackhole: server.Blackhole, delay: server.Delay}}

	return d, server.Start()
}

func (d *opcuaDevice) inject(mode string) error { return d.faulty.inject(mode) }

func (d *opcuaDevice) status() Status {
	status := d.statusOf("opcua")
	status.Fingerprint = opcuatest.Thumbprint

	return status
}

// etherNetIPDevice is an EtherNet/IP controller.
type etherNetIPDevice struct {
	faulty

	device *ethernetiptest.Device
}

func startEtherNetIP(spec EtherNetIPSpec) (*etherNetIPDevice, error) {
	const (
		rockwell                       = 1
		programmableController         = 0x0E
		running                 uint16 = 0x3060
		backplane               byte   = 1
		firstSerial             uint32 = 0x00F1E1D0
		majorRevision, minorRev byte   = 33, 11
	)

	address, err := loopback(spec.Address, 44818)
	if err != nil {
		return nil, err
	}

	device := ethernetiptest.New(address)
	if spec.Product != "" {
		device.SetIdentity(ethernetiptest.Identity{
			Vendor: rockwell, DeviceType: programmableController, ProductCode: 166, Major: majorRevision, Minor: minorRev, Status: running,
			Serial: firstSerial, Name: spec.Product,
		})
	}

	if spec.Slot != nil {
		device.Route(backplane, *spec.Slot)
	}

	types := map[string]ethernetiptest.Type{
		"BOOL": ethernetiptest.BOOL, "INT": ethernetiptest.INT, "DINT": ethernetiptest.DINT, "REAL": ethernetiptest.REAL, "STRING": ethernetiptest.STRING,
	}

	for _, tag := range spec.Tags {
		kind, ok := types[tag.Type]
		if !ok || tag.Name == "" || tag.Size < 0 || tag.Size > math.MaxUint16 {
			return nil, fmt.Errorf("tag %q: no tag can be made of type %q and size %d", tag.Name, tag.Type, tag.Size)
		}

		access := ethernetiptest.ReadWrite
		if tag.ReadOnly {
			access = ethernetiptest.ReadOnly
		}

		var dims []int
		if tag.Size > 0 {
			dims = []int{tag.Size}
		}

		device.AddWithAccess(tag.Name, kind, access, dims...)
	}

	d := &etherNetIPDevice{device: device}
	d.faulty = faulty{
		fixture: device, blackhole: func(on bool) { device.Blackhole(on) }, delay: func(by time.Duration) { device.Delay(by) },
	}

	return d, device.Start()
}

func (d *etherNetIPDevice) inject(mode string) error { return d.faulty.inject(mode) }

func (d *etherNetIPDevice) status() Status { return d.statusOf("ethernetip") }
