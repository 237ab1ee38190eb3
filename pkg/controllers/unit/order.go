package unit

import (
	"slices"
	"strconv"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// orderOf is what the runtime is told of a Unit as it is stored. Its revision is the Unit's resourceVersion, which grows
// with every change, whoever the leader is.
func orderOf(unit *v1alpha1.Unit, r runtime) api.Order {
	order := api.Order{UID: string(unit.UID), Revision: revisionOf(unit), State: stateOf(unit)}
	held := order.State == isa88.Holding || order.State == isa88.Held
	hold := unit.Status.Hold
	if held && hold != nil {
		order.Episode = hold.Episode
	}
	// In a Holdable state the latch has yet to become a hold; where it is one already, it has yet to be listed.
	if latch := r.latch(unit); latch != nil && !isa88.Holdable(order.State) && (!held || lists(hold, latch)) {
		order.LatchAcknowledged = latch.ID
	}
	return order
}

// lists tells whether a hold has the runtime's latch among its causes.
func lists(hold *v1alpha1.UnitHold, latch *api.Latch) bool {
	if hold == nil {
		return false
	}
	for _, cause := range latchCauses(latch) {
		if len(hold.Causes) < maxCauses && !slices.ContainsFunc(hold.Causes, func(c v1alpha1.UnitHoldCause) bool { return sameCause(c, cause) }) {
			return false
		}
	}
	return true
}

// stateOf is the Unit's state. One that has none yet does nothing.
func stateOf(unit *v1alpha1.Unit) isa88.State {
	if unit.Status.State == "" {
		return isa88.Idle
	}
	return isa88.State(unit.Status.State)
}

// revisionOf is the resourceVersion as a number, 0 if it is none.
func revisionOf(unit *v1alpha1.Unit) int64 {
	revision, err := strconv.ParseInt(unit.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}
