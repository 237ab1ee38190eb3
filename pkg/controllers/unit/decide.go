package unit

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// decision is what follows from facts.
type decision struct {
	// status is to be stored, unless it is the stored one.
	status v1alpha1.UnitStatus
	// events are to be told once it is stored.
	events []event
	// readLive: more follows from the facts once they are read from the store; nothing that is in status depends on it.
	readLive bool
	// after is when time alone will lead to another decision; 0 is never.
	after time.Duration
}

// event is an Event on the Unit.
type event struct {
	eventType, reason, message string
}

// draft is a decision in the making.
type draft struct {
	facts
	status v1alpha1.UnitStatus
	events []event
	after  time.Duration
	// readLive is that of decision; missing: a cache does not have a module.
	readLive, missing bool
	// moved: the state has changed.
	moved bool
}

// decide says where the Unit goes from here. One decision makes at most one change of state.
//
// What takes a Unit out of harm goes first: HOLD, STOP and ABORT, then the level check; only then what its runtime has completed,
// and last what a user wants to run.
func decide(f facts) decision {
	d := &draft{facts: f, status: *f.unit.Status.DeepCopy()}
	d.status.ObservedGeneration = f.unit.Generation
	if d.status.State == "" {
		d.status.State = v1alpha1.UnitIdle
	}
	if d.status.Mode == "" {
		d.status.Mode = v1alpha1.UnitModeAutomatic
	}
	if !f.runtime.awaited {
		d.status.RuntimePodName = f.runtime.pod
	}

	d.obey()
	d.levelCheck()
	d.complete()
	d.proceed()
	d.describeEquipment()
	d.describeRuntime()
	d.describeHoldValues()
	d.watch()

	return decision{
		status: d.status, events: d.events, after: d.after,
		// A hold does not wait for a second look.
		readLive: !f.live && !d.moved && (d.readLive || d.missing),
	}
}

func (d *draft) state() isa88.State { return isa88.State(d.status.State) }

// enter changes the state.
func (d *draft) enter(state isa88.State) {
	now := d.now
	d.status.State, d.status.LastTransitionTime = v1alpha1.UnitState(state), &now
	d.moved = true
	switch state {
	case isa88.Running:
		d.status.Hold = nil
		// Somebody has looked at it, or has taken that on himself.
		meta.RemoveStatusCondition(&d.status.Conditions, ConditionRestored)
	case isa88.Holding:
		d.status.Overridden = nil
	case isa88.Idle:
		d.status.Hold, d.status.Overridden = nil, nil
	}
}

// transit changes the state and tells it.
func (d *draft) transit(state isa88.State, why string) {
	d.event(corev1.EventTypeNormal, ReasonStateChanged, "%s, was %s: %s", state, d.state(), why)
	d.enter(state)
}

// again has the decision taken again after a while, at the latest.
func (d *draft) again(after time.Duration) {
	if d.after == 0 || after < d.after {
		d.after = after
	}
}

func (d *draft) event(eventType, reason, format string, args ...any) {
	d.events = append(d.events, event{eventType, reason, notice.Bounded(fmt.Sprintf(format, args...))})
}
