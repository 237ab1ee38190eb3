package chain

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// joins makes a Node of the host cluster, as a kubelet does, at which no pod of another test is to run.
func joins(t *testing.T, name, systemUUID string) {
	t.Helper()
	nodes := env.Host().CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "example.com/test", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	_, err = nodes.PatchStatus(t.Context(), name, fmt.Appendf(nil, `{"status":{"nodeInfo":{"systemUUID":%q}}}`, systemUUID))
	must(t, err)
	isReady(t, name, corev1.ConditionTrue)
}

// isReady has a Node say whether it is ready.
func isReady(t *testing.T, name string, status corev1.ConditionStatus) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		status, metav1.Now().UTC().Format("2006-01-02T15:04:05Z"), metav1.Now().UTC().Format("2006-01-02T15:04:05Z"))
	_, err := env.Host().CoreV1().Nodes().PatchStatus(t.Context(), name, patch)
	must(t, err)
}

// Req: P-03, P-04, T-12
func TestTheNodeThatAMachineBecameIsFoundByItsUUIDAndItsControllerFollowsIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker", "waiting")
	leftAlone := f.leftAlone(t, "waiting")
	controllers := env.Admin(t).PhysicalV1alpha1().Controllers(f.namespace)
	for name, machine := range map[string]string{"line-1": f.uuid("worker"), "line-2": f.uuid("waiting")} {
		_, err := controllers.Create(t.Context(), &physical.Controller{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: physical.ControllerSpec{MachineRef: &physical.MachineReference{Name: machine}},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	stands := func(name string, phase physical.ControllerPhase, ready, node string) {
		t.Helper()
		until(t, turnLimit, name, controllers.Watch, func(c *physical.Controller) string {
			if have := condition(c.Status.Conditions, "Ready"); c.Status.Phase != phase || have != ready || c.Status.NodeName != node {
				return fmt.Sprintf("phase is %q, Ready %q, the node %q", c.Status.Phase, have, c.Status.NodeName)
			}
			return ""
		})
	}
	stands("line-1", physical.ControllerAwaitingNode, "False MachineHasNoNode", "")

	f.run(t, "control", "worker")
	stands("line-1", physical.ControllerAwaitingNode, "False MachineHasNoNode", "")
	// As the kubelet and the firmware print it.
	node := f.namespace + "-worker"
	joins(t, node, strings.ToUpper(f.uuid("worker")))
	f.machine(t, turnLimit, "worker", func(m *v1alpha1.TalosMachine) string {
		if m.Status.NodeName != node {
			return fmt.Sprintf("the node is %q", m.Status.NodeName)
		}
		return ""
	})
	stands("line-1", physical.ControllerReady, "True NodeReady", node)
	// A Node that has the UUID of a machine that nobody approved is not its Node.
	joins(t, f.namespace+"-stranger", f.uuid("waiting"))
	isReady(t, node, corev1.ConditionFalse)
	stands("line-1", physical.ControllerNotReady, "False NodeNotReady", node)
	stands("line-2", physical.ControllerAwaitingNode, "False MachineHasNoNode", "")
	isReady(t, node, corev1.ConditionTrue)
	stands("line-1", physical.ControllerReady, "True NodeReady", node)

	must(t, env.Host().CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	stands("line-1", physical.ControllerAwaitingNode, "False MachineHasNoNode", "")
	if m := f.get(t, "worker"); m.Status.NodeName != "" || m.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("status is %+v", m.Status)
	}
	if m := f.get(t, "control"); m.Status.NodeName != "" {
		t.Errorf("the control plane is %q", m.Status.NodeName)
	}
	leftAlone()
}
