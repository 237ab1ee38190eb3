package ethernetip

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
)

// timeout of one request in these tests: long enough for a loaded machine, short enough for many of them.
const timeout = 200 * time.Millisecond

// plc starts a controller, in slot 0 of the backplane, with one of everything.
func plc(t testing.TB) *ethernetiptest.Device {
	t.Helper()
	d := ethernetiptest.New("127.0.0.1:0").Route(1, 0)
	motor := d.Define("Motor",
		ethernetiptest.Member{Name: "Speed", Type: ethernetiptest.REAL},
		ethernetiptest.Member{Name: "Running", Type: ethernetiptest.BOOL},
		ethernetiptest.Member{Name: "Faulted", Type: ethernetiptest.BOOL},
		ethernetiptest.Member{Name: "Hours", Type: ethernetiptest.DINT, Count: 3},
		ethernetiptest.Member{Name: "Label", Type: ethernetiptest.STRING})
	line := d.Define("Line", ethernetiptest.Member{Name: "Motors", Type: motor, Count: 2}, ethernetiptest.Member{Name: "Id", Type: ethernetiptest.INT})
	d.Add("Level", ethernetiptest.REAL).Set("Level", float32(12.5))
	d.Add("Counts", ethernetiptest.DINT, 10).Set("Counts[3]", int32(-7))
	d.Add("Grid", ethernetiptest.INT, 2, 3).Set("Grid[1,2]", int16(6))
	d.Add("Mixer", motor).Set("Mixer.Speed", float32(1.5)).Set("Mixer.Running", true)
	d.Add("Lines", line, 2)
	d.Add("Label", ethernetiptest.STRING).Set("Label", "hello")
	d.Add("Flags", ethernetiptest.DWORD, 2).Set("Flags[1]", uint32(8))
	d.AddWithAccess("Fixed", ethernetiptest.DINT, ethernetiptest.ReadOnly)
	d.AddWithAccess("Secret", ethernetiptest.DINT, ethernetiptest.NoAccess)
	d.Add("__hidden", ethernetiptest.DINT).Add("Local:1:I", ethernetiptest.DINT).Add("Bad\x1b[2J", ethernetiptest.DINT)
	d.AddSystem("Internal", ethernetiptest.DINT)
	d.Add("Program:Main.Step", ethernetiptest.INT).Set("Program:Main.Step", int16(4))
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func newDriver() *Driver {
	return New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20), 0x00F1E1D0)
}

// open opens a device; without a path it is the CPU in slot 0.
func open(t testing.TB, d *Driver, c Config) *device {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	switch c.Path {
	case "":
		c.Path = "1,0"
	case "none":
		c.Path = ""
	}
	opened, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened.(*device)
}

// check does one check within the time that a supervisor gives it.
func check(t testing.TB, d *device) (driver.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout)
	defer cancel()
	return d.Check(ctx)
}

func mustCheck(t testing.TB, d *device) {
	t.Helper()
	for {
		var err error
		starved := starvedDuring(func() { _, err = check(t, d) })
		if err != nil && starved && driver.ReasonOf(err) == driver.ReasonTimeout {
			// It may have been answered in time.
			continue
		}
		if err != nil {
			t.Fatalf("check failed: %v", err)
		}
		return
	}
}

// starvedDuring tells whether this process had no processor for a good part of a timeout while f ran.
func starvedDuring(f func()) bool {
	ended, told := make(chan struct{}), make(chan bool)
	go func() {
		starved, last := false, time.Now()
		for {
			select {
			case <-ended:
				told <- starved || time.Since(last) > timeout/4
				return
			case <-time.After(timeout / 40):
				starved = starved || time.Since(last) > timeout/4
				last = time.Now()
			}
		}
	}()
	f()
	close(ended)
	return <-told
}

func mustFail(t testing.TB, d *device, want driver.Reason) {
	t.Helper()
	if _, err := check(t, d); err == nil || driver.ReasonOf(err) != want {
		t.Fatalf("check ended with %v, want the reason %s", err, want)
	}
}

// eventually waits for what another goroutine does at once.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 5 s still not: %s", what)
		}
	}
}

// Req: P-13
func TestCheckProvesConnectivityByReading(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	for range 3 {
		mustCheck(t, d)
	}
	if a, s, o := dev.Accepted(), dev.Sessions(), dev.Opened(); a != 1 || s != 1 || o != 1 {
		t.Errorf("%d TCP connections, %d sessions, %d CIP connections for three checks, want one of each", a, s, o)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "everything is given back", func() bool { return dev.Open() == 0 && dev.Sessions() == 0 && dev.Connections() == 0 })
}

// Req: P-13 (a refusal is an answer: connected, and the channel is Bad)
func TestARefusedChannelIsToldAndTheDeviceIsConnected(t *testing.T) {
	for _, c := range []struct {
		name    string
		channel driver.Channel
		prepare func(*ethernetiptest.Device)
		want    driver.Reason
		health  driver.Health
	}{
		{"no such tag", driver.Channel{Address: "Nothing"}, nil, driver.ReasonConfigurationError, driver.HealthNormal},
		{"no such program", driver.Channel{Address: "Program:Other.Step"}, nil, driver.ReasonConfigurationError, driver.HealthNormal},
		{"beyond the end", driver.Channel{Address: "Counts[10]"}, nil, driver.ReasonConfigurationError, driver.HealthNormal},
		{"another type", driver.Channel{Address: "Level", DataType: driver.Int32}, nil, driver.ReasonConfigurationError, driver.HealthNormal},
		{"a whole structure", driver.Channel{Address: "Mixer"}, nil, driver.ReasonConfigurationError, driver.HealthNormal},
		{"busy", driver.Channel{Address: "Level"}, func(d *ethernetiptest.Device) { d.FailService(0x4C, 0x02) }, driver.ReasonDeviceBusy, driver.HealthNormal},
		{"a major fault", driver.Channel{Address: "Level"}, func(d *ethernetiptest.Device) { d.SetIdentity(ethernetiptest.Identity{Status: 0x0460}) }, driver.ReasonDeviceFailure, driver.HealthFailure},
		{"a minor fault", driver.Channel{Address: "Level"}, func(d *ethernetiptest.Device) { d.SetIdentity(ethernetiptest.Identity{Status: 0x0160}) }, driver.ReasonDeviceFailure, driver.HealthMaintenanceRequired},
		{"a good tag", driver.Channel{Address: "Level"}, nil, "", driver.HealthNormal},
		{"no identity status", driver.Channel{Address: "Level"}, func(d *ethernetiptest.Device) { d.FailService(0x0E, 0x14) }, "", driver.HealthNormal},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			if c.prepare != nil {
				c.prepare(dev)
			}
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Channels: []driver.Channel{c.channel}})
			for range 2 {
				answer, err := check(t, d)
				if err != nil || answer.Reason != c.want || answer.Health != c.health {
					t.Fatalf("%+v, %v, want %q and %s", answer, err, c.want, c.health)
				}
			}
			if n := dev.Accepted(); n != 1 {
				t.Errorf("%d connections, want the one that was kept", n)
			}
		})
	}
}

// Req: P-13
func TestReadAndWriteEveryKindOfTag(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	for _, c := range []struct {
		address       string
		as            driver.DataType
		first, second any
	}{
		{"Level", "", float32(12.5), float32(-1)},
		{"level", driver.Float64, float64(-1), float64(2.5)},
		{"Counts[3]", driver.Int32, int32(-7), int32(8)},
		{"Counts", driver.Int64, int64(0), int64(-2147483648)},
		{"Grid[1,2]", "", int16(6), int16(-6)},
		{"Mixer.Speed", driver.Float32, float32(1.5), float32(3)},
		{"Mixer.Running", driver.Bool, true, false},
		{"Mixer.Faulted", "", false, true},
		{"Lines[1].Motors[0].Hours[2]", "", int32(0), int32(5)},
		{"Label", "", "hello", "a longer text"},
		{"Mixer.Label", driver.String, "", "m"},
		{"Flags[1].3", "", true, false},
		{"Flags[1].31", driver.Bool, false, true},
		{"Program:Main.Step", driver.Int16, int16(4), int16(5)},
		{"Program:Main.Step.0", "", true, false},
	} {
		t.Run(c.address, func(t *testing.T) {
			channel := driver.Channel{Name: "c", Address: c.address, DataType: c.as}
			if v, err := driver.ReadOne(t.Context(), d, channel); err != nil || v != c.first {
				t.Fatalf("read %T %v, %v, want %T %v", v, v, err, c.first, c.first)
			}
			if err := d.Write(t.Context(), channel, c.second); err != nil {
				t.Fatal(err)
			}
			if v, err := driver.ReadOne(t.Context(), d, channel); err != nil || v != c.second {
				t.Errorf("read %T %v, %v after a write of %v", v, v, err, c.second)
			}
		})
	}
	if got := dev.Bytes("Flags[1]"); !bytes.Equal(got, []byte{0, 0, 0, 0x80}) {
		t.Errorf("Flags[1] holds % x: a write of a bit touched its neighbours", got)
	}
	if dev.Bit("Mixer.Running") || !dev.Bit("Mixer.Faulted") {
		t.Error("a write of a member touched its neighbours")
	}
}

// Req: P-13
func TestWritesThatCannotBeAreRefused(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	for _, c := range []struct {
		name    string
		channel driver.Channel
		value   any
	}{
		{"too large", driver.Channel{Address: "Program:Main.Step", DataType: driver.Int32}, int32(70000)},
		{"another type", driver.Channel{Address: "Level"}, int32(1)},
		{"declared as another type", driver.Channel{Address: "Level", DataType: driver.Int32}, int32(1)},
		{"a text that is too long", driver.Channel{Address: "Label"}, strings.Repeat("x", 83)},
		{"a number into a bit", driver.Channel{Address: "Flags[0].1"}, int16(1)},
		{"a structure", driver.Channel{Address: "Mixer"}, int16(1)},
		{"read only", driver.Channel{Address: "Fixed"}, int32(1)},
		{"no access", driver.Channel{Address: "Secret"}, int32(1)},
		{"no such tag", driver.Channel{Address: "Nothing"}, int32(1)},
		{"no address", driver.Channel{Address: "1"}, int32(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := d.Write(t.Context(), c.channel, c.value); err == nil || driver.ReasonOf(err) != driver.ReasonConfigurationError {
				t.Errorf("write: %v, want a ConfigurationError", err)
			}
		})
	}
	if n := dev.Accepted(); n != 1 {
		t.Errorf("%d connections, want the one that was kept", n)
	}
}

// Req: P-13
func TestAWriteIsNeverSentTwice(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	channel := driver.Channel{Address: "Counts[0]"}
	mustCheck(t, d)
	dev.Mutate(func(frame []byte) []byte {
		if len(frame) > 46 && frame[0] == 0x70 && frame[46] == 0xCD {
			return nil // the reply to the write is lost, and then the connection
		}
		return frame
	})
	before := dev.Requests()
	go func() {
		for dev.Requests() < before+2 {
			time.Sleep(time.Millisecond)
		}
		dev.Reset()
	}()
	if err := d.Write(t.Context(), channel, int32(1)); driver.ReasonOf(err) != driver.ReasonConnectionLost {
		t.Errorf("write: %v, want ConnectionLost", err)
	}
	if n := dev.Requests() - before; n != 2 {
		t.Errorf("%d requests for a read and a write", n)
	}
	dev.Mutate(nil)
	mustCheck(t, d)
}

func malform(m ethernetiptest.Malformation) func(*ethernetiptest.Device) {
	return func(d *ethernetiptest.Device) { d.Malform(m) }
}

// Req: P-13, P-16 (each failure within one request timeout, and the next poll recovers)
func TestFailuresAreTypedAndTheNextPollRecovers(t *testing.T) {
	healthy := malform(ethernetiptest.WellFormed)
	for _, c := range []struct {
		name  string
		fault func(*ethernetiptest.Device)
		want  driver.Reason
		mend  func(*ethernetiptest.Device)
	}{
		{"stopped", (*ethernetiptest.Device).Stop, driver.ReasonRefused, func(d *ethernetiptest.Device) { _ = d.Start() }},
		{"black hole", func(d *ethernetiptest.Device) { d.Blackhole(true) }, driver.ReasonTimeout, func(d *ethernetiptest.Device) { d.Blackhole(false) }},
		{"deaf to connected messages", func(d *ethernetiptest.Device) { d.Deaf(true) }, driver.ReasonTimeout, func(d *ethernetiptest.Device) { d.Deaf(false) }},
		{"full of TCP connections", func(d *ethernetiptest.Device) { d.MaxClients(1); d.Reset(); hog(d) }, driver.ReasonConnectionLost, func(d *ethernetiptest.Device) { d.MaxClients(0) }},
		{"full of sessions", func(d *ethernetiptest.Device) { d.MaxSessions(1); d.Reset(); session(t, d) }, driver.ReasonTooManySessions, func(d *ethernetiptest.Device) { d.MaxSessions(0) }},
		{"full of connections", func(d *ethernetiptest.Device) { d.RefuseForwardOpen(0x01, 0x0113); d.Reset() }, driver.ReasonTooManySessions, func(d *ethernetiptest.Device) { d.RefuseForwardOpen(0) }},
		{"no such slot", func(d *ethernetiptest.Device) { d.Route(1, 3); d.Reset() }, driver.ReasonPathRejected, func(d *ethernetiptest.Device) { d.Route(1, 0) }},
		{"no such port", func(d *ethernetiptest.Device) { d.Route(2, 0); d.Reset() }, driver.ReasonPathRejected, func(d *ethernetiptest.Device) { d.Route(1, 0) }},
		{"no route at all", func(d *ethernetiptest.Device) { d.Route(); d.Reset() }, driver.ReasonPathRejected, func(d *ethernetiptest.Device) { d.Route(1, 0) }},
		{"no Forward Open", func(d *ethernetiptest.Device) { d.RefuseForwardOpen(0x08); d.Reset() }, driver.ReasonPathRejected, func(d *ethernetiptest.Device) { d.RefuseForwardOpen(0) }},
		{"the CPU is gone", func(d *ethernetiptest.Device) { d.RefuseForwardOpen(0x01, 0x0204); d.Reset() }, driver.ReasonUnitNotResponding, func(d *ethernetiptest.Device) { d.RefuseForwardOpen(0) }},
		{"wrong command", malform(ethernetiptest.WrongCommand), driver.ReasonProtocolError, healthy},
		{"wrong context and sequence", malform(ethernetiptest.WrongContext), driver.ReasonProtocolError, healthy},
		{"wrong service", malform(ethernetiptest.WrongService), driver.ReasonProtocolError, healthy},
		{"no items", malform(ethernetiptest.NoItems), driver.ReasonProtocolError, healthy},
		{"huge item", malform(ethernetiptest.HugeItem), driver.ReasonProtocolError, healthy},
		{"huge length", malform(ethernetiptest.HugeLength), driver.ReasonTimeout, healthy},
		{"half a frame", malform(ethernetiptest.HalfFrame), driver.ReasonTimeout, healthy},
		{"truncated", malform(ethernetiptest.Truncated), driver.ReasonProtocolError, healthy},
		{"not EtherNet/IP", malform(ethernetiptest.Noise), driver.ReasonProtocolError, healthy},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
			mustCheck(t, d)
			c.fault(dev)
			message := ""
			// A loaded machine may spoil one of them.
			fastest := time.Hour
			for i := range 3 {
				began := time.Now()
				_, err := check(t, d)
				if err == nil || driver.ReasonOf(err) != c.want {
					t.Fatalf("check ended with %v, want the reason %s", err, c.want)
				}
				fastest = min(fastest, time.Since(began))
				if i > 1 && err.Error() != message {
					t.Errorf("the message changed from %q to %q", message, err)
				}
				message = err.Error()
			}
			if fastest > timeout*3/2 {
				t.Errorf("the fastest failure took %s, want at most one timeout", fastest)
			}
			c.mend(dev)
			mustCheck(t, d)
			if v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "Counts[3]"}); err != nil || v != int32(-7) {
				t.Errorf("read %v, %v after all was well again", v, err)
			}
		})
	}
}

// hog takes the device's only TCP connection until the test ends.
func hog(d *ethernetiptest.Device) {
	for {
		if conn, err := net.Dial("tcp", d.Addr()); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			_ = conn.Close()
		}
	}
}

// session registers a session and keeps it.
func session(t *testing.T, d *ethernetiptest.Device) {
	eventually(t, "the old session is gone", func() bool { return d.Sessions() == 0 })
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = conn.Write(frame{command: commandRegisterSession, data: []byte{1, 0, 0, 0}}.encode())
	eventually(t, "the session is there", func() bool { return d.Sessions() == 1 })
}

// Req: P-13
func TestASmallForwardOpenIsEnough(t *testing.T) {
	dev := plc(t)
	dev.RefuseLarge(true)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	mustCheck(t, d)
	dev.Reset()
	before := dev.Requests()
	mustCheck(t, d)
	if n := dev.Requests() - before; n > 4 {
		t.Errorf("%d requests to come back, want session, Forward Open and read", n)
	}
}

// Req: P-13 (one delay of 1.5 × timeout: the next poll succeeds, on the same connection)
func TestASlowReplyIsThrownAwayAndTheNextPollSucceeds(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	mustCheck(t, d)
	dev.DelayNext(timeout * 3 / 2)
	if _, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "Level"}); driver.ReasonOf(err) != driver.ReasonTimeout {
		t.Fatalf("read: %v, want a timeout", err)
	}
	for range 3 {
		if v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "Counts[3]"}); err != nil || v != int32(-7) {
			t.Fatalf("read %v, %v after the slow reply, want -7", v, err)
		}
	}
	if n := dev.Accepted(); n != 1 {
		t.Errorf("%d connections, want the first to go on", n)
	}
}

// Req: P-13
func TestWhatTheDeviceClosesOrForgetsCostsNotEvenOnePoll(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*ethernetiptest.Device)
	}{
		{"reset", (*ethernetiptest.Device).Reset},
		{"closed", (*ethernetiptest.Device).Disconnect},
		{"session forgotten", (*ethernetiptest.Device).ForgetSessions},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
			for range 3 {
				mustCheck(t, d)
				c.fault(dev)
			}
			mustCheck(t, d)
			if n := dev.Accepted(); n != 4 {
				t.Errorf("%d connections for 3 faults, want 4", n)
			}
		})
	}
}

// Req: P-16 (a connection that only the device has given up costs less than a fault)
func TestAForgottenConnectionIsMadeAnewBeforeThreeFailures(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	mustCheck(t, d)
	dev.Forget()
	failures := 0
	for ; failures < 3; failures++ {
		if _, err := check(t, d); err == nil {
			break
		}
	}
	if failures > 2 {
		t.Errorf("%d checks failed over a forgotten connection", failures)
	}
}

// Req: P-13
func TestAnIdleConnectionIsMadeAnewBeforeItIsUsed(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	mustCheck(t, d)
	d.endpoint.cip.lastUsed = time.Now().Add(-maxIdle)
	mustCheck(t, d)
	if a, o, c := dev.Accepted(), dev.Opened(), dev.Connections(); a != 1 || o != 2 || c != 1 {
		t.Errorf("%d TCP connections, %d CIP connections opened, %d open; want 1, 2, 1", a, o, c)
	}
}

// Req: P-13 (plc4x#1589: sessions that nobody closed; recovers when the device gives them up)
func TestALostConnectionThatLingersIsWaitedFor(t *testing.T) {
	dev := plc(t)
	dev.MaxConnections(1).Linger(3 * timeout)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	mustCheck(t, d)
	dev.Reset()
	mustFail(t, d, driver.ReasonTooManySessions)
	eventually(t, "the device gave the connection up", func() bool { _, err := check(t, d); return err == nil })
}

// Req: P-13 (device-modbus-go#356 and its like: one connection for all modules on a device)
func TestModulesOnOneDeviceShareTheOnlyConnection(t *testing.T) {
	dev := plc(t)
	dev.MaxClients(1).MaxConnections(1)
	drv := newDriver()
	var devices []*device
	for range 3 {
		devices = append(devices, open(t, drv, Config{Endpoint: dev.Endpoint(), Channels: []driver.Channel{{Address: "Level"}}}))
	}
	var all sync.WaitGroup
	for _, d := range devices {
		all.Go(func() {
			for range 20 {
				if _, err := check(t, d); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if a, o := dev.Accepted(), dev.Opened(); a != 1 || o != 1 {
		t.Errorf("%d TCP connections and %d CIP connections, want one of each", a, o)
	}
	for i, d := range devices {
		if n := drv.Endpoints(); n != 1 {
			t.Errorf("%d endpoints with %d devices open, want 1", n, 3-i)
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	if n := drv.Endpoints(); n != 0 {
		t.Errorf("%d endpoints after the last device closed, want 0", n)
	}
	eventually(t, "the connection is closed", func() bool { return dev.Open() == 0 })
}

// Req: P-13 (two CPUs in one chassis)
func TestTwoRoutesHaveConnectionsOfTheirOwn(t *testing.T) {
	dev := plc(t)
	drv := newDriver()
	right := open(t, drv, Config{Endpoint: dev.Endpoint(), Path: "1,0"})
	wrong := open(t, drv, Config{Endpoint: dev.Endpoint(), Path: "1,7"})
	for range 2 {
		mustCheck(t, right)
		mustFail(t, wrong, driver.ReasonPathRejected)
	}
	if n := dev.Accepted(); n != 2 {
		t.Errorf("%d TCP connections, want one for each route, both kept", n)
	}
}

// Req: P-16 (device silent → Fault ≤ 5 s: three failures of one timeout each, for every module on it)
func TestASilentDeviceFailsAllItsModulesInTime(t *testing.T) {
	dev := plc(t)
	drv := newDriver()
	var devices []*device
	for range 8 {
		d := open(t, drv, Config{Endpoint: dev.Endpoint()})
		mustCheck(t, d)
		devices = append(devices, d)
	}
	dev.Blackhole(true)
	began := time.Now()
	var all sync.WaitGroup
	for _, d := range devices {
		all.Go(func() {
			for failures := 0; failures < 3; {
				_, err := check(t, d)
				switch driver.ReasonOf(err) {
				case driver.ReasonTimeout:
					failures++
				case driver.ReasonNotMeasured:
				default:
					t.Errorf("check: %v, want a timeout", err)
					return
				}
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > 5*timeout {
		t.Errorf("three failures of each module took %s, which is %d timeouts", took, took/timeout)
	}
	dev.Blackhole(false)
	for _, d := range devices {
		eventually(t, "it is back", func() bool { _, err := check(t, d); return err == nil })
	}
}

// Req: P-13 (identity-only devices that refuse every Forward Open)
func TestIdentityOnlyNeedsNoSession(t *testing.T) {
	dev := plc(t)
	dev.RefuseForwardOpen(0x08).MaxSessions(1)
	drv := newDriver()
	d := open(t, drv, Config{Endpoint: dev.Endpoint(), IdentityOnly: true, Channels: []driver.Channel{{Name: "c", Address: "Level"}}})
	mustCheck(t, d)
	id, err := d.Identify(t.Context())
	want := driver.Identity{Vendor: "Rockwell Automation/Allen-Bradley", Product: "1756-L83E/B", Serial: "00C0FFEE", Revision: "33.011"}
	if err != nil || id != want {
		t.Errorf("identity %+v, %v, want %+v", id, err, want)
	}
	if _, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "Level"}); driver.ReasonOf(err) != driver.ReasonNotSupported {
		t.Errorf("read: %v, want NotSupported", err)
	}
	list, err := d.Channels(t.Context(), 10)
	if err != nil || len(list.Items) != 1 || list.Items[0].Problem != driver.ReasonNotSupported {
		t.Errorf("channels %+v, %v, want the declared one, which is not supported", list, err)
	}
	if n := dev.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	for name, m := range map[string]ethernetiptest.Malformation{"noise": ethernetiptest.Noise, "wrong context": ethernetiptest.WrongContext, "no items": ethernetiptest.NoItems} {
		dev.Malform(m)
		if _, err := check(t, d); driver.ReasonOf(err) != driver.ReasonProtocolError {
			t.Errorf("%s: %v, want a ProtocolError", name, err)
		}
	}
	dev.Malform(ethernetiptest.WellFormed)
	dev.SetIdentity(ethernetiptest.Identity{Vendor: 65000, Status: 0x0800})
	if answer, err := check(t, d); err != nil || answer.Health != driver.HealthFailure {
		t.Errorf("%+v, %v, want a device in failure", answer, err)
	}
	dev.Blackhole(true)
	mustFail(t, d, driver.ReasonTimeout)
	dev.Blackhole(false)
	mustCheck(t, d)
	if id, err := d.Identify(t.Context()); err != nil || id.Vendor != "vendor 65000" {
		t.Errorf("identity %+v, %v of a vendor that nobody knows", id, err)
	}
}

// Req: P-13
func TestIdentifyAsksTheDeviceAtTheEndOfTheRoute(t *testing.T) {
	dev := plc(t)
	drv := newDriver()
	want := driver.Identity{Vendor: "Rockwell Automation/Allen-Bradley", Product: "1756-L83E/B", Serial: "00C0FFEE", Revision: "33.011"}
	cpu := open(t, drv, Config{Endpoint: dev.Endpoint()})
	if id, err := cpu.Identify(t.Context()); err != nil || id != want {
		t.Errorf("identity %+v, %v, want %+v", id, err, want)
	}
	dev.FailService(0x01, 0x08)
	if _, err := cpu.Identify(t.Context()); driver.ReasonOf(err) != driver.ReasonNotSupported {
		t.Errorf("identify: %v, want NotSupported and not the identity of the module before the CPU", err)
	}
	dev.Route()
	if id, err := open(t, drv, Config{Endpoint: dev.Endpoint(), Path: "none"}).Identify(t.Context()); err != nil || id != want {
		t.Errorf("identity %+v, %v by ListIdentity, want %+v", id, err, want)
	}
}

// Req: P-13 (a probe that was killed left its connection behind, and its successor has the same numbers)
func TestAConnectionOfAFormerLifeIsNoObstacle(t *testing.T) {
	dev := plc(t)
	dev.Linger(time.Minute)
	mustCheck(t, open(t, newDriver(), Config{Endpoint: dev.Endpoint()}))
	dev.Reset()
	mustCheck(t, open(t, newDriver(), Config{Endpoint: dev.Endpoint()}))
}

// Req: P-13
func TestACancelledCallEndsAtOnce(t *testing.T) {
	dev := plc(t)
	dev.Blackhole(true)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	began := time.Now()
	if _, err := d.Check(ctx); err == nil {
		t.Error("a check of a silent device succeeded")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// Req: P-13
func TestAModuleWithoutATurnWasNotMeasured(t *testing.T) {
	dev := plc(t)
	drv := newDriver()
	a, b := open(t, drv, Config{Endpoint: dev.Endpoint()}), open(t, drv, Config{Endpoint: dev.Endpoint()})
	mustCheck(t, a)
	a.endpoint.turns <- struct{}{}
	mustFail(t, b, driver.ReasonNotMeasured)
	<-a.endpoint.turns
	mustCheck(t, b)
}

// descriptors is how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

// Req: P-13 (no leaked socket or goroutine after 500 failures)
func TestNothingIsLeakedByFiveHundredFailures(t *testing.T) {
	dev := plc(t)
	drv := newDriver()
	const short = 5 * time.Millisecond
	d := open(t, drv, Config{Endpoint: dev.Endpoint(), Timeout: time.Second})
	mustCheck(t, d)
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	d.timeout = short
	faults := []func(){
		func() { dev.Reset() },
		func() { dev.Blackhole(true) },
		func() { dev.RefuseForwardOpen(0x01, 0x0113); dev.Reset() },
		func() { dev.Malform(ethernetiptest.Noise) },
		func() { dev.Malform(ethernetiptest.HalfFrame) },
		func() { dev.Malform(ethernetiptest.HugeItem) },
		func() { dev.Deaf(true) },
		func() { dev.Disconnect(); dev.MaxSessions(1); dev.ForgetSessions() },
		func() { dev.Stop() },
		func() { dev.Delay(2 * short) },
	}
	failed := 0
	for i := 0; failed < 500; i++ {
		faults[i%len(faults)]()
		for range 5 {
			if _, err := d.Check(t.Context()); err != nil {
				failed++
			}
		}
		dev.Blackhole(false).RefuseForwardOpen(0).Malform(ethernetiptest.WellFormed).Deaf(false).MaxSessions(0).Delay(0)
		if err := dev.Start(); err != nil {
			t.Fatal(err)
		}
	}
	d.timeout = time.Second
	eventually(t, "it is back", func() bool { _, err := d.Check(t.Context()); return err == nil })
	eventually(t, "one connection, session and CIP connection are left", func() bool {
		return dev.Open() == 1 && dev.Sessions() == 1 && dev.Connections() == 1
	})
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "no descriptor is left", func() bool { return descriptors(t) <= files })
}

// Req: P-13 (malformed replies from a hostile device: the probe lives)
func TestRandomMutationsOfRepliesNeverPanicOrHang(t *testing.T) {
	dev := plc(t)
	random := rand.New(rand.NewPCG(1, 2))
	dev.Mutate(func(frame []byte) []byte {
		// The first frames of some rounds are left whole, so that every layer gets its share.
		if random.IntN(3) > 0 {
			return frame
		}
		frame = bytes.Clone(frame)
		switch random.IntN(5) {
		case 0:
			return frame[:random.IntN(len(frame)+1)]
		case 1:
			return append(frame, byte(random.Uint32()), byte(random.Uint32()))
		case 2:
			at := random.IntN(len(frame))
			frame[at] = 0xFF
		default:
			for range 1 + random.IntN(4) {
				frame[random.IntN(len(frame))] = byte(random.Uint32())
			}
		}
		return frame
	})
	end := time.Now().Add(3 * time.Second)
	for i := 0; time.Now().Before(end); i++ {
		d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Timeout: 10 * time.Millisecond, IdentityOnly: i%8 == 7})
		began := time.Now()
		_, _ = d.Check(t.Context())
		_, _ = d.Identify(t.Context())
		_, _ = driver.ReadOne(t.Context(), d, driver.Channel{Address: "Label"})
		_ = d.Write(t.Context(), driver.Channel{Address: "Counts[1]"}, int32(1))
		if took := time.Since(began); took > time.Second {
			t.Errorf("round %d took %s", i, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if list, err := d.Channels(ctx, 1000); err == nil && len(list.Items) > 1000 {
			t.Errorf("%d channels", len(list.Items))
		}
		cancel()
		_ = d.Close()
	}
	dev.Mutate(nil)
	mustCheck(t, open(t, newDriver(), Config{Endpoint: dev.Endpoint()}))
}
