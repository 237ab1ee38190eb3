package unitruntime

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// holdRetry is how long a hold value that was not taken waits for the next attempt.
	holdRetry = time.Second
	// holdSilences is how many attempts in a row may end without the device's answer before that is told as a refusal. A device
	// that is lost is known as that by then: its hold values are unreachable, and nobody has to mend an address.
	holdSilences = 5
)

// hold is a tag's hold value on its way to the device.
type hold struct {
	tag   *Tag
	taken bool
	// reason and message say why it was not taken, and notBefore is when it is tried again.
	reason, message string
	notBefore       time.Time
	// silences counts the attempts in a row that the device did not answer.
	silences int
}

// reset has the value written anew.
func (h *hold) reset() { *h = hold{tag: h.tag} }

// find is the hold value of a tag among those of its module; nil without one.
func find(holds []*hold, key api.TagKey) *hold {
	i, ok := slices.BinarySearchFunc(holds, key, func(h *hold, key api.TagKey) int { return compareKeys(h.tag.TagKey, key) })
	if !ok {
		return nil
	}
	return holds[i]
}

// writeHoldValues writes the hold values of one device whenever there are some to write, until ctx ends.
func (r *Runtime) writeHoldValues(ctx context.Context, l *link) {
	for {
		due, epoch, wait := r.dueHolds(l)
		if len(due) > 0 {
			for _, t := range due {
				if !r.writeHoldValue(ctx, l, t, epoch) {
					break
				}
			}
			if ctx.Err() != nil {
				return
			}
			continue
		}
		timer := r.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.holdKick:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// idleWait is how long the writer of hold values sleeps when nothing is to be written and nobody wakes it.
const idleWait = time.Hour

// dueHolds are the hold values to write to a device now, in the order of the tags, or how long until there may be some.
func (r *Runtime) dueHolds(l *link) (due []*Tag, epoch uint64, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = idleWait
	// A device that is lost is not tried: the reader tells when it answers, and neighbours on the same line keep their time.
	if r.regime.permission != writesHoldValues || !r.stored || r.links[l.module.Name] != l || l.unreachable() {
		return nil, r.epoch, wait
	}
	now := r.clock.Now()
	for _, h := range r.holds[l.module.Name] {
		switch left := h.notBefore.Sub(now); {
		case h.taken:
		case left > 0:
			wait = min(wait, left)
		default:
			due = append(due, h.tag)
		}
	}
	return due, r.epoch, wait
}

// unreachable tells whether the device is lost and has not answered since.
func (l *link) unreachable() bool {
	s := l.now()
	return s.known && !s.connected && s.failing || s.stalled(l.clock.Now())
}

// writeHoldValue writes one hold value, and tells whether to go on with the device's others.
func (r *Runtime) writeHoldValue(ctx context.Context, l *link, t *Tag, epoch uint64) bool {
	result := r.writeTag(ctx, l, t, *t.HoldValue, epoch)
	r.metrics.writes.WithLabelValues("hold", result.outcome()).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	h := find(r.holds[t.IOModule], t.TagKey)
	if result.offEpoch || h == nil || r.epoch != epoch || !h.tag.sameHold(t) {
		return false
	}
	if result.Done {
		h.taken, h.reason, h.message = true, "", ""
		r.notifyLocked()
		return true
	}
	h.notBefore = r.clock.Now().Add(holdRetry)
	h.silences++
	if result.answered {
		h.silences = 0
	}
	if result.answered || h.silences >= holdSilences {
		h.reason, h.message = cmp.Or(result.Reason, string(driver.ReasonNotMeasured)), result.Message
	}
	if !result.answered {
		// The link is down, and would be for the others: they wait with this one.
		for _, other := range r.holds[t.IOModule] {
			other.notBefore = h.notBefore
		}
	}
	r.notifyLocked()
	return result.answered
}

// deviceReturned has a device that answers after a failure given its hold values again: it may have been restarted, and have
// forgotten them.
func (r *Runtime) deviceReturned(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.links[l.module.Name] != l {
		return
	}
	for _, h := range r.holds[l.module.Name] {
		h.reset()
	}
	wake(l.holdKick)
	r.notifyLocked()
}

func (r *Runtime) kickHolds() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kickHoldsLocked()
}

func (r *Runtime) kickHoldsLocked() {
	for _, l := range r.links {
		wake(l.holdKick)
	}
}

// outstanding are the hold values that no device has taken, sorted, while there is something to hold.
func (r *Runtime) outstanding() []api.HoldWrite {
	if r.regime.permission != writesHoldValues {
		return nil
	}
	var out []api.HoldWrite
	for module, holds := range r.holds {
		var lost *api.HoldWrite
		switch l, m := r.links[module], r.broken[module]; {
		case l != nil && l.unreachable():
			s := l.told()
			lost = &api.HoldWrite{Reason: s.Reason, Message: s.Message}
		case l != nil:
		case m.Err != nil:
			lost = &api.HoldWrite{Reason: string(m.Err.Reason), Message: causeOf(m.Err)}
		default:
			lost = &api.HoldWrite{Reason: string(driver.ReasonConfigurationError), Message: "the Unit's runtime knows of no such module"}
		}
		for _, h := range holds {
			if h.taken {
				continue
			}
			w := api.HoldWrite{Reason: h.reason, Message: h.message}
			if lost != nil {
				w = *lost
				w.Unreachable = true
			}
			w.ControlModule, w.Name, w.IOModule = h.tag.ControlModule, h.tag.Name, module
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b api.HoldWrite) int {
		return compareKeys(api.TagKey{ControlModule: a.ControlModule, Name: a.Name}, api.TagKey{ControlModule: b.ControlModule, Name: b.Name})
	})
	return out
}
