package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	// maxReads and maxWrites at once in the whole probe. Writes have places of their own: a hold value must not wait for readers.
	maxReads  = 64
	maxWrites = 64
	// bodyTimeout is how long a request's body may take.
	bodyTimeout = 5 * time.Second
)

// handleDevices adds what is done with the devices themselves (P-14: for the Units' runtimes, where a device allows fewer
// connections than it has clients).
func (p *Probe) handleDevices(mux *http.ServeMux) {
	reads, writes := make(chan struct{}, maxReads), make(chan struct{}, maxWrites)
	const module = "POST " + api.ModulesPath + "/{uid}/"
	mux.HandleFunc(module+"check", serveDevice(p, "check", reads, func(ctx context.Context, uid string, r api.CheckRequest) (any, error) {
		ctx, cancel := bounded(ctx, r.TimeoutMilliseconds)
		defer cancel()
		answer, err := p.checkShared(ctx, uid)
		return api.CheckResponse{Reason: answer.Reason, Message: answer.Message, Health: answer.Health, Error: api.DeviceErrorOf(err)}, err
	}))
	mux.HandleFunc(module+"read", serveDevice(p, "read", reads, func(ctx context.Context, uid string, r api.ReadRequest) (any, error) {
		if len(r.Channels) == 0 || len(r.Channels) > api.MaxDeviceChannels {
			return nil, invalid(fmt.Sprintf("channels must be 1 to %d", api.MaxDeviceChannels))
		}
		ctx, cancel := bounded(ctx, r.TimeoutMilliseconds)
		defer cancel()
		samples, err := p.readShared(ctx, uid, r.Channels)
		return api.ReadResponse{Samples: samples, Error: api.DeviceErrorOf(err)}, err
	}))
	mux.HandleFunc(module+"write", serveDevice(p, "write", writes, func(ctx context.Context, uid string, r api.WriteRequest) (any, error) {
		if r.Client == "" || len(r.Client) > maxClientName || r.Sequence == 0 {
			return nil, invalid(fmt.Sprintf("client must have 1 to %d characters, and sequence be 1 or more", maxClientName))
		}
		value, err := r.Value.Raw()
		if err != nil {
			return nil, invalid("value: " + err.Error())
		}
		ctx, cancel := bounded(ctx, r.TimeoutMilliseconds)
		defer cancel()
		err = p.writeShared(ctx, uid, r, value)
		return api.WriteResponse{Error: api.DeviceErrorOf(err)}, err
	}))
}

// maxClientName is how long the name of a writing client may be.
const maxClientName = 128

// serveDevice reads a request, does it in one of the places, and answers. The error of do is an *api.Error, or the device's, which the
// answer tells.
func serveDevice[R any](p *Probe, verb string, places chan struct{}, do func(ctx context.Context, uid string, r R) (answer any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		answer, err := func() (any, error) {
			request, err := readRequest[R](w, r, connection)
			if err != nil {
				return nil, err
			}
			if api.Expired(r, p.options.Clock.Now()) {
				w.Header().Set("Connection", "close")
				return nil, &api.Error{Code: http.StatusUnauthorized, Reason: api.ErrorUnauthorized, Message: "the certificate has ended since the connection was made"}
			}
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				return do(r.Context(), r.PathValue("uid"), request)
			default:
				return nil, &api.Error{Code: http.StatusServiceUnavailable, Reason: api.ErrorBusy, Message: "too many requests at once"}
			}
		}()
		p.metrics.requested(verb, err)
		w.Header().Set("Content-Type", "application/json")
		_ = connection.SetWriteDeadline(time.Now().Add(writeTimeout))
		if failure, ok := errors.AsType[*api.Error](err); ok {
			answer = failure
			w.WriteHeader(failure.Code)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			p.options.Log.V(1).Info("A user of a device went away", "error", err.Error())
		}
	}
}

// readRequest reads a request's body.
func readRequest[R any](w http.ResponseWriter, r *http.Request, connection *http.ResponseController) (request R, err error) {
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, api.MaxDeviceRequest))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return request, &api.Error{Code: http.StatusRequestEntityTooLarge, Reason: api.ErrorInvalid, Message: fmt.Sprintf("the body has more than %d bytes", api.MaxDeviceRequest)}
		}
		return request, invalid("the body: " + err.Error())
	}
	// From here on the connection is read only to see whether the client is still there.
	_ = connection.SetReadDeadline(time.Time{})
	if err := decode(body, &request); err != nil {
		return request, invalid("the body: " + err.Error())
	}
	return request, nil
}

// bounded is a context that ends when the client no longer waits, and after MaxDeviceTime in any case.
func bounded(ctx context.Context, milliseconds int64) (context.Context, context.CancelFunc) {
	timeout := api.MaxDeviceTime
	if milliseconds > 0 {
		timeout = min(timeout, time.Duration(min(milliseconds, 1<<32))*time.Millisecond)
	}
	return context.WithTimeout(ctx, timeout)
}

// share is the supervised device of a uid; the error is an *api.Error where the module is not in the config at all.
func (p *Probe) share(ctx context.Context, uid string) (s *supervisor, joined context.Context, leave func(), err error) {
	p.mu.Lock()
	s, refused := p.shared[uid], p.refused[uid]
	p.mu.Unlock()
	if s != nil {
		if joined, leave, ok := s.sharing.join(ctx); ok {
			return s, joined, leave, nil
		}
	}
	switch state, known := p.states.find(uid); {
	case refused != nil:
		return nil, nil, nil, refused
	case s != nil, known && state.UID == uid:
		return nil, nil, nil, exchanged()
	}
	return nil, nil, nil, &api.Error{Code: http.StatusNotFound, Reason: api.ErrorNotFound, Message: fmt.Sprintf("this probe supervises no module with the uid %q", uid)}
}

// exchanged is the error of a request that met the end of a supervisor; the next one meets another.
func exchanged() *driver.Error {
	return &driver.Error{Reason: driver.ReasonNotMeasured, Err: errors.New("the module's specification is being exchanged")}
}

// ofSharing is an error of a shared use: what ended with the supervisor says nothing of the device.
func ofSharing(s *supervisor, err error) error {
	if err != nil && s.sharing.ctx.Err() != nil {
		return exchanged()
	}
	return err
}

func (p *Probe) checkShared(ctx context.Context, uid string) (driver.Answer, error) {
	s, ctx, leave, err := p.share(ctx, uid)
	if err != nil {
		return driver.Answer{}, err
	}
	defer leave()
	if err := s.turns.beginRead(ctx); err != nil {
		return driver.Answer{}, ofSharing(s, err)
	}
	answer, err := s.check(ctx)
	s.turns.endRead(err)
	return answer, ofSharing(s, err)
}

func (p *Probe) readShared(ctx context.Context, uid string, channels []api.Channel) ([]api.Sample, error) {
	s, ctx, leave, err := p.share(ctx, uid)
	if err != nil {
		return nil, err
	}
	defer leave()
	asked := make([]driver.Channel, len(channels))
	for i, c := range channels {
		asked[i] = c.Driver()
	}
	if err := s.turns.beginRead(ctx); err != nil {
		return nil, ofSharing(s, err)
	}
	samples, err := func() (samples []driver.Sample, err error) {
		defer s.recover(&err)
		return s.device.Read(ctx, asked)
	}()
	s.turns.endRead(err)
	if err != nil {
		return nil, ofSharing(s, err)
	}
	told := make([]api.Sample, len(samples))
	for i, sample := range samples {
		told[i] = api.SampleOf(sample)
	}
	return told, nil
}

func (p *Probe) writeShared(ctx context.Context, uid string, r api.WriteRequest, value any) (err error) {
	s, ctx, leave, err := p.share(ctx, uid)
	if err != nil {
		return err
	}
	defer leave()
	done, refused := s.writes.enter(ctx, r.Client, r.Sequence)
	if refused != nil {
		return refused
	}
	defer done()
	if ctx.Err() != nil {
		return &driver.Error{Reason: driver.ReasonNotMeasured, Err: errors.New("not sent: nobody waits for it any more")}
	}
	defer s.recover(&err)
	return s.device.Write(ctx, r.Channel.Driver(), value)
}
