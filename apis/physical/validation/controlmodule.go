package validation

import (
	"fmt"
	"math"
	"strconv"
	"time"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// The bounds of a tag's period.
const (
	minTagPeriod = 100 * time.Millisecond
	maxTagPeriod = time.Hour
)

// ValidateControlModule checks a new ControlModule (P-14).
func ValidateControlModule(module *physical.ControlModule) field.ErrorList {
	return append(validateName(&module.ObjectMeta), validateTags(module.Spec.Tags)...)
}

// ValidateControlModuleUpdate checks a changed ControlModule.
func ValidateControlModuleUpdate(module, _ *physical.ControlModule) field.ErrorList {
	return validateTags(module.Spec.Tags)
}

// ValidateControlModuleStatusUpdate checks a changed status.
func ValidateControlModuleStatusUpdate(module, _ *physical.ControlModule) field.ErrorList {
	return metavalidation.ValidateConditions(module.Status.Conditions, field.NewPath("status", "conditions"))
}

func validateTags(tags []physical.Tag) field.ErrorList {
	var errs field.ErrorList
	for i := range tags {
		tag, path := &tags[i], field.NewPath("spec", "tags").Index(i)
		errs = append(errs, validateDuration(path.Child("period"), tag.Period, minTagPeriod, maxTagPeriod)...)
		scaling := validateScaling(tag.Scaling, tag.DataType, path.Child("scaling"))
		errs = append(errs, scaling...)
		if tag.HoldValue == nil {
			continue
		}
		hold := path.Child("holdValue")
		if tag.Access == physical.AccessRead || tag.Access == "" {
			errs = append(errs, field.Invalid(hold, *tag.HoldValue, "must be absent for access Read: it would never be written; set access to Write or ReadWrite"))
		}
		if len(scaling) == 0 {
			if rule := checkHoldValue(*tag.HoldValue, tag.DataType, tag.Scaling); rule != "" {
				errs = append(errs, field.Invalid(hold, *tag.HoldValue, rule))
			}
		}
	}
	return errs
}

// checkHoldValue returns the rule that a hold value breaks, or "": what is written when a fault holds the Unit must not
// turn out unwritable then (P-16b). A tag without a data type takes it from the device, and is not checked.
func checkHoldValue(text string, dataType physical.DataType, scaling *physical.Scaling) string {
	switch dataType {
	case "", physical.DataTypeString:
		return ""
	case physical.DataTypeBool:
		switch text {
		case "true", "false", "0", "1":
			return ""
		}
		return "must be a bool: true, false, 1 or 0"
	}

	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !finite(value) {
		return "must be a number, as the tag's dataType is " + string(dataType)
	}
	if scaling == nil {
		return checkRaw(plain(text, value), value, dataType)
	}
	raw := (value - ptr.Deref(scaling.Offset, 0)) / ptr.Deref(scaling.Factor, 1)
	if rule := checkRaw(plain("", math.Round(raw)), raw, dataType); rule != "" {
		return fmt.Sprintf("is %s as the raw value, which %s", number(raw), rule)
	}
	return ""
}

// checkRaw tells whether a raw value, given as text in plain digits and as a number, fits a data type: a float64 does not
// hold every int64.
func checkRaw(text string, value float64, dataType physical.DataType) string {
	var bits int
	switch dataType {
	case physical.DataTypeFloat64:
		if finite(value) {
			return ""
		}
		return "must be finite"
	case physical.DataTypeFloat32:
		if math.Abs(value) <= math.MaxFloat32 {
			return ""
		}
		return "must fit a float32"
	case physical.DataTypeInt16, physical.DataTypeUint16:
		bits = 16
	case physical.DataTypeInt32, physical.DataTypeUint32:
		bits = 32
	case physical.DataTypeInt64, physical.DataTypeUint64:
		bits = 64
	default:
		return "" // no such type, which the enum reports
	}

	switch dataType {
	case physical.DataTypeUint16, physical.DataTypeUint32, physical.DataTypeUint64:
		if _, err := strconv.ParseUint(text, 10, bits); err != nil {
			return fmt.Sprintf("must be a whole number from 0 to %d, as the tag's dataType is %s", uint64(math.MaxUint64)>>(64-bits), dataType)
		}
	default:
		if _, err := strconv.ParseInt(text, 10, bits); err != nil {
			most := int64(math.MaxInt64) >> (64 - bits)
			return fmt.Sprintf("must be a whole number from %d to %d, as the tag's dataType is %s", -most-1, most, dataType)
		}
	}
	return ""
}

// plain is a number without the exponent or fraction that ParseInt does not read: the text itself where it is digits alone.
func plain(text string, value float64) string {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text
	}
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		return text
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}
