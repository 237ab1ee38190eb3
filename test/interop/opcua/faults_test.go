package opcua

import (
	"context"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/test/interop/faultproxy"
)

// behind is the server behind a network that fails on command.
func behind(t testing.TB, s *server) (*faultproxy.Proxy, opcua.Config) {
	t.Helper()
	proxy := faultproxy.Start(t, fmt.Sprintf("127.0.0.1:%d", s.Port))
	return proxy, opcua.Config{
		Endpoint: "opc.tcp://" + proxy.Addr() + "/plant", SecurityPolicy: opcua.PolicyBasic256Sha256, TrustedThumbprint: s.Thumbprint,
	}
}

// lost checks until three checks in a row have failed, as the probe's debounce asks, and returns how long that took and the reasons.
func lost(t testing.TB, device driver.Device) (time.Duration, []driver.Reason) {
	t.Helper()
	started := time.Now()
	var reasons []driver.Reason
	for time.Since(started) < 20*time.Second {
		begun := time.Now()
		if _, err := device.Check(context.Background()); err != nil {
			if reasons = append(reasons, driver.ReasonOf(err)); len(reasons) == 3 {
				return time.Since(started), reasons
			}
		} else {
			reasons = nil
		}
		// The probe's period of one second.
		time.Sleep(time.Until(begun.Add(time.Second)))
	}
	t.Fatalf("it is not lost: %v", reasons)
	return 0, nil
}

// back checks until the device answers, and returns how long that took.
func back(t testing.TB, device driver.Device) time.Duration {
	t.Helper()
	started := time.Now()
	for time.Since(started) < 30*time.Second {
		if _, err := device.Check(context.Background()); err == nil {
			return time.Since(started)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("it does not come back")
	return 0
}

// Req: P-16; gopcua#828 (a cable cut), telegraf#18787 (new sessions)
func TestEveryFailureOfTheNetworkIsSeenAndOverByItself(t *testing.T) {
	s := shared(t)
	for _, c := range []struct {
		name     string
		fail     func(*faultproxy.Proxy)
		heal     func(*faultproxy.Proxy)
		reasons  []driver.Reason
		sessions int
	}{
		{"a black hole", func(p *faultproxy.Proxy) { p.Blackhole(true) }, func(p *faultproxy.Proxy) { p.Blackhole(false) },
			[]driver.Reason{driver.ReasonTimeout}, 2},
		{"nobody listens", func(p *faultproxy.Proxy) { p.Refuse() }, func(p *faultproxy.Proxy) { _ = p.Accept() },
			[]driver.Reason{driver.ReasonRefused, driver.ReasonConnectionLost}, 1},
		{"replies that take too long", func(p *faultproxy.Proxy) { p.Delay(3 * time.Second) }, func(p *faultproxy.Proxy) { p.Delay(0) },
			[]driver.Reason{driver.ReasonTimeout}, 3},
		{"bytes that drip", func(p *faultproxy.Proxy) { p.SlowBytes(200 * time.Millisecond) }, func(p *faultproxy.Proxy) { p.SlowBytes(0) },
			[]driver.Reason{driver.ReasonTimeout}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy, config := behind(t, s)
			device := open(t, newDriver(nil), config)
			check(t, device)
			before := s.counts(t).Cumulated
			c.fail(proxy)
			took, reasons := lost(t, device)
			for _, reason := range reasons {
				if !slices.Contains(c.reasons, reason) {
					t.Errorf("the reason is %s", reason)
				}
			}
			if took > 4500*time.Millisecond {
				t.Errorf("the third failure came after %s", took)
			}
			c.heal(proxy)
			returned := back(t, device)
			if returned > 9*time.Second {
				t.Errorf("back after %s", returned)
			}
			if n := s.counts(t).Cumulated - before; n > c.sessions {
				t.Errorf("%d new sessions", n)
			}
			t.Logf("lost after %s, back after %s", took, returned)
		})
	}
	t.Run("a reset and a half-open connection", func(t *testing.T) {
		proxy, config := behind(t, s)
		device := open(t, newDriver(nil), config)
		check(t, device)
		proxy.Reset()
		back(t, device)
		proxy.HalfOpen()
		if took := back(t, device); took > 6*time.Second {
			t.Errorf("back after %s", took)
		}
	})
	t.Run("a reply that is late once", func(t *testing.T) {
		proxy, config := behind(t, s)
		device := open(t, newDriver(nil), config)
		check(t, device)
		before := s.counts(t).Cumulated
		proxy.DelayNext(1300 * time.Millisecond)
		if _, err := device.Check(t.Context()); driver.ReasonOf(err) != driver.ReasonTimeout {
			t.Errorf("%v", err)
		}
		if took := back(t, device); took > time.Second || s.counts(t).Cumulated != before {
			t.Errorf("back after %s, with %d new sessions", took, s.counts(t).Cumulated-before)
		}
	})
	t.Run("replies that are spoiled", func(t *testing.T) {
		proxy, config := behind(t, s)
		device := open(t, newDriver(nil), config)
		check(t, device)
		proxy.Rewrite(func(reply []byte) []byte {
			for i := 20; i < len(reply); i += 7 {
				reply[i] ^= 0x55
			}
			return reply
		})
		if _, err := device.Check(t.Context()); driver.ReasonOf(err) != driver.ReasonProtocolError {
			t.Errorf("%v", err)
		}
		proxy.Rewrite(nil)
		back(t, device)
	})
}

// Req: P-16; telegraf#18787
func TestARestartOfTheServerCostsASessionAndNotThousands(t *testing.T) {
	first := start(t, settings{Variables: 10})
	device := open(t, newDriver(nil), opcua.Config{Endpoint: first.endpoint(), TrustedThumbprint: first.Thumbprint})
	check(t, device)
	first.stop()
	if _, err := device.Check(t.Context()); err == nil {
		t.Error("a server that is gone answers")
	}
	second := start(t, settings{Variables: 10, Port: first.Port})
	if second.Thumbprint != first.Thumbprint {
		t.Fatal("the server has another certificate")
	}
	took := back(t, device)
	time.Sleep(2 * time.Second)
	check(t, device)
	// One, unless a loaded machine takes longer to open it than there is time.
	if n := second.counts(t).Cumulated; n > 3 {
		t.Errorf("%d sessions", n)
	}
	t.Logf("back after %s", took)
}

// Req: P-13; plc4x#1589 (BadTooManySessions from unclosed sessions)
func TestSessionsThatACrashLeftBehindAreWaitedFor(t *testing.T) {
	s := start(t, settings{Variables: 10, MaxSessions: 2})
	// Two sessions that nobody ever closes.
	var abandoned []net.Conn
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			abandoned = append(abandoned, conn)
		}
		return conn, err
	}
	for range 2 {
		d := opcua.New(dial, driver.NewConnectLimit(20), opcua.Options{})
		crashed, err := d.Open(s.plain())
		if err != nil {
			t.Fatal(err)
		}
		check(t, crashed)
		t.Cleanup(func() { _ = crashed.Close() })
	}
	for _, conn := range abandoned {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	device := open(t, newDriver(nil), s.plain())
	_, err := device.Check(t.Context())
	if driver.ReasonOf(err) != driver.ReasonTooManySessions {
		t.Fatalf("%v", err)
	}
	started := time.Now()
	for attempts := 0; ; attempts++ {
		if _, err = device.Check(t.Context()); err == nil {
			break
		}
		// A loaded machine may miss a second now and then.
		if r := driver.ReasonOf(err); r != driver.ReasonTooManySessions && r != driver.ReasonTimeout || time.Since(started) > time.Minute {
			t.Fatalf("after %s: %v", time.Since(started), err)
		}
		time.Sleep(time.Second)
	}
	t.Logf("a session after %s, with %d refused attempts", time.Since(started), s.counts(t).Rejected)
}

// Req: P-13 (no leaked socket, goroutine or session after faults)
func TestFaultsLeakNothing(t *testing.T) {
	s := shared(t)
	proxy := faultproxy.Start(t, fmt.Sprintf("127.0.0.1:%d", s.Port))
	var opened, closed atomic.Int32
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		opened.Add(1)
		return &counted{Conn: conn, closed: &closed}, nil
	}
	goroutines, before := runtime.NumGoroutine(), s.counts(t)
	d := opcua.New(dial, driver.NewConnectLimit(20), opcua.Options{})
	device, err := d.Open(opcua.Config{Endpoint: "opc.tcp://" + proxy.Addr() + "/plant", SecurityPolicy: opcua.PolicyNone, Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		check(t, device)
		proxy.Reset()
	}
	check(t, device)
	if n := opened.Load() - closed.Load(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	if n := opened.Load() - closed.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	for end := time.Now().Add(3 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), goroutines)
			break
		}
	}
	// One session went on through all of it, and is closed; a loaded machine may cost some more.
	c := s.counts(t)
	if c.Cumulated > before.Cumulated+20 || c.Current > before.Current+1 {
		t.Errorf("%+v", c)
	}
	t.Logf("%d connections, %+v", opened.Load(), c)
}

// counted counts the connections that are closed.
type counted struct {
	net.Conn
	closed *atomic.Int32
	once   atomic.Bool
}

func (c *counted) Close() error {
	if c.once.CompareAndSwap(false, true) {
		c.closed.Add(1)
	}
	return c.Conn.Close()
}

// Req: P-13
func TestTheServersOwnStateReachesTheAnswer(t *testing.T) {
	s := shared(t)
	device := open(t, newDriver(nil), s.plain())
	check(t, device)
	var done struct{}
	s.ask(t, "suspend", &done)
	if answer := check(t, device); answer.Reason != driver.ReasonServerNotRunning || answer.Health != driver.HealthFunctionCheck {
		t.Errorf("%+v", answer)
	}
	s.ask(t, "fail", &done)
	if _, err := device.Check(t.Context()); driver.ReasonOf(err) != driver.ReasonServerNotRunning {
		t.Errorf("%v", err)
	}
	s.ask(t, "run", &done)
	if answer := check(t, device); answer.Reason != "" {
		t.Errorf("%+v", answer)
	}
}

// Req: P-13; akri#624 (an advertised host name that does not resolve)
func TestTheServerIsDialledWhereTheModuleSays(t *testing.T) {
	s := start(t, settings{Variables: 10, Advertise: "plc.does-not-exist.invalid", Dir: t.TempDir()})
	check(t, open(t, newDriver(nil), opcua.Config{Endpoint: s.endpoint(), TrustedThumbprint: s.Thumbprint}))
}

// Req: P-13
func TestValuesOfEveryKindAreReadAndWritten(t *testing.T) {
	s := shared(t)
	device := open(t, newDriver(nil), s.plain())
	check(t, device)
	for _, c := range []struct {
		address string
		as      driver.DataType
		want    any
		reason  driver.Reason
	}{
		{"s=Odd.SByte", "", int16(-5), ""},
		{"s=Odd.Byte", "", uint16(200), ""},
		{"s=Odd.Byte", driver.Float64, float64(200), ""},
		{"s=Odd.Int64", "", int64(1<<32 + 2), ""},
		{"s=Odd.UInt32", "", uint32(4_000_000_000), ""},
		{"s=Odd.UInt32", driver.Int32, nil, driver.ReasonConfigurationError},
		{"s=Odd.Text", "", "Grüße", ""},
		{"s=Plant/Area 1.Unit:0;T 0%", "", 3.25, ""},
		{"i=5000", "", 9.0, ""},
		{"g=09087E75-8E5E-499B-954F-F2A9603DB28A", "", 8.0, ""},
		{"s=Odd.Uncertain", "", 2.0, ""},
		{"s=Odd.Broken", "", nil, driver.ReasonDeviceFailure},
		{"s=Odd.NotThere", "", nil, driver.ReasonConfigurationError},
		{"s=Plant/Area0/Unit0.V4", "", nil, driver.ReasonNotSupported},
	} {
		got, err := driver.ReadOne(t.Context(), device, driver.Channel{Name: c.address, Address: plant + c.address, DataType: c.as})
		if c.reason != "" {
			if failure, ok := err.(*driver.Error); !ok || failure.Reason != c.reason || !failure.Answered {
				t.Errorf("%s: %v, want %s", c.address, err, c.reason)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %v (%T), %v; want %v", c.address, got, got, err, c.want)
		}
	}
	for _, c := range []struct {
		address string
		value   any
		reason  driver.Reason
	}{
		{"s=Odd.SByte", int16(-7), ""},
		{"s=Odd.Byte", float64(17), ""},
		{"s=Odd.Byte", 300, driver.ReasonConfigurationError},
		{"s=Odd.Int64", int64(math.MinInt64), ""},
		{"s=Odd.Text", "Äther", ""},
		{"s=Plant/Area0/Unit0.V1", false, ""},
		{"s=Plant/Area0/Unit0.V3", float32(1), driver.ReasonAccessDenied},
		{"s=Odd.NotThere", float32(1), driver.ReasonConfigurationError},
	} {
		channel := driver.Channel{Name: c.address, Address: plant + c.address}
		err := device.Write(t.Context(), channel, c.value)
		if c.reason != "" {
			if failure, ok := err.(*driver.Error); !ok || failure.Reason != c.reason || !failure.Answered {
				t.Errorf("%s: %v, want %s", c.address, err, c.reason)
			}
			continue
		}
		got, readErr := driver.ReadOne(t.Context(), device, channel)
		if err != nil || readErr != nil || fmt.Sprint(got) != fmt.Sprint(c.value) {
			t.Errorf("%s: wrote %v, read %v: %v, %v", c.address, c.value, got, err, readErr)
		}
	}
}

// Req: P-13
func TestTheTokenOfASecuredChannelIsRenewed(t *testing.T) {
	s := shared(t)
	var dialer net.Dialer
	d := opcua.New(dialer.DialContext, driver.NewConnectLimit(20), opcua.Options{TokenLifetime: 1500 * time.Millisecond})
	for _, policy := range []opcua.SecurityPolicy{opcua.PolicyBasic256Sha256, opcua.PolicyAes256Sha256RsaPss} {
		device := open(t, d, opcua.Config{Endpoint: s.endpoint(), SecurityPolicy: policy, TrustedThumbprint: s.Thumbprint})
		check(t, device)
		before := s.counts(t).Cumulated
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, err := device.Check(t.Context()); err != nil {
				t.Fatalf("%s: %v", policy, err)
			}
		}
		if n := s.counts(t).Cumulated; n != before {
			t.Errorf("%s: %d new sessions", policy, n-before)
		}
	}
}
