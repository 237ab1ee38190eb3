// Package installdisk finds the disk that an installation of Talos would take, of those that a machine reports: nobody
// approves the wiping of a disk that he has not been shown (T-18).
package installdisk

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// Choice is which of the disks that a machine reports its installation would take.
type Choice struct {
	// Chosen has, for each disk, whether it may be taken.
	Chosen []bool
	// Count is how many may be: an installation is safe when it is one.
	Count int
}

// Choose finds the disks that an installation may take; none when install is nil.
func Choose(install *v1alpha1.MachineInstall, disks []v1alpha1.MachineDisk) Choice {
	out := Choice{Chosen: make([]bool, len(disks))}
	if install == nil {
		return out
	}
	for i, disk := range disks {
		if install.Disk != "" {
			out.Chosen[i] = disk.Path == install.Disk
		} else if install.DiskSelector != nil {
			out.Chosen[i] = selects(*install.DiskSelector, disk)
		}
		if out.Chosen[i] {
			out.Count++
		}
	}
	return out
}

// Only returns the one disk that an installation would take, nil when there is none or more than one.
func Only(install *v1alpha1.MachineInstall, disks []v1alpha1.MachineDisk) *v1alpha1.MachineDisk {
	choice := Choose(install, disks)
	if choice.Count != 1 {
		return nil
	}
	for i := range disks {
		if choice.Chosen[i] {
			return &disks[i]
		}
	}
	return nil
}

// Same tells whether two reports are of one disk. Paths change from boot to boot, so that they say nothing when a serial
// number or a World Wide Identifier does.
func Same(a, b v1alpha1.MachineDisk) bool {
	switch {
	case a.WWID != "" || b.WWID != "":
		return a.WWID == b.WWID
	case a.Serial != "" || b.Serial != "":
		return a.Serial == b.Serial
	default:
		return a.Path == b.Path && a.Model == b.Model && a.SizeBytes == b.SizeBytes
	}
}

// selects tells whether Talos would find the disk by this selector. As there, a device without a
// transport is no disk to install on.
func selects(selector v1alpha1.DiskSelector, disk v1alpha1.MachineDisk) bool {
	return disk.Transport != "" &&
		matches(selector.Model, disk.Model) &&
		matches(selector.Serial, disk.Serial) &&
		matches(selector.WWID, disk.WWID) &&
		matches(selector.BusPath, disk.BusPath) &&
		hasCapacity(selector.Capacity, disk.SizeBytes) &&
		hasType(selector.Type, disk)
}

// matches tells whether a value has the form of a pattern, in which * stands for any text, as for Talos: there, ? and
// [ are ordinary characters.
func matches(pattern, value string) bool {
	if pattern == "" {
		return true
	}
	parts := strings.Split(pattern, "*")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	matched, err := regexp.MatchString("(?s)^"+strings.Join(parts, ".*")+"$", value)
	return err == nil && matched
}

func hasType(kind v1alpha1.DiskType, disk v1alpha1.MachineDisk) bool {
	switch kind {
	case "":
		return true
	case v1alpha1.DiskTypeNVMe:
		return disk.Transport == "nvme"
	case v1alpha1.DiskTypeSD:
		return disk.Transport == "mmc"
	case v1alpha1.DiskTypeHDD:
		return disk.Rotational
	case v1alpha1.DiskTypeSSD:
		return !disk.Rotational
	default:
		return false
	}
}

func hasCapacity(condition string, size int64) bool {
	if condition == "" {
		return true
	}
	operator, bound, err := ParseCapacity(condition)
	if err != nil || size < 0 {
		return false
	}
	have := uint64(size)
	switch operator {
	case ">=":
		return have >= bound
	case "<=":
		return have <= bound
	case ">":
		return have > bound
	case "<":
		return have < bound
	default:
		return have == bound
	}
}

// ParseCapacity reads a condition such as ">= 100GB" as Talos does; without an operator it asks for equality.
func ParseCapacity(condition string) (operator string, bytes uint64, err error) {
	size := strings.TrimSpace(condition)
	for _, operator = range []string{">=", "<=", "==", ">", "<", ""} {
		if rest, ok := strings.CutPrefix(size, operator); ok {
			size = strings.TrimSpace(rest)
			break
		}
	}
	if bytes, err = humanize.ParseBytes(size); err != nil {
		return "", 0, fmt.Errorf("capacity %q is not a size such as 4GB or >= 100GB", condition)
	}
	return operator, bytes, nil
}
