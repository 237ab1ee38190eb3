package discovery

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// schedule knows whose turn it is: one cluster's at a time (T-10).
//
// A sweep is periodic, or urgent: the ranges changed or somebody asked for it. An urgent one begins at once. It ends what
// is left of its cluster's old sweep, and suspends another cluster's periodic one, which goes on afterwards and then
// cannot be suspended again. A cluster that had a turn since a periodic sweep became due does not overtake that sweep a
// second time. So nobody starves, however often one cluster is asked for.
type schedule struct {
	clock clock.Clock
	// wake has room for one: it tells a waiting next to look again.
	wake chan struct{}

	mu sync.Mutex
	// due has at most one turn for each cluster, beside the one that it may have just now.
	due     map[types.NamespacedName]turn
	running *turn
	// served is when each cluster's last turn began.
	served map[types.NamespacedName]time.Time
}

// turn is a cluster's leave to sweep.
type turn struct {
	key types.NamespacedName
	// at is when it becomes due, or did.
	at     time.Time
	urgent bool
	// rest is a sweep that was suspended, to go on with.
	rest *sweep

	// cancel is for a running sweep; over tells that it was ended for good, so that nothing of it is left. suspend is closed
	// when it is to begin nothing more for now.
	cancel          context.CancelFunc
	suspend         chan struct{}
	over, suspended bool
}

func (t *turn) stop() {
	t.over = true
	t.cancel()
}

func newSchedule(clk clock.Clock) *schedule {
	return &schedule{
		clock:  clk,
		wake:   make(chan struct{}, 1),
		due:    make(map[types.NamespacedName]turn),
		served: make(map[types.NamespacedName]time.Time),
	}
}

// changed makes a sweep due at once: the running one asks addresses that are perhaps no longer declared.
func (s *schedule) changed(key types.NamespacedName) { s.hurry(key, true) }

// asked makes a sweep due at once. A running sweep that is urgent itself ends first: who asks again and again would never
// see one end.
func (s *schedule) asked(key types.NamespacedName) { s.hurry(key, false) }

func (s *schedule) hurry(key types.NamespacedName, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	at := s.clock.Now()
	if waiting, ok := s.due[key]; ok && waiting.urgent {
		at = waiting.at
	}

	s.due[key] = turn{key: key, at: at, urgent: true}

	switch running := s.running; {
	case running == nil:
	case running.key == key:
		if changed || !running.urgent {
			running.stop()
		}
	case !running.urgent && running.rest == nil && !running.suspended && s.served[key].Before(running.at):
		running.suspended = true
		close(running.suspend)
	}

	s.signal()
}

// known makes a cluster's periodic sweep due now: it was there when the process came.
func (s *schedule) known(key types.NamespacedName) { s.after(key, 0) }

// after makes a periodic sweep due in a while, unless another is due before.
func (s *schedule) after(key types.NamespacedName, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.put(turn{key: key, at: s.clock.Now().Add(d)})
}

func (s *schedule) put(t turn) {
	if _, ok := s.due[t.key]; !ok {
		s.due[t.key] = t
	}

	s.signal()
}

// reset forgets all turns, as before the first one.
func (s *schedule) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()

	clear(s.due)
	clear(s.served)
}

// drop ends the turns of a cluster that has nothing to ask now.
func (s *schedule) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.due, key)

	if s.running != nil && s.running.key == key {
		s.running.stop()
	}
}

// forget drops a cluster that is gone.
func (s *schedule) forget(key types.NamespacedName) {
	s.drop(key)

	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.served, key)
}

// next waits for a turn, and gives the context in which it is to be used; the turn is nil when the one given is over.
// Each turn is ended with done before the next one is asked for.
func (s *schedule) next(ctx context.Context) (context.Context, *turn) {
	for ctx.Err() == nil {
		within, t, wait := s.begin(ctx)
		if t != nil {
			return within, t
		}

		var timer clock.Timer

		var elapsed <-chan time.Time

		if wait > 0 {
			timer = s.clock.NewTimer(wait)
			elapsed = timer.C()
		}

		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-elapsed:
		}

		if timer != nil {
			timer.Stop()
		}
	}

	return ctx, nil
}

// begin takes the turn that is due, or tells how long it takes until one is; 0 is for ever.
func (s *schedule) begin(ctx context.Context) (context.Context, *turn, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.clock.Now()

	t, wait := s.first(now)
	if t == nil {
		return ctx, nil, wait
	}

	delete(s.due, t.key)

	if t.rest == nil {
		s.served[t.key] = now
	}

	t.suspend = make(chan struct{})
	ctx, t.cancel = context.WithCancel(ctx)
	s.running = t

	return ctx, t, 0
}

func (s *schedule) first(now time.Time) (*turn, time.Duration) {
	var urgent, periodic *turn

	// Equal times are put in the order of names, so that nothing hangs on the order of a map.
	earlier := func(a, b *turn) bool {
		return b == nil || a.at.Before(b.at) || a.at.Equal(b.at) && a.key.String() < b.key.String()
	}

	var wait time.Duration

	for _, t := range s.due {
		if in := t.at.Sub(now); in > 0 {
			if wait == 0 || in < wait {
				wait = in
			}
		} else if !t.urgent && earlier(&t, periodic) {
			periodic = &t
		}
	}

	for _, t := range s.due {
		if t.urgent && (periodic == nil || s.served[t.key].Before(periodic.at)) && earlier(&t, urgent) {
			urgent = &t
		}
	}

	if urgent != nil {
		return urgent, 0
	}

	return periodic, wait
}

// done ends a turn. What is left of a suspended sweep goes on when it is its cluster's turn again.
func (s *schedule) done(t *turn, rest *sweep) {
	s.mu.Lock()
	defer s.mu.Unlock()

	t.cancel()
	s.running = nil

	if rest != nil && !t.over {
		s.put(turn{key: t.key, at: t.at, rest: rest})
	}
}

func (s *schedule) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
