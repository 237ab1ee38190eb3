package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/probe"
	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const namespace = "site-a"

// program is the real program on loopback.
type program struct {
	ca                   *probetest.Authority
	dir, address, health string
	controllers, own     *http.Client
	kill                 func()
	ended                chan error
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
	return startAs(t, probetest.NewAuthority(t), config)
}

func startAs(t *testing.T, ca *probetest.Authority, config string) *program {
	t.Helper()
	p := &program{ca: ca, dir: t.TempDir()}
	pair := p.ca.Namespace(t, namespace)
	p.ca.Write(t, p.dir, pair)
	p.configure(t, config)
	p.controllers = peer.HTTPClient(namespace, p.ca.Controllers(t), (&net.Dialer{}).DialContext, false)
	p.own = peer.HTTPClient(namespace, p.ca.Credentials(t, pair), (&net.Dialer{}).DialContext, false)
	p.run(t)
	t.Cleanup(func() { p.stop(t) })
	return p
}

func (p *program) run(t *testing.T) {
	t.Helper()
	p.address, p.health, p.ended = freeAddress(t), freeAddress(t), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	p.kill = cancel
	o := &Options{Flags: podserver.Flags{Config: filepath.Join(p.dir, "config.json"), TLSDir: p.dir, Namespace: namespace, Listen: p.address, HealthListen: p.health}, StateFile: filepath.Join(p.dir, "state.json")}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	go func(ended chan error) { ended <- Run(ctx, o, logr.Discard()) }(p.ended)
	p.wait(t, "ready", func() bool {
		response, err := http.Get("http://" + p.health + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func (p *program) stop(t *testing.T) {
	t.Helper()
	p.kill()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("the program ended with %v", err)
		}
		p.ended <- nil
	case <-time.After(10 * time.Second):
		t.Error("the program did not end within 10 s")
	}
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

// do sends a request and decodes its answer; it returns the status.
func (p *program) do(t *testing.T, client *http.Client, method, path string, body, into any) int {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+p.address+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
	}
	return response.StatusCode
}

func (p *program) tags(t *testing.T) map[string]api.TagValue {
	t.Helper()
	var list api.TagList
	if code := p.do(t, p.own, "GET", api.TagsPath, nil, &list); code != http.StatusOK {
		t.Fatalf("tags: %d", code)
	}
	tags := map[string]api.TagValue{}
	for _, v := range list.Tags {
		tags[v.ControlModule+"/"+v.Name] = v
	}
	return tags
}

func (p *program) order(t *testing.T, o api.Order) (report api.Report) {
	t.Helper()
	o.UID = "unit-1"
	if code := p.do(t, p.controllers, "PUT", api.UnitPath, o, &report); code != http.StatusOK {
		t.Fatalf("order: %d", code)
	}
	return report
}

func text(v api.TagValue) string {
	if v.Value == nil {
		return "nothing"
	}
	return *v.Value
}

func device(t *testing.T) *modbustest.Device {
	t.Helper()
	d := modbustest.New("127.0.0.1:0")
	d.Unit(1).SetHolding(0, 215).SetHolding(1, 7).SetCoil(0, true)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func config(endpoint string, tags ...string) string {
	return fmt.Sprintf(`{"unit":{"name":"mixer","uid":"unit-1","generation":1},"modules":[{"name":"io","uid":"io-1","generation":1,
		"spec":{"protocol":"modbus","modbus":{"endpoint":%q}}}],"tags":[%s]}`, endpoint, strings.Join(tags, ","))
}

const (
	temperature = `{"controlModule":"tank","name":"temperature","ioModule":"io","address":"holding:0","dataType":"int16","period":"100ms","scaling":{"factor":0.1},"unit":"°C"}`
	speed       = `{"controlModule":"stirrer","name":"speed","ioModule":"io","address":"holding:1","dataType":"uint16","access":"ReadWrite","period":"100ms","holdValue":"0"}`
	valve       = `{"controlModule":"tank","name":"valve","ioModule":"io","address":"coil:0","dataType":"bool","access":"ReadWrite","period":"100ms","holdValue":"false"}`
)

// Req: P-14, P-15, P-16b
func TestAUnitIsReadWrittenAndHeld(t *testing.T) {
	plc := device(t)
	p := start(t, config(plc.Endpoint(), temperature, speed, valve))
	p.wait(t, "read", func() bool { v := p.tags(t)["tank/temperature"]; return v.Status.Good() && text(v) == "21.5" })
	if v := p.tags(t)["tank/valve"]; text(v) != "true" {
		t.Errorf("valve %+v", v)
	}

	write := func(value string) (api.WriteResponse, int) {
		var response api.WriteResponse
		code := p.do(t, p.controllers, "PUT", api.TagsPath, api.WriteRequest{UID: "unit-1", Writes: []api.TagWrite{
			{TagKey: api.TagKey{ControlModule: "stirrer", Name: "speed"}, Value: value},
		}}, &response)
		return response, code
	}
	if _, code := write("40"); code != http.StatusConflict {
		t.Errorf("a write before any order: %d", code)
	}
	if report := p.order(t, api.Order{Revision: 1, State: isa88.Running}); !report.Applied {
		t.Errorf("an order to run: %+v", report)
	}
	if response, code := write("40"); code != http.StatusOK || !response.Results[0].Done || plc.Unit(1).Holding(1) != 40 {
		t.Errorf("a write: %d %+v; the device has %d", code, response, plc.Unit(1).Holding(1))
	}
	if response, code := write("70000"); code != http.StatusOK || response.Results[0].Done || response.Results[0].Reason != "InvalidValue" {
		t.Errorf("a write of too much: %d %+v", code, response)
	}

	p.order(t, api.Order{Revision: 2, State: isa88.Holding, Episode: "e1"})
	p.wait(t, "held", func() bool {
		var report api.Report
		p.do(t, p.own, "GET", api.UnitPath, nil, &report)
		return report.Applied && report.Order.Revision == 2
	})
	if plc.Unit(1).Holding(1) != 0 || plc.Unit(1).Coil(0) {
		t.Errorf("after the hold speed %d, valve %v", plc.Unit(1).Holding(1), plc.Unit(1).Coil(0))
	}
	if _, code := write("40"); code != http.StatusConflict {
		t.Errorf("a write while held: %d", code)
	}
	if code := p.do(t, p.own, "PUT", api.UnitPath, api.Order{UID: "unit-1", Revision: 3, State: isa88.Running}, nil); code != http.StatusForbidden {
		t.Errorf("an order of somebody in the namespace: %d", code)
	}
}

// Req: P-15 (the watch), P-16b (a restart)
func TestTheProgramIsFollowedAndRestarted(t *testing.T) {
	plc := device(t)
	p := start(t, config(plc.Endpoint(), speed))
	p.order(t, api.Order{Revision: 5, State: isa88.Holding, Episode: "e1"})

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", "https://"+p.address+api.TagsPath+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.own.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	next := func(is func(api.TagEvent) bool) {
		t.Helper()
		for lines.Scan() {
			var event api.TagEvent
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				t.Fatal(err)
			}
			if is(event) {
				return
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	next(func(e api.TagEvent) bool { return e.Type == api.TagSnapshot })
	next(func(e api.TagEvent) bool {
		return len(e.Tags) == 1 && text(e.Tags[0]) == "0" && e.Tags[0].Status.Good()
	})
	plc.Stop()
	next(func(e api.TagEvent) bool { return len(e.Tags) == 1 && e.Tags[0].Status.Bad() && text(e.Tags[0]) == "0" })
	if err := plc.Start(); err != nil {
		t.Fatal(err)
	}
	next(func(e api.TagEvent) bool { return len(e.Tags) == 1 && e.Tags[0].Status.Good() })
	p.configure(t, config(plc.Endpoint(), temperature))
	next(func(e api.TagEvent) bool {
		return len(e.Removed) == 1 && len(e.Tags) == 1 && e.Tags[0].Name == "temperature"
	})

	p.stop(t)
	p.configure(t, config(plc.Endpoint(), speed))
	plc.Unit(1).SetHolding(1, 99)
	p.run(t)
	p.wait(t, "written again", func() bool { return plc.Unit(1).Holding(1) == 0 })
	if code := p.do(t, p.controllers, "PUT", api.UnitPath, api.Order{UID: "unit-1", Revision: 4, State: isa88.Running}, nil); code != http.StatusConflict {
		t.Errorf("an order of a former leader: %d", code)
	}
}

// Req: P-13, P-14, P-15 (one connection, one probe, two Units)
func TestADeviceOfOneConnectionIsSharedThroughItsProbe(t *testing.T) {
	plc := device(t)
	plc.MaxClients(1)
	ca := probetest.NewAuthority(t)
	shared := probe.New(probe.Options{
		Open:  probe.Drivers{Modbus: modbus.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(4))}.Open,
		Clock: clock.RealClock{}, Seed: 1, BootID: "boot", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(shared.Stop)
	spec := fmt.Sprintf(`"name":"io","uid":"io-1","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":%q,"maxConnections":1}}`, plc.Endpoint())
	supervised, err := probe.ParseConfig([]byte(`{"modules":[{` + spec + `}]}`))
	if err != nil {
		t.Fatal(err)
	}
	shared.Apply(supervised)
	server := httptest.NewUnstartedServer(shared.Handler())
	server.Listener = tls.NewListener(server.Listener, probeapi.ServerConfig(namespace, ca.Credentials(t, ca.Namespace(t, namespace))))
	server.Start()
	t.Cleanup(server.Close)

	var units [2]*program
	for i := range units {
		units[i] = startAs(t, ca, fmt.Sprintf(`{"unit":{"name":"mixer","uid":"unit-1","generation":1},"modules":[{%s,"via":{"address":%q}}],"tags":[%s,%s]}`,
			spec, server.Listener.Addr().String(), temperature, speed))
	}
	for _, p := range units {
		p.wait(t, "read", func() bool { v := p.tags(t)["tank/temperature"]; return v.Status.Good() && text(v) == "21.5" })
		p.order(t, api.Order{Revision: 1, State: isa88.Running})
	}
	for i, p := range units {
		var response api.WriteResponse
		p.do(t, p.controllers, "PUT", api.TagsPath, api.WriteRequest{UID: "unit-1", Writes: []api.TagWrite{
			{TagKey: api.TagKey{ControlModule: "stirrer", Name: "speed"}, Value: fmt.Sprint(40 + i)},
		}}, &response)
		if len(response.Results) != 1 || !response.Results[0].Done || plc.Unit(1).Holding(1) != uint16(40+i) {
			t.Errorf("Unit %d: %+v; the device has %d", i, response, plc.Unit(1).Holding(1))
		}
	}
	units[0].order(t, api.Order{Revision: 2, State: isa88.Holding, Episode: "e"})
	units[0].wait(t, "held", func() bool { return plc.Unit(1).Holding(1) == 0 })
	if n := plc.Accepted(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
	plc.Blackhole(true)
	for _, p := range units {
		p.wait(t, "bad", func() bool { return p.tags(t)["tank/temperature"].Status.Bad() })
		p.wait(t, "lost", func() bool {
			var report api.Report
			p.do(t, p.own, "GET", api.UnitPath, nil, &report)
			return len(report.Modules) == 1 && report.Modules[0].Known && !report.Modules[0].Connected && report.Modules[0].Via == "probe"
		})
	}
}
