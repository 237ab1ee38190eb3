// Package controlmodule stores ControlModules.
package controlmodule

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

func parts() object.SpecStatus[*physical.ControlModule, physical.ControlModuleSpec, physical.ControlModuleStatus] {
	return object.SpecStatus[*physical.ControlModule, physical.ControlModuleSpec, physical.ControlModuleStatus]{
		Spec:   func(module *physical.ControlModule) *physical.ControlModuleSpec { return &module.Spec },
		Status: func(module *physical.ControlModule) *physical.ControlModuleStatus { return &module.Status },

		Validate:       validation.ValidateControlModule,
		ValidateUpdate: validation.ValidateControlModuleUpdate,
		ValidateStatus: validation.ValidateControlModuleStatusUpdate,
	}
}

// attributes returns the labels and selectable fields of a ControlModule.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	module, ok := obj.(*physical.ControlModule)
	if !ok {
		return nil, nil, fmt.Errorf("not a ControlModule: %T", obj)
	}
	return module.Labels, generic.AddObjectMetaFieldsSet(fields.Set{
		v1alpha1.ControlModuleUnitRef: module.Spec.UnitRef.Name,
	}, &module.ObjectMeta, true), nil
}
