package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// The tests of this file run in a bubble whose clock is a fake one: seconds cost nothing and are exact.

// fakeDevice does what the test says; it leaves out the network. A call takes as long as the behaviour sleeps.
type fakeDevice struct {
	mu       sync.Mutex
	behave   func(ctx context.Context) (driver.Answer, error)
	identity driver.Identity
	noName   bool
	checks   int
	asked    int
	closed   int

	discover   func(ctx context.Context, limit int) (driver.ChannelList, error)
	discovered int
	read       func(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error)
	write      func(ctx context.Context, channel driver.Channel, value any) error
	// panics: Open and Close do. slow is how long Close takes.
	panics bool
	slow   time.Duration
}

func (f *fakeDevice) Check(ctx context.Context) (driver.Answer, error) {
	f.mu.Lock()
	f.checks++
	behave := f.behave
	f.mu.Unlock()
	return behave(ctx)
}

func (f *fakeDevice) Identify(context.Context) (driver.Identity, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.noName {
		return driver.Identity{}, &driver.Error{Reason: driver.ReasonNotSupported, Answered: true}
	}
	return f.identity, nil
}

func (f *fakeDevice) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	if f.read == nil {
		return nil, errors.ErrUnsupported
	}
	return f.read(ctx, channels)
}

func (f *fakeDevice) Write(ctx context.Context, channel driver.Channel, value any) error {
	if f.write == nil {
		return errors.ErrUnsupported
	}
	return f.write(ctx, channel, value)
}

func (f *fakeDevice) Channels(ctx context.Context, limit int) (driver.ChannelList, error) {
	f.mu.Lock()
	f.discovered++
	discover := f.discover
	f.mu.Unlock()
	if discover == nil {
		return driver.ChannelList{}, nil
	}
	return discover(ctx, limit)
}

func (f *fakeDevice) Close() error {
	time.Sleep(f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	if f.panics {
		panic("close")
	}
	return nil
}

func (f *fakeDevice) set(behave func(ctx context.Context) (driver.Answer, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behave = behave
}

func answers(context.Context) (driver.Answer, error) { return driver.Answer{}, nil }

// silent is a device that takes its whole timeout.
func silent(ctx context.Context) (driver.Answer, error) {
	select {
	case <-time.After(time.Second):
		return driver.Answer{}, &driver.Error{Reason: driver.ReasonTimeout, Err: errors.New("no answer")}
	case <-ctx.Done():
		return driver.Answer{}, ctx.Err()
	}
}

func refuses(context.Context) (driver.Answer, error) {
	return driver.Answer{}, &driver.Error{Reason: driver.ReasonRefused, Err: errors.New("connection refused")}
}

func noTurn(context.Context) (driver.Answer, error) {
	return driver.Answer{}, &driver.Error{Reason: driver.ReasonNotMeasured, Err: errors.New("no turn")}
}

// site is a probe whose devices are fakes, by endpoint.
type site struct {
	*Probe
	mu      sync.Mutex
	devices map[string]*fakeDevice
	opened  []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{devices: map[string]*fakeDevice{}}
	s.Probe = New(Options{
		Open: func(spec v1alpha1.IOModuleSpec) (driver.Device, error) {
			if spec.Modbus == nil {
				return nil, configurationError("spec.modbus is missing")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.opened = append(s.opened, spec.Modbus.Endpoint)
			d := s.deviceLocked(spec.Modbus.Endpoint)
			if d.panics {
				panic("open")
			}
			return d, nil
		},
		Clock:    clock.RealClock{},
		Seed:     1,
		BootID:   "boot",
		Log:      logr.Discard(),
		Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(s.Stop)
	return s
}

func (s *site) device(endpoint string) *fakeDevice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deviceLocked(endpoint)
}

func (s *site) deviceLocked(endpoint string) *fakeDevice {
	d := s.devices[endpoint]
	if d == nil {
		d = &fakeDevice{behave: answers}
		s.devices[endpoint] = d
	}
	return d
}

// opens returns what was opened since the last call.
func (s *site) opens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.opened
	s.opened = nil
	slices.Sort(o)
	return o
}

func entry(name, endpoint string, generation int) string {
	return fmt.Sprintf(`{"name":%q,"uid":"uid-%s","generation":%d,"spec":{"protocol":"modbus","modbus":{"endpoint":%q}}}`, name, name, generation, endpoint)
}

func (s *site) apply(t *testing.T, entries ...string) {
	t.Helper()
	c, err := ParseConfig([]byte(`{"modules":[` + strings.Join(entries, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(c)
}

func (s *site) state(t *testing.T, name string) api.ModuleState {
	t.Helper()
	for _, m := range s.List().Modules {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("no state of module %s", name)
	return api.ModuleState{}
}

// until lets time pass, looking ten times a second, until the state is as wanted, and returns how long it took.
func (s *site) until(t *testing.T, name, what string, is func(api.ModuleState) bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !is(s.state(t, name)) {
		if time.Since(began) > time.Hour {
			t.Fatalf("module %s is never %s: %+v", name, what, s.state(t, name))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(began)
}

func online(m api.ModuleState) bool { return m.Found && m.Connected }
func fault(m api.ModuleState) bool  { return m.Found && !m.Connected }

// Req: P-06, P-16
func TestTimesFromAndToFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(context.Context) (driver.Answer, error)
		why   driver.Reason
	}{
		{"a device that falls silent", silent, driver.ReasonTimeout},
		{"a device that refuses", refuses, driver.ReasonRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				d := s.device("tcp://a")
				s.apply(t, entry("a", "tcp://a", 1))
				if m := s.state(t, "a"); m.Found || m.Reason != api.ReasonMeasuring || m.UID != "uid-a" || m.Generation != 1 {
					t.Errorf("before any check: %+v, want not found and Measuring", m)
				}
				if took := s.until(t, "a", "online", online); took > 2100*time.Millisecond {
					t.Errorf("first contact took %s, want two checks", took)
				}
				// Whenever it happens within the period.
				for phase := range 10 {
					time.Sleep(time.Minute + time.Duration(phase)*100*time.Millisecond)
					d.set(c.fault)
					if took := s.until(t, "a", "fault", fault); took > 5*time.Second || took < 2*time.Second {
						t.Errorf("fault after %s, want 2 s to 5 s", took)
					}
					if m := s.state(t, "a"); m.Reason != string(c.why) || m.Health != driver.HealthFailure || m.Message == "" || strings.Contains(m.Message, string(c.why)) {
						t.Errorf("state in fault: %+v", m)
					}
					time.Sleep(time.Minute + time.Duration(phase)*100*time.Millisecond)
					if m := s.state(t, "a"); !fault(m) || m.Stale {
						t.Errorf("a minute into the fault: %+v, want a fresh fault", m)
					}
					d.set(answers)
					if took := s.until(t, "a", "online", online); took > 15*time.Second || took < 5*time.Second {
						t.Errorf("online again after %s, want 5 s to 15 s", took)
					}
					if m := s.state(t, "a"); m.Reason != api.ReasonConnected || m.Health != driver.HealthNormal || m.Message != "" {
						t.Errorf("state after recovery: %+v", m)
					}
				}
			})
		})
	}
}

// Req: P-06 (found only after a full threshold; first-contact errors count the same)
func TestFirstVerdictNeedsTheFullThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.set(refuses)
		s.apply(t, entry("a", "tcp://a", 1))
		took := s.until(t, "a", "found", func(m api.ModuleState) bool { return m.Found })
		if d.checks != 3 || !fault(s.state(t, "a")) || took > 4*time.Second {
			t.Errorf("after %s and %d checks: %+v, want Fault after three", took, d.checks, s.state(t, "a"))
		}
	})
}

// Req: P-06 (debounce)
func TestASingleLostCheckIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		since := s.state(t, "a").Since
		n := 0
		d.set(func(ctx context.Context) (driver.Answer, error) {
			if n++; n%3 != 0 {
				return refuses(ctx)
			}
			return driver.Answer{}, nil
		})
		time.Sleep(time.Minute)
		if m := s.state(t, "a"); !online(m) || !m.Since.Equal(since) || m.Reason != api.ReasonConnected {
			t.Errorf("with two of three checks lost: %+v, want Online as before", m)
		}
	})
}

// Req: P-16
func TestAFaultLastsUntilTheDeviceIsStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.set(refuses)
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "fault", fault)
		episode := s.state(t, "a").Episode
		n := 0
		d.set(func(ctx context.Context) (driver.Answer, error) {
			// Four successes, one failure: never stable for five seconds.
			if n++; n%5 == 0 {
				return refuses(ctx)
			}
			return driver.Answer{}, nil
		})
		time.Sleep(time.Minute)
		if m := s.state(t, "a"); !fault(m) || m.Episode != episode || episode == "" {
			t.Errorf("a device that flaps: %+v, want the same fault, episode %q", m, episode)
		}
		d.set(answers)
		s.until(t, "a", "online", online)
		if m := s.state(t, "a"); m.Episode != "" {
			t.Errorf("online with the episode %q", m.Episode)
		}
		d.set(refuses)
		s.until(t, "a", "fault", fault)
		if m := s.state(t, "a"); m.Episode == episode || m.Episode == "" {
			t.Errorf("the second fault has the episode %q, the first had %q", m.Episode, episode)
		}
	})
}

// Req: P-07 (what was not measured is Unknown)
func TestWhatIsNotMeasuredKeepsItsStateAndBecomesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		d.set(noTurn)
		if took := s.until(t, "a", "stale", func(m api.ModuleState) bool { return m.Stale }); took > 6*time.Second || took < 3*time.Second {
			t.Errorf("stale after %s, want three periods and a timeout", took)
		}
		if m := s.state(t, "a"); !online(m) {
			t.Errorf("a state that is not measured changed: %+v", m)
		}
		if got := s.states.stale(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("stale modules %v, want a", got)
		}
		d.set(answers)
		s.until(t, "a", "fresh", func(m api.ModuleState) bool { return !m.Stale })
	})
}

func TestAPanicOfTheDriverIsAFaultOfItsModuleAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.device("tcp://a").set(func(context.Context) (driver.Answer, error) { panic("nil dereference") })
		s.apply(t, entry("a", "tcp://a", 1), entry("b", "tcp://b", 1))
		s.until(t, "a", "fault", fault)
		if m := s.state(t, "a"); m.Reason != string(driver.ReasonProtocolError) {
			t.Errorf("reason %s, want ProtocolError", m.Reason)
		}
		if m := s.state(t, "b"); !online(m) {
			t.Errorf("the other module: %+v, want Online", m)
		}
		s.device("tcp://a").set(answers)
		s.until(t, "a", "online", online)
	})
}

// Req: P-06
func TestIdentityIsReadWheneverTheDeviceComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.identity = driver.Identity{Vendor: "Acme", Serial: "1"}
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "identified", func(m api.ModuleState) bool { return m.Identity != nil && m.Identity.Serial == "1" })
		time.Sleep(time.Minute)
		if d.asked != 1 {
			t.Errorf("asked for its identity %d times while it stayed", d.asked)
		}
		d.set(refuses)
		s.until(t, "a", "fault", fault)
		d.mu.Lock()
		d.identity.Serial = "2"
		d.mu.Unlock()
		d.set(answers)
		s.until(t, "a", "identified anew", func(m api.ModuleState) bool { return m.Identity.Serial == "2" })

		d.set(refuses)
		s.until(t, "a", "fault", fault)
		d.mu.Lock()
		d.noName = true
		d.mu.Unlock()
		d.set(answers)
		s.until(t, "a", "online without a name", func(m api.ModuleState) bool { return online(m) && m.Identity == nil })
	})
}

// Req: P-13
func TestADeviceThatAnswersARefusalIsOnlineAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.device("tcp://a").set(func(context.Context) (driver.Answer, error) {
			return driver.Answer{Reason: driver.ReasonConfigurationError, Message: "holding:999 is refused"}, nil
		})
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		if m := s.state(t, "a"); m.Reason != "ConfigurationError" || m.Message != "holding:999 is refused" || m.Health != driver.HealthNormal {
			t.Errorf("state %+v", m)
		}
	})
}

// Req: P-11 (hot reload touches only what changed)
func TestApplyTouchesOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.apply(t, entry("a", "tcp://a", 1), entry("b", "tcp://b", 1), entry("c", "tcp://c", 1))
		if got := s.opens(); !slices.Equal(got, []string{"tcp://a", "tcp://b", "tcp://c"}) {
			t.Fatalf("opened %v", got)
		}
		for _, name := range []string{"a", "b", "c"} {
			s.until(t, name, "online", online)
		}
		hash := s.Info().ConfigHash
		since := s.state(t, "a").Since

		// a is the same but for its generation, b moves, c goes, d comes.
		s.apply(t, entry("a", "tcp://a", 2), entry("b", "tcp://b2", 2), entry("d", "tcp://d", 1))
		if got := s.opens(); !slices.Equal(got, []string{"tcp://b2", "tcp://d"}) {
			t.Errorf("opened %v, want b2 and d", got)
		}
		for endpoint, closed := range map[string]int{"tcp://a": 0, "tcp://b": 1, "tcp://c": 1, "tcp://b2": 0, "tcp://d": 0} {
			if n := s.device(endpoint).closed; n != closed {
				t.Errorf("%s was closed %d times, want %d", endpoint, n, closed)
			}
		}
		if m := s.state(t, "a"); !online(m) || m.Generation != 2 || !m.Since.Equal(since) {
			t.Errorf("a after a reload that leaves it alone: %+v", m)
		}
		if m := s.state(t, "b"); m.Found || m.Generation != 2 {
			t.Errorf("b after it moved: %+v, want no verdict", m)
		}
		for _, m := range s.List().Modules {
			if m.Name == "c" {
				t.Error("c is still listed")
			}
		}
		if s.Info().ConfigHash == hash {
			t.Error("the config's hash did not change")
		}
		time.Sleep(10 * time.Second)
		if m := s.state(t, "a"); m.Generation != 2 {
			t.Errorf("generation %d of a after more checks, want 2", m.Generation)
		}
	})
}

// Req: P-06, P-11, P-16 (a fault is one episode, whatever is edited meanwhile)
func TestAnEditThatNamesTheSameDeviceKeepsTheVerdict(t *testing.T) {
	const edit = `{"name":"a","uid":%q,"generation":%d,"spec":{"protocol":"modbus","modbus":{"endpoint":"tcp://a","unitID":%d},` +
		`"channels":[{"name":"c","address":"holding:%d"}],"probe":{"failureThreshold":%d}}}`
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.apply(t, fmt.Sprintf(edit, "uid-1", 1, 1, 0, 3))
		s.until(t, "a", "online", online)
		time.Sleep(2 * time.Second)
		before := s.state(t, "a")

		s.apply(t, fmt.Sprintf(edit, "uid-1", 2, 1, 7, 2))
		if m := s.state(t, "a"); !online(m) || m.Generation != 2 || !m.Since.Equal(before.Since) || !m.MeasuredAt.Equal(before.MeasuredAt) {
			t.Errorf("a device that answers, after an edit of its channels: %+v", m)
		}
		s.device("tcp://a").set(refuses)
		// Two failures, by the new threshold.
		if took := s.until(t, "a", "fault", fault); took > 2500*time.Millisecond {
			t.Errorf("fault after %s, by a threshold of 2", took)
		}
		before = s.state(t, "a")
		s.apply(t, fmt.Sprintf(edit, "uid-1", 3, 1, 8, 2))
		if m := s.state(t, "a"); !fault(m) || m.Generation != 3 || m.Episode == "" || m.Episode != before.Episode || m.Reason != before.Reason {
			t.Errorf("a device in Fault, after an edit of its channels: %+v", m)
		}
		// However often it is edited, it does not look as if nobody measured it.
		s.device("tcp://a").set(silent)
		for i := range 200 {
			s.apply(t, fmt.Sprintf(edit, "uid-1", 4+i, 1, i, 2))
			for range 30 {
				time.Sleep(137 * time.Millisecond)
				if m := s.state(t, "a"); !fault(m) || m.Stale || m.Episode != before.Episode {
					t.Fatalf("a device in Fault, after edit %d: %+v", i, m)
				}
			}
		}
		s.device("tcp://a").set(answers)
		s.until(t, "a", "online", online)

		// Another unit is another device, and so is another object of the same name.
		s.apply(t, fmt.Sprintf(edit, "uid-1", 999, 2, 8, 2))
		if m := s.state(t, "a"); m.Found || m.Identity != nil {
			t.Errorf("another unit behind the same endpoint: %+v", m)
		}
		s.until(t, "a", "online", online)
		s.apply(t, fmt.Sprintf(edit, "uid-2", 1, 2, 8, 2))
		if m := s.state(t, "a"); m.Found || m.UID != "uid-2" {
			t.Errorf("another object of the same name: %+v", m)
		}
	})
}

// Req: P-11 (one bad entry stops no other)
func TestABrokenEntryIsReportedAndStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		broken := `{"name":"a","uid":"uid-a","generation":2,"spec":{"protocol":"modbus"}}`
		unreadable := `{"name":"a","uid":"uid-a","generation":3,"spec":{"protocol":"modbus","colour":"red"}}`
		s.apply(t, entry("a", "tcp://a", 1), entry("b", "tcp://b", 1))
		s.until(t, "a", "online", online)
		for _, bad := range []string{broken, unreadable, broken} {
			s.apply(t, bad, entry("b", "tcp://b", 1))
			if m := s.state(t, "a"); m.Found || m.Reason != string(driver.ReasonConfigurationError) || m.Message == "" || m.Generation < 2 {
				t.Errorf("the broken module: %+v, want not found and ConfigurationError", m)
			}
			time.Sleep(5 * time.Second)
			if m := s.state(t, "b"); !online(m) {
				t.Errorf("the other module: %+v, want Online", m)
			}
		}
		s.apply(t, entry("a", "tcp://a", 4), entry("b", "tcp://b", 1))
		s.until(t, "a", "online", online)
		if got := s.device("tcp://b").closed; got != 0 {
			t.Errorf("the other device was closed %d times", got)
		}
		s.apply(t, broken)
		s.apply(t)
		if got := s.List().Modules; len(got) != 0 {
			t.Errorf("modules after all went: %+v", got)
		}
	})
}

// Req: P-11
func TestARefusedFileKeepsTheConfigInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		hash := s.Info().ConfigHash
		s.Refuse(io.ErrUnexpectedEOF)
		if i := s.Info(); i.ConfigHash != hash || i.ConfigError == "" {
			t.Errorf("info %+v, want the old hash and an error", i)
		}
		if m := s.state(t, "a"); !online(m) {
			t.Errorf("module %+v, want Online still", m)
		}
		s.apply(t, entry("a", "tcp://a", 1))
		if i := s.Info(); i.ConfigError != "" {
			t.Errorf("the error %q outlives a good file", i.ConfigError)
		}
	})
}

// Req: P-11
func TestAFollowerGetsTheLatestOfWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.apply(t, entry("a", "tcp://a", 1), entry("b", "tcp://b", 1))
		all, f := s.states.follow()
		defer s.states.unfollow(f)
		if len(all) != 2 {
			t.Fatalf("%d modules to begin with, want 2", len(all))
		}
		time.Sleep(10 * time.Second)
		s.apply(t, entry("a", "tcp://a", 1))
		<-f.ready
		changed, removed := s.states.take(f)
		if len(changed) != 1 || !online(changed[0]) || !slices.Equal(removed, []string{"b"}) {
			t.Errorf("changed %+v, removed %v, want a Online and b gone", changed, removed)
		}
		// Measuring the same again and again is no change.
		time.Sleep(time.Minute)
		select {
		case <-f.ready:
			changed, removed := s.states.take(f)
			t.Errorf("told of no change: %+v, %v", changed, removed)
		default:
		}
	})
}

// Req: P-16 (a probe of many modules does not ask them all at once)
func TestChecksAreSpreadOverThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var mu sync.Mutex
		tenths := map[int64]int{}
		began := time.Now()
		var entries []string
		for i := range 200 {
			endpoint := fmt.Sprintf("tcp://d%d", i)
			s.device(endpoint).set(func(context.Context) (driver.Answer, error) {
				mu.Lock()
				defer mu.Unlock()
				tenths[int64(time.Since(began)/(100*time.Millisecond))]++
				return driver.Answer{}, nil
			})
			entries = append(entries, entry(fmt.Sprintf("m%d", i), endpoint, 1))
		}
		s.apply(t, entries...)
		time.Sleep(999 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		for tenth, n := range tenths {
			if n > 50 {
				t.Errorf("%d of 200 checks in tenth %d of the first second", n, tenth)
			}
		}
	})
}
