package app

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

func ago(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now().Add(-d))) }

// mixer is a Unit that runs and is well.
func mixer(edits ...func(*v1alpha1.Unit)) *v1alpha1.Unit {
	unit := &v1alpha1.Unit{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "mixer", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "fieldplane"}}},
		Status: v1alpha1.UnitStatus{
			State: v1alpha1.UnitRunning, Mode: v1alpha1.UnitModeAutomatic, LastTransitionTime: ago(2 * time.Hour), RuntimePodName: "unit-runtime-mixer",
			Conditions: []metav1.Condition{
				{Type: conditionEquipmentHealthy, Status: metav1.ConditionTrue, Reason: "ModulesOnline"},
				{Type: conditionRuntimeReady, Status: metav1.ConditionTrue, Reason: "RuntimeInContact"},
			},
		},
	}
	for _, edit := range edits {
		edit(unit)
	}
	return unit
}

func inState(state v1alpha1.UnitState) func(*v1alpha1.Unit) {
	return func(u *v1alpha1.Unit) { u.Status.State = state }
}

func heldByFault(modules ...string) func(*v1alpha1.Unit) {
	return func(u *v1alpha1.Unit) {
		u.Status.State, u.Status.LastTransitionTime = v1alpha1.UnitHeld, ago(5*time.Minute)
		u.Status.Hold = &v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseIOModuleFault, Modules: modules, PreviousState: v1alpha1.UnitRunning, Since: ago(5 * time.Minute)}
	}
}

func unitCondition(kind string, status metav1.ConditionStatus, reason, message string) func(*v1alpha1.Unit) {
	return func(u *v1alpha1.Unit) {
		u.Status.Conditions = slices.DeleteFunc(u.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
		u.Status.Conditions = append(u.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

// recorded is what the Unit remembers of the session's first command.
func recorded(command v1alpha1.UnitCommandName, outcome v1alpha1.CommandOutcome, message string) *v1alpha1.UnitCommandRecord {
	return &v1alpha1.UnitCommandRecord{ID: "id-1", Command: command, Actor: "alice", Outcome: outcome, Message: message, Time: ago(0)}
}

// units answers commands and tags; the fake's own store knows nothing of them.
func (s *session) units(command func(*v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error), tags *v1alpha1.UnitTags, write error) *session {
	s.client.PrependReactor("create", "units", func(action clienttesting.Action) (bool, runtime.Object, error) {
		answer, err := command(action.(clienttesting.CreateActionImpl).Object.(*v1alpha1.UnitCommand).DeepCopy())
		if answer == nil {
			return true, nil, err
		}
		return true, answer, err
	})
	s.client.PrependReactor("get", "units", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "tags" {
			return false, nil, nil
		}
		if tags == nil {
			return true, nil, write
		}
		return true, tags.DeepCopy(), nil
	})
	s.client.PrependReactor("update", "units", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "tags", &v1alpha1.UnitTags{}, write
	})
	return s
}

// done answers a command as carried out, with the state that it leads to at once.
func done(state v1alpha1.UnitState) func(*v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) {
	return answeredWith(v1alpha1.CommandDone, state)
}

func answeredWith(outcome v1alpha1.CommandOutcome, state v1alpha1.UnitState) func(*v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) {
	return func(command *v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) {
		command.Status = v1alpha1.UnitCommandStatus{State: state, Record: &v1alpha1.UnitCommandRecord{
			ID: command.Spec.ID, Command: command.Spec.Command, Actor: "alice", Reason: command.Spec.Reason, Override: command.Spec.Override, Outcome: outcome,
		}}
		return command, nil
	}
}

// thenUnit makes something happen to the mixer at the next pause.
func (s *session) thenUnit(t *testing.T, edits ...func(*v1alpha1.Unit)) *session {
	s.steps = append(s.steps, func() {
		t.Helper()
		units := v1alpha1.SchemeGroupVersion.WithResource("units")
		stored, err := s.client.Tracker().Get(units, "site-a", "mixer")
		if err != nil {
			t.Fatal(err)
		}
		unit := stored.DeepCopyObject().(*v1alpha1.Unit)
		for _, edit := range edits {
			edit(unit)
		}
		if err := s.client.Tracker().Update(units, unit, "site-a"); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

// commands are the commands that were sent.
func (s *session) commands() []v1alpha1.UnitCommandSpec {
	var sent []v1alpha1.UnitCommandSpec
	for _, action := range s.client.Actions() {
		if create, ok := action.(clienttesting.CreateActionImpl); ok && action.Matches("create", "units/command") && create.Name == "mixer" && create.Namespace == "site-a" {
			sent = append(sent, create.Object.(*v1alpha1.UnitCommand).Spec)
		}
	}
	return sent
}
