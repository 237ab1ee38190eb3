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

// assessBound judges a module by the Controller that it names, and says when to look again (P-04, P-05). Probes of
// Controllers are not run yet: a network module of a Controller is Unknown.
func (c *Controller) assessBound(module *v1alpha1.IOModule) (verdict, time.Duration, error) {
	name := ""
	if module.Spec.ControllerRef != nil {
		name = module.Spec.ControllerRef.Name
	}
	controller, err := c.controllers.Controllers(module.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		controller, err = nil, nil
	}
	if err != nil {
		return verdict{}, 0, err
	}
	var (
		e     evidence
		after time.Duration
	)
	if module.Spec.Protocol == v1alpha1.ProtocolSimulation {
		e, after = c.listen(controller, module.Status.State)
	} else {
		e = weighController(controller)
	}
	v := conclude(e, nil)
	v.observedGeneration = module.Generation
	v.message = explainController(e, name)
	v.controllerFound = &metav1.Condition{
		Type: conditionControllerFound, Status: metav1.ConditionTrue, Reason: "Found",
		Message: fmt.Sprintf("Controller %s is there", name),
	}
	if controller == nil {
		v.controllerFound.Status = metav1.ConditionFalse
		v.controllerFound.Reason = ReasonControllerNotFound
		v.controllerFound.Message = fmt.Sprintf("there is no Controller %s in namespace %s", name, module.Namespace)
	}
	return v, after, nil
}

// weighController takes the evidence of a network module from its Controller (P-04).
func weighController(controller *v1alpha1.Controller) evidence {
	if controller == nil {
		return controllerNotFound
	}
	switch controller.Status.Phase {
	case v1alpha1.ControllerReady, v1alpha1.ControllerSimulated:
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
	now := c.clock.Now()
	if age := now.Sub(controller.Status.LastAlive.Time); age < lifePeriod {
		// A heart that beats in the future is on another clock. It is heard once more before that.
		return heartBeats, min(lifePeriod-age, lifePeriod)
	}
	if left := lifePeriod - now.Sub(c.started()); left > 0 && state != v1alpha1.ModuleOffline {
		if state == v1alpha1.ModuleOnline {
			return heartBeats, left
		}
		return heartNeverBeat, left
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
		return fmt.Sprintf("no probe runs for Controller %s", name)
	case heartNeverBeat:
		return fmt.Sprintf("Controller %s has given no sign of life yet", name)
	case heartBeats:
		return fmt.Sprintf("Controller %s is alive", name)
	case heartStopped:
		return fmt.Sprintf("Controller %s has given no sign of life for %s", name, lifePeriod)
	default:
		return ""
	}
}
