package object

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
)

// NewStorage opens the store of a kind whose only subresource is status, and
// returns what serves both, by path. versions are all served ones, as
// group/version; the kind's Strategy is made here.
func NewStorage[T Object, Spec, Status any](kind Kind, of SpecStatus[T, Spec, Status], versions []string,
	scheme *runtime.Scheme, options generic.RESTOptionsGetter,
) (map[string]rest.Storage, error) {
	kind.Strategy = Main[T, Spec, Status]{Strategy: NewStrategy(scheme), ResetStatus: ResetStatus{Versions: versions}, Of: of}
	store, err := NewREST(kind, options)
	if err != nil {
		return nil, err
	}
	status := StatusOnly[T, Spec, Status]{Strategy: NewStrategy(scheme), Of: of}
	return map[string]rest.Storage{
		kind.Resource.Resource:             store,
		kind.Resource.Resource + "/status": NewSubresource(store, status, versions, []any{"status"}),
	}, nil
}
