package unitruntime

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
)

func scale(factor, offset float64) scaling {
	return newScaling(&v1alpha1.Scaling{Factor: ptr.To(factor), Offset: ptr.To(offset)})
}

// Req: P-14, P-15
func TestARawValueInEngineeringUnits(t *testing.T) {
	none := newScaling(nil)
	for _, c := range []struct {
		name    string
		scaling scaling
		raw     any
		want    string
		status  driver.StatusCode
	}{
		{name: "bool", scaling: none, raw: true, want: "true"},
		{name: "int16", scaling: none, raw: int16(-32768), want: "-32768"},
		{name: "uint16", scaling: none, raw: uint16(65535), want: "65535"},
		{name: "int32", scaling: none, raw: int32(math.MinInt32), want: "-2147483648"},
		{name: "uint32", scaling: none, raw: uint32(math.MaxUint32), want: "4294967295"},
		{name: "int64, with all its digits", scaling: none, raw: int64(math.MinInt64), want: "-9223372036854775808"},
		{name: "uint64, with all its digits", scaling: none, raw: uint64(math.MaxUint64), want: "18446744073709551615"},
		{name: "float32, with no more digits than it has", scaling: none, raw: float32(0.1), want: "0.1"},
		{name: "float64", scaling: none, raw: 25.5, want: "25.5"},
		{name: "a very large real", scaling: none, raw: 1e300, want: "1e+300"},
		{name: "a very small real", scaling: none, raw: -1e-9, want: "-1e-09"},
		{name: "string", scaling: none, raw: "B-1", want: "B-1"},
		{name: "an empty string", scaling: none, raw: "", want: ""},
		{name: "a scaling that scales nothing leaves the digits", scaling: scale(1, 0), raw: int64(math.MaxInt64), want: "9223372036854775807"},
		{name: "a factor", scaling: scale(0.1, 0), raw: int16(215), want: "21.5"},
		{name: "a factor that binary has not", scaling: scale(0.1, 0), raw: int16(3), want: "0.3"},
		{name: "a factor and an offset", scaling: scale(0.5, -40), raw: uint16(200), want: "60"},
		{name: "a negative factor", scaling: scale(-2, 1), raw: float32(1.5), want: "-2"},
		{name: "an offset alone", scaling: scale(1, 273.15), raw: int32(0), want: "273.15"},
		{name: "NaN, as a broken sensor's", scaling: none, raw: math.NaN(), status: driver.StatusBadSensorFailure},
		{name: "infinity", scaling: none, raw: float32(math.Inf(-1)), status: driver.StatusBadSensorFailure},
		{name: "out of range once scaled", scaling: scale(1e300, 0), raw: 1e300, status: driver.StatusBadConfigurationError},
		{name: "a bool that is scaled", scaling: scale(2, 0), raw: true, status: driver.StatusBadConfigurationError},
		{name: "a text that is scaled", scaling: scale(2, 0), raw: "1", status: driver.StatusBadConfigurationError},
		{name: "more than one value", scaling: none, raw: []any{int16(1)}, status: driver.StatusBadConfigurationError},
		{name: "a text without end", scaling: none, raw: string(make([]byte, maxText+1)), status: driver.StatusBadConfigurationError},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, why := c.scaling.valueOf(c.raw)
			if c.status != 0 {
				if why == nil || why.status != c.status || why.message == "" {
					t.Errorf("%q, %+v; want %v", v.text(), why, c.status)
				}
				return
			}
			if why != nil || v.text() != c.want {
				t.Errorf("%q, %+v; want %q", v.text(), why, c.want)
			}
		})
	}
}

// Req: P-15, P-16b (hold values)
func TestAValueInEngineeringUnitsAsItIsWritten(t *testing.T) {
	none := newScaling(nil)
	for _, c := range []struct {
		name    string
		scaling scaling
		as      driver.DataType
		text    string
		want    any
	}{
		{"bool", none, driver.Bool, "true", true},
		{"bool as a number", none, driver.Bool, "0", false},
		{"no bool", none, driver.Bool, "yes", nil},
		{"int16", none, driver.Int16, "-32768", int16(-32768)},
		{"int16, one too many", none, driver.Int16, "32768", nil},
		{"int16, one too few", none, driver.Int16, "-32769", nil},
		{"uint16", none, driver.Uint16, "65535", uint16(65535)},
		{"uint16, one too many", none, driver.Uint16, "65536", nil},
		{"uint16 below zero", none, driver.Uint16, "-1", nil},
		{"int32", none, driver.Int32, "-2147483648", int32(math.MinInt32)},
		{"int32, one too many", none, driver.Int32, "2147483648", nil},
		{"uint32", none, driver.Uint32, "4294967295", uint32(math.MaxUint32)},
		{"uint32, one too many", none, driver.Uint32, "4294967296", nil},
		{"int64, with all its digits", none, driver.Int64, "9223372036854775807", int64(math.MaxInt64)},
		{"int64, one too many", none, driver.Int64, "9223372036854775808", nil},
		{"uint64, with all its digits", none, driver.Uint64, "18446744073709551615", uint64(math.MaxUint64)},
		{"uint64, one too many", none, driver.Uint64, "18446744073709551616", nil},
		{"float32", none, driver.Float32, "25.5", float32(25.5)},
		{"float32, too large", none, driver.Float32, "1e39", nil},
		{"float64", none, driver.Float64, "-1.5e300", -1.5e300},
		{"float64 from digits that no real holds", none, driver.Float64, "9223372036854775807", float64(math.MaxInt64)},
		{"float64, too large", none, driver.Float64, "1e309", nil},
		{"infinity", none, driver.Float64, "+Inf", nil},
		{"no number at all", none, driver.Float64, "NaN", nil},
		{"a text", none, driver.String, "NaN", "NaN"},
		{"an empty text", none, driver.String, "", ""},
		{"nothing for a number", none, driver.Int16, "", nil},
		{"a word for a number", none, driver.Int16, "fast", nil},
		{"a whole real for an integer", none, driver.Int16, "3.0", int16(3)},
		{"an exponent for an integer", none, driver.Int32, "1e3", int32(1000)},
		{"a fraction for an integer", none, driver.Int16, "3.5", nil},
		{"scaled", scale(0.1, 0), driver.Int16, "21.5", int16(215)},
		{"scaled, to the nearest", scale(0.1, 0), driver.Int16, "21.54", int16(215)},
		{"scaled, out of range", scale(0.1, 0), driver.Int16, "3276.8", nil},
		{"scaled, below range", scale(0.5, -40), driver.Uint16, "-41", nil},
		{"scaled with an offset", scale(0.5, -40), driver.Uint16, "60", uint16(200)},
		{"scaled real", scale(2, 1), driver.Float32, "4", float32(1.5)},
		{"scaled beyond all reals", scale(1e-300, 0), driver.Float64, "1e300", nil},
		{"no such type", none, "int7", "1", nil},
		{"no type: a bool", none, "", "true", true},
		{"no type: an integer", none, "", "3", int64(3)},
		{"no type: a real", none, "", "3.5", 3.5},
		{"no type: a text", none, "", "B-1", "B-1"},
		{"no type, scaled", scale(0.5, 0), "", "3", 6.0},
		{"no type, scaled, and no number", scale(0.5, 0), "", "B-1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.scaling.rawOf(c.text, c.as)
			if c.want == nil {
				if err == nil {
					t.Errorf("%q became %v, want a refusal", c.text, got)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%q became %v (%T), %v; want %v (%T)", c.text, got, got, err, c.want, c.want)
			}
		})
	}
}

// Req: P-15
func TestWhatIsReadIsWrittenBackAsItWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	types := []driver.DataType{driver.Int16, driver.Uint16, driver.Int32, driver.Uint32, driver.Int64, driver.Uint64, driver.Float32, driver.Float64}
	for i := range 20000 {
		dataType := types[i%len(types)]
		raw, _ := driver.FromBits(dataType, random.Uint64())
		s := newScaling(nil)
		if i%2 == 1 && dataType != driver.Int64 && dataType != driver.Uint64 && dataType != driver.Float64 && dataType != driver.Float32 {
			s = scale([]float64{0.1, 0.01, 0.001, 2, 0.5, -1, 1.0 / 3, 0.0174533}[random.IntN(8)], float64(random.IntN(200)-100)/4)
		}
		v, why := s.valueOf(raw)
		if why != nil {
			continue
		}
		if back, err := s.rawOf(v.text(), dataType); err != nil || back != raw {
			t.Fatalf("%s %v is %s with %+v and came back as %v, %v", dataType, raw, v.text(), s, back, err)
		}
	}
}

func FuzzTextsAreWrittenOrRefused(f *testing.F) {
	for _, text := range []string{"", "1", "-1.5e7", "0x1p-2", "NaN", "true", "18446744073709551616", "1_000"} {
		f.Add(text, uint8(3), 0.1, -40.0)
	}
	types := []driver.DataType{"", driver.Bool, driver.Int16, driver.Uint16, driver.Int32, driver.Uint32, driver.Int64, driver.Uint64, driver.Float32, driver.Float64, driver.String}
	f.Fuzz(func(t *testing.T, text string, dataType uint8, factor, offset float64) {
		if factor == 0 || !finite(factor) || !finite(offset) {
			return
		}
		as := types[int(dataType)%len(types)]
		for _, s := range []scaling{{}, scale(factor, offset)} {
			raw, err := s.rawOf(text, as)
			if err != nil {
				continue
			}
			if real, ok := raw.(float64); ok && !finite(real) {
				t.Fatalf("%q is written as %v", text, raw)
			}
			if as != "" && typeOf(raw) != as {
				t.Fatalf("%q became a %T, not a %s", text, raw, as)
			}
			if n, ok := raw.(int16); ok && !s.on {
				if real, err := strconv.ParseFloat(text, 64); err != nil || real != float64(n) {
					t.Fatalf("%q became %d", text, n)
				}
			}
		}
	})
}
