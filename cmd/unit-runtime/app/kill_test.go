package app

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// childVariable makes the test's binary be the program.
const childVariable = "UNIT_RUNTIME_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if err := NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is the program in a process of its own, which can be killed.
type child struct {
	program
	process *exec.Cmd
	log     bytes.Buffer
}

func startChild(t *testing.T, config string) *child {
	t.Helper()
	c := &child{program: program{ca: probetest.NewAuthority(t), dir: t.TempDir()}}
	pair := c.ca.Namespace(t, namespace)
	c.ca.Write(t, c.dir, pair)
	c.configure(t, config)
	c.controllers = peer.HTTPClient(namespace, c.ca.Controllers(t), (&net.Dialer{}).DialContext, false)
	c.own = peer.HTTPClient(namespace, c.ca.Credentials(t, pair), (&net.Dialer{}).DialContext, false)
	c.boot(t)
	t.Cleanup(func() {
		c.kill9(t)
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	return c
}

func (c *child) boot(t *testing.T) {
	t.Helper()
	c.address, c.health = freeAddress(t), freeAddress(t)
	c.process = exec.Command(os.Args[0], "--config="+filepath.Join(c.dir, "config.json"), "--tls-dir="+c.dir, "--namespace="+namespace,
		"--listen="+c.address, "--health-listen="+c.health, "--state-file="+filepath.Join(c.dir, "state.json"))
	c.process.Env = append(os.Environ(), childVariable+"=1")
	c.process.Stderr = &c.log
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	c.wait(t, "ready", func() bool {
		response, err := http.Get("http://" + c.health + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

func (c *child) kill9(t *testing.T) {
	t.Helper()
	if c.process == nil {
		return
	}
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
	c.process = nil
}

func (c *child) report(t *testing.T) (report api.Report) {
	t.Helper()
	c.do(t, c.own, "GET", api.UnitPath, nil, &report)
	return report
}

// Req: P-16b (kill -9 between the state file and the device: the hold is done again, without any server)
func TestAHoldSurvivesAKill(t *testing.T) {
	t.Parallel()
	plc := device(t)
	c := startChild(t, config(plc.Endpoint(), speed))
	c.order(t, api.Order{Revision: 1, State: isa88.Running})
	c.wait(t, "read", func() bool { return c.tags(t)["stirrer/speed"].Status.Good() })

	// The device takes its time, so that nothing has reached it when the program is killed.
	plc.Blackhole(true)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		data := strings.NewReader(`{"uid":"unit-1","revision":2,"state":"Holding","episode":"e"}`)
		request, _ := http.NewRequest("PUT", "https://"+c.address+api.UnitPath, data)
		if response, err := c.controllers.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	c.wait(t, "stored", func() bool {
		state, _ := os.ReadFile(filepath.Join(c.dir, "state.json"))
		return strings.Contains(string(state), "Holding")
	})
	c.kill9(t)
	<-sent
	plc.Blackhole(false)
	plc.Unit(1).SetHolding(1, 99)

	c.boot(t)
	c.wait(t, "written", func() bool { return plc.Unit(1).Holding(1) == 0 })
	if report := c.report(t); report.Order == nil || report.Order.Revision != 2 || report.Applied {
		t.Errorf("%+v, before anything was ordered anew", report)
	}
	if report := c.order(t, api.Order{Revision: 2, State: isa88.Holding, Episode: "e"}); !report.Applied {
		t.Errorf("%+v", report)
	}
}

// Req: P-16b (server and device away: held by itself; killed: still held)
func TestALatchSurvivesAKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes longer than api.Contact")
	}
	plc, other := device(t), device(t)
	both := strings.Replace(config(plc.Endpoint(), temperature, strings.Replace(speed, `"ioModule":"io"`, `"ioModule":"drive"`, 1)), `"modules":[`,
		fmt.Sprintf(`"modules":[{"name":"drive","uid":"drive-1","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":%q}}},`, other.Endpoint()), 1)
	c := startChild(t, both)
	c.order(t, api.Order{Revision: 1, State: isa88.Running})
	c.wait(t, "read", func() bool { return c.tags(t)["tank/temperature"].Status.Good() })
	plc.Stop()
	c.wait(t, "lost", func() bool {
		for _, m := range c.report(t).Modules {
			if m.Name == "io" && m.Known && !m.Connected {
				return true
			}
		}
		return false
	})
	if c.report(t).Latch != nil || other.Unit(1).Holding(1) != 7 {
		t.Fatal("held though the server has only been silent for some seconds")
	}
	time.Sleep(api.Contact - 5*time.Second)
	c.wait(t, "held", func() bool { return c.report(t).Latch != nil && other.Unit(1).Holding(1) == 0 })
	latch := c.report(t).Latch

	c.kill9(t)
	other.Unit(1).SetHolding(1, 99)
	c.boot(t)
	c.wait(t, "held again", func() bool { return other.Unit(1).Holding(1) == 0 })
	if now := c.report(t).Latch; now == nil || now.ID != latch.ID || len(now.Modules) != 1 || now.Modules[0] != "io" {
		t.Errorf("%+v, was %+v", now, latch)
	}
	if report := c.order(t, api.Order{Revision: 2, State: isa88.Holding, Episode: "e", LatchAcknowledged: latch.ID}); report.Latch != nil {
		t.Errorf("acknowledged: %+v", report.Latch)
	}
}

// Req: P-14 (neither goroutines nor connections are left behind)
func TestReloadsAndLossesLeaveNothingBehind(t *testing.T) {
	plc := device(t)
	configs := []string{
		config(plc.Endpoint(), temperature, speed),
		strings.Replace(config(plc.Endpoint(), valve), `"endpoint"`, `"unitID":1,"closeAfterPoll":true,"endpoint"`, 1),
		strings.Replace(config(plc.Endpoint(), valve, speed), `"uid":"io-1"`, `"uid":"io-2"`, 1),
		config(plc.Endpoint()),
	}
	p := start(t, configs[0])
	p.wait(t, "read", func() bool { return p.tags(t)["tank/temperature"].Status.Good() })
	before := runtime.NumGoroutine()
	for i := range 40 {
		p.configure(t, configs[i%len(configs)])
		if i%5 == 0 {
			plc.Reset()
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.configure(t, configs[0])
	p.wait(t, "read", func() bool { return p.tags(t)["tank/temperature"].Status.Good() })
	p.wait(t, "rid of goroutines", func() bool { return runtime.NumGoroutine() <= before+3 })
	if n := plc.Open(); n > 1 {
		t.Errorf("%d connections are open", n)
	}
	p.stop(t)
	p.wait(t, "rid of connections", func() bool { return plc.Open() == 0 })
}
