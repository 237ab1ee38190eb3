package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

func (f *fakeDevice) has(discover func(ctx context.Context, limit int) (driver.ChannelList, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.discover = discover
}

func (f *fakeDevice) discoveries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.discovered
}

func (f *fakeDevice) checked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks
}

func lists(n int) func(context.Context, int) (driver.ChannelList, error) {
	return func(context.Context, int) (driver.ChannelList, error) { return found(n), nil }
}

func withChannels(name, endpoint string, generation int, channel string) string {
	return fmt.Sprintf(`{"name":%q,"uid":"uid-%s","generation":%d,"spec":{"protocol":"modbus","modbus":{"endpoint":%q},"channels":[{"name":%q,"address":"holding:0"}]}}`,
		name, name, generation, endpoint, channel)
}

func counts(n int) func(api.ModuleState) bool {
	return func(m api.ModuleState) bool { return m.Channels.Revision != "" && m.Channels.Count == n }
}

// Req: P-06 (Online, then channel discovery; again when the device comes back)
func TestChannelsAreDiscoveredWheneverTheDeviceComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.set(refuses)
		d.has(lists(3))
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "fault", fault)
		time.Sleep(time.Minute)
		if d.discoveries() != 0 || s.state(t, "a").Channels != (api.ChannelSummary{}) {
			t.Error("a device in Fault was asked for its channels")
		}
		d.set(answers)
		s.until(t, "a", "online", online)
		if took := s.until(t, "a", "discovered", counts(3)); took > 2*time.Second {
			t.Errorf("discovered after %s", took)
		}
		revision := s.state(t, "a").Channels.Revision
		time.Sleep(time.Hour)
		if n := d.discoveries(); n != 1 {
			t.Errorf("%d discoveries of a device that stayed", n)
		}

		d.set(refuses)
		s.until(t, "a", "fault", fault)
		if m := s.state(t, "a"); m.Channels.Count != 3 {
			t.Errorf("in fault: %+v, want what was known", m.Channels)
		}
		d.has(lists(4))
		d.set(answers)
		s.until(t, "a", "discovered anew", counts(4))
		if m := s.state(t, "a"); m.Channels.Revision == revision {
			t.Error("other channels under the same revision")
		}
	})
}

// Req: P-06
func TestAnEditHasTheChannelsDiscoveredAnewAndAnotherDeviceForgetsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.has(lists(3))
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "discovered", counts(3))

		s.apply(t, entry("a", "tcp://a", 2))
		time.Sleep(time.Minute)
		if n := d.discoveries(); n != 1 {
			t.Errorf("a new generation of the same entry: %d discoveries", n)
		}
		d.has(lists(4))
		s.apply(t, withChannels("a", "tcp://a", 3, "x"))
		if m := s.state(t, "a"); !online(m) || m.Channels.Count != 3 {
			t.Errorf("just after the edit: %+v", m)
		}
		s.until(t, "a", "discovered anew", counts(4))

		other := s.device("tcp://b")
		other.set(refuses)
		s.apply(t, entry("a", "tcp://b", 4))
		if m := s.state(t, "a"); m.Channels != (api.ChannelSummary{}) {
			t.Errorf("another device: %+v", m.Channels)
		}
		if page, err := s.channelPage("a", 10, ""); err == nil {
			t.Errorf("another device: %+v", page)
		}
		s.apply(t)
		if _, err := s.channelPage("a", 10, ""); err == nil || err.Code != 404 {
			t.Errorf("a module that went: %v", err)
		}
	})
}

// Req: P-06 (off the monitoring path, bounded)
func TestADiscoveryKeepsNoCheckWaitingAndEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.has(func(ctx context.Context, limit int) (driver.ChannelList, error) {
			if limit != driver.MaxChannels {
				t.Errorf("limit %d", limit)
			}
			<-ctx.Done()
			return driver.ChannelList{}, ctx.Err()
		})
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		checks := d.checked()
		time.Sleep(30 * time.Second)
		if n := d.checked() - checks; n < 29 {
			t.Errorf("%d checks in 30 s beside a discovery", n)
		}
		took := s.until(t, "a", "given up", func(m api.ModuleState) bool { return m.Channels.Reason == string(driver.ReasonTimeout) })
		if m := s.state(t, "a"); took > 32*time.Second || !online(m) || m.Reason != api.ReasonConnected || !strings.Contains(m.Channels.Message, "1m0s") {
			t.Errorf("after 30 s and %s: %+v", took, m)
		}
		if _, err := s.channelPage("uid-a", 10, ""); err == nil || err.Reason != api.ErrorNotDiscovered || !strings.Contains(err.Message, "Timeout") {
			t.Errorf("%v, want NotDiscovered with the reason", err)
		}
		// It is tried again, and what works clears the failure.
		d.has(lists(2))
		if took := s.until(t, "a", "discovered", counts(2)); took > 15*time.Second {
			t.Errorf("tried again after %s", took)
		}
		if m := s.state(t, "a"); m.Channels.Reason != "" || m.Channels.Message != "" {
			t.Errorf("%+v", m.Channels)
		}
	})
}

// Req: P-06
func TestAFailedDiscoveryBacksOffAndWhatCannotBeIsNotTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		min, max int
	}{
		{"a failure", &driver.Error{Reason: driver.ReasonConnectionLost, Err: errors.New("lost")}, 12, 20},
		{"not supported", &driver.Error{Reason: driver.ReasonNotSupported, Answered: true, Err: errors.New("no browsing")}, 1, 1},
		{"a context's error that is not ours", context.Canceled, 12, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				d := s.device("tcp://a")
				d.has(func(context.Context, int) (driver.ChannelList, error) { return driver.ChannelList{}, c.err })
				s.apply(t, entry("a", "tcp://a", 1))
				time.Sleep(time.Hour)
				if n := d.discoveries(); n < c.min || n > c.max {
					t.Errorf("%d discoveries in an hour", n)
				}
				if m := s.state(t, "a"); m.Channels.Reason != string(driver.ReasonOf(c.err)) || !online(m) {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// Req: P-06 (at most two at once)
func TestDiscoveriesOfAProbeAreFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var now, most atomic.Int32
		var entries []string
		for i := range 9 {
			endpoint := fmt.Sprint("tcp://", i)
			s.device(endpoint).has(func(context.Context, int) (driver.ChannelList, error) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				time.Sleep(10 * time.Second)
				return found(1), nil
			})
			entries = append(entries, entry(fmt.Sprint("m", i), endpoint, 1))
		}
		s.apply(t, entries...)
		time.Sleep(time.Minute)
		if n := most.Load(); n != maxDiscoveries {
			t.Errorf("%d discoveries at once", n)
		}
		for i := range 9 {
			if m := s.state(t, fmt.Sprint("m", i)); m.Channels.Count != 1 {
				t.Errorf("%+v", m)
			}
		}
	})
}

// Req: P-06 (cancelled when the module goes)
func TestADiscoveryEndsWithItsModuleAndWithItsDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		var running atomic.Int32
		d.has(func(ctx context.Context, _ int) (driver.ChannelList, error) {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return driver.ChannelList{}, ctx.Err()
		})
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		time.Sleep(2 * time.Second)
		if running.Load() != 1 {
			t.Fatal("no discovery runs")
		}
		d.set(refuses)
		s.until(t, "a", "fault", fault)
		time.Sleep(10 * time.Second)
		if m := s.state(t, "a"); running.Load() != 0 || m.Channels.Reason != "" {
			t.Errorf("in fault: %d discoveries, %+v", running.Load(), m.Channels)
		}
		d.set(answers)
		s.until(t, "a", "online", online)
		time.Sleep(2 * time.Second)
		if running.Load() != 1 {
			t.Error("back, and no discovery runs")
		}
		s.apply(t)
		if running.Load() != 0 || d.closed != 1 {
			t.Errorf("the module went: %d discoveries, closed %d times", running.Load(), d.closed)
		}
	})
}

// A hostile device: what a driver makes of it ends neither the probe nor the module's supervision.
func TestPanicsOfADriverAreErrorsOfItsModuleAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.device("tcp://a").has(func(context.Context, int) (driver.ChannelList, error) { panic("index out of range") })
		s.device("tcp://b").has(lists(1))
		s.apply(t, entry("a", "tcp://a", 1), entry("b", "tcp://b", 1))
		s.until(t, "a", "told", func(m api.ModuleState) bool { return m.Channels.Reason == string(driver.ReasonProtocolError) })
		s.until(t, "b", "discovered", counts(1))
		if m := s.state(t, "a"); !online(m) {
			t.Errorf("%+v", m)
		}
		s.device("tcp://c").panics = true
		s.apply(t, entry("c", "tcp://c", 1))
		if m := s.state(t, "c"); m.Found || m.Reason != string(driver.ReasonProtocolError) {
			t.Errorf("a driver that panics while opening: %+v", m)
		}
		s.device("tcp://b").panics = true
		s.apply(t)
	})
}

// Req: P-06 (channels are discovered anew when the identity changes)
func TestADeviceThatIsExchangedWithoutAFaultIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name   string
		behave func() func(context.Context) (driver.Answer, error)
		within time.Duration
	}{
		{"with one failed check", func() func(context.Context) (driver.Answer, error) {
			n := 0
			return func(ctx context.Context) (driver.Answer, error) {
				if n++; n == 1 {
					return refuses(ctx)
				}
				return driver.Answer{}, nil
			}
		}, 5 * time.Second},
		{"between two checks", func() func(context.Context) (driver.Answer, error) { return answers }, identifyAgain + time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				d := s.device("tcp://a")
				d.identity = driver.Identity{Serial: "1"}
				d.has(lists(3))
				s.apply(t, entry("a", "tcp://a", 1))
				s.until(t, "a", "discovered", counts(3))
				time.Sleep(time.Minute)
				d.has(lists(4))
				d.mu.Lock()
				d.identity.Serial = "2"
				d.mu.Unlock()
				d.set(c.behave())
				if took := s.until(t, "a", "discovered anew", counts(4)); took > c.within {
					t.Errorf("after %s", took)
				}
				if m := s.state(t, "a"); !online(m) || m.Identity.Serial != "2" || m.Episode != "" {
					t.Errorf("%+v", m)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.identity = driver.Identity{Serial: "1"}
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		time.Sleep(time.Minute)
		d.mu.Lock()
		d.noName = true
		d.mu.Unlock()
		time.Sleep(time.Hour)
		if m := s.state(t, "a"); m.Identity == nil || m.Identity.Serial != "1" || d.discoveries() != 1 {
			t.Errorf("a device that was never lost, and does not tell its name now: %+v", m)
		}
	})
}
