// Package plant is a simulated plant on loopback addresses: Talos nodes in maintenance mode, and Modbus, OPC UA and
// EtherNet/IP devices, with faults on command. Tests start one in their own process, and `make run` as a process with a
// control API.
package plant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua/opcuatest"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Plant is a running plant.
type Plant struct {
	names   []string
	nodes   map[string]*talosnode.Node
	devices map[string]device
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
	// UUID and Fingerprint are a Talos node's, as its console shows them; an OPC UA server has the thumbprint of its certificate.
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
	p := &Plant{nodes: make(map[string]*talosnode.Node), devices: make(map[string]device)}

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
		if err := p.add("modbus", s.Name, func() (device, error) { return startModbus(s) }); err != nil {
			return err
		}
	}

	for _, s := range spec.OPCUA {
		if err := p.add("opcua", s.Name, func() (device, error) { return startOPCUA(s) }); err != nil {
			return err
		}
	}

	for _, s := range spec.EtherNetIP {
		if err := p.add("ethernetip", s.Name, func() (device, error) { return startEtherNetIP(s) }); err != nil {
			return err
		}
	}

	return nil
}

// add starts a device and puts it to the others.
func (p *Plant) add(kind, name string, start func() (device, error)) error {
	if err := p.name(name); err != nil {
		return err
	}

	d, err := start()
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}

	p.devices[name] = d

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

	for _, device := range p.devices {
		wait.Go(device.stop)
	}

	wait.Wait()
}

// Node is a Talos node by name, nil when there is none.
func (p *Plant) Node(name string) *talosnode.Node { return p.nodes[name] }

// Modbus is a Modbus device by name, nil when there is none.
func (p *Plant) Modbus(name string) *modbustest.Device {
	if d, ok := p.devices[name].(*modbusDevice); ok {
		return d.device
	}

	return nil
}

// OPCUA is an OPC UA server by name, nil when there is none.
func (p *Plant) OPCUA(name string) *opcuatest.Server {
	if d, ok := p.devices[name].(*opcuaDevice); ok {
		return d.server
	}

	return nil
}

// EtherNetIP is an EtherNet/IP controller by name, nil when there is none.
func (p *Plant) EtherNetIP(name string) *ethernetiptest.Device {
	if d, ok := p.devices[name].(*etherNetIPDevice); ok {
		return d.device
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

		if device := p.devices[name]; device != nil {
			status := device.status()
			status.Name = name
			out = append(out, status)
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

	if device := p.devices[name]; device != nil {
		return device.inject(mode)
	}

	return p.unknown(name)
}

// Heal makes a member of the plant well again.
func (p *Plant) Heal(name string) error {
	if node := p.nodes[name]; node != nil {
		return node.Heal()
	}

	if device := p.devices[name]; device != nil {
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

	if p.devices[name] != nil {
		return fmt.Errorf("%q is no Talos node", name)
	}

	return p.unknown(name)
}

func (p *Plant) unknown(name string) error {
	return fmt.Errorf("no %q in this plant, only %s", name, strings.Join(p.names, ", "))
}
