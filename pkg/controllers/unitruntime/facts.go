package unitruntime

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// facts know which ControlModules make up a Unit, which modules they read, and who else is a client of the devices of these. They are
// kept from the informers' events, so that a change asks only for the Units that it concerns.
type facts struct {
	mu sync.Mutex
	// units are those that exist.
	units          map[types.NamespacedName]bool
	controlModules map[types.NamespacedName]belonging
	modules        map[types.NamespacedName]place
	// ofUnit are the ControlModules of each Unit, users counts the ControlModules by which each module belongs to a Unit.
	ofUnit map[types.NamespacedName]map[string]bool
	users  map[types.NamespacedName]map[types.NamespacedName]int
	// at are the modules of each device.
	at map[device]map[types.NamespacedName]bool
}

// belonging is what a ControlModule says.
type belonging struct {
	unit    types.NamespacedName
	modules []string
}

// device is where modules are reached, in one namespace: no other's devices are looked at (P-12).
type device struct{ namespace, hostPort string }

// place is what a module says of its device and of its probe.
type place struct {
	device device
	// limit is how many connections the device allows, 0 if nothing is said.
	limit int
	// prober is the same for modules of the same probe.
	prober string
	// probePod is the pod that measures the module.
	probePod string
}

func newFacts() *facts {
	return &facts{
		units:          map[types.NamespacedName]bool{},
		controlModules: map[types.NamespacedName]belonging{},
		modules:        map[types.NamespacedName]place{},
		ofUnit:         map[types.NamespacedName]map[string]bool{},
		users:          map[types.NamespacedName]map[types.NamespacedName]int{},
		at:             map[device]map[types.NamespacedName]bool{},
	}
}

// setUnit takes a Unit that came or went, and returns the Units that this concerns.
func (f *facts) setUnit(unit types.NamespacedName, exists bool) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	concerned := map[types.NamespacedName]bool{unit: true}
	if f.units[unit] != exists {
		if exists {
			f.units[unit] = true
		} else {
			delete(f.units, unit)
		}
		for name := range f.ofUnit[unit] {
			for _, module := range f.controlModules[types.NamespacedName{Namespace: unit.Namespace, Name: name}].modules {
				f.addSharers(concerned, types.NamespacedName{Namespace: unit.Namespace, Name: module})
			}
		}
	}
	return slices.Collect(maps.Keys(concerned))
}

// setControlModule takes a ControlModule, nil for one that went, and returns the Units that this concerns.
func (f *facts) setControlModule(key types.NamespacedName, controlModule *v1alpha1.ControlModule) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	concerned := map[types.NamespacedName]bool{}
	before, known := f.controlModules[key]
	if known {
		concerned[before.unit] = true
		delete(f.ofUnit[before.unit], key.Name)
		if len(f.ofUnit[before.unit]) == 0 {
			delete(f.ofUnit, before.unit)
		}
		f.count(before, -1)
		delete(f.controlModules, key)
	}
	after := belonging{}
	if controlModule != nil {
		after = belongingOf(controlModule)
		concerned[after.unit] = true
		if f.ofUnit[after.unit] == nil {
			f.ofUnit[after.unit] = map[string]bool{}
		}
		f.ofUnit[after.unit][key.Name] = true
		f.count(after, 1)
		f.controlModules[key] = after
	}
	if before.unit != after.unit || !slices.Equal(before.modules, after.modules) {
		for _, name := range slices.Concat(before.modules, after.modules) {
			f.addSharers(concerned, types.NamespacedName{Namespace: key.Namespace, Name: name})
		}
	}
	return slices.Collect(maps.Keys(concerned))
}

// belongingOf names each module once.
func belongingOf(controlModule *v1alpha1.ControlModule) belonging {
	names := map[string]bool{}
	for i := range controlModule.Spec.Tags {
		names[controlModule.Spec.Tags[i].IOModuleRef.Name] = true
	}
	return belonging{
		unit:    types.NamespacedName{Namespace: controlModule.Namespace, Name: controlModule.Spec.UnitRef.Name},
		modules: slices.Sorted(maps.Keys(names)),
	}
}

func (f *facts) count(b belonging, by int) {
	for _, name := range b.modules {
		module := types.NamespacedName{Namespace: b.unit.Namespace, Name: name}
		users := f.users[module]
		if users == nil {
			users = map[types.NamespacedName]int{}
			f.users[module] = users
		}
		if users[b.unit] += by; users[b.unit] == 0 {
			delete(users, b.unit)
		}
		if len(users) == 0 {
			delete(f.users, module)
		}
	}
}

// setModule takes a module, nil for one that went, and returns the Units that this concerns.
func (f *facts) setModule(key types.NamespacedName, module *v1alpha1.IOModule) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	concerned := map[types.NamespacedName]bool{}
	for unit := range f.users[key] {
		concerned[unit] = true
	}
	before, known := f.modules[key]
	if known {
		f.addSharers(concerned, key)
		delete(f.at[before.device], key)
		if len(f.at[before.device]) == 0 {
			delete(f.at, before.device)
		}
		delete(f.modules, key)
	}
	if module != nil {
		after := placeOf(module)
		f.modules[key] = after
		if after.device.hostPort != "" {
			if f.at[after.device] == nil {
				f.at[after.device] = map[types.NamespacedName]bool{}
			}
			f.at[after.device][key] = true
		}
		f.addSharers(concerned, key)
	}
	return slices.Collect(maps.Keys(concerned))
}

// addSharers adds the Units that read the module's device, if it limits its connections.
func (f *facts) addSharers(units map[types.NamespacedName]bool, module types.NamespacedName) {
	limit, _ := f.limitOf(f.modules[module].device)
	if limit == 0 {
		return
	}
	for neighbour := range f.at[f.modules[module].device] {
		for unit := range f.users[neighbour] {
			units[unit] = true
		}
	}
}

// limitOf is the lowest limit that a module of the device states, 0 for none, and by how many probes it is measured.
func (f *facts) limitOf(d device) (limit, probers int) {
	distinct := map[string]bool{}
	for module := range f.at[d] {
		p := f.modules[module]
		distinct[p.prober] = true
		if p.limit > 0 && (limit == 0 || p.limit < limit) {
			limit = p.limit
		}
	}
	return limit, len(distinct)
}

// shared tells whether a module's device has more clients than it allows connections: its probes, and every Unit that reads it.
func (f *facts) shared(module types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.modules[module].device
	limit, clients := f.limitOf(d)
	if limit == 0 {
		return false
	}
	units := map[types.NamespacedName]bool{}
	for neighbour := range f.at[d] {
		for unit := range f.users[neighbour] {
			if f.units[unit] {
				units[unit] = true
			}
		}
	}
	return clients+len(units) > limit
}

// controlModulesOf are the names of a Unit's ControlModules, sorted.
func (f *facts) controlModulesOf(unit types.NamespacedName) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.ofUnit[unit]))
}

// readThrough are the Units that read, through this pod of a probe, a device that limits its connections.
func (f *facts) readThrough(pod types.NamespacedName) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	units := map[types.NamespacedName]bool{}
	for module, p := range f.modules {
		if module.Namespace == pod.Namespace && p.probePod == pod.Name {
			f.addSharers(units, module)
		}
	}
	return slices.Collect(maps.Keys(units))
}
