package unit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// maxCauses is how many causes a hold lists (v1alpha1.UnitHold), and maxModules how many modules. With maxOverridden they bound
	// what a status takes: etcd refuses what is too large, and a hold that is refused holds nothing.
	maxCauses  = 64
	maxModules = 1024
	// maxOverridden is how many modules one override may pass over.
	maxOverridden = 256
	// defaultUnknownHoldAfter and defaultHoldTimeout are those of v1alpha1, for a Unit that was stored without.
	defaultUnknownHoldAfter = time.Minute
	defaultHoldTimeout      = 30 * time.Second
)

// levelCheck holds a Unit that a module, or its runtime, holds, and adds what has come to a hold (P-16). It goes by what is, never
// by what changed.
func (d *draft) levelCheck() {
	d.dropOverridden()
	causes := d.causes()
	state := d.state()
	switch {
	case isa88.Holdable(state):
		if len(causes) > 0 {
			d.hold(causes, corev1.EventTypeWarning)
		}
	case state == isa88.Holding || state == isa88.Held:
		for _, cause := range causes {
			if d.addCause(cause) {
				d.event(corev1.EventTypeWarning, ReasonHoldCauseAdded, "%s; the hold has episode %s", cause.Message, d.status.Hold.Episode)
			}
		}
	}
}

// hold begins a hold. Every one has an episode of its own: a Unit that is held while it restarts gets its hold values again.
func (d *draft) hold(causes []v1alpha1.UnitHoldCause, eventType string) {
	now := d.now
	d.status.Hold = &v1alpha1.UnitHold{
		Cause: causes[0].Cause, Since: &now, PreviousState: v1alpha1.UnitState(d.state()), Episode: d.newEpisode(),
	}
	var why []string
	for _, cause := range causes {
		d.addCause(cause)
		why = append(why, cause.Message)
	}
	d.event(eventType, reasonsOfHolds()[causes[0].Cause], "held in %s: %s; episode %s", d.state(), some(why), d.status.Hold.Episode)
	d.enter(isa88.Holding)
}

// addCause adds a cause to the hold and tells whether it is new. One that is there already, and came again, has its time set.
func (d *draft) addCause(cause v1alpha1.UnitHoldCause) bool {
	if d.status.Hold == nil {
		// Whoever stored the state did not say why.
		now := d.now
		d.status.Hold = &v1alpha1.UnitHold{Cause: cause.Cause, Since: &now, Episode: d.newEpisode()}
	}
	hold := d.status.Hold
	if hold.Episode == "" {
		hold.Episode = d.newEpisode()
	}
	if at, listed := slices.BinarySearch(hold.Modules, cause.Module); cause.Module != "" && !listed && len(hold.Modules) < maxModules {
		hold.Modules = slices.Insert(slices.Clone(hold.Modules), at, cause.Module)
	}
	i := slices.IndexFunc(hold.Causes, func(c v1alpha1.UnitHoldCause) bool { return sameCause(c, cause) })
	switch {
	case i < 0 && len(hold.Causes) >= maxCauses:
		return false
	case i < 0:
		if cause.At == nil {
			now := d.now
			cause.At = &now
		}
		hold.Causes = append(slices.Clone(hold.Causes), cause)
		return true
	case cause.At != nil && !cause.At.Equal(hold.Causes[i].At):
		hold.Causes = slices.Clone(hold.Causes)
		hold.Causes[i].At, hold.Causes[i].Message = cause.At, cause.Message
	}
	return false
}

func sameCause(a, b v1alpha1.UnitHoldCause) bool {
	return a.Cause == b.Cause && a.Module == b.Module && a.Actor == b.Actor
}

// causes are what holds the Unit now: modules that no override passed over, and the runtime's latch. Their times are those of
// what happened, so that another decision on the same facts is the same. It sets when time alone will make another.
func (d *draft) causes() []v1alpha1.UnitHoldCause {
	var causes []v1alpha1.UnitHoldCause
	add := func(m module, cause v1alpha1.HoldCause) {
		causes = append(causes, v1alpha1.UnitHoldCause{
			Cause: cause, Module: m.name, At: inSeconds(m.since), Message: notice.Bounded(m.describe()),
		})
	}
	for _, m := range d.modules {
		if d.overridden(m) {
			continue
		}
		switch {
		case !m.found:
			// A cache may be behind one that was made just now.
			if d.live {
				add(m, v1alpha1.HoldCauseIOModuleMissing)
			} else {
				d.missing = true
			}
		case m.state == v1alpha1.ModuleUnknown:
			if d.unknownHolds(m) {
				add(m, v1alpha1.HoldCauseIOModuleUnknown)
			}
		case d.holdsOn(m.state):
			add(m, v1alpha1.HoldCauseIOModuleFault)
		}
	}
	if latch := d.runtime.latch(d.unit); latch != nil {
		causes = append(causes, latchCauses(latch)...)
	}
	return causes
}

// latchCauses are the causes of a hold by the runtime itself (P-16b).
func latchCauses(latch *api.Latch) []v1alpha1.UnitHoldCause {
	// A year that no text can have would be refused when it is stored; without a time the cause gets that of now.
	var at *metav1.Time
	if year := latch.At.UTC().Year(); year >= 1970 && year < 9999 {
		at = inSeconds(&metav1.Time{Time: latch.At.UTC()})
	}
	modules := latch.Modules
	if len(modules) == 0 {
		modules = []string{""}
	}
	var causes []v1alpha1.UnitHoldCause
	for _, name := range modules {
		message := "the runtime held by itself while it could not reach the server"
		if name != "" {
			message = fmt.Sprintf("the runtime lost %s while it could not reach the server, and held by itself", name)
		}
		causes = append(causes, v1alpha1.UnitHoldCause{Cause: v1alpha1.HoldCauseRuntime, Module: name, At: at, Message: notice.Bounded(message)})
	}
	return causes
}

// holdsOn tells whether a state of a module holds the Unit. Fault always does.
func (d *draft) holdsOn(state v1alpha1.ModuleState) bool {
	return state == v1alpha1.ModuleFault || slices.Contains(d.unit.Spec.HoldOn, state)
}

// unknownHolds tells whether a module has been Unknown for too long: by the clock on the wall, or by that of this process,
// whichever says so first, since the one may be set and the other began with the process.
func (d *draft) unknownHolds(m module) bool {
	if slices.Contains(d.unit.Spec.HoldOn, v1alpha1.ModuleUnknown) {
		return true
	}
	limit := defaultUnknownHoldAfter
	if after := d.unit.Spec.UnknownHoldAfter; after != nil {
		limit = after.Duration
	}
	if limit <= 0 {
		return false
	}
	return d.elapsed(limit, m.unknownFor, m.since)
}

// elapsed tells whether more than a limit has passed, by either clock; if not, the decision is taken again when it has.
func (d *draft) elapsed(limit, seen time.Duration, since *metav1.Time) bool {
	passed := seen
	if since != nil {
		passed = max(passed, d.now.Sub(since.Time))
	}
	if passed >= limit {
		return true
	}
	d.again(limit - passed)
	return false
}

// overridden tells whether an override passed over the module as it is now.
func (d *draft) overridden(m module) bool {
	return slices.ContainsFunc(d.status.Overridden, func(o v1alpha1.OverriddenModule) bool { return o.Module == m.name && passedOver(o, m) })
}

// passedOver tells whether the module is still what the override passed over.
func passedOver(o v1alpha1.OverriddenModule, m module) bool {
	return o.UID == m.uid && o.State == m.state && inSeconds(o.Since).Equal(inSeconds(m.since))
}

// dropOverridden forgets what has changed since an override passed over it: from then on it is judged as any other.
func (d *draft) dropOverridden() {
	d.status.Overridden = slices.DeleteFunc(slices.Clone(d.status.Overridden), func(o v1alpha1.OverriddenModule) bool {
		i := slices.IndexFunc(d.modules, func(m module) bool { return m.name == o.Module })
		if i < 0 {
			return false
		}
		if m := d.modules[i]; m.found || d.live {
			return !passedOver(o, m)
		}
		// A cache may be behind; a live look will tell.
		return false
	})
	if len(d.status.Overridden) == 0 {
		d.status.Overridden = nil
	}
}

// describe says in a few words how a module is.
func (m module) describe() string {
	switch {
	case !m.found:
		return fmt.Sprintf("IOModule %s does not exist", m.name)
	case m.reason == "":
		return fmt.Sprintf("%s is %s", m.name, m.state)
	default:
		return fmt.Sprintf("%s is %s (%s)", m.name, m.state, m.reason)
	}
}

// inSeconds is a time as it is stored.
func inSeconds(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	copied := t.Rfc3339Copy()
	return &copied
}

// some are the first of many.
func some(texts []string) string {
	const most = 8
	if len(texts) <= most {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), len(texts)-most)
}
