package app

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/installdisk"
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
			if _, _, err := installdisk.ParseCapacity(value); err != nil {
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

// describeDisk says which disk it is, by what stays the same when paths change.
func describeDisk(disk *v1alpha1.MachineDisk) string {
	parts := []string{strings.TrimSpace(size(disk.SizeBytes) + " " + clean(disk.Model))}
	if disk.Serial != "" {
		parts = append(parts, "serial "+clean(disk.Serial))
	}
	if disk.WWID != "" {
		parts = append(parts, "wwid "+clean(disk.WWID))
	}
	return fmt.Sprintf("%s (%s)", clean(disk.Path), strings.Join(parts, ", "))
}

// describeInstall says in words where Talos would be installed.
func describeInstall(install *v1alpha1.MachineInstall, disks []v1alpha1.MachineDisk) string {
	if disk := installdisk.Only(install, disks); disk != nil {
		return describeDisk(disk)
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
