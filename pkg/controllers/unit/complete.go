package unit

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// confirmationPause is how often a Unit that is about to run again looks whether its modules have been measured.
const confirmationPause = 500 * time.Millisecond

// complete ends a transient state once the runtime reports that it has done all that it was told of it, and of the Unit as it is
// stored now (P-16b). Nothing else ends one.
func (d *draft) complete() {
	if d.moved || !isa88.Transient(d.state()) || !d.runtime.applied(d.unit) {
		return
	}
	next, ok := isa88.Completed(d.state())
	if !ok {
		return
	}
	if next == isa88.Running && !d.mayRun() {
		return
	}
	d.transit(next, "the runtime has done it")
}

// mayRun tells whether a Unit that restarts may run now: its modules are looked at once more (P-16c). One that is not Online
// sends it back to Holding; one that was not measured yet, or a runtime that does not answer, is waited for.
func (d *draft) mayRun() bool {
	if !d.live {
		d.readLive = true
		return false
	}
	var causes []v1alpha1.UnitHoldCause
	wait := !d.runtime.inContact
	for _, m := range d.modules {
		switch {
		case d.overridden(m) || m.obstacle() == "":
		case m.state != v1alpha1.ModuleOnline:
			// Neither missing nor in a state of spec.holdOn: the level check came first.
			cause := v1alpha1.HoldCauseIOModuleFault
			if m.state == v1alpha1.ModuleUnknown {
				cause = v1alpha1.HoldCauseIOModuleUnknown
			}
			causes = append(causes, v1alpha1.UnitHoldCause{Cause: cause, Module: m.name, At: inSeconds(m.since), Message: notice.Bounded(m.describe())})
		default:
			wait = true
		}
	}
	if len(causes) > 0 {
		d.hold(causes, corev1.EventTypeWarning)
		return false
	}
	if wait {
		d.again(confirmationPause)
	}
	return !wait
}
