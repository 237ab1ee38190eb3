// Package unit stores Units.
package unit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/physical/validation"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

func parts() object.SpecStatus[*physical.Unit, physical.UnitSpec, physical.UnitStatus] {
	return object.SpecStatus[*physical.Unit, physical.UnitSpec, physical.UnitStatus]{
		Spec:   func(unit *physical.Unit) *physical.UnitSpec { return &unit.Spec },
		Status: func(unit *physical.Unit) *physical.UnitStatus { return &unit.Status },
		InitialStatus: func(*physical.Unit) physical.UnitStatus {
			return physical.UnitStatus{State: physical.UnitIdle, Mode: physical.UnitModeAutomatic}
		},
		Validate:       validation.ValidateUnit,
		ValidateUpdate: validation.ValidateUnitUpdate,
		ValidateStatus: validation.ValidateUnitStatusUpdate,
		// What holds, commands and writes, with the longest names and texts in each.
		StatusRoom: 1 << 20,
	}
}

// attributes returns the labels and selectable fields of a Unit.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	unit, ok := obj.(*physical.Unit)
	if !ok {
		return nil, nil, fmt.Errorf("not a Unit: %T", obj)
	}
	return unit.Labels, generic.AddObjectMetaFieldsSet(fields.Set{
		v1alpha1.UnitStateField: string(unit.Status.State),
	}, &unit.ObjectMeta, true), nil
}
