package machinestate

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

const (
	oldHash = "0000"
	newHash = "1111"
)

// base is the time of the tables.
func base() time.Time { return time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC) }

func at(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(base().Add(d))) }

// pictureOf is a machine that answers, is well, runs what it was sent, and is to run it.
func pictureOf(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) picture {
	m.Status.ConfigHash = oldHash
	m.Status.Approval.Time = metav1.NewTime(base().Add(-time.Hour))
	m.Status.Configuration.AppliedAt = at(-time.Hour)

	return picture{
		machine: m, cluster: cluster, now: base(), bundleHash: bundleHash(0),
		want: wanted{hash: oldHash},
		seen: sighting{
			address: address(1), atEndpoint: true, runs: oldHash,
			status: machine.Status{Stage: machine.StageRunning, Ready: true},
		},
		asked: &neighbours{},
	}
}

func waiting(p *picture) {
	p.want.hash = newHash
	p.machine.Status.Update = &v1alpha1.MachineUpdate{Hash: newHash, Since: at(-time.Minute)}
}

func waitingForReboot(p *picture) {
	waiting(p)
	p.machine.Status.Update.RebootRequired = true
}

func asked(p *picture) {
	waitingForReboot(p)
	p.machine.Status.Reboot = &v1alpha1.MachineRebootStatus{RequestedAt: at(-time.Second), RequestedBy: "ada", Hash: newHash}
}

// begun is an update whose sending was begun some time ago.
func begun(ago time.Duration) func(*picture) {
	return func(p *picture) {
		waiting(p)
		p.machine.Status.Update.IntendedAt = at(-ago)
	}
}

func applied(ago time.Duration) func(*picture) {
	return func(p *picture) {
		begun(ago)(p)
		p.machine.Status.Update.AppliedAt = at(-ago)
		p.machine.Status.ConfigHash = newHash
		p.seen.runs = newHash
	}
}

// rebootBegun is a reboot into the update, begun some time ago; heard that the machine is known to have heard of it.
func rebootBegun(ago time.Duration, heard bool) func(*picture) {
	return func(p *picture) {
		asked(p)
		u, r := p.machine.Status.Update, p.machine.Status.Reboot
		u.IntendedAt, u.AppliedAt, r.IntendedAt = at(-ago), at(-ago), at(-ago)
		u.RebootRequired = !heard
		u.Since, r.RequestedAt = at(-ago-time.Minute), at(-ago-time.Second)
	}
}

// Req: T-15, T-18a
func TestAnUpdateGoesStepByStep(t *testing.T) {
	later := func(edits ...func(*picture)) func(*picture) {
		return func(p *picture) {
			for _, edit := range edits {
				edit(p)
			}
		}
	}

	for _, c := range []struct {
		name string
		edit func(*picture)
		want reason
		step step
		// update is what becomes of status.update: "", waits, reboot (waits for one), sent (has the turn), gone.
		update string
		hash   string
	}{
		{"nothing changed", func(*picture) {}, reasonUpToDate, stepNone, "", oldHash},
		{"nothing changed, and it does not answer", func(p *picture) { p.seen = sighting{absent: &problem{reasonUnreachable, ""}} }, reasonUpToDate, stepNone, "", oldHash},
		{"it changed: tried first", func(p *picture) { p.want.hash = newHash }, "", stepTry, "", oldHash},
		{"it was tried: no reboot", func(p *picture) { p.want.hash, p.trial = newHash, &trial{mode: machine.ModeNoReboot} }, reasonUpdating, stepApply, "waits", oldHash},
		{"it was tried, and the node does not tell", func(p *picture) { p.want.hash, p.trial = newHash, &trial{} }, reasonUpdating, stepApply, "waits", oldHash},
		{"it was tried: a reboot", func(p *picture) { p.want.hash, p.trial = newHash, &trial{mode: machine.ModeReboot} }, reasonRebootRequired, stepNone, "reboot", oldHash},
		{"it was tried: something unheard of", func(p *picture) { p.want.hash, p.trial = newHash, &trial{mode: "SOMETHING"} }, reasonRebootRequired, stepNone, "reboot", oldHash},
		{"it was tried: refused", func(p *picture) { p.want.hash, p.trial = newHash, &trial{problem: &problem{reasonRefused, ""}} }, reasonRefused, stepNone, "waits", oldHash},
		{"it could not be tried", func(p *picture) { p.want.hash, p.trial = newHash, &trial{problem: &problem{reasonMachineBusy, ""}} }, reasonMachineBusy, stepNone, "", oldHash},
		{"it was tried in an earlier look", waiting, reasonUpdating, stepApply, "waits", oldHash},
		{"it was refused in an earlier look: tried again", later(waiting, func(p *picture) {
			p.machine.Status.Conditions = append(p.machine.Status.Conditions, metav1.Condition{Type: ConditionUpToDate, Status: no, Reason: string(reasonRefused)})
		}), reasonRefused, stepTry, "waits", oldHash},
		{"something else waited", later(waiting, func(p *picture) { p.machine.Status.Update.Hash = "2222" }), "", stepTry, "", oldHash},
		{"it was taken back while it waited", later(waiting, func(p *picture) { p.want.hash = oldHash }), reasonUpToDate, stepNone, "", oldHash},
		{"the others were not asked yet", later(waiting, func(p *picture) { p.asked = nil }), "", stepAskPeers, "waits", oldHash},
		{"somebody took the turn", later(waiting, func(p *picture) { p.withheld = &problem{reasonWaitingForTurn, ""} }), reasonWaitingForTurn, stepNone, "waits", oldHash},
		{"it cannot be rendered", func(p *picture) { p.want = wanted{problem: &problem{reasonRenderFailed, ""}} }, reasonRenderFailed, stepNone, "", oldHash},
		{"another bundle", later(waiting, func(p *picture) { p.bundleHash = "other" }), reasonBundleRotated, stepNone, "waits", oldHash},
		{"it is not known which bundle", later(waiting, func(p *picture) { p.machine.Status.Configuration.BundleHash = "" }), reasonBundleRotated, stepNone, "waits", oldHash},
		{"it does not answer", later(waiting, func(p *picture) { p.seen = sighting{absent: &problem{reasonUnreachable, ""}} }), reasonNotAnswering, stepNone, "waits", oldHash},
		{"another machine answers", later(waiting, func(p *picture) { p.seen = sighting{absent: &problem{reasonIdentityMismatch, ""}} }), reasonNotAnswering, stepNone, "waits", oldHash},
		{"it answers elsewhere", later(waiting, func(p *picture) { p.seen.atEndpoint = false }), reasonAnswersElsewhere, stepNone, "waits", oldHash},
		{"it installs", later(waiting, func(p *picture) { p.seen.status.Stage = "installing" }), reasonMachineBusy, stepNone, "waits", oldHash},
		{"it does not come up, and the change may mend it", later(waiting, func(p *picture) { p.seen.status = machine.Status{Stage: "booting"} }), reasonUpdating, stepApply, "waits", oldHash},
		{"what it runs is not known", later(waiting, func(p *picture) { p.seen.runs = "" }), reasonMachineBusy, stepNone, "waits", oldHash},
		{"it runs it already, from elsewhere", later(waiting, func(p *picture) { p.seen.runs = newHash }), reasonUpToDate, stepNone, "", newHash},

		{"the intent stands, and it is early", begun(settling - time.Second), reasonUpdating, stepNone, "sent", oldHash},
		{"the intent stands, and it was not taken", begun(settling), reasonUpdating, stepApply, "waits", oldHash},
		{"the intent stands, and it was taken", later(begun(settling), func(p *picture) { p.seen.runs = newHash }), reasonUpToDate, stepNone, "sent", newHash},
		{"the intent stands, and it does not answer", later(begun(time.Hour), func(p *picture) { p.seen = sighting{absent: &problem{reasonUnreachable, ""}} }), reasonUpdating, stepNone, "sent", oldHash},
		{"the intent stands, it was not taken, and something else is wanted", later(begun(settling), func(p *picture) { p.want.hash = "2222" }), "", stepTry, "", oldHash},
		{"the intent stands, it was not taken, and cannot be rendered", later(begun(settling), func(p *picture) { p.want = wanted{problem: &problem{reasonRenderFailed, ""}} }), reasonRenderFailed, stepNone, "waits", oldHash},
		{"just sent", later(begun(0), func(p *picture) { p.sent = &effect{} }), reasonUpToDate, stepNone, "sent", newHash},
		{"just sent, and refused", later(begun(0), func(p *picture) { p.sent = &effect{failed: true, answer: answerRefused} }), reasonRefused, stepNone, "waits", oldHash},
		{"just sent, and not taken", later(begun(0), func(p *picture) { p.sent = &effect{failed: true, answer: answerNot} }), reasonMachineBusy, stepNone, "waits", oldHash},
		{"just sent, and nobody knows", later(begun(0), func(p *picture) { p.sent = &effect{failed: true, answer: answerPerhaps} }), reasonUpdating, stepNone, "sent", oldHash},
		{"it has it, and is well at once: that was before", applied(dwell - time.Second), reasonUpToDate, stepNone, "sent", newHash},
		{"it has it, and is well", applied(dwell), reasonUpToDate, stepNone, "", newHash},
		{"it has it, and is not well", later(applied(time.Hour), func(p *picture) { p.seen.status.Ready = false }), reasonUpToDate, stepNone, "sent", newHash},
		{"it has it, and does not answer", later(applied(time.Hour), func(p *picture) { p.seen = sighting{absent: &problem{reasonUnreachable, ""}} }), reasonUpToDate, stepNone, "sent", newHash},
		{"it has it, is not well, and something else is wanted", later(applied(time.Hour), func(p *picture) { p.seen.status.Ready, p.want.hash = false, "2222" }), "", stepTry, "", newHash},
		{"it has it, is not well, and cannot be rendered any more", later(applied(time.Hour), func(p *picture) {
			p.seen.status.Ready, p.want = false, wanted{problem: &problem{reasonRenderFailed, ""}}
		}), reasonRenderFailed, stepNone, "sent", newHash},
		{"it has it, and was changed by hand since", later(applied(time.Hour), func(p *picture) { p.seen.runs = "3333" }), reasonUpToDate, stepNone, "sent", newHash},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pictureOf(worker(1), newCluster())
			c.edit(&p)

			status, step := decide(p)
			if step != c.step {
				t.Errorf("step %d, want %d", step, c.step)
			}

			if c.want != "" {
				expectReasons(t, status, c.want)
			}

			if have := describe(status.Update); have != c.update {
				t.Errorf("update is %q, want %q: %+v", have, c.update, status.Update)
			}

			if status.ConfigHash != c.hash {
				t.Errorf("configHash %q, want %q", status.ConfigHash, c.hash)
			}
		})
	}
}

func describe(u *v1alpha1.MachineUpdate) string {
	switch {
	case u == nil:
		return ""
	case u.IntendedAt != nil && u.RebootRequired:
		return "sent, reboot"
	case u.IntendedAt != nil:
		return "sent"
	case u.RebootRequired:
		return "reboot"
	}

	return "waits"
}

// Req: T-18a
func TestARebootIsAskedForOnceAndHappensOnceForExactlyItsConfiguration(t *testing.T) {
	after := func(edits ...func(*picture)) func(*picture) {
		return func(p *picture) {
			for _, edit := range edits {
				edit(p)
			}
		}
	}

	for _, c := range []struct {
		name   string
		edit   func(*picture)
		want   reason
		step   step
		update string
		done   bool
	}{
		{"nobody asked", waitingForReboot, reasonRebootRequired, stepNone, "reboot", false},
		{"asked", asked, reasonRebooting, stepStage, "reboot", false},
		{"asked for another configuration", after(asked, func(p *picture) { p.machine.Status.Reboot.Hash = "2222" }), reasonRebootRequired, stepNone, "reboot", false},
		{"asked for none by name", after(asked, func(p *picture) { p.machine.Status.Reboot.Hash = "" }), reasonRebootRequired, stepNone, "reboot", false},
		{"asked before the approval that stands", after(asked, func(p *picture) { p.machine.Status.Approval.Time = *at(0) }), reasonRebootRequired, stepNone, "reboot", false},
		{"asked before the change was there", after(asked, func(p *picture) { p.machine.Status.Reboot.RequestedAt = at(-2 * time.Minute) }), reasonRebootRequired, stepNone, "reboot", false},
		{"asked, and done already", after(asked, func(p *picture) { p.machine.Status.Reboot.CompletedAt = at(0) }), reasonRebootRequired, stepNone, "reboot", true},
		{"asked, and something else is wanted now", after(asked, func(p *picture) { p.want.hash = "2222" }), "", stepTry, "", false},
		{"asked, with another bundle", after(asked, func(p *picture) { p.bundleHash = "other" }), reasonBundleRotated, stepNone, "reboot", false},
		{"asked, while the others were not asked", after(asked, func(p *picture) { p.asked = nil }), "", stepAskPeers, "reboot", false},
		{"asked, and etcd is not whole", after(asked, func(p *picture) { p.asked.etcd = []etcdView{{problem: "no"}} }), reasonWaitingForHealth, stepNone, "reboot", false},

		{"staged", after(asked, func(p *picture) { p.machine.Status.Update.IntendedAt, p.sent = at(0), &effect{} }), reasonRebooting, stepReboot, "sent, reboot", false},
		{"not staged", after(asked, func(p *picture) {
			p.machine.Status.Update.IntendedAt, p.sent = at(0), &effect{failed: true, answer: answerRefused}
		}), reasonRefused, stepNone, "reboot", false},
		{"perhaps staged: waited for", after(asked, func(p *picture) { p.machine.Status.Update.IntendedAt = at(-time.Second) }), reasonUpdating, stepNone, "sent, reboot", false},
		{"perhaps staged, some time ago: begun anew", after(asked, func(p *picture) { p.machine.Status.Update.IntendedAt = at(-settling) }), reasonRebooting, stepStage, "reboot", false},

		{"it heard", after(rebootBegun(0, false), func(p *picture) { p.rebooted = &effect{} }), reasonRebooting, stepNone, "sent", false},
		{"it perhaps heard, just now", after(rebootBegun(0, false), func(p *picture) { p.rebooted = &effect{failed: true, answer: answerPerhaps} }), reasonRebooting, stepNone, "sent", false},
		{"it cannot now", after(rebootBegun(0, false), func(p *picture) { p.rebooted = &effect{failed: true, answer: answerNot} }), reasonRebooting, stepNone, "sent, reboot", false},
		{"it will not", after(rebootBegun(0, false), func(p *picture) { p.rebooted = &effect{failed: true, answer: answerRefused} }), reasonRebootFailed, stepNone, "reboot", false},

		{"nobody knows whether it heard: waited for", rebootBegun(rebootSettling-time.Second, false), reasonRebooting, stepNone, "sent, reboot", false},
		{"nobody knows, and it shows no sign: told again", rebootBegun(rebootSettling, false), reasonRebooting, stepReboot, "sent, reboot", false},
		{"nobody knows, and it goes down", after(rebootBegun(rebootSettling, false), func(p *picture) { p.seen.status.Stage = "rebooting" }), reasonRebooting, stepNone, "sent, reboot", false},
		{"nobody knows, and it is gone", after(rebootBegun(rebootSettling, false), func(p *picture) { p.seen = sighting{absent: &problem{reasonUnreachable, ""}} }), reasonRebooting, stepNone, "sent, reboot", false},
		{"nobody knows, and something else is wanted", after(rebootBegun(rebootSettling, false), func(p *picture) { p.want.hash = "2222" }), reasonRebootRequired, stepNone, "reboot", false},
		{"nobody knows, and it was approved anew", after(rebootBegun(rebootSettling, false), func(p *picture) { p.machine.Status.Approval.Time = *at(0) }), reasonRebootRequired, stepNone, "reboot", false},
		{"nobody knows, for long: given up", rebootBegun(rebootTime+time.Second, false), reasonRebootFailed, stepNone, "reboot", false},
		{"nobody knows, and it runs it", after(rebootBegun(rebootSettling, false), func(p *picture) { p.seen.runs = newHash }), reasonUpToDate, stepNone, "", true},

		{"it heard, and is waited for", rebootBegun(rebootTime, true), reasonRebooting, stepNone, "sent", false},
		{"it heard, and is gone for long", after(rebootBegun(time.Hour, true), func(p *picture) { p.seen = sighting{absent: &problem{reasonUnreachable, ""}} }), reasonRebooting, stepNone, "sent", false},
		{"it heard, and is back with the old one: never told again", rebootBegun(rebootTime+time.Second, true), reasonRebootFailed, stepNone, "reboot", false},
		{"it heard, and is back with it", after(rebootBegun(time.Minute, true), func(p *picture) { p.seen.runs = newHash }), reasonUpToDate, stepNone, "", true},
		{"it heard, and is back with it, not well", after(rebootBegun(time.Minute, true), func(p *picture) { p.seen.runs, p.seen.status.Ready = newHash, false }), reasonUpToDate, stepNone, "sent", true},
		{"a reboot failed, and is asked for again", after(asked, func(p *picture) { p.machine.Status.Reboot.RequestedAt = at(0) }), reasonRebooting, stepStage, "reboot", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pictureOf(worker(1), newCluster())
			c.edit(&p)

			status, step := decide(p)
			if step != c.step {
				t.Errorf("step %d, want %d", step, c.step)
			}

			if c.want != "" {
				expectReasons(t, status, c.want)
			}

			if have := describe(status.Update); have != c.update {
				t.Errorf("update is %q, want %q: %+v", have, c.update, status.Update)
			}

			if done := status.Reboot != nil && status.Reboot.CompletedAt != nil; done != c.done {
				t.Errorf("completed: %t", done)
			}

			for _, condition := range status.Conditions {
				if condition.Type == ConditionRebootRequired && (condition.Status == yes) != (status.Update != nil && status.Update.RebootRequired) {
					t.Errorf("RebootRequired is %+v", condition)
				}
			}

			if c.want == reasonRebootRequired && c.update == "reboot" && !strings.HasPrefix(c.name, "nobody knows") {
				for _, condition := range status.Conditions {
					if condition.Type == ConditionUpToDate && !strings.Contains(condition.Message, "kubectl fieldplane reboot machine "+p.machine.Name) {
						t.Errorf("nobody is told what to do: %s", condition.Message)
					}
				}
			}
		})
	}
}

// Req: T-18a
func TestPhaseAndReadinessAreWhatTheMachineSays(t *testing.T) {
	silent := sighting{absent: &problem{reasonUnreachable, "nothing answers"}}
	says := func(stage string, ready bool) sighting {
		return sighting{atEndpoint: true, status: machine.Status{Stage: stage, Ready: ready}}
	}

	for _, c := range []struct {
		name  string
		was   v1alpha1.MachinePhase
		since time.Duration
		seen  sighting
		want  reason
		phase v1alpha1.MachinePhase
	}{
		{"it runs", v1alpha1.MachineInstalling, time.Minute, says("running", true), reasonReady, v1alpha1.MachineRunning},
		{"it runs, and waits", v1alpha1.MachineInstalling, time.Minute, says("running", false), reasonNotReady, v1alpha1.MachineRunning},
		{"it installs", v1alpha1.MachineInstalling, time.Minute, says("installing", false), reasonNotRunning, v1alpha1.MachineInstalling},
		{"it does not tell", v1alpha1.MachineInstalling, time.Minute, says("", false), reasonNotRunning, v1alpha1.MachineInstalling},
		{"it is silent", v1alpha1.MachineInstalling, time.Minute, silent, reasonUnreachable, v1alpha1.MachineInstalling},
		{"it is silent for too long", v1alpha1.MachineInstalling, installTime + 1, silent, reasonInstallTimedOut, v1alpha1.MachineFailed},
		{"it boots for too long", v1alpha1.MachineInstalling, installTime + 1, says("booting", false), reasonInstallTimedOut, v1alpha1.MachineFailed},
		{"it runs after all", v1alpha1.MachineFailed, time.Hour, says("running", false), reasonNotReady, v1alpha1.MachineRunning},
		{"it ran, and is silent", v1alpha1.MachineRunning, time.Hour, silent, reasonUnreachable, v1alpha1.MachineRunning},
		{"it ran, and reboots", v1alpha1.MachineRunning, time.Hour, says("rebooting", false), reasonNotRunning, v1alpha1.MachineRunning},
		{"it is back in maintenance", v1alpha1.MachineRunning, time.Hour, sighting{absent: &problem{reasonBackInMaintenance, ""}}, reasonBackInMaintenance, v1alpha1.MachineFailed},
		{"another is there", v1alpha1.MachineInstalling, time.Hour, sighting{absent: &problem{reasonIdentityMismatch, ""}}, reasonIdentityMismatch, v1alpha1.MachineFailed},
		{"its state cannot be read", v1alpha1.MachineRunning, time.Hour, sighting{statusProblem: &problem{reasonNodeError, ""}}, reasonNodeError, v1alpha1.MachineRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pictureOf(worker(1), newCluster())
			p.machine.Status.Phase = c.was
			p.machine.Status.Configuration.AppliedAt = at(-c.since)
			p.seen = c.seen

			status, _ := decide(p)
			expectReasons(t, status, c.want)

			if status.Phase != c.phase {
				t.Errorf("phase %s, want %s", status.Phase, c.phase)
			}
		})
	}
}

// Req: T-18a
func TestWhoseTurnItIs(t *testing.T) {
	changed := func(m *v1alpha1.TalosMachine) { m.Status.ConfigHash = oldHash }
	withUpdate := func(u v1alpha1.MachineUpdate, r reason) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.ConfigHash, m.Status.Update = oldHash, &u
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: ConditionUpToDate, Status: no, Reason: string(r)})
		}
	}
	unready := func(m *v1alpha1.TalosMachine) { m.Status.Conditions[0].Status = unknown }
	notBootstrapped := func(p *picture) { p.cluster.Status.Bootstrap = nil }
	whole := []etcdView{{machine: "a", members: []uint64{1, 2}}, {machine: "b", members: []uint64{2, 1}}}
	none := []etcdView{{machine: "a", none: true}, {machine: "b", none: true}}

	for _, c := range []struct {
		name  string
		self  *v1alpha1.TalosMachine
		peers []peer
		edit  func(*picture)
		want  reason // Updating: it goes
	}{
		{"alone", worker(1), nil, nil, reasonUpdating},
		{"beside one that is well", worker(1), []peer{{worker(2), oldHash}}, nil, reasonUpdating},
		{"another has the turn", worker(1), []peer{{worker(2, withUpdate(v1alpha1.MachineUpdate{Hash: newHash, IntendedAt: at(0)}, "")), ""}}, nil, reasonWaitingForTurn},
		{"another had it, and is well with it but for the record", worker(1), []peer{{worker(2, withUpdate(v1alpha1.MachineUpdate{Hash: newHash, IntendedAt: at(0), AppliedAt: at(0)}, "")), ""}}, nil, reasonWaitingForTurn},
		{"one that was un-approved has no turn", worker(1), []peer{{worker(2, withUpdate(v1alpha1.MachineUpdate{Hash: newHash, IntendedAt: at(0)}, ""), func(m *v1alpha1.TalosMachine) { m.Spec.Approved = nil }), ""}}, nil, reasonUpdating},
		{"another is not ready", worker(1), []peer{{worker(2, unready), oldHash}}, nil, reasonWaitingForHealth},
		{"another never ran", worker(1), []peer{{worker(2, installing), oldHash}}, nil, reasonUpdating},
		{"another says now that it is not ready", worker(1), nil, func(p *picture) { p.asked.unready, p.asked.etcd = "b is not", whole }, reasonWaitingForHealth},
		{"a control plane, when no worker waits", controlPlane(1), []peer{{worker(2, changed), oldHash}}, nil, reasonUpdating},
		{"a control plane, when a worker waits", controlPlane(1), []peer{{worker(2, changed), newHash}}, nil, reasonWaitingForTurn},
		{"a control plane, when a control plane waits", controlPlane(1), []peer{{controlPlane(2, changed), newHash}}, nil, reasonUpdating},
		{"a control plane, when a worker never ran", controlPlane(1), []peer{{worker(2, installing, changed), newHash}}, nil, reasonUpdating},
		{"a control plane, when a worker cannot be rendered", controlPlane(1), []peer{{worker(2, changed), ""}}, nil, reasonUpdating},
		{"a control plane, when a worker waits for a reboot", controlPlane(1), []peer{{worker(2, withUpdate(v1alpha1.MachineUpdate{Hash: newHash, RebootRequired: true}, reasonRebootRequired)), newHash}}, nil, reasonUpdating},
		{"a control plane, when a worker waited for a reboot of before", controlPlane(1), []peer{{worker(2, withUpdate(v1alpha1.MachineUpdate{Hash: "2222", RebootRequired: true}, reasonRebootRequired)), newHash}}, nil, reasonWaitingForTurn},
		{"a control plane, when a worker refuses", controlPlane(1), []peer{{worker(2, withUpdate(v1alpha1.MachineUpdate{Hash: newHash}, reasonRefused)), newHash}}, nil, reasonUpdating},
		{"a worker, when a worker waits", worker(1), []peer{{worker(2, changed), newHash}}, nil, reasonUpdating},
		{"etcd is whole", worker(1), nil, func(p *picture) { p.asked.etcd = whole }, reasonUpdating},
		{"etcd does not answer", worker(1), nil, func(p *picture) { p.asked.etcd = []etcdView{whole[0], {machine: "b", problem: "no"}} }, reasonWaitingForHealth},
		{"etcd lacks a member", worker(1), nil, func(p *picture) { p.asked.etcd = []etcdView{whole[0], whole[1], {machine: "c", none: true}} }, reasonWaitingForHealth},
		{"etcd has a member too many", worker(1), nil, func(p *picture) { p.asked.etcd = whole[:1] }, reasonWaitingForHealth},
		{"etcd has other members here and there", worker(1), nil, func(p *picture) { p.asked.etcd = []etcdView{whole[0], {machine: "b", members: []uint64{2, 3}}} }, reasonWaitingForHealth},
		{"etcd learns", worker(1), nil, func(p *picture) {
			p.asked.etcd = []etcdView{whole[0], {machine: "b", members: []uint64{1, 2}, learners: 1}}
		}, reasonWaitingForHealth},
		{"etcd is gone", worker(1), nil, func(p *picture) { p.asked.etcd = none }, reasonWaitingForHealth},
		{"there is no etcd yet, so nobody is ready", worker(1), []peer{{controlPlane(2, unready), oldHash}}, func(p *picture) {
			notBootstrapped(p)
			p.asked = &neighbours{unready: "b is not", etcd: none}
		}, reasonUpdating},
		{"etcd was bootstrapped by somebody else", worker(1), []peer{{controlPlane(2, unready), oldHash}}, func(p *picture) {
			notBootstrapped(p)
			p.asked = &neighbours{unready: "b is not", etcd: whole}
		}, reasonWaitingForHealth},
		{"etcd is half there", worker(1), nil, func(p *picture) {
			notBootstrapped(p)
			p.asked = &neighbours{etcd: []etcdView{none[0], whole[1]}}
		}, reasonWaitingForHealth},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pictureOf(c.self, newCluster())
			p.peers = c.peers
			waiting(&p)

			if c.edit != nil {
				c.edit(&p)
			}

			status, step := decide(p)
			expectReasons(t, status, c.want)

			if (step == stepApply) != (c.want == reasonUpdating) || step != stepApply && step != stepNone {
				t.Errorf("step %d", step)
			}
		})
	}
}

// A reboot of a control plane that somebody asked for does not wait for the workers.
// Req: T-18a
func TestARebootThatWasAskedForDoesNotWaitForItsPlaceInTheRow(t *testing.T) {
	p := pictureOf(controlPlane(1), newCluster())
	p.peers = []peer{{worker(2), "2222"}}
	asked(&p)

	if _, step := decide(p); step != stepStage {
		t.Errorf("step %d", step)
	}
}

// Req: T-15
func TestEveryErrorOfAMachineHasAMeaning(t *testing.T) {
	for _, c := range []struct {
		class  machine.Class
		ask    reason
		answer answer
	}{
		{machine.ClassUnreachable, reasonUnreachable, answerPerhaps},
		{machine.ClassNotTalos, reasonNotTalos, answerPerhaps},
		{machine.ClassInMaintenance, reasonBackInMaintenance, answerPerhaps},
		{machine.ClassUntrusted, reasonUntrusted, answerPerhaps},
		{machine.ClassDenied, reasonDenied, answerNot},
		{machine.ClassIdentityAbsent, reasonIdentityAbsent, answerPerhaps},
		{machine.ClassNotBootstrapped, reasonNodeError, answerPerhaps},
		{machine.ClassAlreadyBootstrapped, reasonNodeError, answerPerhaps},
		{machine.ClassBusy, reasonNodeError, answerNot},
		{machine.ClassRejected, reasonNodeError, answerRefused},
		{machine.ClassOutcomeUnknown, reasonUnreachable, answerPerhaps},
		{machine.ClassNodeError, reasonNodeError, answerPerhaps},
		{machine.ClassInvalidAccess, reason(bundle.Invalid), answerNot},
		{"", reasonNodeError, answerPerhaps},
	} {
		if ask, answer := unheard(c.class), answerOf(c.class); ask != c.ask || answer != c.answer {
			t.Errorf("%q: asking means %s, want %s; changing means %d, want %d", c.class, ask, c.ask, answer, c.answer)
		}
	}
}

func TestMeaningsAreConsistent(t *testing.T) {
	for r, m := range meanings() {
		switch {
		case m.condition == "" || m.status == "":
			t.Errorf("%s: %+v", r, m)
		case m.condition == ConditionReady && m.status == unknown && m.retry == retrySoon && r != reasonLeavingMaintenance && r != reason(bundle.NotFound):
			t.Errorf("%s: a machine that is not heard is asked at a steady pace", r)
		case m.event == warning && m.status == yes && m.condition != ConditionDrifted:
			t.Errorf("%s: a warning of what is well", r)
		}
	}
}
