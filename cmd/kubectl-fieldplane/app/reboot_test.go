package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const waitingHash = "5f2b7c"

// waitingForReboot is a machine that runs, and for which a change waits that needs a reboot.
func waitingForReboot(m *v1alpha1.TalosMachine) {
	approveAs(m, v1alpha1.RoleWorker)
	m.Status.Phase, m.Status.NodeName = v1alpha1.MachineRunning, "mixer-1"
	m.Status.Update = &v1alpha1.MachineUpdate{Hash: waitingHash, RebootRequired: true, Since: ptr.To(metav1.NewTime(now().Add(-7 * time.Minute)))}
	withCondition(conditionRebootRequired, "machine.install.extraKernelArgs changes")(m)
}

func rebootAsked(edits ...func(*v1alpha1.MachineRebootStatus)) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.Reboot = &v1alpha1.MachineRebootStatus{RequestedAt: ptr.To(metav1.NewTime(now().Add(-time.Minute))), RequestedBy: "alice", Hash: waitingHash}
		for _, edit := range edits {
			edit(m.Status.Reboot)
		}
	}
}

func (s *session) wantReboot(t *testing.T) {
	t.Helper()
	writes := s.writes()
	if len(writes) != 1 || !writes[0].Matches("create", "talosmachines/reboot") {
		t.Fatalf("want one request to talosmachines/reboot, have %v", writes)
	}
	create := writes[0].(clienttesting.CreateActionImpl)
	if request := create.Object.(*v1alpha1.RebootRequest); create.Name != uuid || create.Namespace != "site-a" || request.Spec.Hash != waitingHash {
		t.Errorf("asked for %s/%s with hash %q", create.Namespace, create.Name, request.Spec.Hash)
	}
}

// Req: T-18a
func TestRebootShowsWhatWaitsThenAsksThenRequestsExactlyThat(t *testing.T) {
	s := newSession(pendingMachine(waitingForReboot), plantCluster())
	s.input = "yes\n"
	s.run(t, "reboot", "machine", uuid).wantOK(t).wantReboot(t)
	_, have, _ := strings.Cut(s.out, "first time\n")
	wantText(t, have, `
What waits for a reboot:
  Configuration:   5f2b7c
  Waits:           for 7m
  Why:             machine.install.extraKernelArgs changes
  What changes:    kubectl fieldplane -n site-a config machine 4c4c4544-004d-4b10-8056-b4c04f4a3133 --diff

Warning: what runs on it stops meanwhile; it is not drained.

Reboot it into this configuration? [y/N]: The reboot of talosmachine.talos.fieldplane.dev/4c4c4544-004d-4b10-8056-b4c04f4a3133 was asked for.
See how it goes on: kubectl -n site-a get talosmachine 4c4c4544-004d-4b10-8056-b4c04f4a3133 --watch
`)
	wantContains(t, s.out, "Node:", "mixer-1", "approved as worker by alice")
}

// Req: T-18a
func TestRebootWarnsOfWhatItInterrupts(t *testing.T) {
	s := newSession(pendingMachine(waitingForReboot, func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleControlPlane }),
		plantCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }))
	s.noTerminal = true
	s.run(t, "reboot", "machine", uuid, "-y").wantOK(t).wantReboot(t)
	wantContains(t, s.out, "its etcd member and its Kubernetes API are away meanwhile", "TalosCluster plant is paused: it is not rebooted until")
}

// Req: T-18a
func TestRebootWaitsUntilTheMachineIsBack(t *testing.T) {
	intended := func(r *v1alpha1.MachineRebootStatus) { r.IntendedAt = ptr.To(metav1.NewTime(now())) }
	sending := func(m *v1alpha1.TalosMachine) {
		rebootAsked()(m)
		m.Status.Update.IntendedAt = ptr.To(metav1.NewTime(now()))
	}
	rebooting := func(m *v1alpha1.TalosMachine) { sending(m); rebootAsked(intended)(m) }
	completed := func(r *v1alpha1.MachineRebootStatus) { r.CompletedAt = ptr.To(metav1.NewTime(now())) }
	for _, test := range []struct {
		name string
		// first is what the server makes of the request.
		first      func(*v1alpha1.TalosMachine)
		then       []func(*v1alpha1.TalosMachine)
		what, todo string
		lines      []string
	}{
		{name: "and says so", first: rebootAsked(), then: []func(*v1alpha1.TalosMachine){sending, rebooting, rebootAsked(intended, completed)},
			lines: []string{"waiting for its turn\n"}},
		{name: "with what it waits for", first: func(m *v1alpha1.TalosMachine) {
			rebootAsked()(m)
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: conditionUpToDate, Status: metav1.ConditionFalse, Message: "mixer-2 is not ready\x1b"})
		}, then: []func(*v1alpha1.TalosMachine){rebootAsked(intended, completed)}, lines: []string{"waiting for its turn: mixer-2 is not ready\uFFFD\n"}},
		{name: "and is not told to ask again before it was seen", first: func(m *v1alpha1.TalosMachine) {
			rebootAsked()(m)
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: conditionUpToDate, Status: metav1.ConditionFalse, Reason: "RebootRequired", Message: "ask for it"})
		}, then: []func(*v1alpha1.TalosMachine){rebootAsked(intended, completed)}, lines: []string{"waiting for its turn\n"}},
		{name: "unless nothing comes of it", first: rebooting, then: []func(*v1alpha1.TalosMachine){func(m *v1alpha1.TalosMachine) {
			m.Status.Update.IntendedAt = nil
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: conditionUpToDate, Status: metav1.ConditionFalse, Message: "look at its console"})
		}}, what: "nothing came of the reboot: look at its console", todo: "Run the same command again"},
		{name: "and not for ever", first: rebooting, what: "does not run the new configuration within 20m0s", todo: "It goes on without this command", lines: []string{"rebooting\n"}},
		{name: "unless another configuration comes to wait", first: rebootAsked(), then: []func(*v1alpha1.TalosMachine){func(m *v1alpha1.TalosMachine) { m.Status.Update.Hash = "other" }},
			what: "does not wait any more", todo: "Run the same command again"},
		{name: "unless the approval is taken back", first: rebootAsked(), then: []func(*v1alpha1.TalosMachine){func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) }},
			what: "is approved no more", todo: "pending"},
		{name: "unless the request is gone", first: rebootAsked(), then: []func(*v1alpha1.TalosMachine){func(m *v1alpha1.TalosMachine) { m.Status.Reboot = nil }},
			what: "asked for no more", todo: "Run the same command again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(waitingForReboot), plantCluster())
			s.noTerminal = true
			s.client.PrependReactor("create", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) {
				s.thenMachine(t, test.first)
				s.steps[0]()
				s.steps = nil
				for _, step := range test.then {
					s.thenMachine(t, step)
				}
				return true, &v1alpha1.RebootRequest{}, nil
			})
			s.run(t, "reboot", "machine", uuid, "--yes", "--wait")
			s.wantReboot(t)
			wantContains(t, s.errOut, test.lines...)
			if test.what == "" {
				s.wantOK(t)
				wantContains(t, s.out, "/"+uuid+" runs the new configuration.\n")
				return
			}
			if _, text, ok := strings.Cut(s.errOut, "error: "); s.code == 0 || !ok || !strings.Contains(text, test.what) || !strings.Contains(text, test.todo) {
				t.Errorf("code %d, have %q", s.code, s.errOut)
			}
		})
	}
}

// Req: T-18a
func TestRebootIsAskedForOnce(t *testing.T) {
	at := func(ago time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now().Add(-ago))) }
	for _, test := range []struct {
		name  string
		edit  func(*v1alpha1.TalosMachine)
		again bool
	}{
		{"it waits for its turn", func(*v1alpha1.TalosMachine) {}, false},
		{"the machine reboots", func(m *v1alpha1.TalosMachine) {
			m.Status.Update.IntendedAt, m.Status.Reboot.IntendedAt, m.Status.Update.RebootRequired = at(0), at(0), false
		}, false},
		{"but again when nothing came of it", func(m *v1alpha1.TalosMachine) { m.Status.Reboot.IntendedAt = at(0) }, true},
		{"but again when the machine was approved anew since", func(m *v1alpha1.TalosMachine) { m.Status.Approval.Time = *at(0) }, true},
		{"but again when the change came again since", func(m *v1alpha1.TalosMachine) { m.Status.Update.Since = at(0) }, true},
		{"but again for another change", func(m *v1alpha1.TalosMachine) { m.Status.Reboot.Hash = "other" }, true},
		{"but again when it was done before", func(m *v1alpha1.TalosMachine) { m.Status.Reboot.CompletedAt = at(0) }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(waitingForReboot, rebootAsked(), test.edit), plantCluster()).run(t, "reboot", "machine", uuid, "--yes").wantOK(t)
			if test.again {
				s.wantReboot(t)
				return
			}
			wantContains(t, s.out, "The reboot was asked for by alice, 60s ago; nothing to do.\n")
			if writes := s.writes(); len(writes) != 0 {
				t.Errorf("asked again: %v", writes)
			}
		})
	}
}

// Req: T-18a
func TestRebootRefuses(t *testing.T) {
	for _, test := range []struct {
		name       string
		edit       func(*v1alpha1.TalosMachine)
		args       []string
		input      string
		noTerminal bool
		what, todo string
	}{
		{name: "when nothing waits", edit: func(m *v1alpha1.TalosMachine) { m.Status.Update = nil }, what: "no change of the machine's configuration waits", todo: "for no other reason"},
		{name: "when the change could not be made", edit: func(m *v1alpha1.TalosMachine) {
			m.Status.Update = nil
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: "UpToDate", Status: metav1.ConditionFalse, Reason: "RenderFailed", Message: "spec.configPatches[0]: no\x1b"})
		}, what: "no change waits for a reboot: RenderFailed: spec.configPatches[0]: no\uFFFD", todo: "for no other reason"},
		{name: "when what waits needs no reboot", edit: func(m *v1alpha1.TalosMachine) { m.Status.Update.RebootRequired = false }, what: "needs no reboot", todo: "--watch"},
		{name: "when the machine is not approved", edit: func(m *v1alpha1.TalosMachine) { m.Spec.Approved = nil }, what: "is not approved", todo: "pending"},
		{name: "when the machine is being deleted", edit: func(m *v1alpha1.TalosMachine) {
			m.DeletionTimestamp, m.Finalizers = ptr.To(metav1.NewTime(now())), []string{"example.com/hold"}
		}, what: "being deleted", todo: "Nothing is sent"},
		{name: "without a terminal and without --yes", noTerminal: true, input: "y\n", what: "nothing was rebooted: there is no terminal", todo: "--yes"},
		{name: "after the answer no", input: "n\n", what: "the answer was not yes", todo: "nothing was written"},
		{name: "no time to wait", args: []string{"--wait", "--timeout", "-1s"}, what: "no time to wait", todo: "--wait"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := pendingMachine(waitingForReboot)
			if test.edit != nil {
				test.edit(machine)
			}
			s := newSession(machine, plantCluster())
			s.input, s.noTerminal = test.input, test.noTerminal
			s.run(t, append([]string{"reboot", "machine", uuid}, test.args...)...).wantRefused(t, test.what, test.todo)
		})
	}
	for _, test := range []struct {
		name       string
		answer     error
		what, todo string
	}{
		{"when another one waits meanwhile", apierrors.NewConflict(v1alpha1.Resource("talosmachines"), uuid, errors.New("the configuration that waits for a reboot now is 77")), "now is 77", "run the command again"},
		{"without the right", apierrors.NewForbidden(v1alpha1.Resource("talosmachines/reboot"), uuid, errors.New("no")), "forbidden", "it is create on talosmachines/reboot"},
		{"when there is no answer", errors.New("i/o timeout"), "i/o timeout", "Whether it was stored is not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(waitingForReboot), plantCluster())
			s.client.PrependReactor("create", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			s.run(t, "reboot", "machine", uuid, "--yes", "--wait").wantReboot(t)
			s.client.ClearActions()
			s.wantRefused(t, test.what, test.todo)
		})
	}
}
