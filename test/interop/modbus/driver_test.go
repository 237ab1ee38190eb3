package modbus

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/test/interop/faultproxy"
)

// Req: P-13 (telegraf#7518: word order of floats and 64-bit integers)
func TestValuesAreReadInAllFourOrders(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		d := open(t, newDriver(), modbus.Config{Endpoint: endpoint(network)})
		for i, order := range []modbus.WordOrder{modbus.ABCD, modbus.CDAB, modbus.BADC, modbus.DCBA} {
			for _, c := range []struct {
				address  int
				dataType driver.DataType
				want     any
			}{
				{2 * i, driver.Float32, float32(25.5)},
				{8 + 4*i, driver.Int64, int64(0x0102030405060708)},
				{8 + 4*i, driver.Uint64, uint64(0x0102030405060708)},
			} {
				channel := driver.Channel{Address: fmt.Sprintf("holding:%d", c.address), DataType: c.dataType, WordOrder: string(order)}
				if got, err := driver.ReadOne(t.Context(), d, channel); err != nil || got != c.want {
					t.Errorf("%s as %s in %s: %v, %v, want %v", channel.Address, c.dataType, order, got, err, c.want)
				}
			}
		}
	})
}

// Req: P-13 (OpenEMS#86: off by one, and values that straddle two others)
func TestAddressesCountFromWhereTheyAreSaidTo(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		drv := newDriver()
		zero := open(t, drv, modbus.Config{Endpoint: endpoint(network)})
		reference := open(t, drv, modbus.Config{Endpoint: endpoint(network), Addressing: modbus.Reference})
		for _, c := range []struct {
			device  driver.Device
			channel driver.Channel
			want    any
		}{
			{zero, driver.Channel{Address: "holding:24", DataType: driver.Float32}, float32(25.5)},
			{zero, driver.Channel{Address: "holding:26", DataType: driver.Float32}, float32(26.5)},
			{reference, driver.Channel{Address: "40025", DataType: driver.Float32}, float32(25.5)},
			{reference, driver.Channel{Address: "400027", DataType: driver.Float32}, float32(26.5)},
			{reference, driver.Channel{Address: "40001"}, uint16(16844)},
			{reference, driver.Channel{Address: "30001"}, uint16(1234)},
			{reference, driver.Channel{Address: "10002"}, true},
			{reference, driver.Channel{Address: "00001"}, true},
			{zero, driver.Channel{Address: "input:1", DataType: driver.Int16}, int16(-1)},
			{zero, driver.Channel{Address: "coil:1"}, false},
		} {
			if got, err := driver.ReadOne(t.Context(), c.device, c.channel); err != nil || got != c.want {
				t.Errorf("%s: %v, %v, want %v", c.channel.Address, got, err, c.want)
			}
		}
		if _, err := driver.ReadOne(t.Context(), zero, driver.Channel{Address: "40001"}); driver.ReasonOf(err) != driver.ReasonConfigurationError {
			t.Errorf("a reference number that nobody declared as such: %v", err)
		}
		if n := network.Accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// Req: P-13
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		d := open(t, newDriver(), modbus.Config{Endpoint: endpoint(network)})
		for _, c := range []struct {
			channel driver.Channel
			value   any
		}{
			{driver.Channel{Address: "coil:1"}, true},
			{driver.Channel{Address: "coil:0"}, false},
			{driver.Channel{Address: "holding:30"}, uint16(54321)},
			{driver.Channel{Address: "holding:30", DataType: driver.Bool}, true},
			{driver.Channel{Address: "holding:30", DataType: driver.Int32, WordOrder: "CDAB"}, int32(-123456)},
			{driver.Channel{Address: "holding:32", DataType: driver.Float32, WordOrder: "BADC"}, float32(25.5)},
			{driver.Channel{Address: "holding:34", DataType: driver.Float64, WordOrder: "DCBA"}, 25.5},
			{driver.Channel{Address: "holding:34", DataType: driver.Uint64}, uint64(1<<63 + 5)},
		} {
			if err := d.Write(t.Context(), c.channel, c.value); err != nil {
				t.Errorf("%s: %v", c.channel.Address, err)
			}
			if got, err := driver.ReadOne(t.Context(), d, c.channel); err != nil || got != c.value {
				t.Errorf("%s: %v, %v, want %v", c.channel.Address, got, err, c.value)
			}
		}
		// What was written as one is there as its parts: 25.5 is 41cc 0000.
		if err := d.Write(t.Context(), driver.Channel{Address: "holding:30", DataType: driver.Float32}, 25.5); err != nil {
			t.Error(err)
		}
		for address, want := range map[string]uint16{"holding:30": 0x41cc, "holding:31": 0} {
			if got, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: address}); err != nil || got != want {
				t.Errorf("%s: %v, %v, want %#x", address, got, err, want)
			}
		}
		err := d.Write(t.Context(), driver.Channel{Address: "holding:28"}, 1)
		if e, ok := errors.AsType[*driver.Error](err); !ok || !e.Answered || e.Reason != driver.ReasonConfigurationError {
			t.Errorf("a register that is not there: %v", err)
		}
	})
}

// Req: P-06
func TestIdentityAndDeclaredChannels(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		d := open(t, newDriver(), modbus.Config{Endpoint: endpoint(network), Verify: true, Channels: []driver.Channel{
			{Name: "flow", Address: "holding:0", DataType: driver.Float32},
			{Name: "recipe", Address: "holding:40", Count: 3},
			{Name: "gone", Address: "holding:41", Count: 3},
			{Name: "valves", Address: "coil:0", Count: 4},
			{Name: "no input", Address: "input:4"},
		}})
		id, err := d.Identify(t.Context())
		if want := (driver.Identity{Vendor: "Acme", Product: "Mixer", Revision: "V2.1"}); err != nil || id != want {
			t.Errorf("%+v, %v, want %+v", id, err, want)
		}
		list, err := d.Channels(t.Context(), 0)
		if err != nil || len(list.Items) != 5 {
			t.Fatalf("%+v, %v", list, err)
		}
		for i, refused := range []bool{false, false, true, false, true} {
			if got := list.Items[i]; (got.Problem == driver.ReasonConfigurationError) != refused {
				t.Errorf("%+v, want refused: %v", got, refused)
			}
		}
		if n := network.Accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// Req: P-13 (goburrow#64: transaction ids off by one for ever after one slow reply)
func TestOneSlowReplyCostsOneCheck(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		const timeout = 400 * time.Millisecond
		d := open(t, newDriver(), modbus.Config{Endpoint: endpoint(network), Timeout: timeout})
		mustCheck(t, d)
		network.DelayNext(timeout * 3 / 2)
		mustFail(t, d, driver.ReasonTimeout)
		for range 5 {
			mustCheck(t, d)
		}
		if v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "holding:40"}); err != nil || v != uint16(1) {
			t.Errorf("another request's reply: %v, %v", v, err)
		}
	})
}

// Req: P-13 (device-modbus-go#606: "broken pipe" until the process restarts)
func TestTheNextCheckReconnects(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, p *peer, network *faultproxy.Proxy) {
		const timeout = 400 * time.Millisecond
		d := open(t, newDriver(), modbus.Config{Endpoint: endpoint(network), Timeout: timeout})
		mustCheck(t, d)

		network.Reset()
		mustCheck(t, d)

		p.stop()
		mustFail(t, d, driver.ReasonConnectionLost, driver.ReasonRefused)
		p.start(t)
		mustCheck(t, d)

		network.Refuse()
		mustFail(t, d, driver.ReasonRefused)
		if err := network.Accept(); err != nil {
			t.Fatal(err)
		}
		mustCheck(t, d)

		network.Blackhole(true)
		mustFail(t, d, driver.ReasonTimeout)
		mustFail(t, d, driver.ReasonTimeout)
		network.Blackhole(false)
		mustRecover(t, d)

		network.HalfOpen()
		mustFail(t, d, driver.ReasonTimeout)
		mustRecover(t, d)

		network.SlowBytes(10 * time.Millisecond)
		mustCheck(t, d)
		network.SlowBytes(timeout)
		mustFail(t, d, driver.ReasonTimeout)
		network.SlowBytes(0)
		mustCheck(t, d)
		if n := network.Open(); n > 2 {
			t.Errorf("%d connections are open", n)
		}
	})
}

// Req: P-13 (device-modbus-go#356: few connections, several unit ids)
func TestUnitsOfOneDeviceShareOneConnection(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, _ *peer, network *faultproxy.Proxy) {
		drv := newDriver()
		for unit := uint8(1); unit <= 3; unit++ {
			d := open(t, drv, modbus.Config{Endpoint: endpoint(network), UnitID: unit})
			mustCheck(t, d)
			if v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "holding:99"}); err != nil || v != uint16(unit) {
				t.Errorf("unit %d: %v, %v", unit, v, err)
			}
		}
		if n := network.Accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// Req: P-13 (an absent unit: pymodbus is silent, modbus-serial answers)
func TestAnAbsentUnit(t *testing.T) {
	t.Parallel()
	absent := func(t *testing.T, p *peer) (neighbour, d driver.Device, network *faultproxy.Proxy) {
		network = faultproxy.Start(t, p.address)
		drv := newDriver()
		neighbour = open(t, drv, modbus.Config{Endpoint: endpoint(network), Timeout: 300 * time.Millisecond})
		return neighbour, open(t, drv, modbus.Config{Endpoint: endpoint(network), UnitID: 42, Timeout: 300 * time.Millisecond}), network
	}
	t.Run("pymodbus", func(t *testing.T) {
		neighbour, d, network := absent(t, pymodbus(t))
		for range 5 {
			mustFail(t, d, driver.ReasonTimeout)
			mustCheck(t, neighbour)
		}
		if n := network.Accepted(); n != 1 {
			t.Errorf("%d connections: a silent unit must not cost its neighbour the connection", n)
		}
	})
	t.Run("modbus-serial", func(t *testing.T) {
		_, d, _ := absent(t, modbusSerial(t))
		mustCheck(t, d)
	})
}
