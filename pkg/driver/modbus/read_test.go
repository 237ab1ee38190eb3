package modbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
)

// holdings are n holding registers from first on, step apart.
func holdings(first, n, step int) []driver.Channel {
	var channels []driver.Channel
	for i := range n {
		channels = append(channels, driver.Channel{Name: fmt.Sprint(i), Address: fmt.Sprintf("holding:%d", first+i*step)})
	}
	return channels
}

// fill sets holding registers from 0 on, each to its own address.
func fill(u *modbustest.Unit, n int) *modbustest.Unit {
	for i := range n {
		u.SetHolding(uint16(i), uint16(i))
	}
	return u
}

// Req: P-13, P-15 (at most 125 registers or 2000 bits in one request, gaps of at most 16)
func TestNeighboursAreReadByOneRequest(t *testing.T) {
	for _, c := range []struct {
		name     string
		channels []driver.Channel
		requests int
	}{
		{"nothing", nil, 0},
		{"a hundred neighbours", holdings(0, 100, 1), 1},
		{"every other register", holdings(0, 60, 2), 1},
		{"as far apart as is read along", holdings(0, 5, 17), 1},
		{"further apart", holdings(0, 5, 18), 5},
		{"as many as one request may have", holdings(0, 125, 1), 1},
		{"one more", holdings(0, 126, 1), 2},
		{"the same channel many times", slices.Repeat(holdings(3, 1, 1), 50), 1},
		{"in any order", append(holdings(5, 3, 1), holdings(0, 5, 1)...), 1},
		{"overlapping values", []driver.Channel{
			{Address: "holding:0", DataType: driver.Uint64}, {Address: "holding:1", DataType: driver.Uint32}, {Address: "holding:2"},
		}, 1},
		{"a wide value that would not fit", append(holdings(0, 124, 1), driver.Channel{Address: "holding:124", DataType: driver.Float32}), 2},
		{"two tables", append(holdings(0, 3, 1), driver.Channel{Address: "input:0"}), 2},
		{"bits", []driver.Channel{{Address: "coil:0"}, {Address: "coil:9"}, {Address: "coil:24"}, {Address: "discrete:1"}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			u := fill(dev.Unit(1), 300).SetInput(0, 77).SetDiscrete(1, true)
			for i := range 30 {
				u.SetCoil(uint16(i), i == 9 || i == 24)
			}
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1}).(*device)
			samples, err := d.Read(t.Context(), c.channels)
			if err != nil || len(samples) != len(c.channels) {
				t.Fatalf("%d samples, %v", len(samples), err)
			}
			if got := dev.Requests(); got != c.requests {
				t.Errorf("%d requests, want %d", got, c.requests)
			}
			for i, channel := range c.channels {
				// What one request gives is what each alone gives.
				want, err := driver.ReadOne(t.Context(), d, channel)
				if err != nil || samples[i].Err != nil || samples[i].Value != want || samples[i].Status != driver.StatusGood {
					t.Errorf("%s: %+v, alone %v, %v", channel.Address, samples[i], want, err)
				}
			}
		})
	}
}

// Req: P-15
func TestValuesAreDecodedWhereverTheyStandInABlock(t *testing.T) {
	dev := plc(t)
	dev.Unit(1).SetHolding(10, 1, 0x41cc, 0x0000, 0x0000, 0x41cc, 0xffff).SetCoil(7, true, false, true, false, false, false, false, false, false, true)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	samples, err := d.Read(t.Context(), []driver.Channel{
		{Address: "coil:16"}, {Address: "holding:15", DataType: driver.Int16}, {Address: "holding:11", DataType: driver.Float32},
		{Address: "coil:7"}, {Address: "holding:13", DataType: driver.Float32, WordOrder: "CDAB"}, {Address: "coil:8"}, {Address: "holding:10", DataType: driver.Bool},
	})
	want := []any{true, int16(-1), float32(25.5), true, float32(25.5), false, true}
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		if samples[i].Value != w {
			t.Errorf("channel %d: %+v, want %v", i, samples[i], w)
		}
	}
	if n := dev.Requests(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// Req: P-13, P-15
func TestWhatADeviceRefusesIsFoundAndRemembered(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(u *modbustest.Unit)
		// channels, which of them are refused, and how many requests the first Read and each later one may take.
		channels     []driver.Channel
		refused      []int
		first, later int
	}{
		{"one register that is not there", func(u *modbustest.Unit) {
			fill(u, 50)
			for i := 51; i < 100; i++ {
				u.SetHolding(uint16(i), uint16(i))
			}
		}, holdings(0, 100, 1), []int{50}, 16, 10},
		{"a gap that is not there", func(u *modbustest.Unit) {
			fill(u, 10)
			for i := 20; i < 30; i++ {
				u.SetHolding(uint16(i), uint16(i))
			}
		}, append(holdings(0, 10, 1), holdings(20, 10, 1)...), nil, 3, 2},
		{"fewer at once than the standard allows", func(u *modbustest.Unit) { fill(u, 100).AtMost(30, false) }, holdings(0, 100, 1), nil, 7, 4},
		{"silence where others refuse", func(u *modbustest.Unit) { fill(u, 40).AtMost(30, true) }, holdings(0, 40, 1), nil, 4, 2},
		{"a table that cannot be read", func(u *modbustest.Unit) { fill(u, 10).FailFunction(3, 1) }, holdings(0, 10, 1), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			c.setup(dev.Unit(1))
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
			for round, most := range []int{c.first, c.later, c.later} {
				before := dev.Requests()
				samples, err := d.Read(t.Context(), c.channels)
				if err != nil {
					t.Fatal(err)
				}
				if n := dev.Requests() - before; n > most {
					t.Errorf("round %d: %d requests, want at most %d", round, n, most)
				}
				for i, s := range samples {
					if slices.Contains(c.refused, i) {
						if s.Err == nil || !s.Err.Answered || s.Status != driver.StatusBadConfigurationError {
							t.Errorf("channel %d: %+v, want a refusal", i, s)
						}
						continue
					}
					if want := fmt.Sprintf("holding:%d", s.Value); s.Err != nil || want != c.channels[i].Address {
						t.Errorf("channel %d: %+v", i, s)
					}
				}
			}
		})
	}
}

// Req: P-15
func TestARefusalIsForgottenInTime(t *testing.T) {
	dev := plc(t)
	fill(dev.Unit(1), 20)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1}).(*device)
	samples := make([]driver.Sample, 20)
	all := spans(d, holdings(0, 20, 1), samples)
	now := time.Now()
	d.joins.split(all[10], now)
	if n := len(d.blocks(all, now.Add(splitFor-1))); n != 2 {
		t.Errorf("%d blocks while it is remembered", n)
	}
	if n := len(d.blocks(all, now.Add(splitFor))); n != 1 {
		t.Errorf("%d blocks after it is forgotten", n)
	}
}

// Req: P-15 (Modbus 4, 6, 0x0A, 0x0B)
func TestExceptionsAreQualities(t *testing.T) {
	dev := plc(t)
	u := fill(dev.Unit(1), 20)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	channels := holdings(0, 20, 1)
	read := func(what string, status driver.StatusCode) {
		t.Helper()
		samples, err := d.Read(t.Context(), channels)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, s := range samples {
			if s.Status != status || (s.Err == nil) != status.Good() || (s.Value != nil) != status.Good() {
				t.Errorf("%s: channel %d: %+v, want %v", what, i, s, status)
			}
		}
	}
	read("at first", driver.StatusGood)
	u.Busy(1)
	read("busy once", driver.StatusGood)
	u.Busy(2)
	read("busy twice", driver.StatusUncertainLastUsableValue)
	u.Fail(4)
	read("failed", driver.StatusBadDeviceFailure)
	for _, code := range []byte{0x0A, 0x0B} {
		u.Fail(code)
		if samples, err := d.Read(t.Context(), channels); driver.ReasonOf(err) != driver.ReasonUnitNotResponding || samples != nil {
			t.Errorf("exception %#x: %v, %v", code, samples, err)
		}
	}
	u.Fail(0)
	read("at last", driver.StatusGood)
}

// Req: P-15
func TestChannelsThatCannotBeReadDoNotKeepOthersFromIt(t *testing.T) {
	dev := plc(t)
	fill(dev.Unit(1), 20)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	samples, err := d.Read(t.Context(), []driver.Channel{
		{Name: "a", Address: "holding:7"}, {Name: "b", Address: "nowhere"}, {Name: "c", Address: "holding:1", DataType: driver.String},
		{Name: "d", Address: "holding:1", Count: 3}, {Name: "e", Address: "coil:0", DataType: driver.Float32}, {Name: "f", Address: "holding:65535", DataType: driver.Float32},
	})
	if err != nil || samples[0].Value != uint16(7) {
		t.Fatalf("%+v, %v", samples, err)
	}
	for i, s := range samples[1:] {
		if s.Err == nil || s.Err.Answered || s.Status != driver.StatusBadConfigurationError || s.Value != nil {
			t.Errorf("channel %d: %+v", i+1, s)
		}
	}
}

// Req: P-13
func TestALinkThatFailsLeavesNoSamples(t *testing.T) {
	dev := plc(t)
	fill(dev.Unit(1), 300)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1})
	channels := holdings(0, 300, 1)
	if _, err := d.Read(t.Context(), channels); err != nil {
		t.Fatal(err)
	}
	dev.Blackhole(true)
	began := time.Now()
	samples, err := d.Read(t.Context(), channels)
	if took := time.Since(began); samples != nil || driver.ReasonOf(err) != driver.ReasonTimeout || took > 3*timeout {
		t.Errorf("%v, %v after %s; want Timeout after one timeout", samples, err, took)
	}
	dev.Blackhole(false)
	dev.Reset()
	if _, err := d.Read(t.Context(), channels); err != nil {
		t.Errorf("when it is back: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Read(ctx, channels); err == nil {
		t.Error("a read without time succeeded")
	} else if _, ok := errors.AsType[*driver.Error](err); !ok {
		t.Errorf("%v is no *driver.Error", err)
	}
}

// Req: P-13
func TestABatchTakesOneConnectionOfADeviceThatClosesAfterEachPoll(t *testing.T) {
	dev := plc(t)
	fill(dev.Unit(1), 300)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, CloseAfterPoll: true})
	for range 3 {
		if _, err := d.Read(t.Context(), holdings(0, 300, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := dev.Accepted(); n != 3 {
		t.Errorf("%d connections for three reads of three requests", n)
	}
}
