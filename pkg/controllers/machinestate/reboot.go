package machinestate

import (
	"fmt"
	"time"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const (
	// rebootTime is how long a machine may take to be back from a reboot, of those in which it answers.
	rebootTime = 10 * time.Minute
	// rebootSettling is how long after an attempt with an unknown end a machine that answers may still be about to reboot.
	rebootSettling = 2 * time.Minute
)

// A reboot is asked for once and happens once, for exactly the configuration it was asked for (T-18a). How far it is
// stands in status, so that whoever takes over goes on from there:
//
//	update.rebootRequired  update.intendedAt  reboot.intendedAt
//	true                   –                  –                  it waits to be asked for
//	true                   set                –                  the configuration is being staged
//	true                   set                set                the machine is being rebooted; perhaps it heard of it
//	false                  set                set                it heard: nobody reboots it again, whatever it runs
//	true                   –                  set                it heard, and is not back with it: to be asked for again

// rebooting tells whether a reboot into the update under way was intended and is not over.
func rebooting(status *v1alpha1.TalosMachineStatus) bool {
	u, r := status.Update, status.Reboot

	return underway(u) && r != nil && r.Hash == u.Hash && r.IntendedAt != nil && r.CompletedAt == nil &&
		!r.IntendedAt.Before(u.IntendedAt)
}

// settleReboot ends a request for what the machine runs by now.
func (d *decision) settleReboot() {
	if r := d.status.Reboot; r != nil && r.CompletedAt == nil && r.Hash != "" && r.Hash == d.seen.runs {
		r.CompletedAt = d.stamp()
	}
}

// rebootSettles gives up a reboot of which nothing came.
func (d *decision) rebootSettles(u *v1alpha1.MachineUpdate) {
	began := d.status.Reboot.IntendedAt.Time
	if u.RebootRequired { // each attempt has a time of its own, and all have one end
		began = u.IntendedAt.Time
	}

	if d.seen.steady() && d.now.Sub(began) > rebootTime {
		d.giveBack(true)
	}
}

// awaitReboot has an update wait for its reboot, and goes when it was asked for.
func (d *decision) awaitReboot() {
	u, r := d.status.Update, d.status.Reboot

	const ask = "needs a reboot; ask for it: kubectl fieldplane reboot machine "

	switch {
	case r == nil || r.CompletedAt != nil:
		d.set(reasonRebootRequired, "the changed configuration "+ask+d.machine.Name)
	case r.Hash != u.Hash:
		d.set(reasonRebootRequired, "the reboot that was asked for was for another configuration; this one "+ask+d.machine.Name)
	case r.IntendedAt != nil:
		d.set(reasonRebootFailed, "the machine was rebooted, or was to be, and does not run the changed configuration: look at its console; it still "+ask+d.machine.Name)
	case void(d.machine, u, r):
		d.set(reasonRebootRequired, "the reboot was asked for before the machine was approved as it is now, or before this change; the changed configuration "+ask+d.machine.Name)
	case d.mayGo(true):
		d.set(reasonRebooting, fmt.Sprintf("the configuration is being sent to %s, for the reboot that %s asked for", d.seen.address, r.RequestedBy))
		d.step = stepStage
	}
}

// void tells whether a request is older than the approval that stands, or than the change that waits now: a change that
// was taken back, and comes again, has to be asked for again.
func void(m *v1alpha1.TalosMachine, u *v1alpha1.MachineUpdate, r *v1alpha1.MachineRebootStatus) bool {
	approval := m.Status.Approval

	return r.RequestedAt == nil || approval != nil && r.RequestedAt.Before(&approval.Time) || r.RequestedAt.Before(u.Since)
}

// whileRebooting waits for the machine. Whether it heard of the reboot may not be known, when a process ended in between;
// then it is told again, if it shows no sign of it.
func (d *decision) whileRebooting(u *v1alpha1.MachineUpdate) {
	r := d.status.Reboot

	told := !u.RebootRequired
	noSign := d.seen.steady() && d.seen.runs != "" && d.now.Sub(r.IntendedAt.Time) >= rebootSettling

	d.set(reasonRebooting, "the machine is waited for until it is back with the changed configuration")

	if told || !noSign || !d.seen.atEndpoint {
		return
	}

	if d.want.hash != u.Hash || void(d.machine, u, r) || d.status.Configuration.BundleHash != d.bundleHash {
		d.giveBack(true)
		d.set(reasonRebootRequired, "the changed configuration waits")

		return
	}

	d.step = stepReboot
}

// afterReboot is a reboot that the machine was just told of.
func (d *decision) afterReboot(u *v1alpha1.MachineUpdate) {
	switch {
	case !d.rebooted.failed:
		u.RebootRequired = false
		d.set(reasonRebooting, "the machine reboots, and is waited for until it is back with the changed configuration")
	case d.rebooted.answer == answerPerhaps:
		// It may be going down just because of it.
		u.RebootRequired = false
		d.set(reasonRebooting, "the machine was told to reboot, and is waited for until it is back with the changed configuration: "+d.rebooted.message)
	case d.rebooted.answer == answerNot:
		d.set(reasonRebooting, "the machine did not hear of its reboot yet: "+d.rebooted.message)
	default:
		d.giveBack(true)
		d.set(reasonRebootFailed, "the machine refuses to reboot; it has to be asked for again: "+d.rebooted.message)
	}
}

// rebootRequired is the condition of that name.
func (d *decision) rebootRequired() {
	if u := d.status.Update; u != nil && u.RebootRequired {
		d.condition(ConditionRebootRequired, yes, reasonRebootRequired,
			"a changed configuration waits for a reboot; ask for it: kubectl fieldplane reboot machine "+d.machine.Name)

		return
	}

	d.set(reasonNotRequired, "nothing waits for a reboot")
}
