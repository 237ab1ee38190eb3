package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// The bounds of a request to write to tags.
const (
	// maxTagWrites is also how many a Unit's status remembers: each is recorded before it is sent.
	maxTagWrites   = 32
	maxTagValue    = 1024
	maxTagNameSize = 253
)

// ValidateUnitTags checks what a request asks to be written. What it says of values that were read is of no matter.
func ValidateUnitTags(tags *physical.UnitTags) field.ErrorList {
	errs := validateText(field.NewPath("reason"), tags.Reason, maxReason)
	writes := field.NewPath("writes")
	switch {
	case len(tags.Writes) == 0:
		return append(errs, field.Required(writes, "list what to write; items are values that were read, and are not written"))
	case len(tags.Writes) > maxTagWrites:
		return append(errs, field.TooMany(writes, len(tags.Writes), maxTagWrites))
	}
	seen := map[physical.TagReference]bool{}
	for i, write := range tags.Writes {
		path, tag := writes.Index(i), physical.TagReference{ControlModule: write.ControlModule, Name: write.Name}
		for name, text := range map[string]string{"controlModule": write.ControlModule, "name": write.Name} {
			if text == "" {
				errs = append(errs, field.Required(path.Child(name), ""))
				continue
			}
			errs = append(errs, validateText(path.Child(name), text, maxTagNameSize)...)
		}
		errs = append(errs, validateText(path.Child("value"), write.Value, maxTagValue)...)
		if seen[tag] {
			errs = append(errs, field.Duplicate(path, cut(write.ControlModule+"/"+write.Name)))
		}
		seen[tag] = true
	}
	return errs
}

// ValidateTagValue checks that a text is a value that the tag could take, in engineering units.
func ValidateTagValue(path *field.Path, text string, tag *physical.Tag) field.ErrorList {
	if rule := checkHoldValue(text, tag.DataType, tag.Scaling); rule != "" {
		return field.ErrorList{field.Invalid(path, cut(text), rule)}
	}
	return nil
}
