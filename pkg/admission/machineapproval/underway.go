package machineapproval

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// settles is how long after it was let in a write may still be on its way into the store.
const settles = 5 * time.Second

// underway remembers the writes of one kind that were let in and are perhaps not stored yet. An approval and a change of its
// cluster write two objects, so that no resourceVersion keeps the one from coming between the other's check and its storing:
// each is noted first, and then looks for the other, so that of two that meet at least one sees it. Replicas of the server
// do not see each other's.
type underway struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	last   int
	writes map[string]map[int]time.Time
}

func newUnderway() *underway {
	return &underway{clock: clock.RealClock{}, writes: map[string]map[int]time.Time{}}
}

// note remembers a write that concerns a cluster, until it is forgotten or has settled.
func (u *underway) note(cluster string) (forget func()) {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.dropSettled()
	u.last++
	id := u.last

	if u.writes[cluster] == nil {
		u.writes[cluster] = map[int]time.Time{}
	}
	u.writes[cluster][id] = u.clock.Now()

	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()

		delete(u.writes[cluster], id)
	}
}

// any tells whether a write that concerns a cluster is perhaps not stored yet, or was just now.
func (u *underway) any(cluster string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.dropSettled()

	return len(u.writes[cluster]) > 0
}

func (u *underway) dropSettled() {
	for cluster, writes := range u.writes {
		for id, at := range writes {
			if u.clock.Since(at) > settles {
				delete(writes, id)
			}
		}
		if len(writes) == 0 {
			delete(u.writes, cluster)
		}
	}
}
