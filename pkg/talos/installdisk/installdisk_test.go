package installdisk

import (
	"testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// Req: T-18
func TestASelectorFindsTheDisksThatTalosWouldFind(t *testing.T) {
	disks := []v1alpha1.MachineDisk{
		{Path: "/dev/nvme0n1", SizeBytes: 960e9, Model: "PM9A3 [U.2]", Serial: "S64G", WWID: "eui.1", Transport: "nvme"},
		{Path: "/dev/sda", SizeBytes: 4e12, Model: "ST4000NM", Serial: "ZC1A", WWID: "naa.1", Transport: "sata", Rotational: true},
		{Path: "/dev/sdb", SizeBytes: 480e9, Model: "MZ7L3", Serial: "S665", WWID: "naa.2", Transport: "sata"},
		{Path: "/dev/mmcblk0", SizeBytes: 32e9, Model: "SD32G", Serial: "0x1", Transport: "mmc"},
		{Path: "/dev/dm-0", SizeBytes: 480e9, Model: "MZ7L3"},
	}
	for _, test := range []struct {
		name     string
		selector v1alpha1.DiskSelector
		want     []string
	}{
		{"nvme", v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeNVMe}, []string{"/dev/nvme0n1"}},
		{"ssd is whatever does not rotate", v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeSSD}, []string{"/dev/nvme0n1", "/dev/sdb", "/dev/mmcblk0"}},
		{"hdd", v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeHDD}, []string{"/dev/sda"}},
		{"sd", v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeSD}, []string{"/dev/mmcblk0"}},
		{"a device without transport is no disk", v1alpha1.DiskSelector{Model: "MZ7L3"}, []string{"/dev/sdb"}},
		{"an exact serial", v1alpha1.DiskSelector{Serial: "S66"}, nil},
		{"a star stands for any text", v1alpha1.DiskSelector{Serial: "S6*"}, []string{"/dev/nvme0n1", "/dev/sdb"}},
		{"a star in the middle", v1alpha1.DiskSelector{WWID: "n*.1"}, []string{"/dev/sda"}},
		{"brackets and dots stand for themselves", v1alpha1.DiskSelector{Model: "PM9A3 [U.2]"}, []string{"/dev/nvme0n1"}},
		{"a question mark stands for itself", v1alpha1.DiskSelector{Serial: "S6?5"}, nil},
		{"at least", v1alpha1.DiskSelector{Capacity: ">= 960GB"}, []string{"/dev/nvme0n1", "/dev/sda"}},
		{"more than", v1alpha1.DiskSelector{Capacity: ">960GB"}, []string{"/dev/sda"}},
		{"at most", v1alpha1.DiskSelector{Capacity: "<= 32GB"}, []string{"/dev/mmcblk0"}},
		{"less than", v1alpha1.DiskSelector{Capacity: "< 32GB"}, nil},
		{"exactly", v1alpha1.DiskSelector{Capacity: "480 GB"}, []string{"/dev/sdb"}},
		{"exactly, with the operator", v1alpha1.DiskSelector{Capacity: "== 480GB"}, []string{"/dev/sdb"}},
		{"binary units", v1alpha1.DiskSelector{Capacity: "> 3TiB"}, []string{"/dev/sda"}},
		{"all properties together", v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeSSD, Capacity: "< 500GB", Model: "MZ*"}, []string{"/dev/sdb"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			picked := Choose(&v1alpha1.MachineInstall{DiskSelector: &test.selector}, disks)
			var have []string
			for i, disk := range disks {
				if picked.Chosen[i] {
					have = append(have, disk.Path)
				}
			}
			if len(have) != picked.Count || len(have) != len(test.want) {
				t.Fatalf("have %v, want %v", have, test.want)
			}
			for i := range have {
				if have[i] != test.want[i] {
					t.Errorf("have %v, want %v", have, test.want)
				}
			}
		})
	}
}
