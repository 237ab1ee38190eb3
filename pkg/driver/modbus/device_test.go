package modbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
)

// timeout of one request in these tests: long enough for a loaded machine, short enough for many of them.
const timeout = 200 * time.Millisecond

// plc starts a device with a holding register 0 in each of the units.
func plc(t *testing.T, units ...byte) *modbustest.Device {
	t.Helper()
	d := modbustest.New("127.0.0.1:0")
	for _, id := range units {
		d.Unit(id).SetHolding(0, 0x41cc, 0x0000, 7, 8)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func newDriver() *Driver {
	return New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20))
}

func open(t *testing.T, d *Driver, c Config) driver.Device {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	device, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return device
}

// check does one check within the time that a supervisor gives it.
func check(t *testing.T, d driver.Device) (driver.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*timeout)
	defer cancel()
	return d.Check(ctx)
}

func mustCheck(t *testing.T, d driver.Device) {
	t.Helper()
	if _, err := check(t, d); err != nil {
		t.Fatalf("check failed: %v", err)
	}
}

func mustFail(t *testing.T, d driver.Device, want driver.Reason) {
	t.Helper()
	if _, err := check(t, d); err == nil || driver.ReasonOf(err) != want {
		t.Fatalf("check ended with %v, want the reason %s", err, want)
	}
}

// Req: P-13
func TestCheckProvesConnectivityByReading(t *testing.T) {
	dev := plc(t, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	for range 3 {
		mustCheck(t, d)
	}
	if n := dev.Accepted(); n != 1 {
		t.Errorf("%d connections for three checks, want 1", n)
	}
}

// Req: P-13 (rule 4: an exception proves that somebody answered)
func TestExceptionsAndConnectivity(t *testing.T) {
	for _, c := range []struct {
		name      string
		exception byte
		fails     driver.Reason
	}{
		{"illegal function", 1, ""},
		{"illegal address", 2, ""},
		{"illegal value", 3, ""},
		{"device failure", 4, ""},
		{"busy", 6, ""},
		{"a code that nobody knows", 99, ""},
		{"gateway path unavailable", 0x0A, driver.ReasonUnitNotResponding},
		{"gateway target failed to respond", 0x0B, driver.ReasonUnitNotResponding},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t, 1, 2)
			dev.Unit(1).Fail(c.exception)
			drv := newDriver()
			d := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 1})
			neighbour := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 2})
			for range 3 {
				if c.fails == "" {
					mustCheck(t, d)
				} else {
					mustFail(t, d, c.fails)
				}
				mustCheck(t, neighbour)
			}
			if n := dev.Accepted(); n != 1 {
				t.Errorf("%d connections, want the one that was kept", n)
			}
		})
	}
}

func TestARefusedChannelIsToldAndADefaultRegisterIsNot(t *testing.T) {
	dev := plc(t, 1)
	drv := newDriver()
	declared := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 1, Channels: []driver.Channel{{Name: "a", Address: "holding:999"}}})
	answer, err := check(t, declared)
	if err != nil || answer.Reason != driver.ReasonConfigurationError || !strings.Contains(answer.Message, "holding:999") {
		t.Errorf("declared channel: %+v, %v, want a ConfigurationError that names it", answer, err)
	}
	dev.Unit(1).FailFunction(3, 2)
	answer, err = check(t, open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 1}))
	if err != nil || answer.Reason != "" {
		t.Errorf("holding register 0: %+v, %v, want a plain answer", answer, err)
	}
}

// Req: P-13 (device-modbus-go#606, goburrow#64 and their like)
func TestFailuresAreTypedAndTheNextPollRecovers(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*modbustest.Device)
		want  driver.Reason
		mend  func(*modbustest.Device)
	}{
		{"stopped", (*modbustest.Device).Stop, driver.ReasonRefused, func(d *modbustest.Device) { _ = d.Start() }},
		{"black hole", func(d *modbustest.Device) { d.Blackhole(true) }, driver.ReasonTimeout, func(d *modbustest.Device) { d.Blackhole(false) }},
		{"full", func(d *modbustest.Device) { d.MaxClients(1); d.Reset(); hog(d) }, driver.ReasonConnectionLost, func(d *modbustest.Device) { d.Reset(); d.MaxClients(0) }},
		{"wrong unit", malform(modbustest.WrongUnit), driver.ReasonProtocolError, malform(modbustest.WellFormed)},
		{"wrong protocol", malform(modbustest.WrongProtocol), driver.ReasonProtocolError, malform(modbustest.WellFormed)},
		{"wrong function", malform(modbustest.WrongFunction), driver.ReasonProtocolError, malform(modbustest.WellFormed)},
		{"short count", malform(modbustest.ShortCount), driver.ReasonProtocolError, malform(modbustest.WellFormed)},
		{"huge length", malform(modbustest.HugeLength), driver.ReasonProtocolError, malform(modbustest.WellFormed)},
		{"half a frame", malform(modbustest.HalfFrame), driver.ReasonTimeout, malform(modbustest.WellFormed)},
		{"not Modbus", malform(modbustest.Noise), driver.ReasonProtocolError, malform(modbustest.WellFormed)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t, 1)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
			mustCheck(t, d)
			c.fault(dev)
			for range 3 {
				began := time.Now()
				mustFail(t, d, c.want)
				if took := time.Since(began); took > 2*timeout {
					t.Errorf("the failure took %s, want at most one timeout", took)
				}
			}
			c.mend(dev)
			mustCheck(t, d)
		})
	}
}

func malform(m modbustest.Malformation) func(*modbustest.Device) {
	return func(d *modbustest.Device) { d.Malform(m) }
}

// hog takes the device's only connection; the device's Reset or Stop ends it.
func hog(d *modbustest.Device) {
	for {
		if conn, err := net.Dial("tcp", d.Addr()); err == nil {
			// Closed by the device when it was too early, i.e. before the old connection was gone.
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := conn.Read(make([]byte, 1)); err != nil && driver.LinkReason(err) == driver.ReasonTimeout {
				return
			}
			_ = conn.Close()
		}
	}
}

// Req: P-13 (goburrow#64: after one slow reply every transaction id was off by one for ever)
func TestASlowReplyIsThrownAwayAndTheNextPollSucceeds(t *testing.T) {
	dev := plc(t, 1)
	dev.Unit(1).SetHolding(1, 11).SetHolding(2, 22)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	mustCheck(t, d)
	dev.DelayNext(timeout * 3 / 2)
	mustFail(t, d, driver.ReasonTimeout)
	for range 3 {
		if v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "holding:2"}); err != nil || v != uint16(22) {
			t.Fatalf("read %v, %v after the slow reply, want 22", v, err)
		}
	}
	if n := dev.Accepted(); n != 1 {
		t.Errorf("%d connections, want the first to go on", n)
	}
}

// Req: P-13 (device-modbus-go#606: broken pipe until the process restarted)
func TestAResetCostsNotEvenOnePoll(t *testing.T) {
	dev := plc(t, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	for range 3 {
		mustCheck(t, d)
		dev.Reset()
	}
	mustCheck(t, d)
	if n := dev.Accepted(); n != 4 {
		t.Errorf("%d connections for 3 resets, want 4", n)
	}
}

// Req: P-13 (device-modbus-go#356: one connection per host:port)
func TestThreeUnitsShareTheOnlyConnection(t *testing.T) {
	dev := plc(t, 1, 2, 3)
	dev.MaxClients(1)
	drv := newDriver()
	var devices []driver.Device
	for id := range byte(3) {
		devices = append(devices, open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: id + 1}))
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
	if n := dev.Accepted(); n != 1 {
		t.Errorf("%d connections accepted, want 1", n)
	}
	for i, d := range devices {
		if n := drv.Endpoints(); n != 1 {
			t.Errorf("%d endpoints with %d devices open, want 1", n, 3-i)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := drv.Endpoints(); n != 0 {
		t.Errorf("%d endpoints after the last device closed, want 0", n)
	}
	eventually(t, "the connection is closed", func() bool { return dev.Open() == 0 })
}

// eventually waits for what another goroutine does at once.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 5 s still not: %s", what)
		}
	}
}

// poll checks every device once per period, as supervisors do, until the time is over; it returns the longest run of
// failures of each.
func poll(t *testing.T, devices []driver.Device, period, during time.Duration) []int {
	t.Helper()
	longest := make([]int, len(devices))
	end := time.Now().Add(during)
	var all sync.WaitGroup
	for i, d := range devices {
		all.Go(func() {
			time.Sleep(period * time.Duration(i) / time.Duration(len(devices)))
			run := 0
			for time.Now().Before(end) {
				next := time.Now().Add(period)
				_, err := check(t, d)
				switch {
				case err == nil:
					run = 0
				case driver.ReasonOf(err) != driver.ReasonNotMeasured:
					run++
				}
				longest[i] = max(longest[i], run)
				time.Sleep(time.Until(next))
			}
		})
	}
	all.Wait()
	return longest
}

// Req: P-13, P-16 (ten silent units do not fault an eleventh on the same gateway)
func TestTenSilentUnitsDoNotFaultAnEleventh(t *testing.T) {
	ids := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	dev := plc(t, ids...)
	drv := newDriver()
	var devices []driver.Device
	for _, id := range ids {
		d := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: id, Timeout: 500 * time.Millisecond})
		mustCheck(t, d)
		devices = append(devices, d)
	}
	for _, id := range ids[:10] {
		dev.Unit(id).Silent(true)
	}
	longest := poll(t, devices, 500*time.Millisecond, 5*time.Second)
	if longest[10] >= 3 {
		t.Errorf("the healthy unit failed %d times in a row", longest[10])
	}
	for i, n := range longest[:10] {
		if n < 3 {
			t.Errorf("silent unit %d failed only %d times in a row", i+1, n)
		}
	}
}

// Req: P-16 (device silent → Fault ≤ 5 s, at a period and timeout of 1 s; here at half of that)
func TestASilentGatewayFaultsAllItsUnitsInTime(t *testing.T) {
	ids := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	dev := plc(t, ids...)
	drv := newDriver()
	var devices []driver.Device
	for _, id := range ids {
		d := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: id, Timeout: 500 * time.Millisecond})
		mustCheck(t, d)
		devices = append(devices, d)
	}
	dev.Blackhole(true)
	for i, n := range poll(t, devices, 500*time.Millisecond, 2500*time.Millisecond) {
		if n < 3 {
			t.Errorf("unit %d failed %d times within five periods, want 3", i+1, n)
		}
	}
	dev.Blackhole(false)
	for _, d := range devices {
		mustCheck(t, d)
	}
}

// Req: P-16 (as above, for modules that share a unit id)
func TestASilentUnitFaultsAllItsModulesInTime(t *testing.T) {
	for _, modules := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(modules, " modules"), func(t *testing.T) {
			t.Parallel()
			dev := plc(t, 1)
			drv := newDriver()
			var devices []driver.Device
			for range modules {
				d := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 1, Timeout: 500 * time.Millisecond})
				mustCheck(t, d)
				devices = append(devices, d)
			}
			dev.Blackhole(true)
			cut := time.Now()
			var all sync.WaitGroup
			for i, d := range devices {
				all.Go(func() {
					time.Sleep(500 * time.Millisecond * time.Duration(i) / time.Duration(modules))
					for failures := 0; failures < 3; {
						next := time.Now().Add(500 * time.Millisecond)
						if _, err := check(t, d); err != nil && driver.ReasonOf(err) != driver.ReasonNotMeasured {
							failures++
						}
						if failures < 3 {
							time.Sleep(time.Until(next))
						}
					}
					if took := time.Since(cut); took > 2500*time.Millisecond {
						t.Errorf("module %d failed three times within %s", i+1, took)
					}
				})
			}
			all.Wait()
			dev.Blackhole(false)
			for _, d := range devices {
				mustCheck(t, d)
			}
		})
	}
}

func TestALateReplyEarnsTheUnitItsFullTimeout(t *testing.T) {
	dev := plc(t, 1, 2)
	drv := newDriver()
	d := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 1}).(*device)
	neighbour := open(t, drv, Config{Endpoint: dev.Endpoint(), UnitID: 2})
	mustCheck(t, d)
	dev.DelayNext(timeout * 3 / 2)
	mustFail(t, d, driver.ReasonTimeout)
	if got := d.endpoint.slot(d); got != timeout/2 {
		t.Errorf("in doubt the slot is %s, want half the timeout for each of two units", got)
	}
	// On a slow machine the neighbour's half of the timeout may be over before the late reply is there.
	_, _ = check(t, neighbour)
	mustCheck(t, neighbour)
	if got := d.endpoint.slot(d); got != timeout {
		t.Errorf("after its late reply the slot is %s, want the whole timeout", got)
	}
}

// Req: P-13 (OpenEMS#86, telegraf#7518)
func TestReadDecodesEveryTable(t *testing.T) {
	dev := plc(t)
	dev.Unit(9).
		SetHolding(0, 0x41cc, 0x0000, 0x0000, 0x41cc).
		SetHolding(100, 1234).
		SetInput(5, 0xff9c).
		SetCoil(3, true).
		SetDiscrete(4, false)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 9, Addressing: Reference})
	for _, c := range []struct {
		channel driver.Channel
		want    any
	}{
		{driver.Channel{Address: "holding:0", DataType: driver.Float32}, float32(25.5)},
		{driver.Channel{Address: "40001", DataType: driver.Float32}, float32(25.5)},
		{driver.Channel{Address: "holding:2", DataType: driver.Float32, WordOrder: "CDAB"}, float32(25.5)},
		{driver.Channel{Address: "40101", DataType: driver.Uint16}, uint16(1234)},
		{driver.Channel{Address: "30006", DataType: driver.Int16}, int16(-100)},
		{driver.Channel{Address: "00004", DataType: driver.Bool}, true},
		{driver.Channel{Address: "discrete:4"}, false},
	} {
		if got, err := driver.ReadOne(t.Context(), d, c.channel); err != nil || got != c.want {
			t.Errorf("read of %+v: %v, %v, want %v", c.channel, got, err, c.want)
		}
	}
	_, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "holding:101"})
	if e, ok := errors.AsType[*driver.Error](err); !ok || !e.Answered || e.Reason != driver.ReasonConfigurationError {
		t.Errorf("read of an absent register: %v, want an answered ConfigurationError", err)
	}
}

// Req: P-13 (FC 43/14)
func TestIdentify(t *testing.T) {
	names := map[byte]string{0: "Acme", 1: "IO-8", 2: "1.4", 3: "https://example.com", 4: "Acme Islands", 5: "Island 8"}
	for _, c := range []struct {
		name    string
		prepare func(*modbustest.Unit)
		want    driver.Identity
		reason  driver.Reason
	}{
		{"basic objects only", func(u *modbustest.Unit) { u.SetIdentity(map[byte]string{0: "Acme", 1: "IO-8", 2: "1.4"}) },
			driver.Identity{Vendor: "Acme", Product: "IO-8", Revision: "1.4"}, ""},
		{"regular objects", func(u *modbustest.Unit) { u.SetIdentity(names) },
			driver.Identity{Vendor: "Acme", Product: "Acme Islands", Revision: "1.4"}, ""},
		{"in parts", func(u *modbustest.Unit) { u.SetIdentity(names).IdentityInParts(1, false) },
			driver.Identity{Vendor: "Acme", Product: "Acme Islands", Revision: "1.4"}, ""},
		{"more follows for ever", func(u *modbustest.Unit) { u.SetIdentity(names).IdentityInParts(0, true) },
			driver.Identity{Vendor: "Acme", Product: "Acme Islands", Revision: "1.4"}, ""},
		{"control characters are left out", func(u *modbustest.Unit) {
			u.SetIdentity(map[byte]string{0: "A\x1b[31mcme\n", 1: strings.Repeat("x", 90)})
		},
			driver.Identity{Vendor: "A[31mcme", Product: strings.Repeat("x", 64)}, ""},
		{"not supported", func(u *modbustest.Unit) {}, driver.Identity{}, driver.ReasonNotSupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t, 1)
			c.prepare(dev.Unit(1))
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
			got, err := d.Identify(t.Context())
			if got != c.want || (err == nil) != (c.reason == "") || err != nil && driver.ReasonOf(err) != c.reason {
				t.Errorf("identity %+v, %v, want %+v, %q", got, err, c.want, c.reason)
			}
			mustCheck(t, d)
		})
	}
}

func TestCloseAfterPollGivesTheConnectionBack(t *testing.T) {
	dev := plc(t, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, CloseAfterPoll: true})
	for range 3 {
		mustCheck(t, d)
		eventually(t, "the connection is closed", func() bool { return dev.Open() == 0 })
	}
	if n := dev.Accepted(); n != 3 {
		t.Errorf("%d connections for three polls, want 3", n)
	}
}

// Req: P-07 (what was not measured is no verdict)
func TestACancelledCheckSaysNothingOfTheDevice(t *testing.T) {
	dev := plc(t, 1)
	dev.Unit(1).Silent(true)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Timeout: time.Minute}).(*device)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for dev.Requests() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := d.Check(ctx); err == nil {
		t.Error("a cancelled check succeeded")
	}
	if d.unit.suspect || d.endpoint.inDoubt {
		t.Error("a cancelled check made the unit suspect")
	}
	dev.Unit(1).Silent(false)
	mustCheck(t, d)
}

func TestWaitingForAPlaceToConnectIsNotMeasured(t *testing.T) {
	dev := plc(t, 1)
	limit := driver.NewConnectLimit(1)
	place, err := limit.Acquire(t.Context(), false, &driver.Turn{})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, New((&net.Dialer{}).DialContext, limit), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	mustFail(t, d, driver.ReasonNotMeasured)
	place.Release()
	mustCheck(t, d)
}

func TestAnUnknownHostIsNameResolutionFailed(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "plc-1", IsNotFound: true}}
	}
	d := open(t, New(dial, driver.NewConnectLimit(1)), Config{Endpoint: "tcp://plc-1"})
	mustFail(t, d, driver.ReasonNameResolutionFailed)
}

// Req: P-13, P-16
func TestOneFailedConnectCountsForAllUnitsThatWaitedForIt(t *testing.T) {
	dials := make(chan struct{}, 100)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	drv := New(dial, driver.NewConnectLimit(20))
	var all sync.WaitGroup
	for id := range byte(8) {
		d := open(t, drv, Config{Endpoint: "tcp://plc-1", UnitID: id})
		all.Go(func() {
			if _, err := check(t, d); err == nil || driver.ReasonOf(err) != driver.ReasonTimeout {
				t.Errorf("check ended with %v, want a Timeout", err)
			}
		})
	}
	all.Wait()
	if n := len(dials); n != 1 {
		t.Errorf("%d connects for eight units that failed together, want 1", n)
	}
}

// Req: P-13 (errors name the field and say what to do)
func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		says   string
	}{
		{"endpoint", Config{Endpoint: "plc-1:502"}, "must begin with tcp://"},
		{"word order", Config{Endpoint: "tcp://plc-1", WordOrder: "ACBD"}, "word order"},
		{"addressing", Config{Endpoint: "tcp://plc-1", Addressing: "oneBased"}, "addressing"},
		{"address", Config{Endpoint: "tcp://plc-1", Channels: []driver.Channel{{Name: "level", Address: "40001"}}}, `channel "level"`},
		{"data type of a coil", Config{Endpoint: "tcp://plc-1", Channels: []driver.Channel{{Name: "valve", Address: "coil:1", DataType: driver.Int16}}}, "is a bool"},
		{"data type of a register", Config{Endpoint: "tcp://plc-1", Channels: []driver.Channel{{Name: "name", Address: "holding:1", DataType: "decimal"}}}, "cannot hold a decimal"},
		{"beyond the table", Config{Endpoint: "tcp://plc-1", Channels: []driver.Channel{{Name: "last", Address: "holding:65535", DataType: driver.Float32}}}, "beyond the end"},
		{"a channel's word order", Config{Endpoint: "tcp://plc-1", Channels: []driver.Channel{{Name: "x", Address: "holding:0", WordOrder: "x"}}}, "word order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newDriver().Open(c.config)
			if err == nil || driver.ReasonOf(err) != driver.ReasonConfigurationError || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want a ConfigurationError that says %q", err, c.says)
			}
		})
	}
}
