package unitruntime

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// maxWatches bounds the followers, of reports and of tags each: a few replicas of the server, and who watches through them.
	maxWatches = 64
	// maxWriters bounds the requests to write that are under way.
	maxWriters = 16
	// maxWrites bounds one request to write, and maxBody any request.
	maxWrites = 1024
	maxBody   = 1 << 20
	// writeTimeout ends a reader that does not read.
	writeTimeout = 5 * time.Second
	// pace is the least time between two events of a watch of tags, and sweep the most until one tells that a value has aged.
	pace  = 100 * time.Millisecond
	sweep = 250 * time.Millisecond
	// reportPace is the least time between two reports of a watch: each hold value that is taken changes it.
	reportPace = 20 * time.Millisecond
)

// Handler serves the report and the tags. It must be reached over TLS with the probe's api.ServerConfig only; orders and writes are
// taken from the controllers alone.
func (r *Runtime) Handler() http.Handler {
	mux := http.NewServeMux()
	reports, tags, writers := make(chan struct{}, maxWatches), make(chan struct{}, maxWatches), make(chan struct{}, maxWriters)
	mux.HandleFunc("GET "+api.UnitPath, r.list(reports, func() any { return r.Report() }, r.watchUnit))
	mux.HandleFunc("GET "+api.TagsPath, r.list(tags, func() any { return api.TagList{Runtime: r.Info(), Tags: r.values.list()} }, r.watchTags))
	mux.HandleFunc("PUT "+api.UnitPath, func(w http.ResponseWriter, req *http.Request) {
		var o api.Order
		if failure := body(w, req, &o); failure != nil {
			r.fail(w, failure)
			return
		}
		report, failure := r.PutOrder(req.Context(), o)
		if failure != nil {
			r.fail(w, failure)
			return
		}
		r.answer(w, http.StatusOK, report)
	})
	mux.HandleFunc("PUT "+api.TagsPath, func(w http.ResponseWriter, req *http.Request) {
		var request api.WriteRequest
		if failure := body(w, req, &request); failure != nil {
			r.fail(w, failure)
			return
		}
		if len(request.Writes) > maxWrites {
			r.fail(w, &api.Error{Code: http.StatusBadRequest, Message: "more writes than one request may have"})
			return
		}
		select {
		case writers <- struct{}{}:
			defer func() { <-writers }()
		default:
			r.fail(w, &api.Error{Code: http.StatusServiceUnavailable, Message: "too many requests write at once"})
			return
		}
		response, failure := r.Write(req.Context(), request)
		if failure != nil {
			r.fail(w, failure)
			return
		}
		r.answer(w, http.StatusOK, response)
	})
	return mux
}

// list answers a GET, or a watch if there is a place for it.
func (r *Runtime) list(places chan struct{}, now func() any, watch func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Query().Get("watch") {
		case "", "false", "0":
			r.answer(w, http.StatusOK, now())
		case "true", "1":
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				r.metrics.watches.Inc()
				defer r.metrics.watches.Dec()
				watch(w, req)
			default:
				r.fail(w, &api.Error{Code: http.StatusServiceUnavailable, Message: "too many watches"})
			}
		default:
			r.fail(w, &api.Error{Code: http.StatusBadRequest, Message: "watch must be true or false"})
		}
	}
}

// body reads a request of the controllers, and of nobody else.
func body(w http.ResponseWriter, req *http.Request, into any) *api.Error {
	if !ofControllers(req) {
		return &api.Error{Code: http.StatusForbidden, Message: "this is for the controllers alone"}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &api.Error{Code: http.StatusRequestEntityTooLarge, Message: "the request is larger than 1 MiB"}
	}
	if err != nil {
		return &api.Error{Code: http.StatusBadRequest, Message: "the request could not be read: " + err.Error()}
	}
	if err := decode(data, into); err != nil {
		return &api.Error{Code: http.StatusBadRequest, Message: err.Error()}
	}
	// The server has bounded the time of the body, which is over; what the request causes has bounds of its own.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return nil
}

// ofControllers tells whether the peer's certificate is the controllers'; the handshake has verified it.
func ofControllers(req *http.Request) bool {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return false
	}
	for _, u := range req.TLS.PeerCertificates[0].URIs {
		if u.String() == authority.ControllersURI {
			return true
		}
	}
	return false
}

func (r *Runtime) fail(w http.ResponseWriter, e *api.Error) { r.answer(w, e.Code, e) }

func (r *Runtime) answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		r.log.V(1).Info("A reader went away", "error", err.Error())
	}
}

// stream sends JSON documents, one a line, until the reader goes or does not read.
func stream(w http.ResponseWriter) func(any) bool {
	w.Header().Set("Content-Type", "application/x-ndjson")
	controller, encoder := http.NewResponseController(w), json.NewEncoder(w)
	return func(document any) bool {
		// The connection's deadline is the kernel's, hence the real time.
		return errors.Join(
			controller.SetWriteDeadline(time.Now().Add(writeTimeout)),
			encoder.Encode(document),
			controller.Flush(),
		) == nil
	}
}

// watchUnit sends a report at once, at every change, and every heartbeat.
func (r *Runtime) watchUnit(w http.ResponseWriter, req *http.Request) {
	send := stream(w)
	f := r.follow()
	defer r.unfollow(f)
	heartbeat := r.clock.NewTicker(api.Heartbeat)
	defer heartbeat.Stop()
	for send(r.Report()) && r.pause(req, reportPace, nil) {
		select {
		case <-req.Context().Done():
			return
		case <-f:
		case <-heartbeat.C():
			if probeapi.Expired(req, r.clock.Now()) {
				return
			}
		}
	}
}

// watchTags sends every tag, then what changes, and a heartbeat when nothing does.
func (r *Runtime) watchTags(w http.ResponseWriter, req *http.Request) {
	send := stream(w)
	f := r.values.follow()
	defer r.values.unfollow(f)
	known := told{}
	snapshot, _ := r.values.news(known)
	if !send(api.TagEvent{Type: api.TagSnapshot, Runtime: r.Info(), Tags: snapshot}) {
		return
	}
	last := r.clock.Now()
	for {
		if !r.pause(req, pace, nil) || !r.pause(req, sweep-pace, f) {
			return
		}
		event := api.TagEvent{Type: api.TagChange}
		event.Tags, event.Removed = r.values.news(known)
		now := r.clock.Now()
		switch {
		case len(event.Tags)+len(event.Removed) > 0:
		case now.Sub(last) >= api.Heartbeat:
			event.Type = api.TagHeartbeat
		default:
			continue
		}
		event.Runtime, last = r.Info(), now
		if probeapi.Expired(req, now) || !send(event) {
			return
		}
	}
}

// pause waits for a time, or less when something changes; false when the reader has gone.
func (r *Runtime) pause(req *http.Request, d time.Duration, changed <-chan struct{}) bool {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-req.Context().Done():
		return false
	case <-changed:
	case <-timer.C():
	}
	return true
}

// HealthHandler serves what podserver.HealthHandler does; ready returns what is missing besides a config, or nil.
func (r *Runtime) HealthHandler(registry *prometheus.Registry, ready func() error) http.Handler {
	return podserver.HealthHandler(registry, func() bool { return r.Info().ConfigHash != "" }, ready)
}
