package unit

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// commandLife is for how long a command that leads to Running is good: later it would surprise whoever stands beside the
// equipment. It is also how far ahead the clock that stamped it may be.
const commandLife = 10 * time.Second

// pending is the command that waits to be carried out; nil if none does.
func (d *draft) pending() *v1alpha1.UnitCommandRecord {
	if c := d.status.LastCommand; c != nil && c.Outcome == v1alpha1.CommandAccepted {
		return c
	}
	return nil
}

// runs tells whether a command leads to Running.
func runs(c v1alpha1.UnitCommandName) bool {
	return c == v1alpha1.CommandStart || c == v1alpha1.CommandResume || c == v1alpha1.CommandRestart
}

// obey carries out the command that waits, if it is one that needs nothing of the equipment. Such a one is never too old.
func (d *draft) obey() {
	c := d.pending()
	if c == nil {
		return
	}
	switch c.Command {
	case v1alpha1.CommandStart, v1alpha1.CommandResume, v1alpha1.CommandRestart, v1alpha1.CommandPause:
		return // after the level check
	case v1alpha1.CommandAutomatic, v1alpha1.CommandManual:
		mode := v1alpha1.UnitModeAutomatic
		if c.Command == v1alpha1.CommandManual {
			mode = v1alpha1.UnitModeManual
		}
		d.status.Mode = mode
		d.answer(v1alpha1.CommandDone, "the mode is %s", mode)
		return
	}
	before := d.state()
	next, ok := d.allowed(c)
	switch {
	case !ok:
	case c.Command == v1alpha1.CommandHold:
		cause := v1alpha1.UnitHoldCause{Cause: v1alpha1.HoldCauseOperator, At: inSeconds(c.Time), Actor: c.Actor, Message: reasoned("HOLD", c)}
		if next == before {
			d.addCause(cause)
		} else {
			d.hold([]v1alpha1.UnitHoldCause{cause}, corev1.EventTypeNormal)
		}
		d.answer(v1alpha1.CommandDone, "%s", outcome(before, d.state()))
	case next == before:
		d.answer(v1alpha1.CommandDone, "%s", outcome(before, before))
	default:
		d.transit(next, reasoned(string(c.Command), c))
		d.answer(v1alpha1.CommandDone, "%s", outcome(before, next))
	}
}

// proceed carries out the command that waits, if nothing came first.
func (d *draft) proceed() {
	c := d.pending()
	if c == nil {
		return
	}
	if d.moved {
		if d.state() == isa88.Holding {
			d.answer(v1alpha1.CommandSuperseded, "the Unit was held first")
		}
		return // otherwise the next decision looks at it
	}
	if runs(c.Command) && d.tooOld(c) {
		d.answer(v1alpha1.CommandExpired, "it was not carried out within %s, and to do so later would surprise", commandLife)
		d.event(corev1.EventTypeWarning, ReasonCommandExpired, "%s", reasoned(string(c.Command), c))
		return
	}
	before := d.state()
	next, ok := d.allowed(c)
	if !ok {
		return
	}
	if !runs(c.Command) {
		d.transit(next, reasoned(string(c.Command), c))
		d.answer(v1alpha1.CommandDone, "%s", outcome(before, next))
		return
	}
	if !d.live {
		d.readLive = true
		return
	}
	if d.unit.DeletionTimestamp != nil {
		d.refuse(c, "the Unit is being deleted")
		return
	}
	if latch := d.runtime.latch(d.unit); latch != nil {
		d.refuse(c, "the runtime holds by itself, since it lost %s, until it has heard that the Unit is held", strings.Join(latch.Modules, ", "))
		return
	}
	obstacles, passed := d.obstacles()
	if len(obstacles) > 0 && !c.Override {
		d.refuse(c, "%s", some(obstacles))
		return
	}
	if len(passed) > maxOverridden {
		d.refuse(c, "an override passes over %d modules at most, and not over these %d: %s", maxOverridden, len(passed), some(obstacles))
		return
	}
	why := reasoned(string(c.Command), c)
	told := outcome(before, next)
	if len(obstacles) > 0 {
		why += "; an override passed over this: " + some(obstacles)
		told += "; passed over: " + some(obstacles)
	}
	d.transit(next, why)
	d.status.Overridden = passed
	d.answer(v1alpha1.CommandDone, "%s", told)
}

// obstacles are what keeps the Unit from running, and what is remembered of the modules among them if an override passes
// over them (P-16c).
func (d *draft) obstacles() (obstacles []string, passed []v1alpha1.OverriddenModule) {
	for _, m := range d.modules {
		obstacle := m.obstacle()
		if obstacle == "" {
			continue
		}
		obstacles = append(obstacles, obstacle)
		passed = append(passed, v1alpha1.OverriddenModule{Module: m.name, UID: m.uid, State: m.state, Since: inSeconds(m.since)})
	}
	if reason, message := d.runtime.trouble(d.unit); reason != "" {
		obstacles = append(obstacles, message)
	}
	// A hold value that no device can take would keep the Unit in Holding, and in Stopping.
	return append(obstacles, d.invalid...), passed
}

// obstacle says why nothing may be started with a module that was read live; "" if it may.
func (m module) obstacle() string {
	switch {
	case !m.found || m.state != v1alpha1.ModuleOnline:
		return m.describe()
	case m.outdated:
		return fmt.Sprintf("%s was not measured since its specification changed", m.name)
	case !m.confirmed:
		return fmt.Sprintf("%s was not measured since the present controllers began", m.name)
	default:
		return ""
	}
}

// allowed is where the command leads; false if it does not, which is told then.
func (d *draft) allowed(c *v1alpha1.UnitCommandRecord) (isa88.State, bool) {
	next, ok := isa88.Next(d.state(), isa88.Command(c.Command))
	if ok {
		return next, true
	}
	// It was allowed when it was accepted; if the Unit was held since, that went before it.
	if d.state() == isa88.Holding || d.state() == isa88.Held {
		d.answer(v1alpha1.CommandSuperseded, "the Unit was held first, and %s allows no %s", d.state(), c.Command)
	} else {
		d.answer(v1alpha1.CommandRefused, "%s allows no %s", d.state(), c.Command)
	}
	return "", false
}

func (d *draft) refuse(c *v1alpha1.UnitCommandRecord, format string, args ...any) {
	message := notice.Bounded(fmt.Sprintf(format, args...))
	d.answer(v1alpha1.CommandRefused, "%s", message)
	d.event(corev1.EventTypeWarning, ReasonCommandRefused, "%s: %s", reasoned(string(c.Command), c), message)
}

func (d *draft) answer(outcome v1alpha1.CommandOutcome, format string, args ...any) {
	d.status.LastCommand.Outcome = outcome
	d.status.LastCommand.Message = notice.Bounded(fmt.Sprintf(format, args...))
}

// tooOld tells whether a command that leads to Running was accepted too long ago, or by a clock that nobody can go by.
func (d *draft) tooOld(c *v1alpha1.UnitCommandRecord) bool {
	if c.Time == nil {
		return true
	}
	age := d.now.Sub(c.Time.Time)
	// What is stored has no fractions of a second.
	return age >= commandLife+time.Second || age <= -commandLife
}

// reasoned says who wants what, and why.
func reasoned(what string, c *v1alpha1.UnitCommandRecord) string {
	text := what
	if c.Actor != "" {
		text += " by " + c.Actor
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return notice.Bounded(text)
}

func outcome(before, after isa88.State) string {
	if before == after {
		return fmt.Sprintf("the Unit is %s already", after)
	}
	return fmt.Sprintf("%s, was %s", after, before)
}
