package unitruntime

import (
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Req: P-16b
func TestTheRuntimeHoldsByItselfOnlyWhenBothAreLost(t *testing.T) {
	for _, c := range []struct {
		name                     string
		state                    isa88.State
		serverAway, deviceLost   bool
		unrequired, beforeTheEnd bool
		latched                  bool
	}{
		{name: "both there", state: isa88.Running},
		{name: "the server away alone", state: isa88.Running, serverAway: true},
		{name: "a device lost alone", state: isa88.Running, deviceLost: true},
		{name: "both, in Running", state: isa88.Running, serverAway: true, deviceLost: true, latched: true},
		{name: "both, in Pausing", state: isa88.Pausing, serverAway: true, deviceLost: true, latched: true},
		{name: "both, in Paused", state: isa88.Paused, serverAway: true, deviceLost: true, latched: true},
		{name: "both, in Restarting", state: isa88.Restarting, serverAway: true, deviceLost: true, latched: true},
		{name: "both, in Idle", state: isa88.Idle, serverAway: true, deviceLost: true},
		{name: "both, in Held", state: isa88.Held, serverAway: true, deviceLost: true},
		{name: "both, in Completing", state: isa88.Completing, serverAway: true, deviceLost: true},
		{name: "both, in Stopped", state: isa88.Stopped, serverAway: true, deviceLost: true},
		{name: "the server away, and a device that no tag names", state: isa88.Running, serverAway: true, deviceLost: true, unrequired: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				stop := s.keepAlive()
				io, drive := plant(s)
				if c.unrequired {
					s.apply(configFile([]string{moduleEntry("io", 1), moduleEntry("drive", 1)}, tagEntry("m/set", "io", `"dataType":"int16"`)))
				}
				s.order(1, c.state, "")
				after(10 * time.Second)
				_, _ = io.writes(), drive.writes()
				if !c.serverAway {
					defer stop()
				} else {
					stop()
				}
				if c.deviceLost {
					drive.cut()
				}
				after(time.Minute)
				report := s.Report()
				if latched := report.Latch != nil; latched != c.latched {
					t.Fatalf("latched %v: %s", latched, inJSON(report))
				}
				want := ""
				if c.latched {
					want = ioHolds
					if strings.Join(report.Latch.Modules, ",") != "drive" || report.Latch.ID != "latch-1" || report.Applied {
						t.Errorf("%s", inJSON(report))
					}
				}
				if got := io.writes(); got != want {
					t.Errorf("written %q, want %q", got, want)
				}
			})
		})
	}
}

// Req: P-16b (no sooner than api.Contact after the last order; the device may have been lost long before)
func TestTheServerCountsAsAwayAfterItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		stop := s.keepAlive()
		_, drive := plant(s)
		s.order(1, isa88.Running, "")
		after(10 * time.Second)
		drive.cut()
		after(30 * time.Second)
		stop()
		s.order(1, isa88.Running, "")
		after(api.Contact - time.Millisecond)
		if s.Report().Latch != nil {
			t.Error("latched while the server may be there")
		}
		after(watchPeriod + 2*time.Millisecond)
		if s.Report().Latch == nil {
			t.Error("not latched")
		}
	})
}

// Req: P-16b (latched, acknowledged, released)
func TestALatchStaysUntilTheServerHasStoredIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		io, drive := plant(s)
		s.order(1, isa88.Running, "")
		drive.cut()
		after(time.Minute)
		latch := s.Report().Latch
		if latch == nil || io.writes() != ioHolds {
			t.Fatal(inJSON(s.Report()))
		}
		drive.restore()
		after(10 * time.Second)
		if got := drive.writes(); got != driveHolds || s.Report().Latch == nil {
			t.Errorf("the device is back: %q, %+v", got, s.Report().Latch)
		}

		// Through a restart, and a kill of it.
		s.stop()
		s.boot()
		s.apply(plantConfig())
		after(10 * time.Second)
		if got := s.Report().Latch; got == nil || got.ID != latch.ID || io.writes() != ioHolds || drive.writes() != driveHolds {
			t.Errorf("after a restart: %+v", got)
		}

		// The server is back and has not seen it yet.
		if report := s.order(2, isa88.Running, ""); report.Applied || report.Latch == nil {
			t.Errorf("%s", inJSON(report))
		}
		if _, failure := s.write("m/set", "10"); failure == nil || !strings.Contains(failure.Message, "by itself") {
			t.Errorf("a write while latched: %v", failure)
		}
		// Another latch's acknowledgement, and one in a state that the latch held, release nothing.
		for revision, o := range []api.Order{
			{State: isa88.Holding, Episode: "e", LatchAcknowledged: "latch-0"},
			{State: isa88.Running, LatchAcknowledged: latch.ID},
			{State: isa88.Restarting, LatchAcknowledged: latch.ID},
		} {
			o.Revision = int64(revision + 3)
			if report := s.tell(o); report.Latch == nil {
				t.Errorf("%+v released it", o)
			}
		}
		after(time.Second)
		_, _ = io.writes(), drive.writes()
		report := s.tell(api.Order{Revision: 6, State: isa88.Holding, Episode: "e2", LatchAcknowledged: latch.ID})
		if report.Latch != nil {
			t.Errorf("%s", inJSON(report))
		}
		after(time.Second)
		if io.writes() != ioHolds || drive.writes() != driveHolds || !s.Report().Applied {
			t.Errorf("the hold by the server: %s", inJSON(s.Report()))
		}
		s.order(7, isa88.Held, "e2")
		s.order(8, isa88.Restarting, "")
		if report := s.order(9, isa88.Running, ""); !report.Applied {
			t.Errorf("%s", inJSON(report))
		}
		if result, failure := s.write("m/set", "10"); failure != nil || !result.Done {
			t.Errorf("%+v, %v", result, failure)
		}
	})
}

// Req: P-16b (killed between the state file and the devices)
func TestALatchIsDoneAgainAfterAKill(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.stop()
		if err := NewStateFile(s.state, s.clock).Save(State{
			Order: &api.Order{UID: "unit-1", Revision: 2, State: isa88.Running}, Latch: &api.Latch{ID: "l", Modules: []string{"drive"}},
		}); err != nil {
			t.Fatal(err)
		}
		s.boot()
		io, drive := plant(s)
		after(2 * time.Second)
		if got := io.writes() + " " + drive.writes(); got != ioHolds+" "+driveHolds {
			t.Errorf("%q", got)
		}
	})
}

// Req: P-16b (a start counts as contact, and the order of before it as the state)
func TestAfterARestartWithoutAServerALossIsLatched(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		io, drive := plant(s)
		s.order(1, isa88.Running, "")
		after(5 * time.Second)
		s.stop()
		drive.cut()
		s.boot()
		s.apply(plantConfig())
		after(9 * time.Second)
		if s.Report().Latch != nil {
			t.Error("latched before the server had its time")
		}
		after(2 * time.Second)
		if s.Report().Latch == nil || io.writes() != ioHolds {
			t.Errorf("%s", inJSON(s.Report()))
		}
	})
}

// Req: P-16b
func TestADriverThatHangsIsALostDevice(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		io, drive := plant(s)
		s.order(1, isa88.Running, "")
		after(5 * time.Second)
		hangs := make(chan struct{})
		drive.with(func(d *fakeDevice) { d.hangs = hangs })
		after(time.Minute)
		report := s.Report()
		if report.Latch == nil || io.writes() != ioHolds {
			t.Errorf("%s", inJSON(report))
		}
		if o := report.Outstanding; len(o) != 1 || !o[0].Unreachable {
			t.Errorf("%+v", o)
		}
		drive.with(func(d *fakeDevice) { d.hangs = nil })
		close(hangs)
		after(3 * time.Second)
		if got := drive.writes(); got != driveHolds {
			t.Errorf("back: %q", got)
		}
	})
}
