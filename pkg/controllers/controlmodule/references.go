package controlmodule

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/physical/validation"
)

// ConditionReferencesResolved of a ControlModule tells whether its Unit and the modules of all its tags are there, and whether each tag
// can be what it says on its module (P-14). It holds nothing and keeps nothing from being read: a Unit's own conditions do that.
const ConditionReferencesResolved = "ReferencesResolved"

// The reasons of ConditionReferencesResolved; of several the one that comes first here is told.
const (
	ReasonResolved         = "Resolved"
	ReasonUnitNotFound     = "UnitNotFound"
	ReasonIOModuleNotFound = "IOModuleNotFound"
	ReasonTagInvalid       = "TagInvalid"
)

// maxNamed bounds how many problems are named.
const maxNamed = 5

// resolve says what does not resolve, and in a sentence why.
func resolve(controlModule *v1alpha1.ControlModule, unitExists bool, module func(name string) (*v1alpha1.IOModule, error)) (reason, message string, err error) {
	var missing, invalid []string
	looked := map[string]*physical.IOModuleSpec{}
	for i := range controlModule.Spec.Tags {
		tag := &controlModule.Spec.Tags[i]
		name := tag.IOModuleRef.Name
		spec, known := looked[name]
		if !known {
			found, err := module(name)
			if err != nil {
				return "", "", err
			}
			if spec, err = internalSpec(found); err != nil {
				return "", "", fmt.Errorf("IOModule %s: %w", name, err)
			}
			looked[name] = spec
			if found == nil {
				missing = append(missing, "there is no IOModule "+name)
			}
		}
		if spec == nil {
			continue
		}
		internal := &physical.Tag{}
		if err := v1alpha1.Convert_v1alpha1_Tag_To_physical_Tag(tag, internal, nil); err != nil {
			return "", "", fmt.Errorf("tag %s: %w", tag.Name, err)
		}
		for _, wrong := range validation.CheckTagReference(internal, spec, field.NewPath("tag "+tag.Name)) {
			invalid = append(invalid, fmt.Sprintf("%s, on IOModule %s", wrong.Error(), name))
		}
	}
	var all []string
	switch {
	case !unitExists:
		reason = ReasonUnitNotFound
		all = append(all, "there is no Unit "+controlModule.Spec.UnitRef.Name)
	case len(missing) > 0:
		reason = ReasonIOModuleNotFound
	case len(invalid) > 0:
		reason = ReasonTagInvalid
	default:
		return ReasonResolved, "the Unit and the IOModules of all tags are there", nil
	}
	all = append(append(all, missing...), invalid...)
	if more := len(all) - maxNamed; more > 0 {
		all = append(all[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return reason, strings.Join(all, "; "), nil
}

// internalSpec is nil for no module.
func internalSpec(module *v1alpha1.IOModule) (*physical.IOModuleSpec, error) {
	if module == nil {
		return nil, nil
	}
	spec := &physical.IOModuleSpec{}
	// A conversion may share memory with what it converts, which is not changed here.
	return spec, v1alpha1.Convert_v1alpha1_IOModuleSpec_To_physical_IOModuleSpec(&module.Spec, spec, nil)
}
