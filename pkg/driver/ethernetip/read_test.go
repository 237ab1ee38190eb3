package ethernetip

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
)

// counters are n channels of an array of n counters, each of which holds its own index.
func counters(dev *ethernetiptest.Device, n int) []driver.Channel {
	dev.Add("Many", ethernetiptest.DINT, n)
	var channels []driver.Channel
	for i := range n {
		address := fmt.Sprintf("Many[%d]", i)
		dev.Set(address, int32(i))
		channels = append(channels, driver.Channel{Name: address, Address: address})
	}
	return channels
}

func mustRead(t *testing.T, d *device, channels []driver.Channel) []driver.Sample {
	t.Helper()
	samples, err := d.Read(t.Context(), channels)
	if err != nil || len(samples) != len(channels) {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	return samples
}

func mustCount(t *testing.T, samples []driver.Sample) {
	t.Helper()
	for i, s := range samples {
		if s.Value != int32(i) || s.Err != nil || s.Status != driver.StatusGood {
			t.Fatalf("sample %d: %+v", i, s)
		}
	}
}

const multiple, single = serviceMultiple, serviceReadTag

// Req: P-13, P-15 (a Multiple Service Packet within the connection's size, one at a time where it is refused)
func TestTagsAreReadByAsFewPacketsAsTheConnectionTakes(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		setup func(*ethernetiptest.Device)
		// first are the services of the first Read, later those of the second.
		first, later []byte
	}{
		{"one", 1, nil, []byte{single}, []byte{single}},
		{"two", 2, nil, []byte{multiple}, []byte{multiple}},
		{"a hundred", 100, nil, []byte{multiple}, []byte{multiple}},
		{"more than one packet takes", 300, nil, []byte{multiple, multiple}, []byte{multiple, multiple}},
		{"a hundred over a small connection", 100, func(d *ethernetiptest.Device) { d.RefuseLarge(true) },
			bytes.Repeat([]byte{multiple}, 4), bytes.Repeat([]byte{multiple}, 4)},
		{"a device that knows no packets", 5, func(d *ethernetiptest.Device) { d.FailService(multiple, 0x08) },
			append([]byte{multiple}, bytes.Repeat([]byte{single}, 5)...), bytes.Repeat([]byte{single}, 5)},
		{"a device of little memory", 4, func(d *ethernetiptest.Device) { d.FailService(multiple, 0x02) },
			append([]byte{multiple, multiple}, bytes.Repeat([]byte{single}, 4)...), bytes.Repeat([]byte{single}, 4)},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			if c.setup != nil {
				c.setup(dev)
			}
			channels := counters(dev, c.n)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Timeout: time.Second})
			for _, want := range [][]byte{c.first, c.later} {
				mustCount(t, mustRead(t, d, channels))
				if got := dev.Services(); !bytes.Equal(got, want) {
					t.Errorf("services %x, want %x", got, want)
				}
			}
			if n := dev.Accepted(); n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// Req: P-15
func TestOfAPacketEachTagHasItsOwnQuality(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	cases := []struct {
		channel  driver.Channel
		value    any
		status   driver.StatusCode
		reason   driver.Reason
		answered bool
	}{
		{driver.Channel{Address: "Level"}, float32(12.5), 0, "", false},
		{driver.Channel{Address: "Level", DataType: driver.Float64}, 12.5, 0, "", false},
		{driver.Channel{Address: "Nothing"}, nil, driver.StatusBadConfigurationError, driver.ReasonConfigurationError, true},
		{driver.Channel{Address: "Counts[3]"}, int32(-7), 0, "", false},
		{driver.Channel{Address: "Counts[99]"}, nil, driver.StatusBadConfigurationError, driver.ReasonConfigurationError, true},
		{driver.Channel{Address: "Label", DataType: driver.String}, "hello", 0, "", false},
		{driver.Channel{Address: "Level", DataType: driver.Bool}, nil, driver.StatusBadConfigurationError, driver.ReasonConfigurationError, true},
		{driver.Channel{Address: "Flags[1].3"}, true, 0, "", false},
		{driver.Channel{Address: "Flags[1].2"}, false, 0, "", false},
		{driver.Channel{Address: "no tag at all"}, nil, driver.StatusBadConfigurationError, driver.ReasonConfigurationError, false},
		{driver.Channel{Address: "Counts", Count: 10}, nil, driver.StatusBadConfigurationError, driver.ReasonNotSupported, false},
		{driver.Channel{Address: "Mixer"}, nil, driver.StatusBadConfigurationError, driver.ReasonConfigurationError, true},
		{driver.Channel{Address: "Program:Main.Step"}, int16(4), 0, "", false},
	}
	var channels []driver.Channel
	for _, c := range cases {
		channels = append(channels, c.channel)
	}
	for i, s := range mustRead(t, d, channels) {
		c := cases[i]
		reason, answered := driver.Reason(""), false
		if s.Err != nil {
			reason, answered = s.Err.Reason, s.Err.Answered
		}
		if s.Value != c.value || s.Status != c.status || reason != c.reason || answered != c.answered {
			t.Errorf("%s as %q: %+v", c.channel.Address, c.channel.DataType, s)
		}
	}
	if got := dev.Services(); !bytes.Equal(got, []byte{multiple}) {
		t.Errorf("services %x, want one packet: two bits of a number are one tag", got)
	}
}

// Req: P-15
func TestValuesThatAreLongerThanWasThoughtAreReadAlone(t *testing.T) {
	dev := plc(t)
	dev.RefuseLarge(true)
	var channels []driver.Channel
	for i := range 12 {
		name := fmt.Sprintf("Text%d", i)
		dev.Add(name, ethernetiptest.STRING).Set(name, name)
		// Without a type nobody knows that they are long.
		channels = append(channels, driver.Channel{Address: name})
	}
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Timeout: time.Second})
	for round := range 3 {
		for i, s := range mustRead(t, d, channels) {
			if s.Value != channels[i].Address {
				t.Errorf("round %d: %+v", round, s)
			}
		}
		services := dev.Services()
		if round > 1 && len(services) > 5 {
			t.Errorf("round %d: %x; by then it is known how long they are", round, services)
		}
	}
}

// Req: P-15
func TestADeviceThatTakesPacketsAmissIsReadOneTagAtATime(t *testing.T) {
	dev := plc(t)
	channels := counters(dev, 3)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	dev.Mutate(func(frame []byte) []byte {
		if at := 46; frame[0] == commandSendUnitData && len(frame) > at && frame[at] == serviceMultiple|replyBit {
			return nil
		}
		return frame
	})
	if _, err := d.Read(t.Context(), channels); driver.ReasonOf(err) != driver.ReasonTimeout {
		t.Fatalf("the first read: %v", err)
	}
	mustCount(t, mustRead(t, d, channels))
	dev.Mutate(nil)
	d.endpoint.singlyUntil = time.Time{}
	mustCount(t, mustRead(t, d, channels))
	// Silence of a device that is known to take packets is the link.
	dev.Blackhole(true)
	if samples, err := d.Read(t.Context(), channels); driver.ReasonOf(err) != driver.ReasonTimeout || samples != nil {
		t.Errorf("%v, %v", samples, err)
	}
	dev.Blackhole(false)
	mustCount(t, mustRead(t, d, channels))
	if services := dev.Services(); services[len(services)-1] != multiple {
		t.Errorf("services %x after the silence", services)
	}
}

// Req: P-13
func TestAPacketIsReadAgainOverAnotherConnection(t *testing.T) {
	dev := plc(t)
	channels := counters(dev, 20)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	mustCount(t, mustRead(t, d, channels))
	dev.Disconnect()
	mustCount(t, mustRead(t, d, channels))
	dev.Stop()
	if samples, err := d.Read(t.Context(), channels); err == nil {
		t.Errorf("a device that is gone gave %+v", samples)
	}
}

// Req: P-06
func TestADeclaredArrayIsCheckedByItsFirstElement(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Channels: []driver.Channel{{Name: "c", Address: "Counts", Count: 10}}})
	if answer, err := check(t, d); err != nil || answer.Reason != "" {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := d.Write(t.Context(), driver.Channel{Address: "Counts", Count: 10}, int32(1)); driver.ReasonOf(err) != driver.ReasonNotSupported {
		t.Errorf("an array was written: %v", err)
	}
}

func TestAPacketIsUnpackedOrRefused(t *testing.T) {
	replies := [][]byte{{0xCC, 0, 0, 0, 0xC4, 0, 1, 0, 0, 0}, {0xCC, 0, 4, 0}, {0xCC, 0, 0, 0, 0xC1, 0, 1}}
	whole := packServices(replies)
	got, err := unpackServices(whole, 3)
	if err != nil || len(got) != 3 {
		t.Fatalf("%x, %v", got, err)
	}
	for i := range got {
		if !bytes.Equal(got[i], replies[i]) {
			t.Errorf("reply %d is %x", i, got[i])
		}
	}
	for name, data := range map[string][]byte{
		"nothing":                    {},
		"another number of services": packServices(replies[:2]),
		"an offset into the head":    {3, 0, 2, 0, 8, 0, 8, 0, 1},
		"an offset beyond the end":   {3, 0, 8, 0, 8, 0, 99, 0, 1},
		"offsets that go back":       {3, 0, 9, 0, 8, 0, 9, 0, 1, 2},
		"no room for the offsets":    {3, 0, 8, 0},
	} {
		if got, err := unpackServices(data, 3); err == nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}

func FuzzUnpackServices(f *testing.F) {
	f.Add(packServices([][]byte{{0xCC, 0, 0, 0, 0xC4, 0, 1, 0, 0, 0}, {0xCC, 0, 4, 0}}), 2)
	f.Add([]byte{3, 0, 8, 0, 8, 0, 8, 0, 1}, 3)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if n < 0 || n > maxMultiple {
			return
		}
		replies, err := unpackServices(data, n)
		if err != nil {
			return
		}
		total := 0
		for _, r := range replies {
			total += len(r)
			if reply, err := parseReply(serviceReadTag, r); err == nil {
				_, _ = parseReading(reply.data)
			}
		}
		if len(replies) != n || total > len(data) {
			t.Errorf("%d replies of %d bytes from %d", len(replies), total, len(data))
		}
	})
}

// FuzzReadMany spoils the replies of a device behind their status.
func FuzzReadMany(f *testing.F) {
	dev := plc(f)
	channels := counters(dev, 30)
	drv := newDriver()
	f.Add([]byte{0, 31})
	f.Add([]byte{2, 0, 1, 0xFF, 40, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		dev.Mutate(func(frame []byte) []byte {
			at := 46
			for i := 0; i+1 < len(data) && frame[0] == commandSendUnitData; i += 2 {
				if at += int(data[i]); at >= len(frame) {
					break
				}
				frame[at] = data[i+1]
			}
			return frame
		})
		defer dev.Mutate(nil)
		d := open(t, drv, Config{Endpoint: dev.Endpoint(), Timeout: time.Second})
		defer func() { _ = d.Close() }()
		samples, err := d.Read(t.Context(), channels)
		if err != nil && samples != nil || err == nil && len(samples) != len(channels) {
			t.Errorf("%d samples, %v", len(samples), err)
		}
		for _, s := range samples {
			if s.Err == nil && s.Value == nil {
				t.Error("neither a value nor an error")
			}
		}
	})
}
