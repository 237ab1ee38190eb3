package app

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// follow tells what became of a command, and waits until the Unit is where it leads. It keeps answer as it stands.
func (c *unitCommand) follow(ctx context.Context, answer *v1alpha1.UnitCommand) error {
	shown := &progress{out: c.ErrOut, draws: c.draws(), clock: c.clock}
	defer shown.end()
	started := c.clock.Now()
	done := false
	var toward v1alpha1.UnitState
	var unit *v1alpha1.Unit
	for {
		record, state := answer.Status.Record, answer.Status.State
		if record == nil {
			return unfinished("the server does not say what became of the command", c.seeUnit())
		}
		if !done {
			switch record.Outcome {
			case v1alpha1.CommandDone:
				done = true
				shown.end()
				c.sayDone(record, state)
				if c.override {
					c.sayOverridden(ctx)
				}
				if toward = destination(c.command); toward == "" || toward == state || c.noWait {
					return nil
				}
			case v1alpha1.CommandAccepted:
				if c.noWait {
					fmt.Fprintf(c.say, "%s: %s is accepted, and not carried out yet\n", unitResource(c.unit), c.command)
					return nil
				}
				shown.show(0, 0, fmt.Sprintf("%s is accepted; waiting for it to be carried out", c.command))
			default:
				return c.refusedLater(record, state)
			}
		}
		if done {
			if finished, err := c.arrived(shown, state, toward, unit); finished || err != nil {
				return err
			}
			shown.show(0, 0, c.waitingFor(unit, state, toward))
		}

		if waited := c.clock.Now().Sub(started); waited >= c.timeout {
			shown.end()
			return c.timedOut(unit, done, toward)
		}
		if c.pause(ctx, followEvery) != nil {
			shown.end()
			return c.interrupted(done, state, toward)
		}
		looked, err := c.lookAtUnit(ctx, c.unit)
		switch {
		case err == nil:
			unit = looked
			if record := findRecord(unit, c.id); record != nil {
				answer.Status.Record = record
			}
			answer.Status.State = unit.Status.State
		case apierrors.IsForbidden(err):
			fmt.Fprintf(c.ErrOut, "Not waited for, because you may not read Units: how it goes on.\n")
			return nil
		case !lost(err) && ctx.Err() == nil:
			return unitAttempt{to: "see how it goes on", namespace: c.namespace, unit: c.unit, verb: "get", role: viewRole}.explain(err)
		default:
			shown.show(0, 0, "the server does not answer; waiting for it")
		}
	}
}

// destination is the state to which a command leads in the end, from wherever it is allowed; "" for a change of mode.
func destination(command v1alpha1.UnitCommandName) v1alpha1.UnitState {
	for _, state := range isa88.States() {
		next, allowed := isa88.Next(state, isa88.Command(command))
		if !allowed {
			continue
		}
		if isa88.Transient(next) {
			next, _ = isa88.Completed(next)
		}
		return v1alpha1.UnitState(next)
	}
	return ""
}

func (c *unitCommand) sayDone(record *v1alpha1.UnitCommandRecord, state v1alpha1.UnitState) {
	switch c.command {
	case v1alpha1.CommandAutomatic, v1alpha1.CommandManual:
		fmt.Fprintf(c.say, "%s is in mode %s now", unitResource(c.unit), strings.ToLower(string(c.command)))
	default:
		fmt.Fprintf(c.say, "%s: %s is carried out; it is %s", unitResource(c.unit), c.command, orNone(string(state)))
	}
	if record.Message != "" {
		fmt.Fprintf(c.say, " (%s)", clean(record.Message))
	}
	fmt.Fprintln(c.say)
}

// refusedLater tells what the controller made of a command that the server had accepted.
func (c *unitCommand) refusedLater(record *v1alpha1.UnitCommandRecord, state v1alpha1.UnitState) error {
	what := fmt.Sprintf("%s was not carried out: %s", c.command, orNone(strings.TrimSpace(string(record.Outcome)+": "+record.Message)))
	if record.Message == "" {
		what = fmt.Sprintf("%s was not carried out: %s", c.command, orNone(string(record.Outcome)))
	}
	return told(what, fmt.Sprintf("The Unit is %s. %s", orNone(string(state)), allowedNow(state)))
}

// allowedNow says which commands a state allows.
func allowedNow(state v1alpha1.UnitState) string {
	var names []string
	for _, command := range isa88.Allowed(isa88.State(state)) {
		names = append(names, string(command))
	}
	if len(names) == 0 {
		return "No command is allowed now."
	}
	return "Allowed now: " + strings.Join(names, ", ") + "."
}

// arrived tells whether the Unit is where the command leads, or why it does not get there.
func (c *unitCommand) arrived(shown *progress, state, toward v1alpha1.UnitState, unit *v1alpha1.Unit) (bool, error) {
	if state == toward {
		shown.end()
		fmt.Fprintf(c.say, "%s is %s\n", unitResource(c.unit), state)
		if problem := findCondition(unit, conditionHoldValuesWritten, metav1.ConditionFalse); problem != nil {
			fmt.Fprintf(c.ErrOut, "Warning: not every hold value was taken: %s\n", orNone(problem.Message))
		}
		return true, nil
	}
	if next, ends := isa88.Completed(isa88.State(state)); ends && v1alpha1.UnitState(next) == toward {
		return false, nil
	}
	if unit == nil {
		return false, told(fmt.Sprintf("the Unit did not become %s: it is %s", toward, orNone(string(state))), allowedNow(state)+" "+c.seeUnit())
	}
	why := ""
	if held := heldBy(unit, shownModules); held != "" {
		why = ", held by " + held
	} else if last := unit.Status.LastCommand; last != nil && last.ID != c.id {
		why = fmt.Sprintf(", by %s of %s", clean(string(last.Command)), orNone(last.Actor))
	}
	return false, told(fmt.Sprintf("the Unit did not become %s: it is %s%s", toward, orNone(string(state)), why), allowedNow(state)+" "+c.seeUnit())
}

// waitingFor says what a state that ends by itself waits for.
func (c *unitCommand) waitingFor(unit *v1alpha1.Unit, state, toward v1alpha1.UnitState) string {
	line := fmt.Sprintf("it is %s; waiting for %s", orNone(string(state)), toward)
	if told := explainTransient(unit); told != "" {
		line += ": " + told
	}
	return line
}

// explainTransient is what the server says of a state that does not end; "" if it says nothing.
func explainTransient(unit *v1alpha1.Unit) string {
	for _, of := range []struct {
		kind   string
		status metav1.ConditionStatus
	}{
		{conditionTransientTimeout, metav1.ConditionTrue},
		{conditionHoldValuesWritten, metav1.ConditionFalse},
		{conditionRuntimeReady, metav1.ConditionFalse},
		{conditionRuntimeReady, metav1.ConditionUnknown},
	} {
		if found := findCondition(unit, of.kind, of.status); found != nil {
			return clean(strings.TrimSpace(found.Reason + " " + found.Message))
		}
	}
	return ""
}

func (c *unitCommand) timedOut(unit *v1alpha1.Unit, done bool, toward v1alpha1.UnitState) error {
	if !done {
		return unfinished(fmt.Sprintf("%s is accepted, and was not carried out within %s", c.command, c.timeout), c.seeUnit())
	}
	what := fmt.Sprintf("%s is carried out, and the Unit is not %s after %s", c.command, toward, c.timeout)
	if unit != nil {
		what = fmt.Sprintf("%s is carried out, and the Unit is still %s after %s", c.command, orNone(string(unit.Status.State)), c.timeout)
		if why := explainTransient(unit); why != "" {
			what += ": " + why
		}
	}
	goesOn := "It goes on by itself. "
	if found := findCondition(unit, conditionHoldValuesWritten, metav1.ConditionFalse); found != nil && found.Reason == reasonHoldValuesRefused {
		goesOn = "It is tried again every second, and stays so until a device takes it or the tag is corrected. "
	}
	return unfinished(what, goesOn+c.seeUnit())
}

func (c *unitCommand) interrupted(done bool, state, toward v1alpha1.UnitState) error {
	if !done {
		return unfinished(fmt.Sprintf("not waited for: %s is accepted, and was not carried out yet", c.command), "It is not taken back. "+c.seeUnit())
	}
	return unfinished(fmt.Sprintf("not waited for: %s is carried out, and the Unit was %s on its way to %s", c.command, orNone(string(state)), toward),
		"It goes on by itself. "+c.seeUnit())
}

func (c *unitCommand) seeUnit() string {
	return fmt.Sprintf("See how it goes on: kubectl -n %s get unit %s --watch", c.namespace, c.unit)
}

// Conditions of a Unit.
const (
	conditionEquipmentHealthy  = "EquipmentHealthy"
	conditionRuntimeReady      = "RuntimeReady"
	conditionTransientTimeout  = "TransientStateTimeout"
	conditionHoldValuesWritten = "HoldValuesWritten"
	conditionRuntimeConnected  = "RuntimeDevicesConnected"
	conditionRestored          = "Restored"
	conditionRuntimeDeployed   = "RuntimeDeployed"
)

// reasonHoldValuesRefused is the one reason of HoldValuesWritten that does not pass without somebody.
const reasonHoldValuesRefused = "HoldValuesRefused"

// findCondition returns a Unit's condition of this status; nil if there is none, or no Unit.
func findCondition(unit *v1alpha1.Unit, kind string, status metav1.ConditionStatus) *metav1.Condition {
	if unit == nil {
		return nil
	}
	if found := meta.FindStatusCondition(unit.Status.Conditions, kind); found != nil && found.Status == status {
		return found
	}
	return nil
}

// shownModules is how many modules a line names; the others are counted.
const shownModules = 3

// heldBy says what holds a Unit, in a few words; "" if nothing does.
func heldBy(unit *v1alpha1.Unit, most int) string {
	if unit == nil || unit.Status.Hold == nil {
		return ""
	}
	hold := unit.Status.Hold
	line, joined := string(hold.Cause), ": "
	for _, cause := range hold.Causes {
		if hold.Cause == v1alpha1.HoldCauseOperator && cause.Cause == hold.Cause && cause.Actor != "" {
			line += " " + cause.Actor
			break
		}
	}
	if hold.Cause == v1alpha1.HoldCauseOperator || hold.Cause == v1alpha1.HoldCauseRestored {
		// The modules are of causes that came later.
		joined = "; then "
	}
	if len(hold.Modules) > 0 {
		line += joined + strings.Join(hold.Modules[:min(most, len(hold.Modules))], ", ")
	}
	if more := len(hold.Modules) - most; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return clean(line)
}
