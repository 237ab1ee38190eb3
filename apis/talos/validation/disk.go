package validation

import (
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/talos"
)

var (
	// size is a number of bytes as Talos reads it: 1 kB is 1000 bytes, 1 KiB 1024.
	size = regexp.MustCompile(`(?i)^(\d{1,15}(?:\.\d{1,6})?) ?(?:([kmgtp])(i?))?b?$`)
	// condition is a size with an operator.
	condition = regexp.MustCompile(`^(>=|<=|==|>|<)? ?(.+)$`)
)

func validateInstall(install *talos.MachineInstall, path *field.Path) field.ErrorList {
	if install == nil {
		return nil
	}
	switch {
	case install.Disk == "" && install.DiskSelector == nil:
		return field.ErrorList{field.Required(path, "set exactly one of disk and diskSelector")}
	case install.Disk != "" && install.DiskSelector != nil:
		return field.ErrorList{field.Invalid(path.Child("disk"), install.Disk, "must be absent when diskSelector is set: exactly one of the two chooses the disk")}
	case install.DiskSelector != nil:
		return validateDiskSelector(install.DiskSelector, path.Child("diskSelector"))
	case !strings.HasPrefix(install.Disk, "/dev/") || strings.ContainsAny(install.Disk, " \t\n*?"):
		return field.ErrorList{field.Invalid(path.Child("disk"), install.Disk, "must be the path of a device, such as /dev/sda")}
	}
	return nil
}

func validateDiskSelector(selector *talos.DiskSelector, path *field.Path) field.ErrorList {
	if *selector == (talos.DiskSelector{}) {
		return field.ErrorList{field.Required(path, "name at least one property: without any, every disk matches")}
	}
	if selector.Capacity == "" {
		return nil
	}
	if parts := condition.FindStringSubmatch(selector.Capacity); parts != nil {
		if _, ok := parseSize(parts[2]); ok {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(path.Child("capacity"), selector.Capacity, `must be a size, alone or after >=, <=, >, < or ==, such as ">= 100GB"`)}
}

func validateDiskRole(role *talos.DiskRole, path *field.Path) field.ErrorList {
	errs := validateDiskSelector(&role.DiskSelector, path.Child("diskSelector"))

	bounds := map[string]float64{}
	for _, bound := range []struct{ name, text string }{{"minSize", role.MinSize}, {"maxSize", role.MaxSize}} {
		if bound.text == "" {
			continue
		}
		bytes, ok := parseSize(bound.text)
		if !ok || bytes == 0 {
			errs = append(errs, field.Invalid(path.Child(bound.name), bound.text, `must be a size, such as "10GiB"`))
			continue
		}
		bounds[bound.name] = bytes
	}
	if least, most := bounds["minSize"], bounds["maxSize"]; most > 0 && least > most {
		errs = append(errs, field.Invalid(path.Child("maxSize"), role.MaxSize, "must not be smaller than minSize, which is "+role.MinSize))
	}
	return errs
}

// parseSize returns a size in bytes.
func parseSize(text string) (float64, bool) {
	parts := size.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	bytes, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, false
	}
	base := 1000.0
	if parts[3] != "" {
		base = 1024
	}
	if parts[2] != "" {
		for range strings.Index("kmgtp", strings.ToLower(parts[2])) + 1 {
			bytes *= base
		}
	}
	return bytes, true
}
