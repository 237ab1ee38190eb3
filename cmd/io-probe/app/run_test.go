package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
)

const namespace = "site-a"

// program is the real program on loopback, with a client that follows it as the controller does.
type program struct {
	ca      *probetest.Authority
	dir     string
	address string
	health  string
	client  *probeclient.Client
	updates chan probeclient.Update
	stop    context.CancelFunc
	ended   chan error
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func start(t *testing.T, config string) *program {
	t.Helper()
	p := &program{
		ca: probetest.NewAuthority(t), dir: t.TempDir(),
		address: freeAddress(t), health: freeAddress(t),
		updates: make(chan probeclient.Update, 1000), ended: make(chan error, 1),
	}
	p.ca.Write(t, p.dir, p.ca.Namespace(t, namespace))
	p.configure(t, config)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	o := &Options{Flags: podserver.Flags{Config: filepath.Join(p.dir, "config.json"), TLSDir: p.dir, Namespace: namespace, Listen: p.address, HealthListen: p.health}}
	go func() { p.ended <- Run(ctx, o, logr.Discard()) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-p.ended:
			if err != nil {
				t.Errorf("the program ended with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the program did not end within 10 s")
		}
	})
	p.client = probeclient.New(p.address, namespace, p.ca.Controllers(t), (&net.Dialer{}).DialContext, clock.RealClock{})
	p.wait(t, "ready", func() bool {
		response, err := http.Get("http://" + p.health + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	watching, endWatch := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- p.client.Watch(watching, func(u probeclient.Update) { p.updates <- u }) }()
	t.Cleanup(func() { endWatch(); <-watched })
	return p
}

func (p *program) wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s within 10 s", what)
		}
	}
}

// configure replaces the config file at once, as a mounted ConfigMap is.
func (p *program) configure(t *testing.T, config string) {
	t.Helper()
	path := filepath.Join(p.dir, "config.json")
	if err := os.WriteFile(path+".new", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// until follows the stream until it says so of a module, and returns how long that took.
func (p *program) until(t *testing.T, name, what string, within time.Duration, is func(api.ModuleState) bool) time.Duration {
	t.Helper()
	began := time.Now()
	timeout := time.After(within)
	var last api.ModuleState
	for {
		select {
		case u := <-p.updates:
			if last = u.Modules[name]; last.Name == name && is(last) {
				return time.Since(began)
			}
		case <-timeout:
			t.Fatalf("module %s is not %s within %s: %+v", name, what, within, last)
		}
	}
}

func online(m api.ModuleState) bool { return m.Found && m.Connected }
func fault(m api.ModuleState) bool  { return m.Found && !m.Connected }

func module(name string, generation, unit int, endpoint string) string {
	return fmt.Sprintf(`{"name":%q,"uid":"uid-%s","generation":%d,"spec":{"protocol":"modbus","modbus":{"endpoint":%q,"unitID":%d}}}`, name, name, generation, endpoint, unit)
}

func config(modules ...string) string {
	return `{"modules":[` + strings.Join(modules, ",") + `]}`
}

func device(t *testing.T, units ...byte) *modbustest.Device {
	t.Helper()
	d := modbustest.New("127.0.0.1:0")
	for _, id := range units {
		d.Unit(id).SetHolding(0, 1).SetIdentity(map[byte]string{0: "Acme", 1: "IO-8", 2: "1.4"})
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Req: P-06, P-11, P-16 (silent → Fault ≤ 5 s, back → Online ≤ 15 s, for a device that stops and for one that falls silent)
func TestADeviceIsLostAndComesBackInTime(t *testing.T) {
	// Side by side, to save time: one that stops, one that falls silent, and one that stays.
	stops, silent, stays := device(t, 1), device(t, 1), device(t, 1)
	p := start(t, config(
		module("stops", 1, 1, stops.Endpoint()),
		module("silent", 1, 1, silent.Endpoint()),
		module("stays", 1, 1, stays.Endpoint()),
	))
	all := map[string]api.ModuleState{}
	reach := func(what string, within time.Duration, is func(api.ModuleState) bool, names ...string) {
		t.Helper()
		began := time.Now()
		for _, name := range names {
			if !is(all[name]) {
				p.until(t, name, what, within-time.Since(began), is)
			}
			list, err := p.client.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list.Modules {
				all[m.Name] = m
			}
		}
		t.Logf("%v %s after %s", names, what, time.Since(began))
	}
	reach("online with its identity", 5*time.Second, func(m api.ModuleState) bool {
		return online(m) && m.Identity != nil && m.Identity.Product == "IO-8"
	}, "stops", "silent", "stays")

	stops.Stop()
	silent.Blackhole(true)
	reach("fault", 5*time.Second, fault, "stops", "silent")
	if got := all["stops"].Reason; got != "Refused" {
		t.Errorf("the stopped device has the reason %s, want Refused", got)
	}
	if got := all["silent"].Reason; got != "Timeout" {
		t.Errorf("the silent device has the reason %s, want Timeout", got)
	}
	if !online(all["stays"]) {
		t.Errorf("the other device: %+v, want Online", all["stays"])
	}

	if err := stops.Start(); err != nil {
		t.Fatal(err)
	}
	silent.Blackhole(false)
	reach("online again", 15*time.Second, online, "stops", "silent")
	if n := stays.Accepted(); n != 1 {
		t.Errorf("%d connections to the device that stayed, want 1", n)
	}
}

// Req: P-11, P-13 (hot reload leaves other modules' connections alone; units share one connection)
func TestAReloadTouchesOnlyTheChangedModule(t *testing.T) {
	gateway, moved, target := device(t, 1, 2, 3), device(t, 1), device(t, 1)
	gateway.MaxClients(1)
	units := []string{
		module("u1", 1, 1, gateway.Endpoint()),
		module("u2", 1, 2, gateway.Endpoint()),
		module("u3", 1, 3, gateway.Endpoint()),
	}
	p := start(t, config(append(units, module("m", 1, 1, moved.Endpoint()))...))
	for _, name := range []string{"u1", "u2", "u3", "m"} {
		p.wait(t, name+" online", func() bool {
			list, err := p.client.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list.Modules {
				if m.Name == name {
					return online(m)
				}
			}
			return false
		})
	}
	before, err := p.client.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	p.configure(t, `{"modules":`)
	p.wait(t, "told of the bad file", func() bool {
		list, err := p.client.List(t.Context())
		return err == nil && list.Probe.ConfigError != "" && list.Probe.ConfigHash == before.Probe.ConfigHash && len(list.Modules) == 4
	})

	p.configure(t, config(append(units, module("m", 2, 1, target.Endpoint()), `{"name":"bad","spec":{"protocol":"modbus"}}`)...))
	p.until(t, "m", "online at its new place", 10*time.Second, func(m api.ModuleState) bool { return online(m) && m.Generation == 2 })
	after, err := p.client.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.Probe.ConfigHash == before.Probe.ConfigHash || after.Probe.ConfigError != "" || after.Probe.BootID != before.Probe.BootID {
		t.Errorf("probe %+v, before %+v", after.Probe, before.Probe)
	}
	for _, m := range after.Modules {
		switch {
		case m.Name == "bad":
			if m.Found || m.Reason != "ConfigurationError" {
				t.Errorf("the bad entry: %+v", m)
			}
		case !online(m) || m.Stale:
			t.Errorf("module %+v, want Online", m)
		}
	}
	if n := gateway.Accepted(); n != 1 {
		t.Errorf("%d connections to the gateway of three units, want 1", n)
	}
	p.wait(t, "gone from its old place", func() bool { return moved.Open() == 0 })
	if n := target.Accepted(); n != 1 {
		t.Errorf("%d connections to the new place, want 1", n)
	}
}

// Req: P-11, P-12
func TestTheAPIIsClosedToOtherNamespaces(t *testing.T) {
	p := start(t, config())
	wrong := probeclient.New(p.address, namespace, p.ca.Credentials(t, p.ca.Namespace(t, "site-b")), (&net.Dialer{}).DialContext, clock.RealClock{})
	if list, err := wrong.List(t.Context()); err == nil {
		t.Errorf("another namespace got %+v", list)
	}
	own := probeclient.New(p.address, namespace, p.ca.Credentials(t, p.ca.Namespace(t, namespace)), (&net.Dialer{}).DialContext, clock.RealClock{})
	if _, err := own.List(t.Context()); err != nil {
		t.Errorf("the own namespace: %v", err)
	}
	response, err := http.Get("http://" + p.address + api.ModulesPath)
	if err == nil {
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if json.Valid(body) || response.StatusCode == http.StatusOK {
			t.Errorf("without TLS: %d %s", response.StatusCode, body)
		}
	}

	// New certificates count from the next connection on.
	next := probetest.NewAuthority(t)
	next.Write(t, p.dir, next.Namespace(t, namespace))
	renewed := probeclient.New(p.address, namespace, next.Controllers(t), (&net.Dialer{}).DialContext, clock.RealClock{})
	if _, err := renewed.List(t.Context()); err != nil {
		t.Errorf("with the new authority: %v", err)
	}
	if _, err := own.List(t.Context()); err == nil {
		t.Error("the former authority is still trusted")
	}
}

// Req: P-11
func TestTheProgramEndsAtOnceWithStreamsOpen(t *testing.T) {
	d := device(t, 1)
	d.Blackhole(true)
	p := start(t, config(module("a", 1, 1, d.Endpoint())))
	<-p.updates
	began := time.Now()
	p.stop()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
		p.ended <- nil
	case <-time.After(10 * time.Second):
		t.Fatal("still there after 10 s")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s to end", took)
	}
}

// Req: P-06, P-11
func TestChannelsAndMetricsAreServedOverMutualTLS(t *testing.T) {
	dev := device(t, 1)
	p := start(t, fmt.Sprintf(`{"modules":[{"name":"mixer","uid":"u-1","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":%q,"unitID":1},
		"channels":[{"name":"flow","address":"holding:0","unit":"bar"},{"name":"gone","address":"holding:9999"}]}}]}`, dev.Endpoint()))
	p.until(t, "mixer", "discovered", 10*time.Second, func(m api.ModuleState) bool {
		return online(m) && m.Channels.Count == 2 && m.Channels.Refused == 1
	})
	first, err := p.client.Channels(t.Context(), "u-1", 1, "")
	if err != nil || first.Module != "mixer" || first.Total != 2 || len(first.Items) != 1 || first.Items[0].Unit != "bar" {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := p.client.Channels(t.Context(), "mixer", 1, first.Continue)
	if err != nil || second.Continue != "" || second.Items[0].Name != "gone" || second.Items[0].Problem != driver.ReasonConfigurationError {
		t.Fatalf("%+v, %v", second, err)
	}
	_, err = p.client.Channels(t.Context(), "nobody", 1, "")
	if failure, ok := errors.AsType[*api.Error](err); !ok || failure.Reason != api.ErrorNotFound {
		t.Errorf("%v, want NotFound", err)
	}
	response, err := http.Get("http://" + p.health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if text := string(body); strings.Contains(text, "mixer") || !strings.Contains(text, `fieldplane_probe_dials_total{protocol="modbus",reason="Connected"} 1`) {
		t.Errorf("metrics without a certificate: %s", text)
	}
}
