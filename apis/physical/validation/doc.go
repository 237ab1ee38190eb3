// Package validation holds the rules of the physical group that are too long for a tag on a field: those that join
// several fields, and the grammar of addresses. Each error names the field, the value and the rule. What the tags
// in v1alpha1 enforce (required, lengths, enums, bounds of integers, uniqueness in lists) is not repeated here.
package validation

import (
	"slices"
	"strconv"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateName keeps names usable in the references to them, which are DNS subdomains.
func validateName(meta *metav1.ObjectMeta) field.ErrorList {
	if meta.Name == "" {
		return nil // said by the checks that every kind has
	}
	var errs field.ErrorList
	for _, rule := range apivalidation.NameIsDNSSubdomain(meta.Name, false) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), meta.Name, rule))
	}
	return errs
}

// validateDuration keeps a duration, when it is set, within bounds.
func validateDuration(path *field.Path, d *metav1.Duration, least, most time.Duration) field.ErrorList {
	if d == nil || d.Duration >= least && d.Duration <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be between "+short(least)+" and "+short(most))}
}

// short writes a bound as a person would: 1h, not 1h0m0s.
func short(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= unit.size && d%unit.size == 0 {
			return strconv.FormatInt(int64(d/unit.size), 10) + unit.name
		}
	}
	return d.String()
}

// validateNodeSelector checks that nodes can have the labels; the errors come in the same order every time.
func validateNodeSelector(labels map[string]string, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(labels, path)
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}
