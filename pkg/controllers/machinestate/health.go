package machinestate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

const (
	// installTime is how long a machine may take to run for the first time.
	installTime = 20 * time.Minute
	// leaving is how long after its first configuration a machine may still answer in maintenance mode.
	leaving = time.Minute
)

// health tells how the machine is: its phase, whether it is ready, and whether it is itself.
func (d *decision) health() {
	problem := d.stopped
	if problem == nil {
		problem = d.seen.absent
	}

	if problem == nil {
		d.heard()

		return
	}

	d.set(problem.reason, problem.message)

	switch problem.reason {
	case reasonBackInMaintenance:
		d.status.Phase = v1alpha1.MachineFailed

		// Discovery sets it too, in its own words: whoever comes second leaves it.
		if !meta.IsStatusConditionTrue(d.status.Conditions, ConditionBackInMaintenance) {
			d.condition(ConditionBackInMaintenance, yes, "AnswersInMaintenance", problem.message)
		}
	case reasonIdentityMismatch:
		d.condition(ConditionIdentityMismatch, yes, reasonIdentityMismatch, problem.message)
		d.installing(problem.message)
	case reasonPaused, reasonClusterNotFound:
		// Nobody asked the machine, so nothing is new.
	default:
		d.installing(problem.message)
	}
}

// heard is a machine that answered with a certificate of its cluster, and is itself.
func (d *decision) heard() {
	meta.RemoveStatusCondition(&d.status.Conditions, ConditionIdentityMismatch)
	meta.RemoveStatusCondition(&d.status.Conditions, ConditionBackInMaintenance)

	if problem := d.seen.statusProblem; problem != nil {
		d.set(problem.reason, problem.message)
		d.installing(problem.message)

		return
	}

	status := d.seen.status
	if status.TalosVersion != "" {
		d.status.TalosVersion = status.TalosVersion
	}

	// A control plane boots until etcd is there: it has come as far as it can.
	waits := status.Stage == stageBooting && d.machine.Spec.Role == v1alpha1.RoleControlPlane && !bootstrapped(d.cluster)

	switch {
	case status.Stage == machine.StageRunning && status.Ready:
		d.set(reasonReady, "the machine runs and has all that it waits for")
	case status.Stage == machine.StageRunning:
		d.set(reasonNotReady, "the machine runs, and waits for "+unmet(status))
	case waits:
		d.set(reasonAwaitingBootstrap, "the machine waits for etcd to be bootstrapped")
	default:
		d.set(reasonNotRunning, "the machine's stage is "+stageOf(status))
	}

	if status.Stage == machine.StageRunning || waits {
		d.status.Phase = v1alpha1.MachineRunning

		return
	}

	d.installing("its stage is " + stageOf(status))
}

// installing is the phase of a machine that does not run, for as long as that may take.
func (d *decision) installing(why string) {
	switch {
	case meta.IsStatusConditionTrue(d.status.Conditions, ConditionBackInMaintenance):
		d.status.Phase = v1alpha1.MachineFailed
	case ran(d.machine):
		d.status.Phase = v1alpha1.MachineRunning
	case d.now.Sub(d.status.Configuration.AppliedAt.Time) <= installTime:
		d.status.Phase = v1alpha1.MachineInstalling
	default:
		d.status.Phase = v1alpha1.MachineFailed

		if reasonOf(d.status, ConditionReady) != reasonIdentityMismatch {
			d.set(reasonInstallTimedOut, fmt.Sprintf(
				"the machine has not run within %s of its configuration: look at its console; %s", installTime, why))
		}
	}
}

func unmet(status machine.Status) string {
	if len(status.Unmet) == 0 {
		return "something that it does not name"
	}

	return strings.Join(slices.Sorted(slices.Values(status.Unmet)), "; ")
}

func stageOf(status machine.Status) string {
	if status.Stage == "" {
		return "not told yet"
	}

	return status.Stage
}
