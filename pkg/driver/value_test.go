package driver

import (
	"math"
	"testing"
)

// Req: P-13
func TestValuesAreHeldExactlyOrRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		as    DataType
		value any
		want  any
	}{
		{"the type itself", Int16, int16(-2), int16(-2)},
		{"a wider integer that fits", Int16, int64(-2), int16(-2)},
		{"a whole real", Uint16, float64(65535), uint16(65535)},
		{"the largest of 64 bits", Uint64, uint64(math.MaxUint64), uint64(math.MaxUint64)},
		{"the smallest of 64 bits", Int64, int64(math.MinInt64), int64(math.MinInt64)},
		{"the smallest of 64 bits as a real", Int64, float64(math.MinInt64), int64(math.MinInt64)},
		{"an integer as a real", Float32, 3, float32(3)},
		{"a real", Float64, 25.5, 25.5},
		{"a real that loses digits", Float32, 0.1, float32(0.1)},
		{"a narrow real", Float32, float32(25.5), float32(25.5)},
		{"infinity", Float32, math.Inf(1), float32(math.Inf(1))},

		{"too large", Int16, 32768, nil},
		{"too small", Int32, int64(math.MinInt32 - 1), nil},
		{"negative where there is no sign", Uint32, -1, nil},
		{"a fraction", Int32, 1.5, nil},
		{"a real beyond all integers", Uint64, float64(1 << 63 * 2), nil},
		{"no number", Int16, math.NaN(), nil},
		{"too large for a narrow real", Float32, 1e39, nil},
		{"an integer that no real holds", Float64, int64(math.MaxInt64), nil},
		{"a natural number that no real holds", Float64, uint64(math.MaxUint64), nil},
		{"a text", Int16, "1", nil},
		{"a bool", Int16, true, nil},
		{"nothing", Int16, nil, nil},
		{"a type that is no number", String, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			bits, ok := ToBits(c.as, c.value)
			if c.want == nil {
				if ok {
					t.Errorf("%v became %#x, want a refusal", c.value, bits)
				}
				return
			}
			if got, _ := FromBits(c.as, bits); !ok || got != c.want {
				t.Errorf("%v became %v (%v), want %v", c.value, got, ok, c.want)
			}
		})
	}
	if bits, ok := ToBits(Float64, math.Copysign(0, -1)); !ok || bits != 1<<63 {
		t.Errorf("negative zero became %#x, %v", bits, ok)
	}
}
