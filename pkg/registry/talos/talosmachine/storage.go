package talosmachine

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// NewStorage returns what serves talosmachines and its subresources, by path. Configurations are asked while the server
// serves, and not before.
func NewStorage(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock, configurations Configurations) (map[string]rest.Storage, error) {
	store, err := object.NewREST(object.Kind{
		Resource:   talos.Resource("talosmachines"),
		Singular:   talos.Resource("talosmachine"),
		ShortNames: []string{"tm"},
		New:        func() runtime.Object { return &talos.TalosMachine{} },
		NewList:    func() runtime.Object { return &talos.TalosMachineList{} },
		Attributes: attributes,
		Strategy:   newMain(scheme, clock),
		Table:      newTable(clock),
	}, options)
	if err != nil {
		return nil, err
	}
	status := object.NewSubresource(store, newStatusOnly(scheme), versions, []any{"status"})
	return map[string]rest.Storage{
		"talosmachines":          store,
		"talosmachines/status":   status,
		"talosmachines/approval": object.NewSubresource(store, newApproval(scheme, clock), versions, approvalFields()...),
		"talosmachines/endpoint": object.NewSubresource(store, newEndpoint(scheme, clock), versions, []any{"spec", "endpoint"}),
		"talosmachines/config":   &Config{machines: store, configurations: configurations},
		"talosmachines/reboot":   &Reboot{status: status, clock: clock},
	}, nil
}
