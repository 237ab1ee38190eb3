package nodebinding

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
)

// Req: P-03, T-12
func TestTheNodeOfAMachineIsFoundByItsUUID(t *testing.T) {
	const ready = corev1.ConditionTrue

	for _, test := range []struct {
		name     string
		machine  *v1alpha1.TalosMachine
		others   []*v1alpha1.TalosMachine
		nodes    []*corev1.Node
		stored   string
		resolved string
	}{
		{name: "in any case", machine: machine(uuid), nodes: []*corev1.Node{node("n1", strings.ToUpper(uuid), ready), node("n2", other, ready)}, stored: "n1", resolved: "n1"},
		{name: "in the other byte order", machine: machine(uuid), nodes: []*corev1.Node{node("n1", swapped, ready)}, stored: "n1", resolved: "n1"},
		{name: "straight before swapped", machine: machine(uuid), nodes: []*corev1.Node{node("n1", swapped, ready), node("n2", uuid, ready)}, stored: "n2", resolved: "n2"},
		{
			name: "a Node that is another machine's straight is not this one's swapped", machine: machine(uuid),
			others: []*v1alpha1.TalosMachine{machine(swapped)}, nodes: []*corev1.Node{node("n1", swapped, ready)},
		},
		{
			name: "a machine that only waits claims no Node", machine: machine(uuid),
			others: []*v1alpha1.TalosMachine{machine(swapped, unapproved, unconfigured)}, nodes: []*corev1.Node{node("n1", swapped, ready)}, stored: "n1", resolved: "n1",
		},
		{name: "two Nodes with one UUID bind neither", machine: machine(uuid, bound("n1")), nodes: []*corev1.Node{node("n1", uuid, ready), node("n2", uuid, ready)}},
		{name: "a machine of another cluster has none here", machine: machine(uuid), nodes: []*corev1.Node{node("n1", other, ready)}},
		{name: "a Node that says nothing is nobody's", machine: machine(uuid), nodes: []*corev1.Node{node("n1", "", ready)}},
		{
			name: "a placeholder identifies nothing", machine: machine("03000200-0400-0500-0006-000700080009"),
			nodes: []*corev1.Node{node("n1", "03000200-0400-0500-0006-000700080009", ready)},
		},
		{name: "a machine that was not configured is none", machine: machine(uuid, unconfigured), nodes: []*corev1.Node{node("n1", uuid, ready)}},
		{name: "a machine that is to be configured anew is none any more", machine: machine(uuid, unconfigured, bound("n1")), nodes: []*corev1.Node{node("n1", uuid, ready)}},
		{name: "a machine that is not approved is left untouched", machine: machine(uuid, unapproved), nodes: []*corev1.Node{node("n1", uuid, ready)}},
		{name: "and stays the Node that it became", machine: machine(uuid, unapproved, bound("n1")), nodes: []*corev1.Node{node("n1", uuid, ready)}, stored: "n1", resolved: "n1"},
		{name: "but is no other one of that name", machine: machine(uuid, unapproved, bound("n1")), nodes: []*corev1.Node{node("n1", other, ready)}, stored: "n1"},
		{name: "whose Node is gone has none", machine: machine(uuid, bound("n1")), nodes: []*corev1.Node{node("n2", other, ready)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []runtime.Object{test.machine, controller(onMachine(test.machine.Name))}
				for _, m := range test.others {
					objects = append(objects, m)
				}

				for _, n := range test.nodes {
					objects = append(objects, n)
				}

				w := start(t, objects...)

				if got := w.machine(test.machine.Name).Status.NodeName; got != test.stored {
					t.Errorf("status.nodeName is %q, want %q", got, test.stored)
				}

				if got := w.controller().Status.NodeName; got != test.resolved {
					t.Errorf("the Controller's Node is %q, want %q", got, test.resolved)
				}

				for _, m := range test.others {
					if w.machine(m.Name).Status.NodeName == test.stored && test.stored != "" {
						t.Errorf("%s has the same Node", m.Name)
					}
				}
			})
		})
	}
}

// Req: P-03, P-04
func TestWhereAControllerStands(t *testing.T) {
	const (
		yes     = metav1.ConditionTrue
		no      = metav1.ConditionFalse
		unknown = metav1.ConditionUnknown
	)

	for _, test := range []struct {
		name       string
		controller *physicalv1alpha1.Controller
		objects    []runtime.Object
		phase      physicalv1alpha1.ControllerPhase
		nodeName   string
		ready      metav1.ConditionStatus
		reason     string
		inMessage  string
	}{
		{"without its Node it waits", controller(onNode("n1")), nil, physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonNodeNotFound, "no Node n1"},
		{"naming nothing it waits", controller(), []runtime.Object{node("edge", uuid, corev1.ConditionTrue)}, physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonNodeNotFound, "names neither"},
		{"its Node is ready", controller(onNode("n1")), []runtime.Object{node("n1", "", corev1.ConditionTrue)}, physicalv1alpha1.ControllerReady, "n1", yes, ReasonNodeReady, "n1"},
		{"its Node is not ready", controller(onNode("n1")), []runtime.Object{node("n1", "", corev1.ConditionFalse)}, physicalv1alpha1.ControllerNotReady, "n1", no, ReasonNodeNotReady, "n1"},
		{"its Node is lost", controller(onNode("n1")), []runtime.Object{node("n1", "", corev1.ConditionUnknown)}, physicalv1alpha1.ControllerNotReady, "n1", unknown, ReasonNodeStatusUnknown, "n1"},
		{"its Node has not said anything yet", controller(onNode("n1")), []runtime.Object{node("n1", "", "")}, physicalv1alpha1.ControllerNotReady, "n1", unknown, ReasonNodeStatusUnknown, "n1"},
		{"its machine does not exist", controller(onMachine(uuid)), nil, physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonMachineNotFound, uuid},
		{
			"a machine of that name in another namespace is not its own", controller(onMachine(uuid)),
			[]runtime.Object{machine(uuid, func(m *v1alpha1.TalosMachine) { m.Namespace = "site-b" }), node("n1", uuid, corev1.ConditionTrue)},
			physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonMachineNotFound, uuid,
		},
		{"its machine is not approved", controller(onMachine(uuid)), []runtime.Object{machine(uuid, unapproved)}, physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonMachineHasNoNode, "not approved"},
		{"its machine is not configured", controller(onMachine(uuid)), []runtime.Object{machine(uuid, unconfigured)}, physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonMachineHasNoNode, "not been configured"},
		{"its machine is no Node here", controller(onMachine(uuid)), []runtime.Object{machine(uuid)}, physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonMachineHasNoNode, "no Node of this cluster"},
		{
			"its machine is one Node or the other", controller(onMachine(uuid)),
			[]runtime.Object{machine(uuid), node("n1", uuid, corev1.ConditionTrue), node("n2", uuid, corev1.ConditionTrue)},
			physicalv1alpha1.ControllerAwaitingNode, "", no, ReasonMachineHasNoNode, "n1, n2",
		},
		{
			"its machine is a Node", controller(onMachine(uuid)), []runtime.Object{machine(uuid), node("n1", uuid, corev1.ConditionTrue)},
			physicalv1alpha1.ControllerReady, "n1", yes, ReasonNodeReady, "n1",
		},
		{"it is simulated", controller(simulated), nil, physicalv1alpha1.ControllerSimulated, "", yes, ReasonSimulation, "lastAlive"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, append(test.objects, test.controller)...)

				status := w.controller().Status
				if status.Phase != test.phase || status.NodeName != test.nodeName || status.ObservedGeneration != 3 {
					t.Errorf("status %+v", status)
				}

				ready := meta.FindStatusCondition(status.Conditions, ConditionReady)
				if ready == nil || ready.Status != test.ready || ready.Reason != test.reason || ready.ObservedGeneration != 3 ||
					!strings.Contains(ready.Message, test.inMessage) || strings.Contains(ready.Message, "said by the machine") {
					t.Errorf("Ready is %+v, want %s %s", ready, test.ready, test.reason)
				}

				// Nothing that does not change is written again, and nothing is ever created.
				before := w.writes()

				if w.pass(time.Minute); w.writes() != before {
					t.Errorf("%d needless writes", w.writes()-before)
				}

				for _, action := range append(w.api.Fake.Actions(), w.host.Actions()...) {
					if action.GetVerb() == "create" || action.GetVerb() == "delete" {
						t.Errorf("%s of %s", action.GetVerb(), action.GetResource())
					}
				}
			})
		})
	}
}

// Req: P-03, P-04
func TestAControllerFollowsItsMachinesNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, machine(uuid), controller(onMachine(uuid)))
		expect := func(phase physicalv1alpha1.ControllerPhase, nodeName string) {
			t.Helper()

			if got := w.controller().Status; got.Phase != phase || got.NodeName != nodeName {
				t.Errorf("the Controller is %s on %q, want %s on %q", got.Phase, got.NodeName, phase, nodeName)
			}

			if got := w.machine(uuid).Status.NodeName; got != nodeName {
				t.Errorf("the machine is %q, want %q", got, nodeName)
			}
		}

		expect(physicalv1alpha1.ControllerAwaitingNode, "")
		w.putNode(node("n1", "", ""))
		expect(physicalv1alpha1.ControllerAwaitingNode, "")
		w.putNode(node("n1", uuid, corev1.ConditionFalse))
		expect(physicalv1alpha1.ControllerNotReady, "n1")
		w.putNode(node("n1", uuid, corev1.ConditionTrue))
		expect(physicalv1alpha1.ControllerReady, "n1")
		w.putNode(node("n1", uuid, corev1.ConditionUnknown))
		expect(physicalv1alpha1.ControllerNotReady, "n1")

		// Joined again by another name before the old Node is gone.
		w.putNode(node("n2", uuid, corev1.ConditionTrue))
		expect(physicalv1alpha1.ControllerAwaitingNode, "")

		if !meta.IsStatusConditionTrue(w.machine(uuid).Status.Conditions, ConditionNodeAmbiguous) {
			t.Error("nothing says that two Nodes have the UUID")
		}

		if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning "+ReasonSeveralNodes+" the Nodes n1, n2 ") {
			t.Errorf("told %q", told)
		}

		w.deleteNode("n1")
		expect(physicalv1alpha1.ControllerReady, "n2")

		if meta.FindStatusCondition(w.machine(uuid).Status.Conditions, ConditionNodeAmbiguous) != nil {
			t.Error("it stays ambiguous with one Node")
		}

		w.deleteNode("n2")
		expect(physicalv1alpha1.ControllerAwaitingNode, "")
	})
}

// Req: P-03
func TestNodesThatBeatAndHeartsThatBeatWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, machine(uuid), controller(onMachine(uuid)), node("n1", uuid, corev1.ConditionTrue))
		before := w.writes()

		for n := range 100 {
			beat := node("n1", uuid, corev1.ConditionTrue)
			beat.Status.Conditions[1].LastHeartbeatTime = metav1.Now()
			beat.Status.Images = make([]corev1.ContainerImage, n)
			w.putNode(beat)
		}

		if got := w.writes(); got != before {
			t.Errorf("%d writes", got-before)
		}
	})
}

// Req: P-03, P-05
func TestTheHeartIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alive := metav1.NewTime(time.Now().Truncate(time.Second))
		w := start(t, controller(simulated, func(c *physicalv1alpha1.Controller) { c.Status.LastAlive = &alive }))

		if got := w.controller().Status; got.LastAlive == nil || !got.LastAlive.Equal(&alive) || got.Phase != physicalv1alpha1.ControllerSimulated {
			t.Errorf("status %+v", got)
		}
	})
}

// Req: P-03
func TestOneObjectThatCannotBeWrittenKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, machine(uuid), machine(other), controller(onMachine(other)))
		var repaired atomic.Bool

		w.api.Before(func(_ context.Context, call fakeapi.Call) error {
			if !repaired.Load() && call.Name == uuid {
				return errors.New("as the test has it")
			}

			return nil
		})
		w.putNode(node("n1", uuid, corev1.ConditionTrue))
		w.putNode(node("n2", other, corev1.ConditionTrue))

		if got := w.machine(other).Status.NodeName; got != "n2" || w.controller().Status.Phase != physicalv1alpha1.ControllerReady {
			t.Errorf("the other machine is %q", got)
		}

		repaired.Store(true)

		if w.pass(lastRetry); w.machine(uuid).Status.NodeName != "n1" {
			t.Error("it was not tried again")
		}
	})
}

// Req: P-03
func TestAStatusThatSomebodyElseWroteIsPutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, controller(onNode("n1")))

		wrong := w.controller()
		wrong.Status.Phase, wrong.Status.NodeName = physicalv1alpha1.ControllerReady, "n9"

		if _, err := w.api.Fake.PhysicalV1alpha1().Controllers(namespace).UpdateStatus(context.Background(), wrong, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		w.pass(time.Second)

		if got := w.controller().Status; got.Phase != physicalv1alpha1.ControllerAwaitingNode || got.NodeName != "" {
			t.Errorf("status %+v", got)
		}
	})
}

// Req: A-06. A write that is based on what is no longer so is refused, and decided anew.
func TestAMachineThatChangedMeanwhileIsDecidedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, machine(uuid))
		once := true

		w.api.Before(func(ctx context.Context, call fakeapi.Call) error {
			if call.Verb == "updatestatus" && once {
				once = false

				taken := w.machine(uuid)
				unapproved(taken)

				if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Update(ctx, taken, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			}

			return nil
		})
		w.putNode(node("n1", uuid, corev1.ConditionTrue))
		w.pass(lastRetry)

		if got := w.machine(uuid).Status.NodeName; got != "" || once {
			t.Errorf("a machine that is not approved any more was bound to %q", got)
		}
	})
}
