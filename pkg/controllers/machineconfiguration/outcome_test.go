package machineconfiguration

import (
	"testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Req: T-15, T-18
func TestEveryErrorOfAMachineHasAMeaning(t *testing.T) {
	for _, c := range []struct {
		class      maintenance.Class
		ask, apply reason
	}{
		{maintenance.ClassUnreachable, reasonUnreachable, reasonOutcomeUnknown},
		{maintenance.ClassNotTalos, reasonNotTalos, reasonOutcomeUnknown},
		{maintenance.ClassNotInMaintenance, reasonNotInMaintenance, reasonNotInMaintenance},
		{maintenance.ClassIdentityAbsent, reasonIdentityAbsent, reasonOutcomeUnknown},
		{maintenance.ClassNodeError, reasonNodeError, reasonOutcomeUnknown},
		{maintenance.ClassRejected, reasonUnreachable, reasonRefused},
		{maintenance.ClassBusy, reasonUnreachable, reasonMachineBusy},
		{maintenance.ClassOutcomeUnknown, reasonUnreachable, reasonOutcomeUnknown},
		{"", reasonUnreachable, reasonOutcomeUnknown},
	} {
		if ask, apply := askReason(c.class), applyReason(c.class); ask != c.ask || apply != c.apply {
			t.Errorf("%q: asking means %s, want %s; sending means %s, want %s", c.class, ask, c.ask, apply, c.apply)
		}
	}
}

// Req: T-11, T-15
func TestOutcomesAreConsistent(t *testing.T) {
	for r, o := range outcomes() {
		switch {
		case o.phase == v1alpha1.MachineFailed && o.problem == "":
			t.Errorf("%s: failed without a condition that says why", r)
		case o.configured == yes && (o.phase != v1alpha1.MachineInstalling || o.problem != "" || o.retry != retryNever):
			t.Errorf("%s: configured, and yet %+v", r, o)
		case o.configured == unknown && o.retry == retryNever:
			t.Errorf("%s: never found out", r)
		case o.rendered == no && o.phase != v1alpha1.MachineFailed:
			t.Errorf("%s: not rendered, and not failed", r)
		}
	}
}
