package modbus

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/test/interop/faultproxy"
)

// The times that an operator is promised (P-16), with the defaults of a module.
const (
	firstContact = 5 * time.Second
	toFault      = 5 * time.Second
	toOnline     = 15 * time.Second
)

// site is a probe as io-probe runs it.
type site struct {
	*testing.T
	*probe.Probe
}

// supervise supervises units 1 to n behind an endpoint as the modules u1 to un.
func supervise(t *testing.T, endpoint string, units ...int) *site {
	t.Helper()
	var entries []string
	for _, u := range units {
		entries = append(entries, fmt.Sprintf(`{"name":"u%d","uid":"uid-%d","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":%q,"unitID":%d},
			"channels":[{"name":"a","address":"holding:0"},{"name":"b","address":"holding:29"}]}}`, u, u, endpoint, u))
	}
	c, err := probe.ParseConfig([]byte(`{"modules":[` + strings.Join(entries, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, probe.New(probe.Options{
		Open:  probe.Drivers{Modbus: newDriver()}.Open,
		Clock: clock.RealClock{}, Seed: 1, BootID: "boot", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
	})}
	t.Cleanup(s.Stop)
	s.Apply(c)
	return s
}

func (s *site) state(unit int) api.ModuleState {
	s.Helper()
	for _, m := range s.List().Modules {
		if m.Name == fmt.Sprint("u", unit) {
			return m
		}
	}
	s.Fatalf("no state of unit %d", unit)
	return api.ModuleState{}
}

// within waits until the unit is as wanted, and returns how long that took.
func (s *site) within(unit int, what string, limit time.Duration, is func(api.ModuleState) bool) time.Duration {
	s.Helper()
	began := time.Now()
	for !is(s.state(unit)) {
		if time.Since(began) > limit {
			s.Fatalf("unit %d is not %s within %s: %+v", unit, what, limit, s.state(unit))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

func online(m api.ModuleState) bool { return m.Found && m.Connected }
func fault(m api.ModuleState) bool  { return m.Found && !m.Connected }

// Req: P-06, P-16 (silent → Fault in 5 s; back → Online in 15 s, by itself)
func TestADeviceIsLostAndComesBackInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault, repair func(*peer, *faultproxy.Proxy, *testing.T)
		reasons       []driver.Reason
	}{
		"a cut cable": {
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.Blackhole(true) },
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.Blackhole(false) },
			[]driver.Reason{driver.ReasonTimeout},
		},
		"a host without the program": {
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.Refuse() },
			func(_ *peer, n *faultproxy.Proxy, t *testing.T) {
				if err := n.Accept(); err != nil {
					t.Error(err)
				}
			},
			[]driver.Reason{driver.ReasonRefused},
		},
		"a program that is killed": {
			func(p *peer, _ *faultproxy.Proxy, _ *testing.T) { p.stop() },
			func(p *peer, _ *faultproxy.Proxy, t *testing.T) { p.start(t) },
			[]driver.Reason{driver.ReasonConnectionLost, driver.ReasonRefused},
		},
		"a network that is too slow": {
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.Delay(1500 * time.Millisecond) },
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.Delay(0) },
			[]driver.Reason{driver.ReasonTimeout},
		},
		"bytes that drip": {
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.SlowBytes(500 * time.Millisecond) },
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.SlowBytes(0) },
			[]driver.Reason{driver.ReasonTimeout},
		},
		"another protocol on the port": {
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) {
				n.Rewrite(func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") })
			},
			func(_ *peer, n *faultproxy.Proxy, _ *testing.T) { n.Rewrite(nil) },
			[]driver.Reason{driver.ReasonProtocolError},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withEach(t, func(t *testing.T, p *peer, network *faultproxy.Proxy) {
				s := supervise(t, endpoint(network), 1)
				s.within(1, "online", firstContact, online)
				s.within(1, "discovered", firstContact, func(m api.ModuleState) bool { return m.Channels.Count == 2 && m.Channels.Refused == 1 })
				c.fault(p, network, t)
				took := s.within(1, "in fault", toFault, fault)
				if m := s.state(1); !slices.Contains(c.reasons, driver.Reason(m.Reason)) || m.Message == "" {
					t.Errorf("%+v, want %v", m, c.reasons)
				}
				time.Sleep(3 * time.Second)
				c.repair(p, network, t)
				t.Logf("fault after %s, online after %s", took, s.within(1, "online", toOnline, online))
			})
		})
	}
}

// Req: P-06 (a link that is half open is told from one that works)
func TestAHalfOpenConnectionIsReplacedWithoutAFault(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		s := supervise(t, endpoint(network), 1)
		s.within(1, "online", firstContact, online)
		network.HalfOpen()
		for range 80 {
			time.Sleep(100 * time.Millisecond)
			if m := s.state(1); !online(m) || m.Stale {
				t.Fatalf("%+v", m)
			}
		}
		if n := network.Reached(); n != 2 {
			t.Errorf("%d connections reached the device", n)
		}
	})
}

// Req: P-16 (ten silent unit ids do not fault an eleventh on the same gateway)
func TestTenSilentUnitsDoNotFaultAnEleventh(t *testing.T) {
	t.Parallel()
	network := faultproxy.Start(t, pymodbus(t).address)
	units := []int{1}
	for u := range 10 {
		units = append(units, 100+u)
	}
	s := supervise(t, endpoint(network), units...)
	s.within(1, "online", firstContact, online)
	for _, u := range units[1:] {
		s.within(u, "in fault", 3*toFault, fault)
	}
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		if m := s.state(1); !online(m) || m.Stale {
			t.Fatalf("%+v", m)
		}
	}
	if n := network.Open(); n != 1 {
		t.Errorf("%d connections", n)
	}
	// That all of them fall silent is still found out in time.
	network.Blackhole(true)
	s.within(1, "in fault", toFault, fault)
	network.Blackhole(false)
	s.within(1, "online", toOnline, online)
}

// Req: P-13 (malformed replies: the probe lives, and the module says ProtocolError)
func TestSpoiledRepliesEndNothing(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		const timeout = 50 * time.Millisecond
		d := open(t, newDriver(), modbus.Config{Endpoint: endpoint(network), Timeout: timeout, Verify: true, Channels: []driver.Channel{{Name: "a", Address: "holding:0", DataType: driver.Float64}}})
		random := rand.New(rand.NewPCG(1, 2))
		network.Rewrite(func(reply []byte) []byte {
			for range 1 + random.IntN(3) {
				switch random.IntN(4) {
				case 0:
					reply = reply[:random.IntN(len(reply)+1)]
				case 1:
					reply = append(reply, byte(random.Uint32()))
				default:
					if len(reply) > 0 {
						reply[random.IntN(len(reply))] = byte(random.Uint32())
					}
				}
			}
			return reply
		})
		reasons := map[driver.Reason]int{}
		for range 300 {
			if _, err := d.Check(t.Context()); err != nil {
				reasons[driver.ReasonOf(err)]++
			}
			_, _ = d.Identify(t.Context())
			_, _ = d.Channels(t.Context(), 0)
		}
		if reasons[driver.ReasonProtocolError] == 0 {
			t.Errorf("%v, want some of ProtocolError", reasons)
		}
		network.Rewrite(nil)
		mustRecover(t, d)
	})
}

// Req: P-13 (no leaked socket or goroutine after 1,000 faults). It counts those of the whole process, and runs alone.
func TestAThousandFaultsLeaveNothingBehind(t *testing.T) {
	p := modbusSerial(t)
	network := faultproxy.Start(t, p.address)
	drv := newDriver()
	d := open(t, drv, modbus.Config{Endpoint: endpoint(network), Timeout: 30 * time.Millisecond})
	mustRecover(t, d)
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	for i := range 1000 {
		switch i % 5 {
		case 0:
			network.Reset()
		case 1:
			network.Rewrite(func(reply []byte) []byte { return reply[:len(reply)/2] })
			_, _ = d.Check(t.Context())
			network.Rewrite(nil)
		case 2:
			network.HalfOpen()
		case 3:
			network.Rewrite(func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") })
			_, _ = d.Check(t.Context())
			network.Rewrite(nil)
		case 4:
			network.Refuse()
			_, _ = d.Check(t.Context())
			if err := network.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = d.Check(t.Context())
	}
	mustRecover(t, d)
	settled := func() bool {
		return network.Open() <= 1 && runtime.NumGoroutine() <= goroutines+2 && openDescriptors(t) <= descriptors+2
	}
	for end := time.Now().Add(10 * time.Second); !settled() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if !settled() {
		t.Errorf("%d connections, %d goroutines for %d, %d descriptors for %d", network.Open(), runtime.NumGoroutine(), goroutines, openDescriptors(t), descriptors)
	}
	if err := d.Close(); err != nil || drv.Endpoints() != 0 {
		t.Errorf("%v, %d endpoints", err, drv.Endpoints())
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
