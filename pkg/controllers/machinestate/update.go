package machinestate

import (
	"fmt"
	"time"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

const (
	// settling is how long after an attempt with an unknown end it may still take effect.
	settling = 30 * time.Second
	// dwell is how long a machine must have had a configuration before it counts as well with it.
	dwell = 10 * time.Second
)

// trial is what a machine said to a configuration that it only tried.
type trial struct {
	mode machine.Mode
	// problem is why it could not be tried, or is refused.
	problem *problem
}

// holdsTurn tells whether a machine has its cluster's turn: something was, or may have been, sent to it, and it is not
// known to be well with it. It holds through a crash and another leader, since it is written down.
func holdsTurn(m *v1alpha1.TalosMachine) bool { return followed(m) && underway(m.Status.Update) }

func underway(u *v1alpha1.MachineUpdate) bool { return u != nil && u.IntendedAt != nil }

// perhapsSent tells that an attempt was begun whose end is not known.
func perhapsSent(u *v1alpha1.MachineUpdate) bool { return underway(u) && u.AppliedAt == nil }

// settle finds out, by what the machine runs, what has become of what was begun.
func (d *decision) settle() {
	s := d.status

	switch u := s.Update; {
	case d.seen.runs == "":
	case underway(u) && d.seen.runs == u.Hash:
		d.taken(u)
	case underway(u):
		d.notTaken(u)
	case d.want.hash != "" && d.seen.runs == d.want.hash:
		// Somebody brought it there by hand, or the record of it was lost.
		s.ConfigHash = d.want.hash
	}

	if d.seen.runs != "" && d.seen.runs == d.want.hash && s.Configuration.BundleHash == "" {
		s.Configuration.BundleHash = d.bundleHash
	}

	if s.Update != nil && !underway(s.Update) && d.want.hash != "" && s.Update.Hash != d.want.hash {
		s.Update = nil // it waited, and is no longer wanted
	}

	d.settleReboot()
}

// taken is an update that the machine runs. The turn goes on when the machine is well with it.
func (d *decision) taken(u *v1alpha1.MachineUpdate) {
	d.status.ConfigHash = u.Hash
	u.RebootRequired = false

	if u.AppliedAt == nil {
		u.AppliedAt = d.stamp()
	}

	if d.now.Sub(u.AppliedAt.Time) < dwell {
		return
	}

	well := d.seen.healthy() || d.seen.steady() && !bootstrapped(d.cluster)

	// One that is not well with it may be mended by the next; the others wait for its health.
	if well || d.want.hash != "" && d.want.hash != u.Hash {
		d.status.Update = nil
	}
}

// notTaken is an update that the machine does not run.
func (d *decision) notTaken(u *v1alpha1.MachineUpdate) {
	switch {
	case rebooting(d.status):
		d.rebootSettles(u)
	case u.AppliedAt != nil && d.status.ConfigHash == u.Hash:
		// It had it, and was changed since; that shows as drift.
		if d.want.hash != "" && d.want.hash != u.Hash && d.now.Sub(u.AppliedAt.Time) >= dwell {
			d.status.Update = nil
		}
	case d.seen.steady() && d.now.Sub(u.IntendedAt.Time) >= settling:
		d.giveBack(u.RebootRequired)
	}
}

// giveBack ends an attempt of which nothing came: the turn is free, and the update waits again.
func (d *decision) giveBack(rebootRequired bool) {
	u := d.status.Update
	d.status.Update = &v1alpha1.MachineUpdate{Hash: u.Hash, Since: u.Since, RebootRequired: rebootRequired}
}

// update goes from what is rendered to what the machine runs, and stops at the first thing that is in the way.
func (d *decision) update() {
	s := d.status

	switch {
	case underway(s.Update):
		d.underway(s.Update)
	case d.want.problem != nil:
		d.set(d.want.problem.reason, d.want.problem.message)
	case d.want.hash == s.ConfigHash:
		s.Update = nil
		d.set(reasonUpToDate, "the machine was sent what is rendered for it")
	case s.Configuration.BundleHash != d.bundleHash:
		d.set(reasonBundleRotated, fmt.Sprintf(
			"the bundle in Secret %s is not the one that the machine was configured with, so nothing is sent: put that one back",
			d.cluster.Spec.SecretsRef.Name))
	case d.seen.absent != nil:
		d.set(reasonNotAnswering, "a change waits until the machine answers")
	case !d.seen.atEndpoint:
		d.set(reasonAnswersElsewhere, fmt.Sprintf(
			"a change waits: it is sent to spec.endpoint alone, which is %q, and the machine answers at %s; set spec.endpoint (talosmachines/endpoint)",
			d.machine.Spec.Endpoint, d.seen.address))
	case d.seen.runs == "":
		d.set(reasonMachineBusy, "a change waits until it can be read what the machine runs")
	case !d.seen.steady():
		d.set(reasonMachineBusy, "a change waits until the machine runs: its stage is "+stageOf(d.seen.status))
	default:
		d.advance()
	}
}

// advance has the change tried, and then sent.
func (d *decision) advance() {
	if !d.tried() {
		return
	}

	if d.status.Update.RebootRequired {
		d.awaitReboot()

		return
	}

	if d.mayGo(false) {
		d.set(reasonUpdating, fmt.Sprintf("the configuration is being sent to %s", d.seen.address))
		d.step = stepApply
	}
}

// tried tells whether it is known that the machine would take the change, and how.
func (d *decision) tried() bool {
	s := d.status

	if d.trial == nil {
		// A refusal is asked about again: the machine may have changed.
		if s.Update != nil && reasonOf(s, ConditionUpToDate) != reasonRefused {
			return true
		}

		d.step = stepTry

		return false
	}

	if problem := d.trial.problem; problem != nil && problem.reason != reasonRefused {
		d.set(problem.reason, problem.message)

		return false
	}

	since := d.stamp()
	if s.Update != nil && s.Update.Since != nil {
		since = s.Update.Since
	}

	s.Update = &v1alpha1.MachineUpdate{Hash: d.want.hash, Since: since}

	if problem := d.trial.problem; problem != nil {
		d.set(problem.reason, problem.message)

		return false
	}

	switch d.trial.mode {
	case machine.ModeNoReboot, "": // whoever does not tell refuses later, if it cannot without
	default:
		s.Update.RebootRequired = true
	}

	return true
}

// underway is an update that was begun.
func (d *decision) underway(u *v1alpha1.MachineUpdate) {
	switch {
	case d.rebooted != nil:
		d.afterReboot(u)
	case d.sent != nil:
		d.afterSending(u)
	case rebooting(d.status):
		d.whileRebooting(u)
	case perhapsSent(u):
		d.set(reasonUpdating, "whether the machine took the configuration is found out by what it runs")
	case d.want.problem != nil:
		d.set(d.want.problem.reason, d.want.problem.message)
	case d.want.hash == u.Hash:
		d.set(reasonUpToDate, "the machine was sent what is rendered for it, and is waited for until it is ready")
	default:
		d.set(reasonUpdating, "a further change waits until the machine is ready with the one before")
	}
}

// afterSending is an update whose sending just ended.
func (d *decision) afterSending(u *v1alpha1.MachineUpdate) {
	switch {
	case !d.sent.failed && u.RebootRequired:
		d.set(reasonRebooting, "the machine has the configuration for its next reboot, and is being rebooted")
		d.step = stepReboot
	case !d.sent.failed:
		u.AppliedAt = d.stamp()
		d.status.ConfigHash = u.Hash
		d.set(reasonUpToDate, "the machine took the configuration, and is waited for until it is ready")
	case d.sent.answer == answerRefused:
		d.giveBack(u.RebootRequired)
		d.set(reasonRefused, "the machine refuses the configuration: "+d.sent.message)
	case d.sent.answer == answerNot:
		d.giveBack(u.RebootRequired)
		d.set(reasonMachineBusy, "the machine did not take the configuration: "+d.sent.message)
	default:
		d.set(reasonUpdating, "whether the machine took the configuration is not known, and found out by what it runs: "+d.sent.message)
	}
}
