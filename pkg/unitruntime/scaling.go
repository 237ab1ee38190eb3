package unitruntime

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
)

// scaling is raw × factor + offset = engineering units (P-14).
type scaling struct {
	// on is false where the raw value is the engineering value, of its own type.
	on             bool
	factor, offset float64
}

// newScaling is the scaling of a specification; a factor of 1 and an offset of 0 scale nothing.
func newScaling(s *v1alpha1.Scaling) scaling {
	if s == nil {
		return scaling{}
	}
	factor, offset := ptr.Deref(s.Factor, 1), ptr.Deref(s.Offset, 0)
	return scaling{on: factor != 1 || offset != 0, factor: factor, offset: offset}
}

// divisor is what a factor such as 0.1 is one part of: 3 × 0.1 is 0.30000000000000004, 3 / 10 is 0.3.
func (s scaling) divisor() (float64, bool) {
	d := 1 / s.factor
	return d, d == math.Trunc(d) && math.Abs(d) < 1<<53
}

func (s scaling) engineering(raw float64) float64 {
	if d, ok := s.divisor(); ok {
		return raw/d + s.offset
	}
	return raw*s.factor + s.offset
}

func (s scaling) raw(engineering float64) float64 {
	if d, ok := s.divisor(); ok {
		return (engineering - s.offset) * d
	}
	return (engineering - s.offset) / s.factor
}

// kind is what a value is.
type kind uint8

const (
	nothing kind = iota
	aBool
	anInteger
	aNatural
	aNarrowReal
	aReal
	aText
)

// value is a value in engineering units; its zero is no value.
type value struct {
	kind kind
	bits uint64
	str  string
}

// text is the value for people and programs: "true", as many digits as tell a number apart, or the text itself.
func (v value) text() string {
	switch v.kind {
	case aBool:
		return strconv.FormatBool(v.bits != 0)
	case anInteger:
		return strconv.FormatInt(int64(v.bits), 10)
	case aNatural:
		return strconv.FormatUint(v.bits, 10)
	case aNarrowReal:
		return formatReal(float64(math.Float32frombits(uint32(v.bits))), 32)
	case aReal:
		return formatReal(math.Float64frombits(v.bits), 64)
	default:
		return v.str
	}
}

func formatReal(f float64, bits int) string {
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.FormatFloat(f, format, -1, bits)
}

// maxText bounds a text that a device sends; what is longer is no process value.
const maxText = 1024

// valueOf is a driver's raw value in engineering units. The error says why it is none.
func (s scaling) valueOf(raw any) (value, *unusable) {
	var v value
	var real float64
	switch r := raw.(type) {
	case bool:
		if r {
			v.bits = 1
		}
		v.kind = aBool
	case int16:
		v, real = value{kind: anInteger, bits: uint64(r)}, float64(r)
	case int32:
		v, real = value{kind: anInteger, bits: uint64(r)}, float64(r)
	case int64:
		v, real = value{kind: anInteger, bits: uint64(r)}, float64(r)
	case uint16:
		v, real = value{kind: aNatural, bits: uint64(r)}, float64(r)
	case uint32:
		v, real = value{kind: aNatural, bits: uint64(r)}, float64(r)
	case uint64:
		v, real = value{kind: aNatural, bits: r}, float64(r)
	case float32:
		v, real = value{kind: aNarrowReal, bits: uint64(math.Float32bits(r))}, float64(r)
	case float64:
		v, real = value{kind: aReal, bits: math.Float64bits(r)}, r
	case string:
		if len(r) > maxText {
			return value{}, &unusable{driver.StatusBadConfigurationError, fmt.Sprintf("the device sends a text of more than %d bytes", maxText)}
		}
		v = value{kind: aText, str: r}
	default:
		return value{}, &unusable{driver.StatusBadConfigurationError, fmt.Sprintf("the device sends a %T, which is not one value", raw)}
	}
	switch {
	case v.kind == aBool || v.kind == aText:
		if s.on {
			return value{}, &unusable{driver.StatusBadConfigurationError, fmt.Sprintf("the device sends a %T, which has no scale", raw)}
		}
	case !finite(real):
		// This is how devices tell that a sensor is broken.
		return value{}, &unusable{driver.StatusBadSensorFailure, fmt.Sprintf("the device sends %v, which is no number", raw)}
	case s.on:
		real = s.engineering(real)
		if !finite(real) {
			return value{}, &unusable{driver.StatusBadConfigurationError, fmt.Sprintf("the raw value %v is out of range when it is scaled", raw)}
		}
		v = value{kind: aReal, bits: math.Float64bits(real)}
	}
	return v, nil
}

// unusable says why what a device sent is no value.
type unusable struct {
	status  driver.StatusCode
	message string
}

// typeOf is the data type of a driver's raw value; "" for one that is none.
func typeOf(raw any) driver.DataType {
	switch raw.(type) {
	case bool:
		return driver.Bool
	case int16:
		return driver.Int16
	case int32:
		return driver.Int32
	case int64:
		return driver.Int64
	case uint16:
		return driver.Uint16
	case uint32:
		return driver.Uint32
	case uint64:
		return driver.Uint64
	case float32:
		return driver.Float32
	case float64:
		return driver.Float64
	case string:
		return driver.String
	default:
		return ""
	}
}

// rawOf is the raw value, of a data type, that gives a text in engineering units. Without a data type the device knows better, and
// gets what the text looks like. A raw integer is the one that is nearest; what does not fit is refused.
func (s scaling) rawOf(text string, t driver.DataType) (any, error) {
	switch t {
	case driver.String:
		return text, nil
	case driver.Bool:
		switch text {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
		return nil, fmt.Errorf("%q is no bool: true, false, 1 or 0", text)
	}
	if t == "" && !s.on {
		if text == "true" || text == "false" {
			return text == "true", nil
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	}
	real, err := strconv.ParseFloat(text, 64)
	if err != nil || !finite(real) {
		if t == "" && !s.on {
			return text, nil
		}
		return nil, fmt.Errorf("%q is no number", text)
	}
	var raw any = real
	if s.on {
		real = s.raw(real)
		if raw = real; t != driver.Float32 && t != driver.Float64 && t != "" {
			raw = math.Round(real)
		}
	} else if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		raw = n
	} else if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		raw = n
	}
	if t == "" {
		return raw, nil
	}
	if t == driver.Float32 || t == driver.Float64 {
		raw = real
	}
	bits, ok := driver.ToBits(t, raw)
	if !ok || !finite(real) {
		if s.on {
			return nil, fmt.Errorf("%q is %v as the raw value, which a %s cannot hold", text, raw, t)
		}
		return nil, fmt.Errorf("a %s cannot hold %q", t, text)
	}
	out, ok := driver.FromBits(t, bits)
	if !ok {
		return nil, fmt.Errorf("%q is no data type", t)
	}
	return out, nil
}
