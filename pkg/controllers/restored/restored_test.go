package restored

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talos "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	controller "github.com/fieldplane/fieldplane/pkg/controllers/unit"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

var (
	now     = time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC)
	earlier = metav1.NewTime(now.Add(-24 * time.Hour))
	mark    = Mark{ID: "restore-1", RestoredAt: now.Add(-5 * time.Second), Revision: 1000}
)

const explained = "the store was restored from a snapshot at 2026-03-01T12:00:00Z (restore-1)"

// marks keeps one mark, in memory.
type marks struct {
	mark    *Mark
	fails   error
	removed int
}

func (m *marks) Read(context.Context) (*Mark, error) { return m.mark, m.fails }

func (m *marks) Remove(_ context.Context, mark Mark) error {
	if m.mark == nil || *m.mark != mark {
		return errors.New("another mark")
	}
	m.mark, m.removed = nil, m.removed+1
	return nil
}

// world is a store that was restored, and the processor of it.
type world struct {
	*Processor
	api    *fakeapi.API
	marks  *marks
	events *record.FakeRecorder
	ids    atomic.Int64
}

func restoredStore(objects ...runtime.Object) *world {
	w := &world{api: fakeapi.New(objects...), marks: &marks{mark: ptr.To(mark)}, events: record.NewFakeRecorder(100)}
	w.Processor = New(Config{
		Client: w.api, Marks: w.marks, Recorder: w.events, Clock: clocktesting.NewFakePassiveClock(now),
		NewID: func() string { return fmt.Sprintf("episode-%d", w.ids.Add(1)) },
	})
	return w
}

func (w *world) unit(t *testing.T, name string) *physical.Unit {
	t.Helper()
	unit, err := w.api.Fake.PhysicalV1alpha1().Units("site-a").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return unit
}

func (w *world) machine(t *testing.T, name string) *talos.TalosMachine {
	t.Helper()
	machine, err := w.api.Fake.TalosV1alpha1().TalosMachines("site-a").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

func (w *world) told() []string {
	var told []string
	for {
		select {
		case event := <-w.events.Events:
			told = append(told, event)
		default:
			return told
		}
	}
}

// writes are the writes so far.
func (w *world) writes() []string {
	var writes []string
	for _, action := range w.api.Fake.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			writes = append(writes, verb+" "+action.GetResource().Resource+"/"+action.GetSubresource())
		}
	}
	return writes
}

func unitIn(state physical.UnitState, edits ...func(*physical.Unit)) *physical.Unit {
	unit := &physical.Unit{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "reactor"},
		Status:     physical.UnitStatus{State: state, Mode: physical.UnitModeManual, LastTransitionTime: &earlier},
	}
	for _, edit := range edits {
		edit(unit)
	}
	return unit
}

// Req: A-02. Every state of ISA-88, and one that nobody knows.
func TestWhatBecomesOfAUnitByItsState(t *testing.T) {
	const (
		stays = iota
		isHeld
		staysHeld
	)
	want := map[isa88.State]int{
		isa88.Idle: stays, isa88.Complete: stays, isa88.Stopped: stays, isa88.Aborted: stays,
		// These end by themselves, and not in Running.
		isa88.Completing: stays, isa88.Stopping: stays, isa88.Aborting: stays, isa88.Resetting: stays,
		isa88.Running: isHeld, isa88.Pausing: isHeld, isa88.Paused: isHeld, isa88.Restarting: isHeld, "Improvising": isHeld,
		isa88.Holding: staysHeld, isa88.Held: staysHeld,
	}
	for _, state := range append(isa88.States(), "Improvising") {
		t.Run(string(state), func(t *testing.T) {
			rule, known := want[state]
			if !known {
				t.Fatal("no rule is tested for it")
			}
			before := unitIn(physical.UnitState(state))
			if rule == staysHeld {
				before.Status.Hold = &physical.UnitHold{
					Cause: physical.HoldCauseIOModuleFault, Modules: []string{"plc"}, Since: &earlier, PreviousState: physical.UnitRunning,
					Episode: "former", Causes: []physical.UnitHoldCause{{Cause: physical.HoldCauseIOModuleFault, Module: "plc", At: &earlier}},
				}
			}
			before.Status.Overridden = []physical.OverriddenModule{{Module: "plc"}}
			w := restoredStore(before.DeepCopy())
			if err := w.Process(t.Context()); err != nil {
				t.Fatal(err)
			}

			wanted, told := before.DeepCopy().Status, 1
			restored := physical.UnitHoldCause{Cause: physical.HoldCauseRestored, At: ptr.To(metav1.NewTime(now)), Message: explained}
			switch rule {
			case stays:
				told = 0
			case isHeld:
				wanted.State, wanted.LastTransitionTime, wanted.Overridden = physical.UnitHolding, ptr.To(metav1.NewTime(now)), nil
				wanted.Hold = &physical.UnitHold{
					Cause: physical.HoldCauseRestored, Since: ptr.To(metav1.NewTime(now)), PreviousState: physical.UnitState(state),
					Episode: "episode-1", Causes: []physical.UnitHoldCause{restored},
				}
			case staysHeld:
				wanted.Overridden = nil
				wanted.Hold.Episode, wanted.Hold.Causes = w.unit(t, "reactor").Status.Hold.Episode, append(wanted.Hold.Causes, restored)
				if wanted.Hold.Episode == "former" || wanted.Hold.Episode == "" {
					t.Errorf("its hold values are not written anew: the episode is %q", wanted.Hold.Episode)
				}
			}
			unit := w.unit(t, "reactor")
			got := *unit.Status.DeepCopy()
			if rule == isHeld {
				wanted.Hold.Episode = got.Hold.Episode
			}
			// Everybody finds it in the Unit.
			says := map[int]string{stays: "the Unit was " + string(state) + " in it", isHeld: "the Unit was " + string(state) + " in it, and is held", staysHeld: "stays held"}[rule]
			condition := meta.FindStatusCondition(got.Conditions, controller.ConditionRestored)
			if condition == nil || condition.Status != metav1.ConditionTrue || !strings.HasPrefix(condition.Message, explained+": ") || !strings.Contains(condition.Message, says) {
				t.Errorf("the condition is %+v", condition)
			}
			got.Conditions = nil
			// A runtime has orders of revisions that the lost store gave out, and takes none of a lower one.
			if writes := w.writes(); !slices.Equal(writes, []string{"update units/status"}) || unit.ResourceVersion == "1" {
				t.Errorf("wrote %q, and the Unit has the version %s", writes, unit.ResourceVersion)
			}
			if !reflect.DeepEqual(got, wanted) {
				t.Errorf("the status is\n%+v, want\n%+v", got, wanted)
			}
			if events := w.told(); len(events) != told || told > 0 && !strings.HasPrefix(events[0], "Warning Restored "+explained) {
				t.Errorf("told %q", events)
			}
			// A state that leads to Running by itself must not be left.
			if next, ends := isa88.Completed(isa88.State(got.State)); ends && next == isa88.Running {
				t.Errorf("%s goes on to Running", got.State)
			}
			if w.marks.mark != nil {
				t.Error("the mark is still there")
			}
		})
	}
}

// Req. The process ends at each of its requests in turn, and another one takes over.
func TestAProcessThatDiesMeanwhileLeavesTheMarkAndTheNextOneDoesItAgain(t *testing.T) {
	store := func() *world {
		return restoredStore(
			unitIn(physical.UnitRunning),
			unitIn(physical.UnitHeld, func(u *physical.Unit) { u.Name = "mixer" }),
			approved("machine-1"),
			approved("machine-2", configured, func(m *talos.TalosMachine) { m.Status.Reboot = &talos.MachineRebootStatus{RequestedBy: "ada"} }),
		)
	}
	for call := 1; ; call++ {
		w, count, died := store(), 0, false
		w.api.Fake.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if count++; count >= call {
				died = true
				return true, nil, errors.New("the process is no more")
			}
			return false, nil, nil
		})
		err := w.Process(t.Context())
		if !died {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if err == nil || w.marks.mark == nil {
			t.Fatalf("call %d failed, and Process says %v, with the mark %v", call, err, w.marks.mark)
		}
		call := call
		t.Run(fmt.Sprintf("at request %d", call), func(t *testing.T) {
			w.api.Fake.ReactionChain = w.api.Fake.ReactionChain[1:]
			if err := w.Process(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"reactor", "mixer"} {
				hold := w.unit(t, name).Status.Hold
				if hold == nil || len(hold.Causes) != 1 || hold.Causes[0].Cause != physical.HoldCauseRestored {
					t.Errorf("%s: %+v", name, hold)
				}
			}
			if m := w.machine(t, "machine-1"); *m.Spec.Approved || !meta.IsStatusConditionTrue(m.Status.Conditions, ConditionApprovalLapsed) {
				t.Errorf("machine-1 is %+v", m)
			}
			if m := w.machine(t, "machine-2"); !*m.Spec.Approved || m.Status.Reboot != nil {
				t.Errorf("machine-2 is %+v", m)
			}
			if w.marks.removed != 1 {
				t.Errorf("the mark was removed %d times", w.marks.removed)
			}
		})
	}
}

// Req: A-02
func TestWithoutAMarkNothingIsDone(t *testing.T) {
	w := restoredStore(unitIn(physical.UnitRunning), approved("machine-1"))
	w.marks.mark = nil
	if err := w.Process(t.Context()); err != nil || len(w.api.Fake.Actions()) > 0 {
		t.Errorf("%v, after %v", err, w.api.Fake.Actions())
	}
	// As long as nobody knows whether there is one, nothing may go on.
	w.marks.fails = errors.New("no answer")
	if err := w.Process(t.Context()); err == nil {
		t.Error("a mark that cannot be read counts as none")
	}
}

// Req: A-02
func TestASecondRestoreIsASecondCauseAndTheSameOneIsNot(t *testing.T) {
	w := restoredStore(unitIn(physical.UnitRunning))
	for _, step := range []struct {
		id     string
		causes int
	}{{"restore-1", 1}, {"restore-1", 1}, {"restore-2", 2}} {
		w.marks.mark = &Mark{ID: step.id, RestoredAt: mark.RestoredAt, Revision: mark.Revision}
		if err := w.Process(t.Context()); err != nil {
			t.Fatal(err)
		}
		if hold := w.unit(t, "reactor").Status.Hold; len(hold.Causes) != step.causes || hold.PreviousState != physical.UnitRunning {
			t.Errorf("after %s: %+v", step.id, hold)
		}
	}
	// The list is bounded, and its beginning stays.
	full := unitIn(physical.UnitHeld, func(u *physical.Unit) {
		u.Status.Hold = &physical.UnitHold{Cause: physical.HoldCauseOperator, Causes: make([]physical.UnitHoldCause, maxCauses)}
		u.Status.Hold.Causes[0].Cause = physical.HoldCauseOperator
	})
	if _, changed := hold(full, mark, metav1.NewTime(now), func() string { return "e" }); !changed {
		t.Fatal("nothing was changed")
	}
	causes := full.Status.Hold.Causes
	if len(causes) != maxCauses || causes[0].Cause != physical.HoldCauseOperator || causes[maxCauses-1].Cause != physical.HoldCauseRestored {
		t.Errorf("%d causes, from %v to %v", len(causes), causes[0], causes[len(causes)-1])
	}
}

// Req: A-02
func TestCommandsAndWritesOfBeforeTheRestoreAreVoidAndThoseSinceStay(t *testing.T) {
	after := metav1.NewTime(now)
	for _, tc := range []struct {
		name     string
		revision string
		at       *metav1.Time
		void     bool
	}{
		{name: "of before", revision: "999", at: &earlier, void: true},
		{name: "of before, in a Unit that was touched since", revision: "1001", at: &earlier, void: true},
		{name: "of a clock that is ahead", revision: "999", at: &after, void: true},
		{name: "of nobody knows when", revision: "1001", void: true},
		{name: "of since", revision: "1001", at: &after},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unit := unitIn(physical.UnitStopped, func(u *physical.Unit) {
				u.ResourceVersion = tc.revision
				u.Status.LastCommand = &physical.UnitCommandRecord{ID: "1", Command: physical.CommandReset, Time: tc.at, Outcome: physical.CommandAccepted}
				u.Status.Writes = []physical.TagWriteRecord{{Name: "speed", Outcome: physical.WritePending}, {Name: "speed", Outcome: physical.WriteDone}}
				if tc.at != nil {
					u.Status.Writes[0].Time = &metav1.MicroTime{Time: tc.at.Time}
				}
			})
			_, changed := restoredStore().unitAfter(unit, mark)
			if !changed {
				t.Error("it is not written")
			}
			command, write := unit.Status.LastCommand, unit.Status.Writes[0]
			if void := command.Outcome == physical.CommandSuperseded && strings.HasPrefix(command.Message, explained); void != tc.void {
				t.Errorf("the command is %+v", command)
			}
			if void := write.Outcome == physical.WriteUncertain && write.Message == explained; void != tc.void {
				t.Errorf("the write is %+v", write)
			}
			if unit.Status.Writes[1].Outcome != physical.WriteDone || unit.Status.State != physical.UnitStopped {
				t.Errorf("the status is %+v", unit.Status)
			}
		})
	}
}

func approved(name string, edits ...func(*talos.TalosMachine)) *talos.TalosMachine {
	m := &talos.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: name},
		Spec:       talos.TalosMachineSpec{Approved: ptr.To(true)},
		Status:     talos.TalosMachineStatus{Phase: talos.MachineApproved, Approval: &talos.MachineApproval{User: "ada", Time: earlier}},
	}
	for _, edit := range edits {
		edit(m)
	}
	return m
}

func configured(m *talos.TalosMachine) {
	m.Status.Phase = talos.MachineRunning
	m.Status.Configuration = &talos.MachineConfiguration{Hash: "h1", IntendedAt: &earlier, AppliedAt: &earlier}
}

// Req: A-02, T-12
func TestApprovalsThatWereNotActedOnHaveToBeGivenAgain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		machine *talos.TalosMachine
		lapses  bool
		// forgets tells that the reboot that was asked for is forgotten.
		forgets bool
		// since tells that the object was written after the restore.
		since bool
		says  string
	}{
		{name: "approved, and nothing was sent", machine: approved("m"), lapses: true, says: "its configuration was not sent in it yet"},
		{name: "approved, and perhaps sent", machine: approved("m", func(m *talos.TalosMachine) {
			m.Status.Configuration = &talos.MachineConfiguration{IntendedAt: &earlier}
		}), lapses: true, says: "its configuration was not sent in it yet"},
		{name: "configured", machine: approved("m", configured)},
		{name: "configured, and a change waits for nobody", machine: approved("m", configured, func(m *talos.TalosMachine) {
			m.Status.Update = &talos.MachineUpdate{Hash: "h2", Since: &earlier}
		}), lapses: true, says: "a change of its configuration was not sent in it yet"},
		{name: "configured, and a change waits for a reboot that nobody asked for", machine: approved("m", configured, func(m *talos.TalosMachine) {
			m.Status.Update = &talos.MachineUpdate{Hash: "h2", RebootRequired: true}
		})},
		{name: "configured, and a change was being sent", machine: approved("m", configured, func(m *talos.TalosMachine) {
			m.Status.Update = &talos.MachineUpdate{Hash: "h2", IntendedAt: &earlier}
		})},
		{name: "a reboot was asked for", machine: approved("m", configured, func(m *talos.TalosMachine) {
			m.Status.Update = &talos.MachineUpdate{Hash: "h2", RebootRequired: true}
			m.Status.Reboot = &talos.MachineRebootStatus{Hash: "h2", RequestedBy: "bo", RequestedAt: &earlier}
		}), forgets: true, says: "the reboot that bo had asked for"},
		{name: "a reboot had begun", machine: approved("m", configured, func(m *talos.TalosMachine) {
			m.Status.Reboot = &talos.MachineRebootStatus{Hash: "h2", RequestedBy: "bo", RequestedAt: &earlier, IntendedAt: &earlier}
		})},
		{name: "not approved", machine: approved("m", func(m *talos.TalosMachine) { m.Spec.Approved = nil })},
		{name: "approved since the restore", machine: approved("m", func(m *talos.TalosMachine) {
			m.Status.Approval.Time = metav1.NewTime(now)
		}), since: true},
		{name: "approved before the restore, and touched since", machine: approved("m"), since: true, lapses: true, says: "its configuration was not sent in it yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := restoredStore(tc.machine.DeepCopy())
			if tc.since {
				// The fake's versions begin at 1.
				w.marks.mark.Revision = 0
			}
			if err := w.Process(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, events := w.machine(t, "m"), w.told()
			condition := meta.FindStatusCondition(got.Status.Conditions, ConditionApprovalLapsed)
			if lapsed := !ptr.Deref(got.Spec.Approved, false) && ptr.Deref(tc.machine.Spec.Approved, false); lapsed != tc.lapses || (condition != nil) != tc.lapses {
				t.Errorf("approved %v, condition %+v", ptr.Deref(got.Spec.Approved, false), condition)
			}
			if tc.lapses && (condition.Status != metav1.ConditionTrue || condition.Reason != "Restored" ||
				!strings.Contains(condition.Message, tc.says) || !strings.Contains(condition.Message, "the approval of ada (2026-02-28T12:00:05Z) is void")) {
				t.Errorf("the condition is %+v", condition)
			}
			if forgotten := tc.machine.Status.Reboot != nil && got.Status.Reboot == nil; forgotten != tc.forgets {
				t.Errorf("the reboot is %+v", got.Status.Reboot)
			}
			if (len(events) == 1) != (tc.says != "") || len(events) == 1 && !strings.Contains(events[0], tc.says) {
				t.Errorf("told %q", events)
			}
			want := []string(nil)
			if tc.lapses {
				want = []string{"update talosmachines/status", "update talosmachines/approval"}
			} else if tc.forgets {
				want = []string{"update talosmachines/status"}
			}
			if writes := w.writes(); !slices.Equal(writes, want) {
				t.Errorf("wrote %q, want %q", writes, want)
			}
		})
	}
}

// Req: A-02
func TestWhatChangesOrGoesMeanwhileIsLookedAtAgain(t *testing.T) {
	w := restoredStore(unitIn(physical.UnitRunning), unitIn(physical.UnitRunning, func(u *physical.Unit) { u.Name = "gone" }))
	conflicts := 2
	w.api.Fake.PrependReactor("update", "units", func(action clienttesting.Action) (bool, runtime.Object, error) {
		unit := action.(clienttesting.UpdateAction).GetObject().(*physical.Unit)
		if unit.Name == "gone" {
			return true, nil, apierrors.NewNotFound(physical.Resource("units"), unit.Name)
		}
		if conflicts--; conflicts >= 0 {
			return true, nil, apierrors.NewConflict(physical.Resource("units"), unit.Name, errors.New("it changed"))
		}
		return false, nil, nil
	})
	if err := w.Process(t.Context()); err != nil {
		t.Fatal(err)
	}
	if unit := w.unit(t, "reactor"); unit.Status.State != physical.UnitHolding {
		t.Errorf("the Unit is %s", unit.Status.State)
	}
}
