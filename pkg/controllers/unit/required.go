package unit

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// required knows which modules each Unit requires, and which Units each module concerns, from the tags of all ControlModules.
type required struct {
	mu sync.RWMutex
	// controlModules is what each one contributes.
	controlModules map[types.NamespacedName]contribution
	// units counts, for each Unit, the ControlModules that name a module; modules is the same from the other side.
	units   map[types.NamespacedName]map[string]int
	modules map[types.NamespacedName]map[types.NamespacedName]int
	// sorted are the names of a Unit's modules, made when they are asked for.
	sorted map[types.NamespacedName][]string
}

// contribution is what a ControlModule says.
type contribution struct {
	unit    types.NamespacedName
	modules []string
}

func newRequired() *required {
	return &required{
		controlModules: map[types.NamespacedName]contribution{},
		units:          map[types.NamespacedName]map[string]int{},
		modules:        map[types.NamespacedName]map[types.NamespacedName]int{},
		sorted:         map[types.NamespacedName][]string{},
	}
}

// contributed is what a ControlModule contributes: each module once.
func contributed(c *v1alpha1.ControlModule) contribution {
	names := map[string]bool{}
	for _, tag := range c.Spec.Tags {
		names[tag.IOModuleRef.Name] = true
	}
	return contribution{
		unit:    types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.UnitRef.Name},
		modules: slices.Sorted(maps.Keys(names)),
	}
}

// set takes a ControlModule and returns the Units that it concerns: those that it belongs to, and belonged to, if what it
// contributes has changed.
func (r *required) set(c *v1alpha1.ControlModule) []types.NamespacedName {
	return r.replace(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, contributed(c))
}

// remove forgets a ControlModule.
func (r *required) remove(key types.NamespacedName) []types.NamespacedName {
	return r.replace(key, contribution{})
}

func (r *required) replace(key types.NamespacedName, is contribution) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.controlModules[key]
	if known && was.unit == is.unit && slices.Equal(was.modules, is.modules) {
		return nil
	}
	var concerned []types.NamespacedName
	if known {
		r.count(was, -1)
		concerned = append(concerned, was.unit)
	}
	delete(r.controlModules, key)
	if is.unit.Name != "" {
		r.controlModules[key] = is
		r.count(is, 1)
		if !slices.Contains(concerned, is.unit) {
			concerned = append(concerned, is.unit)
		}
	}
	return concerned
}

func (r *required) count(c contribution, by int) {
	delete(r.sorted, c.unit)
	for _, name := range c.modules {
		add(r.units, c.unit, name, by)
		add(r.modules, types.NamespacedName{Namespace: c.unit.Namespace, Name: name}, c.unit, by)
	}
}

func add[K, L comparable](counts map[K]map[L]int, k K, l L, by int) {
	inner := counts[k]
	if inner == nil {
		inner = map[L]int{}
		counts[k] = inner
	}
	if inner[l] += by; inner[l] == 0 {
		delete(inner, l)
	}
	if len(inner) == 0 {
		delete(counts, k)
	}
}

// of are the names of the modules that a Unit requires, sorted; they are not to be changed.
func (r *required) of(unit types.NamespacedName) []string {
	r.mu.RLock()
	names, ok := r.sorted[unit]
	r.mu.RUnlock()
	if ok {
		return names
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	names = slices.Sorted(maps.Keys(r.units[unit]))
	if len(names) > 0 {
		r.sorted[unit] = names
	}
	return names
}

// unitsOf are the Units that require a module.
func (r *required) unitsOf(module types.NamespacedName) []types.NamespacedName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Keys(r.modules[module]))
}
