package nodebinding

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// ConditionNodeAmbiguous is True on a machine whose UUID several Nodes have: it is bound to none of them.
const ConditionNodeAmbiguous = "NodeAmbiguous"

// ReasonSeveralNodes is the reason of that condition and of the Warning Event.
const ReasonSeveralNodes = "SeveralNodes"

// shown is how many Nodes a message names.
const shown = 4

// writeMachine brings the status of one machine up to date. One that is not approved is left untouched (T-12).
func (c *Controller) writeMachine(ctx context.Context, machine *v1alpha1.TalosMachine, found bindings) error {
	if !approved(machine) {
		return nil
	}

	desired := machine.DeepCopy()
	desired.Status.NodeName = found.node(machine)

	names := found.of[keyOf(machine)]
	if len(names) > 1 {
		meta.SetStatusCondition(&desired.Status.Conditions, metav1.Condition{
			Type:               ConditionNodeAmbiguous,
			Status:             metav1.ConditionTrue,
			Reason:             ReasonSeveralNodes,
			Message:            ambiguous(names),
			ObservedGeneration: machine.Generation,
			LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	} else {
		meta.RemoveStatusCondition(&desired.Status.Conditions, ConditionNodeAmbiguous)
	}

	if equality.Semantic.DeepEqual(machine.Status, desired.Status) {
		return nil
	}

	writeCtx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	_, err := c.client.TalosV1alpha1().TalosMachines(machine.Namespace).
		UpdateStatus(writeCtx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return written("TalosMachine", machine.Namespace, machine.Name, err)
	}

	if len(names) > 1 && !meta.IsStatusConditionTrue(machine.Status.Conditions, ConditionNodeAmbiguous) {
		c.recorder.Event(&corev1.ObjectReference{
			APIVersion:      v1alpha1.SchemeGroupVersion.String(),
			Kind:            "TalosMachine",
			Namespace:       machine.Namespace,
			Name:            machine.Name,
			UID:             machine.UID,
			ResourceVersion: machine.ResourceVersion,
		}, corev1.EventTypeWarning, ReasonSeveralNodes, ambiguous(names))
	}

	return nil
}

func ambiguous(names []string) string {
	listed := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}

	return "the Nodes " + listed + " have this machine's UUID, so it is bound to none of them: delete the Node that is not the machine"
}
