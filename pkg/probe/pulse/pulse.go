// Package pulse tells when this process was not run: stopped, frozen, or starved of processor time. What it waited for
// meanwhile may have come in time all the same (P-07: what was not measured is Unknown).
package pulse

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// interval is the time between two beats, and minStall how late one must be to count: less than that is any scheduler's.
	interval = 20 * time.Millisecond
	minStall = 30 * time.Millisecond
	// remembered is how many stalls are, the last ones: at least two seconds of nothing else.
	remembered = 64
)

// Pulse beats while the process runs. One that does not run tells of no stall.
type Pulse struct {
	clock clock.WithTicker

	mu   sync.Mutex
	last time.Time
	// stalls is a ring.
	stalls [remembered]stall
	next   int
}

// stall is a time in which nothing ran.
type stall struct{ from, to time.Time }

// New returns a pulse that does not beat yet.
func New(c clock.WithTicker) *Pulse { return &Pulse{clock: c} }

// Run beats until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	ticker := p.clock.NewTicker(interval)
	defer ticker.Stop()
	p.beat(p.clock.Now())
	for {
		select {
		case <-ctx.Done():
			p.mu.Lock()
			p.last = time.Time{}
			p.mu.Unlock()
			return
		case <-ticker.C():
			p.beat(p.clock.Now())
		}
	}
}

func (p *Pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.lateness(now); ok {
		p.stalls[p.next%remembered] = s
		p.next++
	}
	p.last = now
}

// lateness is the stall that lasts until now, if there is one; mu is held.
func (p *Pulse) lateness(now time.Time) (stall, bool) {
	due := p.last.Add(interval)
	return stall{due, now}, !p.last.IsZero() && now.Sub(due) >= minStall
}

// Longest is how long the process was not run at a stretch, since a time not long ago.
func (p *Pulse) Longest(since time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := time.Duration(0)
	count := func(s stall) {
		if s.from.Before(since) {
			s.from = since
		}
		longest = max(longest, s.to.Sub(s.from))
	}
	for _, s := range p.stalls {
		count(s)
	}
	// Whoever asks may run again before the pulse does.
	if s, ok := p.lateness(p.clock.Now()); ok {
		count(s)
	}
	return longest
}
