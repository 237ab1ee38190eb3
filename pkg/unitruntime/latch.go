package unitruntime

import (
	"slices"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// watchPeriod is how often the contact with the server is looked at.
const watchPeriod = 250 * time.Millisecond

// latchIfDue holds by itself when a required device is lost and the server has not been heard of for api.Contact (P-16b). The
// server alone, or a device alone, holds nothing here: the one may be restarting, and of the other the server knows.
func (r *Runtime) latchIfDue() {
	r.ordering.Lock()
	defer r.ordering.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.lostModules()
	if len(lost) == 0 || !latches(r.order, r.latch, r.clock.Now().Sub(r.contact)) {
		return
	}
	latch := &api.Latch{ID: r.options.NewID(), At: r.clock.Now(), Modules: lost}
	r.log.Info("Devices are lost and the server cannot be reached: holding", "latch", latch.ID, "modules", lost)
	r.metrics.latches.Inc()
	r.latch = latch
	r.stored = false
	r.setRegime(regimeOf(r.order, latch, r.fresh))
	order := *r.order
	r.mu.Unlock()
	r.save(State{Order: &order, Latch: latch})
	r.mu.Lock()
	r.stored = true
	r.kickHoldsLocked()
	r.notifyLocked()
}

// latches tells whether the loss of a device would be latched now.
func latches(order *api.Order, latch *api.Latch, silence time.Duration) bool {
	return order != nil && isa88.Holdable(order.State) && latch == nil && silence > api.Contact
}

// lostModules are the required devices that count as lost, sorted. A device is required if a tag is read from it or written to it.
func (r *Runtime) lostModules() []string {
	now := r.clock.Now()
	var lost []string
	for name, l := range r.links {
		if r.required[name] && l.now().lost(now) {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return lost
}
