package discovery

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// schedule knows when each cluster's next sweep is due, and hands out one at a time (T-10).
type schedule struct {
	clock clock.Clock
	// wake has room for one: it tells a waiting next to look again.
	wake chan struct{}

	mu  sync.Mutex
	due map[types.NamespacedName]time.Time
}

func newSchedule(clk clock.Clock) *schedule {
	return &schedule{clock: clk, wake: make(chan struct{}, 1), due: make(map[types.NamespacedName]time.Time)}
}

// now makes a sweep due at once, before every periodic one.
func (s *schedule) now(key types.NamespacedName) {
	s.mu.Lock()
	s.due[key] = time.Time{}
	s.mu.Unlock()

	s.signal()
}

// after makes a sweep due in a while, unless one is due already: it was asked for while the last one ran.
func (s *schedule) after(key types.NamespacedName, d time.Duration) {
	s.mu.Lock()
	if _, ok := s.due[key]; !ok {
		s.due[key] = s.clock.Now().Add(d)
	}
	s.mu.Unlock()

	s.signal()
}

// drop forgets a cluster.
func (s *schedule) drop(key types.NamespacedName) {
	s.mu.Lock()
	delete(s.due, key)
	s.mu.Unlock()
}

// next waits for the cluster that is due first and takes it off; asked tells that its sweep was asked for, rather than
// periodic. It returns false when the context is over.
func (s *schedule) next(ctx context.Context) (key types.NamespacedName, asked, ok bool) {
	for ctx.Err() == nil {
		key, at, found := s.first()

		wait := at.Sub(s.clock.Now())
		if found && wait <= 0 {
			s.drop(key)

			return key, at.IsZero(), true
		}

		var timer clock.Timer

		var elapsed <-chan time.Time

		if found {
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

	return types.NamespacedName{}, false, false
}

func (s *schedule) first() (first types.NamespacedName, at time.Time, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for key, due := range s.due {
		// Equal times are put in the order of names, so that nothing hangs on the order of a map.
		if !found || due.Before(at) || due.Equal(at) && key.String() < first.String() {
			first, at, found = key, due, true
		}
	}

	return first, at, found
}

func (s *schedule) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
