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
	// controller is whose probe it is; "" for a shared one.
	controller string
	modules    []string
	// problem is why the probe has no pod, if there is something in the way.
	problem string
}

func newAssignments() *assignments {
	return &assignments{
		probes:  map[types.NamespacedName]assigned{},
		modules: map[types.NamespacedName][]types.NamespacedName{},
	}
}

// set replaces what a probe's ConfigMap says and returns the modules that this concerns: those that came or went, and all of
// them when the problem or the Controller is another one. Listing nothing forgets the probe.
func (a *assignments) set(probe types.NamespacedName, is assigned) []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.probes[probe]
	listed := make(map[string]bool, len(is.modules))
	for _, name := range is.modules {
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
		case before.problem != is.problem || before.controller != is.controller:
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
	if len(is.modules) == 0 {
		delete(a.probes, probe)
	} else {
		a.probes[probe] = is
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

// probeOf is the probe of a Controller, or the shared one for "", that lists a module. What another lists it still, or
// already, says nothing of a module that moves: it measures from somewhere else.
func (a *assignments) probeOf(module types.NamespacedName, controller string) (types.NamespacedName, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, probe := range a.modules[module] {
		if a.probes[probe].controller == controller {
			return probe, true
		}
	}
	return types.NamespacedName{}, false
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
