package probe

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

func serverOf(t *testing.T, c clock.WithTicker) (*Probe, *prometheus.Registry, *httptest.Server) {
	t.Helper()
	registry := prometheus.NewRegistry()
	p := New(Options{
		Open:  func(v1alpha1.IOModuleSpec) (driver.Device, error) { return &fakeDevice{behave: answers}, nil },
		Clock: c, Seed: 1, BootID: "boot", Log: logr.Discard(), Registry: registry,
	})
	t.Cleanup(p.Stop)
	server := httptest.NewServer(p.Handler())
	t.Cleanup(server.Close)
	return p, registry, server
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response, string(body)
}

// Req: P-11
func TestAWatchSendsAllThenChangesThenHeartbeats(t *testing.T) {
	// The ticker of the heartbeat is the only one on this clock, so that nothing moves unless the test says so.
	fake := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p, _, server := serverOf(t, fake)
	p.Apply(&Config{Hash: "h1"})
	p.states.set(api.ModuleState{Name: "b", Reason: "Measuring"}, time.Second)
	p.states.set(api.ModuleState{Name: "a", Found: true, Connected: true, MeasuredAt: fake.Now()}, time.Second)

	response, err := http.Get(server.URL + api.ModulesPath + "?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	read := func(want api.EventType) api.Event {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		var e api.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != want || e.Probe.BootID != "boot" || e.Probe.ConfigHash != "h1" || e.Probe.Time.IsZero() {
			t.Fatalf("event %+v, want a %s with boot id, hash and time", e, want)
		}
		return e
	}

	if e := read(api.Snapshot); len(e.Modules) != 2 || e.Modules[0].Name != "a" {
		t.Errorf("snapshot %+v, want a and b", e.Modules)
	}
	p.states.set(api.ModuleState{Name: "b", Found: true, Reason: "Timeout", MeasuredAt: fake.Now()}, time.Minute)
	if e := read(api.Change); len(e.Modules) != 1 || e.Modules[0].Name != "b" || !e.Modules[0].Found {
		t.Errorf("change %+v, want b", e.Modules)
	}
	fake.Step(2 * time.Second)
	if e := read(api.Heartbeat); len(e.Stale) != 1 || e.Stale[0] != "a" || len(e.Modules) != 0 {
		t.Errorf("heartbeat %+v, want a to be stale", e)
	}
	p.states.remove("a")
	if e := read(api.Change); len(e.Removed) != 1 || e.Removed[0] != "a" {
		t.Errorf("change %+v, want a removed", e)
	}
}

func TestTheAPIAnswersBadRequestsWithoutHarm(t *testing.T) {
	_, _, server := serverOf(t, clock.RealClock{})
	for _, c := range []struct {
		path string
		code int
	}{
		{"/", http.StatusNotFound},
		{"/v1/modules/../../etc/passwd", http.StatusNotFound},
		{"/v1/modules?watch=perhaps", http.StatusBadRequest},
		{"/v1/modules?watch=false", http.StatusOK},
		{"/v1/modules", http.StatusOK},
	} {
		if response, body := get(t, server.URL+c.path); response.StatusCode != c.code {
			t.Errorf("GET %s: %d %s, want %d", c.path, response.StatusCode, body, c.code)
		}
	}
	response, err := http.Post(server.URL+api.ModulesPath, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", response.StatusCode)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	_, _, server := serverOf(t, clock.RealClock{})
	for range maxWatches {
		response, err := http.Get(server.URL + api.ModulesPath + "?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("a watch within the bound: %d", response.StatusCode)
		}
	}
	if response, _ := get(t, server.URL+api.ModulesPath+"?watch=1"); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one watch more: %d, want 503", response.StatusCode)
	}
}

// Req: P-11
func TestHealthTellsWhatIsMissing(t *testing.T) {
	p, registry, _ := serverOf(t, clock.RealClock{})
	var missing error
	health := httptest.NewServer(p.HealthHandler(registry, func() error { return missing }))
	defer health.Close()
	want := func(path string, code int, says string) {
		t.Helper()
		if response, body := get(t, health.URL+path); response.StatusCode != code || !strings.Contains(body, says) {
			t.Errorf("GET %s: %d %q, want %d %q", path, response.StatusCode, body, code, says)
		}
	}
	want("/livez", 200, "ok")
	want("/readyz", 503, "no config file")
	want("/metrics", 200, "fieldplane_probe_config_valid 0")
	p.Refuse(io.ErrUnexpectedEOF)
	want("/readyz", 503, "no config file")
	config, err := ParseConfig([]byte(`{"modules":[` + goodEntry + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(config)
	want("/readyz", 200, "ok")
	want("/metrics", 200, `fieldplane_probe_modules{state="Unknown"} 1`)
	want("/metrics", 200, "fieldplane_probe_config_valid 1")
	// A bad file later does not make the probe unready: it goes on measuring.
	p.Refuse(io.ErrUnexpectedEOF)
	want("/readyz", 200, "ok")
	want("/metrics", 200, "fieldplane_probe_config_errors_total 2")
	want("/metrics", 200, "fieldplane_probe_config_valid 0")
	missing = io.EOF
	want("/readyz", 503, "EOF")
	want("/livez", 200, "ok")
}
