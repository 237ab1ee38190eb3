package opcua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// lookEvery is how often the credentials are looked at while a connection is open.
	lookEvery = time.Second
	// firstBackoff and maxBackoff bound how long a server that refused us is left alone: it may count the attempts, and
	// lock the user out. It must be below the 15 s within which a device that is back is Online (P-16).
	firstBackoff = time.Second
	maxBackoff   = 8 * time.Second
	// openBound is how many timeouts the opening of a session may take: controllers need seconds for one RSA operation. The calls
	// that wait for it end with their own timeout all the same.
	openBound = 10
)

// backedOff are the refusals after which the next attempt waits.
var backedOff = map[driver.Reason]bool{
	driver.ReasonTooManySessions:           true,
	driver.ReasonCredentialsRejected:       true,
	driver.ReasonCertificateUntrusted:      true,
	driver.ReasonClientCertificateRejected: true,
	driver.ReasonSecurityModeRejected:      true,
	driver.ReasonInsecureAuthentication:    true,
}

// connection is what all devices of one endpoint, security and identity share: at most one session. It is opened by
// whoever needs it first, in a goroutine of its own that goes on when the caller's time is over.
type connection struct {
	opener      opener
	credentials Credentials
	connects    *driver.ConnectLimit
	// turnToConnect is where it stands among all that wait for a place to connect.
	turnToConnect driver.Turn

	ctx     context.Context // ends with the last device
	cancel  context.CancelFunc
	workers sync.WaitGroup

	// browsing holds one element while somebody browses: continuation points are few, and the session's.
	browsing chan struct{}

	mu      sync.Mutex
	current *session
	// lost is the session whose connection was lost, until its timeout: the server may still have it.
	lost      *session
	lostUntil time.Time
	attempt   *attempt
	looked    time.Time
	// unreachable: the last attempt met no OPC UA server, or the session was given up for silence.
	unreachable bool
	// refusal is the last error and the time until which it is answered without another attempt.
	refusal   error
	refusedBy [32]byte
	notBefore time.Time
	backoff   time.Duration
}

// attempt is the opening of a session, which many may wait for.
type attempt struct {
	done chan struct{}
	err  error
	// connecting is closed once there is a place to connect.
	connecting chan struct{}
}

func newConnection(o opener, credentials Credentials, connects *driver.ConnectLimit) *connection {
	c := &connection{opener: o, credentials: credentials, connects: connects, browsing: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// shutdown closes the session and waits for everything that the connection started.
func (c *connection) shutdown() {
	c.cancel()
	c.mu.Lock()
	s := c.current
	c.current = nil
	c.mu.Unlock()
	if s != nil {
		s.end(c.opener.config.Timeout)
	}
	c.workers.Wait()
}

// acquire is the session, opened if need be; fresh says that it was opened by or during this call.
func (c *connection) acquire(ctx context.Context) (s *session, fresh bool, err error) {
	c.mu.Lock()
	c.look()
	if s := c.current; s != nil && s.failure() == nil {
		c.mu.Unlock()
		return s, false, nil
	}
	if c.current != nil {
		c.release(c.current)
	}
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return nil, false, &driver.Error{Reason: driver.ReasonConnectionLost, Err: errClosed}
	}
	if c.attempt == nil && time.Now().Before(c.notBefore) {
		err := c.refusal
		c.mu.Unlock()
		return nil, false, err
	}
	a := c.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{}), connecting: make(chan struct{})}
		c.attempt = a
		c.workers.Go(func() { c.open(a, c.unreachable) })
	}
	unreachable := c.unreachable
	c.mu.Unlock()

	select {
	case <-a.done:
		if a.err != nil {
			return nil, true, a.err
		}
		c.mu.Lock()
		s := c.current
		c.mu.Unlock()
		if s == nil {
			return nil, true, &driver.Error{Reason: driver.ReasonConnectionLost, Err: errClosed}
		}
		return s, true, nil
	case <-ctx.Done():
		select {
		case <-a.connecting:
		default:
			if !unreachable {
				return nil, true, &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("no turn to connect to %s: %w", c.opener.hostPort, ctx.Err())}
			}
		}
		return nil, true, linkError(ctx.Err(), c.opener.hostPort, "")
	}
}

// look compares the credentials with those that are in use: what was changed is used at once, and what was taken
// away is used no longer. mu is held.
func (c *connection) look() {
	if c.opener.config.CredentialsKey == "" && c.opener.config.TrustedCertificateKey == "" && c.opener.applicationKey == "" {
		return
	}
	now := time.Now()
	if now.Sub(c.looked) < lookEvery {
		return
	}
	c.looked = now
	secrets, err := readSecrets(c.opener.config, c.opener.applicationKey, c.credentials)
	if c.current != nil && (err != nil || secrets.digest != c.current.secrets) {
		c.release(c.current)
	}
	if err == nil && secrets.digest != c.refusedBy {
		c.notBefore, c.backoff = time.Time{}, 0
	}
}

// open opens a session for whoever waits for a.
func (c *connection) open(a *attempt, unreachable bool) {
	ctx, cancel := context.WithTimeout(c.ctx, openBound*c.opener.config.Timeout)
	defer cancel()
	secrets, err := readSecrets(c.opener.config, c.opener.applicationKey, c.credentials)
	var s *session
	if err == nil {
		s, err = c.connect(ctx, a, unreachable, secrets)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempt = nil
	if err == nil && c.ctx.Err() != nil {
		c.release(s)
		err = &driver.Error{Reason: driver.ReasonConnectionLost, Err: errClosed}
	}
	if err != nil {
		a.err = err
		c.settle(err, secrets)
	} else {
		c.current, c.unreachable = s, false
		c.refusal, c.notBefore, c.backoff = nil, time.Time{}, 0
	}
	close(a.done)
}

// connect waits for a place and opens the session.
func (c *connection) connect(ctx context.Context, a *attempt, unreachable bool, secrets secrets) (*session, error) {
	place, err := c.connects.Acquire(ctx, unreachable, &c.turnToConnect)
	if err != nil {
		reason := driver.ReasonNotMeasured
		if unreachable {
			// Nothing new was learned, and what is known is that it does not answer.
			reason = driver.ReasonTimeout
		}
		return nil, &driver.Error{Reason: reason, Err: fmt.Errorf("no turn to connect to %s: %w", c.opener.hostPort, err)}
	}
	defer place.Release()
	close(a.connecting)
	lost := c.resumable()
	opener := c.opener
	opener.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := place.Dial(ctx, c.opener.dial, network, address)
		if err != nil {
			return nil, err
		}
		// What follows costs both sides far more than the dialling.
		if err := place.Again(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
	s, err := opener.open(ctx, secrets, lost)
	if err != nil && lost != nil && !lost.resumed {
		// The attempt did not get as far as the lost session: the next one may.
		c.mu.Lock()
		c.lost = lost
		c.mu.Unlock()
	}
	return s, err
}

// resumable takes the session that the server may still have.
func (c *connection) resumable() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.lost
	if c.lost = nil; s != nil && time.Now().Before(c.lostUntil) {
		return s
	}
	return nil
}

// settle remembers a failure to connect; mu is held.
func (c *connection) settle(err error, secrets secrets) {
	switch reason := driver.ReasonOf(err); {
	case reason == driver.ReasonNotMeasured || reason == driver.ReasonConfigurationError:
	case backedOff[reason]:
		c.unreachable = false
		c.backoff = min(max(firstBackoff, 2*c.backoff), maxBackoff)
		c.refusal, c.refusedBy, c.notBefore = err, secrets.digest, time.Now().Add(c.backoff)
	default:
		c.unreachable = c.ctx.Err() == nil
	}
}

// release takes a session out of use and closes it in the background; mu is held.
func (c *connection) release(s *session) {
	if c.current == s {
		c.current = nil
	}
	if s.failure() != nil {
		c.lost, c.lostUntil = s, time.Now().Add(sessionTimeout)
	}
	c.workers.Go(func() { s.end(c.opener.config.Timeout) })
}

// drop takes a session out of use after a failure on it. Its connection is not to be trusted any more; the session
// itself may go on with another.
func (c *connection) drop(s *session, unreachable bool, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != s {
		return
	}
	c.unreachable = c.unreachable || unreachable
	s.fail(cause)
	c.release(s)
}

// do runs f on the session, within timeout as a whole. A session that was used before may have been ended by the server
// meanwhile: then, and only if f may be repeated, it is run once more on a new one.
func (c *connection) do(ctx context.Context, timeout time.Duration, repeatable bool, f func(context.Context, *session) error) error {
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		s, fresh, err := c.acquire(callCtx)
		if err != nil {
			return err
		}
		err = f(callCtx, s)
		if err == nil {
			return nil
		}
		failure := linkError(err, c.opener.hostPort, "")
		if failure.Answered || errors.Is(ctx.Err(), context.Canceled) {
			return failure
		}
		switch failure.Reason {
		case driver.ReasonTimeout:
			// The late reply, if it comes, is recognised by its id. Silence for two timeouts closes the connection: the
			// peer may have forgotten a connection that we still believe in.
			if s.silentFor() >= timeout*19/10 {
				c.drop(s, true, failure)
			}
			return failure
		case driver.ReasonConfigurationError, driver.ReasonServerNotRunning:
			return failure
		}
		c.drop(s, false, failure)
		if fresh || !repeatable || failure.Reason != driver.ReasonConnectionLost {
			return failure
		}
		repeatable = false
	}
}
