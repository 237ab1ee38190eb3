package unit

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// sightings know for how long this process has seen something as it is, by the clock of the process: setting the clock on
// the wall shortens and lengthens nothing.
type sightings struct {
	clock clock.PassiveClock
	// origin has the reading of a clock that only goes on, and so have its differences.
	origin time.Time

	mu   sync.Mutex
	seen map[types.NamespacedName]sighting
}

type sighting struct {
	// as is what was seen, to be told from anything else.
	as as
	at time.Duration
}

// as is an object in a state.
type as struct {
	uid   types.UID
	state string
	// since is when the state began, as it is stored.
	since int64
}

func newSightings(c clock.PassiveClock) *sightings {
	return &sightings{clock: c, origin: c.Now(), seen: map[types.NamespacedName]sighting{}}
}

// age is for how long the object has been seen like this; 0 the first time.
func (s *sightings) age(key types.NamespacedName, is as) time.Duration {
	now := s.clock.Since(s.origin)
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, ok := s.seen[key]; ok && seen.as == is {
		return now - seen.at
	}
	s.seen[key] = sighting{is, now}
	return 0
}

func (s *sightings) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, key)
}
