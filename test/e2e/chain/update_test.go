package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// turns follows who of a cluster is being changed, until the test ends.
type turns struct {
	mu      sync.Mutex
	holding map[string]bool
	most    int
	order   []string
}

// followTurns notes, at every version of every machine, whether a change of it is under way.
func (f fleet) followTurns(t *testing.T) *turns {
	t.Helper()
	o := &turns{holding: map[string]bool{}}
	stream, err := f.machines.Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	names := map[string]string{}
	for _, name := range f.names {
		names[f.uuid(name)] = name
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		readStream(ctx, stream, func(m *v1alpha1.TalosMachine, _ bool) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			name := names[m.Name]
			holds := m.Status.Update != nil && m.Status.Update.IntendedAt != nil
			if holds && !o.holding[name] {
				o.order = append(o.order, name)
			}
			o.holding[name] = holds
			n := 0
			for _, one := range o.holding {
				if one {
					n++
				}
			}
			o.most = max(o.most, n)
			return false
		})
	})
	t.Cleanup(func() {
		cancel()
		stream.Stop()
		following.Wait()
	})
	return o
}

func (o *turns) seen() (most int, order []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most, slices.Clone(o.order)
}

// changed waits until a node runs something with a text in it, which its machine has as sent.
func (f fleet) changed(t *testing.T, name, text string) *v1alpha1.TalosMachine {
	t.Helper()
	return f.machine(t, turnLimit, name, func(m *v1alpha1.TalosMachine) string {
		switch {
		case !strings.Contains(string(f.node(name).Configuration()), text):
			return fmt.Sprintf("%s does not run with %q: UpToDate is %q", name, text, condition(m.Status.Conditions, "UpToDate"))
		case m.Status.ConfigHash != hashOf(f.node(name)):
			return fmt.Sprintf("the hash of %s is %s, not %s", name, m.Status.ConfigHash, hashOf(f.node(name)))
		case condition(m.Status.Conditions, "UpToDate") != "True UpToDate":
			return fmt.Sprintf("UpToDate is %q", condition(m.Status.Conditions, "UpToDate"))
		}
		return ""
	})
}

// notRebooted fails the test if any node was told to reboot.
func (f fleet) notRebooted(t *testing.T) {
	t.Helper()
	for _, name := range f.names {
		if n, calls := f.node(name).Reboots(), f.node(name).Calls("Reboot"); n > 0 || calls > 0 {
			t.Errorf("%s was rebooted %d times, by %d calls", name, n, calls)
		}
	}
}

// Req: T-12, T-18a, A-06
func TestAChangeThatNeedsNoRebootRollsOverTheMachinesOneAtATime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker-a", "worker-b", "waiting")
	leftAlone := f.leftAlone(t, "waiting")
	running := []string{"control", "worker-a", "worker-b"}
	f.run(t, running...)
	before := map[string]string{}
	for _, name := range running {
		before[name] = f.get(t, name).Status.ConfigHash
	}
	order := f.followTurns(t)

	// Of one machine each, at the same time.
	for _, name := range []string{"worker-b", "worker-a"} {
		f.edit(t, name, `{"nodeLabels":{"line":"mixing"}}`)
	}
	for _, name := range []string{"worker-a", "worker-b"} {
		m := f.changed(t, name, "line: mixing")
		if m.Status.ConfigHash == before[name] {
			t.Errorf("the hash of %s is the same", name)
		}
		got := sent(f.node(name))
		if len(got) != 2 || got[1].Mode != "NO_REBOOT" || !got[1].Accepted || !got[1].Authenticated {
			t.Errorf("%s was sent %+v", name, got)
		}
		// Tried first.
		all := f.node(name).Configurations()
		if i := slices.IndexFunc(all, func(r talosnode.Received) bool { return r.DryRun }); i < 0 || i > slices.IndexFunc(all, func(r talosnode.Received) bool { return r.Authenticated && !r.DryRun }) {
			t.Errorf("%s did not try it first: %+v", name, all)
		}
	}
	most, row := order.seen()
	slices.Sort(row)
	if most != 1 || !slices.Equal(row, []string{"worker-a", "worker-b"}) {
		t.Errorf("%d machines were changed at the same time, in all %v", most, row)
	}
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
	if now := f.get(t, "control").Status.ConfigHash; now != before["control"] {
		t.Error("the hash of a machine that nothing was changed of has changed")
	}
	f.notRebooted(t)
	leftAlone()
}

// Req: T-12, T-18a
func TestAChangeOfTheClusterReachesItsControlPlaneLast(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker", "waiting")
	leftAlone := f.leftAlone(t, "waiting")
	f.run(t, "control", "worker")
	order := f.followTurns(t)
	f.setPatches(t, "machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n")
	for _, name := range []string{"worker", "control"} {
		f.changed(t, name, "vm.max_map_count")
	}
	if most, row := order.seen(); most != 1 || !slices.Equal(row, []string{"worker", "control"}) {
		t.Errorf("%d machines were changed at the same time, in the order %v", most, row)
	}
	f.notRebooted(t)
	if n := f.bootstrapCalls(); n != 1 {
		t.Errorf("Bootstrap was called %d times", n)
	}
	leftAlone()
}

// Req: T-18a, A-06
func TestAChangeThatNeedsARebootWaitsForTheCommand(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker")
	f.run(t, "control", "worker")
	f.edit(t, "worker", `{"configPatches":["machine:\n  udev:\n    rules:\n    - SUBSYSTEM==\"tty\"\n"]}`)
	m := f.has(t, turnLimit, "worker", "RebootRequired", "True RebootRequired")
	if have := condition(m.Status.Conditions, "UpToDate"); have != "False RebootRequired" || m.Status.Update == nil || !m.Status.Update.RebootRequired || m.Status.Update.IntendedAt != nil {
		t.Errorf("UpToDate is %q, the update %+v", have, m.Status.Update)
	}
	told(t, f.namespace, "TalosMachine", m.Name, corev1.EventTypeNormal, "RebootRequired")
	// Nothing happens by itself, and only what waits can be asked for.
	f.wake(t)
	f.swept(t)
	f.sweepAgain(t)
	sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)
	f.notRebooted(t)
	if output := mustPlugin(t, "config", "machine", m.Name, "-n", f.namespace, "--diff"); !strings.Contains(output, `+`) || !strings.Contains(output, "SUBSYSTEM") {
		t.Errorf("the difference is %q", output)
	}
	_, err := f.machines.RequestReboot(t.Context(), m.Name, &v1alpha1.RebootRequest{Spec: v1alpha1.RebootRequestSpec{Hash: m.Status.ConfigHash}}, metav1.CreateOptions{})
	if err == nil {
		t.Error("a reboot into what runs already was accepted")
	}
	if output, err := plugin(t, "reboot", "machine", f.uuid("control"), "-n", f.namespace, "--yes"); err == nil {
		t.Errorf("a reboot into nothing was accepted: %s", output)
	}

	// It waits for the pause to end, too.
	f.editCluster(t, `{"paused":true}`)
	mustPlugin(t, "reboot", "machine", m.Name, "-n", f.namespace, "--yes")
	f.has(t, turnLimit, "worker", "Ready", "Unknown Paused")
	sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)
	f.notRebooted(t)
	f.editCluster(t, `{"paused":false}`)

	m = f.changed(t, "worker", "SUBSYSTEM")
	r := m.Status.Reboot
	if r == nil || r.RequestedBy != "kubernetes-admin" || r.Hash != m.Status.ConfigHash || r.IntendedAt == nil || r.CompletedAt == nil {
		t.Errorf("the reboot is recorded as %+v", r)
	}
	if have := condition(m.Status.Conditions, "RebootRequired"); have != "False NotRequired" {
		t.Errorf("RebootRequired is %q", have)
	}
	f.wake(t)
	f.swept(t)
	if n, calls := f.node("worker").Reboots(), f.node("worker").Calls("Reboot"); n != 1 || calls != 1 {
		t.Errorf("rebooted %d times, by %d calls", n, calls)
	}
	if got := sent(f.node("worker")); len(got) != 2 || got[1].Mode != "STAGED" || !got[1].Authenticated || !got[1].Accepted {
		t.Errorf("the worker was sent %+v", got)
	}
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
	if n := f.node("control").Reboots(); n > 0 {
		t.Errorf("the other machine was rebooted %d times", n)
	}
}

// Req: T-18a
func TestAChangeWaitsForThePauseToEndAndForTheHealthOfTheOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker-a", "worker-b")
	f.run(t, f.names...)

	f.editCluster(t, `{"paused":true}`)
	f.edit(t, "worker-a", `{"nodeLabels":{"line":"mixing"}}`)
	f.has(t, turnLimit, "worker-a", "Ready", "Unknown Paused")
	f.editCluster(t, `{"paused":true,"discovery":{"addresses":["127.0.79.250"]}}`)
	f.has(t, turnLimit, "worker-a", "Ready", "Unknown Paused")
	sentOnce(t, f.node("worker-a"), v1alpha1.RoleWorker)

	// Now the control plane is not well, and the pause is over.
	f.fault(t, "control", talosnode.FaultUnready)
	f.editCluster(t, `{"paused":false}`)
	f.has(t, turnLimit, "control", "Ready", "False NotReady")
	m := f.has(t, turnLimit, "worker-a", "UpToDate", "False WaitingForHealth")
	if text := fmt.Sprint(m.Status.Conditions); !strings.Contains(text, f.uuid("control")) {
		t.Errorf("the conditions do not say who is not ready: %s", text)
	}
	f.wake(t)
	f.swept(t)
	sentOnce(t, f.node("worker-a"), v1alpha1.RoleWorker)
	// One that is away is not well either.
	f.fault(t, "control", talosnode.FaultClosed)
	f.wake(t)
	f.has(t, turnLimit, "control", "Ready", "Unknown Unreachable")
	f.has(t, turnLimit, "worker-a", "UpToDate", "False WaitingForHealth")
	sentOnce(t, f.node("worker-a"), v1alpha1.RoleWorker)

	f.heal(t, "control")
	f.wake(t)
	f.has(t, turnLimit, "control", "Ready", "True Ready")
	f.wake(t)
	f.changed(t, "worker-a", "line: mixing")
	f.notRebooted(t)
	sentOnce(t, f.node("worker-b"), v1alpha1.RoleWorker)
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
}

// Req: T-15, T-18a
func TestWhatIsChangedOnAMachineIsToldAndNotCorrected(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker")
	f.run(t, "control", "worker")
	for _, name := range f.names {
		must(t, f.plant.Patch(name, "machine:\n  nodeLabels:\n    changed: by-hand\n"))
	}
	// A secret that was changed is told as changed, and not shown.
	must(t, f.plant.Patch("control", "cluster:\n  secretboxEncryptionSecret: bm90LXRoZS1zZWNyZXQtb2YtdGhlLWJ1bmRsZS1hdC1hbGw=\n"))
	f.wake(t)
	for _, name := range f.names {
		m := f.has(t, turnLimit, name, "Drifted", "True ChangedOnTheMachine")
		text := fmt.Sprint(m.Status.Conditions)
		if !containsAll(text, "changed: by-hand") || strings.Contains(text, "bm90LXRoZS1zZWNyZXQ") {
			t.Errorf("%s: the conditions are %s", name, text)
		}
		for _, c := range m.Status.Conditions {
			if c.Type == "Drifted" && len(c.Message) > 1024 {
				t.Errorf("%s: the message has %d bytes", name, len(c.Message))
			}
		}
		if have := condition(m.Status.Conditions, "UpToDate"); have != "True UpToDate" {
			t.Errorf("%s: UpToDate is %q", name, have)
		}
		if line := told(t, f.namespace, "TalosMachine", m.Name, corev1.EventTypeWarning, "ChangedOnTheMachine"); strings.Contains(line, "bm90LXRoZS1zZWNyZXQ") {
			t.Errorf("the event shows a secret: %s", line)
		}
	}
	output := mustPlugin(t, "config", "machine", f.uuid("worker"), "-n", f.namespace, "--diff")
	if !strings.Contains(output, "-") || !strings.Contains(output, "by-hand") {
		t.Errorf("the difference is %q", output)
	}
	f.wake(t)
	f.swept(t)
	for name, role := range map[string]v1alpha1.MachineRole{"control": v1alpha1.RoleControlPlane, "worker": v1alpha1.RoleWorker} {
		sentOnce(t, f.node(name), role)
		if !strings.Contains(string(f.node(name).Configuration()), "by-hand") {
			t.Errorf("what was changed on %s is gone", name)
		}
	}

	// It is taken back there, or brought home by the next change.
	must(t, f.plant.Patch("worker", "machine:\n  nodeLabels:\n    changed:\n      $patch: delete\n"))
	f.wake(t)
	f.has(t, turnLimit, "worker", "Drifted", "False AsSent")
	f.edit(t, "control", `{"nodeLabels":{"line":"mixing"}}`)
	f.changed(t, "control", "line: mixing")
	f.has(t, turnLimit, "control", "Drifted", "False AsSent")
	if strings.Contains(string(f.node("control").Configuration()), "by-hand") {
		t.Error("what was changed by hand is still there")
	}
	f.notRebooted(t)
}

// Req: T-06, T-18, T-18a, A-06
func TestAChangeOfWhichNoAnswerCameIsFoundOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker")
	f.run(t, "control", "worker")
	f.fault(t, "worker", talosnode.FaultUnanswered)
	f.edit(t, "worker", `{"nodeLabels":{"line":"mixing"}}`)
	m := f.changed(t, "worker", "line: mixing")
	if got := sent(f.node("worker")); len(got) != 2 || !got[1].Accepted {
		t.Errorf("the worker was sent %+v", got)
	}
	if u := m.Status.Update; u != nil && u.AppliedAt == nil {
		t.Errorf("the update is recorded as %+v", u)
	}
	harness.Eventually(t, onlineLimit, func() string {
		if have := condition(f.get(t, "worker").Status.Conditions, "Drifted"); have != "False AsSent" {
			return fmt.Sprintf("Drifted is %q", have)
		}
		return ""
	})
	f.heal(t, "worker")
	f.notRebooted(t)
}
