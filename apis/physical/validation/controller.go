package validation

import (
	"regexp"
	"strings"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// ValidateController checks a new Controller (P-03, P-05).
func ValidateController(controller *physical.Controller) field.ErrorList {
	return append(validateName(&controller.ObjectMeta), validateControllerSpec(&controller.Spec, field.NewPath("spec"))...)
}

// ValidateControllerUpdate checks a changed Controller.
func ValidateControllerUpdate(controller, _ *physical.Controller) field.ErrorList {
	return validateControllerSpec(&controller.Spec, field.NewPath("spec"))
}

// ValidateControllerStatusUpdate checks a changed status.
func ValidateControllerStatusUpdate(controller, _ *physical.Controller) field.ErrorList {
	return metavalidation.ValidateConditions(controller.Status.Conditions, field.NewPath("status", "conditions"))
}

// machineName is the name of every TalosMachine: its UUID (T-05).
var machineName = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func validateControllerSpec(spec *physical.ControllerSpec, path *field.Path) field.ErrorList {
	var (
		errs field.ErrorList
		set  []string
	)
	if spec.NodeName != "" {
		set = append(set, "nodeName")
	}
	if spec.MachineRef != nil {
		set = append(set, "machineRef")
		if name := spec.MachineRef.Name; name != "" && !machineName.MatchString(name) {
			errs = append(errs, field.Invalid(path.Child("machineRef", "name"), name, "must be the name of a TalosMachine, which is its UUID in lower case"))
		}
	}
	if spec.Simulation {
		set = append(set, "simulation")
	}
	if len(set) > 1 {
		errs = append(errs, field.Invalid(path, strings.Join(set, ", "), "at most one of nodeName, machineRef and simulation may be set: they are three answers to which node the Controller is"))
	}
	if spec.Heartbeat != "" && !spec.Simulation {
		errs = append(errs, field.Invalid(path.Child("heartbeat"), spec.Heartbeat, "must be absent unless simulation is true: a Controller with a node lives as its node does"))
	}
	return errs
}
