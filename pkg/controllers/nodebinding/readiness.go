package nodebinding

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// ConditionReady tells whether a Controller's Node is there and ready (P-03).
const ConditionReady = "Ready"

// Reasons of the condition Ready.
const (
	// ReasonSimulation: it has no Node and needs none.
	ReasonSimulation = "Simulation"
	// ReasonNodeNotFound: there is no Node of that name, or no Node is named.
	ReasonNodeNotFound = "NodeNotFound"
	// ReasonMachineNotFound: the namespace has no such TalosMachine.
	ReasonMachineNotFound = "MachineNotFound"
	// ReasonMachineHasNoNode: the TalosMachine has not become a Node of this cluster.
	ReasonMachineHasNoNode = "MachineHasNoNode"
	// ReasonNodeReady: the Node is ready.
	ReasonNodeReady = "NodeReady"
	// ReasonNodeNotReady: the Node says that it is not ready.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonNodeStatusUnknown: the Node says nothing of its readiness, or no longer.
	ReasonNodeStatusUnknown = "NodeStatusUnknown"
)

// standing is how a Controller stands.
type standing struct {
	phase    physicalv1alpha1.ControllerPhase
	nodeName string
	ready    metav1.ConditionStatus
	reason   string
	message  string
}

// judge says how a Controller stands.
func judge(controller *physicalv1alpha1.Controller, found bindings) standing {
	spec := &controller.Spec
	awaiting := func(reason, format string, args ...any) standing {
		return standing{physicalv1alpha1.ControllerAwaitingNode, "", metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
	}

	name := spec.NodeName

	switch {
	case spec.Simulation:
		return standing{
			physicalv1alpha1.ControllerSimulated, "", metav1.ConditionTrue, ReasonSimulation,
			"spec.simulation: it has no Node and needs none; status.lastAlive tells whether it lives",
		}
	case spec.MachineRef != nil:
		machine, ok := found.machines[types.NamespacedName{Namespace: controller.Namespace, Name: spec.MachineRef.Name}]
		if !ok {
			return awaiting(ReasonMachineNotFound, "there is no TalosMachine %s in this namespace", spec.MachineRef.Name)
		}

		if name = found.node(machine); name == "" {
			return awaiting(ReasonMachineHasNoNode, "TalosMachine %s %s", machine.Name, found.why(machine))
		}
	case name == "":
		return awaiting(ReasonNodeNotFound, "spec names neither a Node nor a TalosMachine")
	}

	node, ok := found.nodes[name]
	if !ok {
		return awaiting(ReasonNodeNotFound, "there is no Node %s", name)
	}

	// What the kubelet says beside that stays on the Node: a machine's own words mislead whoever reads them here.
	switch readyStatus(node) {
	case corev1.ConditionTrue:
		return standing{physicalv1alpha1.ControllerReady, name, metav1.ConditionTrue, ReasonNodeReady, fmt.Sprintf("Node %s is ready", name)}
	case corev1.ConditionFalse:
		return standing{
			physicalv1alpha1.ControllerNotReady, name, metav1.ConditionFalse, ReasonNodeNotReady,
			fmt.Sprintf("Node %s is not ready; its own conditions say why", name),
		}
	default:
		return standing{
			physicalv1alpha1.ControllerNotReady, name, metav1.ConditionUnknown, ReasonNodeStatusUnknown,
			fmt.Sprintf("Node %s does not say, or no longer says, whether it is ready", name),
		}
	}
}

// why says why a machine has no Node.
func (b bindings) why(machine *v1alpha1.TalosMachine) string {
	switch {
	case !approved(machine):
		return "is not approved"
	case !bindable(machine):
		return "has not been configured yet"
	case len(b.of[keyOf(machine)]) > 1:
		return "has several: " + ambiguous(b.of[keyOf(machine)])
	default:
		return "is no Node of this cluster (yet): none has its UUID"
	}
}

func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}

	return corev1.ConditionUnknown
}

// writeController brings the status of one Controller up to date, and leaves its heart's beat.
func (c *Controller) writeController(ctx context.Context, controller *physicalv1alpha1.Controller, found bindings) error {
	stands := judge(controller, found)

	desired := controller.DeepCopy()
	desired.Status.ObservedGeneration = controller.Generation
	desired.Status.Phase = stands.phase
	desired.Status.NodeName = stands.nodeName

	meta.SetStatusCondition(&desired.Status.Conditions, metav1.Condition{
		Type:               ConditionReady,
		Status:             stands.ready,
		Reason:             stands.reason,
		Message:            stands.message,
		ObservedGeneration: controller.Generation,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})

	if equality.Semantic.DeepEqual(controller.Status, desired.Status) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	_, err := c.client.PhysicalV1alpha1().Controllers(controller.Namespace).
		UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

	return written("Controller", controller.Namespace, controller.Name, err)
}
