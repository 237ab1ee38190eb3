package api

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-14, P-15
func TestAValueSurvivesTheWay(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want any
	}{
		{"bool", true, true},
		{"smallest int16", int16(math.MinInt16), int16(math.MinInt16)},
		{"uint16", uint16(math.MaxUint16), uint16(math.MaxUint16)},
		{"int32", int32(-5), int32(-5)},
		{"uint32", uint32(math.MaxUint32), uint32(math.MaxUint32)},
		{"largest int64", int64(math.MaxInt64), int64(math.MaxInt64)},
		{"largest uint64", uint64(math.MaxUint64), uint64(math.MaxUint64)},
		{"float32", float32(0.1), float32(0.1)},
		{"float64", 0.1, 0.1},
		{"infinity", math.Inf(-1), math.Inf(-1)},
		{"negative zero", math.Copysign(0, -1), math.Copysign(0, -1)},
		{"text", "ü \"quoted\"", "ü \"quoted\""},
		{"an int, which is none of ours", 7, int64(7)},
		{"a byte, which is none of ours", byte(7), uint64(7)},
	} {
		t.Run(c.name, func(t *testing.T) {
			told, ok := ValueOf(c.in)
			if !ok {
				t.Fatal("it cannot be told")
			}
			raw, err := json.Marshal(told)
			if err != nil {
				t.Fatal(err)
			}
			var back Value
			if err := json.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			if got, err := back.Raw(); err != nil || got != c.want {
				t.Errorf("%s became %v (%T), %v", raw, got, got, err)
			}
		})
	}
	told, _ := ValueOf(math.NaN())
	if got, err := told.Raw(); err != nil || !math.IsNaN(got.(float64)) {
		t.Errorf("NaN became %v, %v", got, err)
	}
}

func TestWhatIsNoValue(t *testing.T) {
	for _, v := range []any{nil, []int16{1}, time.Time{}, struct{}{}} {
		if told, ok := ValueOf(v); ok {
			t.Errorf("%v became %+v", v, told)
		}
	}
	for _, v := range []Value{{}, {"int7", "1"}, {driver.Bool, "1"}, {driver.Int16, "32768"}, {driver.Uint16, "-1"}, {driver.Int64, "1.0"}, {driver.Float32, "1e39"}, {driver.Float64, ""}} {
		if raw, err := v.Raw(); err == nil {
			t.Errorf("%+v became %v", v, raw)
		}
	}
}

// Req: P-15
func TestASampleSurvivesTheWay(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		name string
		in   driver.Sample
	}{
		{"a value", driver.Sample{Value: int16(7)}},
		{"the device's own status and time", driver.Sample{Value: 1.5, Status: 0x40920000, SourceTime: at}},
		{"a refusal", driver.Refused(&driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: errors.New("no such register")})},
		{"a bad value", driver.Sample{Value: 1.5, Status: driver.StatusBadSensorFailure, SourceTime: at, Err: &driver.Error{Reason: driver.ReasonDeviceFailure, Answered: true, Err: errors.New("sensor")}}},
		{"a refusal without a word", driver.Refused(&driver.Error{Reason: driver.ReasonNotSupported})},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := json.Marshal(SampleOf(c.in))
			if err != nil {
				t.Fatal(err)
			}
			var told Sample
			if err := json.Unmarshal(raw, &told); err != nil {
				t.Fatal(err)
			}
			got, err := told.Driver()
			if err != nil || got.Value != c.in.Value || got.Status != c.in.Status || !got.SourceTime.Equal(c.in.SourceTime) {
				t.Errorf("%s became %+v, %v", raw, got, err)
			}
			switch {
			case got.Err == nil && c.in.Err == nil:
			case got.Err == nil || c.in.Err == nil || got.Err.Reason != c.in.Err.Reason || got.Err.Answered != c.in.Err.Answered || got.Err.Error() != c.in.Err.Error():
				t.Errorf("%s became the error %v", raw, got.Err)
			}
		})
	}
	if s := SampleOf(driver.Sample{Value: []int16{1}}); s.Value != nil || s.Error == nil || !s.Status.Bad() {
		t.Errorf("a value that cannot be told: %+v", s)
	}
}
