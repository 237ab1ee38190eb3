package iomodule

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// lifePeriod is how old a simulation Controller's last sign of life may be (P-05).
const lifePeriod = 30 * time.Second

// assessBound judges a module by the Controller that it names, and by its probe if it has one; it says when to look again, and
// whether the status should stay as it is (P-04, P-05).
func (c *Controller) assessBound(module *v1alpha1.IOModule) (v verdict, keep bool, after time.Duration, err error) {
	name := ""
	if module.Spec.ControllerRef != nil {
		name = module.Spec.ControllerRef.Name
	}
	controller, err := c.controllers.Controllers(module.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		controller, err = nil, nil
	}
	if err != nil {
		return verdict{}, false, 0, err
	}
	var e evidence
	if module.Spec.Protocol == v1alpha1.ProtocolSimulation {
		e, after = c.listen(controller, module.Status.State)
	} else {
		e = weighController(controller)
	}
	if e == controllerReady {
		v, keep, err = c.assessProbed(module, controller)
	} else {
		v = conclude(e, nil)
		v.observedGeneration = module.Generation
		v.message = explainController(e, name)
		v.confirmed = e == heartBeats && c.hearts.heard(controller)
	}
	v.controllerFound = found(e, name, module.Namespace)
	return v, keep, after, err
}

// found is the condition ControllerFound.
func found(e evidence, name, namespace string) *metav1.Condition {
	if e == controllerNotFound {
		return &metav1.Condition{
			Type: conditionControllerFound, Status: metav1.ConditionFalse, Reason: ReasonControllerNotFound,
			Message: fmt.Sprintf("there is no Controller %s in namespace %s", name, namespace),
		}
	}
	return &metav1.Condition{
		Type: conditionControllerFound, Status: metav1.ConditionTrue, Reason: "Found",
		Message: fmt.Sprintf("Controller %s is there", name),
	}
}

// weighController takes the evidence of a network module from its Controller (P-04). While the Controller's node is not
// ready, nothing that its probe says counts.
func weighController(controller *v1alpha1.Controller) evidence {
	// One that goes away takes its probe with it.
	if controller == nil || controller.DeletionTimestamp != nil {
		return controllerNotFound
	}
	switch controller.Status.Phase {
	case v1alpha1.ControllerReady:
		return controllerReady
	case v1alpha1.ControllerSimulated:
		return controllerUnprobed
	case v1alpha1.ControllerNotReady:
		return controllerNotReady
	default:
		return controllerAwaitingNode
	}
}

// listen takes the evidence of a simulation module from its Controller's heartbeat (P-05). After the start a whole period
// passes before a heart counts as stopped, since whoever beats it may have waited for this server; until then the
// module stays what it is.
func (c *Controller) listen(controller *v1alpha1.Controller, state v1alpha1.ModuleState) (evidence, time.Duration) {
	if controller == nil {
		return controllerNotFound, 0
	}
	if controller.Status.LastAlive == nil {
		return heartNeverBeat, 0
	}
	// What was not heard, but found beating in the future, tells nothing of its age.
	if age, known := c.hearts.age(controller); known && age < lifePeriod {
		return heartBeats, lifePeriod - age
	}
	if left := lifePeriod - c.clock.Now().Sub(c.started()); left > 0 && state != v1alpha1.ModuleOffline {
		if state == v1alpha1.ModuleOnline {
			return heartBeats, left
		}
		return heartAwaited, left
	}
	return heartStopped, 0
}

func explainController(e evidence, name string) string {
	switch e {
	case controllerNotFound:
		return fmt.Sprintf("Controller %s does not exist", name)
	case controllerAwaitingNode:
		return fmt.Sprintf("Controller %s awaits its node", name)
	case controllerNotReady:
		return fmt.Sprintf("the node of Controller %s is not ready", name)
	case controllerUnprobed:
		return fmt.Sprintf("Controller %s is a simulation, and has no node where a probe could run", name)
	case heartNeverBeat:
		return fmt.Sprintf("Controller %s has given no sign of life yet", name)
	case heartAwaited:
		return fmt.Sprintf("Controller %s has given no sign of life since this server began to listen", name)
	case heartBeats:
		return fmt.Sprintf("Controller %s is alive", name)
	case heartStopped:
		return fmt.Sprintf("Controller %s has given no sign of life for %s", name, lifePeriod)
	default:
		return ""
	}
}
