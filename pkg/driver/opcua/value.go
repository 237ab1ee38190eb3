package opcua

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// dataTypes maps the built-in types to ours; those with no member here have none.
var dataTypes = map[ua.TypeID]driver.DataType{
	ua.TypeIDBoolean:       driver.Bool,
	ua.TypeIDSByte:         driver.Int16,
	ua.TypeIDByte:          driver.Uint16,
	ua.TypeIDInt16:         driver.Int16,
	ua.TypeIDUint16:        driver.Uint16,
	ua.TypeIDInt32:         driver.Int32,
	ua.TypeIDUint32:        driver.Uint32,
	ua.TypeIDInt64:         driver.Int64,
	ua.TypeIDUint64:        driver.Uint64,
	ua.TypeIDFloat:         driver.Float32,
	ua.TypeIDDouble:        driver.Float64,
	ua.TypeIDString:        driver.String,
	ua.TypeIDDateTime:      driver.String,
	ua.TypeIDGUID:          driver.String,
	ua.TypeIDByteString:    driver.String,
	ua.TypeIDXMLElement:    driver.String,
	ua.TypeIDLocalizedText: driver.String,
	ua.TypeIDQualifiedName: driver.String,
	ua.TypeIDStatusCode:    driver.Uint32,
}

// goTypes are the Go types of our data types.
var goTypes = map[driver.DataType]reflect.Type{
	driver.Bool: reflect.TypeFor[bool](), driver.Int16: reflect.TypeFor[int16](), driver.Uint16: reflect.TypeFor[uint16](),
	driver.Int32: reflect.TypeFor[int32](), driver.Uint32: reflect.TypeFor[uint32](), driver.Int64: reflect.TypeFor[int64](),
	driver.Uint64: reflect.TypeFor[uint64](), driver.Float32: reflect.TypeFor[float32](), driver.Float64: reflect.TypeFor[float64](),
	driver.String: reflect.TypeFor[string](),
}

// valueOf is a scalar as a value of type want, or of the type nearest to its own when want is empty.
func valueOf(v variant, want driver.DataType) (any, error) {
	if v.array {
		return nil, answered(driver.ReasonNotSupported, "the value is an array; name one of its elements, or a node with a single value")
	}
	if v.typeID == ua.TypeIDVariant {
		inner, _ := v.value.(variant)
		return valueOf(inner, want)
	}
	own, ok := dataTypes[v.typeID]
	if !ok {
		return nil, answered(driver.ReasonNotSupported, "the value has the type %s, which no channel can have", typeName(v.typeID))
	}
	raw := v.value
	switch x := raw.(type) {
	case time.Time:
		raw = x.Format(time.RFC3339Nano)
	case []byte:
		raw = base64.StdEncoding.EncodeToString(x)
	case ua.StatusCode:
		raw = uint32(x)
	}
	if want == "" {
		want = own
	}
	return convert(raw, want)
}

// convert is a value as one of type want, when that loses nothing; a float may lose digits.
func convert(raw any, want driver.DataType) (any, error) {
	target, ok := goTypes[want]
	if !ok {
		return nil, answered(driver.ReasonConfigurationError, "%q is no data type", want)
	}
	from := reflect.ValueOf(raw)
	if !from.IsValid() {
		return nil, answered(driver.ReasonDeviceFailure, "the device has no value")
	}
	mismatch := answered(driver.ReasonConfigurationError, "the value %v is a %s and does not fit a %s", clip(fmt.Sprint(raw), 40), from.Type(), want)
	to := reflect.New(target).Elem()
	if want == driver.String {
		if from.Kind() == reflect.String {
			return from.String(), nil
		}
		return fmt.Sprint(raw), nil
	}
	if target.Kind() == reflect.Bool || from.Kind() == reflect.Bool {
		if target.Kind() != from.Kind() {
			return nil, mismatch
		}
		return from.Bool(), nil
	}
	switch {
	case from.CanInt():
		return number(to, float64(from.Int()), from.Int(), from.Int() >= 0, uint64(from.Int()), mismatch)
	case from.CanUint():
		u := from.Uint()
		if u > math.MaxInt64 && to.CanInt() {
			return nil, mismatch
		}
		return number(to, float64(u), int64(u), true, u, mismatch)
	case from.CanFloat():
		f := from.Float()
		if to.CanFloat() {
			if to.OverflowFloat(f) && !math.IsInf(f, 0) {
				return nil, mismatch
			}
			to.SetFloat(f)
			return to.Interface(), nil
		}
		// Both bounds are powers of two, and so exact: beyond them the conversion is undefined.
		if f != math.Trunc(f) || f < math.MinInt64 || f >= math.MaxUint64 || to.CanInt() && f >= math.MaxInt64 {
			return nil, mismatch
		}
		if f < 0 {
			return number(to, f, int64(f), false, 0, mismatch)
		}
		return number(to, f, int64(min(f, math.MaxInt64/2)), true, uint64(f), mismatch)
	}
	return nil, mismatch
}

// number sets an integer in whatever numeric type to is.
func number(to reflect.Value, f float64, i int64, positive bool, u uint64, mismatch error) (any, error) {
	switch {
	case to.CanFloat():
		to.SetFloat(f)
	case to.CanUint():
		if !positive || to.OverflowUint(u) {
			return nil, mismatch
		}
		to.SetUint(u)
	default:
		if positive {
			i = int64(u)
		}
		if to.OverflowInt(i) {
			return nil, mismatch
		}
		to.SetInt(i)
	}
	return to.Interface(), nil
}

// variantOf is a value as a variant of a built-in type, as servers want it: they refuse any other type.
func variantOf(value any, t ua.TypeID) (*ua.Variant, error) {
	own, ok := dataTypes[t]
	if !ok {
		return nil, answered(driver.ReasonNotSupported, "a value of the type %s cannot be written", typeName(t))
	}
	converted, err := convert(value, own)
	if err != nil {
		return nil, err
	}
	misfit := answered(driver.ReasonConfigurationError, "the value %v does not fit a %s", clip(fmt.Sprint(value), 40), typeName(t))
	switch x := converted.(type) {
	case int16:
		if t == ua.TypeIDSByte {
			if x < math.MinInt8 || x > math.MaxInt8 {
				return nil, misfit
			}
			converted = int8(x)
		}
	case uint16:
		if t == ua.TypeIDByte {
			if x > math.MaxUint8 {
				return nil, misfit
			}
			converted = byte(x)
		}
	case uint32:
		if t == ua.TypeIDStatusCode {
			converted = ua.StatusCode(x)
		}
	case string:
		switch t {
		case ua.TypeIDString:
		case ua.TypeIDLocalizedText:
			converted = ua.NewLocalizedText(x)
		case ua.TypeIDDateTime:
			parsed, err := time.Parse(time.RFC3339Nano, x)
			if err != nil {
				return nil, misfit
			}
			converted = parsed
		case ua.TypeIDByteString:
			parsed, err := base64.StdEncoding.DecodeString(x)
			if err != nil {
				return nil, misfit
			}
			converted = parsed
		case ua.TypeIDGUID:
			parsed := ua.NewGUID(x)
			if parsed == nil {
				return nil, misfit
			}
			converted = parsed
		default:
			return nil, answered(driver.ReasonNotSupported, "a value of the type %s cannot be written", typeName(t))
		}
	}
	v, err := ua.NewVariant(converted)
	if err != nil {
		return nil, misfit
	}
	return v, nil
}

// typeNames are the built-in types' names.
var typeNames = [...]string{"", "Boolean", "SByte", "Byte", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double",
	"String", "DateTime", "Guid", "ByteString", "XmlElement", "NodeId", "ExpandedNodeId", "StatusCode", "QualifiedName", "LocalizedText",
	"Structure", "DataValue", "BaseDataType", "DiagnosticInfo"}

func typeName(t ua.TypeID) string {
	if int(t) < len(typeNames) && t > 0 {
		return typeNames[t]
	}
	return strconv.Itoa(int(t))
}

// answered is an error that concerns what was asked, and not the link.
func answered(reason driver.Reason, format string, args ...any) *driver.Error {
	return &driver.Error{Reason: reason, Answered: true, Err: fmt.Errorf(format, args...)}
}
