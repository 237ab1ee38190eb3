package simulation

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func open(t *testing.T, seed int64, now *time.Time) driver.Device {
	t.Helper()
	d, err := Open(Config{Seed: seed, Start: start, Now: func() time.Time { return *now }, Channels: []driver.Channel{
		{Name: "level", Address: "tank/level"},
		{Name: "count", Address: "count", DataType: driver.Uint16},
		{Name: "flow", Address: "flow", DataType: driver.Float32, Access: driver.AccessRead},
		{Name: "open", Address: "open", DataType: driver.Bool},
		{Name: "batch", Address: "batch", DataType: driver.String},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func readAll(t *testing.T, d driver.Device) []any {
	t.Helper()
	var values []any
	for _, address := range []string{"tank/level", "count", "flow", "open", "batch"} {
		v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: address})
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	return values
}

// Req: P-13
func TestADrillCanBeRepeated(t *testing.T) {
	now := start
	a, b, other := open(t, 7, &now), open(t, 7, &now), open(t, 8, &now)
	changes, differences := 0, 0
	var before []any
	for range 120 {
		now = now.Add(step)
		values, same, elsewhere := readAll(t, a), readAll(t, b), readAll(t, other)
		for i, v := range values {
			if v != same[i] {
				t.Fatalf("%v and %v of the same seed", v, same[i])
			}
			if v != elsewhere[i] {
				differences++
			}
			if before != nil && v != before[i] {
				changes++
			}
		}
		if v := values[0].(float64); v < 0 || v > 100 {
			t.Fatalf("level %v", v)
		}
		if v := values[1].(uint16); v > 100 {
			t.Fatalf("count %v", v)
		}
		before = values
	}
	if changes < 200 || differences < 200 {
		t.Errorf("%d changes and %d differences between seeds are too few", changes, differences)
	}
}

// Req: P-13
func TestWhatIsWrittenIsKept(t *testing.T) {
	now := start
	d := open(t, 7, &now)
	for _, c := range []struct {
		address     string
		value, want any
	}{
		{"tank/level", 3, float64(3)},
		{"count", float64(9), uint16(9)},
		{"open", true, true},
		{"open", false, false},
		{"batch", "B-1", "B-1"},
	} {
		if err := d.Write(t.Context(), driver.Channel{Address: c.address}, c.value); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		if v, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: c.address}); err != nil || v != c.want {
			t.Errorf("%s: %v, %v, want %v", c.address, v, err, c.want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	now := start
	d := open(t, 7, &now).(*device)
	for _, c := range []struct {
		name string
		err  error
		says string
	}{
		{"a channel that is read only", d.Write(t.Context(), driver.Channel{Address: "flow"}, 1), "declared as Read"},
		{"a value out of range", d.Write(t.Context(), driver.Channel{Address: "count"}, -1), "cannot hold -1"},
		{"a number into a bool", d.Write(t.Context(), driver.Channel{Address: "open"}, 1), "cannot hold 1"},
		{"an address that is not there", d.Write(t.Context(), driver.Channel{Address: "nowhere"}, 1), "has no"},
		{"another type than declared", func() error {
			_, err := driver.ReadOne(t.Context(), d, driver.Channel{Address: "count", DataType: driver.Int16})
			return err
		}(), "not int16"},
	} {
		e, ok := c.err.(*driver.Error)
		if !ok || e.Reason != driver.ReasonConfigurationError || !e.Answered || !strings.Contains(e.Error(), c.says) {
			t.Errorf("%s: %v, want a ConfigurationError with %q", c.name, c.err, c.says)
		}
	}
	if _, err := Open(Config{Channels: []driver.Channel{{Address: "a", DataType: "int7"}}}); err == nil {
		t.Error("a data type that is none was taken")
	}
	if _, err := Open(Config{Channels: []driver.Channel{{Address: "a"}, {Address: "a", DataType: driver.Bool}}}); err == nil {
		t.Error("one address of two data types was taken")
	}
}

// Req: P-06, P-13
func TestItListsWhatIsDeclaredAndAnswersUntilItIsClosed(t *testing.T) {
	now := start
	d := open(t, 7, &now)
	list, err := d.Channels(t.Context(), 2)
	if err != nil || !list.Truncated || len(list.Items) != 2 || list.Items[0].Name != "level" || list.Items[0].DataType != driver.Float64 || !list.Items[0].Declared {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = d.Channels(t.Context(), 0); err != nil || list.Truncated || len(list.Items) != 5 || list.Items[2].Access != driver.AccessRead {
		t.Errorf("%+v, %v", list, err)
	}
	if answer, err := d.Check(t.Context()); err != nil || answer.Health != driver.HealthNormal {
		t.Error(answer, err)
	}
	if id, err := d.Identify(t.Context()); err != nil || id.Serial != "7" {
		t.Error(id, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Check(ended); err == nil {
		t.Error("a check goes on after its context")
	}
	_ = d.Close()
	if _, err := d.Check(t.Context()); driver.ReasonOf(err) != driver.ReasonConnectionLost {
		t.Error(err)
	}
}

// Req: P-15
func TestChannelsOfOneReadAreOfOneMoment(t *testing.T) {
	now := start
	d := open(t, 7, &now)
	samples, err := d.Read(t.Context(), []driver.Channel{
		{Address: "tank/level"}, {Address: "nowhere"}, {Address: "count", Count: 3}, {Address: "count"},
	})
	if err != nil || len(samples) != 4 {
		t.Fatal(samples, err)
	}
	for _, i := range []int{0, 3} {
		if s := samples[i]; s.Value == nil || !s.Status.Good() || !s.SourceTime.Equal(now) || s.Err != nil {
			t.Errorf("%+v", s)
		}
	}
	for i, answered := range map[int]bool{1: true, 2: false} {
		if s := samples[i]; s.Value != nil || s.Status != driver.StatusBadConfigurationError || s.Err == nil || s.Err.Answered != answered {
			t.Errorf("%+v", s)
		}
	}
	if err := d.Write(t.Context(), driver.Channel{Address: "count", Count: 3}, 1); driver.ReasonOf(err) != driver.ReasonNotSupported {
		t.Errorf("an array was written: %v", err)
	}
	_ = d.Close()
	if samples, err := d.Read(t.Context(), []driver.Channel{{Address: "count"}}); err == nil || samples != nil {
		t.Errorf("a closed device gave %v, %v", samples, err)
	}
}
