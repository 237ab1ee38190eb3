package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	// faultBackoff stretches the period of a device in Fault: a silent one costs its neighbours their turn. It must
	// stay below 3, lest the state of a device in Fault look older than three periods.
	faultBackoff = 2
	// maxFirstPeriod is the longest time between checks before the first verdict, and the longest jitter.
	maxFirstPeriod = time.Second
	// checkBound is how many request timeouts a whole check may take, with its waits for the line and for a place to
	// connect; the driver keeps the request itself within one.
	checkBound = 4
	// maxIdentifyAttempts bounds how often a device is asked for its identity after it came.
	maxIdentifyAttempts = 3
	// identifyAgain is how often a device that stays and has an identity is asked for it: one that is exchanged or
	// restarted faster than a threshold of checks was never in Fault.
	identifyAgain = 10 * time.Minute
)

// supervisor measures one module. The device is used by its goroutine, by that of its discovery, and by whoever joins sharing.
//
// Times, with the defaults (period 1 s, timeout 1 s, thresholds 3 and 2), which P-16 rests on:
//   - silent → Fault: up to 1 s to the next check, or to the end of a reader that met the silence first, then three checks of 1 s
//     each that follow one another: at most 4 s;
//   - back → Online: up to 2 s of backoff and 1 s of a check under way, then 5 s stable, told by the check after: at most 9 s;
//   - first contact → Online: up to 1 s of jitter, and the second check 1 s later: at most 2 s.
type supervisor struct {
	module    Module
	device    driver.Device
	clock     clock.Clock
	rand      *rand.Rand
	states    *states
	metrics   *metrics
	own       *moduleMetrics
	log       logr.Logger
	episode   func() string
	stalled   func(since time.Time) time.Duration
	debounce  debounce
	discovery discovery
	sharing   *sharing
	turns     *precedence
	writes    *writeOrder

	// generation is that of the newest entry that asks for the same as module does.
	generation atomic.Int64

	state       api.ModuleState
	failedLast  bool
	identifying int
	// identified is when the device was asked for its identity; zero when it may be another one since.
	identified time.Time

	cancel context.CancelFunc
	done   chan struct{}
}

// start begins to measure from the state as it is; stop ends it.
func (s *supervisor) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	s.publish()
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
}

// inherit takes over what an ended supervisor of the same device knew of it.
func (s *supervisor) inherit(old *supervisor) {
	thresholds := s.debounce
	s.debounce = old.debounce
	s.debounce.failureThreshold, s.debounce.successThreshold = thresholds.failureThreshold, thresholds.successThreshold
	s.state, s.failedLast, s.identifying, s.identified = old.state, old.failedLast, old.identifying, old.identified
	s.own = old.own
	if s.debounce.verdict == connected {
		// The entry may declare other channels now.
		s.discovery.request()
	}
}

// publish tells the state as it is.
func (s *supervisor) publish() {
	s.state.Generation = s.generation.Load()
	s.states.set(s.state, s.staleAfter())
}

// stop ends the measuring and waits until no check is under way.
func (s *supervisor) stop() {
	s.cancel()
	<-s.done
}

// unmeasured is the state of a module that has no verdict yet (P-06, P-07: Unknown).
func unmeasured(m Module, now time.Time) api.ModuleState {
	return api.ModuleState{
		Name:       m.Name,
		UID:        m.UID,
		Generation: m.Generation,
		Reason:     api.ReasonMeasuring,
		Message:    "no full threshold of checks has given a verdict yet",
		Since:      now,
	}
}

func (s *supervisor) run(ctx context.Context) {
	// The jitter spreads the checks of all modules over the period, for good.
	spread := s.interval()
	if s.debounce.verdict != undetermined {
		// What was inherited may be two periods old already, and must not grow older than three.
		spread = max(1, s.module.Spec.Probe.Period.Duration/2)
	}
	wait := time.Duration(s.rand.Int64N(int64(spread)))
	defer s.discovery.end()
	for {
		if !s.wait(ctx, wait) {
			return
		}
		started := s.clock.Now()
		s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		wait = max(0, started.Add(s.interval()).Sub(s.clock.Now()))
	}
}

// wait is the time until the next check, in which discoveries may end, and which ends at once when a reader met silence; false
// when the supervisor ends.
func (s *supervisor) wait(ctx context.Context, d time.Duration) bool {
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case o := <-s.discovery.outcomes:
			s.settleDiscovery(s.clock.Now(), o)
		case <-s.turns.soon:
			return true
		case <-timer.C():
			return true
		}
	}
}

// interval is the time from one check's start to the next.
func (s *supervisor) interval() time.Duration {
	period := s.module.Spec.Probe.Period.Duration
	switch {
	case s.debounce.verdict == undetermined:
		return min(period, maxFirstPeriod)
	case s.debounce.verdict == disconnected && s.failedLast:
		return faultBackoff * period
	default:
		return period
	}
}

// staleAfter is the age at which a measurement no longer says anything: three periods, and a check under way.
func (s *supervisor) staleAfter() time.Duration {
	return 3*s.module.Spec.Probe.Period.Duration + s.module.Spec.Probe.Timeout.Duration
}

// step is one check and what follows from it.
func (s *supervisor) step(ctx context.Context) {
	timeout := s.module.Spec.Probe.Timeout.Duration
	checkCtx, cancel := context.WithTimeout(ctx, checkBound*timeout)
	s.turns.beginCheck(checkCtx, s.clock, timeout)
	started := s.clock.Now()
	answer, err := s.check(checkCtx)
	s.turns.endCheck(err)
	cancel()
	if ctx.Err() != nil {
		return
	}
	now := s.clock.Now()
	err = s.excuse(started, err)
	o := success
	switch {
	case err != nil && driver.ReasonOf(err) == driver.ReasonNotMeasured:
		o = notMeasured
	case err != nil:
		o = failure
	}
	s.metrics.observe(o, err, now.Sub(started))
	s.own.observe(o, err, now.Sub(started))
	s.settle(now, o, answer, err)

	if o == success && s.debounce.verdict == connected && s.identifying > 0 {
		s.identify(ctx)
	}
	if o == success && s.debounce.verdict == connected && s.identifying == 0 {
		s.discoverIfDue(ctx, now)
	}
}

// stallShare is the share of a request's time in which this process may not have run, for its silence to count.
const stallShare = 0.5

// excuse makes a silence that may be our own fault no news: the device's answer may have lain here unread (P-07). Should that
// go on, the measurement becomes stale, and the module Unknown.
func (s *supervisor) excuse(started time.Time, err error) error {
	if err == nil || s.stalled == nil || driver.ReasonOf(err) != driver.ReasonTimeout {
		return err
	}
	stall := s.stalled(started)
	if float64(stall) < stallShare*float64(s.module.Spec.Probe.Timeout.Duration) {
		return err
	}
	return &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("this probe was not run for %s while it waited: %w", stall.Round(time.Millisecond), err)}
}

// settle moves the state by the outcome of a check.
func (s *supervisor) settle(now time.Time, o outcome, answer driver.Answer, err error) {
	before := s.debounce.verdict
	after := s.debounce.observe(now, o)
	if o == success && after == connected && before == connected && s.identifying == 0 && s.identityInDoubt(now) {
		s.identifying = 1
	}
	if o != notMeasured {
		s.failedLast = o == failure
		s.state.MeasuredAt = now
	}
	switch {
	case after == connected && o == success:
		s.state.Reason, s.state.Message, s.state.Health = api.ReasonConnected, printable(answer.Message), answer.Health
		if answer.Reason != "" {
			s.state.Reason = string(answer.Reason)
		}
		if s.state.Health == "" {
			s.state.Health = driver.HealthNormal
		}
	case after == disconnected && o == failure:
		s.state.Reason, s.state.Message, s.state.Health = string(driver.ReasonOf(err)), printable(causeOf(err)), driver.HealthFailure
	}
	if after != before {
		s.state.Found, s.state.Connected, s.state.Since = true, after == connected, now
		s.state.Episode = ""
		if after == disconnected {
			s.state.Episode = s.episode()
			s.discovery.abandon()
		} else {
			// Another device may have been put in the place of the one that was lost, or another program into it.
			s.identifying, s.identified = maxIdentifyAttempts, time.Time{}
			s.discovery.request()
			s.own.connected()
		}
		s.log.Info("Verdict", "module", s.module.Name, "connected", s.state.Connected, "reason", s.state.Reason, "message", s.state.Message)
	}
	s.publish()
}

// check is one check of the device, whose panics are failures: a driver's library meets bytes that nobody foresaw.
func (s *supervisor) check(ctx context.Context) (answer driver.Answer, err error) {
	defer s.recover(&err)
	return s.device.Check(ctx)
}

// identify reads the device's nameplate. A device that has none, or whose link fails over the question, is left alone
// until it comes back the next time.
func (s *supervisor) identify(ctx context.Context) {
	s.identifying--
	ctx, cancel := context.WithTimeout(ctx, checkBound*s.module.Spec.Probe.Timeout.Duration)
	defer cancel()
	identity, err := func() (identity driver.Identity, err error) {
		defer s.recover(&err)
		return s.device.Identify(ctx)
	}()
	if err != nil && driver.ReasonOf(err) == driver.ReasonNotMeasured {
		return
	}
	s.identifying = 0
	stayed := !s.identified.IsZero()
	s.identified = s.clock.Now()
	if err != nil && stayed {
		// Nothing is learned from that, of a device that was never lost.
		return
	}
	former := s.state.Identity
	s.state.Identity = nil
	if err == nil && identity != (driver.Identity{}) {
		s.state.Identity = &identity
	}
	if stayed && former != nil && (s.state.Identity == nil || *s.state.Identity != *former) {
		s.log.Info("The device has another identity", "module", s.module.Name, "before", *former, "now", identity)
		s.discovery.request()
	}
	s.publish()
}

// identityInDoubt tells whether a device that stays connected should be asked for its identity again: after a check that
// failed, and every now and then.
func (s *supervisor) identityInDoubt(now time.Time) bool {
	return s.state.Identity != nil && (s.failedLast || now.Sub(s.identified) >= identifyAgain)
}

// recover turns a panic of the driver into an error.
func (s *supervisor) recover(err *error) { recoverFrom(recover(), err, s.log, s.module.Name) }

// recoverInto is to be deferred: it turns a panic of the driver into an error.
func recoverInto(err *error, log logr.Logger, module string) {
	recoverFrom(recover(), err, log, module)
}

func recoverFrom(p any, err *error, log logr.Logger, module string) {
	if p == nil {
		return
	}
	log.Error(nil, "The driver panicked", "module", module, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	*err = &driver.Error{Reason: driver.ReasonProtocolError, Err: fmt.Errorf("the driver failed on what the device sent: %v", p)}
}

// causeOf is an error's text without the reason, which stands beside it.
func causeOf(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}
