package opcua

import (
	"math"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13
func TestValuesAreConvertedOnlyWhenNothingIsLost(t *testing.T) {
	for _, c := range []struct {
		raw  any
		want driver.DataType
		ok   bool
		as   any
	}{
		{int32(5), driver.Int16, true, int16(5)},
		{int32(40000), driver.Int16, false, nil},
		{int32(40000), driver.Uint16, true, uint16(40000)},
		{int32(-1), driver.Uint16, false, nil},
		{int64(math.MinInt64), driver.Float64, true, float64(math.MinInt64)},
		{uint64(math.MaxUint64), driver.Int64, false, nil},
		{uint64(math.MaxUint64), driver.Uint64, true, uint64(math.MaxUint64)},
		{uint64(math.MaxInt64), driver.Int64, true, int64(math.MaxInt64)},
		{float64(3), driver.Int16, true, int16(3)},
		{float64(-3), driver.Int16, true, int16(-3)},
		{float64(1 << 63), driver.Uint64, true, uint64(1 << 63)},
		{float64(1 << 63), driver.Int64, false, nil},
		{float64(math.MinInt64), driver.Int64, true, int64(math.MinInt64)},
		{float64(3.5), driver.Int16, false, nil},
		{math.NaN(), driver.Int64, false, nil},
		{math.Inf(1), driver.Int64, false, nil},
		{math.Inf(-1), driver.Float32, true, float32(math.Inf(-1))},
		{float64(1e300), driver.Float32, false, nil},
		{true, driver.Bool, true, true},
		{true, driver.Int16, false, nil},
		{int32(1), driver.Bool, false, nil},
		{"5", driver.Int16, false, nil},
		{"5", driver.String, true, "5"},
		{float32(1.5), driver.String, true, "1.5"},
		{nil, driver.String, false, nil},
		{int32(1), "decimal", false, nil},
	} {
		got, err := convert(c.raw, c.want)
		if (err == nil) != c.ok || err == nil && got != c.as {
			t.Errorf("%v (%T) as %s: %v (%T), %v", c.raw, c.raw, c.want, got, got, err)
		}
	}
}

// Req: P-13
func TestValuesAreWrittenInTheServersType(t *testing.T) {
	for _, c := range []struct {
		value any
		t     ua.TypeID
		want  any
	}{
		{float64(7), ua.TypeIDByte, byte(7)},
		{256, ua.TypeIDByte, nil},
		{-129, ua.TypeIDSByte, nil},
		{-128, ua.TypeIDSByte, int8(-128)},
		{int64(5), ua.TypeIDFloat, float32(5)},
		{"text", ua.TypeIDString, "text"},
		{"2026-01-02T03:04:05Z", ua.TypeIDDateTime, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{"yesterday", ua.TypeIDDateTime, nil},
		{"?", ua.TypeIDByteString, nil},
		{1, ua.TypeIDExtensionObject, nil},
	} {
		v, err := variantOf(c.value, c.t)
		if c.want == nil {
			if err == nil {
				t.Errorf("%v as %s is written", c.value, typeName(c.t))
			}
			continue
		}
		if err != nil || v.Value() != c.want || v.Type() != c.t {
			t.Errorf("%v as %s: %v", c.value, typeName(c.t), err)
		}
	}
}

// Req: P-13 (quality comes from the severity bits)
func TestSeverityAndNotEqualityDecides(t *testing.T) {
	for status, bad := range map[ua.StatusCode]bool{
		ua.StatusOK: false, 0x00000401: false, ua.StatusGoodClamped: false, ua.StatusUncertainLastUsableValue: false,
		ua.StatusBadSensorFailure: true, 0xC0000000: true,
	} {
		if got := (sample{status: status}).bad(); got != bad {
			t.Errorf("0x%08X is bad: %v", uint32(status), got)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		code       int32
		name, want string
	}{
		{4408652, "°C", "°C"},
		{4408652, "", "CEL"},
		{-1, "furlong", "furlong"},
		{-1, "", ""},
		{4408652, "\x1b[31m°C\u202e", "[31m°C"},
	} {
		if got := unitOf(c.code, c.name); got != c.want {
			t.Errorf("%d %q: %q, want %q", c.code, c.name, got, c.want)
		}
	}
}
