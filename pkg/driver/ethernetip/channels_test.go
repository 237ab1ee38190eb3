package ethernetip

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
)

func names(list driver.ChannelList) []string {
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	return names
}

// Req: P-06 (Logix tags with program scope and structures)
func TestChannelsListsTheUsersTags(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	list, err := d.Channels(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	motor := func(at string) []string {
		return []string{at + ".Speed", at + ".Running", at + ".Faulted", at + ".Hours", at + ".Label"}
	}
	want := []string{"Level", "Counts", "Grid"}
	want = append(want, motor("Mixer")...)
	for _, line := range []string{"Lines[0]", "Lines[1]"} {
		want = append(want, motor(line+".Motors[0]")...)
		want = append(want, motor(line+".Motors[1]")...)
		want = append(want, line+".Id")
	}
	want = append(want, "Label", "Flags", "Fixed", "Program:Main.Step")
	if got := names(list); !slices.Equal(got, want) {
		t.Errorf("channels\n%q, want\n%q", got, want)
	}
	if list.Truncated {
		t.Error("the list says that there is more")
	}
	for _, c := range []driver.ChannelInfo{
		{Name: "Level", Address: "Level", DataType: driver.Float32, DeviceType: "REAL", Count: 1, Access: driver.AccessReadWrite},
		{Name: "Counts", Address: "Counts[0]", DataType: driver.Int32, DeviceType: "DINT", Count: 10, Access: driver.AccessReadWrite},
		{Name: "Grid", Address: "Grid[0,0]", DataType: driver.Int16, DeviceType: "INT", Count: 6, Access: driver.AccessReadWrite},
		{Name: "Mixer.Running", Address: "Mixer.Running", DataType: driver.Bool, DeviceType: "BOOL", Count: 1, Access: driver.AccessReadWrite},
		{Name: "Label", Address: "Label", DataType: driver.String, DeviceType: "STRING", Count: 1, Access: driver.AccessReadWrite},
		{Name: "Fixed", Address: "Fixed", DataType: driver.Int32, DeviceType: "DINT", Count: 1, Access: driver.AccessRead},
	} {
		if !slices.Contains(list.Items, c) {
			t.Errorf("%+v is not among the channels", c)
		}
	}
	// What is listed can be read.
	for _, c := range list.Items {
		if _, err := driver.ReadOne(t.Context(), d, driver.Channel{Name: c.Name, Address: c.Address, DataType: c.DataType}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// Req: P-06
func TestDeclaredChannelsComeFirstAndOnce(t *testing.T) {
	dev := plc(t)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Channels: []driver.Channel{
		{Name: "step", Address: "Program:Main.Step"},
		{Name: "count 0", Address: "counts[0]", DataType: driver.Int64},
		{Name: "count 3", Address: "Counts[3]"},
		{Name: "bit", Address: "Flags[1].3"},
		{Name: "gone", Address: "Gone"},
		{Name: "whole", Address: "Mixer"},
		{Name: "other", Address: "Level", DataType: driver.String},
	}})
	list, err := d.Channels(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []driver.ChannelInfo{
		{Name: "step", Address: "Program:Main.Step", DataType: driver.Int16, DeviceType: "INT", Count: 1, Access: driver.AccessReadWrite, Declared: true},
		{Name: "count 0", Address: "counts[0]", DataType: driver.Int64, DeviceType: "DINT", Count: 10, Access: driver.AccessReadWrite, Declared: true},
		{Name: "count 3", Address: "Counts[3]", DeviceType: "DINT", Count: 1, Declared: true},
		{Name: "bit", Address: "Flags[1].3", DeviceType: "DWORD", Count: 1, Declared: true},
		{Name: "gone", Address: "Gone", Declared: true, Problem: driver.ReasonConfigurationError, Message: "there is no such tag or member (CIP status 0x04)"},
		{Name: "whole", Address: "Mixer", DeviceType: "structure", Count: 1, Declared: true, Problem: driver.ReasonConfigurationError, Message: "the tag is a structure; name one of its members"},
		{Name: "other", Address: "Level", DataType: driver.String, DeviceType: "REAL", Count: 1, Access: driver.AccessReadWrite, Declared: true, Problem: driver.ReasonConfigurationError, Message: "the tag is a REAL, which is no string"},
	} {
		if got := list.Items[i]; got != want {
			t.Errorf("channel %d\n%+v, want\n%+v", i, got, want)
		}
	}
	if got := names(list); slices.Contains(got[7:], "Level") || slices.Contains(got[7:], "Counts") || slices.Contains(got[7:], "Program:Main.Step") {
		t.Errorf("a declared channel stands twice in %q", got)
	}
}

// Req: P-06 (bounded, truncated told; 10,000 in at most a second)
func TestChannelsAreBounded(t *testing.T) {
	dev := plc(t)
	for i := range 11_000 {
		dev.Add(fmt.Sprintf("Tag%05d", i), ethernetiptest.DINT)
	}
	for _, small := range []bool{false, true} {
		dev.RefuseLarge(small)
		d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Timeout: time.Second})
		for _, limit := range []int{1, 7, 0, 20_000} {
			began := time.Now()
			list, err := d.Channels(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			want := limit
			if limit == 0 || limit > driver.MaxChannels {
				want = driver.MaxChannels
			}
			if len(list.Items) != want || !list.Truncated {
				t.Errorf("%d channels, truncated %v, with a limit of %d", len(list.Items), list.Truncated, limit)
			}
			t.Logf("%d channels in %s", len(list.Items), time.Since(began))
		}
		_ = d.Close()
	}
}

// Req: P-06
func TestDevicesThatDifferInWhatTheyTell(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*ethernetiptest.Device)
		want    int
		fails   driver.Reason
	}{
		{"old firmware without external access", func(d *ethernetiptest.Device) { d.OldFirmware(true) }, 36, ""},
		{"no symbols", func(d *ethernetiptest.Device) { d.NoSymbols(true) }, 1, ""},
		{"no listing", func(d *ethernetiptest.Device) { d.FailService(0x55, 0x08) }, 1, ""},
		{"no templates", func(d *ethernetiptest.Device) { d.FailService(0x03, 0x08) }, 10, ""},
		{"a list that never ends", func(d *ethernetiptest.Device) { d.EndlessList(true) }, 0, driver.ReasonProtocolError},
		{"a structure within itself", func(d *ethernetiptest.Device) { d.Add("Odd", d.DefineRecursive("Odd")) }, 36, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := plc(t)
			c.prepare(dev)
			d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Channels: []driver.Channel{{Name: "gone", Address: "Gone"}}})
			list, err := d.Channels(t.Context(), 0)
			if c.fails != "" {
				if driver.ReasonOf(err) != c.fails {
					t.Errorf("channels: %v, want the reason %s", err, c.fails)
				}
				mustCheck(t, d)
				return
			}
			if err != nil || len(list.Items) != c.want {
				t.Errorf("%d channels, %v, want %d: %q", len(list.Items), err, c.want, names(list))
			}
		})
	}
}

// Req: P-06
func TestAHostileStructureEnds(t *testing.T) {
	dev := ethernetiptest.New("127.0.0.1:0")
	// Sixteen levels of a hundred members each, and nothing to list at the bottom.
	typ := dev.Define("Bottom", ethernetiptest.Member{Name: "__none", Type: ethernetiptest.DINT})
	for i := range 3 {
		var members []ethernetiptest.Member
		for j := range 100 {
			members = append(members, ethernetiptest.Member{Name: fmt.Sprintf("M%d", j), Type: typ, Count: 0})
		}
		typ = dev.Define(fmt.Sprintf("Level%d", i), members...)
	}
	dev.Add("Hostile", typ)
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Path: "none", Timeout: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := d.Channels(ctx, 0)
	if err != nil || len(list.Items) != 0 || !list.Truncated {
		t.Errorf("%d channels, truncated %v, %v, want an end that says that there is more", len(list.Items), list.Truncated, err)
	}
}

// Req: P-13 (a hostile device)
func TestDefinitionsTakeLittleMemoryHoweverManyThereAre(t *testing.T) {
	d := ethernetiptest.New("127.0.0.1:0").Route(1, 0)
	var members []ethernetiptest.Member
	for i := range 5000 {
		// Hidden, so that none of it becomes a channel.
		members = append(members, ethernetiptest.Member{Name: fmt.Sprintf("__m%040d", i), Type: ethernetiptest.DINT})
	}
	const structures = 60
	for i := range structures {
		d.Add(fmt.Sprintf("tag%d", i), d.Define(fmt.Sprintf("Large%d", i), members...))
	}
	d.Add("Level", ethernetiptest.REAL)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	dev := open(t, newDriver(), Config{Endpoint: d.Endpoint(), Timeout: time.Second})
	before := d.Requests()
	list, err := dev.Channels(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !list.Truncated || !slices.Contains(names(list), "Level") {
		t.Errorf("truncated %v: %v", list.Truncated, names(list))
	}
	// At 4000 bytes a reply.
	if n := d.Requests() - before; n > 2*maxDefinitions/4000 {
		t.Errorf("%d requests", n)
	}
}

// Req: P-13 (a dimension of 0 was a division by it)
func TestAnArrayWithoutElementsIsNoChannel(t *testing.T) {
	dev := plc(t)
	dev.Add("Empty", ethernetiptest.DINT, 0).Add("Flat", ethernetiptest.DINT, 3, 0)
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint()})
	list, err := d.Channels(t.Context(), 0)
	if got := names(list); err != nil || slices.Contains(got, "Empty") || slices.Contains(got, "Flat") || !slices.Contains(got, "Program:Main.Step") {
		t.Errorf("%v in %q", err, got)
	}
}

// FuzzDiscovery changes bytes of what a controller tells of its tags: the data is pairs of a distance and a byte.
func FuzzDiscovery(f *testing.F) {
	dev := plc(f)
	drv := newDriver()
	f.Add([]byte{10, 0})
	f.Add([]byte{200, 0, 40, 0xFF, 7, 0x80})
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		dev.Mutate(func(frame []byte) []byte {
			// Behind the header, the items, the sequence count and the CIP status.
			for i := 50; len(data) > 1 && frame[0] == commandSendUnitData; at = (at + 2) % (len(data) &^ 1) {
				if i += 1 + int(data[at]); i >= len(frame) {
					break
				}
				frame[i] = data[at+1]
			}
			return frame
		})
		defer dev.Mutate(nil)
		d := open(t, drv, Config{Endpoint: dev.Endpoint(), Timeout: time.Second})
		defer func() { _ = d.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		list, err := d.Channels(ctx, 500)
		if ctx.Err() != nil {
			t.Errorf("the discovery did not end: %v", err)
		}
		for _, c := range list.Items {
			if _, err := parseAddress(c.Address); err != nil {
				t.Errorf("a channel that cannot be read: %v", err)
			}
		}
	})
}

// Req: P-13
func TestADiscoveryLetsChecksIn(t *testing.T) {
	dev := plc(t)
	for i := range 2000 {
		dev.Add(fmt.Sprintf("Tag%05d", i), ethernetiptest.DINT)
	}
	dev.RefuseLarge(true).Delay(5 * time.Millisecond)
	drv := newDriver()
	d, neighbour := open(t, drv, Config{Endpoint: dev.Endpoint()}), open(t, drv, Config{Endpoint: dev.Endpoint()})
	done := make(chan error)
	go func() {
		_, err := d.Channels(context.Background(), 0)
		done <- err
	}()
	checks := 0
	for {
		select {
		case err := <-done:
			if err != nil || checks < 3 {
				t.Errorf("%d checks during a discovery that ended with %v", checks, err)
			}
			return
		default:
			mustCheck(t, neighbour)
			checks++
		}
	}
}
