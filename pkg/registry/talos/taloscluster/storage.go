package taloscluster

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// NewStorage returns what serves talosclusters and its subresources, by path.
func NewStorage(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock) (map[string]rest.Storage, error) {
	served, err := object.NewStorage(object.Kind{
		Resource:   talos.Resource("talosclusters"),
		Singular:   talos.Resource("taloscluster"),
		ShortNames: []string{"tc"},
		New:        func() runtime.Object { return &talos.TalosCluster{} },
		NewList:    func() runtime.Object { return &talos.TalosClusterList{} },
		Attributes: attributes,
		Table:      newTable(clock),
	}, parts(), []string{v1alpha1.SchemeGroupVersion.String()}, scheme, options)
	if err != nil {
		return nil, err
	}
	served["talosclusters/discover"] = &Discover{status: served["talosclusters/status"].(*object.Subresource), clock: clock}
	return served, nil
}
