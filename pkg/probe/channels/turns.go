package channels

import "sync"

const (
	// maxTurns is how many pages are read from probes at once, and maxNamespaceTurns how many of one namespace: each may take
	// tens of MiB in this process, and as long as the probe likes to take, up to the request's own time (P-12).
	maxTurns          = 16
	maxNamespaceTurns = 4
)

// turns bounds the pages that are being read.
type turns struct {
	mu          sync.Mutex
	all         int
	byNamespace map[string]int
}

func newTurns() *turns { return &turns{byNamespace: map[string]int{}} }

// take takes a turn, if there is one; it is given back by release, once.
func (t *turns) take(namespace string) (release func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == maxTurns || t.byNamespace[namespace] == maxNamespaceTurns {
		return nil, false
	}
	t.all++
	t.byNamespace[namespace]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all--
		if t.byNamespace[namespace]--; t.byNamespace[namespace] == 0 {
			delete(t.byNamespace, namespace)
		}
	}, true
}
