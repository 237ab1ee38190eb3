package app

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talos "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// ailing is a plant in which something of everything is wrong.
func ailing() []runtime.Object {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	unit := func(name string, edits ...func(*physical.Unit)) *physical.Unit {
		return mixer(append(edits, func(u *physical.Unit) { u.Name = name })...)
	}
	module := func(name string, state physical.ModuleState, reason string) *physical.IOModule {
		return &physical.IOModule{
			ObjectMeta: meta("site-a", name),
			Spec:       physical.IOModuleSpec{Modbus: &physical.ModbusConnection{Endpoint: "tcp://192.0.2.7:502"}},
			Status:     physical.IOModuleStatus{State: state, Reason: reason, LastTransitionTime: ago(5 * time.Minute), ProbePodName: "network-io-probe", Message: "no answer\x1b"},
		}
	}
	controller := func(name string, phase physical.ControllerPhase, ready metav1.ConditionStatus, reason string) *physical.Controller {
		return &physical.Controller{ObjectMeta: meta("site-a", name), Status: physical.ControllerStatus{Phase: phase, NodeName: "node-" + name, Conditions: []metav1.Condition{
			{Type: "Ready", Status: ready, Reason: reason, LastTransitionTime: *ago(7 * time.Minute), Message: "of " + name},
		}}}
	}
	machine := func(name string, edit func(*talos.TalosMachine)) *talos.TalosMachine {
		return pendingMachine(edit, func(m *talos.TalosMachine) { m.Name = name })
	}
	return []runtime.Object{
		unit("a-idle", inState(physical.UnitIdle)),
		unit("b-runs"),
		unit("c-held", heldByFault("plc-1", "plc-2", "plc-3", "plc-4"), unitCondition(conditionEquipmentHealthy, metav1.ConditionFalse, "ModuleFault", "plc-1"),
			func(u *physical.Unit) {
				u.Status.LastCommand = &physical.UnitCommandRecord{Command: physical.CommandRestart, Actor: "bob", Time: ago(time.Minute), Outcome: physical.CommandAccepted}
			}),
		unit("d-unsure", unitCondition(conditionEquipmentHealthy, metav1.ConditionUnknown, "ModuleUnknown", "plc-9"), unitCondition(conditionRuntimeReady, metav1.ConditionFalse, "RuntimeUnreachable", ""),
			unitCondition(conditionRuntimeDeployed, metav1.ConditionFalse, "RuntimeUnschedulable", "")),
		unit("e-stuck", inState(physical.UnitHolding), func(u *physical.Unit) {
			u.Status.Hold = &physical.UnitHold{Cause: physical.HoldCauseOperator, Causes: []physical.UnitHoldCause{{Cause: physical.HoldCauseOperator, Actor: "alice\x1b"}}}
		}, unitCondition(conditionTransientTimeout, metav1.ConditionTrue, "HoldTimeout", ""), unitCondition(conditionHoldValuesWritten, metav1.ConditionFalse, "HoldValuesRefused", "")),
		unit("f-aborted", inState(physical.UnitAborted)),
		unit("g-overridden", func(u *physical.Unit) { u.Status.Overridden = []physical.OverriddenModule{{Module: "plc-1"}} }),
		module("plc-1", physical.ModuleFault, "Timeout"), module("plc-2", physical.ModuleOnline, "Connected"), module("plc-9", "", ""), module("plc-0", physical.ModuleOffline, "HeartbeatLost"),
		controller("one", physical.ControllerReady, metav1.ConditionTrue, "NodeReady"), controller("two", physical.ControllerNotReady, metav1.ConditionFalse, "NodeNotReady"),
		controller("three", physical.ControllerAwaitingNode, metav1.ConditionFalse, "NodeNotFound"), controller("four", physical.ControllerSimulated, metav1.ConditionTrue, "Simulation"),
		machine("m-pending", func(*talos.TalosMachine) {}),
		machine("m-back", backInMaintenance),
		machine("m-failed", func(m *talos.TalosMachine) {
			approveAs(m, talos.RoleWorker)
			m.Status.Phase = talos.MachineFailed
			m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NotRunning", Message: "it does not come back"}}
		}),
		machine("m-reboot", waitingForReboot),
		machine("m-runs", func(m *talos.TalosMachine) {
			approveAs(m, talos.RoleWorker)
			m.Status.Phase = talos.MachineRunning
		}),
		plantCluster(func(c *talos.TalosCluster) {
			c.Status.Conditions = []metav1.Condition{{Type: "BundleReady", Status: metav1.ConditionFalse, Reason: "BundleNotFound", Message: "there is no such Secret"}}
			c.Status.Discovery = &talos.DiscoveryStatus{Weak: make([]talos.WeakCandidate, 2), Collisions: make([]talos.IdentityCollision, 1)}
		}),
		plantCluster(func(c *talos.TalosCluster) { c.Name, c.Spec.Paused = "resting", true }),
		plantCluster(func(c *talos.TalosCluster) {
			c.Name = "well"
			c.Status.Conditions = []metav1.Condition{{Type: "DiscoveryReady", Status: metav1.ConditionFalse, Reason: "NoRanges"}}
		}),
		mixer(func(u *physical.Unit) { u.Namespace, u.Name = "site-b", "filler" }),
	}
}

func TestStatusShowsWhatIsWorstFirst(t *testing.T) {
	s := newSession(ailing()...).run(t, "status").wantOK(t)
	wantText(t, s.out, `Namespace site-a: 7 Units (1 Holding, 1 Aborted, 1 Held, 3 Running, 1 Idle); 4 IOModules (1 Fault, 1 Offline, 1 Unknown, 1 Online); 4 Controllers (2 not ready, 2 ready); 5 machines (4 waiting); 3 TalosClusters (2 with something to settle)

UNIT           STATE     SINCE   MODE        HELD BY                                         RUNTIME              ALARMS
e-stuck        Holding   120m    Automatic   Operator alice`+"\uFFFD"+`                                 ready                TransientStateTimeout, HoldValuesRefused
f-aborted      Aborted   120m    Automatic   <none>                                          ready                <none>
c-held         Held      5m      Automatic   IOModuleFault: plc-1, plc-2, plc-3 and 1 more   ready                ModuleFault, RESTART not carried out yet
d-unsure       Running   120m    Automatic   <none>                                          RuntimeUnreachable   ModuleUnknown, RuntimeUnschedulable
g-overridden   Running   120m    Automatic   <none>                                          ready                1 passed over
b-runs         Running   120m    Automatic   <none>                                          ready                <none>
a-idle         Idle      120m    Automatic   <none>                                          ready                <none>

IOMODULE   STATE     REASON          SINCE   ENDPOINT
plc-1      Fault     Timeout         5m      tcp://192.0.2.7:502
plc-0      Offline   HeartbeatLost   5m      tcp://192.0.2.7:502
plc-9      Unknown   <none>          5m      tcp://192.0.2.7:502

CONTROLLER   PHASE          REASON         SINCE   NODE
two          NotReady       NodeNotReady   7m      node-two
three        AwaitingNode   NodeNotFound   7m      node-three

MACHINE     CLUSTER   ADDRESS      PHASE     WAITS FOR
m-failed    plant     192.0.2.10   Failed    NotRunning: it does not come back
m-back      plant     192.0.2.10   Running   a renewed approval: it was configured, and is back in maintenance mode
m-pending   plant     192.0.2.10   Pending   approval
m-reboot    plant     192.0.2.10   Running   a reboot: machine.install.extraKernelArgs changes

TALOSCLUSTER   REASON           FINDINGS
plant          BundleNotFound   2 without a full identity, 1 with another's identity
resting        Paused           <none>
`)
	for _, test := range []struct {
		name  string
		args  []string
		wants []string
	}{
		{"everywhere", []string{"-A"}, []string{"All namespaces: 8 Units (", "NAMESPACE   UNIT ", "\nsite-b      filler "}},
		{"another namespace", []string{"-n", "site-b"}, []string{"Namespace site-b: 1 Unit (1 Running); 0 IOModules; 0 Controllers; 0 machines; 0 TalosClusters\n\nUNIT "}},
		{"with more of everything", []string{"-o", "wide"}, []string{"unit-runtime-mixer   RESTART of bob, 60s ago: Accepted\n", "network-io-probe   no answer\uFFFD\n", "of two\n", "7MK1J33   Dell Inc. PowerEdge R650\n", "there is no such Secret\n"}},
		{"names", []string{"-o", "name"}, []string{"unit.physical.fieldplane.dev/e-stuck\n", "iomodule.physical.fieldplane.dev/plc-1\n", "talosmachine.talos.fieldplane.dev/m-failed\n"}},
		{"json", []string{"-o", "json"}, []string{`"kind": "List"`, `"kind": "TalosCluster"`, `"name": "e-stuck"`}},
		{"yaml", []string{"-o", "yaml"}, []string{"kind: List\n", "kind: IOModule\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(ailing()...).run(t, append([]string{"status"}, test.args...)...).wantOK(t)
			wantContains(t, s.out, test.wants...)
			if strings.Contains(s.out, "/plc-2\n") || strings.Contains(s.out, "managedFields") || strings.Contains(s.out, "\x1b[") {
				t.Error(s.out)
			}
		})
	}
	s = newSession(ailing()...).run(t, "status", "--no-headers").wantOK(t)
	if !strings.HasPrefix(s.out, "e-stuck ") {
		t.Error(s.out)
	}
	s = newSession().run(t, "status").wantOK(t)
	wantText(t, s.out, "Namespace site-a: 0 Units; 0 IOModules; 0 Controllers; 0 machines; 0 TalosClusters\n")
}

func TestStatusHasColoursOnlyWhereTheyAreWanted(t *testing.T) {
	s := newSession(ailing()...)
	s.display.colours = true
	s.run(t, "status").wantOK(t)
	wantContains(t, s.out, "\x1b[1;31mHeld\x1b[0m", "\x1b[1;31mFault\x1b[0m", "\x1b[32mRunning\x1b[0m", "\x1b[33mUnknown\x1b[0m")
}

// deny makes lists of a kind fail.
func (s *session) deny(resource string, err error) *session {
	s.client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return s
}

func TestStatusDoesWithoutWhatMayNotBeRead(t *testing.T) {
	forbidden := func(resource string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
	}
	s := newSession(ailing()...).deny("talosmachines", forbidden("talosmachines")).deny("talosclusters", forbidden("talosclusters")).
		deny("controllers", apierrors.NewServiceUnavailable("away\x1b")).deny("iomodules", apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "404", 0, true))
	s.run(t, "status").wantOK(t)
	wantText(t, s.errOut, `Not shown, because this cluster does not serve them: iomodules.
Not shown, because they cannot be read: controllers: away`+"\uFFFD"+`
Not shown, because you may not list them: talosmachines, talosclusters.
`)
	if !strings.HasPrefix(s.out, "Namespace site-a: 7 Units (1 Holding, 1 Aborted, 1 Held, 3 Running, 1 Idle)\n\nUNIT ") {
		t.Error(s.out)
	}
	for _, test := range []struct {
		name       string
		err        error
		args       []string
		what, todo string
	}{
		{"nothing may be read", forbidden("units"), []string{"status", "-A"}, "forbidden", "as the ClusterRole fieldplane-view grants it. Without -A only one namespace is read."},
		{"nothing is served", apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "404", 0, true), []string{"status"}, "does not serve the API groups of fieldplane", "kubectl get apiservice"},
		{"nobody is known", apierrors.NewUnauthorized("no"), []string{"status"}, "cannot read how the plant stands", "whoami"},
		{"the server is down", apierrors.NewServiceUnavailable("away"), []string{"status"}, "away", "kubectl get apiservice v1alpha1.physical.fieldplane.dev"},
		{"nobody answers", io.ErrUnexpectedEOF, []string{"status"}, "unexpected EOF", "kubectl version"},
		{"an argument", nil, []string{"status", "mixer"}, `status takes no argument, and there is "mixer"`, "--help"},
		{"an output that is none", nil, []string{"status", "-o", "table"}, "-o table is not possible", "wide, json, yaml or name"},
		{"an output that changes", nil, []string{"status", "-w", "-o", "json"}, "-o json is not possible with -w", "--watch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newSession().deny("*", test.err).run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
}

func TestStatusIsDrawnOverOnATerminal(t *testing.T) {
	s := newSession(ailing()...)
	window := s.terminal(200, 50)
	w := begin(t, s, "status", "-w").until("Read 0s ago. Ctrl-C ends it.")
	wantContains(t, w.picture(), "\nNamespace site-a: 7 Units (", "\ne-stuck ", "\nplc-1 ", "\nm-failed ")
	window.pull(200, 12)
	wantContains(t, w.tick(0).picture(), "\nc-held ", "2 Units that run or rest", "more lines do not fit; without -w all are shown")
	window.pull(200, 50)
	s.deny("*", apierrors.NewServiceUnavailable("away"))
	w.tick(statusEvery).until("NOT READ FOR 2s: what is shown is how it was then. Trying again: cannot read how the plant stands: away")
	wantContains(t, w.tick(0).picture(), "\ne-stuck ")
	w.end(exitDone)
	if _, after, ok := lastCut(w.out.String(), leaveScreen); !ok || !strings.Contains(after, "\ne-stuck ") || strings.Contains(after, "\x1b") {
		t.Errorf("the terminal is not given back with what was shown: %q", after)
	}
}

func TestStatusIsALineForEachChangeWhereNothingIsDrawn(t *testing.T) {
	unit := mixer()
	s := newSession(unit, mixer(func(u *physical.Unit) { u.Name = "other" }))
	w := begin(t, s, "status", "-w").until("other: Running")
	edit := func(edits ...func(*physical.Unit)) {
		t.Helper()
		changed := mixer(edits...)
		if err := s.client.Tracker().Update(physical.SchemeGroupVersion.WithResource("units"), changed, "site-a"); err != nil {
			t.Fatal(err)
		}
	}
	edit(heldByFault("plc-1"))
	w.tick(statusEvery).until("Unit site-a/mixer: Held")
	edit(heldByFault("plc-1"), func(u *physical.Unit) { u.Status.Mode = physical.UnitModeManual })
	w.tick(statusEvery).tick(0)
	if err := s.client.Tracker().Delete(physical.SchemeGroupVersion.WithResource("units"), "site-a", "other"); err != nil {
		t.Fatal(err)
	}
	w.tick(statusEvery).until("nothing to tell any more")
	w.end(exitDone)
	wantText(t, w.out.String(), `2026-11-29T12:00:00.000Z Namespace site-a: 2 Units (2 Running); 0 IOModules; 0 Controllers; 0 machines; 0 TalosClusters
2026-11-29T12:00:00.000Z Unit site-a/mixer: Running
2026-11-29T12:00:00.000Z Unit site-a/other: Running
2026-11-29T12:00:02.000Z Unit site-a/mixer: Held IOModuleFault: plc-1
2026-11-29T12:00:06.000Z Unit site-a/other: nothing to tell any more
`)
}

func TestAStatusThatCanNeverBeReadEndsTheWatch(t *testing.T) {
	s := newSession().deny("*", apierrors.NewUnauthorized("no"))
	w := begin(t, s, "status", "-w")
	s.ticks <- s.clock.Now()
	w.wantEnd(exitFailed)
	wantContains(t, w.err.String(), "error: cannot read how the plant stands: ")
}

// TestAnyPlantFits proves that no size of a terminal and no plant makes a picture that is larger than the terminal.
func TestAnyPlantFits(t *testing.T) {
	objects := ailing()
	for i := range 40 {
		objects = append(objects, mixer(func(u *physical.Unit) { u.Name = fmt.Sprintf("unit-%02d", i) }))
	}
	s := newSession(objects...)
	window := s.terminal(80, 24)
	w := begin(t, s, "status", "-w", "-A").until("Read 0s ago")
	for height := 1; height < 60; height += 7 {
		for width := 1; width < 200; width += 33 {
			window.pull(width, height)
			picture := strings.Split(w.tick(0).picture(), "\n")
			if len(picture) > height {
				t.Fatalf("%d lines on %d", len(picture), height)
			}
			for _, line := range picture {
				if columnsOf(line) > width {
					t.Fatalf("%q on %d", line, width)
				}
			}
		}
	}
	w.end(exitDone)
}
