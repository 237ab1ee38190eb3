package unit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/validation"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// memory is a store of one Unit. What it leaves out is the API: conversion, validation of the status, managed fields.
type memory struct {
	mu   sync.Mutex
	unit *physical.Unit
	// writes counts what was stored, reads what was read.
	writes, reads int
	// meanwhile, once, is somebody else's write between a change and its storing.
	meanwhile func(*physical.Unit)
	// onRead is called before each read of a request that waits.
	onRead  func(read int, unit *physical.Unit)
	readErr error
	// asked is the version of the last read; behind is how many more reads find a cache that is older than it.
	asked  string
	behind int
}

func (m *memory) ChangeStatus(_ context.Context, name string, dryRun []string, change func(obj runtime.Object) error) (runtime.Object, error) {
	for {
		m.mu.Lock()
		if m.unit == nil {
			m.mu.Unlock()
			return nil, apierrors.NewNotFound(physical.Resource("units"), name)
		}
		changed, version := m.unit.DeepCopy(), m.unit.ResourceVersion
		m.mu.Unlock()
		if err := change(changed); err != nil {
			return nil, err
		}
		m.mu.Lock()
		if m.meanwhile != nil {
			m.meanwhile(m.unit)
			m.unit.ResourceVersion += "'"
			m.meanwhile = nil
		}
		conflict := m.unit.ResourceVersion != version
		if !conflict && len(dryRun) == 0 && !reflect.DeepEqual(changed, m.unit) {
			changed.ResourceVersion += "+"
			m.unit = changed.DeepCopy()
			m.writes++
		}
		m.mu.Unlock()
		if !conflict {
			return changed, nil
		}
	}
}

func (m *memory) Get(_ context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	m.asked = options.ResourceVersion
	if m.behind > 0 {
		m.behind--
		return nil, storage.NewTooLargeResourceVersionError(2, 1, 1)
	}
	if m.onRead != nil && m.unit != nil {
		m.onRead(m.reads, m.unit)
	}
	switch {
	case m.readErr != nil:
		return nil, m.readErr
	case m.unit == nil:
		return nil, apierrors.NewNotFound(physical.Resource("units"), name)
	}
	return m.unit.DeepCopy(), nil
}

func in(state physical.UnitState, edits ...func(*physical.Unit)) *physical.Unit {
	unit := &physical.Unit{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "mixer", UID: "u-1", ResourceVersion: "1"},
		Status:     physical.UnitStatus{State: state, Mode: physical.UnitModeAutomatic},
	}
	for _, edit := range edits {
		edit(unit)
	}
	return unit
}

func last(id string, command physical.UnitCommandName, outcome physical.CommandOutcome) func(*physical.Unit) {
	return func(unit *physical.Unit) {
		unit.Status.LastCommand = &physical.UnitCommandRecord{ID: id, Command: command, Actor: "bo", Time: &metav1.Time{Time: now.Add(-time.Second)}, Outcome: outcome}
	}
}

func deleted(unit *physical.Unit) { unit.DeletionTimestamp = &metav1.Time{Time: now} }

func as(name string) context.Context {
	return genericapirequest.WithUser(genericapirequest.WithNamespace(context.Background(), "site-a"), &user.DefaultInfo{Name: name})
}

func send(spec physical.UnitCommandSpec) *physical.UnitCommand {
	return &physical.UnitCommand{Spec: spec}
}

func admitted(context.Context, runtime.Object) error { return nil }

// Every state, every command: the table of isa88 decides, and a refusal says what is allowed instead.
//
// Req: P-16, P-16c
func TestEveryStateTakesTheCommandsOfItsTableAndNoOthers(t *testing.T) {
	for _, state := range append(isa88.States(), "", "Nonsense") {
		for _, command := range validation.UnitCommands() {
			t.Run(fmt.Sprintf("%s in %q", command, state), func(t *testing.T) {
				unit := in(physical.UnitState(state))
				_, want := isa88.Next(state, isa88.Command(command))
				want = want || command == physical.CommandAutomatic || command == physical.CommandManual
				err := accept(unit, physical.UnitCommandSpec{ID: "i", Command: command, Reason: "r"}, "ada", now)
				if want {
					record := unit.Status.LastCommand
					if err != nil || record == nil || record.Command != command || record.Actor != "ada" || record.Reason != "r" || record.ID != "i" ||
						!record.Time.Time.Equal(now) || record.Outcome != physical.CommandAccepted {
						t.Errorf("have %+v, %v", record, err)
					}
					if unit.Status.State != physical.UnitState(state) || unit.Status.Mode != physical.UnitModeAutomatic {
						t.Error("only the controller changes the state and the mode")
					}
					return
				}
				if !apierrors.IsConflict(err) || unit.Status.LastCommand != nil {
					t.Fatalf("have %v, %+v", err, unit.Status.LastCommand)
				}
				for _, allowed := range isa88.Allowed(state) {
					if !strings.Contains(err.Error(), string(allowed)) {
						t.Errorf("%q does not say that %s is allowed", err, allowed)
					}
				}
			})
		}
	}
}

// Req: P-16c. What makes the plant safer never waits for what does not, and nothing else goes before anything.
func TestWhichCommandGoesBeforeOneThatIsStillBeingCarriedOut(t *testing.T) {
	hold := []physical.UnitCommandName{physical.CommandStart, physical.CommandPause, physical.CommandResume, physical.CommandRestart, physical.CommandReset, physical.CommandAutomatic, physical.CommandManual}
	stop := append(slices.Clone(hold), physical.CommandHold)
	goesBefore := map[physical.UnitCommandName][]physical.UnitCommandName{
		physical.CommandHold:  hold,
		physical.CommandStop:  stop,
		physical.CommandAbort: append(slices.Clone(stop), physical.CommandStop),
	}
	for _, pending := range validation.UnitCommands() {
		for _, command := range validation.UnitCommands() {
			t.Run(fmt.Sprintf("%s while %s is pending", command, pending), func(t *testing.T) {
				// Running allows HOLD, STOP, ABORT and the modes, which is all that may go before anything.
				unit := in(physical.UnitRunning, last("old", pending, physical.CommandAccepted))
				err := accept(unit, physical.UnitCommandSpec{ID: "new", Command: command}, "ada", now)
				if !slices.Contains(goesBefore[command], pending) {
					if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), string(pending)) || !strings.Contains(err.Error(), "still being carried out") || unit.Status.LastCommand.ID != "old" {
						t.Errorf("have %v", err)
					}
					return
				}
				if err != nil || unit.Status.LastCommand.ID != "new" || len(unit.Status.RecentCommands) != 1 {
					t.Fatalf("have %v, %+v", err, unit.Status)
				}
				past := unit.Status.RecentCommands[0]
				if past.ID != "old" || past.Outcome != physical.CommandSuperseded || !strings.Contains(past.Message, string(command)) || !strings.Contains(past.Message, "ada") || past.Actor != "bo" {
					t.Errorf("the former one is %+v", past)
				}
			})
		}
	}
}

// Req: P-16c. The controller may be carrying out the pending command at this moment: HOLD is not refused because of it.
func TestACommandThatSupersedesIsJudgedWhereThePendingOneLeadsToo(t *testing.T) {
	for name, test := range map[string]struct {
		state   physical.UnitState
		pending physical.UnitCommandName
		outcome physical.CommandOutcome
		command physical.UnitCommandName
		taken   bool
	}{
		"HOLD of a Unit that is being started":                 {physical.UnitIdle, physical.CommandStart, physical.CommandAccepted, physical.CommandHold, true},
		"STOP of a Unit that is being started":                 {physical.UnitIdle, physical.CommandStart, physical.CommandAccepted, physical.CommandStop, true},
		"HOLD of one whose START was refused":                  {physical.UnitIdle, physical.CommandStart, physical.CommandRefused, physical.CommandHold, false},
		"HOLD of one that is being reset":                      {physical.UnitComplete, physical.CommandReset, physical.CommandAccepted, physical.CommandHold, false},
		"HOLD of an idle one whose mode is changed":            {physical.UnitIdle, physical.CommandManual, physical.CommandAccepted, physical.CommandHold, false},
		"HOLD of one that is being restarted":                  {physical.UnitHeld, physical.CommandRestart, physical.CommandAccepted, physical.CommandHold, true},
		"ABORT of a running one that is being stopped":         {physical.UnitRunning, physical.CommandStop, physical.CommandAccepted, physical.CommandAbort, true},
		"START again, once the one before has come to its end": {physical.UnitIdle, physical.CommandStart, physical.CommandExpired, physical.CommandStart, true},
	} {
		t.Run(name, func(t *testing.T) {
			unit := in(test.state, last("old", test.pending, test.outcome))
			err := accept(unit, physical.UnitCommandSpec{ID: "new", Command: test.command}, "ada", now)
			if (err == nil) != test.taken || err != nil && !apierrors.IsConflict(err) {
				t.Errorf("have %v", err)
			}
		})
	}
}

// Req: P-16c, A-06. A repeated id is the same command; one that is another's is no command at all.
func TestAnIDIsOneCommandOfOneUser(t *testing.T) {
	recent := func(unit *physical.Unit) {
		unit.Status.RecentCommands = []physical.UnitCommandRecord{{ID: "older", Command: physical.CommandHold, Actor: "bo", Outcome: physical.CommandDone, Message: "held"}}
	}
	for name, test := range map[string]struct {
		spec    physical.UnitCommandSpec
		actor   string
		refused string
	}{
		"the last one, again":               {physical.UnitCommandSpec{ID: "old", Command: physical.CommandStart, Reason: "another reason"}, "bo", ""},
		"an older one, again":               {physical.UnitCommandSpec{ID: "older", Command: physical.CommandHold}, "bo", ""},
		"the last one's id for another":     {physical.UnitCommandSpec{ID: "old", Command: physical.CommandStop}, "bo", "another command, START"},
		"an older one's id for another":     {physical.UnitCommandSpec{ID: "older", Command: physical.CommandStop}, "bo", "another command, HOLD"},
		"the last one's id by another user": {physical.UnitCommandSpec{ID: "old", Command: physical.CommandStart}, "ada", "a command of bo"},
		"an older one's id by nobody":       {physical.UnitCommandSpec{ID: "older", Command: physical.CommandHold}, "", "a command of bo"},
		"now with override":                 {physical.UnitCommandSpec{ID: "old", Command: physical.CommandStart, Override: true, Reason: "r"}, "bo", "another command, START"},
	} {
		for _, edit := range []func(*physical.Unit){func(*physical.Unit) {}, deleted} {
			t.Run(name, func(t *testing.T) {
				unit := in(physical.UnitRunning, last("old", physical.CommandStart, physical.CommandDone), recent, edit)
				before := unit.DeepCopy()
				err := accept(unit, test.spec, test.actor, now)
				if !reflect.DeepEqual(unit, before) {
					t.Error("something was written")
				}
				if test.refused == "" && err != nil || test.refused != "" && (!apierrors.IsConflict(err) || !strings.Contains(err.Error(), test.refused)) {
					t.Errorf("have %v", err)
				}
			})
		}
	}
}

// Req: P-16c
func TestTheLastCommandsAreRememberedNewestFirst(t *testing.T) {
	unit := in(physical.UnitRunning)
	for i := range 20 {
		if err := accept(unit, physical.UnitCommandSpec{ID: fmt.Sprint(i), Command: physical.CommandManual}, "ada", now); err != nil {
			t.Fatal(err)
		}
		unit.Status.LastCommand.Outcome = physical.CommandDone
	}
	var ids []string
	for _, record := range unit.Status.RecentCommands {
		ids = append(ids, record.ID)
	}
	if unit.Status.LastCommand.ID != "19" || strings.Join(ids, " ") != "18 17 16 15 14 13 12 11 10 9 8 7 6 5 4" {
		t.Errorf("have %s, then %v", unit.Status.LastCommand.ID, ids)
	}
}

// Req: P-16c
func TestAUnitThatIsBeingDeletedTakesNoCommand(t *testing.T) {
	for _, command := range validation.UnitCommands() {
		if err := accept(in(physical.UnitRunning, deleted), physical.UnitCommandSpec{ID: "i", Command: command}, "ada", now); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "being deleted") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// Req: P-16c. A refusal says why, with what holds the Unit.
func TestARefusalSaysWhatHoldsTheUnit(t *testing.T) {
	held := func(unit *physical.Unit) {
		unit.Status.Hold = &physical.UnitHold{Cause: physical.HoldCauseIOModuleFault, Modules: []string{"a", "b", "c", "d", "e", "f", "g"}}
	}
	for _, test := range []struct {
		unit  *physical.Unit
		texts []string
	}{
		{in(physical.UnitHeld, held), []string{`"mixer"`, "START is not allowed in state Held", "HOLD, RESTART, STOP, ABORT, AUTOMATIC, MANUAL", "held by IOModuleFault of a, b, c, d, e and 2 more"}},
		{in(physical.UnitHeld, func(unit *physical.Unit) {
			unit.Status.Hold = &physical.UnitHold{Cause: physical.HoldCauseOperator, Modules: []string{"a", "b"}, Causes: []physical.UnitHoldCause{
				{Cause: physical.HoldCauseOperator, Actor: "ada"}, {Cause: physical.HoldCauseIOModuleFault, Module: "a"}, {Cause: physical.HoldCauseIOModuleFault, Module: "b"}}}
		}), []string{"it is held by Operator, then by a, b"}},
		{in(physical.UnitResetting), []string{"Resetting ends by itself in Idle"}},
		{in(physical.UnitRunning), []string{"PAUSE, HOLD, STOP, ABORT"}},
	} {
		err := accept(test.unit, physical.UnitCommandSpec{ID: "i", Command: physical.CommandStart}, "ada", now)
		for _, text := range test.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not say %q", err, text)
			}
		}
	}
}

// post sends a command, in a time of its own, and tells how long its answer took.
func post(t *testing.T, store *memory, ctx context.Context, spec physical.UnitCommandSpec, dryRun ...string) (have *physical.UnitCommand, took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		command, start := &Command{units: store, status: store, clock: clock.RealClock{}}, time.Now()
		var obj runtime.Object
		obj, err = command.Create(ctx, "mixer", send(spec), admitted, &metav1.CreateOptions{DryRun: dryRun})
		if err == nil {
			have = obj.(*physical.UnitCommand)
		}
		took = time.Since(start)
	})
	return have, took, err
}

func becomes(outcome physical.CommandOutcome, message string, state physical.UnitState) func(int, *physical.Unit) {
	return func(read int, unit *physical.Unit) {
		if read == 5 {
			unit.Status.State = state
			unit.Status.LastCommand.Outcome, unit.Status.LastCommand.Message = outcome, message
		}
	}
}

// Req: P-16c
func TestARequestWaitsForWhatBecomesOfItsCommand(t *testing.T) {
	for _, test := range []struct {
		name    string
		onRead  func(int, *physical.Unit)
		outcome physical.CommandOutcome
		state   physical.UnitState
		refused []string
		atLeast time.Duration
	}{
		{name: "done", onRead: becomes(physical.CommandDone, "the Unit runs", physical.UnitRunning), outcome: physical.CommandDone, state: physical.UnitRunning, atLeast: 5 * pause},
		{name: "refused", onRead: becomes(physical.CommandRefused, "press is Fault", physical.UnitIdle), refused: []string{"START is refused: press is Fault", "these are allowed: START", `"mixer"`}},
		{name: "expired", onRead: becomes(physical.CommandExpired, "10 s have passed", physical.UnitIdle), refused: []string{"START is expired: 10 s have passed"}},
		{name: "refused without a word", onRead: becomes(physical.CommandRefused, "", physical.UnitIdle), refused: []string{"no reason was recorded"}},
		{name: "nobody carries it out", outcome: physical.CommandAccepted, state: physical.UnitIdle, atLeast: patience},
		{name: "superseded", onRead: func(read int, unit *physical.Unit) {
			if read == 3 {
				past := *unit.Status.LastCommand
				past.Outcome, past.Message = physical.CommandSuperseded, "STOP of bo came before it was carried out"
				unit.Status.RecentCommands = []physical.UnitCommandRecord{past}
				unit.Status.LastCommand = &physical.UnitCommandRecord{ID: "other", Command: physical.CommandStop, Outcome: physical.CommandAccepted}
			}
		}, refused: []string{"START is superseded: STOP of bo came"}},
		{name: "forgotten, since so many came after it", onRead: func(read int, unit *physical.Unit) {
			unit.Status.LastCommand = &physical.UnitCommandRecord{ID: "other", Command: physical.CommandStop, Outcome: physical.CommandAccepted}
		}, outcome: physical.CommandAccepted, state: physical.UnitIdle},
		{name: "the Unit was made anew", onRead: func(read int, unit *physical.Unit) { unit.UID = "u-2" }, refused: []string{"made anew"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := &memory{unit: in(physical.UnitIdle), onRead: test.onRead}
			have, took, err := post(t, store, as("ada"), physical.UnitCommandSpec{ID: "i", Command: physical.CommandStart, Reason: "r"})
			if test.refused != nil {
				if !apierrors.IsConflict(err) {
					t.Fatalf("have %v", err)
				}
				for _, text := range test.refused {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%q does not say %q", err, text)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := have.Status.Record; r == nil || r.Outcome != test.outcome || have.Status.State != test.state || r.ID != "i" || r.Actor != "ada" || have.Name != "mixer" || have.Namespace != "site-a" || have.Spec.Reason != "r" {
				t.Errorf("have %+v", have)
			}
			if took < test.atLeast || took > patience+pause {
				t.Errorf("took %s", took)
			}
		})
	}
}

// Req: P-16c. A reader who is gone, a store that fails, a Unit that vanishes: the command stands.
func TestARequestThatCannotWaitAnyMore(t *testing.T) {
	gone, cancel := context.WithCancel(as("ada"))
	cancel()
	store := &memory{unit: in(physical.UnitIdle)}
	if have, _, err := post(t, store, gone, physical.UnitCommandSpec{Command: physical.CommandStart}); err != nil || have.Status.Record.Outcome != physical.CommandAccepted {
		t.Errorf("have %+v, %v", have, err)
	}
	away := errors.New("the store is away")
	store = &memory{unit: in(physical.UnitIdle), readErr: away}
	if _, _, err := post(t, store, as("ada"), physical.UnitCommandSpec{Command: physical.CommandStart}); !errors.Is(err, away) {
		t.Errorf("have %v", err)
	}
	store = &memory{unit: in(physical.UnitIdle), readErr: apierrors.NewNotFound(physical.Resource("units"), "mixer")}
	if _, _, err := post(t, store, as("ada"), physical.UnitCommandSpec{Command: physical.CommandStart}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "then the Unit was deleted") {
		t.Errorf("have %v", err)
	}
}

// Req: P-16c. What was written before the command is no outcome of it.
func TestARequestWaitsForACacheThatIsBehind(t *testing.T) {
	store := &memory{unit: in(physical.UnitIdle), behind: 3, onRead: becomes(physical.CommandDone, "", physical.UnitRunning)}
	have, _, err := post(t, store, as("ada"), physical.UnitCommandSpec{Command: physical.CommandStart})
	if err != nil || have.Status.Record.Outcome != physical.CommandDone || store.asked != "1+" {
		t.Errorf("have %+v, %v, asked for version %q", have, err, store.asked)
	}
}

// Req: P-16c, A-06
func TestARepeatedCommandIsAnsweredWithItsRecordAndWrittenOnce(t *testing.T) {
	for outcome, code := range map[physical.CommandOutcome]int32{
		physical.CommandDone: http.StatusOK, physical.CommandRefused: http.StatusConflict, physical.CommandSuperseded: http.StatusConflict, physical.CommandAccepted: http.StatusOK,
	} {
		store := &memory{unit: in(physical.UnitRunning, last("old", physical.CommandStart, outcome))}
		_, _, err := post(t, store, as("bo"), physical.UnitCommandSpec{ID: "old", Command: physical.CommandStart})
		if have := code200(err); have != code || store.writes != 0 {
			t.Errorf("%s: have %v, %d writes", outcome, err, store.writes)
		}
	}
}

func code200(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return http.StatusOK
}

// Req: P-16c. The judgement is made on the version that is written over.
func TestACommandIsJudgedAgainWhenTheUnitChangesMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*physical.Unit)
		code      int32
	}{
		"a fault holds it: PAUSE is not allowed any more": {func(u *physical.Unit) { u.Status.State = physical.UnitHolding }, http.StatusConflict},
		"another command is taken first":                  {last("first", physical.CommandPause, physical.CommandAccepted), http.StatusConflict},
		"the same command, sent twice": {func(u *physical.Unit) {
			last("i", physical.CommandPause, physical.CommandDone)(u)
			u.Status.LastCommand.Actor = "ada"
		}, http.StatusOK},
		"it is deleted": {deleted, http.StatusConflict},
		"a condition":   {func(u *physical.Unit) { u.Status.ObservedGeneration = 7 }, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			store := &memory{unit: in(physical.UnitRunning), meanwhile: test.meanwhile}
			_, _, err := post(t, store, as("ada"), physical.UnitCommandSpec{ID: "i", Command: physical.CommandPause})
			if have := code200(err); have != test.code {
				t.Errorf("have %d, %v", have, err)
			}
		})
	}
}

// Req: A-05. A dry run judges, and neither stores anything nor waits.
func TestADryRunOfACommandOnlyJudges(t *testing.T) {
	store := &memory{unit: in(physical.UnitIdle)}
	have, took, err := post(t, store, as("ada"), physical.UnitCommandSpec{Command: physical.CommandStart}, metav1.DryRunAll)
	if err != nil || have.Status.Record.Outcome != physical.CommandAccepted || took != 0 || store.writes != 0 || store.unit.Status.LastCommand != nil {
		t.Errorf("have %+v, %v after %s, %d writes", have, err, took, store.writes)
	}
	if _, _, err := post(t, store, as("ada"), physical.UnitCommandSpec{Command: physical.CommandHold}, metav1.DryRunAll); !apierrors.IsConflict(err) {
		t.Errorf("have %v", err)
	}
}

// Req: P-16c, A-05. Who sent it is who is authenticated, and whatever else the body says is not.
func TestTheActorAndTheOutcomeAreNeverThoseOfTheBody(t *testing.T) {
	store := &memory{unit: in(physical.UnitIdle)}
	command := &Command{units: store, status: store, clock: clocktesting.NewFakeClock(now)}
	forged := send(physical.UnitCommandSpec{Command: physical.CommandStart})
	forged.UID, forged.Labels = "u-9", map[string]string{"a": "b"}
	forged.Status = physical.UnitCommandStatus{State: physical.UnitRunning, Record: &physical.UnitCommandRecord{ID: "x", Actor: "root", Outcome: physical.CommandDone}}
	obj, err := command.Create(as("mallory"), "mixer", forged, admitted, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	have := obj.(*physical.UnitCommand)
	if r := have.Status.Record; r.Actor != "mallory" || r.Outcome != physical.CommandAccepted || r.ID == "" || r.ID == "x" || have.Labels != nil || have.UID != types.UID("") || have.Status.State != physical.UnitIdle {
		t.Errorf("have %+v", have)
	}
}

// Req: A-04, P-16c. What is refused before anything is read, or asked of admission.
func TestACommandIsCheckedBeforeItIsWritten(t *testing.T) {
	never := errors.New("admission was asked")
	for name, test := range map[string]struct {
		obj  runtime.Object
		fits func(error) bool
	}{
		"another Unit's name":     {&physical.UnitCommand{ObjectMeta: metav1.ObjectMeta{Name: "press"}, Spec: physical.UnitCommandSpec{Command: physical.CommandHold}}, apierrors.IsBadRequest},
		"another kind":            {&physical.Unit{}, apierrors.IsBadRequest},
		"no command":              {send(physical.UnitCommandSpec{}), apierrors.IsInvalid},
		"override without reason": {send(physical.UnitCommandSpec{Command: physical.CommandStart, Override: true}), apierrors.IsInvalid},
		"admission refuses":       {send(physical.UnitCommandSpec{Command: physical.CommandHold}), func(err error) bool { return errors.Is(err, never) }},
	} {
		store := &memory{unit: in(physical.UnitRunning)}
		command := &Command{units: store, status: store, clock: clocktesting.NewFakeClock(now)}
		_, err := command.Create(as("ada"), "mixer", test.obj, func(context.Context, runtime.Object) error { return never }, &metav1.CreateOptions{})
		if !test.fits(err) || store.writes+store.reads > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	store := &memory{}
	command := &Command{units: store, status: store, clock: clocktesting.NewFakeClock(now)}
	if _, err := command.Create(as("ada"), "mixer", send(physical.UnitCommandSpec{Command: physical.CommandHold}), admitted, &metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("no such Unit: %v", err)
	}
}
