package unit

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// NewStorage returns what serves units and its subresources, by path. The ControlModules and the runtimes are asked while the
// server serves, and not before.
func NewStorage(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.WithTicker, controlModules rest.Getter, runtimes Runtimes) (map[string]rest.Storage, error) {
	served, err := object.NewStorage(object.Kind{
		Resource:   physical.Resource("units"),
		Singular:   physical.Resource("unit"),
		ShortNames: []string{"un"},
		New:        func() runtime.Object { return &physical.Unit{} },
		NewList:    func() runtime.Object { return &physical.UnitList{} },
		Attributes: attributes,
		Table:      newTable(clock),
	}, parts(), []string{v1alpha1.SchemeGroupVersion.String()}, scheme, options)
	if err != nil {
		return nil, err
	}
	units, status := served["units"].(rest.Getter), served["units/status"].(*object.Subresource)
	served["units/command"] = &Command{units: units, status: status, clock: clock}
	served["units/tags"] = &Tags{units: units, modules: controlModules, status: status, runtimes: runtimes, clock: clock}
	return served, nil
}
