package unitruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// The reasons of a write that was not sent, besides the drivers'.
const (
	// reasonNotFound: the Unit has no such tag.
	reasonNotFound = "NotFound"
	// reasonNotWritable: the tag's access, or its entry, does not allow it.
	reasonNotWritable = "NotWritable"
	// reasonInvalid: the value is none that the tag can have.
	reasonInvalid = "InvalidValue"
	// reasonSuperseded: the Unit was held, stopped or paused before it was sent.
	reasonSuperseded = "Superseded"
)

// writeGrace is how long after its time a driver may take to return from a write; then nobody knows what became of it.
const writeGrace = 500 * time.Millisecond

// flight is a write that a driver has.
type flight struct {
	epoch  uint64
	cancel context.CancelFunc
}

// written is what became of a write.
type written struct {
	api.WriteResult
	// answered: the device itself answered, or the write did not get as far.
	answered bool
	// offEpoch: it was not sent, since the regime that permitted it is over.
	offEpoch bool
}

func (w written) outcome() string {
	switch {
	case w.Done:
		return "Done"
	case w.Uncertain:
		return "Uncertain"
	default:
		return cmp.Or(w.Reason, "Refused")
	}
}

// Write writes values of users. It is refused as a whole unless the order in force lets users write; then each write has a
// result of its own. Writes to one device are sent in the order of the request, those to several at once.
func (r *Runtime) Write(ctx context.Context, request api.WriteRequest) (api.WriteResponse, *api.Error) {
	r.mu.Lock()
	refused, epoch := r.writeRefusal(request), r.epoch
	links, tags := make([]*link, len(request.Writes)), make([]*Tag, len(request.Writes))
	for i, w := range request.Writes {
		if tags[i] = r.tags[w.TagKey]; tags[i] != nil {
			links[i] = r.links[tags[i].IOModule]
		}
	}
	r.mu.Unlock()
	if refused != nil {
		return api.WriteResponse{}, refused
	}

	results := make([]api.WriteResult, len(request.Writes))
	byLink := map[*link][]int{}
	for i, w := range request.Writes {
		results[i].TagKey = w.TagKey
		switch t := tags[i]; {
		case t == nil:
			results[i].Reason, results[i].Message = reasonNotFound, "the Unit has no such tag"
		case t.Problem != "":
			results[i].Reason, results[i].Message = reasonNotWritable, t.Problem
		case !t.writable():
			results[i].Reason, results[i].Message = reasonNotWritable, fmt.Sprintf("the tag's access is %s", t.Access)
		case links[i] == nil:
			results[i].Reason, results[i].Message = reasonNotWritable, fmt.Sprintf("module %s cannot be used", t.IOModule)
		default:
			byLink[links[i]] = append(byLink[links[i]], i)
		}
	}
	var done sync.WaitGroup
	for l, indices := range byLink {
		done.Go(func() {
			for _, i := range indices {
				result := r.writeTag(ctx, l, tags[i], request.Writes[i].Value, epoch)
				results[i] = result.WriteResult
				r.metrics.writes.WithLabelValues("user", result.outcome()).Inc()
			}
		})
	}
	done.Wait()
	return api.WriteResponse{Results: results}, nil
}

// writeRefusal is why users may not write now.
func (r *Runtime) writeRefusal(request api.WriteRequest) *api.Error {
	switch {
	case r.config == nil:
		return &api.Error{Code: http.StatusServiceUnavailable, Message: "no config file was good yet"}
	case request.UID != r.config.Unit.UID:
		return conflict("the writes are for the Unit of uid %q, and this is the runtime of %s, whose uid is %q", request.UID, r.config.Unit.Name, r.config.Unit.UID)
	case r.latch != nil:
		return conflict("the runtime has held the Unit by itself, since devices were lost (%q) while the server could not be reached", r.latch.Modules)
	case r.order == nil || !r.fresh:
		return conflict("the runtime has not been told yet whether the Unit runs")
	case r.order.State != isa88.Running:
		return conflict("the Unit is %s, and is written to only while it is Running", r.order.State)
	case r.regime.permission != writesOfUsers:
		return conflict("the order to run is being stored")
	case request.Revision != 0 && request.Revision < r.running:
		return conflict("the Unit was started again since the writes were accepted; write again if they are still meant")
	default:
		return nil
	}
}

// writeTag writes one tag, in its turn at the device, if the regime of an epoch is still in force then.
func (r *Runtime) writeTag(ctx context.Context, l *link, t *Tag, text string, epoch uint64) written {
	w := written{WriteResult: api.WriteResult{TagKey: t.TagKey}, answered: true}
	if t.Problem != "" {
		w.Reason, w.Message = reasonNotWritable, t.Problem
		return w
	}
	channel := t.Channel
	channel.DataType = cmp.Or(channel.DataType, r.values.rawType(t.TagKey))
	raw, err := t.scaling.rawOf(text, channel.DataType)
	if err != nil {
		w.Reason, w.Message = reasonInvalid, err.Error()
		return w
	}
	err = r.send(ctx, l, t, channel, raw, epoch)
	if err == nil {
		w.Done = true
		return w
	}
	var refused *driver.Error
	typed := errors.As(err, &refused)
	switch {
	case errors.Is(err, errSuperseded):
		w.Reason, w.Message, w.answered, w.offEpoch = reasonSuperseded, err.Error(), false, true
	case typed && !driver.MaybeDone(err):
		// What is wrong with one tag is no reason to keep the others waiting.
		w.answered = refused.Answered || refused.Reason == driver.ReasonConfigurationError || refused.Reason == driver.ReasonNotSupported
		w.Reason, w.Message = string(refused.Reason), causeOf(refused)
	case errors.Is(err, context.Canceled):
		w.Uncertain, w.answered = true, false
		w.Reason, w.Message = reasonSuperseded, "it was called off while it was being sent; it may or may not have been written"
	default:
		w.Uncertain, w.answered = true, false
		w.Reason, w.Message = string(driver.LinkReason(err)), causeOf(err)
		if typed {
			w.Reason = string(refused.Reason)
		}
	}
	return w
}

// errSuperseded: what permitted a write is over.
var errSuperseded = errors.New("not sent: meanwhile the Unit left the state that permitted it, or the tag was changed")

// errNoTurn: the writes before it took too long.
var errNoTurn = &driver.Error{Reason: driver.ReasonNotMeasured, Err: errors.New("not sent: an earlier write to the device has not ended")}

// turn is whose turn it is to write to a module's device: one write at a time, so that none overtakes another. It outlives the
// links of its module: what a driver that does not return may still send must end before anything else is written.
type turn struct {
	// token is in the channel while somebody has the turn.
	token chan struct{}
	// stuck: the driver has not returned from a write long after its time.
	stuck atomic.Bool
}

func newTurn() *turn { return &turn{token: make(chan struct{}, 1)} }

// take waits for the turn. Nobody waits for a driver that does not return: many who did would leave no place for those who write to
// other devices.
func (t *turn) take(ctx context.Context, c clock.Clock, bound time.Duration) bool {
	if t.stuck.Load() {
		select {
		case t.token <- struct{}{}:
			return true
		default:
			return false
		}
	}
	timer := c.NewTimer(bound)
	defer timer.Stop()
	select {
	case t.token <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-timer.C():
	}
	return false
}

// pass hands the turn on.
func (t *turn) pass() {
	t.stuck.Store(false)
	<-t.token
}

// send gives a write to the driver in its turn. The last look at what is permitted and the entry among
// those in flight are one step under r.mu: an order that comes later finds the write there, and waits for its end.
func (r *Runtime) send(ctx context.Context, l *link, t *Tag, channel driver.Channel, raw any, epoch uint64) error {
	bound := callTime(l.timeout(), 0)
	if !l.turn.take(ctx, r.clock, bound) {
		return errNoTurn
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	f := &flight{epoch: epoch, cancel: cancel}

	r.mu.Lock()
	now := r.tags[t.TagKey]
	if r.epoch != epoch || r.links[l.module.Name] != l || now == nil || !now.sameValue(t) || !now.writable() {
		r.mu.Unlock()
		l.turn.pass()
		return errSuperseded
	}
	r.inFlight[f] = struct{}{}
	r.mu.Unlock()

	ended := make(chan error, 1)
	go func() {
		err := func() (err error) {
			defer l.recover(&err)
			return l.device.Write(ctx, channel, raw)
		}()
		r.mu.Lock()
		delete(r.inFlight, f)
		r.notifyLocked()
		r.mu.Unlock()
		l.turn.pass()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// The driver was told to return; one that does not keeps its turn, so that nothing overtakes what it may still send.
	timer := r.clock.NewTimer(writeGrace)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C():
		l.turn.stuck.Store(true)
		return &driver.Error{Reason: driver.ReasonTimeout, Err: errors.New("the driver does not return from the device; it may or may not have been written")}
	}
}
