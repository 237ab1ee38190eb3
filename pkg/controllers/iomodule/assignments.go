package iomodule

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// assignments know which probe lists which modules, from the probes' ConfigMaps.
type assignments struct {
	mu      sync.Mutex
	probes  map[types.NamespacedName]assigned
	modules map[types.NamespacedName][]types.NamespacedName
}

// assigned is what one probe's ConfigMap says.
type assigned struct {
	modules []string
	problem string
}

func newAssignments() *assignments {
	return &assignments{
		probes:  map[types.NamespacedName]assigned{},
		modules: map[types.NamespacedName][]types.NamespacedName{},
	}
}

// set replaces what a probe lists and returns the modules that this concerns: those that came or went, and all of them
// when the problem is another one. Listing nothing forgets the probe.
func (a *assignments) set(probe types.NamespacedName, modules []string, problem string) []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.probes[probe]
	listed := make(map[string]bool, len(modules))
	for _, name := range modules {
		listed[name] = true
	}
	var concerned []types.NamespacedName
	for _, name := range before.modules {
		key := types.NamespacedName{Namespace: probe.Namespace, Name: name}
		switch {
		case !listed[name]:
			a.modules[key] = slices.DeleteFunc(a.modules[key], func(p types.NamespacedName) bool { return p == probe })
			if len(a.modules[key]) == 0 {
				delete(a.modules, key)
			}
			concerned = append(concerned, key)
		case before.problem != problem:
			concerned = append(concerned, key)
		}
		delete(listed, name)
	}
	for name := range listed {
		key := types.NamespacedName{Namespace: probe.Namespace, Name: name}
		a.modules[key] = append(a.modules[key], probe)
		slices.SortFunc(a.modules[key], shortestFirst)
		concerned = append(concerned, key)
	}
	if len(modules) == 0 {
		delete(a.probes, probe)
	} else {
		a.probes[probe] = assigned{modules, problem}
	}
	return concerned
}

// shortestFirst puts the first shard before the others, should two list a module for a moment.
func shortestFirst(x, y types.NamespacedName) int {
	if len(x.Name) != len(y.Name) {
		return len(x.Name) - len(y.Name)
	}
	if x.Name < y.Name {
		return -1
	}
	return 1
}

// probeOf is the probe that lists a module.
func (a *assignments) probeOf(module types.NamespacedName) (types.NamespacedName, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	probes := a.modules[module]
	if len(probes) == 0 {
		return types.NamespacedName{}, false
	}
	return probes[0], true
}

// problemOf is why a probe has no pod, if its ConfigMap says so.
func (a *assignments) problemOf(probe types.NamespacedName) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.probes[probe].problem
}

// modulesOf are the modules that a probe lists.
func (a *assignments) modulesOf(probe types.NamespacedName) []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := a.probes[probe].modules
	keys := make([]types.NamespacedName, len(names))
	for i, name := range names {
		keys[i] = types.NamespacedName{Namespace: probe.Namespace, Name: name}
	}
	return keys
}
