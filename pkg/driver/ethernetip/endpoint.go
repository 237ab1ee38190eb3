package ethernetip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxStale is how many replies to older requests are thrown away before the peer counts as broken.
	maxStale = 8
	// maxLate is how many requests ago a late reply may have been asked for; beyond it, it is noise.
	maxLate = 64
	// partingTime is how long the closing of a connection may wait for the device.
	partingTime = 200 * time.Millisecond
	// unconnectedTimeout is what we tell the device to give up after, in seconds; our own deadline is what counts.
	unconnectedTimeout = 1
)

// Dial opens a connection; network is always "tcp".
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// endpoint is the one connection to a host:port and route: a TCP connection, a session on it, and a CIP connection in
// that, each made when it is first needed. All modules that share it are one device, and succeed or fail together.
//
// Deadlines are the kernel's, so time here is the real one.
type endpoint struct {
	address  string
	path     string
	route    []byte
	dial     Dial
	connects *driver.ConnectLimit
	// turnToConnect is where it stands among all that wait for a place to connect.
	turnToConnect driver.Turn
	// serial is our serial number as an originator of connections.
	serial uint32
	// turns is the line: it holds one token, which whoever sends takes.
	turns chan struct{}

	// Owned by whoever holds the line.
	conn        net.Conn
	session     uint32
	cip         *connection
	smallOnly   bool
	context     uint64
	connections uint16
	silentSince time.Time // first unanswered request on conn since its last reply
	// multiple: the device has answered a packet of several services. Until singlyUntil it is not asked for any, and until mostUntil for
	// none of more services than most.
	multiple    bool
	singlyUntil time.Time
	most        int
	mostUntil   time.Time
	// sizes are how long the data of replies is, by path; most are as long as is usual and not noted.
	sizes map[string]int

	mu sync.Mutex
	// unreachable: the last attempt to reach the device failed.
	unreachable bool
	failure     struct {
		by  *device
		at  time.Time
		err *driver.Error
	}
}

func newEndpoint(address, path string, route []byte, d *Driver) *endpoint {
	return &endpoint{
		address:  address,
		path:     path,
		route:    route,
		dial:     d.dial,
		connects: d.connects,
		serial:   d.serial,
		turns:    make(chan struct{}, 1),
	}
}

// shutdown closes the connection once nobody is on the line.
func (e *endpoint) shutdown() {
	e.turns <- struct{}{}
	defer func() { <-e.turns }()
	if e.conn != nil && e.silentSince.IsZero() {
		e.part()
	}
	e.drop()
}

// part gives the CIP connection and the session back, so that the device need not wait for their time to be over.
func (e *endpoint) part() {
	deadline := time.Now().Add(partingTime)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if e.cip != nil {
		if _, err := e.unconnected(ctx, e.forwardClose(), deadline); err != nil {
			return
		}
	}
	if e.session != 0 && e.conn.SetDeadline(deadline) == nil {
		// It has no reply: the device closes the connection.
		_, _ = e.conn.Write(frame{command: commandUnregisterSession, session: e.session}.encode())
	}
}

// drop closes the connection.
func (e *endpoint) drop() {
	if e.conn != nil {
		_ = e.conn.Close()
	}
	e.conn, e.session, e.cip, e.silentSince = nil, 0, nil, time.Time{}
}

// layer is what a question needs below it.
type layer int

const (
	// overTCP needs a TCP connection alone.
	overTCP layer = iota
	// overCIP needs a session and a CIP connection too.
	overCIP
)

// question is what is asked on the line.
type question struct {
	layer layer
	// ask sends it and parses the reply, before the deadline. An error that is no *driver.Error closes the connection.
	ask func(ctx context.Context, deadline time.Time) error
	// writes: it must not be asked twice.
	writes bool
}

// request sends a CIP request over the CIP connection and parses its reply; a refusal is an error.
func (e *endpoint) request(ctx context.Context, d *device, r request) error {
	return e.turn(ctx, d, question{
		layer:  overCIP,
		writes: r.writes,
		ask: func(ctx context.Context, deadline time.Time) error {
			answer, err := e.connected(ctx, r, deadline)
			switch {
			case err != nil:
				return err
			case answer.status.general != 0 && answer.status.general != statusPartialTransfer:
				return answer.status.requestError()
			case r.parse == nil:
				return nil
			default:
				return r.parse(answer.data, answer.status.general == statusPartialTransfer)
			}
		},
	})
}

// listIdentity asks who the device at the endpoint is, which needs neither a session nor a CIP connection.
func (e *endpoint) listIdentity(ctx context.Context, d *device) (id identity, err error) {
	err = e.turn(ctx, d, question{
		layer: overTCP,
		ask: func(ctx context.Context, deadline time.Time) error {
			f, err := e.roundTrip(ctx, frame{command: commandListIdentity}, deadline, nil)
			if err != nil {
				return err
			}
			id, err = parseListIdentity(f.data)
			return err
		},
	})
	return id, err
}

// turn waits for the line and asks a question, within d's timeout from its turn.
func (e *endpoint) turn(ctx context.Context, d *device, q question) error {
	waiting := time.Now()
	waitCtx, cancel := context.WithTimeout(ctx, d.timeout*3/2)
	defer cancel()
	select {
	case e.turns <- struct{}{}:
	case <-waitCtx.Done():
		if ctx.Err() != nil {
			return driver.LinkError(ctx.Err(), "waiting for %s", e.address)
		}
		if err := e.neighboursFailure(d, waiting); err != nil {
			return err
		}
		return &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("no turn on the line to %s", e.address)}
	}
	defer func() { <-e.turns }()
	if err := ctx.Err(); err != nil {
		return driver.LinkError(err, "waiting for %s", e.address)
	}
	if err := e.neighboursFailure(d, waiting); err != nil {
		return err
	}

	err := e.send(ctx, d, q)
	if ctx.Err() == nil {
		e.account(d, err)
	}
	if err == nil {
		// Lest a nil *driver.Error become an error.
		return nil
	}
	return err
}

// neighboursFailure is the failure of another module on the same device while d waited, or just now: it is one fact for
// all of them, and finding it out again would cost each of them a timeout. A module never counts its own twice.
func (e *endpoint) neighboursFailure(d *device, waiting time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.failure
	if f.err == nil || f.by == d || f.at.Before(waiting) && time.Since(f.at) > d.timeout/10 {
		return nil
	}
	return f.err
}

// account learns from the outcome of a question.
func (e *endpoint) account(d *device, err *driver.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil || err.Answered {
		e.unreachable, e.failure.err = false, nil
		return
	}
	if err.Reason == driver.ReasonNotMeasured {
		return
	}
	e.failure.by, e.failure.at, e.failure.err = d, time.Now(), err
}

// send connects as far as the question needs, and asks it. A connection that was used before may have been closed by a
// device that idles it out: then, and only then, it is asked once more.
func (e *endpoint) send(ctx context.Context, d *device, q question) *driver.Error {
	deadline := time.Now().Add(d.timeout)
	for {
		used := e.conn != nil
		asked := false
		err := func() (err error) {
			if !used {
				if deadline, err = e.connect(ctx, d); err != nil {
					return err
				}
			}
			if q.layer == overCIP {
				if err = e.establish(ctx, deadline); err != nil {
					return err
				}
			}
			asked = true
			return q.ask(ctx, deadline)
		}()
		if err == nil {
			return nil
		}
		failure, typed := errors.AsType[*driver.Error](err)
		if !typed {
			failure = driver.LinkError(err, "%s", e.address)
			if refused, ok := errors.AsType[encapsulationError](err); ok {
				failure.Reason = refused.reason()
			}
		}
		again := used && failure.Reason == driver.ReasonConnectionLost && (!asked || !q.writes || isForgotten(err))
		if !typed || again {
			e.afterFailure(d, asked, err)
		}
		if again && time.Now().Before(deadline) {
			e.drop()
			continue
		}
		return failure
	}
}

// isForgotten tells that the device did not do what was asked, since it no longer knew the session.
func isForgotten(err error) bool {
	refused, ok := errors.AsType[encapsulationError](err)
	return ok && refused == statusInvalidSession
}

// silence is the error of a request to which not one byte came.
type silence struct{ error }

// Unwrap returns the cause.
func (s silence) Unwrap() error { return s.error }

// afterFailure closes the connection, except after a first clean silence: there the late reply, if it comes, is
// recognised by its number. A second one closes it too: the peer may have forgotten a connection that we still believe in.
func (e *endpoint) afterFailure(d *device, asked bool, err error) {
	_, silent := errors.AsType[silence](err)
	silent = silent && asked && driver.LinkReason(err) == driver.ReasonTimeout
	if silent && (e.silentSince.IsZero() || time.Since(e.silentSince) < d.timeout*19/10) {
		return
	}
	e.drop()
	if driver.LinkReason(err) == driver.ReasonTimeout {
		e.mu.Lock()
		e.unreachable = true
		e.mu.Unlock()
	}
}

// connect dials, and returns the deadline that is left for the request.
func (e *endpoint) connect(ctx context.Context, d *device) (deadline time.Time, err error) {
	e.mu.Lock()
	unreachable := e.unreachable
	e.mu.Unlock()

	deadline = time.Now().Add(d.timeout)
	waitCtx, cancel := context.WithDeadline(ctx, deadline)
	place, err := e.connects.Acquire(waitCtx, unreachable, &e.turnToConnect)
	cancel()
	if err != nil {
		reason := driver.ReasonNotMeasured
		if unreachable {
			// Nothing new was learned, and what is known is that it does not answer.
			reason = driver.ReasonTimeout
		}
		return deadline, &driver.Error{Reason: reason, Err: fmt.Errorf("no turn to connect to %s: %w", e.address, err)}
	}
	defer place.Release()
	if !unreachable {
		deadline = time.Now().Add(d.timeout)
	}

	dialCtx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := place.Dial(dialCtx, e.dial, "tcp", e.address)
	if err != nil {
		if ctx.Err() == nil {
			e.mu.Lock()
			e.unreachable = true
			e.mu.Unlock()
		}
		return deadline, driver.LinkError(err, "connecting to %s", e.address)
	}
	e.conn, e.silentSince = conn, time.Time{}
	return deadline, nil
}

// establish registers the session and opens the CIP connection, where they are missing or too old.
func (e *endpoint) establish(ctx context.Context, deadline time.Time) error {
	if e.session == 0 {
		f, err := e.roundTrip(ctx, frame{command: commandRegisterSession, data: []byte{1, 0, 0, 0}}, deadline, nil)
		if err != nil {
			return fmt.Errorf("registering a session: %w", err)
		}
		if f.session == 0 {
			return fmt.Errorf("registering a session: %w: session 0", errMalformedReply)
		}
		e.session = f.session
	}
	if e.cip != nil && time.Since(e.cip.lastUsed) < maxIdle {
		return nil
	}
	if e.cip != nil {
		// The device may have given it up already.
		if _, err := e.unconnected(ctx, e.forwardClose(), deadline); err != nil {
			return fmt.Errorf("closing an idle connection: %w", err)
		}
		e.cip = nil
	}
	return e.openConnection(ctx, deadline)
}

// unconnected sends a CIP request without a CIP connection, to the connection manager for example.
func (e *endpoint) unconnected(ctx context.Context, r request, deadline time.Time) (reply, error) {
	data := packet(unconnectedTimeout, item{id: itemNull}, item{id: itemUnconnected, data: r.encode()})
	f, err := e.roundTrip(ctx, frame{command: commandSendRRData, session: e.session, data: data}, deadline, nil)
	if err != nil {
		return reply{}, err
	}
	_, payload, err := parsePacket(f.data, itemNull, itemUnconnected)
	if err != nil {
		return reply{}, err
	}
	return parseReply(r.service, payload.data)
}

// connected sends a CIP request over the CIP connection.
func (e *endpoint) connected(ctx context.Context, r request, deadline time.Time) (reply, error) {
	c := e.cip
	c.sequence++
	c.lastUsed = time.Now()
	data := packet(0,
		item{id: itemConnection, data: binary.LittleEndian.AppendUint32(nil, c.target)},
		item{id: itemConnected, data: append(binary.LittleEndian.AppendUint16(nil, c.sequence), r.encode()...)})
	var answer []byte
	_, err := e.roundTrip(ctx, frame{command: commandSendUnitData, session: e.session, data: data}, deadline, func(f frame) (match, error) {
		address, payload, err := parsePacket(f.data, itemConnection, itemConnected)
		if err != nil {
			return other, err
		}
		if len(address.data) != 4 || len(payload.data) < 2 {
			return other, fmt.Errorf("%w: no connection or no sequence count", errMalformedReply)
		}
		// How many requests ago it was asked for.
		age := c.sequence - binary.LittleEndian.Uint16(payload.data)
		switch {
		case binary.LittleEndian.Uint32(address.data) != c.originator:
			return other, fmt.Errorf("%w: for another connection", errMalformedReply)
		case age > maxLate:
			return other, fmt.Errorf("%w: to a request that was never sent", errMalformedReply)
		case age > 0:
			return late, nil
		}
		answer = payload.data[2:]
		return asked, nil
	})
	if err != nil {
		return reply{}, err
	}
	a, err := parseReply(r.service, answer)
	if err != nil {
		return reply{}, err
	}
	if a.status.general == statusConnectionLost || a.status == (cipStatus{statusConnectionFailure, 0x0107}) {
		e.cip = nil
	}
	return a, nil
}

// match says whether a frame is the reply that is waited for.
type match int

const (
	other match = iota
	late
	asked
)

// byContext matches the reply to a request that the device answers with the same sender context.
func (e *endpoint) byContext(f frame) (match, error) {
	switch age := e.context - f.context; {
	case age == 0:
		return asked, nil
	case age <= maxLate:
		return late, nil
	default:
		return other, fmt.Errorf("%w: to a request that was never sent", errMalformedReply)
	}
}

// roundTrip sends a frame and returns its reply, which is found by matching, or by the sender context without it.
func (e *endpoint) roundTrip(ctx context.Context, f frame, deadline time.Time, matching func(frame) (match, error)) (frame, error) {
	conn := e.conn
	if err := conn.SetDeadline(deadline); err != nil {
		return frame{}, err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			// Wait, lest the interruption hit the next request.
			<-interrupted
		}
	}()

	e.context++
	f.context = e.context
	sent := time.Now()
	if _, err := conn.Write(f.encode()); err != nil {
		return frame{}, err
	}
	for range maxStale {
		answer, n, err := readFrame(conn)
		if err != nil {
			if n > 0 {
				return frame{}, err
			}
			if e.silentSince.IsZero() && !errors.Is(ctx.Err(), context.Canceled) {
				e.silentSince = sent
			}
			return frame{}, silence{err}
		}
		e.silentSince = time.Time{}
		if answer.command == commandNOP {
			continue
		}
		is := late
		switch {
		case answer.command == f.command && answer.status != 0 && (matching != nil || answer.context == f.context):
			return frame{}, encapsulationError(answer.status)
		case answer.command == f.command && matching != nil:
			is, err = matching(answer)
		case answer.command == commandSendUnitData:
			// Its sender context is nothing that devices care for.
		default:
			is, err = e.byContext(answer)
		}
		if err != nil {
			return frame{}, err
		}
		if is == asked {
			if answer.command != f.command || f.command == commandSendRRData && answer.session != f.session {
				return frame{}, fmt.Errorf("%w: of another command or session", errMalformedReply)
			}
			return answer, nil
		}
	}
	return frame{}, errTooManyStale
}
