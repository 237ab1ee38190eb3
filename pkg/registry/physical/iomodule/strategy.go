// Package iomodule stores IOModules.
package iomodule

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

func parts() object.SpecStatus[*physical.IOModule, physical.IOModuleSpec, physical.IOModuleStatus] {
	return object.SpecStatus[*physical.IOModule, physical.IOModuleSpec, physical.IOModuleStatus]{
		Spec:   func(module *physical.IOModule) *physical.IOModuleSpec { return &module.Spec },
		Status: func(module *physical.IOModule) *physical.IOModuleStatus { return &module.Status },
		InitialStatus: func(*physical.IOModule) physical.IOModuleStatus {
			return physical.IOModuleStatus{State: physical.ModuleUnknown, Reason: "NotMeasured"}
		},
		Validate:       validation.ValidateIOModule,
		ValidateUpdate: validation.ValidateIOModuleUpdate,
		ValidateStatus: validation.ValidateIOModuleStatusUpdate,
	}
}

// attributes returns the labels and selectable fields of a IOModule.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	module, ok := obj.(*physical.IOModule)
	if !ok {
		return nil, nil, fmt.Errorf("not a IOModule: %T", obj)
	}
	return module.Labels, generic.AddObjectMetaFieldsSet(fields.Set{
		v1alpha1.IOModuleProtocol:      string(module.Spec.Protocol),
		v1alpha1.IOModuleControllerRef: controllerName(module),
		v1alpha1.IOModuleState:         string(module.Status.State),
	}, &module.ObjectMeta, true), nil
}

func controllerName(module *physical.IOModule) string {
	if module.Spec.ControllerRef == nil {
		return ""
	}
	return module.Spec.ControllerRef.Name
}
