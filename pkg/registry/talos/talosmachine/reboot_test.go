package talosmachine

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// Req: T-18a
func TestARebootIsAskedForWhatWaitsAndNothingElse(t *testing.T) {
	waiting := func(change func(*talos.TalosMachine)) *talos.TalosMachine {
		machine := inPhase(approvedBy("bo"), talos.MachineRunning, true)
		machine.Status.Update = &talos.MachineUpdate{Hash: "h2", RebootRequired: true}
		change(machine)
		return machine
	}
	asked := &talos.MachineRebootStatus{RequestedAt: &metav1.Time{Time: now}, RequestedBy: "ada", Hash: "h2"}
	before := func(hash string, intended, completed bool) *talos.MachineRebootStatus {
		reboot := &talos.MachineRebootStatus{RequestedAt: &earlier, RequestedBy: "bo", Hash: hash}
		if intended {
			reboot.IntendedAt = &earlier
		}
		if completed {
			reboot.CompletedAt = &earlier
		}
		return reboot
	}
	for _, tc := range []struct {
		name    string
		machine *talos.TalosMachine
		hash    string
		want    *talos.MachineRebootStatus
		refused []string
	}{
		{name: "whatever waits", machine: waiting(func(*talos.TalosMachine) {}), want: asked},
		{name: "what waits, by its hash", machine: waiting(func(*talos.TalosMachine) {}), hash: "h2", want: asked},
		{name: "another hash", machine: waiting(func(*talos.TalosMachine) {}), hash: "h1", refused: []string{"h2", "h1"}},
		{name: "nothing waits", machine: waiting(func(m *talos.TalosMachine) { m.Status.Update = nil }), refused: []string{"no configuration waits"}},
		{name: "what waits needs no reboot", machine: waiting(func(m *talos.TalosMachine) { m.Status.Update.RebootRequired = false }), refused: []string{"no configuration waits"}},
		{name: "not approved", machine: waiting(func(m *talos.TalosMachine) { m.Spec.Approved = ptr.To(false) }), refused: []string{"not approved"}},
		{name: "being deleted", machine: waiting(func(m *talos.TalosMachine) { m.DeletionTimestamp = &earlier }), refused: []string{"being deleted"}},
		{name: "asked for before: the first one stands", machine: waiting(func(m *talos.TalosMachine) { m.Status.Reboot = before("h2", false, false) }), want: before("h2", false, false)},
		{name: "being sent: the first one stands", machine: waiting(func(m *talos.TalosMachine) {
			m.Status.Reboot, m.Status.Update.IntendedAt = before("h2", false, false), &earlier
		}), want: before("h2", false, false)},
		{name: "under way: the record of the intent stands", machine: waiting(func(m *talos.TalosMachine) {
			m.Status.Reboot, m.Status.Update.IntendedAt = before("h2", true, false), &earlier
		}), want: before("h2", true, false)},
		{name: "nothing came of it: it is asked for anew", machine: waiting(func(m *talos.TalosMachine) { m.Status.Reboot = before("h2", true, false) }), want: asked},
		{name: "asked for before the approval that stands", machine: waiting(func(m *talos.TalosMachine) {
			m.Status.Reboot, m.Status.Approval.Time = before("h2", false, false), metav1.Time{Time: earlier.Add(time.Second)}
		}), want: asked},
		{name: "asked for before the change went and came again", machine: waiting(func(m *talos.TalosMachine) {
			m.Status.Reboot, m.Status.Update.Since = before("h2", false, false), &metav1.Time{Time: earlier.Add(time.Second)}
		}), want: asked},
		{name: "done, and yet it waits", machine: waiting(func(m *talos.TalosMachine) { m.Status.Reboot = before("h2", true, true) }), want: asked},
		{name: "asked for something that waited before", machine: waiting(func(m *talos.TalosMachine) { m.Status.Reboot = before("h1", false, false) }), want: asked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			machine := tc.machine.DeepCopy()
			err := ask(machine, tc.hash, "ada", now)
			if tc.refused == nil {
				if err != nil || !reflect.DeepEqual(machine.Status.Reboot, tc.want) {
					t.Errorf("have %+v (%v), want %+v", machine.Status.Reboot, err, tc.want)
				}
				return
			}
			if !apierrors.IsConflict(err) || !reflect.DeepEqual(machine, tc.machine) {
				t.Fatalf("have %v, and %+v", err, machine.Status.Reboot)
			}
			for _, text := range append(tc.refused, uuid) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

// Req: A-04, T-18a. What is refused before anything is read.
func TestARequestToRebootIsCheckedBeforeItIsWritten(t *testing.T) {
	reboot := &Reboot{clock: noon}
	admitted := errors.New("admission was asked")
	admit := func(context.Context, runtime.Object) error { return admitted }
	for name, tc := range map[string]struct {
		obj  runtime.Object
		fits func(error) bool
	}{
		"another machine's name":            {&talos.RebootRequest{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, apierrors.IsBadRequest},
		"another kind":                      {pending(), apierrors.IsBadRequest},
		"admission refuses":                 {&talos.RebootRequest{ObjectMeta: metav1.ObjectMeta{Name: uuid}}, func(err error) bool { return errors.Is(err, admitted) }},
		"admission refuses, without a name": {reboot.New(), func(err error) bool { return errors.Is(err, admitted) }},
	} {
		if _, err := reboot.Create(as("ada", "create", "reboot"), uuid, tc.obj, admit, &metav1.CreateOptions{}); !tc.fits(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
