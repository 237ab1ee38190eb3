package installdisk

import (
	"testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// Req: T-18
func TestADiskIsKnownByWhatDoesNotChangeFromBootToBoot(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b v1alpha1.MachineDisk
		want bool
	}{
		{"the same World Wide Identifier under another path", v1alpha1.MachineDisk{Path: "/dev/sda", WWID: "naa.1"}, v1alpha1.MachineDisk{Path: "/dev/sdb", WWID: "naa.1"}, true},
		{"the same serial number under another path", v1alpha1.MachineDisk{Path: "/dev/sda", Serial: "1"}, v1alpha1.MachineDisk{Path: "/dev/sdb", Serial: "1"}, true},
		{"another serial number under the same path", v1alpha1.MachineDisk{Path: "/dev/sda", Serial: "1"}, v1alpha1.MachineDisk{Path: "/dev/sda", Serial: "2"}, false},
		{"a World Wide Identifier where there was none", v1alpha1.MachineDisk{Path: "/dev/sda", Serial: "1"}, v1alpha1.MachineDisk{Path: "/dev/sda", Serial: "1", WWID: "naa.1"}, false},
		{"neither, and all else the same", v1alpha1.MachineDisk{Path: "/dev/vda", SizeBytes: 5}, v1alpha1.MachineDisk{Path: "/dev/vda", SizeBytes: 5}, true},
		{"neither, and another size", v1alpha1.MachineDisk{Path: "/dev/vda", SizeBytes: 5}, v1alpha1.MachineDisk{Path: "/dev/vda", SizeBytes: 6}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if have := Same(test.a, test.b); have != test.want {
				t.Errorf("have %v, want %v", have, test.want)
			}
		})
	}
}

func TestOnlyIsNothingWhenTheChoiceIsOpen(t *testing.T) {
	disks := []v1alpha1.MachineDisk{{Path: "/dev/sda", Transport: "sata"}, {Path: "/dev/sdb", Transport: "sata", Model: "M"}}

	for _, test := range []struct {
		name    string
		install *v1alpha1.MachineInstall
		want    string
	}{
		{"no installation", nil, ""},
		{"a path", &v1alpha1.MachineInstall{Disk: "/dev/sda"}, "/dev/sda"},
		{"a path that is not there", &v1alpha1.MachineInstall{Disk: "/dev/sdc"}, ""},
		{"a selector of one", &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Model: "M"}}, "/dev/sdb"},
		{"a selector of two", &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeSSD}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			have := ""
			if disk := Only(test.install, disks); disk != nil {
				have = disk.Path
			}
			if have != test.want {
				t.Errorf("have %q, want %q", have, test.want)
			}
		})
	}
}
