package talosnode

import (
	"fmt"
	"slices"
	"time"
)

// Fault is something wrong with a node, on command.
type Fault string

// The faults.
const (
	// FaultNone is a healthy node.
	FaultNone Fault = ""
	// FaultSilent accepts connections and never says a word.
	FaultSilent Fault = "silent"
	// FaultClosed refuses connections.
	FaultClosed Fault = "closed"
	// FaultNotTLS answers like an SSH server.
	FaultNotTLS Fault = "nottls"
	// FaultSlow takes longer for each call than discovery waits.
	FaultSlow Fault = "slow"
	// FaultIdentity shows the hardware of another machine from the next read on, over the same connection and key: a
	// node whose identity changes between two looks.
	FaultIdentity Fault = "identity"
	// FaultTakeover is another machine that has taken over the address: open connections break, key and hardware differ.
	FaultTakeover Fault = "takeover"
	// FaultNoSMBIOS has no system information.
	FaultNoSMBIOS Fault = "nosmbios"
)

// Faults are all faults, for a command line's help.
func Faults() []Fault {
	return []Fault{FaultSilent, FaultClosed, FaultNotTLS, FaultSlow, FaultIdentity, FaultTakeover, FaultNoSMBIOS}
}

// Inject makes the fault the node's present one; FaultNone heals it.
func (n *Node) Inject(fault Fault) error {
	if fault != FaultNone && !slices.Contains(Faults(), fault) {
		return fmt.Errorf("node %s: no fault %q, only %q", n.options.Name, fault, Faults())
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	before := n.fault
	n.fault = fault
	n.slow.Store(0)

	n.hardware = n.options.Hardware

	switch fault {
	case FaultIdentity, FaultTakeover:
		n.hardware = otherMachine(n.options.Hardware)
	case FaultNoSMBIOS:
		n.hardware.NoSMBIOS = true
	case FaultSlow:
		n.slow.Store(int64(n.options.Slow))
	}

	if err := n.rebuildStateLocked(); err != nil {
		return err
	}

	if fault == FaultTakeover || before == FaultTakeover {
		if err := n.newLeafLocked(); err != nil {
			return err
		}
	}

	// Whoever is connected meets the fault too, unless the fault is one of what is read.
	if breaksConnections(fault) || breaksConnections(before) {
		n.closePortLocked()
	}

	n.logf("fault %q", fault)

	return n.resumeLocked()
}

// Heal takes the present fault away.
func (n *Node) Heal() error { return n.Inject(FaultNone) }

// Fault is the node's present fault.
func (n *Node) Fault() Fault {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.fault
}

func breaksConnections(fault Fault) bool {
	switch fault {
	case FaultSilent, FaultClosed, FaultNotTLS, FaultTakeover:
		return true
	}

	return false
}

// otherMachine is a machine with the same UUID, as one from the same faulty series, and otherwise its own hardware.
func otherMachine(h Hardware) Hardware {
	h.Serial = "OTHER-" + h.Serial
	h.Links = slices.Clone(h.Links)

	for i := range h.Links {
		if h.Links[i].MAC != "" {
			h.Links[i].MAC = fmt.Sprintf("b4:45:06:ff:ff:%02x", i)
		}
	}

	return h
}

// delay waits as long as a slow node does.
func (n *Node) delay() {
	if d := time.Duration(n.slow.Load()); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()

		select {
		case <-timer.C:
		case <-n.ctx.Done():
		}
	}
}
