package machinestate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

// step is what is to be done next.
type step int

const (
	// stepNone: nothing but writing down the status.
	stepNone step = iota
	// stepTry has the machine try the configuration and say what it would do (a dry run).
	stepTry
	// stepAskPeers asks the other machines of the cluster how they are, and etcd.
	stepAskPeers
	// stepApply records the intent and applies the configuration without a reboot.
	stepApply
	// stepStage records the intent and has the machine take the configuration at its next reboot.
	stepStage
	// stepReboot records the intent and reboots the machine.
	stepReboot
)

// problem is a reason with what to tell people. The message holds nothing of a bundle (T-15).
type problem struct {
	reason  reason
	message string
}

// picture is all that is known when it is decided what to do next. Nothing in it is changed by deciding.
type picture struct {
	machine *v1alpha1.TalosMachine
	cluster *v1alpha1.TalosCluster
	now     time.Time
	// stopped is why the machine is not even asked, if so; nothing below is known then.
	stopped *problem
	// bundleHash tells the bundle that all of this is about.
	bundleHash string
	want       wanted
	seen       sighting
	// difference is from what is wanted to what runs, redacted.
	difference string
	// peers are the other machines of the cluster that are followed.
	peers []peer

	// What has been done in this look so far.

	// trial is what came of stepTry.
	trial *trial
	// asked is what came of stepAskPeers.
	asked *neighbours
	// withheld is why the turn was not taken after all.
	withheld *problem
	// sent is what came of stepApply or stepStage, rebooted of stepReboot.
	sent, rebooted *effect
}

// wanted is what is rendered for a machine now.
type wanted struct {
	config []byte
	// hash is "" when it cannot be rendered, and problem says why.
	hash    string
	problem *problem
}

// sighting is what a machine was found to be.
type sighting struct {
	// absent is why it was not found; nothing below is known then.
	absent *problem
	// address is where it answered, atEndpoint that this is spec.endpoint.
	address    string
	atEndpoint bool

	// status is what it says of itself; statusProblem is why it does not.
	status        machine.Status
	statusProblem *problem

	// running is its configuration in the form of render.Normalise, and runs its hash, "" when it was not read;
	// runningProblem is why.
	running        []byte
	runs           string
	runningProblem *problem
}

// steady tells whether the machine is in a stage in which it takes configurations. A control plane stays in the stage
// booting until there is an etcd.
func (s sighting) steady() bool {
	return s.absent == nil && s.statusProblem == nil && (s.status.Stage == machine.StageRunning || s.status.Stage == stageBooting)
}

// stageBooting is the stage of a machine that has not started everything.
const stageBooting = "booting"

// healthy tells whether the machine runs and has all that it waits for.
func (s sighting) healthy() bool {
	return s.absent == nil && s.statusProblem == nil && s.status.Stage == machine.StageRunning && s.status.Ready
}

// effect is what came of changing a machine: nil err when it did it.
type effect struct {
	failed bool
	answer answer
	// message says why it failed.
	message string
}

// decision is a decision in the making: a status, and what to do.
type decision struct {
	picture
	status *v1alpha1.TalosMachineStatus
	step   step
}

// decide says what a machine's status is, and what to do next. It is pure.
func decide(p picture) (*v1alpha1.TalosMachineStatus, step) {
	d := &decision{picture: p, status: p.machine.Status.DeepCopy()}

	d.status.ObservedGeneration = p.machine.Generation
	d.health()

	if p.stopped == nil {
		d.settle()
		d.drift()
		d.update()
		d.rebootRequired()
	}

	return d.status, d.step
}

// set lets a reason stand in its condition.
func (d *decision) set(r reason, message string) {
	m := meanings()[r]
	d.condition(m.condition, m.status, r, message)
}

func (d *decision) condition(kind string, status metav1.ConditionStatus, r reason, message string) {
	meta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		Reason:             string(r),
		Message:            notice.Bounded(message),
		ObservedGeneration: d.machine.Generation,
		LastTransitionTime: metav1.NewTime(d.now),
	})
}

func (d *decision) stamp() *metav1.Time { return ptr.To(metav1.NewTime(d.now)) }

// reasonOf is the reason that stands in a condition, "" when it is not there.
func reasonOf(status *v1alpha1.TalosMachineStatus, kind string) reason {
	if found := meta.FindStatusCondition(status.Conditions, kind); found != nil {
		return reason(found.Reason)
	}

	return ""
}

// again is when to look again at a machine with this status.
func again(status *v1alpha1.TalosMachineStatus) retry {
	out := retryNever

	for _, kind := range []string{ConditionReady, ConditionUpToDate} {
		if r := reasonOf(status, kind); r != "" {
			out = min(out, meanings()[r].retry)
		}
	}

	switch reasonOf(status, ConditionReady) {
	case reasonPaused, reasonClusterNotFound, reasonEndpointNotSet:
		return retryNever
	}

	// What is under way is looked at steadily, also while the machine is gone for its reboot.
	if update := status.Update; update != nil && update.IntendedAt != nil {
		return retrySoon
	}

	return out
}

// followed tells whether a machine is one to be looked at: approved, and with its first configuration. Any other is left
// untouched, its status included (T-12).
func followed(m *v1alpha1.TalosMachine) bool {
	return ptr.Deref(m.Spec.Approved, false) && m.Spec.Rejected == nil && m.DeletionTimestamp.IsZero() &&
		m.Status.Configuration != nil && m.Status.Configuration.AppliedAt != nil
}

// ran tells whether a machine is known to have run with its configuration. Its phase stays Running from then on, unless it
// is back in maintenance mode, and the condition Ready tells how it is.
func ran(m *v1alpha1.TalosMachine) bool {
	return m.Status.Phase == v1alpha1.MachineRunning || m.Status.Phase == v1alpha1.MachineFailed && m.Status.NodeName != ""
}

func bootstrapped(cluster *v1alpha1.TalosCluster) bool {
	return cluster.Status.Bootstrap != nil && cluster.Status.Bootstrap.CompletedAt != nil
}
