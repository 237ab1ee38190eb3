package modbus

import (
	"context"
	"encoding/hex"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
)

func write(t *testing.T, d driver.Device, channel driver.Channel, value any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*timeout)
	defer cancel()
	return d.Write(ctx, channel, value)
}

// Req: P-13 (telegraf#7518: word order). What was read in some order is written back as the same bytes.
func TestRegistersAreWrittenInTheOrderInWhichTheyAreRead(t *testing.T) {
	for _, c := range []struct {
		wire  string
		order WordOrder
		as    driver.DataType
		value any
	}{
		{"41cc0000", ABCD, driver.Float32, float32(25.5)},
		{"000041cc", CDAB, driver.Float32, float32(25.5)},
		{"cc410000", BADC, driver.Float32, float32(25.5)},
		{"0000cc41", DCBA, driver.Float32, float32(25.5)},
		{"fffffeff", BADC, driver.Int32, int32(-2)},
		{"0102030405060708", ABCD, driver.Int64, int64(0x0102030405060708)},
		{"0708050603040102", CDAB, driver.Int64, int64(0x0102030405060708)},
		{"0201040306050807", BADC, driver.Int64, int64(0x0102030405060708)},
		{"0807060504030201", DCBA, driver.Uint64, uint64(0x0102030405060708)},
		{"0000000000803940", DCBA, driver.Float64, 25.5},
		{"3412", BADC, driver.Uint16, uint16(0x1234)},
		{"ff9c", CDAB, driver.Int16, int16(-100)},
	} {
		t.Run(string(c.as)+" in "+string(c.order), func(t *testing.T) {
			dev := plc(t, 1)
			dev.Unit(1).SetHolding(10, 0, 0, 0, 0)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, WordOrder: c.order})
			channel := driver.Channel{Name: "a", Address: "holding:10", DataType: c.as}
			if err := write(t, d, channel, c.value); err != nil {
				t.Fatal(err)
			}
			var wire []byte
			for i := range len(c.wire) / 4 {
				wire = append(wire, bigEndian(dev.Unit(1).Holding(10+uint16(i)))...)
			}
			if got := hex.EncodeToString(wire); got != c.wire {
				t.Errorf("%v was written as %s, want %s", c.value, got, c.wire)
			}
			if got, err := driver.ReadOne(t.Context(), d, channel); err != nil || got != c.value {
				t.Errorf("read back as %v, %v", got, err)
			}
		})
	}
}

// Req: P-13
func TestBoolsAreCoilsOrWholeRegisters(t *testing.T) {
	dev := plc(t, 1)
	dev.Unit(1).SetCoil(3, false)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Addressing: Reference})
	for _, on := range []bool{true, false} {
		if err := write(t, d, driver.Channel{Address: "00004"}, on); err != nil || dev.Unit(1).Coil(3) != on {
			t.Errorf("coil: wrote %v: %v", on, err)
		}
		want := map[bool]uint16{true: 1}[on]
		if err := write(t, d, driver.Channel{Address: "40001", DataType: driver.Bool}, on); err != nil || dev.Unit(1).Holding(0) != want {
			t.Errorf("register: wrote %v: %v", on, err)
		}
	}
}

// Req: P-13
func TestWhatCannotBeWrittenIsRefusedWithoutAskingTheDevice(t *testing.T) {
	for _, c := range []struct {
		name    string
		channel driver.Channel
		value   any
		want    driver.Reason
		says    string
	}{
		{"a discrete input", driver.Channel{Address: "discrete:0"}, true, driver.ReasonConfigurationError, "cannot be written"},
		{"an input register", driver.Channel{Address: "input:0"}, 1, driver.ReasonConfigurationError, "cannot be written"},
		{"what is declared as read-only", driver.Channel{Address: "holding:0", Access: driver.AccessRead}, 1, driver.ReasonConfigurationError, "declared as Read"},
		{"a value out of range", driver.Channel{Address: "holding:0"}, 65536, driver.ReasonConfigurationError, "cannot hold 65536"},
		{"a number into a coil", driver.Channel{Address: "coil:0"}, 1, driver.ReasonConfigurationError, "cannot hold int"},
		{"a text", driver.Channel{Address: "holding:0", DataType: driver.String}, "a", driver.ReasonNotSupported, "texts"},
		{"an array", driver.Channel{Address: "holding:0", Count: 2}, 1, driver.ReasonNotSupported, "single values"},
		{"no address", driver.Channel{Address: "40001"}, 1, driver.ReasonConfigurationError, "addressing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t, 1)
			err := write(t, open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1}), c.channel, c.value)
			if err == nil || driver.ReasonOf(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s with %q", err, c.want, c.says)
			}
			if n := dev.Requests(); n != 0 {
				t.Errorf("the device was asked %d times", n)
			}
		})
	}
}

func TestARefusedWriteIsTheDevicesAnswer(t *testing.T) {
	dev := plc(t, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	err := write(t, d, driver.Channel{Address: "holding:999"}, 1)
	if e, ok := err.(*driver.Error); !ok || !e.Answered || e.Reason != driver.ReasonConfigurationError {
		t.Errorf("%v, want an answered ConfigurationError", err)
	}
	mustCheck(t, d)
	if n := dev.Accepted(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestADeviceThatKnowsFC16AloneIsWrittenByIt(t *testing.T) {
	dev := plc(t, 1)
	dev.Unit(1).FailFunction(6, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	if err := write(t, d, driver.Channel{Address: "holding:2"}, 99); err != nil || dev.Unit(1).Holding(2) != 99 {
		t.Errorf("%v, the register is %d", err, dev.Unit(1).Holding(2))
	}
}

// Req: P-13
func TestAWriteWhoseReplyIsLostIsNotRepeatedAndSaysThatNobodyKnows(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*modbustest.Device)
		want  driver.Reason
	}{
		{"silence", func(d *modbustest.Device) { d.DelayNext(2 * timeout) }, driver.ReasonTimeout},
		{"a reply to something else", func(d *modbustest.Device) { d.Malform(modbustest.WrongFunction) }, driver.ReasonProtocolError},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t, 1)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
			mustCheck(t, d)
			before := dev.Requests()
			c.fault(dev)
			err := write(t, d, driver.Channel{Address: "holding:0"}, 5)
			if err == nil || driver.ReasonOf(err) != c.want || !strings.Contains(err.Error(), "may or may not") {
				t.Errorf("%v, want %s and that nobody knows", err, c.want)
			}
			time.Sleep(timeout)
			if n := dev.Requests() - before; n != 1 {
				t.Errorf("the write was sent %d times", n)
			}
		})
	}
}

func TestAWriteThatWasNeverSentDoesNotSayThatNobodyKnows(t *testing.T) {
	dev := plc(t, 1)
	dev.Stop()
	err := write(t, open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1}), driver.Channel{Address: "holding:0"}, 5)
	if driver.ReasonOf(err) != driver.ReasonRefused || strings.Contains(err.Error(), "may or may not") {
		t.Errorf("%v, want Refused", err)
	}
}

// A device that idles connections out has closed it before the write: it is made on a new one.
func TestAWriteMeetsAConnectionThatTheDeviceHasClosed(t *testing.T) {
	dev := plc(t, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	mustCheck(t, d)
	dev.Reset()
	time.Sleep(20 * time.Millisecond)
	if err := write(t, d, driver.Channel{Address: "holding:0"}, 5); err != nil || dev.Unit(1).Holding(0) != 5 {
		t.Errorf("%v, the register is %d", err, dev.Unit(1).Holding(0))
	}
}

func TestEndedByPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if endedByPeer(conn) {
		t.Error("a connection that lives has ended")
	}
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if endedByPeer(conn) {
		t.Error("a connection with something to read has ended")
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("what was looked at is gone: %v", err)
	}
	_ = peer.Close()
	time.Sleep(20 * time.Millisecond)
	if !endedByPeer(conn) {
		t.Error("a closed connection lives")
	}
}
