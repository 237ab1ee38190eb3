package unitruntime

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
)

// ConditionRuntimeDeployed of a Unit is False while it has no pod or configuration as it should, and says why. It stands on a Unit only
// after there was such a trouble.
const ConditionRuntimeDeployed = "RuntimeDeployed"

// The reasons of ConditionRuntimeDeployed.
const (
	ReasonRuntimeDeployed      = "Deployed"
	ReasonConfigTooLarge       = "ConfigTooLarge"
	ReasonRuntimeNameTaken     = "RuntimeNameTaken"
	ReasonRuntimeNodeLost      = "RuntimeNodeLost"
	ReasonRuntimeUnschedulable = "RuntimeUnschedulable"
)

// trouble is what is in the way of a runtime; the zero one is nothing.
type trouble struct{ reason, message string }

func tooLarge(is config, runs bool) trouble {
	then := "there is no runtime"
	if runs {
		then = "the runtime goes on with the configuration that it has"
	}
	return trouble{ReasonConfigTooLarge, fmt.Sprintf(
		"The configuration of %d tags and %d modules takes %d KiB, %d KiB compressed, and a runtime's holds %d KiB, %d KiB compressed: %s. Spread the ControlModules over several Units",
		is.tags, is.modules, (is.text+1023)>>10, (len(is.file)+1023)>>10, MaxUnpackedBytes>>10, MaxConfigBytes>>10, then)}
}

func nameTaken(kind, name string) trouble {
	return trouble{ReasonRuntimeNameTaken, fmt.Sprintf(
		"%s %s is not fieldplane's, and is left alone: the Unit has no runtime until it is renamed or removed", kind, name)}
}

func nodeLost(why string) trouble {
	return trouble{ReasonRuntimeNodeLost, sentence(why) + ": the runtime is made anew"}
}

func unschedulable(places string) trouble { return trouble{ReasonRuntimeUnschedulable, places} }

// tell writes the condition, against the resourceVersion that was looked at, if it says something new, and an Event with a new trouble.
func (c *Controller) tell(ctx context.Context, unit *v1alpha1.Unit, is trouble) error {
	before := meta.FindStatusCondition(unit.Status.Conditions, ConditionRuntimeDeployed)
	if is.reason == "" && before == nil {
		return nil
	}
	condition := metav1.Condition{
		Type: ConditionRuntimeDeployed, Status: metav1.ConditionTrue, Reason: ReasonRuntimeDeployed,
		Message: "the runtime's pod and configuration are there", ObservedGeneration: unit.Generation,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	if is.reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, is.reason, notice.Bounded(is.message)
		c.events.Warn(unitReference(unit), is.reason, condition.Message)
	}
	updated := unit.DeepCopy()
	if !meta.SetStatusCondition(&updated.Status.Conditions, condition) {
		return nil
	}
	if _, err := c.client.Units(unit.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("the runtime of Unit %s/%s: tell of it: %w", unit.Namespace, unit.Name, err)
	}
	return nil
}
