package modbus

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
)

func channels(t *testing.T, d driver.Device, limit int) (driver.ChannelList, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*timeout)
	defer cancel()
	return d.Channels(ctx, limit)
}

// Req: P-06, P-13
func TestDeclaredChannelsAreListedInTheirOrderAndVerified(t *testing.T) {
	dev := plc(t, 1)
	dev.Unit(1).SetCoil(0, true).SetInput(5, 1).SetDiscrete(0, true)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true, Channels: []driver.Channel{
		{Name: "set", Address: "holding:900", Access: driver.AccessWrite},
		{Name: "flow", Address: "holding:0", DataType: driver.Float32, Access: driver.AccessRead},
		{Name: "gone", Address: "holding:500", DataType: driver.Int64},
		{Name: "valve", Address: "coil:0"},
		{Name: "level", Address: "input:5"},
		{Name: "door", Address: "discrete:0", Access: driver.AccessReadWrite},
		{Name: "recipe", Address: "holding:2", Count: 3},
	}})
	list, err := channels(t, d, 0)
	if err != nil || list.Truncated {
		t.Fatal(list.Truncated, err)
	}
	want := []driver.ChannelInfo{
		{Name: "set", Address: "holding:900", DataType: driver.Uint16, Count: 1, Access: driver.AccessWrite},
		{Name: "flow", Address: "holding:0", DataType: driver.Float32, Count: 1, Access: driver.AccessRead},
		{Name: "gone", Address: "holding:500", DataType: driver.Int64, Count: 1, Access: driver.AccessReadWrite, Problem: driver.ReasonConfigurationError},
		{Name: "valve", Address: "coil:0", DataType: driver.Bool, Count: 1, Access: driver.AccessReadWrite},
		{Name: "level", Address: "input:5", DataType: driver.Uint16, Count: 1, Access: driver.AccessRead},
		{Name: "door", Address: "discrete:0", DataType: driver.Bool, Count: 1, Access: driver.AccessReadWrite, Problem: driver.ReasonConfigurationError},
		{Name: "recipe", Address: "holding:2", DataType: driver.Uint16, Count: 3, Access: driver.AccessReadWrite, Problem: driver.ReasonConfigurationError},
	}
	for i, got := range list.Items {
		if (got.Message != "") != (got.Problem != "") {
			t.Errorf("%s: problem %q with message %q", got.Name, got.Problem, got.Message)
		}
		got.Message = ""
		want[i].Declared = true
		if got != want[i] {
			t.Errorf("%+v, want %+v", got, want[i])
		}
	}
	if n := dev.Requests(); n != 6 {
		t.Errorf("%d requests for six channels that may be read", n)
	}
	// What Check reads is the first channel that may be read.
	if answer, err := check(t, d); err != nil || answer.Reason != "" {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestALongBlockIsReadInParts(t *testing.T) {
	dev := plc(t, 1)
	dev.Unit(1).SetHolding(0, make([]uint16, 1000)...).SetCoil(0, make([]bool, 2000)...)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true, Channels: []driver.Channel{
		{Name: "log", Address: "holding:0", DataType: driver.Float64, Count: 250},
		{Name: "bits", Address: "coil:0", Count: 2000},
	}})
	list, err := channels(t, d, 0)
	if err != nil || list.Items[0].Problem != "" || list.Items[1].Problem != "" {
		t.Fatalf("%+v, %v", list, err)
	}
	if n := dev.Requests(); n != 8+1 {
		t.Errorf("%d requests, want 8 of 125 registers and one of 2000 bits", n)
	}
}

func TestWithoutVerificationNothingIsAsked(t *testing.T) {
	dev := plc(t, 1)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Channels: []driver.Channel{{Name: "a", Address: "holding:500"}}})
	if list, err := channels(t, d, 0); err != nil || len(list.Items) != 1 || list.Items[0].Problem != "" || dev.Requests() != 0 {
		t.Errorf("%+v, %v, %d requests", list, err, dev.Requests())
	}
}

func TestTheLimitIsTold(t *testing.T) {
	dev := plc(t, 1)
	c := Config{Endpoint: dev.Endpoint(), UnitID: 1}
	for i := range 5 {
		c.Channels = append(c.Channels, driver.Channel{Name: fmt.Sprint(i), Address: "holding:0"})
	}
	d := open(t, newDriver(), c)
	for limit, want := range map[int]bool{4: true, 5: false, 6: false} {
		if list, err := channels(t, d, limit); err != nil || len(list.Items) != min(limit, 5) || list.Truncated != want {
			t.Errorf("limit %d: %d channels, truncated %v, %v", limit, len(list.Items), list.Truncated, err)
		}
	}
}

// Req: P-06
func TestVerificationTellsALinkFromAChannel(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*modbustest.Device)
		want  driver.Reason
	}{
		{"a device that falls silent", func(d *modbustest.Device) { d.Blackhole(true) }, driver.ReasonTimeout},
		{"a device that is gone", func(d *modbustest.Device) { d.Stop() }, driver.ReasonRefused},
		{"a unit that is gone", func(d *modbustest.Device) { d.RemoveUnit(1); d.Absent(modbustest.AnswerTargetFailed) }, driver.ReasonUnitNotResponding},
		{"a device that talks nonsense", func(d *modbustest.Device) { d.Malform(modbustest.Noise) }, driver.ReasonProtocolError},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t, 1)
			config := Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true}
			for i := range 10 {
				config.Channels = append(config.Channels, driver.Channel{Name: fmt.Sprint(i), Address: "holding:0"})
			}
			d := open(t, newDriver(), config)
			mustCheck(t, d)
			c.fault(dev)
			if list, err := channels(t, d, 0); err == nil || driver.ReasonOf(err) != c.want {
				t.Errorf("%+v, %v, want %s", list, err, c.want)
			}
		})
	}

	t.Run("one silent channel", func(t *testing.T) {
		dev := plc(t, 1)
		d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true, Channels: []driver.Channel{
			{Name: "a", Address: "holding:0"}, {Name: "b", Address: "holding:1"}, {Name: "c", Address: "holding:2"},
		}})
		mustCheck(t, d)
		dev.DelayNext(timeout * 3 / 2)
		list, err := channels(t, d, 0)
		if err != nil || list.Items[0].Problem != driver.ReasonTimeout || list.Items[1].Problem != "" {
			t.Fatalf("%+v, %v", list, err)
		}
		mustCheck(t, d)
	})

	t.Run("the end of the context", func(t *testing.T) {
		dev := plc(t, 1)
		d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true, Channels: []driver.Channel{{Name: "a", Address: "holding:0"}}})
		dev.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), timeout/4)
		defer cancel()
		started := time.Now()
		if list, err := d.Channels(ctx, 0); err == nil {
			t.Errorf("%+v", list)
		}
		if took := time.Since(started); took > timeout {
			t.Errorf("took %s", took)
		}
	})
}

// Req: P-06
func TestALongMapOfASlowDeviceIsListedWithoutItsRestBeingVerified(t *testing.T) {
	dev := plc(t, 1)
	dev.Delay(timeout / 4)
	c := Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true}
	for i := range 1000 {
		c.Channels = append(c.Channels, driver.Channel{Name: fmt.Sprint(i), Address: "holding:900"})
	}
	d := open(t, newDriver(), c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*timeout)
	defer cancel()
	list, err := d.Channels(ctx, 0)
	if err != nil || len(list.Items) != 1000 || list.Items[0].Problem != driver.ReasonConfigurationError || list.Items[999].Problem != "" {
		t.Errorf("%d channels, %v", len(list.Items), err)
	}
	if n := dev.Requests(); n < 3 || n > 40 {
		t.Errorf("%d requests", n)
	}
}

func TestVerifyingTakesOneConnectionOfADeviceThatIsLeftAfterEachPoll(t *testing.T) {
	dev := plc(t, 1)
	c := Config{Endpoint: dev.Endpoint(), UnitID: 1, Verify: true, CloseAfterPoll: true}
	for i := range 10 {
		c.Channels = append(c.Channels, driver.Channel{Name: fmt.Sprint(i), Address: "holding:0"})
	}
	d := open(t, newDriver(), c)
	if _, err := channels(t, d, 0); err != nil || dev.Accepted() != 1 {
		t.Errorf("%v, %d connections", err, dev.Accepted())
	}
	for end := time.Now().Add(5 * time.Second); dev.Open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connection is kept")
		}
	}
}
