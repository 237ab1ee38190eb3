package unitruntime

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// plant is a Unit with two devices; three tags have hold values, one of them by inverse scaling.
func plant(s *site) (io, drive *fakeDevice) {
	io, drive = s.device("uid-io"), s.device("uid-drive")
	io.values["valve"], io.values["set"], io.values["level"], drive.values["speed"] = true, int16(500), int16(7), uint16(40)
	s.apply(plantConfig())
	return io, drive
}

func plantConfig(more ...string) string {
	return configFile([]string{moduleEntry("io", 1), moduleEntry("drive", 1)}, append([]string{
		tagEntry("m/level", "io", `"dataType":"int16"`),
		tagEntry("m/set", "io", `"dataType":"int16","access":"ReadWrite","scaling":{"factor":0.1,"offset":5},"holdValue":"7.5"`),
		tagEntry("m/speed", "drive", `"dataType":"uint16","access":"ReadWrite","holdValue":"0"`),
		tagEntry("m/valve", "io", `"dataType":"bool","access":"Write","holdValue":"false"`),
	}, more...)...)
}

const ioHolds, driveHolds = "set=25 valve=false", "speed=0"

// A device that has just been lost refuses nothing: until that is known its hold values are on their way, and never an alarm that
// says to mend them.
//
// Req: P-16b
func TestADeviceThatIsBeingLostRefusesNoHoldValue(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		_, drive := plant(s)
		after(10 * time.Second)
		s.order(1, isa88.Running, "")
		drive.cut()
		s.order(2, isa88.Holding, "e")
		told := ""
		for range 100 {
			after(100 * time.Millisecond)
			for _, w := range s.Report().Outstanding {
				if w.Reason != "" && !w.Unreachable {
					t.Fatalf("told as refused: %+v", w)
				}
				told = w.Reason
			}
		}
		if report := s.Report(); told != "Refused" || !report.Applied {
			t.Errorf("the device was never told as lost: %s", inJSON(report))
		}
	})
}

// Req: P-16b (each state, with the device up, down, and returning)
func TestHoldValuesInEveryState(t *testing.T) {
	holds := map[isa88.State]bool{
		isa88.Holding: true, isa88.Held: true, isa88.Stopping: true, isa88.Stopped: true, isa88.Aborting: true, isa88.Aborted: true,
	}
	for _, state := range isa88.States() {
		t.Run(string(state), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				defer s.keepAlive()()
				io, drive := plant(s)
				after(10 * time.Second)
				s.order(1, isa88.Running, "")
				drive.cut()
				after(10 * time.Second)
				s.order(2, state, "e")
				after(10 * time.Millisecond)
				want, report := "", s.Report()
				if holds[state] {
					want = ioHolds
					if len(report.Outstanding) != 1 || !report.Outstanding[0].Unreachable || report.Outstanding[0].Name != "speed" || report.Outstanding[0].Reason != "Refused" {
						t.Errorf("outstanding %+v", report.Outstanding)
					}
				} else if len(report.Outstanding) > 0 {
					t.Errorf("outstanding %+v", report.Outstanding)
				}
				if !report.Applied {
					t.Errorf("not applied: %s", inJSON(report))
				}
				if got := io.writes(); got != want {
					t.Errorf("up: %q, want %q", got, want)
				}
				after(20 * time.Second)
				if got := io.writes() + drive.writes(); got != "" {
					t.Errorf("later: %q", got)
				}
				drive.restore()
				after(3 * time.Second)
				want = ""
				if holds[state] {
					want = driveHolds
				}
				if got := drive.writes(); got != want {
					t.Errorf("back: %q, want %q", got, want)
				}
				if report := s.Report(); !report.Applied || len(report.Outstanding) > 0 {
					t.Errorf("back: %s", inJSON(report))
				}
				after(20 * time.Second)
				if got := io.writes() + drive.writes(); got != "" {
					t.Errorf("at the end: %q", got)
				}
			})
		})
	}
}

// Req: P-16b
func TestOneHoldIsWrittenOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, drive := plant(s)
		after(5 * time.Second)
		for i, c := range []struct {
			state   isa88.State
			episode string
			written bool
		}{
			{isa88.Running, "", false},
			{isa88.Holding, "e1", true},
			{isa88.Holding, "e1", false},
			{isa88.Held, "e1", false},
			{isa88.Restarting, "", false},
			{isa88.Holding, "e2", true},
			{isa88.Held, "e2", false},
			{isa88.Held, "e3", true}, // what lay between was missed
			{isa88.Stopping, "", true},
			{isa88.Aborting, "", true},
			{isa88.Aborted, "", false},
			{isa88.Resetting, "", false},
			{isa88.Idle, "", false},
		} {
			s.order(int64(i), c.state, c.episode)
			after(5 * time.Second)
			want := ""
			if c.written {
				want = ioHolds + " " + driveHolds
			}
			if got := strings.TrimSpace(io.writes() + " " + drive.writes()); got != want {
				t.Errorf("step %d, %s %s: %q, want %q", i, c.state, c.episode, got, want)
			}
		}
	})
}

// Req: P-16b
func TestARefusedHoldValueIsTriedEverySecondAndTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, _ := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Running, "")
		io.with(func(d *fakeDevice) {
			d.refused["set"] = &driver.Error{Reason: driver.ReasonDeviceFailure, Answered: true, Err: errors.New("in local mode")}
		})
		s.order(2, isa88.Holding, "e")
		after(30 * time.Second)
		report := s.Report()
		if report.Applied || len(report.Outstanding) != 1 {
			t.Fatal(inJSON(report))
		}
		if w := report.Outstanding[0]; w.Name != "set" || w.Unreachable || w.Reason != "DeviceFailure" || w.Message != "in local mode" {
			t.Errorf("%+v", w)
		}
		if got := io.writes(); got != "valve=false" {
			t.Errorf("the others: %q", got)
		}
		io.with(func(d *fakeDevice) { d.refused = map[string]*driver.Error{} })
		after(1100 * time.Millisecond)
		if got := io.writes(); got != "set=25" || !s.Report().Applied {
			t.Errorf("%q, %s", got, inJSON(s.Report()))
		}
	})
}

// Req: P-16b
func TestHoldValuesThatCannotBeWrittenAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		s.apply(configFile([]string{moduleEntry("io", 1), `{"name":"broken","uid":"u","generation":1}`},
			tagEntry("m/large", "io", `"dataType":"int16","access":"Write","holdValue":"70000"`),
			tagEntry("m/gone", "nowhere", `"access":"Write","holdValue":"0"`),
			tagEntry("m/broken", "broken", `"access":"Write","holdValue":"0"`),
		))
		after(5 * time.Second)
		s.order(1, isa88.Holding, "e")
		after(5 * time.Second)
		var told []string
		for _, w := range s.Report().Outstanding {
			told = append(told, fmt.Sprintf("%s %s %v", w.Name, w.Reason, w.Unreachable))
		}
		if got := strings.Join(told, ", "); got != "broken ConfigurationError true, gone ConfigurationError true, large InvalidValue false" {
			t.Error(got)
		}
	})
}

// Req: P-16b (a device that was restarted has forgotten its hold values)
func TestADeviceThatWasAwayForAMomentGetsItsHoldValuesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, drive := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Held, "e")
		after(time.Second)
		_, _ = io.writes(), drive.writes()
		io.cut()
		after(1100 * time.Millisecond)
		io.restore()
		after(2 * time.Second)
		if got := io.writes() + drive.writes(); got != ioHolds {
			t.Errorf("%q", got)
		}
		if m := s.Report().Modules; !m[1].Connected {
			t.Errorf("a moment is no loss: %+v", m)
		}
	})
}

// Req: P-16b (a hold while the config changes)
func TestAConfigThatChangesWhileHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, drive := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Held, "e")
		after(time.Second)
		_, _ = io.writes(), drive.writes()
		s.apply(plantConfig(tagEntry("m/heater", "drive", `"dataType":"bool","access":"Write","holdValue":"false"`)))
		after(time.Second)
		if got := io.writes() + drive.writes(); got != "heater=false" {
			t.Errorf("a hold value that is new: %q", got)
		}
		s.apply(plantConfig(tagEntry("m/heater", "drive", `"dataType":"bool","access":"Write","holdValue":"true"`)))
		after(time.Second)
		if got := io.writes() + drive.writes(); got != "heater=true" {
			t.Errorf("a hold value that is another: %q", got)
		}
		s.apply(strings.Replace(plantConfig(), `"generation":1,"spec"`, `"generation":2,"spec"`, 2))
		after(time.Second)
		if got := io.writes() + drive.writes(); got != "" {
			t.Errorf("nothing that is new: %q", got)
		}
		s.apply(strings.Replace(plantConfig(), `"uid":"uid-drive"`, `"uid":"uid-exchanged"`, 1))
		after(time.Second)
		if got := s.device("uid-exchanged").writes(); got != "speed=0" || io.writes() != "" {
			t.Errorf("a device that is another: %q", got)
		}
	})
}

// Req: P-16b (kill -9 between the state file and the device: done again at the start, before any server is heard of)
func TestAHoldIsDoneAgainAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		io, drive := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Running, "")
		// The program is killed after it has stored the order and before it has written anything.
		if err := NewStateFile(s.state, s.clock).Save(State{Order: &api.Order{UID: "unit-1", Revision: 2, State: isa88.Holding, Episode: "e"}}); err != nil {
			t.Fatal(err)
		}
		s.stop()
		s.boot()
		s.apply(plantConfig())
		after(time.Second)
		if got := io.writes() + " " + drive.writes(); got != ioHolds+" "+driveHolds {
			t.Errorf("%q", got)
		}
		report := s.Report()
		if report.Applied || report.Order == nil || report.Order.Revision != 2 || len(report.Outstanding) > 0 {
			t.Errorf("before it is ordered anew: %s", inJSON(report))
		}
		if report := s.order(2, isa88.Holding, "e"); !report.Applied {
			t.Errorf("%s", inJSON(report))
		}
		if _, failure := s.PutOrder(t.Context(), api.Order{UID: "unit-1", Revision: 1, State: isa88.Running}); failure == nil || failure.Code != 409 {
			t.Errorf("an order of before the restart was taken: %v", failure)
		}
	})
}

// Req: P-16b
func TestNobodyWritesAfterARestartUntilTheServerSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		io, _ := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Running, "")
		s.stop()
		s.boot()
		s.apply(plantConfig())
		after(time.Second)
		if _, failure := s.write("m/set", "10"); failure == nil || failure.Code != 409 {
			t.Errorf("%v", failure)
		}
		if got := io.writes(); got != "" {
			t.Errorf("written: %q", got)
		}
		s.order(1, isa88.Running, "")
		if result, failure := s.write("m/set", "10"); failure != nil || !result.Done {
			t.Errorf("%+v, %v", result, failure)
		}
	})
}
