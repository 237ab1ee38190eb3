package unitruntime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// lostBackoff stretches the time between attempts at a device that is lost, as the probe does.
	lostBackoff = 2
	// maxFirstPeriod is the longest time between attempts before the first verdict, and the longest jitter.
	maxFirstPeriod = time.Second
	// callBound is how many request timeouts one call of the driver may take, with its waits for the line and for a place to
	// connect, and another for every so many channels.
	callBound       = 4
	channelsAllowed = 50
	maxCall         = 30 * time.Second
	// stalledAfter is how long beyond its bound a call may stay out before the device counts as lost: the driver hangs.
	stalledAfter = 5 * time.Second
	// endWait is how long a device that is no longer wanted may take to let go; then it is left behind.
	endWait = 2 * time.Second
)

// link reads the tags of one device. Its goroutine is the only one that reads; writes go through the turn.
type link struct {
	module  Module
	device  driver.Device
	clock   clock.Clock
	rand    *rand.Rand
	log     logr.Logger
	values  *values
	metrics *metrics
	// returned is called when the device answers after a failure, changed when what state tells has changed.
	returned, changed func()

	turn *turn
	// kick wakes the reader up for a new schedule, holdKick the writer of hold values.
	kick, holdKick chan struct{}

	// Owned by the reader.
	connectivity *probe.Connectivity
	schedule     schedule
	// checkDue is when the device is checked unless a read has proved before that it answers.
	checkDue     time.Time
	lastObserved time.Time
	lastGood     bool
	// wasStalled: the last call came back long after its time.
	wasStalled bool

	// asked are the tags that it was last given; it belongs to whoever applies a config.
	asked []*Tag

	mu sync.Mutex
	// tags are new ones, for the reader to take; nil when there are none.
	tags []*Tag
	// state is the reader's, as it tells it.
	state linkState

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// linkState is what is known of a device.
type linkState struct {
	known, connected bool
	// failing: the last exchange failed.
	failing         bool
	reason, message string
	// callUntil is when a call of the driver that is under way must have ended; zero without one.
	callUntil time.Time
}

// lost tells whether the device counts as lost: the debounced verdict says so, or the driver does not return from it.
func (s linkState) lost(now time.Time) bool { return s.known && !s.connected || s.stalled(now) }

func (s linkState) stalled(now time.Time) bool {
	return !s.callUntil.IsZero() && now.Sub(s.callUntil) > stalledAfter
}

// told is the state for a report.
func (l *link) told() api.ModuleLink {
	s, now := l.now(), l.clock.Now()
	m := api.ModuleLink{Name: l.module.Name, UID: l.module.UID, Known: s.known, Connected: s.connected, Reason: s.reason, Message: s.message}
	if s.stalled(now) {
		m.Known, m.Connected, m.Reason, m.Message = true, false, string(driver.ReasonTimeout), "the driver does not return from the device"
	}
	if l.module.Via != "" {
		m.Via = viaProbe
	}
	return m
}

// viaProbe is what a report says of a module that is read through its probe.
const viaProbe = "probe"

func (l *link) now() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// setTags gives the reader new tags.
func (l *link) setTags(tags []*Tag) {
	l.mu.Lock()
	if tags == nil {
		tags = []*Tag{}
	}
	l.tags = tags
	l.mu.Unlock()
	wake(l.kick)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// inherit takes over what an ended link of the same device knew of it.
func (l *link) inherit(old *link) {
	// The reader of a device that hangs may still use its own.
	l.connectivity.Inherit(old.connectivity)
	s := old.now()
	s.callUntil = time.Time{}
	l.state, l.lastGood = s, !s.failing
}

// start begins to read; hold writes hold values until its context ends.
func (l *link) start(hold func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.ended.Go(func() { l.run(ctx) })
	l.ended.Go(func() { hold(ctx) })
}

// stop ends the link, and leaves behind what does not end: one device must not stop the program.
func (l *link) stop() {
	l.cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		l.ended.Wait()
		// A write that is under way may end; one that does not, loses its connection.
		if l.turn.take(context.Background(), l.clock, endWait) {
			defer l.turn.pass()
		}
		if err := l.shut(); err != nil {
			l.log.Error(err, "Closing the device", "module", l.module.Name)
		}
	}()
	timer := l.clock.NewTimer(endWait)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C():
		l.log.Info("The driver does not return from the device, which is left behind", "module", l.module.Name)
	}
}

func (l *link) shut() (err error) {
	defer l.recover(&err)
	return l.device.Close()
}

func (l *link) run(ctx context.Context) {
	l.schedule.phase = time.Duration(l.rand.Int64N(int64(max(1, min(l.period(), maxFirstPeriod)))))
	l.checkDue = l.clock.Now().Add(l.schedule.phase)
	var attempt time.Time
	for {
		l.takeTags()
		next := l.checkDue
		if l.now().failing {
			next = attempt
		} else if due, ok := l.schedule.next(); ok && due.Before(next) {
			next = due
		}
		if wait := next.Sub(l.clock.Now()); wait > 0 {
			timer := l.clock.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-l.kick:
				timer.Stop()
				continue
			case <-timer.C():
			}
		}
		started := l.clock.Now()
		l.round(ctx)
		if ctx.Err() != nil {
			return
		}
		attempt = started.Add(l.interval())
	}
}

func (l *link) takeTags() {
	l.mu.Lock()
	tags := l.tags
	l.tags = nil
	l.mu.Unlock()
	if tags != nil {
		l.schedule.set(tags, l.clock.Now())
	}
}

func (l *link) period() time.Duration  { return l.module.Spec.Probe.Period.Duration }
func (l *link) timeout() time.Duration { return l.module.Spec.Probe.Timeout.Duration }

// interval is the time between two attempts at the device.
func (l *link) interval() time.Duration {
	switch s := l.now(); {
	case !s.known:
		return min(l.period(), maxFirstPeriod)
	case !s.connected && s.failing:
		return lostBackoff * l.period()
	default:
		return l.period()
	}
}

// round reads what is due. A device that failed is checked first, and then everything is due; one of which nothing was due for a
// period of the probe's is checked too.
func (l *link) round(ctx context.Context) {
	if l.now().failing {
		if !l.check(ctx) {
			return
		}
		l.schedule.hurry(l.clock.Now())
	}
	due := l.schedule.take(l.clock.Now())
	for i, g := range due {
		if !l.readGroup(ctx, g) {
			// What had no turn is read at the next attempt, however long its period.
			l.schedule.retry(due[i:], l.clock.Now().Add(l.interval()))
			return
		}
	}
	if !l.clock.Now().Before(l.checkDue) {
		l.check(ctx)
	}
}

// check asks whether the device answers, and tells whether to go on.
func (l *link) check(ctx context.Context) bool {
	started := l.clock.Now()
	err := l.call(ctx, 0, func(ctx context.Context) error {
		_, err := l.device.Check(ctx)
		return err
	})
	if ctx.Err() != nil {
		return false
	}
	l.settle(started, err, true)
	l.checkDue = started.Add(l.interval())
	return err == nil
}

// readGroup reads a group of tags, and tells whether to go on.
func (l *link) readGroup(ctx context.Context, g *group) bool {
	started := l.clock.Now()
	var samples []driver.Sample
	err := l.call(ctx, len(g.channels), func(ctx context.Context) (err error) {
		samples, err = l.device.Read(ctx, g.channels)
		return err
	})
	if ctx.Err() != nil {
		return false
	}
	if err == nil && len(samples) != len(g.tags) {
		err = &driver.Error{Reason: driver.ReasonProtocolError, Err: fmt.Errorf("%d values came for %d channels", len(samples), len(g.tags))}
	}
	if err == nil {
		l.values.settle(g.tags, samples, started)
	}
	l.settle(started, err, err == nil && proof(samples))
	return err == nil
}

// proof tells whether samples show that the device itself answered.
func proof(samples []driver.Sample) bool {
	for _, s := range samples {
		if !s.Status.Bad() || s.Err != nil && s.Err.Answered {
			return true
		}
	}
	return false
}

// call is one call of the driver, within its time, whose panics are errors.
func (l *link) call(ctx context.Context, channels int, f func(context.Context) error) error {
	bound := callTime(l.timeout(), channels)
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	started := l.clock.Now()
	l.mu.Lock()
	l.state.callUntil = started.Add(bound)
	l.mu.Unlock()
	err := func() (err error) {
		defer l.recover(&err)
		return f(ctx)
	}()
	l.mu.Lock()
	l.wasStalled = l.state.stalled(l.clock.Now())
	l.state.callUntil = time.Time{}
	l.mu.Unlock()
	l.metrics.exchanged(err, l.clock.Now().Sub(started))
	return err
}

// callTime is how long a call of the driver may take.
func callTime(timeout time.Duration, channels int) time.Duration {
	return min(maxCall, timeout*time.Duration(callBound+channels/channelsAllowed))
}

// settle moves the verdict by how an exchange ended, and tells.
func (l *link) settle(started time.Time, err error, proved bool) {
	now := l.clock.Now()
	switch {
	case err != nil && driver.ReasonOf(err) == driver.ReasonNotMeasured:
		return
	case err == nil && !proved:
		return
	case err == nil:
		l.checkDue = started.Add(l.interval())
	}
	before := l.now()
	good := err == nil
	if !good || !l.lastGood || now.Sub(l.lastObserved) >= l.interval()*9/10 {
		// Tags may be read more often than a probe checks, and must not make a verdict sooner for that.
		l.connectivity.Observe(now, err)
		l.lastObserved = now
	}
	l.lastGood = good

	after := before
	after.known, after.connected, after.failing = l.connectivity.Known(), l.connectivity.Connected(), !good
	switch {
	case good && (after.connected || !after.known):
		after.reason, after.message = "", ""
	case !good:
		after.reason, after.message = string(driver.ReasonOf(err)), causeOf(err)
	}
	l.mu.Lock()
	after.callUntil = l.state.callUntil
	l.state = after
	l.mu.Unlock()
	if good {
		l.values.setDown(l.module.Name, false, "")
	} else {
		l.values.setDown(l.module.Name, true, string(driver.ReasonOf(err))+": "+causeOf(err))
	}
	if after.known != before.known || after.connected != before.connected {
		l.log.Info("Verdict", "module", l.module.Name, "connected", after.connected, "reason", after.reason, "message", after.message)
	}
	if good && (before.failing || l.wasStalled) {
		l.returned()
	}
	before.callUntil, after.callUntil = time.Time{}, time.Time{}
	if after != before {
		l.changed()
	}
}

// recover is to be deferred: a driver's library meets bytes that nobody foresaw, and its panic is an error of this device.
func (l *link) recover(err *error) {
	if p := recover(); p != nil {
		l.log.Error(nil, "The driver panicked", "module", l.module.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = &driver.Error{Reason: driver.ReasonProtocolError, Err: fmt.Errorf("the driver failed on what the device sent: %v", p)}
	}
}

// causeOf is an error's text without the reason, which stands beside it.
func causeOf(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}
