package controlmodule

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// target is what a ControlModule refers to.
type target struct {
	kind string
	types.NamespacedName
}

func unitTarget(key types.NamespacedName) target   { return target{"Unit", key} }
func moduleTarget(key types.NamespacedName) target { return target{"IOModule", key} }

// referrers know which ControlModules refer to what, so that a Unit or a module that comes or goes asks for those alone.
type referrers struct {
	mu      sync.Mutex
	targets map[types.NamespacedName][]target
	by      map[target]map[types.NamespacedName]bool
}

func newReferrers() *referrers {
	return &referrers{targets: map[types.NamespacedName][]target{}, by: map[target]map[types.NamespacedName]bool{}}
}

// set takes a ControlModule, nil for one that went.
func (r *referrers) set(key types.NamespacedName, controlModule *v1alpha1.ControlModule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.targets[key] {
		delete(r.by[t], key)
		if len(r.by[t]) == 0 {
			delete(r.by, t)
		}
	}
	delete(r.targets, key)
	if controlModule == nil {
		return
	}
	distinct := map[target]bool{unitTarget(types.NamespacedName{Namespace: key.Namespace, Name: controlModule.Spec.UnitRef.Name}): true}
	for i := range controlModule.Spec.Tags {
		distinct[moduleTarget(types.NamespacedName{Namespace: key.Namespace, Name: controlModule.Spec.Tags[i].IOModuleRef.Name})] = true
	}
	r.targets[key] = slices.Collect(maps.Keys(distinct))
	for t := range distinct {
		if r.by[t] == nil {
			r.by[t] = map[types.NamespacedName]bool{}
		}
		r.by[t][key] = true
	}
}

// of are the ControlModules that refer to it.
func (r *referrers) of(t target) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.by[t]))
}
