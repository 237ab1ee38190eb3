package iomodule

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// NewStorage returns what serves iomodules and its subresources, by path. The catalogue is asked while the server serves,
// and not before.
func NewStorage(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock, catalogue Catalogue) (map[string]rest.Storage, error) {
	served, err := object.NewStorage(object.Kind{
		Resource:   physical.Resource("iomodules"),
		Singular:   physical.Resource("iomodule"),
		ShortNames: []string{"iom"},
		New:        func() runtime.Object { return &physical.IOModule{} },
		NewList:    func() runtime.Object { return &physical.IOModuleList{} },
		Attributes: attributes,
		Table:      newTable(clock),
	}, parts(), []string{v1alpha1.SchemeGroupVersion.String()}, scheme, options)
	if err != nil {
		return nil, err
	}
	served["iomodules/channels"] = &Channels{modules: served["iomodules"].(rest.Getter), catalogue: catalogue}
	return served, nil
}
