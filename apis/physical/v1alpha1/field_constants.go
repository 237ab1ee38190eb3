package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fields that lists and watches can be filtered by, beside metadata.name and
// metadata.namespace.
const (
	// IOModuleProtocol selects modules by protocol.
	IOModuleProtocol = "spec.protocol"
	// IOModuleControllerRef selects modules by the Controller they are bound to.
	IOModuleControllerRef = "spec.controllerRef.name"
	// IOModuleState selects modules by state.
	IOModuleState = "status.state"
	// ControllerPhaseField selects Controllers by phase.
	ControllerPhaseField = "status.phase"
	// ControlModuleUnitRef selects ControlModules by their Unit.
	ControlModuleUnitRef = "spec.unitRef.name"
	// UnitStateField selects Units by state.
	UnitStateField = "status.state"
)

// SelectableFields lists the fields each kind can be filtered by, beside the metadata.
func SelectableFields() map[string][]string {
	return map[string][]string{
		"IOModule":      {IOModuleProtocol, IOModuleControllerRef, IOModuleState},
		"Controller":    {ControllerPhaseField},
		"ControlModule": {ControlModuleUnitRef},
		"Unit":          {UnitStateField},
	}
}

func addFieldLabelConversions(scheme *runtime.Scheme) error {
	for kind, fields := range SelectableFields() {
		selectable := map[string]bool{"metadata.name": true, "metadata.namespace": true}
		for _, field := range fields {
			selectable[field] = true
		}
		err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(kind), func(label, value string) (string, string, error) {
			if !selectable[label] {
				return "", "", fmt.Errorf("field label not supported for %s: %q; use one of metadata.name, metadata.namespace, %v", kind, label, fields)
			}
			return label, value, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
