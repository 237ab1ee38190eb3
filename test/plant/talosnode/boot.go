package talosnode

import (
	"context"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block/blockhelpers"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// drainLimit bounds how long a node that goes down waits until its answers are out.
const drainLimit = time.Second

// goDownLocked takes the node down as soon as its answers are out, and brings it up again after a while.
func (n *Node) goDownLocked(stage Stage, away time.Duration, up func() error) {
	epoch := n.leaveLocked(stage)

	n.goLocked(func() {
		n.drain(epoch)
		n.sleep(away)
		n.comeUp(epoch, up)
	})
}

// leaveLocked ends whatever the node does, and tells the number of this time.
func (n *Node) leaveLocked(stage Stage) int {
	n.endLife()
	n.keepTriedLocked()

	n.epoch++
	n.stage = stage
	n.booted, n.clusterUp = false, false

	n.options.Trustd.leave(n)
	n.options.Trustd.setUp(n, false)

	return n.epoch
}

// drain closes the port and then the connections, each as soon as what was asked over it is answered. A node that closed
// them at once, or after some fixed time, could lose the answer to the very call that took it down.
func (n *Node) drain(epoch int) {
	n.mu.Lock()

	if n.epoch != epoch {
		n.mu.Unlock()

		return
	}

	if n.listener != nil {
		n.listener.Close() //nolint:errcheck // only ever closed here
		n.listener = nil
	}

	server := n.server
	n.server = nil

	conns := make([]*trackedConn, 0, len(n.conns))
	for conn := range n.conns {
		conns = append(conns, conn.(*trackedConn))
	}

	n.mu.Unlock()

	if server != nil {
		drained := make(chan struct{})

		go func() {
			defer close(drained)
			server.grpc.GracefulStop()
		}()

		limit := time.NewTimer(drainLimit)
		defer limit.Stop()

		select {
		case <-drained:
		case <-limit.C:
		case <-n.ctx.Done():
		}

		defer func() {
			server.grpc.Stop()
			<-drained
		}()
	}

	for _, conn := range conns {
		conn.Close() //nolint:errcheck // the peer sees it
	}
}

// comeUp brings the node up, as soon as it can.
func (n *Node) comeUp(epoch int, up func() error) {
	for n.ctx.Err() == nil {
		if done := n.tryComeUp(epoch, up); done {
			return
		}

		n.sleep(20 * time.Millisecond)
	}
}

// tryComeUp tells whether there is nothing more to do.
func (n *Node) tryComeUp(epoch int, up func() error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.epoch != epoch {
		return true // wiped meanwhile, or switched off and on
	}

	return !n.lost && up() == nil
}

// runLocked starts apid with the persistent configuration, errNoCertificate when nobody signs its certificate.
func (n *Node) runLocked() error {
	server, err := n.apidServerLocked(n.persistent)
	if err != nil {
		return err
	}

	n.active = n.persistent
	n.installLocked()

	n.stage, n.booted, n.clusterUp = StageRunning, n.options.Boot == 0, false
	n.life, n.endLife = context.WithCancel(n.ctx)

	raw := n.active.RawV1Alpha1()
	if ca := raw.MachineConfig.MachineCA; len(ca.Key) > 0 {
		n.options.Trustd.join(n, raw.MachineConfig.MachineToken, ca)
	}

	n.options.Trustd.setUp(n, n.reachableLocked())
	n.clusterUp = n.options.Trustd.etcdOf(raw.MachineConfig.MachineToken) != nil

	if err := n.rebuildStateLocked(); err != nil {
		n.logf("%v", err)
	}

	if n.fault != FaultTakeover {
		n.serveLocked(server)
	}

	if err := n.resumeLocked(); err != nil {
		n.logf("%v", err)
	}

	life := n.life

	n.goLocked(func() { n.boot(life) })
	n.goLocked(func() { n.followEtcd(life, raw.MachineConfig.MachineToken) })

	n.logf("running as %s", n.active.Machine().Type())

	return nil
}

// boot goes through the rest of the boot.
func (n *Node) boot(life context.Context) {
	if !sleep(life, n.options.Boot) {
		return
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if life.Err() != nil {
		return
	}

	n.booted = true

	if err := n.rebuildStateLocked(); err != nil {
		n.logf("%v", err)
	}
}

// installLocked chooses the disk to install on, if the node is not installed yet.
func (n *Node) installLocked() {
	if n.systemDisk != "" {
		return
	}

	install := n.active.Machine().Install()
	n.systemDisk = install.Disk()

	if expression, err := install.DiskMatchExpression(); err == nil && expression != nil {
		if disks, err := blockhelpers.MatchDisks(n.ctx, *n.states.inner.Load(), expression); err == nil && len(disks) > 0 {
			n.systemDisk = disks[0].TypedSpec().DevPath
		}
	}

	n.logf("installed on %s", n.systemDisk)
}

// SystemDisk is the path of the disk that the node was installed on, "" before.
func (n *Node) SystemDisk() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.systemDisk
}

// maintainLocked starts maintenance mode, with a new key.
func (n *Node) maintainLocked() error {
	n.stage = StageMaintenance

	if err := n.newLeafLocked(); err != nil {
		return err
	}

	if err := n.rebuildStateLocked(); err != nil {
		return err
	}

	return n.resumeLocked()
}

// forgetLocked takes away what is on the system disk.
func (n *Node) forgetLocked() {
	n.active, n.persistent, n.systemDisk = configuration{}, configuration{}, ""
}

// Wipe takes the node back to maintenance mode at once, as a new disk does, with a new key. Its member stays in an etcd
// that has others. What was received stays on record.
func (n *Node) Wipe() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.leaveLocked(StageMaintenance)
	n.silenceLocked()
	n.forgetLocked()
	n.options.Trustd.lose(n)

	return n.maintainLocked()
}

// PowerCycle switches the node off at once, answers or not, and on again: it boots as what it has on its disk tells.
func (n *Node) PowerCycle() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	epoch := n.leaveLocked(StageRebooting)
	n.silenceLocked()

	n.goLocked(func() {
		n.sleep(n.options.Reboot)
		n.comeUp(epoch, n.bootLocked)
	})

	return nil
}

// bootLocked boots as what is on the disk tells.
func (n *Node) bootLocked() error {
	if n.persistent.Provider == nil {
		return n.maintainLocked()
	}

	return n.runLocked()
}

func (n *Node) reboot() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageRunning {
		return status.Errorf(codes.FailedPrecondition, "the node is %s", n.stage)
	}

	n.rebootLocked()

	return nil
}

func (n *Node) rebootLocked() {
	n.reboots++
	n.goDownLocked(StageRebooting, n.options.Reboot, n.bootLocked)
	n.logf("reboots")
}

// reset wipes the system disk, or what is named of it, and reboots.
func (n *Node) reset(req *machineapi.ResetRequest) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageRunning {
		return status.Errorf(codes.FailedPrecondition, "the node is %s", n.stage)
	}

	state := len(req.GetSystemPartitionsToWipe()) == 0

	for _, partition := range req.GetSystemPartitionsToWipe() {
		switch partition.GetLabel() {
		case "STATE":
			state = state || partition.GetWipe()
		case "EPHEMERAL":
		default:
			return status.Errorf(codes.Unknown, "failed to get volume status with label %q: doesn't exist", partition.GetLabel())
		}
	}

	stage, up := StageResetting, n.bootLocked
	if !req.GetReboot() {
		up = func() error {
			n.stage = StageOff

			return nil
		}
	}

	if req.GetGraceful() {
		n.options.Trustd.remove(n)
	} else {
		n.options.Trustd.lose(n)
	}

	n.goDownLocked(stage, n.options.Reboot, up)

	if state {
		n.forgetLocked()
	}

	n.logf("resets")

	return nil
}

// Waits is what a node that is not up waits for, for people; "" when there is nothing.
func (n *Node) Waits() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch {
	case n.lost:
		return "to be healed"
	case n.stage == StageOff:
		return "to be switched on"
	case (n.stage == StageInstalling || n.stage == StageRebooting) && n.persistent.Provider != nil:
		if _, err := n.apidServerLocked(n.persistent); err != nil {
			return fmt.Sprintf("for a control plane: %v", err)
		}
	}

	return ""
}

func (n *Node) sleep(d time.Duration) { sleep(n.ctx, d) }

// sleep tells whether it was not woken by the context's end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
