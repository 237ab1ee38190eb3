package driver

import "context"

// ConnectLimit bounds how many connections are being established at once, so that a returning network is not met by
// a storm (io-probe lets 20 through).
//
// Peers that did not answer last time get at most seven tenths of the places: a dead switch with hundreds of silent devices
// behind it, each holding a place for its whole timeout, must not keep a healthy device from reconnecting.
type ConnectLimit struct {
	all     chan struct{}
	suspect chan struct{}
}

// NewConnectLimit returns a limit of n places, n ≥ 1.
func NewConnectLimit(n int) *ConnectLimit {
	return &ConnectLimit{
		all:     make(chan struct{}, n),
		suspect: make(chan struct{}, max(1, n*7/10)),
	}
}

// Acquire waits for a place until ctx ends; suspect says that the peer did not answer last time. The place is given
// back by release, exactly once.
func (l *ConnectLimit) Acquire(ctx context.Context, suspect bool) (release func(), err error) {
	if suspect {
		select {
		case l.suspect <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case l.all <- struct{}{}:
	case <-ctx.Done():
		if suspect {
			<-l.suspect
		}
		return nil, ctx.Err()
	}
	return func() {
		<-l.all
		if suspect {
			<-l.suspect
		}
	}, nil
}

// InUse is how many connections are being established now.
func (l *ConnectLimit) InUse() int { return len(l.all) }
