package opcua

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// oddChannels is how many channels the server has beside its plant and its flat folder.
const oddChannels = 10

// channels discovers and returns those of the plant by their address.
func channels(t testing.TB, device device, limit int) (driver.ChannelList, map[string]driver.ChannelInfo) {
	t.Helper()
	list, err := device.Channels(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	byAddress := map[string]driver.ChannelInfo{}
	for _, item := range list.Items {
		if _, ok := byAddress[item.Address]; ok {
			t.Errorf("%s is listed twice", item.Address)
		}
		byAddress[item.Address] = item
	}
	return list, byAddress
}

const plant = "nsu=urn:interop:plant%3Bv=1;"

// Req: P-06 (channel discovery)
func TestDiscoveryTellsWhatAChannelIs(t *testing.T) {
	s := shared(t)
	config := s.plain()
	config.Channels = []driver.Channel{
		{Name: "setpoint", Address: plant + "s=Plant/Area0/Unit0.V0", DataType: driver.Float32},
		{Name: "gone", Address: plant + "s=NoSuchNode"},
		{Name: "elsewhere", Address: "nsu=urn:nowhere;i=1"},
	}
	device := open(t, newDriver(nil), config)
	check(t, device)
	list, found := channels(t, device, 0)
	if list.Truncated {
		t.Error("the list is told to be cut off")
	}
	if want := 100 + oddChannels + 2; len(list.Items) != want {
		t.Errorf("%d channels, want %d", len(list.Items), want)
		for _, item := range list.Items {
			if !strings.HasPrefix(item.Name, "Plant/") {
				t.Logf("%+v", item)
			}
		}
	}
	if !slices.IsSortedFunc(list.Items, func(a, b driver.ChannelInfo) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the list is not in order")
	}
	for _, want := range []driver.ChannelInfo{
		{Name: "setpoint", Address: plant + "s=Plant/Area0/Unit0.V0", DataType: driver.Float32, DeviceType: "Double", Count: 1,
			Access: driver.AccessReadWrite, Unit: "°C", Range: &driver.Range{Low: -10, High: 150}, Declared: true},
		{Name: "Plant/Area0/Unit0/V5", Address: plant + "s=Plant/Area0/Unit0.V5", DataType: driver.Float64, DeviceType: "Double", Count: 1,
			Access: driver.AccessReadWrite, Unit: "°C", Range: &driver.Range{Low: -10, High: 150}},
		{Name: "Plant/Area0/Unit0/V1", Address: plant + "s=Plant/Area0/Unit0.V1", DataType: driver.Bool, DeviceType: "Boolean", Count: 1, Access: driver.AccessReadWrite},
		{Name: "Plant/Area0/Unit0/V3", Address: plant + "s=Plant/Area0/Unit0.V3", DataType: driver.Float32, DeviceType: "Float", Count: 1, Access: driver.AccessRead},
		{Name: "Plant/Area0/Unit0/V4", Address: plant + "s=Plant/Area0/Unit0.V4", DataType: driver.Int32, DeviceType: "Int32", Count: 4, Access: driver.AccessReadWrite},
		// A variable below a variable.
		{Name: "Plant/Area0/Unit0/V0/V9", Address: plant + "s=Plant/Area0/Unit0.V9", DataType: driver.Int32, DeviceType: "Int32", Count: 4, Access: driver.AccessReadWrite},
		{Name: "gone", Address: plant + "s=NoSuchNode", Declared: true, Problem: driver.ReasonConfigurationError, Message: "the server answers BadNodeIDUnknown (0x80340000)"},
		{Name: "elsewhere", Address: "nsu=urn:nowhere;i=1", Declared: true, Problem: driver.ReasonConfigurationError, Message: `the server has no namespace "urn:nowhere"`},
	} {
		if got := found[want.Address]; fmt.Sprintf("%+v %v", got, deref(got.Range)) != fmt.Sprintf("%+v %v", withRange(want, got.Range), deref(want.Range)) {
			t.Errorf("found %+v %v\nwant  %+v %v", got, deref(got.Range), want, deref(want.Range))
		}
	}
	// Whatever the discovery names can be read.
	for _, item := range list.Items {
		if item.Problem != "" || item.Count != 1 || strings.Contains(item.Name, "Broken") {
			continue
		}
		if _, err := driver.ReadOne(t.Context(), device, driver.Channel{Name: item.Name, Address: item.Address, DataType: item.DataType}); err != nil {
			t.Errorf("%s: %v", item.Name, err)
		}
	}
}

func deref(r *driver.Range) driver.Range {
	if r == nil {
		return driver.Range{}
	}
	return *r
}

// withRange has another's pointer, so that texts of two can be compared.
func withRange(c driver.ChannelInfo, r *driver.Range) driver.ChannelInfo {
	c.Range = r
	return c
}

// Req: P-06; UA-.NETStandard#2566 (continuation points ignored, an incomplete list)
func TestDiscoveryIsCompleteWhateverTheServerLimits(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings settings
	}{
		{"no limits", settings{Variables: 1000}},
		{"few operations in a request", settings{Variables: 1000, MaxNodesPerBrowse: 50, MaxNodesPerRead: 100}},
		{"one operation in a request", settings{Variables: 100, MaxNodesPerBrowse: 1, MaxNodesPerRead: 1}},
		{"5 references a page and 10 continuation points", settings{Variables: 1000, MaxReferencesPerNode: 5, MaxBrowseContinuationPoints: 10}},
		{"5 references a page and 2 continuation points", settings{Variables: 1000, MaxReferencesPerNode: 5, MaxBrowseContinuationPoints: 2}},
		{"one reference a page and one continuation point", settings{Variables: 100, MaxReferencesPerNode: 1, MaxBrowseContinuationPoints: 1}},
		{"a folder of 2,100", settings{Variables: 10, Flat: 2100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, c.settings)
			device := open(t, newDriver(nil), s.plain())
			check(t, device)
			started := time.Now()
			list, _ := channels(t, device, 0)
			if want := c.settings.Variables + c.settings.Flat + oddChannels; len(list.Items) != want || list.Truncated {
				t.Errorf("%d channels, truncated %v, want %d", len(list.Items), list.Truncated, want)
			}
			t.Logf("%d channels in %s", len(list.Items), time.Since(started))
			// Nothing is left behind that would make the next one fail.
			if again, _ := channels(t, device, 0); len(again.Items) != len(list.Items) {
				t.Errorf("%d channels the second time", len(again.Items))
			}
		})
	}
}

// Req: P-06 (10,000 channels, truncated told)
func TestDiscoveryOfTenThousandVariables(t *testing.T) {
	s := start(t, settings{Variables: 10_000})
	device := open(t, newDriver(nil), s.plain())
	check(t, device)
	// What counts is the time on a machine that does nothing else. Client and server take turns, so that it is
	// the sum of both their CPU times, whatever else the machine is at.
	best := time.Hour
	for range 4 {
		started, used := time.Now(), cpu(t, s)
		list, _ := channels(t, device, 0)
		took, busy := time.Since(started), cpu(t, s)-used
		t.Logf("%d channels in %s, %s of CPU", len(list.Items), took, busy)
		best = min(best, busy)
		// The plant alone fills the list; what is beside it is cut off.
		if len(list.Items) != driver.MaxChannels || !list.Truncated {
			t.Errorf("%d channels, truncated %v", len(list.Items), list.Truncated)
		}
		for _, item := range list.Items {
			if strings.HasSuffix(item.Name, "V5") && (item.Unit == "" || item.Range == nil || item.Access == "" || item.DataType == "") {
				t.Fatalf("%+v is not described", item)
			}
		}
	}
	if best > 1500*time.Millisecond {
		t.Errorf("the cheapest took %s of CPU", best)
	}
	if list, _ := channels(t, device, 100); len(list.Items) != 100 || !list.Truncated {
		t.Errorf("with a limit of 100: %d channels, truncated %v", len(list.Items), list.Truncated)
	}
}

// cpu is the CPU time of this process and the server.
func cpu(t testing.TB, s *server) time.Duration {
	t.Helper()
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + time.Duration(s.counts(t).CPU)*time.Microsecond
}
