package ethernetip

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
	"github.com/fieldplane/fieldplane/test/interop/faultproxy"
)

// The times of a supervisor, at half of their defaults, so that the bounds of P-16 are halved too.
const (
	timeout     = 500 * time.Millisecond
	period      = 500 * time.Millisecond
	faultWithin = 5 * time.Second / 2
	backWithin  = 15 * time.Second / 2
	threshold   = 3
)

// behind starts a controller with a proxy before it, and opens it through the proxy.
func behind(t *testing.T) (*ethernetiptest.Device, *faultproxy.Proxy, driver.Device) {
	t.Helper()
	d := ethernetiptest.New("127.0.0.1:0").Route(1, 2).Add("Level", ethernetiptest.REAL)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	p := faultproxy.Start(t, d.Addr())
	drv := ethernetip.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20), 7)
	device, err := drv.Open(ethernetip.Config{
		Endpoint: "tcp://" + p.Addr(), Path: "1,2", Timeout: timeout, Channels: []driver.Channel{{Name: "level", Address: "Level"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return d, p, device
}

// checkAt does checks once per period until the condition holds, and returns how long that took.
func checkAt(t *testing.T, device driver.Device, bound time.Duration, what string, enough func(error) bool) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 2*bound {
		next := time.Now().Add(period)
		ctx, cancel := context.WithTimeout(t.Context(), 4*timeout)
		_, err := device.Check(ctx)
		cancel()
		if enough(err) {
			return time.Since(began)
		}
		time.Sleep(time.Until(next))
	}
	t.Fatalf("after %s still not: %s", 2*bound, what)
	return 0
}

// Req: P-13, P-16 (each failure class: Fault in time and for its own reason, back in time by itself)
func TestEveryFailureOfTheNetworkIsAFaultAndPasses(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*faultproxy.Proxy)
		// want is the reason of the fault; empty for what must be no fault at all.
		want driver.Reason
		mend func(*faultproxy.Proxy) error
	}{
		{"a cut cable", func(p *faultproxy.Proxy) { p.Blackhole(true) }, driver.ReasonTimeout,
			func(p *faultproxy.Proxy) error { p.Blackhole(false); return nil }},
		{"nothing listens", (*faultproxy.Proxy).Refuse, driver.ReasonRefused, (*faultproxy.Proxy).Accept},
		{"replies that come too late", func(p *faultproxy.Proxy) { p.Delay(2 * timeout) }, driver.ReasonTimeout,
			func(p *faultproxy.Proxy) error { p.Delay(0); return nil }},
		{"bytes that trickle", func(p *faultproxy.Proxy) { p.SlowBytes(timeout / 10) }, driver.ReasonTimeout,
			func(p *faultproxy.Proxy) error { p.SlowBytes(0); return nil }},
		{"another protocol", func(p *faultproxy.Proxy) {
			p.Rewrite(func([]byte) []byte { return []byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n") })
		}, driver.ReasonProtocolError,
			func(p *faultproxy.Proxy) error { p.Rewrite(nil); return nil }},
		{"a reset", (*faultproxy.Proxy).Reset, "", nil},
		{"a half-open connection", (*faultproxy.Proxy).HalfOpen, "", nil},
		{"one late reply", func(p *faultproxy.Proxy) { p.DelayNext(timeout * 3 / 2) }, "", nil},
		{"slow bytes that are in time", func(p *faultproxy.Proxy) { p.SlowBytes(time.Millisecond) }, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, p, device := behind(t)
			good := func(err error) bool { return err == nil }
			checkAt(t, device, backWithin, "it answers", good)

			c.fault(p)
			failures := 0
			if c.want == "" {
				for range 6 {
					ctx, cancel := context.WithTimeout(t.Context(), 4*timeout)
					if _, err := device.Check(ctx); err == nil {
						failures = 0
					} else if failures++; failures == threshold {
						t.Errorf("it is a fault: %v", err)
					}
					cancel()
				}
				if failures > 0 {
					t.Error("it did not pass")
				}
				return
			}
			var last error
			took := checkAt(t, device, faultWithin, "it is a fault", func(err error) bool {
				if last = err; err == nil {
					failures = 0
				} else {
					failures++
				}
				return failures == threshold
			})
			if driver.ReasonOf(last) != c.want || took > faultWithin {
				t.Errorf("a fault after %s: %v; want %s within %s", took, last, c.want, faultWithin)
			}
			if err := c.mend(p); err != nil {
				t.Fatal(err)
			}
			if took := checkAt(t, device, backWithin, "it is back", good); took > backWithin {
				t.Errorf("back after %s, want at most %s", took, backWithin)
			}
			if n := d.Connections(); n != 1 {
				t.Errorf("%d CIP connections after all", n)
			}
		})
	}
}

// Req: P-13 (no leaked socket, goroutine or session after 1,000 faults, counted)
func TestNothingIsLeakedByAThousandFaults(t *testing.T) {
	d, p, device := behind(t)
	if _, err := device.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for i := range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		switch i % 5 {
		case 0:
			p.Reset()
		case 1:
			p.HalfOpen()
		case 2:
			p.Refuse()
		case 3:
			p.Blackhole(true)
		case 4:
			p.Rewrite(func(reply []byte) []byte { return reply[:len(reply)/2] })
		}
		_, _ = device.Check(ctx)
		cancel()
		p.Blackhole(false)
		p.Rewrite(nil)
		if err := p.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	good := func(err error) bool { return err == nil }
	checkAt(t, device, backWithin, "it is back", good)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		g, f, s, c := runtime.NumGoroutine(), descriptors(), d.Sessions(), d.Connections()
		if g <= goroutines && f <= files && s == 1 && c == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d descriptors, %d sessions, %d CIP connections; before the faults %d and %d, and one of each", g, f, s, c, goroutines, files)
		}
	}
}
