package probe

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
)

const (
	// maxWatches bounds the followers: a few replicas of the server, and the runtimes of a namespace.
	maxWatches = 64
	// writeTimeout ends a follower that does not read.
	writeTimeout = 5 * time.Second
)

// Handler serves the modules' states, their channels, their devices and their metrics. It must be reached over TLS with
// api.ServerConfig only.
func (p *Probe) Handler() http.Handler {
	modules := prometheus.NewRegistry()
	modules.MustRegister(p.modules)
	places := make(chan struct{}, maxWatches)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.ModulesPath, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("watch") {
		case "", "false", "0":
			p.serveList(w)
		case "true", "1":
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				p.serveWatch(w, r)
			default:
				http.Error(w, "too many watches", http.StatusServiceUnavailable)
			}
		default:
			http.Error(w, "watch must be true or false", http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET "+api.ModulesPath+"/{module}/channels", p.serveChannels)
	p.handleDevices(mux)
	mux.Handle("GET "+podserver.MetricsPath, promhttp.HandlerFor(prometheus.Gatherers{p.options.Registry, modules}, promhttp.HandlerOpts{}))
	return mux
}

// serveChannels answers with one page of a module's channels.
func (p *Probe) serveChannels(w http.ResponseWriter, r *http.Request) {
	page, failure := func() (*api.ChannelPage, *api.Error) {
		query := r.URL.Query()
		limit := api.DefaultPage
		if text := query.Get("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return nil, invalid("limit must be a number from 1; more than " + strconv.Itoa(api.MaxPage) + " counts as that")
			}
			limit = min(n, api.MaxPage)
		}
		return p.channelPage(r.PathValue("module"), limit, query.Get("continue"))
	}()
	var answer any = page
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	if failure != nil {
		answer = failure
		w.WriteHeader(failure.Code)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		p.options.Log.V(1).Info("A reader of channels went away", "error", err.Error())
	}
}

func (p *Probe) serveList(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := json.NewEncoder(w).Encode(p.List()); err != nil {
		p.options.Log.V(1).Info("A reader of the modules went away", "error", err.Error())
	}
}

// serveWatch sends everything, then what changes at once, and a heartbeat every period.
func (p *Probe) serveWatch(w http.ResponseWriter, r *http.Request) {
	p.metrics.watches.Inc()
	defer p.metrics.watches.Dec()
	w.Header().Set("Content-Type", "application/x-ndjson")
	stream := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	send := func(e api.Event) bool {
		e.Probe = p.Info()
		// The connection's deadline is the kernel's, hence the real time.
		err := errors.Join(
			stream.SetWriteDeadline(time.Now().Add(writeTimeout)),
			encoder.Encode(e),
			stream.Flush(),
		)
		return err == nil
	}

	modules, f := p.states.follow()
	defer p.states.unfollow(f)
	heartbeat := p.options.Clock.NewTicker(api.DefaultHeartbeat)
	defer heartbeat.Stop()
	if !send(api.Event{Type: api.Snapshot, Modules: modules}) {
		return
	}
	for {
		event := api.Event{Type: api.Heartbeat}
		select {
		case <-r.Context().Done():
			return
		case <-f.ready:
			event.Type = api.Change
			event.Modules, event.Removed = p.states.take(f)
		case <-heartbeat.C():
			if api.Expired(r, p.options.Clock.Now()) {
				return
			}
			event.Stale = p.states.stale()
		}
		if !send(event) {
			return
		}
	}
}

// HealthHandler serves what podserver.HealthHandler does; ready returns what is missing besides a config, or nil.
func (p *Probe) HealthHandler(registry *prometheus.Registry, ready func() error) http.Handler {
	return podserver.HealthHandler(registry, func() bool { return p.Info().ConfigHash != "" }, ready)
}
