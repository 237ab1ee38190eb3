// Package iomodulerules refuses IOModules whose binding does not fit their protocol (P-02, P-09).
package iomodulerules

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// PluginName is the name under which the plugin is registered.
const PluginName = "IOModuleRules"

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Rules is the plugin.
type Rules struct{ *admission.Handler }

var _ admission.ValidationInterface = &Rules{}

// New returns the plugin, which needs nothing else.
func New() *Rules {
	return &Rules{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (r *Rules) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != physical.Resource("iomodules") || a.GetSubresource() != "" {
		return nil
	}
	module, ok := a.GetObject().(*physical.IOModule)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected an IOModule, have %T", PluginName, a.GetObject()))
	}
	if errs := binding(&module.Spec); len(errs) > 0 {
		return apierrors.NewInvalid(physical.Kind("IOModule"), module.Name, errs)
	}
	return nil
}

// binding checks how the module is bound to those who watch it: a Controller, or the namespace's shared probe.
func binding(spec *physical.IOModuleSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")

	simulation := spec.Protocol == physical.ProtocolSimulation
	if simulation && spec.ControllerRef == nil {
		errs = append(errs, field.Required(path.Child("controllerRef"),
			`protocol "simulation" has no device to measure: name the simulation Controller whose heartbeat stands for it`))
	}

	// An empty selector is the same as none (P-09), so that it needs no other manifest.
	if placement := spec.ProbePlacement; placement != nil && len(placement.NodeSelector) > 0 {
		selector := path.Child("probePlacement", "nodeSelector")
		switch {
		case simulation:
			errs = append(errs, field.Invalid(selector, placement.NodeSelector,
				`must be absent for protocol "simulation", which no probe watches`))
		case spec.ControllerRef != nil:
			errs = append(errs, field.Invalid(selector, placement.NodeSelector,
				fmt.Sprintf("must be absent when spec.controllerRef is set: the probe runs on the node of Controller %q; remove one of the two", spec.ControllerRef.Name)))
		}
	}
	return errs
}
