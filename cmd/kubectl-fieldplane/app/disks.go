package app

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const selectorKeys = "capacity, model, serial, wwid, busPath, type"

// parseSelector reads type=ssd,serial=X.
func parseSelector(text string) (*v1alpha1.DiskSelector, error) {
	selector := &v1alpha1.DiskSelector{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || value == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		var into *string
		switch key {
		case "capacity":
			if _, _, err := parseCapacity(value); err != nil {
				return nil, err
			}
			into = &selector.Capacity
		case "model":
			into = &selector.Model
		case "serial":
			into = &selector.Serial
		case "wwid":
			into = &selector.WWID
		case "busPath":
			into = &selector.BusPath
		case "type":
			into = (*string)(&selector.Type)
			switch v1alpha1.DiskType(value) {
			case v1alpha1.DiskTypeHDD, v1alpha1.DiskTypeSSD, v1alpha1.DiskTypeNVMe, v1alpha1.DiskTypeSD:
			default:
				return nil, fmt.Errorf("type %q is none of hdd, ssd, nvme, sd", value)
			}
		default:
			return nil, fmt.Errorf("%q is none of %s", key, selectorKeys)
		}
		if *into != "" {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		*into = value
	}
	return selector, nil
}

// choice is which of the disks that a machine reports its installation would take.
type choice struct {
	// chosen has, for each disk, whether it may be taken.
	chosen []bool
	count  int
	// unchecked names what a disk's report does not tell, so that the machine alone can decide it.
	unchecked string
}

// choose finds the disks that an installation may take.
func choose(install *v1alpha1.MachineInstall, disks []v1alpha1.MachineDisk) choice {
	out := choice{chosen: make([]bool, len(disks))}
	if install == nil {
		return out
	}
	if install.DiskSelector != nil && install.DiskSelector.BusPath != "" {
		out.unchecked = "busPath"
	}
	for i, disk := range disks {
		if install.Disk != "" {
			out.chosen[i] = disk.Path == install.Disk
		} else if install.DiskSelector != nil {
			out.chosen[i] = selects(*install.DiskSelector, disk)
		}
		if out.chosen[i] {
			out.count++
		}
	}
	return out
}

// selects tells whether Talos would find the disk by this selector, bus path apart. As there, a device without a
// transport is no disk to install on.
func selects(selector v1alpha1.DiskSelector, disk v1alpha1.MachineDisk) bool {
	return disk.Transport != "" &&
		matches(selector.Model, disk.Model) &&
		matches(selector.Serial, disk.Serial) &&
		matches(selector.WWID, disk.WWID) &&
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
	operator, bound, err := parseCapacity(condition)
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

// parseCapacity reads ">= 100GB" as Talos does.
func parseCapacity(condition string) (operator string, bytes uint64, err error) {
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

// diskType is the word by which a selector would find the disk.
func diskType(disk v1alpha1.MachineDisk) string {
	switch {
	case disk.Transport == "nvme":
		return "nvme"
	case disk.Transport == "mmc":
		return "sd"
	case disk.Rotational:
		return "hdd"
	default:
		return "ssd"
	}
}

func size(bytes int64) string {
	return humanize.Bytes(uint64(max(bytes, 0)))
}

// describeInstall says in words where Talos would be installed.
func describeInstall(install *v1alpha1.MachineInstall, disks []v1alpha1.MachineDisk) string {
	picked := choose(install, disks)
	if picked.count == 1 {
		for i, disk := range disks {
			if picked.chosen[i] {
				return fmt.Sprintf("%s (%s)", clean(disk.Path), strings.TrimSpace(size(disk.SizeBytes)+" "+clean(disk.Model)))
			}
		}
	}
	if install.Disk != "" {
		return clean(install.Disk)
	}
	return "the disk with " + describeSelector(install.DiskSelector)
}

func describeSelector(selector *v1alpha1.DiskSelector) string {
	if selector == nil {
		return ""
	}
	var parts []string
	for _, property := range []struct{ key, value string }{
		{"capacity", selector.Capacity}, {"model", selector.Model}, {"serial", selector.Serial},
		{"wwid", selector.WWID}, {"busPath", selector.BusPath}, {"type", string(selector.Type)},
	} {
		if property.value != "" {
			parts = append(parts, property.key+"="+clean(property.value))
		}
	}
	return strings.Join(parts, ",")
}
