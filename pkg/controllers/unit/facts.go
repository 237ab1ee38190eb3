package unit

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// facts are everything that a decision is made from.
type facts struct {
	// unit is as stored; its resourceVersion is what the decision is written against.
	unit *v1alpha1.Unit
	// modules are those that the Unit requires, sorted by name.
	modules []module
	// live: the Unit, then its ControlModules, then the modules were read from the store for this decision, in this order. Only then
	// is module.confirmed known.
	live bool
	// invalid are the tags that cannot be what they say, as the ControlModules tell; known only live.
	invalid []string
	runtime runtime
	// inState is for how long this process has seen the Unit in its state, by a clock that nobody sets.
	inState time.Duration
	now     metav1.Time
	// newEpisode names a hold that begins.
	newEpisode func() string
}

// module is what is known of a module that a Unit requires.
type module struct {
	name string
	// found: there is such a module. Otherwise nothing of the rest is set.
	found  bool
	uid    types.UID
	state  v1alpha1.ModuleState
	reason string
	// since is when the state last changed.
	since *metav1.Time
	// outdated: the state is of a former specification.
	outdated bool
	// confirmed: the state is Online by evidence of this leadership (P-16c).
	confirmed bool
	// unknownFor is for how long this process has seen the module Unknown, by a clock that nobody sets.
	unknownFor time.Duration
}

// runtime is what is known of a Unit's runtime.
type runtime struct {
	report    api.Report
	pod       string
	inContact bool
	// awaited: these controllers have just begun, and the runtime has yet to speak to them and to take an order. That is no word of it.
	awaited bool
}

// moduleOf are the facts of a stored module; confirmed and unknownFor are not among what is stored.
func moduleOf(m *v1alpha1.IOModule) module {
	is := module{
		name: m.Name, found: true, uid: m.UID, state: m.Status.State, reason: m.Status.Reason,
		since: m.Status.LastTransitionTime, outdated: m.Status.ObservedGeneration < m.Generation,
	}
	switch is.state {
	case v1alpha1.ModuleOnline, v1alpha1.ModuleFault, v1alpha1.ModuleOffline:
	default:
		// What has no state was not measured, and what nobody knows the name of is not known to be Online.
		is.state = v1alpha1.ModuleUnknown
	}
	return is
}

// same tells whether two facts of stored modules are the same.
func (m module) same(other module) bool {
	if !inSeconds(m.since).Equal(inSeconds(other.since)) {
		return false
	}
	m.since, other.since = nil, nil
	return m == other
}

// isOf tells whether the runtime speaks of this very Unit.
func (r runtime) isOf(unit *v1alpha1.Unit) bool {
	return r.report.Runtime.UID != "" && r.report.Runtime.UID == string(unit.UID)
}

// latch is the runtime's own hold; nil if there is none (P-16b). The pod is in the hands of whoever may edit the namespace: what
// it says counts as far as a status can hold it, since a status that cannot be stored would keep every other hold from being stored.
func (r runtime) latch(unit *v1alpha1.Unit) *api.Latch {
	if !r.isOf(unit) || r.report.Latch == nil {
		return nil
	}
	latch := *r.report.Latch
	latch.Modules = nil
	for _, name := range r.report.Latch.Modules[:min(len(r.report.Latch.Modules), maxCauses)] {
		if len(validation.IsDNS1123Subdomain(name)) == 0 {
			latch.Modules = append(latch.Modules, name)
		}
	}
	return &latch
}

// applied tells whether the runtime has done all that it was told of the Unit as it is stored now, and of no other moment.
func (r runtime) applied(unit *v1alpha1.Unit) bool {
	order := r.report.Order
	return r.report.Applied && order != nil && order.UID == string(unit.UID) && order.State == stateOf(unit) &&
		order.Revision == revisionOf(unit)
}
