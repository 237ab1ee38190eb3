// Package machinetest is a simulated set of configured Talos nodes behind the interface of package machine, for tests
// of whoever uses that interface: it opens no socket (T-19).
//
// It holds its callers to what the real thing holds them to: an operation needs its role, a session ends when its node
// reboots or goes away, a node of another cluster is Untrusted, an etcd is bootstrapped once, and a configuration that
// needs a reboot is not taken without one. It leaves out time: what was asked for is so at once.
package machinetest

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Network is a set of nodes by address. It is safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	nodes map[string]*Node
	dials []Call
}

// NewNetwork returns an empty network: every address is Unreachable.
func NewNetwork() *Network { return &Network{nodes: make(map[string]*Node)} }

// Node returns the node at an address, an exact text, and puts a running one there if there is none.
func (n *Network) Node(address string) *Node {
	n.mu.Lock()
	defer n.mu.Unlock()

	node, ok := n.nodes[address]
	if !ok {
		node = NewNode()
		n.nodes[address] = node
	}

	return node
}

// Put makes a node answer at an address, whoever did before; nil takes the address off the network. Open sessions stay
// with their node, as connections do.
func (n *Network) Put(address string, node *Node) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if node == nil {
		delete(n.nodes, address)

		return
	}

	n.nodes[address] = node
}

// Dials are the sessions that were asked for, whether or not anything answered, in order.
func (n *Network) Dials() []Call {
	n.mu.Lock()
	defer n.mu.Unlock()

	return slices.Clone(n.dials)
}

// Dial is the network's machine.Factory.
func (n *Network) Dial(ctx context.Context, address string, access machine.Access) (machine.Client, error) {
	n.mu.Lock()
	n.dials = append(n.dials, Call{Op: machine.OpDial, Address: address, Role: access.Role})
	node := n.nodes[address]
	n.mu.Unlock()

	if access.Bundle == nil || !access.Role.Covers(machine.RoleReader) {
		return nil, &machine.Error{Class: machine.ClassInvalidAccess, Address: address, Op: machine.OpDial, Detail: "no bundle or no role"}
	}

	if node == nil {
		return nil, &machine.Error{Class: machine.ClassUnreachable, Address: address, Op: machine.OpDial, Detail: "nothing is there"}
	}

	s := &session{node: node, address: address, role: access.Role}

	err := s.do(ctx, Call{Op: machine.OpDial}, func() error {
		if !node.trusts(access.Bundle) {
			return s.fail(machine.OpDial, machine.ClassUntrusted, "a certificate of another cluster")
		}

		s.boot = node.boot

		return nil
	})
	if err != nil {
		return nil, err
	}

	return s, nil
}

// Call is one operation that was asked of a node.
type Call struct {
	Op      machine.Op
	Address string
	Role    machine.Role
	// Mode and Config are what OpTry and OpApply got.
	Mode   machine.Mode
	Config []byte
}

// Node is one simulated node. It is safe for concurrent use; each method returns the node, so that calls can be chained.
type Node struct {
	mu       sync.Mutex
	bundle   *secrets.Bundle
	hardware maintenance.Hardware
	status   machine.Status
	config   []byte
	staged   []byte
	members  []machine.EtcdMember
	hasData  bool
	warnings []string

	needsReboot func(running, next []byte) bool
	before      map[machine.Op]func(context.Context, Call) error
	after       map[machine.Op]func(context.Context, Call) error

	// boot counts reboots: a session of an earlier one is over.
	boot  int
	calls []Call
}

// NewNode returns a node that runs and is ready, of any cluster, without hardware, configuration and etcd, which needs a
// reboot for nothing.
func NewNode() *Node {
	return &Node{
		status:      machine.Status{Stage: machine.StageRunning, Ready: true, TalosVersion: "v1.13.9"},
		needsReboot: func([]byte, []byte) bool { return false },
		before:      make(map[machine.Op]func(context.Context, Call) error),
		after:       make(map[machine.Op]func(context.Context, Call) error),
	}
}

// set changes the node.
func (n *Node) set(change func()) *Node {
	n.mu.Lock()
	defer n.mu.Unlock()

	change()

	return n
}

// OfCluster makes the node belong to one cluster; sessions with another one's bundle are Untrusted. nil, as at first, is
// any.
func (n *Node) OfCluster(bundle *secrets.Bundle) *Node { return n.set(func() { n.bundle = bundle }) }

// SetHardware is what Identity reads.
func (n *Node) SetHardware(hardware maintenance.Hardware) *Node {
	return n.set(func() { n.hardware = hardware })
}

// SetStatus is what Status reads.
func (n *Node) SetStatus(status machine.Status) *Node { return n.set(func() { n.status = status }) }

// SetConfiguration is what the node runs with.
func (n *Node) SetConfiguration(config []byte) *Node {
	return n.set(func() { n.config = bytes.Clone(config) })
}

// SetEtcd makes etcd run there with these members; none makes the node one that never had any.
func (n *Node) SetEtcd(members ...machine.EtcdMember) *Node {
	return n.set(func() { n.members, n.hasData = slices.Clone(members), len(members) > 0 })
}

// SetWarnings are the remarks on every configuration that is tried or applied.
func (n *Node) SetWarnings(warnings ...string) *Node {
	return n.set(func() { n.warnings = slices.Clone(warnings) })
}

// NeedsReboot decides whether going from one configuration to the next needs a reboot.
func (n *Node) NeedsReboot(decide func(running, next []byte) bool) *Node {
	return n.set(func() { n.needsReboot = decide })
}

// Before is called when an operation is asked for; an error of it is the answer, and nothing is done. nil takes it away.
// It may block, and it may change the node.
func (n *Node) Before(op machine.Op, hook func(ctx context.Context, call Call) error) *Node {
	return n.set(func() { n.before[op] = hook })
}

// After is called when an operation was done; an error of it is the answer, as when the connection breaks before the
// real one arrives. nil takes it away.
func (n *Node) After(op machine.Op, hook func(ctx context.Context, call Call) error) *Node {
	return n.set(func() { n.after[op] = hook })
}

// Fail makes an operation fail with a class until Recover; OpDial makes the node unreachable, untrusted and so on.
func (n *Node) Fail(op machine.Op, class machine.Class) *Node {
	return n.Before(op, func(_ context.Context, call Call) error {
		return &machine.Error{Class: class, Address: call.Address, Op: op, Detail: "as the test has it"}
	})
}

// Recover takes away what Before, After and Fail have set for an operation.
func (n *Node) Recover(op machine.Op) *Node { return n.Before(op, nil).After(op, nil) }

// Calls are the operations asked for so far, dialing included; with arguments, only those.
func (n *Node) Calls(ops ...machine.Op) []Call {
	n.mu.Lock()
	defer n.mu.Unlock()

	var calls []Call

	for _, call := range n.calls {
		if len(ops) == 0 || slices.Contains(ops, call.Op) {
			calls = append(calls, call)
		}
	}

	return calls
}

// ForgetCalls empties Calls.
func (n *Node) ForgetCalls() *Node { return n.set(func() { n.calls = nil }) }

// Configuration is what the node runs with, and what it would after a reboot, nil when the same.
func (n *Node) Configuration() (running, staged []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()

	return bytes.Clone(n.config), bytes.Clone(n.staged)
}

// Boots is how often the node was rebooted.
func (n *Node) Boots() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.boot
}

// Reboot reboots the node as its power button does: a staged configuration is taken and every session is over.
func (n *Node) Reboot() *Node { return n.set(n.rebootLocked) }

func (n *Node) rebootLocked() {
	if n.staged != nil {
		n.config, n.staged = n.staged, nil
	}

	n.boot++
}

// trusts is called with the lock held.
func (n *Node) trusts(bundle *secrets.Bundle) bool {
	if n.bundle == nil {
		return true
	}

	return n.bundle.Certs != nil && n.bundle.Certs.OS != nil && bundle.Certs != nil && bundle.Certs.OS != nil &&
		bytes.Equal(n.bundle.Certs.OS.Crt, bundle.Certs.OS.Crt)
}
