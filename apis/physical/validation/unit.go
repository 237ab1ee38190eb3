package validation

import (
	"slices"
	"time"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// The bounds of what a Unit waits for.
const (
	minUnknownHoldAfter = time.Second
	maxUnknownHoldAfter = 24 * time.Hour
	minHoldTimeout      = time.Second
	maxHoldTimeout      = time.Hour
)

// ValidateUnit checks a new Unit (P-16).
func ValidateUnit(unit *physical.Unit) field.ErrorList {
	return append(validateName(&unit.ObjectMeta), validateUnitSpec(&unit.Spec, field.NewPath("spec"))...)
}

// ValidateUnitUpdate checks a changed Unit.
func ValidateUnitUpdate(unit, _ *physical.Unit) field.ErrorList {
	return validateUnitSpec(&unit.Spec, field.NewPath("spec"))
}

// ValidateUnitStatusUpdate checks a changed status.
func ValidateUnitStatusUpdate(unit, _ *physical.Unit) field.ErrorList {
	return metavalidation.ValidateConditions(unit.Status.Conditions, field.NewPath("status", "conditions"))
}

func validateUnitSpec(spec *physical.UnitSpec, path *field.Path) field.ErrorList {
	errs := validateNodeSelector(spec.NodeSelector, path.Child("nodeSelector"))

	holdOn := path.Child("holdOn")
	if !slices.Contains(spec.HoldOn, physical.ModuleFault) {
		errs = append(errs, field.Invalid(holdOn, spec.HoldOn, "must contain Fault: a measured fault always holds the Unit"))
	}
	for i, state := range spec.HoldOn {
		if state == physical.ModuleOnline {
			errs = append(errs, field.NotSupported(holdOn.Index(i), state, []physical.ModuleState{physical.ModuleFault, physical.ModuleOffline, physical.ModuleUnknown}))
		}
	}

	if after := spec.UnknownHoldAfter; after != nil && after.Duration != 0 {
		for _, err := range validateDuration(path.Child("unknownHoldAfter"), after, minUnknownHoldAfter, maxUnknownHoldAfter) {
			err.Detail += ", or 0 for never"
			errs = append(errs, err)
		}
	}
	return append(errs, validateDuration(path.Child("holdTimeout"), spec.HoldTimeout, minHoldTimeout, maxHoldTimeout)...)
}
