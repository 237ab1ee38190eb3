package modbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goburrow/modbus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxStale is how many replies to older requests are thrown away before the peer counts as broken.
	maxStale = 8
	// maxRemembered is how many unanswered requests are remembered, to tell late replies from noise.
	maxRemembered = 16
	// minSlot is the least time that a unit gets when many silent ones share a line.
	minSlot = 50 * time.Millisecond
)

// Dial opens a connection; network is always "tcp".
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// unit is what the endpoint knows of one unit id; all of it is guarded by endpoint.mu.
type unit struct {
	id      byte
	devices int
	// suspect: the last request was not answered by the unit.
	suspect bool
	// slow: a reply came after its slot, so that shortened slots would only miss it.
	slow bool
}

// endpoint is the one connection to a host:port and the line on it.
//
// Time on the line is the scarce thing: a silent unit holds it for its timeout. Four rules keep neighbours alive and
// still find out in time that everything is silent:
//   - units that answered last time go first;
//   - once a unit has failed, the next ones that are silent or in doubt share one timeout among them;
//   - a reply that comes too late is recognised by its transaction id, is thrown away, and earns its unit the full timeout;
//   - a wait that found no turn counts against the device only if nothing behind the endpoint answered meanwhile.
//
// Deadlines are the kernel's, so time here is the real one.
type endpoint struct {
	address  string
	dial     Dial
	connects *driver.ConnectLimit
	// turnToConnect is where it stands among all that wait for a place to connect.
	turnToConnect driver.Turn
	line          line

	// Owned by whoever holds the line.
	packager    *modbus.TCPClientHandler
	conn        net.Conn
	silentSince time.Time // first unanswered request on conn since its last reply
	unanswered  [maxRemembered]struct {
		transaction uint16
		unit        *unit
	}
	nextUnanswered int

	mu    sync.Mutex
	units map[byte]*unit
	// inDoubt: a unit that used to answer did not, and nothing has answered since.
	inDoubt   bool
	lastReply time.Time
	// unreachable: the last dial failed, or the connection was given up for silence.
	unreachable bool
	dialFailure struct {
		by  *device
		at  time.Time
		err *driver.Error
	}
}

func newEndpoint(address string, dial Dial, connects *driver.ConnectLimit) *endpoint {
	return &endpoint{
		address:  address,
		dial:     dial,
		connects: connects,
		packager: modbus.NewTCPClientHandler(address),
		units:    map[byte]*unit{},
	}
}

// attach adds a device of a unit id.
func (e *endpoint) attach(id byte) *unit {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := e.units[id]
	if u == nil {
		u = &unit{id: id}
		e.units[id] = u
	}
	u.devices++
	return u
}

// detach removes a device of a unit id.
func (e *endpoint) detach(u *unit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if u.devices--; u.devices == 0 {
		delete(e.units, u.id)
	}
}

// shutdown closes the connection once nobody is on the line.
func (e *endpoint) shutdown() {
	_ = e.line.acquire(context.Background(), healthy)
	defer e.line.release()
	e.drop()
}

// query is one request.
type query struct {
	pdu modbus.ProtocolDataUnit
	// writes: what was lost on its way may have been done, so that it is not sent twice.
	writes bool
	// parse takes the reply's data; its error closes the connection as any other malformed reply does.
	parse func(data []byte) error
	// optional: silence proves nothing, as for functions that many devices do not know.
	optional bool
	// more: others follow at once, for which the connection is kept even where it is closed after each poll.
	more bool
}

// exchange sends a query and parses its reply, within d's timeout from its turn on the line.
func (e *endpoint) exchange(ctx context.Context, d *device, q query) error {
	waiting := time.Now()
	waitCtx, cancel := context.WithTimeout(ctx, d.timeout*3/2)
	err := e.line.acquire(waitCtx, e.class(d.unit))
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return driver.LinkError(ctx.Err(), "unit %d at %s", d.unit.id, e.address)
		}
		if e.nothingAnsweredSince(waiting) {
			return &driver.Error{Reason: driver.ReasonTimeout, Err: fmt.Errorf("no unit at %s answers", e.address)}
		}
		return &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("no turn on the line to %s", e.address)}
	}
	defer e.line.release()
	if err := e.neighboursDialFailure(d, waiting); err != nil {
		return err
	}

	err = e.send(ctx, d, q)
	if d.closeAfterPoll && !q.more && !e.line.contended() {
		e.drop()
	}
	return err
}

// giveBack closes the connection, for a device whose connection is closed after each poll.
func (e *endpoint) giveBack(d *device) {
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	if d.closeAfterPoll && e.line.acquire(ctx, healthy) == nil {
		e.drop()
		e.line.release()
	}
}

// class is the queue in which u waits.
func (e *endpoint) class(u *unit) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if u.suspect {
		return suspect
	}
	return healthy
}

// slot is how long d may hold the line.
func (e *endpoint) slot(d *device) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.unit.slow || !d.unit.suspect && !e.inDoubt {
		return d.timeout
	}
	sharers := 0
	for _, u := range e.units {
		if u.suspect || e.inDoubt {
			sharers += u.devices
		}
	}
	return min(d.timeout, max(minSlot, d.timeout/time.Duration(max(1, sharers))))
}

// nothingAnsweredSince tells whether the endpoint as a whole is silent.
func (e *endpoint) nothingAnsweredSince(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inDoubt && e.lastReply.Before(t)
}

// neighboursDialFailure is the failure of another device to connect while d waited, or just now: it is one fact for
// all of them, and finding it out again would cost each of them a timeout. A device never counts its own twice.
func (e *endpoint) neighboursDialFailure(d *device, waiting time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.dialFailure
	if !e.unreachable || f.err == nil || f.by == d {
		return nil
	}
	if f.at.Before(waiting) && time.Since(f.at) > d.timeout/10 {
		return nil
	}
	return f.err
}

// account learns from the outcome of a round trip.
func (e *endpoint) account(d *device, slot time.Duration, failure *driver.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case failure == nil || failure.Answered:
		d.unit.suspect = false
	case failure.Reason == driver.ReasonUnitNotResponding:
		d.unit.suspect = true
	case failure.Reason == driver.ReasonTimeout:
		if slot == d.timeout {
			// That a unit known as silent is silent still says nothing about the others.
			e.inDoubt = e.inDoubt || !d.unit.suspect
			d.unit.slow = false
		}
		d.unit.suspect = true
	}
}

// answered notes that something behind the endpoint answered.
func (e *endpoint) answered() {
	e.silentSince = time.Time{}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inDoubt = false
	e.lastReply = time.Now()
}

// send connects if need be, and does one round trip. A connection that was used before may have been closed by a
// device that idles it out: then, and only then, the request is sent once more.
func (e *endpoint) send(ctx context.Context, d *device, q query) error {
	slot := e.slot(d)
	deadline := time.Now().Add(slot)
	for {
		used := e.conn != nil
		if used && q.writes && endedByPeer(e.conn) {
			e.drop()
			used = false
		}
		if !used {
			left, err := e.connect(ctx, d)
			if err != nil {
				return err
			}
			deadline = time.Now().Add(slot)
			if left.Before(deadline) {
				deadline = left
			}
		}
		untouched, err := e.roundTrip(ctx, d, q, deadline)
		if err != nil && used && untouched && !q.writes && driver.LinkReason(err) == driver.ReasonConnectionLost {
			e.drop()
			continue
		}
		if err == nil {
			e.account(d, slot, nil)
			return nil
		}
		failure := driver.LinkError(err, "unit %d at %s", d.unit.id, e.address)
		if exception, ok := errors.AsType[*modbus.ModbusError](err); ok {
			failure = exceptionError(exception)
		} else {
			e.afterFailure(d, untouched, err)
		}
		if !q.optional && !errors.Is(ctx.Err(), context.Canceled) {
			e.account(d, slot, failure)
		}
		return failure
	}
}

// afterFailure closes the connection, except after a clean silence: there the late reply, if it comes, is
// recognised by its transaction id, and the units that do answer keep their connection. Silence of all of them for
// two timeouts closes it too: the peer may have forgotten a connection that we still believe in.
func (e *endpoint) afterFailure(d *device, untouched bool, err error) {
	silence := untouched && driver.LinkReason(err) == driver.ReasonTimeout
	if silence && time.Since(e.silentSince) < d.timeout*19/10 {
		return
	}
	e.drop()
	if silence {
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

	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		failure := driver.LinkError(err, "connecting to %s", e.address)
		if ctx.Err() == nil {
			e.unreachable = true
			e.dialFailure.by, e.dialFailure.at, e.dialFailure.err = d, time.Now(), failure
		}
		return deadline, failure
	}
	e.conn = conn
	e.silentSince = time.Time{}
	e.unreachable = false
	e.dialFailure.err = nil
	return deadline, nil
}

// drop closes the connection.
func (e *endpoint) drop() {
	if e.conn == nil {
		return
	}
	_ = e.conn.Close()
	e.conn = nil
	e.silentSince = time.Time{}
	clear(e.unanswered[:])
}

// roundTrip is one request and its reply on the open connection; untouched says that no byte of a reply to it came.
func (e *endpoint) roundTrip(ctx context.Context, d *device, q query, deadline time.Time) (untouched bool, err error) {
	e.packager.SlaveId = d.unit.id
	request, err := e.packager.Encode(&q.pdu)
	if err != nil {
		return true, err
	}
	transport := transporter{endpoint: e, ctx: ctx, deadline: deadline, unit: d.unit}
	adu, err := transport.Send(request)
	if err != nil {
		return transport.read == 0, err
	}
	reply, err := parseReply(e.packager, request, adu)
	if err != nil {
		return false, err
	}
	return false, q.parse(reply.Data)
}

// transporter sends one request over the endpoint's connection; it is a modbus.Transporter whose Send has a context
// and a deadline.
type transporter struct {
	endpoint *endpoint
	ctx      context.Context
	deadline time.Time
	unit     *unit
	// read is how many bytes came of a frame that did not come whole.
	read int
}

var _ modbus.Transporter = &transporter{}

// Send writes the request and returns the frame that carries its transaction id.
func (t *transporter) Send(request []byte) ([]byte, error) {
	e, conn := t.endpoint, t.endpoint.conn
	if err := conn.SetDeadline(t.deadline); err != nil {
		return nil, err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(t.ctx, func() {
		defer close(interrupted)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			// Wait, lest the interruption hit the next request.
			<-interrupted
		}
	}()

	sent := time.Now()
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	for range maxStale {
		reply, n, err := readFrame(conn)
		if err != nil {
			t.read = n
			if n == 0 {
				e.remember(transactionID(request), t.unit)
				if e.silentSince.IsZero() {
					e.silentSince = sent
				}
			}
			return nil, err
		}
		e.answered()
		if transactionID(reply) == transactionID(request) {
			return reply, nil
		}
		e.late(transactionID(reply))
	}
	t.read = 1
	return nil, errTooManyStale
}

// remember notes an unanswered request.
func (e *endpoint) remember(transaction uint16, u *unit) {
	r := &e.unanswered[e.nextUnanswered%maxRemembered]
	r.transaction, r.unit = transaction, u
	e.nextUnanswered++
}

// late notes that an older request was answered after all.
func (e *endpoint) late(transaction uint16) {
	for i := range e.unanswered {
		if r := &e.unanswered[i]; r.unit != nil && r.transaction == transaction {
			e.mu.Lock()
			r.unit.slow = true
			e.mu.Unlock()
			r.unit = nil
			return
		}
	}
}
