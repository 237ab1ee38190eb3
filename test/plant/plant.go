// Package plant is a simulated plant on loopback addresses: Talos nodes in maintenance mode and Modbus devices, with
// faults on command. Tests start one in their own process, and `make run` as a process with a control API.
package plant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Plant is a running plant.
type Plant struct {
	names  []string
	nodes  map[string]*talosnode.Node
	modbus map[string]*modbusDevice
}

// Status is how one member of the plant is.
type Status struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Address string `json:"address"`
	// State is a Talos node's stage; "on" for a device.
	State string `json:"state"`
	// MachineStage is the stage that a Talos node tells of itself; Waits is what one that is not up waits for.
	MachineStage string `json:"machineStage,omitempty"`
	Waits        string `json:"waits,omitempty"`
	Fault        string `json:"fault,omitempty"`
	// UUID and Fingerprint are a Talos node's, as its console shows them.
	UUID        string `json:"uuid,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// EtcdMembers are the host names in the etcd that a control plane is a member of.
	EtcdMembers []string `json:"etcdMembers,omitempty"`
	// Bootstraps and Reboots are how often a Talos node took these commands.
	Bootstraps int `json:"bootstraps,omitempty"`
	Reboots    int `json:"reboots,omitempty"`
	// Asked is how often it was asked: identity readings of a Talos node, requests to a device.
	Asked int `json:"asked"`
}

// Start runs a plant until Close. What happens goes to logf, which may be nil.
func Start(spec Spec, logf func(format string, args ...any)) (*Plant, error) {
	p := &Plant{nodes: make(map[string]*talosnode.Node), modbus: make(map[string]*modbusDevice)}

	if err := p.start(spec, logf); err != nil {
		p.Close()

		return nil, err
	}

	return p, nil
}

func (p *Plant) start(spec Spec, logf func(format string, args ...any)) error {
	var trustd talosnode.Trustd

	for _, s := range spec.Talos {
		if err := p.name(s.Name); err != nil {
			return err
		}

		address, err := loopback(s.Address, talosPort)
		if err != nil {
			return fmt.Errorf("talos %s: %w", s.Name, err)
		}

		variant, err := variantOf(s.Talos)
		if err != nil {
			return fmt.Errorf("talos %s: %w", s.Name, err)
		}

		node, err := talosnode.Start(talosnode.Options{
			Name: s.Name, Address: address, Hardware: s.Hardware, TalosVersion: s.Talos, Variant: variant, Trustd: &trustd, Logf: logf,
			Install: s.Install.Duration, Reboot: s.Reboot.Duration, Boot: s.Boot.Duration, EtcdJoin: s.EtcdJoin.Duration,
			NoSMBIOSReads: s.NoSMBIOSReads,
		})
		if err != nil {
			return err
		}

		p.nodes[s.Name] = node
	}

	for _, s := range spec.Modbus {
		if err := p.name(s.Name); err != nil {
			return err
		}

		device, err := startModbus(s)
		if err != nil {
			return fmt.Errorf("modbus %s: %w", s.Name, err)
		}

		p.modbus[s.Name] = device
	}

	return nil
}

// talosPort is apid's.
const talosPort = 50000

func (p *Plant) name(name string) error {
	if name == "" || slices.Contains(p.names, name) {
		return fmt.Errorf("a plant's members need names of their own; %q has none", name)
	}

	p.names = append(p.names, name)

	return nil
}

func variantOf(version string) (talosnode.Variant, error) {
	if version == "" {
		return talosnode.Since113, nil
	}

	contract, err := config.ParseContractFromVersion(version)
	if err != nil {
		return 0, err
	}

	if contract.Greater(config.TalosVersion1_12) {
		return talosnode.Since113, nil
	}

	return talosnode.Until112, nil
}

// Close stops everything and waits for it.
func (p *Plant) Close() {
	var wait sync.WaitGroup

	for _, node := range p.nodes {
		wait.Go(node.Close)
	}

	for _, device := range p.modbus {
		wait.Go(device.stop)
	}

	wait.Wait()
}

// Node is a Talos node by name, nil when there is none.
func (p *Plant) Node(name string) *talosnode.Node { return p.nodes[name] }

// Modbus is a Modbus device by name, nil when there is none.
func (p *Plant) Modbus(name string) *modbustest.Device {
	if device := p.modbus[name]; device != nil {
		return device.device
	}

	return nil
}

// List is how everything is, in the order of the plant's description.
func (p *Plant) List() []Status {
	var out []Status

	for _, name := range p.names {
		if node := p.nodes[name]; node != nil {
			hw := node.Hardware()
			out = append(out, Status{
				Name: name, Kind: "talos", Address: node.Address(), State: string(node.Stage()), MachineStage: node.MachineStage(),
				Waits: node.Waits(), Fault: string(node.Fault()), UUID: cmp.Or(hw.MetaUUID, hw.UUID), Fingerprint: node.Fingerprint(),
				EtcdMembers: node.EtcdMembers(), Bootstraps: node.Bootstraps(), Reboots: node.Reboots(), Asked: len(node.Identities()),
			})
		}

		if device := p.modbus[name]; device != nil {
			out = append(out, Status{
				Name: name, Kind: "modbus", Address: device.device.Addr(), State: "on", Fault: device.currentFault(), Asked: device.device.Requests(),
			})
		}
	}

	return out
}

// Configurations are what each Talos node was ever sent: how much, for which role, and what it answered.
func (p *Plant) Configurations() map[string][]talosnode.Received {
	out := make(map[string][]talosnode.Received, len(p.nodes))
	for name, node := range p.nodes {
		out[name] = node.Configurations()
	}

	return out
}

// Fault makes something wrong with a member of the plant; a later one takes its place.
func (p *Plant) Fault(name, mode string) error {
	if mode == "" {
		return errors.New("no fault named")
	}

	if node := p.nodes[name]; node != nil {
		return node.Inject(talosnode.Fault(mode))
	}

	if device := p.modbus[name]; device != nil {
		return device.inject(mode)
	}

	return p.unknown(name)
}

// Heal makes a member of the plant well again.
func (p *Plant) Heal(name string) error {
	if node := p.nodes[name]; node != nil {
		return node.Heal()
	}

	if device := p.modbus[name]; device != nil {
		return device.inject("")
	}

	return p.unknown(name)
}

// Wipe takes a Talos node back to maintenance mode.
func (p *Plant) Wipe(name string) error { return p.node(name, (*talosnode.Node).Wipe) }

// PowerCycle switches a Talos node off and on again.
func (p *Plant) PowerCycle(name string) error { return p.node(name, (*talosnode.Node).PowerCycle) }

// Patch changes what a configured Talos node runs with behind everybody's back, by a strategic merge patch.
func (p *Plant) Patch(name, patch string) error {
	return p.node(name, func(node *talosnode.Node) error { return node.PatchConfiguration([]byte(patch)) })
}

// SetUUID overrides a Talos node's UUID in META; "" takes the override away.
func (p *Plant) SetUUID(name, text string) error {
	return p.node(name, func(node *talosnode.Node) error { return node.SetMetaUUID(text) })
}

// Swap exchanges the addresses of two Talos nodes.
func (p *Plant) Swap(name, other string) error {
	return p.node(name, func(a *talosnode.Node) error {
		return p.node(other, func(b *talosnode.Node) error { return talosnode.Swap(a, b) })
	})
}

func (p *Plant) node(name string, do func(*talosnode.Node) error) error {
	if node := p.nodes[name]; node != nil {
		return do(node)
	}

	if p.modbus[name] != nil {
		return fmt.Errorf("%q is no Talos node", name)
	}

	return p.unknown(name)
}

func (p *Plant) unknown(name string) error {
	return fmt.Errorf("no %q in this plant, only %s", name, strings.Join(p.names, ", "))
}

// modbusFaults are the faults of Modbus devices.
func modbusFaults() []string { return []string{"closed", "silent", "slow", "exception", "reset"} }

// modbusDevice is a Modbus device and its present fault.
type modbusDevice struct {
	device *modbustest.Device
	units  []uint8

	mu    sync.Mutex
	fault string
}

func startModbus(spec ModbusSpec) (*modbusDevice, error) {
	address, err := loopback(spec.Address, 502)
	if err != nil {
		return nil, err
	}

	d := &modbusDevice{device: modbustest.New(address)}
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

	if err := d.device.Start(); err != nil {
		return nil, err
	}

	return d, nil
}

func (d *modbusDevice) currentFault() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.fault
}

// inject heals the device and then makes the fault, if one is named.
func (d *modbusDevice) inject(mode string) error {
	const (
		// slow is above the probes' request timeout of 1 s.
		slow                    = 3 * time.Second
		slaveDeviceFailure      = 0x04
		noException        byte = 0
	)

	if mode != "" && !slices.Contains(modbusFaults(), mode) {
		return fmt.Errorf("no fault %q, only %s", mode, strings.Join(modbusFaults(), ", "))
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.device.Blackhole(mode == "silent")
	d.device.Delay(0)

	if mode == "slow" {
		d.device.Delay(slow)
	}

	for _, id := range d.units {
		failure := noException
		if mode == "exception" {
			failure = slaveDeviceFailure
		}

		d.device.Unit(id).Fail(failure)
	}

	d.fault = mode

	switch mode {
	case "closed":
		d.device.Stop()

		return nil
	case "reset":
		d.device.Reset()
		d.fault = "" // it happens once
	}

	return d.device.Start()
}

func (d *modbusDevice) stop() { d.device.Stop() }
