// Package controller stores Controllers.
package controller

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

func parts() object.SpecStatus[*physical.Controller, physical.ControllerSpec, physical.ControllerStatus] {
	return object.SpecStatus[*physical.Controller, physical.ControllerSpec, physical.ControllerStatus]{
		Spec:   func(controller *physical.Controller) *physical.ControllerSpec { return &controller.Spec },
		Status: func(controller *physical.Controller) *physical.ControllerStatus { return &controller.Status },

		Validate:       validation.ValidateController,
		ValidateUpdate: validation.ValidateControllerUpdate,
		ValidateStatus: validation.ValidateControllerStatusUpdate,
	}
}

// attributes returns the labels and selectable fields of a Controller.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	controller, ok := obj.(*physical.Controller)
	if !ok {
		return nil, nil, fmt.Errorf("not a Controller: %T", obj)
	}
	return controller.Labels, generic.AddObjectMetaFieldsSet(fields.Set{
		v1alpha1.ControllerPhaseField: string(controller.Status.Phase),
	}, &controller.ObjectMeta, true), nil
}
