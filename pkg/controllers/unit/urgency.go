package unit

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// urgency is the order of a work queue in which what is urgent goes first: a module that fails under a thousand Units has all
// of them Holding before the first of them is told to be Held. The queue that owns it has its lock around all but mark.
type urgency struct {
	mu     sync.Mutex
	marked map[types.NamespacedName]bool
	// waiting are the keys in the queue, and whether as urgent ones. A key that became urgent while it waited is in both lines; the
	// one of them that comes later is passed over.
	waiting map[types.NamespacedName]bool
	urgent  []types.NamespacedName
	other   []types.NamespacedName
}

var _ workqueue.Queue[types.NamespacedName] = &urgency{}

func newUrgency() *urgency {
	return &urgency{marked: map[types.NamespacedName]bool{}, waiting: map[types.NamespacedName]bool{}}
}

// mark has a key go first that is added now, or waits already.
func (u *urgency) mark(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.marked[key] = true
}

// Touch is told of a key that is added while it waits.
func (u *urgency) Touch(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if first, waits := u.waiting[key]; waits && !first && u.marked[key] {
		u.waiting[key] = true
		u.urgent = append(u.urgent, key)
	}
}

// Push adds a key.
func (u *urgency) Push(key types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting[key] = u.marked[key]
	if u.marked[key] {
		u.urgent = append(u.urgent, key)
	} else {
		u.other = append(u.other, key)
	}
}

// Len is how many keys wait.
func (u *urgency) Len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.waiting)
}

// urgentWaits tells whether something urgent waits.
func (u *urgency) urgentWaits() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, first := range u.waiting {
		if first {
			return true
		}
	}
	return false
}

// Pop takes the next key.
func (u *urgency) Pop() types.NamespacedName {
	u.mu.Lock()
	defer u.mu.Unlock()
	for {
		line, first := &u.urgent, true
		if len(*line) == 0 {
			line, first = &u.other, false
		}
		if len(*line) == 0 {
			return types.NamespacedName{}
		}
		key := (*line)[0]
		*line = (*line)[1:]
		if is, waits := u.waiting[key]; !waits || is != first {
			continue
		}
		delete(u.waiting, key)
		delete(u.marked, key)
		return key
	}
}
