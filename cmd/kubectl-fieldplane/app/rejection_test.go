package app

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func rejectedMachine(m *v1alpha1.TalosMachine) {
	m.Spec.Rejected, m.Status.Phase = &v1alpha1.MachineRejection{Reason: "scrap"}, v1alpha1.MachineRejected
}

// Req: T-13
func TestRejectAndBack(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
		args []string
		// want is what is stored; empty is no rejection.
		want string
		out  []string
	}{
		{"a machine that waits", func(*v1alpha1.TalosMachine) {}, []string{"reject", "machine", uuid, "--reason", " returned to the supplier "}, "returned to the supplier",
			[]string{"7MK1J33", "192.0.2.10", "\ntalosmachine.talos.fieldplane.dev/" + uuid + " rejected\n"}},
		{"for another reason", rejectedMachine, []string{"reject", "machine/" + strings.ToUpper(uuid), "--reason", "stolen"}, "stolen", []string{"rejected: scrap", " rejected\n"}},
		{"a rejection taken back", rejectedMachine, []string{"unreject", "machine", uuid}, "", []string{"rejected: scrap", "is rejected no more: it waits for approval\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(test.edit))
			s.noTerminal = true
			s.run(t, test.args...).wantOK(t)
			sent := s.approval(t).GetObject().(*v1alpha1.TalosMachine)
			if sent.ResourceVersion != "4711" {
				t.Errorf("resourceVersion %q is not that of what was shown", sent.ResourceVersion)
			}
			want := pendingMachine().Spec
			if test.want != "" {
				want.Rejected = &v1alpha1.MachineRejection{Reason: test.want}
			}
			if diff := differenceOfSpecs(t, want, sent.Spec); diff != nil {
				t.Errorf("stored otherwise: %v", diff)
			}
			wantContains(t, s.out, test.out...)
		})
	}
}

// Req: T-13, T-17
func TestUnapproveSaysWhatItStopsAndWhatItDoesNot(t *testing.T) {
	at := ptr.To(metav1.NewTime(now()))
	for _, test := range []struct {
		name  string
		edit  func(*v1alpha1.TalosMachine)
		args  []string
		input string
		out   []string
	}{
		{name: "nothing was sent", edit: func(*v1alpha1.TalosMachine) {}, input: "y\n",
			out: []string{"It stops: the configuration, none of which has been sent.", "Take the approval back? [y/N]: ", "/" + uuid + " is approved no more\n"}},
		{name: "its sending has begun", edit: func(m *v1alpha1.TalosMachine) {
			m.Status.Configuration = &v1alpha1.MachineConfiguration{IntendedAt: at}
		}, args: []string{"--yes"}, out: []string{"It does not call one back: its sending had begun"}},
		{name: "it runs", edit: func(m *v1alpha1.TalosMachine) {
			m.Status.Configuration, m.Status.NodeName = &v1alpha1.MachineConfiguration{IntendedAt: at, AppliedAt: at}, "mixer-1"
		}, args: []string{"-y"}, out: []string{"Node:", "It stops: changes of its configuration, a reboot that waits", "It does not stop the machine. Node mixer-1 keeps running"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			asWorker := func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker); test.edit(m) }
			s := newSession(pendingMachine(asWorker))
			s.input, s.noTerminal = test.input, test.input == ""
			s.run(t, append([]string{"unapprove", "machine", uuid}, test.args...)...).wantOK(t)
			sent := s.approval(t).GetObject().(*v1alpha1.TalosMachine)
			if sent.ResourceVersion != "4711" || approved(sent) {
				t.Errorf("resourceVersion %q, approved %v", sent.ResourceVersion, approved(sent))
			}
			if diff := differenceOfSpecs(t, unapproved(pendingMachine(asWorker)).Spec, sent.Spec); diff != nil {
				t.Errorf("changes more than the approval: %v", diff)
			}
			wantContains(t, s.out, test.out...)
		})
	}
}

// Req: T-13
func TestRejectUnrejectAndUnapproveRefuse(t *testing.T) {
	asWorker := func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) }
	for _, test := range []struct {
		name       string
		edit       func(*v1alpha1.TalosMachine)
		args       []string
		input      string
		noTerminal bool
		what, todo string
	}{
		{name: "to reject without a reason", args: []string{"reject", "machine", uuid}, what: "the reason is not said", todo: "--reason"},
		{name: "to reject for a blank reason", args: []string{"reject", "machine", uuid, "--reason", " \t"}, what: "the reason is not said", todo: "--reason"},
		{name: "to reject for a reason that is too long", args: []string{"reject", "machine", uuid, "--reason", strings.Repeat("x", 1025)}, what: "at most 1024", todo: "shorter"},
		{name: "to reject an approved machine", edit: asWorker, args: []string{"reject", "machine", uuid, "--reason", "scrap"},
			what: "the machine is approved", todo: "kubectl fieldplane -n site-a unapprove machine " + uuid},
		{name: "to reject a machine that is not there", args: []string{"reject", "machine", secondUUID, "--reason", "scrap"}, what: "there is no machine " + secondUUID, todo: "pending -A"},
		{name: "to reject no machine", args: []string{"reject", "--reason", "scrap"}, what: "which machine is not said", todo: "kubectl fieldplane reject machine UUID"},
		{name: "to unreject a cluster", args: []string{"unreject", "cluster", "plant"}, what: `unreject takes a machine, and "cluster" is none`, todo: "kubectl fieldplane unreject machine UUID"},
		{name: "to unapprove without a terminal and without --yes", edit: asWorker, args: []string{"unapprove", "machine", uuid}, input: "y\n", noTerminal: true, what: "no terminal", todo: "--yes"},
		{name: "to unapprove after the answer no", edit: asWorker, args: []string{"unapprove", "machine", uuid}, input: "no\n", what: "nothing was taken back: the answer was not yes", todo: "nothing was written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := pendingMachine()
			if test.edit != nil {
				test.edit(machine)
			}
			s := newSession(machine)
			s.input, s.noTerminal = test.input, test.noTerminal
			s.run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: T-13
func TestRejectUnrejectAndUnapproveWriteNothingThatIsSo(t *testing.T) {
	for _, args := range [][]string{{"unreject", "machine", uuid}, {"unapprove", "machine", uuid}} {
		s := newSession(pendingMachine()).run(t, args...).wantOK(t)
		wantContains(t, s.out, "; nothing to do.\n")
		if writes := s.writes(); len(writes) != 0 {
			t.Errorf("%v: written: %v", args, writes)
		}
	}
	s := newSession(pendingMachine(rejectedMachine)).run(t, "reject", "machine", uuid, "--reason", "scrap").wantOK(t)
	wantContains(t, s.out, "already rejected for this reason; nothing to do.\n")
	if writes := s.writes(); len(writes) != 0 {
		t.Errorf("written: %v", writes)
	}
}

// Req: T-13
func TestRejectUnrejectAndUnapproveTellWhatTheServerAnswers(t *testing.T) {
	group := v1alpha1.Resource("talosmachines")
	for command, edit := range map[string]func(*v1alpha1.TalosMachine){
		"reject":    func(*v1alpha1.TalosMachine) {},
		"unreject":  rejectedMachine,
		"unapprove": func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) },
	} {
		for _, test := range []struct {
			name       string
			answer     error
			what, todo string
		}{
			{"a conflict", apierrors.NewConflict(group, uuid, errors.New("modified")), "changed after it was shown; nothing was written", "Run the same command again"},
			{"a missing verb", apierrors.NewForbidden(group, uuid, errors.New("needs the verb approve")), "needs the verb approve", "fieldplane-approver"},
			{"silence", errors.New("i/o timeout"), "i/o timeout", "Whether it was stored is not known"},
		} {
			t.Run(command+", "+test.name, func(t *testing.T) {
				args := []string{command, "machine", uuid}
				switch command {
				case "reject":
					args = append(args, "--reason", "scrap")
				case "unapprove":
					args = append(args, "--yes")
				}
				s := newSession(pendingMachine(edit)).answer(test.answer).run(t, args...)
				s.approval(t)
				s.client.ClearActions()
				s.wantRefused(t, test.what, test.todo)
			})
		}
	}
}
