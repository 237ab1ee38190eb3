package talosnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	// FaultTakeover is another machine, in maintenance mode, that has taken over the address: open connections break, key
	// and hardware differ.
	FaultTakeover Fault = "takeover"
	// FaultLateTakeover becomes FaultTakeover when a configuration is about to be received: between the look at the
	// identity and what it was for.
	FaultLateTakeover Fault = "late-takeover"
	// FaultUUID shows another UUID and otherwise the same hardware, as a UUID that META overrides.
	FaultUUID Fault = "uuid"
	// FaultNoSMBIOS has no system information.
	FaultNoSMBIOS Fault = "nosmbios"
	// FaultEarlyBoot has no system information for three readings, as early in the boot, and then has.
	FaultEarlyBoot Fault = "early-boot"
	// FaultRefuse refuses every configuration, with a message that quotes it.
	FaultRefuse Fault = "refuse"
	// FaultBusy refuses configurations and Bootstrap for now.
	FaultBusy Fault = "busy"
	// FaultDropped breaks the connections when it is to change something, and changes nothing. To change something is to
	// apply a configuration, dry runs excepted, to bootstrap etcd, to reboot and to reset.
	FaultDropped Fault = "dropped"
	// FaultUnanswered changes what it is to change, and breaks the connections before it answers.
	FaultUnanswered Fault = "unanswered"
	// FaultLost changes what it is to change, answers, and is gone until it is healed; then it goes on.
	FaultLost Fault = "lost"
	// FaultLostUnanswered is FaultLost without the answer.
	FaultLostUnanswered Fault = "lost-unanswered"
	// FaultUnready is a machine whose services are not healthy.
	FaultUnready Fault = "unready"
	// FaultNoTime is a machine whose clock is not in sync.
	FaultNoTime Fault = "notime"
)

// Faults are all faults, for a command line's help.
func Faults() []Fault {
	return []Fault{
		FaultSilent, FaultClosed, FaultNotTLS, FaultSlow, FaultIdentity, FaultTakeover, FaultLateTakeover, FaultUUID,
		FaultNoSMBIOS, FaultEarlyBoot, FaultRefuse, FaultBusy, FaultDropped, FaultUnanswered, FaultLost, FaultLostUnanswered,
		FaultUnready, FaultNoTime,
	}
}

// Effect tells in a few words what a fault does, for a command line's help.
func (f Fault) Effect() string {
	switch f {
	case FaultSilent:
		return "accepts connections and never says a word"
	case FaultClosed:
		return "refuses connections"
	case FaultNotTLS:
		return "answers like an SSH server"
	case FaultSlow:
		return "takes 3 s for each call"
	case FaultIdentity:
		return "shows the hardware of another machine with the same UUID"
	case FaultTakeover:
		return "another machine in maintenance mode has its address"
	case FaultLateTakeover:
		return "takeover, as soon as a configuration is about to be received"
	case FaultUUID:
		return "shows another UUID"
	case FaultNoSMBIOS:
		return "has no system information"
	case FaultEarlyBoot:
		return "has no system information for three readings"
	case FaultRefuse:
		return "refuses configurations, and quotes them"
	case FaultBusy:
		return "refuses configurations and Bootstrap for now"
	case FaultDropped:
		return "breaks the connection instead of changing anything"
	case FaultUnanswered:
		return "changes what it is to, and breaks the connection"
	case FaultLost:
		return "changes what it is to, answers, and is gone until healed"
	case FaultLostUnanswered:
		return "lost, without the answer"
	case FaultUnready:
		return "has unhealthy services"
	case FaultNoTime:
		return "has no time, so that Bootstrap is refused"
	}

	return ""
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
	n.lost = false
	n.slow.Store(0)
	n.states.absent.Store(0)

	n.hardware = n.options.Hardware

	switch fault {
	case FaultIdentity, FaultTakeover:
		n.hardware = otherMachine(n.options.Hardware)
	case FaultUUID:
		n.hardware.MetaUUID = otherUUID(n.hardware)
	case FaultNoSMBIOS:
		n.hardware.NoSMBIOS = true
	case FaultEarlyBoot:
		n.states.absent.Store(3)
	case FaultSlow:
		n.slow.Store(int64(n.options.Slow))
	}

	if err := n.rebuildStateLocked(); err != nil {
		return err
	}

	// Whoever is connected meets the fault too, unless the fault is one of what is read.
	if fault == FaultTakeover || before == FaultTakeover {
		if err := n.newLeafLocked(); err != nil {
			return err
		}

		n.silenceLocked()
	} else if breaksConnections(fault) || breaksConnections(before) {
		n.closePortLocked()
	}

	n.logf("fault %q", fault)

	if err := n.resumeLocked(); err != nil {
		return err
	}

	n.options.Trustd.setUp(n, n.reachableLocked())

	return nil
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

// change passes a call on, with what goes wrong when it is one that changes something.
func (n *Node) change(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	fault := n.Fault()

	switch r := req.(type) {
	case *machineapi.ApplyConfigurationRequest:
		if r.GetDryRun() {
			return handler(ctx, req)
		}

		if fault == FaultDropped {
			n.record.addReceived(Received{At: time.Now(), Bytes: len(r.GetData()), Mode: r.GetMode().String(), Code: "dropped"})
		}
	case *machineapi.BootstrapRequest, *machineapi.RebootRequest, *machineapi.ResetRequest:
	default:
		return handler(ctx, req)
	}

	if fault == FaultDropped {
		n.breakConnections()

		return nil, errConnectionLost
	}

	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}

	switch fault {
	case FaultUnanswered:
		n.breakConnections()
	case FaultLostUnanswered:
		n.loseNow()
		n.breakConnections()
	case FaultLost:
		n.loseNow()
	}

	return resp, nil
}

func (n *Node) breakConnections() {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.breakConnectionsLocked()
}

// loseNow makes the node be gone as soon as its answers are out, until it is healed.
func (n *Node) loseNow() {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.lost = true
	n.options.Trustd.setUp(n, false)
	n.logf("lost")

	if n.stage != StageRunning {
		return // it goes down already
	}

	epoch := n.epoch

	n.goLocked(func() { n.drain(epoch) })
}

// otherUUID is a UUID like the machine's.
func otherUUID(h Hardware) string {
	const other = "0f0f0f0f"

	if h.MetaUUID != "" || len(h.UUID) < len(other) {
		return other + "-0000-4000-8000-000000000000"
	}

	return other + h.UUID[len(other):]
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

// errConnectionLost is never seen by a peer: its connection is closed already.
var errConnectionLost = status.Error(codes.Unavailable, "connection lost")
