package unit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	ns  = "site-north"
	pod = "unit-runtime-reactor"
)

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func at(after time.Duration) *metav1.Time {
	t := metav1.NewTime(begin().Add(after))
	return &t
}

// unitIn is a Unit as it is stored in a state.
func unitIn(state isa88.State) *v1alpha1.Unit {
	unit := &v1alpha1.Unit{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reactor", UID: "uid-of-reactor", ResourceVersion: "7", Generation: 1},
		Spec: v1alpha1.UnitSpec{
			HoldOn:           []v1alpha1.ModuleState{v1alpha1.ModuleFault, v1alpha1.ModuleOffline},
			UnknownHoldAfter: &metav1.Duration{Duration: time.Minute}, HoldTimeout: &metav1.Duration{Duration: 30 * time.Second},
		},
		Status: v1alpha1.UnitStatus{State: v1alpha1.UnitState(state), Mode: v1alpha1.UnitModeAutomatic, LastTransitionTime: at(-5 * time.Second)},
	}
	if state == isa88.Holding || state == isa88.Held || state == isa88.Restarting {
		unit.Status.Hold = &v1alpha1.UnitHold{
			Cause: v1alpha1.HoldCauseOperator, Since: at(-time.Minute), PreviousState: v1alpha1.UnitRunning, Episode: "first",
			Causes: []v1alpha1.UnitHoldCause{{Cause: v1alpha1.HoldCauseOperator, At: at(-time.Minute), Actor: "alice"}},
		}
	}
	return unit
}

// moduleIn is a module that became what it is ten seconds ago.
func moduleIn(name string, state v1alpha1.ModuleState) module {
	return module{name: name, found: true, uid: types.UID("uid-of-" + name), state: state, reason: "Told", since: at(-10 * time.Second),
		confirmed: state == v1alpha1.ModuleOnline}
}

// factsOf are those of a Unit whose modules are read live and whose runtime is in contact.
func factsOf(unit *v1alpha1.Unit, modules ...module) facts {
	episodes := 0
	return facts{
		unit: unit, modules: modules, live: true, now: *at(0), inState: 5 * time.Second,
		runtime: runtime{pod: pod, inContact: true, report: api.Report{
			Runtime: api.RuntimeInfo{Unit: unit.Name, UID: string(unit.UID), ConfigHash: "hash"}, Order: orderPointer(orderOf(unit, runtime{})),
		}},
		newEpisode: func() string { episodes++; return fmt.Sprintf("new-%d", episodes) },
	}
}

func orderPointer(o api.Order) *api.Order { return &o }

func command(name v1alpha1.UnitCommandName) *v1alpha1.UnitCommandRecord {
	return &v1alpha1.UnitCommandRecord{ID: "1", Command: name, Actor: "alice", Reason: "batch 7", Time: at(0), Outcome: v1alpha1.CommandAccepted}
}

func condition(d decision, name string) string {
	c := meta.FindStatusCondition(d.status.Conditions, name)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func reasons(d decision) []string {
	var all []string
	for _, e := range d.events {
		all = append(all, e.reason)
	}
	return all
}

// again decides on what was stored by a decision.
func again(f facts, d decision) facts {
	unit := f.unit.DeepCopy()
	unit.Status = *d.status.DeepCopy()
	unit.ResourceVersion += "0"
	f.unit = unit
	return f
}

// Req: P-16
func TestWhatAModuleDoesToAUnitInEachState(t *testing.T) {
	online, fault := moduleIn("flow", v1alpha1.ModuleOnline), moduleIn("flow", v1alpha1.ModuleFault)
	offline, unknown := moduleIn("flow", v1alpha1.ModuleOffline), moduleIn("flow", v1alpha1.ModuleUnknown)
	long := unknown
	long.since = at(-time.Minute)
	seenLong := unknown
	seenLong.unknownFor = time.Minute
	missing := module{name: "flow"}
	modules := map[string]struct {
		module module
		cause  v1alpha1.HoldCause // "" holds nothing
		health string
		alarms bool
	}{
		"Online":                        {online, "", "True " + ReasonModulesOnline, false},
		"Fault":                         {fault, v1alpha1.HoldCauseIOModuleFault, "False " + ReasonModuleFault, true},
		"Offline":                       {offline, v1alpha1.HoldCauseIOModuleFault, "False " + ReasonModuleOffline, true},
		"Unknown for a moment":          {unknown, "", "Unknown " + ReasonModuleUnknown, true},
		"Unknown for a minute, stored":  {long, v1alpha1.HoldCauseIOModuleUnknown, "Unknown " + ReasonModuleUnknown, true},
		"Unknown for a minute, as seen": {seenLong, v1alpha1.HoldCauseIOModuleUnknown, "Unknown " + ReasonModuleUnknown, true},
		"missing":                       {missing, v1alpha1.HoldCauseIOModuleMissing, "False " + ReasonModuleMissing, true},
	}
	// What happens to the Unit; the rest of its states do nothing.
	holds := []isa88.State{isa88.Running, isa88.Pausing, isa88.Paused, isa88.Restarting}
	adds := []isa88.State{isa88.Holding, isa88.Held}
	for name, m := range modules {
		for _, state := range isa88.States() {
			t.Run(name+" in "+string(state), func(t *testing.T) {
				f := factsOf(unitIn(state), m.module, moduleIn("level", v1alpha1.ModuleOnline))
				f.runtime.report.Order = nil // it completes nothing
				d := decide(f)
				want := state
				if m.cause != "" && slices.Contains(holds, state) {
					want = isa88.Holding
				}
				if got := isa88.State(d.status.State); got != want {
					t.Errorf("the Unit is %s, want %s", got, want)
				}
				if got := condition(d, ConditionEquipmentHealthy); got != m.health {
					t.Errorf("%s is %s, want %s", ConditionEquipmentHealthy, got, m.health)
				}
				hold, known := d.status.Hold, f.unit.Status.Hold
				switch {
				case m.cause != "" && slices.Contains(holds, state):
					if hold == nil || hold.Cause != m.cause || hold.Episode != "new-1" || hold.PreviousState != v1alpha1.UnitState(state) ||
						!hold.Since.Equal(at(0)) || !slices.Equal(hold.Modules, []string{"flow"}) || len(hold.Causes) != 1 {
						t.Errorf("the hold is %+v", hold)
					}
					if got := reasons(d); len(got) != 1 || got[0] != reasonsOfHolds()[m.cause] || d.events[0].eventType != corev1.EventTypeWarning {
						t.Errorf("told: %v", d.events)
					}
					if !d.status.LastTransitionTime.Equal(at(0)) {
						t.Errorf("it changed at %s", d.status.LastTransitionTime)
					}
				case m.cause != "" && slices.Contains(adds, state):
					if hold.Cause != v1alpha1.HoldCauseOperator || hold.Episode != "first" || len(hold.Causes) != 2 || hold.Causes[1].Cause != m.cause ||
						!hold.Since.Equal(known.Since) || !slices.Contains(reasons(d), ReasonHoldCauseAdded) {
						t.Errorf("the hold is %+v, told %v", hold, reasons(d))
					}
				default:
					if !equality.Semantic.DeepEqual(hold, known) {
						t.Errorf("the hold is %+v", hold)
					}
					if alarms := m.alarms && m.cause != "" && state == isa88.Completing; alarms && len(d.events) == 0 {
						t.Error("nobody is told")
					}
				}
				if next := decide(again(f, d)); !equality.Semantic.DeepEqual(next.status, d.status) || len(next.events) > 0 {
					t.Errorf("the same facts lead further: %+v", next)
				}
			})
		}
	}
}

// Req: P-16
func TestWhatHoldOnSays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		holdOn []v1alpha1.ModuleState
		state  v1alpha1.ModuleState
		want   v1alpha1.UnitState
	}{
		{"Fault holds whatever it says", nil, v1alpha1.ModuleFault, v1alpha1.UnitHolding},
		{"Fault holds if only Offline is named", []v1alpha1.ModuleState{v1alpha1.ModuleOffline}, v1alpha1.ModuleFault, v1alpha1.UnitHolding},
		{"Offline does not, if it is not named", []v1alpha1.ModuleState{v1alpha1.ModuleFault}, v1alpha1.ModuleOffline, v1alpha1.UnitRunning},
		{"Unknown does at once, if it is named", []v1alpha1.ModuleState{v1alpha1.ModuleFault, v1alpha1.ModuleUnknown}, v1alpha1.ModuleUnknown, v1alpha1.UnitHolding},
		{"a state that nobody knows is Unknown", []v1alpha1.ModuleState{v1alpha1.ModuleUnknown}, v1alpha1.ModuleUnknown, v1alpha1.UnitHolding},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unit := unitIn(isa88.Running)
			unit.Spec.HoldOn = tc.holdOn
			if got := decide(factsOf(unit, moduleIn("flow", tc.state))).status.State; got != tc.want {
				t.Errorf("the Unit is %s, want %s", got, tc.want)
			}
		})
	}
	if got := moduleOf(&v1alpha1.IOModule{Status: v1alpha1.IOModuleStatus{State: "Splendid"}}).state; got != v1alpha1.ModuleUnknown {
		t.Errorf("a state that nobody knows is %s", got)
	}
	if got := moduleOf(&v1alpha1.IOModule{}).state; got != v1alpha1.ModuleUnknown {
		t.Errorf("no state is %s", got)
	}
}

// Req: P-16
func TestUnknownHoldsAfterTheEarlierOfTwoClocks(t *testing.T) {
	const limit = time.Minute
	for _, tc := range []struct {
		name  string
		since *metav1.Time
		seen  time.Duration
		limit time.Duration
		holds bool
		// after is when it is looked at again.
		after time.Duration
	}{
		{name: "just now", since: at(0), limit: limit, after: limit},
		{name: "for 59 s", since: at(-59 * time.Second), seen: 59 * time.Second, limit: limit, after: time.Second},
		{name: "for a minute by the store, as after a restart", since: at(-limit), limit: limit, holds: true},
		{name: "for a minute as seen, though the clock was set back", since: at(time.Hour), seen: limit, limit: limit, holds: true},
		{name: "stored by a clock that was ahead", since: at(time.Hour), seen: 20 * time.Second, limit: limit, after: 40 * time.Second},
		{name: "the clock was set ahead", since: at(-time.Hour), seen: time.Second, limit: limit, holds: true},
		{name: "no time is stored", seen: 10 * time.Second, limit: limit, after: 50 * time.Second},
		{name: "no time is stored, and it is too long", seen: limit, limit: limit, holds: true},
		{name: "never", since: at(-time.Hour), seen: time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unit := unitIn(isa88.Running)
			unit.Spec.UnknownHoldAfter.Duration = tc.limit
			m := moduleIn("flow", v1alpha1.ModuleUnknown)
			m.since, m.unknownFor = tc.since, tc.seen
			d := decide(factsOf(unit, m))
			if holds := d.status.State == v1alpha1.UnitHolding; holds != tc.holds {
				t.Errorf("held: %v", holds)
			}
			if !tc.holds && d.after != tc.after {
				t.Errorf("looked at again after %s, want %s", d.after, tc.after)
			}
			if !tc.holds && !slices.Contains(reasons(d), ReasonModuleUnknown) {
				t.Errorf("no alarm at once: %v", reasons(d))
			}
		})
	}
	unit := unitIn(isa88.Running)
	unit.Spec.UnknownHoldAfter, unit.Spec.HoldTimeout = nil, nil
	m := moduleIn("flow", v1alpha1.ModuleUnknown)
	m.since = at(-time.Minute)
	if got := decide(factsOf(unit, m)).status.State; got != v1alpha1.UnitHolding {
		t.Errorf("a Unit without unknownHoldAfter is %s after a minute", got)
	}
}

// Req: P-16
func TestEveryCommandInEachState(t *testing.T) {
	for _, state := range isa88.States() {
		for _, name := range isa88.Commands() {
			t.Run(string(name)+" in "+string(state), func(t *testing.T) {
				unit := unitIn(state)
				unit.Status.LastCommand = command(v1alpha1.UnitCommandName(name))
				f := factsOf(unit, moduleIn("flow", v1alpha1.ModuleOnline))
				f.runtime.report.Order = nil
				d := decide(f)
				want, ok := isa88.Next(state, name)
				if !ok {
					want = state
				}
				if got := isa88.State(d.status.State); got != want {
					t.Errorf("the Unit is %s, want %s", got, want)
				}
				outcome := d.status.LastCommand.Outcome
				switch {
				case ok && outcome != v1alpha1.CommandDone:
					t.Errorf("it is %s: %s", outcome, d.status.LastCommand.Message)
				case !ok && outcome != v1alpha1.CommandRefused && outcome != v1alpha1.CommandSuperseded:
					t.Errorf("it is %s", outcome)
				}
				hold := d.status.Hold
				switch {
				case want == isa88.Running || want == isa88.Idle:
					if hold != nil && want != state {
						t.Errorf("a hold stays in %s", want)
					}
				case name == isa88.Hold && ok && state != want:
					if hold == nil || hold.Cause != v1alpha1.HoldCauseOperator || hold.Causes[0].Actor != "alice" ||
						!strings.Contains(hold.Causes[0].Message, "batch 7") || !slices.Contains(reasons(d), ReasonHeldByOperator) {
						t.Errorf("the hold is %+v", hold)
					}
				}
				if next := decide(again(f, d)); next.status.State != d.status.State || next.status.LastCommand.Outcome != outcome || len(next.events) > 0 {
					t.Errorf("it is carried out twice: %+v", next)
				}
			})
		}
		for mode, name := range map[v1alpha1.UnitMode]v1alpha1.UnitCommandName{
			v1alpha1.UnitModeManual: v1alpha1.CommandManual, v1alpha1.UnitModeAutomatic: v1alpha1.CommandAutomatic,
		} {
			unit := unitIn(state)
			unit.Status.LastCommand = command(name)
			f := factsOf(unit)
			f.runtime.report.Order = nil
			if d := decide(f); d.status.Mode != mode || isa88.State(d.status.State) != state || d.status.LastCommand.Outcome != v1alpha1.CommandDone {
				t.Errorf("%s in %s: %+v", name, state, d.status)
			}
		}
	}
	unit := unitIn(isa88.Running)
	unit.Status.LastCommand = command("FLY")
	if d := decide(factsOf(unit)); d.status.State != v1alpha1.UnitRunning || d.status.LastCommand.Outcome != v1alpha1.CommandRefused {
		t.Errorf("a command that nobody knows: %+v", d.status)
	}
}

// Req: P-16, P-16c
func TestWhatKeepsAUnitFromRunning(t *testing.T) {
	ways := map[v1alpha1.UnitCommandName]struct{ from, to isa88.State }{
		v1alpha1.CommandStart: {isa88.Idle, isa88.Running}, v1alpha1.CommandResume: {isa88.Paused, isa88.Running},
		v1alpha1.CommandRestart: {isa88.Held, isa88.Restarting},
	}
	for _, tc := range []struct {
		name    string
		module  func(*module)
		runtime func(*runtime)
		// holds: in Paused the Unit is held by this, and RESUME comes too late.
		holds, never bool
		want         string
	}{
		{name: "a fault", module: func(m *module) { m.state, m.reason = v1alpha1.ModuleFault, "Timeout" }, holds: true, want: "flow is Fault (Timeout)"},
		{name: "an Offline module", module: func(m *module) { m.state = v1alpha1.ModuleOffline }, holds: true, want: "flow is Offline"},
		{name: "an Unknown module", module: func(m *module) { m.state = v1alpha1.ModuleUnknown }, want: "flow is Unknown"},
		{name: "a missing module", module: func(m *module) { *m = module{name: "flow"} }, holds: true, want: "flow does not exist"},
		{name: "a module that was not measured by its present specification", module: func(m *module) { m.outdated = true }, want: "since its specification changed"},
		{name: "a module that was not measured in this leadership", module: func(m *module) { m.confirmed = false }, want: "since the present controllers began"},
		{name: "a runtime that does not answer", runtime: func(r *runtime) { r.inContact = false }, want: "does not answer"},
		{name: "no runtime", runtime: func(r *runtime) { *r = runtime{} }, want: "no runtime"},
		{name: "a runtime of a former Unit", runtime: func(r *runtime) { r.report.Runtime.UID = "another" }, want: "has not loaded"},
		{name: "a runtime that refuses its configuration", runtime: func(r *runtime) { r.report.Runtime.ConfigError = "no such tag" }, want: "no such tag"},
		{name: "a latch", runtime: func(r *runtime) { r.report.Latch = &api.Latch{ID: "l", Modules: []string{"flow"}} }, holds: true, never: true, want: "holds by itself"},
	} {
		for name, way := range ways {
			for _, override := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, override %v", tc.name, name, override), func(t *testing.T) {
					unit := unitIn(way.from)
					unit.Status.LastCommand = command(name)
					unit.Status.LastCommand.Override = override
					m := moduleIn("flow", v1alpha1.ModuleOnline)
					if tc.module != nil {
						tc.module(&m)
					}
					f := factsOf(unit, m, moduleIn("level", v1alpha1.ModuleOnline))
					f.runtime.report.Order = nil
					if tc.runtime != nil {
						tc.runtime(&f.runtime)
					}
					d := decide(f)
					got := d.status.LastCommand
					switch {
					case tc.holds && way.from == isa88.Paused:
						if d.status.State != v1alpha1.UnitHolding || got.Outcome != v1alpha1.CommandSuperseded {
							t.Errorf("%s, %s: %s", d.status.State, got.Outcome, got.Message)
						}
					case override && !tc.never:
						if isa88.State(d.status.State) != way.to || got.Outcome != v1alpha1.CommandDone || !strings.Contains(got.Message, tc.want) {
							t.Errorf("%s, %s: %s", d.status.State, got.Outcome, got.Message)
						}
						if tc.module != nil {
							o := d.status.Overridden
							if len(o) != 1 || !passedOver(o[0], m) {
								t.Errorf("passed over: %+v", o)
							}
						}
						f = again(f, d)
						f.runtime.report.Order = nil
						if next := decide(f); isa88.State(next.status.State) != way.to {
							t.Errorf("what was passed over holds it: %s", next.status.State)
						}
					default:
						if isa88.State(d.status.State) != way.from || got.Outcome != v1alpha1.CommandRefused || !strings.Contains(got.Message, tc.want) ||
							!slices.Contains(reasons(d), ReasonCommandRefused) {
							t.Errorf("%s, %s: %s", d.status.State, got.Outcome, got.Message)
						}
						if len(d.status.Overridden) > 0 {
							t.Errorf("passed over: %+v", d.status.Overridden)
						}
					}
					// A cache is never enough.
					f = factsOf(unit, moduleIn("flow", v1alpha1.ModuleOnline))
					f.live, f.runtime.report.Order = false, nil
					if d := decide(f); !d.readLive || isa88.State(d.status.State) != way.from || d.status.LastCommand.Outcome != v1alpha1.CommandAccepted {
						t.Errorf("decided on a cache: %+v", d)
					}
				})
			}
		}
	}
}

// Req: P-16c
func TestAUnitThatIsBeingDeletedIsNotStarted(t *testing.T) {
	unit := unitIn(isa88.Idle)
	unit.DeletionTimestamp = at(-time.Second)
	unit.Status.LastCommand = command(v1alpha1.CommandStart)
	unit.Status.LastCommand.Override = true
	d := decide(factsOf(unit, moduleIn("flow", v1alpha1.ModuleOnline)))
	if got := d.status.LastCommand; d.status.State != v1alpha1.UnitIdle || got.Outcome != v1alpha1.CommandRefused || !strings.Contains(got.Message, "deleted") {
		t.Errorf("%s, %s: %s", d.status.State, got.Outcome, got.Message)
	}
	unit.Status.State, unit.Status.LastCommand = v1alpha1.UnitRunning, nil
	if d := decide(factsOf(unit, moduleIn("flow", v1alpha1.ModuleFault))); d.status.State != v1alpha1.UnitHolding {
		t.Errorf("while it is there it is held, and it is %s", d.status.State)
	}
}

// Req: P-16c
func TestACommandThatLeadsToRunningIsNotCarriedOutLate(t *testing.T) {
	for _, tc := range []struct {
		age  *metav1.Time
		want v1alpha1.CommandOutcome
	}{
		{at(0), v1alpha1.CommandDone},
		{at(-10 * time.Second), v1alpha1.CommandDone}, // what is stored has no fractions of a second
		{at(-11 * time.Second), v1alpha1.CommandExpired},
		{at(-time.Hour), v1alpha1.CommandExpired},
		{at(9 * time.Second), v1alpha1.CommandDone},
		{at(10 * time.Second), v1alpha1.CommandExpired},
		{nil, v1alpha1.CommandExpired},
	} {
		for name, from := range map[v1alpha1.UnitCommandName]isa88.State{
			v1alpha1.CommandStart: isa88.Idle, v1alpha1.CommandResume: isa88.Paused, v1alpha1.CommandRestart: isa88.Held,
		} {
			unit := unitIn(from)
			unit.Status.LastCommand = command(name)
			unit.Status.LastCommand.Time = tc.age
			d := decide(factsOf(unit, moduleIn("flow", v1alpha1.ModuleOnline)))
			if got := d.status.LastCommand.Outcome; got != tc.want || (isa88.State(d.status.State) == from) != (tc.want != v1alpha1.CommandDone) {
				t.Errorf("%s of %v is %s, the Unit %s; want %s", name, tc.age, got, d.status.State, tc.want)
			}
		}
		for name, from := range map[v1alpha1.UnitCommandName]isa88.State{
			v1alpha1.CommandHold: isa88.Running, v1alpha1.CommandStop: isa88.Running, v1alpha1.CommandAbort: isa88.Held,
			v1alpha1.CommandPause: isa88.Running, v1alpha1.CommandReset: isa88.Stopped, v1alpha1.CommandManual: isa88.Running,
		} {
			unit := unitIn(from)
			unit.Status.LastCommand = command(name)
			unit.Status.LastCommand.Time = tc.age
			f := factsOf(unit, moduleIn("flow", v1alpha1.ModuleOnline))
			f.runtime.report.Order = nil
			if got := decide(f).status.LastCommand.Outcome; got != v1alpha1.CommandDone {
				t.Errorf("%s of %v is %s", name, tc.age, got)
			}
		}
	}
}

// Req: P-16, P-16c
func TestAFaultAndACommandAtTheSameTime(t *testing.T) {
	for _, tc := range []struct {
		name    string
		state   isa88.State
		command v1alpha1.UnitCommandName
		want    isa88.State
		outcome v1alpha1.CommandOutcome
	}{
		{"PAUSE loses", isa88.Running, v1alpha1.CommandPause, isa88.Holding, v1alpha1.CommandSuperseded},
		{"RESUME loses", isa88.Paused, v1alpha1.CommandResume, isa88.Holding, v1alpha1.CommandSuperseded},
		{"RESTART loses", isa88.Held, v1alpha1.CommandRestart, isa88.Held, v1alpha1.CommandRefused},
		{"START loses", isa88.Idle, v1alpha1.CommandStart, isa88.Idle, v1alpha1.CommandRefused},
		{"RESTART that comes again while it restarts loses", isa88.Restarting, v1alpha1.CommandRestart, isa88.Holding, v1alpha1.CommandSuperseded},
		{"STOP wins", isa88.Running, v1alpha1.CommandStop, isa88.Stopping, v1alpha1.CommandDone},
		{"ABORT wins", isa88.Paused, v1alpha1.CommandAbort, isa88.Aborting, v1alpha1.CommandDone},
		{"HOLD holds once", isa88.Running, v1alpha1.CommandHold, isa88.Holding, v1alpha1.CommandDone},
		{"MANUAL changes nothing", isa88.Running, v1alpha1.CommandManual, isa88.Holding, v1alpha1.CommandDone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unit := unitIn(tc.state)
			unit.Status.LastCommand = command(tc.command)
			f := factsOf(unit, moduleIn("flow", v1alpha1.ModuleFault))
			d := decide(f)
			if got := isa88.State(d.status.State); got != tc.want || d.status.LastCommand.Outcome != tc.outcome {
				t.Errorf("%s, %s; want %s, %s", got, d.status.LastCommand.Outcome, tc.want, tc.outcome)
			}
			if tc.command == v1alpha1.CommandHold {
				// Both are listed, in one hold.
				if hold := d.status.Hold; len(hold.Causes) != 2 || hold.Episode != "new-1" || hold.Cause != v1alpha1.HoldCauseOperator {
					t.Errorf("the hold is %+v", hold)
				}
			}
		})
	}
}

// Req: P-16
func TestOneHoldListsEverythingThatHolds(t *testing.T) {
	f := factsOf(unitIn(isa88.Running), moduleIn("flow", v1alpha1.ModuleFault), moduleIn("level", v1alpha1.ModuleOnline), moduleIn("valve", v1alpha1.ModuleFault))
	d := decide(f)
	hold := d.status.Hold
	if len(hold.Causes) != 2 || !slices.Equal(hold.Modules, []string{"flow", "valve"}) || len(d.events) != 1 {
		t.Fatalf("two that fail together: %+v, %v", hold, d.events)
	}
	step := func(what string, modules ...module) {
		t.Helper()
		f = again(f, d)
		f.modules = modules
		f.runtime.report.Order = nil
		d = decide(f)
		if d.status.Hold.Episode != "new-1" || d.status.State != v1alpha1.UnitHolding {
			t.Fatalf("%s: another hold: %+v", what, d.status)
		}
	}
	// One comes back: nothing but the condition changes.
	flow := moduleIn("flow", v1alpha1.ModuleOnline)
	flow.since = at(time.Second)
	step("one recovers", flow, moduleIn("level", v1alpha1.ModuleOnline), moduleIn("valve", v1alpha1.ModuleFault))
	if len(d.status.Hold.Causes) != 2 {
		t.Errorf("a cause is forgotten: %+v", d.status.Hold)
	}
	// It fails again: its time is the new one.
	flow = moduleIn("flow", v1alpha1.ModuleFault)
	flow.since = at(8 * time.Second)
	step("it fails again", flow, moduleIn("level", v1alpha1.ModuleOnline), moduleIn("valve", v1alpha1.ModuleFault))
	if got := d.status.Hold.Causes; len(got) != 2 || !got[0].At.Equal(at(8*time.Second)) || len(d.events) != 0 {
		t.Errorf("causes %+v, told %v", got, d.events)
	}
	step("another one fails", flow, moduleIn("level", v1alpha1.ModuleFault), moduleIn("valve", v1alpha1.ModuleFault))
	if got := d.status.Hold; len(got.Causes) != 3 || !slices.Equal(got.Modules, []string{"flow", "level", "valve"}) || !slices.Equal(reasons(d), []string{ReasonHoldCauseAdded}) {
		t.Errorf("the hold is %+v, told %v", got, reasons(d))
	}
	online := []module{moduleIn("flow", v1alpha1.ModuleOnline), moduleIn("level", v1alpha1.ModuleOnline), moduleIn("valve", v1alpha1.ModuleOnline)}
	step("all recover", online...)
	if condition(d, ConditionEquipmentHealthy) != "True "+ReasonModulesOnline || !slices.Equal(reasons(d), []string{ReasonEquipmentRecovered}) || len(d.status.Hold.Causes) != 3 {
		t.Errorf("%+v, told %v", d.status, reasons(d))
	}
}

// Req: P-16
func TestAHoldListsNoMoreCausesThanItMay(t *testing.T) {
	var modules []module
	for i := range 3 * maxCauses {
		modules = append(modules, moduleIn(fmt.Sprintf("m%03d", i), v1alpha1.ModuleFault))
	}
	f := factsOf(unitIn(isa88.Running), modules...)
	d := decide(f)
	if got := d.status.Hold; len(got.Causes) != maxCauses || len(got.Modules) != len(modules) || len(d.events) != 1 || len(d.events[0].message) > 1000 {
		t.Errorf("%d causes, %d modules", len(got.Causes), len(got.Modules))
	}
	// The runtime's latch finds no room, and is acknowledged all the same.
	f = again(f, d)
	f.runtime.report.Latch = &api.Latch{ID: "l", At: begin(), Modules: []string{"m000"}}
	if got := orderOf(f.unit, f.runtime).LatchAcknowledged; got != "l" {
		t.Errorf("acknowledged %q", got)
	}
}

// Req: P-16c
func TestWhatAnOverridePassedOverHoldsWhenItChanges(t *testing.T) {
	running := func() facts {
		unit := unitIn(isa88.Idle)
		unit.Status.LastCommand = command(v1alpha1.CommandStart)
		unit.Status.LastCommand.Override = true
		f := factsOf(unit, moduleIn("flow", v1alpha1.ModuleFault))
		d := decide(f)
		if d.status.State != v1alpha1.UnitRunning || len(d.status.Overridden) != 1 {
			t.Fatalf("not started: %+v", d.status)
		}
		if got := condition(d, ConditionEquipmentHealthy); got != "False "+ReasonModuleFault {
			t.Errorf("%s is %s", ConditionEquipmentHealthy, got)
		}
		return again(f, d)
	}
	for _, tc := range []struct {
		name   string
		change func(*module)
		want   v1alpha1.UnitState
		left   int
	}{
		{"nothing changes", func(*module) {}, v1alpha1.UnitRunning, 1},
		{"another reason", func(m *module) { m.reason = "Refused" }, v1alpha1.UnitRunning, 1},
		{"it comes back", func(m *module) { m.state, m.since = v1alpha1.ModuleOnline, at(5*time.Second) }, v1alpha1.UnitRunning, 0},
		{"it came back and failed again", func(m *module) { m.since = at(20 * time.Second) }, v1alpha1.UnitHolding, 0},
		{"it is Offline", func(m *module) { m.state, m.since = v1alpha1.ModuleOffline, at(5*time.Second) }, v1alpha1.UnitHolding, 0},
		{"it is another one of that name", func(m *module) { m.uid = "another" }, v1alpha1.UnitHolding, 0},
		{"it is gone", func(m *module) { *m = module{name: "flow"} }, v1alpha1.UnitHolding, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := running()
			tc.change(&f.modules[0])
			d := decide(f)
			if d.status.State != tc.want || len(d.status.Overridden) != tc.left {
				t.Errorf("%s, passed over %+v", d.status.State, d.status.Overridden)
			}
		})
	}
	t.Run("once it came back, the next fault holds", func(t *testing.T) {
		f := running()
		f.modules[0] = moduleIn("flow", v1alpha1.ModuleOnline)
		f = again(f, decide(f))
		f.modules[0] = moduleIn("flow", v1alpha1.ModuleFault) // as it was
		if d := decide(f); d.status.State != v1alpha1.UnitHolding {
			t.Errorf("the Unit is %s", d.status.State)
		}
	})
	t.Run("RESUME without override is refused", func(t *testing.T) {
		f := running()
		f.unit.Status.State = v1alpha1.UnitPaused
		f.unit.Status.LastCommand = command(v1alpha1.CommandResume)
		if d := decide(f); d.status.State != v1alpha1.UnitPaused || d.status.LastCommand.Outcome != v1alpha1.CommandRefused {
			t.Errorf("%+v", d.status)
		}
	})
	t.Run("a cache without the module changes nothing", func(t *testing.T) {
		f := running()
		f.live, f.modules[0] = false, module{name: "flow"}
		if d := decide(f); !d.readLive || d.status.State != v1alpha1.UnitRunning || len(d.status.Overridden) != 1 {
			t.Errorf("%+v", d)
		}
	})
}

// Req: P-16
func TestAModuleThatACacheLacksIsLookedForInTheStore(t *testing.T) {
	f := factsOf(unitIn(isa88.Running), module{name: "flow"})
	f.live = false
	if d := decide(f); !d.readLive || d.status.State != v1alpha1.UnitRunning || condition(d, ConditionEquipmentHealthy) != "" {
		t.Errorf("%+v", d)
	}
	// What else holds does not wait for that.
	f.modules = append(f.modules, moduleIn("level", v1alpha1.ModuleFault))
	if d := decide(f); d.readLive || d.status.State != v1alpha1.UnitHolding {
		t.Errorf("%+v", d)
	}
}

// Req: P-16b
func TestOnlyTheRuntimeCompletesATransientState(t *testing.T) {
	completes := map[isa88.State]isa88.State{
		isa88.Pausing: isa88.Paused, isa88.Holding: isa88.Held, isa88.Restarting: isa88.Running, isa88.Completing: isa88.Complete,
		isa88.Stopping: isa88.Stopped, isa88.Aborting: isa88.Aborted, isa88.Resetting: isa88.Idle,
	}
	for _, tc := range []struct {
		name   string
		report func(*api.Report)
		done   bool
	}{
		{"all of it is applied", func(r *api.Report) { r.Applied = true }, true},
		{"it is not applied", func(*api.Report) {}, false},
		{"of a former revision", func(r *api.Report) { r.Applied, r.Order.Revision = true, 6 }, false},
		{"of a later revision", func(r *api.Report) { r.Applied, r.Order.Revision = true, 8 }, false},
		{"of another state", func(r *api.Report) { r.Applied, r.Order.State = true, isa88.Idle }, false},
		{"of another Unit", func(r *api.Report) { r.Applied, r.Order.UID = true, "another" }, false},
		{"of no order", func(r *api.Report) { r.Applied, r.Order = true, nil }, false},
	} {
		for _, state := range isa88.States() {
			f := factsOf(unitIn(state), moduleIn("flow", v1alpha1.ModuleOnline))
			tc.report(&f.runtime.report)
			want := state
			if next, transient := completes[state]; transient && tc.done {
				want = next
			}
			d := decide(f)
			if got := isa88.State(d.status.State); got != want {
				t.Errorf("%s: %s becomes %s, want %s", tc.name, state, got, want)
			}
			if want != state && (want == isa88.Running || want == isa88.Idle) && d.status.Hold != nil {
				t.Errorf("a hold stays in %s", want)
			}
		}
	}
}

// Req: P-16c
func TestTheLastStepToRunningLooksAtTheModulesOnceMore(t *testing.T) {
	for _, tc := range []struct {
		name       string
		module     func(*module)
		override   bool
		runtime    func(*runtime)
		want       isa88.State
		cause      v1alpha1.HoldCause
		waits, was bool
	}{
		{name: "all is well", want: isa88.Running},
		{name: "a fault", module: func(m *module) { m.state = v1alpha1.ModuleFault }, want: isa88.Holding, cause: v1alpha1.HoldCauseIOModuleFault},
		{name: "missing", module: func(m *module) { *m = module{name: "flow"} }, want: isa88.Holding, cause: v1alpha1.HoldCauseIOModuleMissing},
		{name: "Unknown for a moment", module: func(m *module) { m.state = v1alpha1.ModuleUnknown }, want: isa88.Holding, cause: v1alpha1.HoldCauseIOModuleUnknown},
		{name: "not measured in this leadership", module: func(m *module) { m.confirmed = false }, want: isa88.Restarting, waits: true},
		{name: "not measured by its present specification", module: func(m *module) { m.outdated = true }, want: isa88.Restarting, waits: true},
		{name: "the runtime is away", runtime: func(r *runtime) { r.inContact = false }, want: isa88.Restarting, waits: true},
		{name: "a fault that an override passed over", module: func(m *module) { m.state = v1alpha1.ModuleFault }, override: true, want: isa88.Running},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := moduleIn("flow", v1alpha1.ModuleOnline)
			if tc.module != nil {
				tc.module(&m)
			}
			unit := unitIn(isa88.Restarting)
			unit.Spec.HoldTimeout.Duration = time.Hour
			if tc.override {
				unit.Status.Overridden = []v1alpha1.OverriddenModule{{Module: m.name, UID: m.uid, State: m.state, Since: m.since}}
			}
			f := factsOf(unit, m)
			f.runtime.report.Applied = true
			if tc.runtime != nil {
				tc.runtime(&f.runtime)
			}
			d := decide(f)
			if got := isa88.State(d.status.State); got != tc.want {
				t.Errorf("the Unit is %s", got)
			}
			if tc.cause != "" && (d.status.Hold.Cause != tc.cause || d.status.Hold.Episode != "new-1" || d.status.Hold.PreviousState != v1alpha1.UnitRestarting) {
				t.Errorf("the hold is %+v", d.status.Hold)
			}
			if tc.waits && d.after != confirmationPause {
				t.Errorf("looked at again after %s", d.after)
			}
			f.live = false
			if m := f.modules[0]; m.found && m.state == v1alpha1.ModuleOnline {
				if d := decide(f); !d.readLive || d.status.State != v1alpha1.UnitRestarting {
					t.Errorf("decided on a cache: %+v", d)
				}
			}
		})
	}
}

// Req: P-16b
func TestTheRuntimesOwnHoldBecomesAHoldAndIsAcknowledged(t *testing.T) {
	for _, state := range isa88.States() {
		f := factsOf(unitIn(state), moduleIn("flow", v1alpha1.ModuleOnline))
		f.runtime.report.Latch = &api.Latch{ID: "latch", At: begin().Add(-time.Minute), Modules: []string{"flow", "level"}}
		before := orderOf(f.unit, f.runtime).LatchAcknowledged
		d := decide(f)
		f = again(f, d)
		after := orderOf(f.unit, f.runtime)
		switch state {
		case isa88.Running, isa88.Pausing, isa88.Paused, isa88.Restarting:
			if d.status.State != v1alpha1.UnitHolding || d.status.Hold.Cause != v1alpha1.HoldCauseRuntime || !slices.Equal(d.status.Hold.Modules, []string{"flow", "level"}) {
				t.Errorf("in %s: %+v", state, d.status)
			}
			if before != "" || after.LatchAcknowledged != "latch" || after.Episode != d.status.Hold.Episode || after.State != isa88.Holding {
				t.Errorf("in %s acknowledged %q, then %+v", state, before, after)
			}
		case isa88.Holding, isa88.Held:
			if isa88.State(d.status.State) != state || len(d.status.Hold.Causes) != 3 || before != "" || after.LatchAcknowledged != "latch" {
				t.Errorf("in %s: %+v, acknowledged %q, then %+v", state, d.status, before, after)
			}
		default:
			if isa88.State(d.status.State) != state || before != "latch" {
				t.Errorf("in %s: %s, acknowledged %q", state, d.status.State, before)
			}
		}
		f = factsOf(unitIn(state), moduleIn("flow", v1alpha1.ModuleOnline))
		f.runtime.report.Latch, f.runtime.report.Runtime.UID = &api.Latch{ID: "latch"}, "another"
		if d := decide(f); isa88.State(d.status.State) != state || orderOf(f.unit, f.runtime).LatchAcknowledged != "" {
			t.Errorf("another Unit's latch in %s: %+v", state, d.status)
		}
	}
}

// Req: P-16b
func TestTheWatchdogAlarmsOnceAndNeverActs(t *testing.T) {
	for _, state := range isa88.States() {
		for _, tc := range []struct {
			name    string
			inState time.Duration
			since   *metav1.Time
			late    bool
		}{
			{"in time", 29 * time.Second, at(-29 * time.Second), false},
			{"late by the store", 0, at(-30 * time.Second), true},
			{"late as seen, though the clock was set back", 30 * time.Second, at(time.Hour), true},
		} {
			f := factsOf(unitIn(state), moduleIn("flow", v1alpha1.ModuleOnline))
			f.unit.Status.LastTransitionTime, f.inState = tc.since, tc.inState
			d := decide(f)
			want := ""
			if tc.late && isa88.Transient(state) {
				want = "True " + ReasonStateTooLong
			}
			if got := condition(d, ConditionTransientStateTimeout); got != want || isa88.State(d.status.State) != state {
				t.Errorf("%s in %s: %s, %q", tc.name, state, d.status.State, got)
			}
			if told := slices.Contains(reasons(d), ReasonStateTooLong); told != (want != "") {
				t.Errorf("%s in %s: told %v", tc.name, state, told)
			}
			if isa88.Transient(state) && !tc.late && d.after != time.Second {
				t.Errorf("%s in %s: looked at again after %s", tc.name, state, d.after)
			}
			if want == "" {
				continue
			}
			f = again(f, d)
			f.inState, f.unit.Status.LastTransitionTime = 0, at(time.Hour)
			d = decide(f)
			if condition(d, ConditionTransientStateTimeout) != want || len(d.events) > 0 {
				t.Errorf("%s in %s: told twice: %v", tc.name, state, d.events)
			}
			f = again(f, d)
			f.unit.Status.State = v1alpha1.UnitRunning
			if got := condition(decide(f), ConditionTransientStateTimeout); got != "" {
				t.Errorf("it stays in Running: %s", got)
			}
		}
	}
}

// Req: P-16b
func TestWhetherHoldValuesAreWritten(t *testing.T) {
	write := func(name string, unreachable bool, reason string) api.HoldWrite {
		return api.HoldWrite{ControlModule: "dosing", Name: name, IOModule: "valve", Unreachable: unreachable, Reason: reason}
	}
	for _, tc := range []struct {
		name        string
		applied     bool
		outstanding []api.HoldWrite
		want, tells string
	}{
		{"all are taken", true, nil, "True " + ReasonHoldValuesTaken, ""},
		{"they are on their way", false, []api.HoldWrite{write("open", false, "")}, "Unknown " + ReasonHoldValuesPending, ""},
		{"a device is lost", true, []api.HoldWrite{write("open", true, "Timeout")}, "False " + ReasonHoldValuesUnreachable, "dosing/open of valve"},
		{"a device refuses", false, []api.HoldWrite{write("open", false, "IllegalAddress"), write("rate", true, "")}, "False " + ReasonHoldValuesRefused, "dosing/open of valve (IllegalAddress)"},
	} {
		for _, state := range isa88.States() {
			f := factsOf(unitIn(state))
			f.runtime.report.Outstanding = tc.outstanding
			f.runtime.report.Applied = tc.applied
			if isa88.Transient(state) {
				f.runtime.report.Applied = false
				if tc.applied && tc.outstanding == nil {
					continue
				}
			}
			d := decide(f)
			want := ""
			if slices.Contains([]isa88.State{isa88.Holding, isa88.Held, isa88.Stopping, isa88.Stopped, isa88.Aborting, isa88.Aborted}, state) {
				want = tc.want
			}
			if got := condition(d, ConditionHoldValuesWritten); got != want {
				t.Errorf("%s in %s: %q, want %q", tc.name, state, got, want)
			}
			if c := meta.FindStatusCondition(d.status.Conditions, ConditionHoldValuesWritten); want != "" && !strings.Contains(c.Message, tc.tells) {
				t.Errorf("%s: %s", tc.name, c.Message)
			}
		}
	}
	// What is known of Holding stays known in Held until the runtime tells more, and is nothing in the next Holding.
	f := factsOf(unitIn(isa88.Holding))
	f.runtime.report.Applied, f.runtime.report.Outstanding = true, []api.HoldWrite{write("open", true, "Timeout")}
	f.unit.Status.Conditions = decide(f).status.Conditions
	d := decide(f)
	if got := condition(d, ConditionHoldValuesWritten); d.status.State != v1alpha1.UnitHeld || got != "" && got != "Unknown "+ReasonHoldValuesPending {
		t.Errorf("%s: %s", d.status.State, got)
	}
	f = factsOf(unitIn(isa88.Restarting), moduleIn("flow", v1alpha1.ModuleFault))
	f.runtime.report.Applied = true
	if got := condition(decide(f), ConditionHoldValuesWritten); got != "Unknown "+ReasonHoldValuesPending {
		t.Errorf("a new hold: %s", got)
	}
	f = factsOf(unitIn(isa88.Holding))
	f.runtime.report.Applied, f.runtime.report.Order.Episode = true, "another"
	if d := decide(f); condition(d, ConditionHoldValuesWritten) != "Unknown "+ReasonHoldValuesPending {
		t.Errorf("another hold's: %s", condition(d, ConditionHoldValuesWritten))
	}
}

// Req: P-16b
func TestWhatTheRuntimeReachesAlarmsAndHoldsNothing(t *testing.T) {
	f := factsOf(unitIn(isa88.Running), moduleIn("flow", v1alpha1.ModuleOnline), moduleIn("level", v1alpha1.ModuleOnline))
	f.runtime.report.Modules = []api.ModuleLink{{Name: "flow", UID: "uid-of-flow", Known: true, Connected: true}, {Name: "level", UID: "uid-of-level"}}
	d := decide(f)
	if condition(d, ConditionRuntimeDevicesConnected) != "True "+ReasonDevicesConnected || condition(d, ConditionRuntimeReady) != "True "+ReasonRuntimeInContact || d.status.RuntimePodName != pod {
		t.Errorf("%+v", d.status)
	}
	f = again(f, d)
	f.runtime.report.Modules = []api.ModuleLink{{Name: "flow", UID: "uid-of-flow", Known: true, Reason: "Timeout"}}
	d = decide(f)
	if c := meta.FindStatusCondition(d.status.Conditions, ConditionRuntimeDevicesConnected); d.status.State != v1alpha1.UnitRunning ||
		c.Reason != ReasonDevicesLost || !strings.Contains(c.Message, "flow (Timeout)") || !slices.Equal(reasons(d), []string{ReasonDevicesLost}) {
		t.Errorf("%+v, told %v", c, d.events)
	}
	f = again(f, d)
	f.modules[0].uid = "another"
	if d := decide(f); condition(d, ConditionRuntimeDevicesConnected) != "True "+ReasonDevicesConnected {
		t.Errorf("a former module's: %+v", d.status.Conditions)
	}
	f.runtime.inContact = false
	d = decide(f)
	if condition(d, ConditionRuntimeReady) != "False "+ReasonRuntimeUnreachable || condition(d, ConditionRuntimeDevicesConnected) != "Unknown "+ReasonRuntimeUnreachable ||
		d.status.State != v1alpha1.UnitRunning || !slices.Equal(reasons(d), []string{ReasonRuntimeUnreachable}) {
		t.Errorf("%+v, told %v", d.status, reasons(d))
	}
}

// Req: P-16b, A-06
func TestARuntimeThatNewControllersHaveYetToHearIsNoTrouble(t *testing.T) {
	heard := factsOf(unitIn(isa88.Running), moduleIn("flow", v1alpha1.ModuleOnline))
	before := decide(heard)
	f := again(heard, before)
	f.runtime = runtime{awaited: true}
	d := decide(f)
	if len(d.events) > 0 || !equality.Semantic.DeepEqual(d.status, f.unit.Status) {
		t.Errorf("told %v, and wrote %+v", reasons(d), d.status)
	}
	if d.after == 0 || d.after > awaitLimit {
		t.Errorf("it is looked at again after %s", d.after)
	}
	f.runtime.awaited = false
	if d := decide(f); condition(d, ConditionRuntimeReady) != "False "+ReasonRuntimeUnreachable || d.status.RuntimePodName != "" {
		t.Errorf("when they have waited long enough: %+v", d.status)
	}
	// Nobody has heard of it ever: there is nothing to keep.
	f = factsOf(unitIn(isa88.Running), moduleIn("flow", v1alpha1.ModuleOnline))
	f.runtime = runtime{awaited: true}
	if d := decide(f); condition(d, ConditionRuntimeReady) != "False "+ReasonRuntimeUnreachable {
		t.Errorf("a runtime that was never heard: %+v", d.status.Conditions)
	}
}

// Req: P-16
func TestAUnitThatHasNoStateYetIsIdle(t *testing.T) {
	d := decide(factsOf(&v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: "reactor", UID: "u", Generation: 3}}))
	if d.status.State != v1alpha1.UnitIdle || d.status.Mode != v1alpha1.UnitModeAutomatic || d.status.ObservedGeneration != 3 ||
		condition(d, ConditionEquipmentHealthy) != "True "+ReasonNoModules || len(d.events) > 0 {
		t.Errorf("%+v, told %v", d.status, d.events)
	}
	if got := orderOf(&v1alpha1.Unit{}, runtime{}); got.State != isa88.Idle {
		t.Errorf("told %+v", got)
	}
}

func TestAHoldThatNobodyGaveACauseGetsOne(t *testing.T) {
	unit := unitIn(isa88.Held)
	unit.Status.Hold = nil
	d := decide(factsOf(unit, moduleIn("flow", v1alpha1.ModuleFault)))
	if hold := d.status.Hold; hold == nil || hold.Episode == "" || hold.Cause != v1alpha1.HoldCauseIOModuleFault || d.status.State != v1alpha1.UnitHeld {
		t.Errorf("%+v", hold)
	}
}

// Req: A-02
func TestThatAUnitWasRestoredIsToldUntilItRuns(t *testing.T) {
	for state, command := range map[isa88.State]*v1alpha1.UnitCommandRecord{
		isa88.Idle: command(v1alpha1.CommandStart), isa88.Held: command(v1alpha1.CommandRestart), isa88.Stopped: command(v1alpha1.CommandReset),
	} {
		unit := unitIn(state)
		unit.Status.LastCommand = command
		unit.Status.Conditions = []metav1.Condition{{Type: ConditionRestored, Status: metav1.ConditionTrue, Reason: "FromSnapshot"}}
		d := decide(factsOf(unit))
		if told := condition(d, ConditionRestored) != ""; told == (d.status.State == v1alpha1.UnitRunning) {
			t.Errorf("%s by %s: told %v", d.status.State, command.Command, told)
		}
		if state == isa88.Idle && d.status.State != v1alpha1.UnitRunning {
			t.Errorf("%s", d.status.State)
		}
	}
}
