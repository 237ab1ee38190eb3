package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fields that lists and watches can be filtered by, beside metadata.name and
// metadata.namespace.
const (
	// MachineClusterRefField selects machines by cluster.
	MachineClusterRefField = "spec.clusterRef.name"
	// MachineApprovedField selects machines by approval: true or false.
	MachineApprovedField = "spec.approved"
	// MachineRoleField selects machines by role.
	MachineRoleField = "spec.role"
	// MachinePhaseField selects machines by phase.
	MachinePhaseField = "status.phase"
)

// SelectableFields lists the fields each kind can be filtered by, beside the metadata.
func SelectableFields() map[string][]string {
	return map[string][]string{
		"TalosCluster": nil,
		"TalosMachine": {MachineClusterRefField, MachineApprovedField, MachineRoleField, MachinePhaseField},
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
