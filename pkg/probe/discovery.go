package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	// maxDiscoveries run at once in a probe: each may keep a device busy and hold its whole list twice.
	maxDiscoveries = 2
	// discoveryTime bounds one discovery, its wait for a place not included.
	discoveryTime = time.Minute
	// firstRetry is how long a failed discovery waits for the next, and maxRetry the most that it becomes by doubling.
	firstRetry = 10 * time.Second
	maxRetry   = 5 * time.Minute
)

// discovery finds the channels of one module after it is Online (P-06), beside its checks and never in their way. All
// of it belongs to the supervisor's goroutine, except what run does in one of its own.
type discovery struct {
	// places bounds the discoveries of the whole probe.
	places    chan struct{}
	catalogue *catalogue

	// due: the device must be asked, not before notBefore.
	due       bool
	notBefore time.Time
	retry     time.Duration
	// cancel ends the discovery under way; nil without one. Its outcome comes over outcomes, always.
	cancel   context.CancelFunc
	outcomes chan discovered
}

// discovered is how one discovery ended; cancelled says that it was told to.
type discovered struct {
	list      driver.ChannelList
	err       error
	cancelled bool
}

// request has the device asked at the next chance, whatever it said before.
func (d *discovery) request() {
	d.abandon()
	d.due, d.notBefore, d.retry = true, time.Time{}, firstRetry
}

// abandon ends a discovery under way, and has none begin: the device does not answer.
func (d *discovery) abandon() {
	d.due = false
	if d.cancel != nil {
		d.cancel()
	}
}

// discoverIfDue begins a discovery if there is a reason to, and none under way.
func (s *supervisor) discoverIfDue(ctx context.Context, now time.Time) {
	d := &s.discovery
	if !d.due || d.cancel != nil || now.Before(d.notBefore) {
		return
	}
	d.due = false
	ctx, cancel := context.WithCancel(ctx)
	d.cancel = cancel
	go func() {
		list, err := s.discover(ctx)
		d.outcomes <- discovered{list: list, err: err, cancelled: err != nil && ctx.Err() != nil}
	}()
}

// discover asks the device, in its turn.
func (s *supervisor) discover(ctx context.Context) (list driver.ChannelList, err error) {
	select {
	case s.discovery.places <- struct{}{}:
		defer func() { <-s.discovery.places }()
	case <-ctx.Done():
		return list, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	list, err = func() (list driver.ChannelList, err error) {
		defer s.recover(&err)
		return s.device.Channels(ctx, driver.MaxChannels)
	}()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &driver.Error{Reason: driver.ReasonTimeout, Err: fmt.Errorf("the channels were not found within %s", discoveryTime)}
	}
	return list, err
}

// end cancels a discovery under way and waits for it.
func (d *discovery) end() {
	if d.cancel != nil {
		d.cancel()
		<-d.outcomes
		d.cancel = nil
	}
}

// settleDiscovery takes in how a discovery ended. One that was cancelled leaves no trace.
func (s *supervisor) settleDiscovery(now time.Time, o discovered) {
	d := &s.discovery
	d.cancel()
	d.cancel = nil
	switch {
	case o.cancelled:
		return
	case o.err != nil:
		reason := driver.ReasonOf(o.err)
		s.state.Channels.Reason, s.state.Channels.Message = string(reason), printable(causeOf(o.err))
		s.log.Info("Channels are not known", "module", s.module.Name, "reason", reason, "message", s.state.Channels.Message)
		if reason != driver.ReasonNotSupported && !d.due {
			d.due, d.notBefore = true, now.Add(d.retry)
			d.retry = min(2*d.retry, maxRetry)
		}
	default:
		s.state.Channels = d.catalogue.put(s.module, s.generation.Load(), o.list, now)
	}
	s.metrics.discovered(o.err)
	s.publish()
}

// channelPage is a page of the channels of a module that is named by uid or name.
func (p *Probe) channelPage(module string, limit int, token string) (*api.ChannelPage, *api.Error) {
	state, ok := p.states.find(module)
	if !ok {
		return nil, &api.Error{Code: http.StatusNotFound, Reason: api.ErrorNotFound, Message: fmt.Sprintf("this probe has no module %q", module)}
	}
	page, failure := p.catalogue.page(state.Name, limit, token)
	if failure != nil && failure.Reason == api.ErrorNotDiscovered {
		failure.Message = "the channels were not discovered yet: " + undiscovered(state)
	}
	return page, failure
}

// undiscovered says why a module's channels are not known.
func undiscovered(state api.ModuleState) string {
	switch {
	case state.Channels.Reason != "":
		return state.Channels.Reason + ": " + state.Channels.Message
	case state.Found && state.Connected:
		return "the device is being asked"
	default:
		return fmt.Sprintf("that takes a device that is Online, and this one is not (%s)", state.Reason)
	}
}
