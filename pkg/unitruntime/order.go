package unitruntime

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// drainTime is how long an order's answer waits for writes of before to end. What has not ended then keeps the order from being
// told as applied. With saveTime it is less than what the controllers wait for an answer.
const drainTime = 800 * time.Millisecond

// PutOrder takes an order of the controllers. It is in force, and stored, when PutOrder returns, and no write that it does not permit is
// with a driver any more, unless the driver does not return.
func (r *Runtime) PutOrder(ctx context.Context, o api.Order) (api.Report, *api.Error) {
	if refused := r.take(o); refused != nil {
		r.metrics.orders.WithLabelValues("Refused").Inc()
		return api.Report{}, refused
	}
	r.metrics.orders.WithLabelValues("Accepted").Inc()
	r.drain(ctx)
	return r.Report(), nil
}

// take makes an order the one in force.
func (r *Runtime) take(o api.Order) *api.Error {
	r.ordering.Lock()
	defer r.ordering.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if refused := r.refusal(o); refused != nil {
		return refused
	}
	r.contact = r.clock.Now()
	latch := r.latch
	if latch != nil && o.LatchAcknowledged == latch.ID && !isa88.Holdable(o.State) {
		latch = nil
	}
	if r.fresh && r.order != nil && *r.order == o && latch == r.latch {
		return nil
	}
	if r.order == nil || r.order.State != o.State {
		r.log.Info("Order", "state", o.State, "revision", o.Revision, "episode", o.Episode)
	}
	next := regimeOf(&o, latch, true)
	if next.permission != writesOfUsers {
		// What it forbids is forbidden before the disk is waited for.
		r.order, r.fresh = &o, true
		r.setRegime(next)
	}
	r.stored = false
	r.mu.Unlock()
	r.save(State{Order: &o, Latch: latch})
	r.mu.Lock()
	r.stored = true
	r.order, r.latch, r.fresh = &o, latch, true
	r.setRegime(next)
	r.kickHoldsLocked()
	r.notifyLocked()
	return nil
}

// refusal is why an order is not taken.
func (r *Runtime) refusal(o api.Order) *api.Error {
	switch {
	case r.config == nil:
		return &api.Error{Code: http.StatusServiceUnavailable, Message: "no config file was good yet"}
	case o.UID != r.config.Unit.UID:
		return conflict("the order is for the Unit of uid %q, and this is the runtime of %s, whose uid is %q", o.UID, r.config.Unit.Name, r.config.Unit.UID)
	case !known(o.State):
		return &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("%q is no state", o.State)}
	case r.order == nil || o.Revision > r.order.Revision:
		return nil
	case o.Revision < r.order.Revision:
		return conflict("the order is of revision %d, and one of revision %d is in force", o.Revision, r.order.Revision)
	case o.State != r.order.State || o.Episode != r.order.Episode:
		return conflict("another order of revision %d is in force: %s", o.Revision, r.order.State)
	default:
		return nil
	}
}

func conflict(format string, args ...any) *api.Error {
	return &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf(format, args...)}
}

// save stores the state, and acts on it all the same where it cannot: what is ordered counts more than that it is remembered.
func (r *Runtime) save(s State) {
	if err := r.options.State.Save(s); err != nil {
		r.metrics.stateErrors.Inc()
		r.log.Error(err, "The order could not be stored; it is not remembered if the program is killed")
	}
}

// forgetOtherUnit drops the order and the latch of a Unit that the config no longer names: one that was deleted, and made anew.
func (r *Runtime) forgetOtherUnit(uid string) {
	r.ordering.Lock()
	defer r.ordering.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.order == nil || r.order.UID == uid {
		return
	}
	r.log.Info("The order in force is of another Unit, and is dropped", "uid", r.order.UID)
	r.order, r.latch, r.fresh = nil, nil, false
	r.setRegime(regime{})
	r.mu.Unlock()
	r.save(State{})
	r.mu.Lock()
	r.notifyLocked()
}

// setRegime changes what may be written. Writes that were permitted before are called off: those that a driver has are cancelled, and
// those that wait find themselves in another epoch.
func (r *Runtime) setRegime(next regime) {
	if next == r.regime {
		return
	}
	if next.hold != r.regime.hold {
		for _, holds := range r.holds {
			for _, h := range holds {
				h.reset()
			}
		}
	}
	r.regime = next
	r.epoch++
	if next.permission == writesOfUsers {
		r.running = r.order.Revision
	}
	for f := range r.inFlight {
		f.cancel()
	}
}

// drain waits until no write of an earlier epoch is with a driver.
func (r *Runtime) drain(ctx context.Context) {
	f := r.follow()
	defer r.unfollow(f)
	timer := r.clock.NewTimer(drainTime)
	defer timer.Stop()
	for !r.drained() {
		select {
		case <-f:
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		}
	}
}

func (r *Runtime) drained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drainedLocked()
}

func (r *Runtime) drainedLocked() bool {
	for f := range r.inFlight {
		if f.epoch != r.epoch {
			return false
		}
	}
	return true
}
