package driver

import (
	"context"
	"net"
	"sync"
	"time"
)

// patience is how long a peer keeps its place without having accepted the connection. One that is there does within
// milliseconds; the others wait on without a place, so that hundreds of silent ones keep nobody from the line.
const patience = 50 * time.Millisecond

// ConnectLimit bounds how many connections are being established at once, so that a returning network is not met by
// a storm (io-probe lets 20 through).
//
// Peers that did not answer last time get at most seven tenths of the places: a dead switch with hundreds of silent devices
// behind it must not keep a healthy device from reconnecting. Among them those go first that had no place for longest, so
// that each is tried in time whether it is one of ten or of a thousand (P-16).
type ConnectLimit struct {
	places, suspects int

	mu                  sync.Mutex
	inUse, suspectInUse int
	waiting             []*waiter
	granted             uint64
}

// Turn is one peer's place in the order of those who wait. It belongs to the limit, and its zero value is ready.
type Turn struct{ last uint64 }

type waiter struct {
	suspect bool
	turn    *Turn
	ready   chan struct{}
}

// NewConnectLimit returns a limit of n places, n ≥ 1.
func NewConnectLimit(n int) *ConnectLimit {
	return &ConnectLimit{places: n, suspects: max(1, n*7/10)}
}

// Place is a place, until it is released.
type Place struct {
	limit *ConnectLimit
	turn  *Turn

	// Guarded by the limit's mu.
	suspect, held, over, dialling bool
}

// Acquire waits for a place until ctx ends; suspect says that the peer did not answer last time. The place must be released.
func (l *ConnectLimit) Acquire(ctx context.Context, suspect bool, turn *Turn) (*Place, error) {
	p := &Place{limit: l, turn: turn}
	if err := p.acquire(ctx, suspect); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Place) acquire(ctx context.Context, suspect bool) error {
	l := p.limit
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &waiter{suspect: suspect, turn: p.turn, ready: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, w)
	l.grant()
	l.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == w {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	// It has a place, if perhaps only in the moment in which ctx ended.
	p.suspect, p.held = suspect, true
	if err := ctx.Err(); err != nil {
		p.giveBack()
		return err
	}
	return nil
}

// grant gives free places to those whose turn it is. mu is held.
func (l *ConnectLimit) grant() {
	for l.inUse < l.places {
		next := -1
		for i, w := range l.waiting {
			if w.suspect && l.suspectInUse >= l.suspects {
				continue
			}
			if next < 0 || l.waiting[next].suspect && !w.suspect || l.waiting[next].suspect == w.suspect && w.turn.last < l.waiting[next].turn.last {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := l.waiting[next]
		l.waiting = append(l.waiting[:next], l.waiting[next+1:]...)
		l.granted++
		w.turn.last = l.granted
		l.inUse++
		if w.suspect {
			l.suspectInUse++
		}
		close(w.ready)
	}
}

// Release gives the place back; again, it does nothing.
func (p *Place) Release() {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.over = true
	p.giveBack()
}

// giveBack makes the place another's. mu is held.
func (p *Place) giveBack() {
	if !p.held {
		return
	}
	p.held = false
	p.limit.inUse--
	if p.suspect {
		p.limit.suspectInUse--
	}
	p.limit.grant()
}

// Dial dials. A peer that does not accept the connection at once loses its place and may still accept it later; who has more to do
// on the connection needs Again.
func (p *Place) Dial(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), network, address string) (net.Conn, error) {
	p.set(true)
	defer p.set(false)
	timer := time.AfterFunc(patience, func() {
		p.limit.mu.Lock()
		defer p.limit.mu.Unlock()
		// It may have accepted in this very moment.
		if p.dialling {
			p.giveBack()
		}
	})
	defer timer.Stop()
	return dial(ctx, network, address)
}

func (p *Place) set(dialling bool) {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.dialling = dialling
}

// Again waits for a place if the peer lost its own while it was dialled, now as one that answers.
func (p *Place) Again(ctx context.Context) error {
	p.limit.mu.Lock()
	needed := !p.held && !p.over
	p.limit.mu.Unlock()
	if !needed {
		return nil
	}
	return p.acquire(ctx, false)
}

// InUse is how many connections are being established now, without those that wait for peers that are slow to accept.
func (l *ConnectLimit) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}
