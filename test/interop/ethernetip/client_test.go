// Package ethernetip shows that an EtherNet/IP client that is not ours, st-ethernet-ip, and our driver see the same
// controller, and that our driver gets over every failure of a network.
package ethernetip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
	"github.com/fieldplane/fieldplane/test/interop/npm"
)

func TestMain(m *testing.M) {
	if err := npm.Install("client"); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// controller starts a controller in slot 2, at the only port that st-ethernet-ip knows, with more than 1,000 tags.
func controller(t *testing.T) *ethernetiptest.Device {
	t.Helper()
	var d *ethernetiptest.Device
	for host := 1; ; host++ {
		d = ethernetiptest.New(fmt.Sprintf("127.81.0.%d:44818", host)).Route(1, 2)
		err := d.Start()
		if err == nil {
			break
		}
		// Another run of this test may have it.
		if !errors.Is(err, syscall.EADDRINUSE) || host == 254 {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = d.Close() })
	motor := d.Define("Motor",
		ethernetiptest.Member{Name: "Speed", Type: ethernetiptest.REAL},
		ethernetiptest.Member{Name: "Running", Type: ethernetiptest.BOOL},
		ethernetiptest.Member{Name: "Faulted", Type: ethernetiptest.BOOL},
		ethernetiptest.Member{Name: "Hours", Type: ethernetiptest.DINT, Count: 3})
	line := d.Define("Line", ethernetiptest.Member{Name: "Drive", Type: motor}, ethernetiptest.Member{Name: "Id", Type: ethernetiptest.INT})
	d.Add("Level", ethernetiptest.REAL).Set("Level", float32(12.5))
	d.Add("Counts", ethernetiptest.DINT, 10).Set("Counts[3]", int32(-7))
	d.Add("Mixer", motor).Set("Mixer.Speed", float32(1.5)).Set("Mixer.Faulted", true).Set("Mixer.Hours[1]", int32(42))
	d.Add("Line1", line).Set("Line1.Drive.Speed", float32(-2)).Set("Line1.Id", int16(9))
	d.Add("Small", ethernetiptest.SINT).Set("Small", int8(-3))
	d.AddSystem("__Internal", ethernetiptest.DINT)
	for i := range 1100 {
		d.Add(fmt.Sprintf("Tag%04d", i), ethernetiptest.DINT)
	}
	d.Add("Program:Main.Step", ethernetiptest.INT).Set("Program:Main.Step", int16(4))
	d.Add("Program:Main.Ready", ethernetiptest.BOOL).Set("Program:Main.Ready", true)
	d.Add("Program:Other.Step", ethernetiptest.INT).Set("Program:Other.Step", int16(5))
	return d
}

// order is what client.js is told to do.
type order struct {
	Host       string         `json:"host"`
	Slot       int            `json:"slot"`
	Connected  bool           `json:"connected"`
	Read       []string       `json:"read,omitempty"`
	Group      []string       `json:"group,omitempty"`
	Write      map[string]any `json:"write,omitempty"`
	Structures []string       `json:"structures,omitempty"`
}

// outcome is what client.js saw.
type outcome struct {
	Error    string `json:"error"`
	Identity struct {
		Name    string `json:"name"`
		Serial  uint32 `json:"serial"`
		Version string `json:"version"`
		Faulted bool   `json:"faulted"`
	} `json:"identity"`
	Tags []struct {
		Name       string `json:"name"`
		Program    string `json:"program"`
		Type       string `json:"type"`
		Dimensions int    `json:"dimensions"`
		System     bool   `json:"system"`
	} `json:"tags"`
	Values     map[string]any            `json:"values"`
	Structures map[string]map[string]any `json:"structures"`
}

// run runs client.js.
func run(t *testing.T, o order) outcome {
	t.Helper()
	argument, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, "node", filepath.Join("client", "client.js"), string(argument)).Output()
	if err != nil {
		t.Fatalf("client.js: %v", err)
	}
	var got outcome
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("client.js printed %q: %v", output, err)
	}
	return got
}

// open opens the controller in slot 2 with our driver.
func open(t *testing.T, endpoint string) driver.Device {
	t.Helper()
	d := ethernetip.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20), 1)
	device, err := d.Open(ethernetip.Config{Endpoint: endpoint, Path: "1,2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return device
}

// Channels and Write are what every driver has beyond driver.Device's first methods.
type discoverer interface {
	Channels(ctx context.Context, limit int) (driver.ChannelList, error)
	Write(ctx context.Context, channel driver.Channel, value any) error
}

// Req: P-06, P-13
func TestStEthernetIPAndOurDriverSeeTheSameController(t *testing.T) {
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected messages %v", connected), func(t *testing.T) {
			d := controller(t)
			host, _, _ := net.SplitHostPort(d.Addr())
			ours := open(t, d.Endpoint())
			if _, err := ours.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			// What our driver writes the other must read, and the other way round.
			if err := ours.(discoverer).Write(t.Context(), driver.Channel{Address: "Counts[4]"}, int32(1234)); err != nil {
				t.Fatal(err)
			}
			theirs := run(t, order{
				Host: host, Slot: 2, Connected: connected,
				Write:      map[string]any{"Tag0007": 77, "Mixer.Speed": 4.25, "Program:Other.Step": -5},
				Read:       []string{"Level", "Counts[3]", "Counts[4]", "Mixer.Speed", "Mixer.Faulted", "Mixer.Running", "Small", "Program:Main.Step", "Program:Main.Ready", "Line1.Drive.Speed"},
				Structures: []string{"Mixer", "Line1"},
			})
			if theirs.Error != "" {
				t.Fatal(theirs.Error)
			}

			id, err := ours.Identify(t.Context())
			if err != nil || id.Product != theirs.Identity.Name || id.Serial != fmt.Sprintf("%08X", theirs.Identity.Serial) || theirs.Identity.Faulted {
				t.Errorf("our identity %+v, %v; theirs %+v", id, err, theirs.Identity)
			}
			for name, want := range map[string]any{
				"Level": 12.5, "Counts[3]": -7.0, "Counts[4]": 1234.0, "Mixer.Speed": 4.25, "Mixer.Faulted": true, "Mixer.Running": false,
				"Small": -3.0, "Program:Main.Step": 4.0, "Program:Main.Ready": true, "Line1.Drive.Speed": -2.0,
			} {
				// It tells a BOOL in a structure as a number.
				if got := theirs.Values[name]; got != want && fmt.Sprint(got) != map[any]string{true: "1", false: "0"}[want] {
					t.Errorf("st-ethernet-ip reads %s as %v, want %v", name, got, want)
				}
			}
			for address, want := range map[string]any{"Tag0007": int32(77), "Mixer.Speed": float32(4.25), "Program:Other.Step": int16(-5)} {
				if got, err := driver.ReadOne(t.Context(), ours, driver.Channel{Address: address}); err != nil || got != want {
					t.Errorf("our driver reads %s as %v, %v, which st-ethernet-ip wrote as %v", address, got, err, want)
				}
			}
			if mixer := theirs.Structures["Mixer"]; mixer["Speed"] != 4.25 || mixer["Faulted"] != true || mixer["Running"] != false || fmt.Sprint(mixer["Hours"]) != "[0 42 0]" {
				t.Errorf("st-ethernet-ip reads Mixer as %v", mixer)
			}
			if line := theirs.Structures["Line1"]; line["Id"] != 9.0 || fmt.Sprint(line["Drive"].(map[string]any)["Speed"]) != "-2" {
				t.Errorf("st-ethernet-ip reads Line1 as %v", line)
			}
			compareTags(t, ours, theirs)
			if n := d.Connections(); n != 1 {
				t.Errorf("%d CIP connections after the other client parted, want ours", n)
			}
		})
	}
}

// compareTags checks that both clients list the same tags with the same types. The other lists structures as tags, and
// ours as their members.
func compareTags(t *testing.T, ours driver.Device, theirs outcome) {
	t.Helper()
	list, err := ours.(discoverer).Channels(t.Context(), 0)
	if err != nil || list.Truncated {
		t.Fatalf("channels: truncated %v, %v", list.Truncated, err)
	}
	our, their := map[string]string{}, map[string]string{}
	for _, c := range list.Items {
		if !strings.Contains(strings.TrimPrefix(c.Name, "Program:"), ".") || strings.HasPrefix(c.Name, "Program:") {
			our[c.Name] = c.DeviceType
		}
	}
	structures := map[string]bool{"Motor": true, "Line": true}
	for _, tag := range theirs.Tags {
		name := tag.Name
		if tag.Program != "" {
			name = "Program:" + tag.Program + "." + name
		}
		if !tag.System && !structures[tag.Type] {
			their[name] = tag.Type
		}
	}
	if len(our) < 1105 || !maps.Equal(our, their) {
		t.Errorf("our driver lists %d tags, st-ethernet-ip %d", len(our), len(their))
		for _, name := range slices.Sorted(maps.Keys(their)) {
			if our[name] != their[name] {
				t.Errorf("%s is %q to us and %q to st-ethernet-ip", name, our[name], their[name])
			}
		}
	}
}

// Req: P-13
func TestStEthernetIPIsRefusedWhereOurDriverIs(t *testing.T) {
	d := controller(t)
	host, _, _ := net.SplitHostPort(d.Addr())
	for _, c := range []struct {
		name    string
		prepare func()
		slot    int
		want    driver.Reason
	}{
		{"a wrong slot", func() {}, 5, driver.ReasonPathRejected},
		{"no more connections", func() { d.RefuseForwardOpen(0x01, 0x0113) }, 2, driver.ReasonTooManySessions},
		{"no connections at all", func() { d.RefuseForwardOpen(0x08) }, 2, driver.ReasonPathRejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.prepare()
			if got := run(t, order{Host: host, Slot: c.slot, Connected: true}); got.Error == "" {
				t.Error("st-ethernet-ip connected")
			}
			drv := ethernetip.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20), 1)
			ours, err := drv.Open(ethernetip.Config{Endpoint: d.Endpoint(), Path: fmt.Sprintf("1,%d", c.slot)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ours.Close() }()
			if _, err := ours.Check(t.Context()); driver.ReasonOf(err) != c.want {
				t.Errorf("our driver: %v, want %s", err, c.want)
			}
		})
	}
}
