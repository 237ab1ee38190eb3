package hardware

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

const uuid = "6f7a1c52-3b1e-4d8f-9a60-0cc47ab01056"

// Req: T-06, T-18
func TestAMachineIsTheOneThatAnObjectDescribesOnlyWhenEveryPartIsEqual(t *testing.T) {
	stored := v1alpha1.MachineIdentity{UUID: uuid, Serial: "S", MACAddresses: []string{"b4:45:06:00:00:02", "b4:45:06:00:00:01"}}
	macs := []string{"b4:45:06:00:00:01", "b4:45:06:00:00:02"}

	for _, c := range []struct {
		name   string
		stored v1alpha1.MachineIdentity
		read   identity.Identity
		want   bool
	}{
		{"equal, in another order", stored, identity.Identity{UUID: uuid, Serial: "S", MACs: macs}, true},
		{"another UUID", stored, identity.Identity{UUID: strings.Replace(uuid, "6", "7", 1), Serial: "S", MACs: macs}, false},
		{"another serial", stored, identity.Identity{UUID: uuid, Serial: "s", MACs: macs}, false},
		{"no serial", stored, identity.Identity{UUID: uuid, MACs: macs}, false},
		{"a MAC less", stored, identity.Identity{UUID: uuid, Serial: "S", MACs: macs[:1]}, false},
		{"registered without a serial", v1alpha1.MachineIdentity{UUID: uuid, MACAddresses: macs}, identity.Identity{UUID: uuid, MACs: macs}, true},
		{"registered with a UUID alone", v1alpha1.MachineIdentity{UUID: uuid}, identity.Identity{UUID: uuid}, false},
		{"nothing", v1alpha1.MachineIdentity{}, identity.Identity{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Equal(c.stored, c.read); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// Req: T-03
func TestWhatAPeerSaysStaysWithinTheStoredForm(t *testing.T) {
	read := maintenance.Hardware{UUID: "x" + strings.Repeat("ü", 120)}

	for n := range 100 {
		read.Links = append(read.Links, maintenance.Link{
			Name: fmt.Sprintf("eth%03d", 99-n), Physical: true, PermanentAddr: fmt.Sprintf("b4:45:06:00:00:%02x", n),
		})
		read.Disks = append(read.Disks, maintenance.Disk{DevPath: fmt.Sprintf("/dev/sd%03d", 99-n), SizeBytes: 1 << 63})
	}

	if id := AsRead(read); len(id.UUID) > 128 || !utf8.ValidString(id.UUID) || len(id.MACAddresses) != 64 {
		t.Errorf("identity %+v", id)
	}

	if id := Identity(read); len(id.MACs) != 64 || id.MACs[0] != "b4:45:06:00:00:00" {
		t.Errorf("MACs %v", id.MACs)
	}

	got := Describe(read)
	if len(got.Disks) != 64 || len(got.Links) != 64 || got.Disks[0].Path != "/dev/sd000" || got.Links[0].Name != "eth000" || got.Disks[0].SizeBytes < 0 {
		t.Errorf("%d disks, %d links, first %+v %+v", len(got.Disks), len(got.Links), got.Disks[0], got.Links[0])
	}
}

// Req: T-02
func TestTheTargetIsAlwaysTheApidPort(t *testing.T) {
	if got := Target(netip.MustParseAddr("192.0.2.1")); got != "192.0.2.1:50000" {
		t.Error(got)
	}
}
