package modbus

import (
	"context"
	"slices"
	"sync"
)

// The classes of those who wait for the line: units that answered last time go before those that did not.
const (
	healthy = iota
	suspect
)

// maxOvertakes is how many healthy units may be served in a row while a suspect one waits; beyond it a busy gateway
// would never notice that a unit came back.
const maxOvertakes = 8

// line serialises the requests on one connection: Modbus devices and the serial buses behind gateways do one thing
// at a time. It is a lock with two queues and with contexts.
type line struct {
	mu        sync.Mutex
	busy      bool
	waiting   [2][]chan struct{}
	overtakes int
}

// acquire waits for the line until ctx ends.
func (l *line) acquire(ctx context.Context, class int) error {
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting[class] = append(l.waiting[class], turn)
	l.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.waiting[class], turn)
	if i >= 0 {
		l.waiting[class] = slices.Delete(l.waiting[class], i, i+1)
	}
	l.mu.Unlock()
	if i < 0 {
		// The turn came in the same moment: pass it on.
		l.release()
	}
	return ctx.Err()
}

// release hands the line to the next in turn.
func (l *line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	class := healthy
	if len(l.waiting[healthy]) == 0 || (len(l.waiting[suspect]) > 0 && l.overtakes >= maxOvertakes) {
		class = suspect
	}
	if len(l.waiting[class]) == 0 {
		l.busy = false
		l.overtakes = 0
		return
	}
	if class == suspect {
		l.overtakes = 0
	} else {
		l.overtakes++
	}
	turn := l.waiting[class][0]
	l.waiting[class] = slices.Delete(l.waiting[class], 0, 1)
	close(turn)
}

// contended tells whether somebody waits.
func (l *line) contended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting[healthy])+len(l.waiting[suspect]) > 0
}
