package probe

import (
	"bufio"
	"encoding/json"
	"fmt"
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
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
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

// Req: P-06
func TestChannelsAreServedInPages(t *testing.T) {
	p, _, server := serverOf(t, clock.RealClock{})
	p.states.set(api.ModuleState{Name: "mixer", UID: "u-1", Found: true, Connected: true}, time.Second)
	p.states.set(api.ModuleState{Name: "dark", UID: "u-2", Reason: "Measuring"}, time.Second)
	p.catalogue.put(Module{Name: "mixer", UID: "u-1"}, 1, found(1200), time.Unix(1, 0))
	for _, c := range []struct {
		name, module, query string
		code, items         int
		more                bool
		reason              api.ErrorReason
	}{
		{"by name", "mixer", "", 200, api.DefaultPage, true, ""},
		{"by uid", "u-1", "?limit=1200", 200, api.MaxPage, true, ""},
		{"with a limit", "mixer", "?limit=3", 200, 3, true, ""},
		{"without such a module", "nobody", "", 404, 0, false, api.ErrorNotFound},
		{"before they are known", "dark", "", 409, 0, false, api.ErrorNotDiscovered},
		{"with no number", "mixer", "?limit=many", 400, 0, false, api.ErrorInvalid},
		{"with none at all", "mixer", "?limit=0", 400, 0, false, api.ErrorInvalid},
		{"with a token of nothing", "mixer", "?continue=%2F", 400, 0, false, api.ErrorInvalid},
		{"with a token of another time", "mixer", "?continue=" + tokenOf("other-1", 3), 410, 0, false, api.ErrorExpired},
		{"with a way out", "..%2F..%2Fmixer", "", 404, 0, false, api.ErrorNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			response, body := get(t, server.URL+api.ModulesPath+"/"+c.module+"/channels"+c.query)
			var answer struct {
				api.ChannelPage
				api.Error
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if response.StatusCode != c.code || len(answer.Items) != c.items || (answer.Continue != "") != c.more || answer.Reason != c.reason ||
				(c.reason != "") != (answer.Message != "") || response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d: %.300s", response.StatusCode, body)
			}
		})
	}
}

// Req: P-12 (what names modules is told under the certificate of the namespace alone)
func TestMetricsOfModulesAreServedWithTheAPIAndGoWithTheModules(t *testing.T) {
	p, registry, server := serverOf(t, clock.RealClock{})
	health := httptest.NewServer(p.HealthHandler(registry, func() error { return nil }))
	defer health.Close()
	c, err := ParseConfig([]byte(`{"modules":[` + entry("mixer", "tcp://a", 1) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(c)
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, body := get(t, server.URL+podserver.MetricsPath)
		if strings.Contains(body, `fieldplane_probe_module_connects_total{module="mixer"} 1`) && strings.Contains(body, `fieldplane_probe_discoveries_total{reason="Discovered"} 1`) {
			if !strings.Contains(body, `fieldplane_probe_module_check_duration_seconds_count{module="mixer"}`) {
				t.Error(body)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(body)
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.modules.modules["mixer"].observe(failure, &driver.Error{Reason: driver.ReasonTimeout}, time.Second)
	if _, body := get(t, server.URL+podserver.MetricsPath); !strings.Contains(body, `fieldplane_probe_module_check_failures_total{module="mixer",reason="Timeout"} 1`) {
		t.Error(body)
	}
	if _, body := get(t, health.URL+podserver.MetricsPath); strings.Contains(body, "mixer") || !strings.Contains(body, "fieldplane_probe_checks_total") {
		t.Errorf("without a certificate: %s", body)
	}
	p.Apply(&Config{Hash: "h2"})
	if _, body := get(t, server.URL+podserver.MetricsPath); strings.Contains(body, "mixer") {
		t.Errorf("after the module went: %s", body)
	}
}

func TestOnlySoManyModulesHaveSeries(t *testing.T) {
	c := newModulesMetrics()
	for i := range maxModuleSeries + 10 {
		c.put(fmt.Sprint(i), &moduleMetrics{})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > maxModuleSeries {
			t.Errorf("%d series of %s", n, f.GetName())
		}
	}
}
