package unitruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// fakeDevice is a device without a network: a map of values that can be cut off, refuse, be slow, and hang. It records in which
// order it was written to.
type fakeDevice struct {
	mu      sync.Mutex
	values  map[string]any
	refused map[string]*driver.Error
	times   map[string]time.Time
	link    *driver.Error
	delay   time.Duration
	// hangs: calls do not return, whatever their context says, until it is closed.
	hangs chan struct{}
	// writeHangs is the same for writes alone.
	writeHangs chan struct{}
	panics     bool
	written    []string
	reads      int
	checks     int
	inCall     int
	closed     int
	onWrite    func(address string, value any)
}

func newFake() *fakeDevice {
	return &fakeDevice{values: map[string]any{}, refused: map[string]*driver.Error{}, times: map[string]time.Time{}}
}

var linkDown = &driver.Error{Reason: driver.ReasonRefused, Err: errors.New("connection refused")}

func (f *fakeDevice) enter(ctx context.Context, hangs func() chan struct{}) error {
	f.mu.Lock()
	f.inCall++
	delay, link, panics, wait := f.delay, f.link, f.panics, hangs()
	f.mu.Unlock()
	if panics {
		panic("the driver met bytes that nobody foresaw")
	}
	if wait != nil {
		<-wait
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return &driver.Error{Reason: driver.ReasonTimeout, Err: ctx.Err()}
		}
	}
	if link != nil {
		return link
	}
	return nil
}

func (f *fakeDevice) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inCall--
}

func (f *fakeDevice) Check(ctx context.Context) (driver.Answer, error) {
	defer f.leave()
	err := f.enter(ctx, func() chan struct{} { f.checks++; return f.hangs })
	return driver.Answer{}, err
}

func (f *fakeDevice) Read(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
	defer f.leave()
	if err := f.enter(ctx, func() chan struct{} { f.reads++; return f.hangs }); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	samples := make([]driver.Sample, len(channels))
	for i, c := range channels {
		if e := f.refused[c.Address]; e != nil {
			samples[i] = driver.Refused(e)
		} else {
			samples[i] = driver.Sample{Value: f.values[c.Address], SourceTime: f.times[c.Address]}
		}
	}
	return samples, nil
}

func (f *fakeDevice) Write(ctx context.Context, c driver.Channel, value any) error {
	defer f.leave()
	err := f.enter(ctx, func() chan struct{} {
		if f.hangs != nil {
			return f.hangs
		}
		return f.writeHangs
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.refused[c.Address]; e != nil {
		return e
	}
	f.values[c.Address] = value
	f.written = append(f.written, fmt.Sprintf("%s=%v", c.Address, value))
	if f.onWrite != nil {
		f.onWrite(c.Address, value)
	}
	return nil
}

func (f *fakeDevice) Identify(context.Context) (driver.Identity, error) {
	return driver.Identity{}, errors.ErrUnsupported
}

func (f *fakeDevice) Channels(context.Context, int) (driver.ChannelList, error) {
	return driver.ChannelList{}, errors.ErrUnsupported
}

func (f *fakeDevice) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

// with changes the device.
func (f *fakeDevice) with(change func(*fakeDevice)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeDevice) cut()     { f.with(func(f *fakeDevice) { f.link = linkDown }) }
func (f *fakeDevice) restore() { f.with(func(f *fakeDevice) { f.link = nil }) }

// writes takes what was written since it was asked last.
func (f *fakeDevice) writes() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.Join(f.written, " ")
	f.written = nil
	return text
}

// site is a runtime whose devices are fakes, by the uid of their module.
type site struct {
	*Runtime
	t       *testing.T
	state   string
	ids     int
	devices map[string]*fakeDevice
	opened  map[string]int
	mu      sync.Mutex
	stop    func()
}

// newSite is a runtime in a bubble of fake time; stop it before the bubble ends.
func newSite(t *testing.T) *site {
	s := &site{t: t, state: filepath.Join(t.TempDir(), "state.json"), devices: map[string]*fakeDevice{}, opened: map[string]int{}}
	s.boot()
	return s
}

// boot starts the program, with the state file of before.
func (s *site) boot() {
	s.Runtime = New(Options{
		Open: func(m Module) (driver.Device, error) {
			s.mu.Lock()
			s.opened[m.UID]++
			s.mu.Unlock()
			return s.device(m.UID), nil
		},
		Clock:  clock.RealClock{},
		BootID: "boot",
		NewID: func() string {
			s.ids++
			return fmt.Sprintf("latch-%d", s.ids)
		},
		State:    NewStateFile(s.state, clock.RealClock{}),
		Log:      logr.Discard(),
		Registry: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	runtime := s.Runtime
	s.stop = func() {
		cancel()
		<-ended
		runtime.Stop()
	}
}

func (s *site) device(uid string) *fakeDevice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.devices[uid] == nil {
		s.devices[uid] = newFake()
	}
	return s.devices[uid]
}

// apply puts a config in force.
func (s *site) apply(config string) {
	s.t.Helper()
	c, err := ParseConfig([]byte(config))
	if err != nil {
		s.t.Fatal(err)
	}
	s.Apply(c)
}

// order is an order that is accepted.
func (s *site) order(revision int64, state isa88.State, episode string) api.Report {
	s.t.Helper()
	return s.tell(api.Order{Revision: revision, State: state, Episode: episode})
}

func (s *site) tell(o api.Order) api.Report {
	s.t.Helper()
	o.UID = "unit-1"
	report, failure := s.PutOrder(context.Background(), o)
	if failure != nil {
		s.t.Fatalf("order %+v: %v", o, failure)
	}
	return report
}

// keepAlive repeats the order in force until the function that it returns is called.
func (s *site) keepAlive() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if o := s.Report().Order; o != nil {
				_, _ = s.PutOrder(ctx, *o)
			}
			select {
			case <-time.After(api.KeepAlive):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func (s *site) write(key, value string) (api.WriteResult, *api.Error) {
	module, name, _ := strings.Cut(key, "/")
	response, failure := s.Write(context.Background(), api.WriteRequest{UID: "unit-1", Writes: []api.TagWrite{
		{TagKey: api.TagKey{ControlModule: module, Name: name}, Value: value},
	}})
	if failure != nil {
		return api.WriteResult{}, failure
	}
	return response.Results[0], nil
}

// tag is a tag as it is told now.
func (s *site) tag(key string) api.TagValue {
	s.t.Helper()
	for _, v := range s.values.list() {
		if v.ControlModule+"/"+v.Name == key {
			return v
		}
	}
	s.t.Fatalf("no tag %s", key)
	return api.TagValue{}
}

// show is a tag's value and quality.
func (s *site) show(key string) string {
	s.t.Helper()
	v := s.tag(key)
	text := "-"
	if v.Value != nil {
		text = *v.Value
	}
	return text + " " + v.Status.String()
}

// bubble runs a test in fake time with a runtime, and stops it.
func bubble(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		defer func() { s.stop() }()
		f(t, s)
	})
}

// after lets time pass, and everything that is due in it happen.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func moduleEntry(name string, generation int, spec ...string) string {
	s := `{"protocol":"modbus","modbus":{"endpoint":"tcp://127.0.0.1:502"}}`
	if len(spec) > 0 {
		s = spec[0]
	}
	return fmt.Sprintf(`{"name":%q,"uid":"uid-%s","generation":%d,"spec":%s}`, name, name, generation, s)
}

// tagEntry is an entry of a config for CONTROLMODULE/NAME of a module; the address is the name, more is members of JSON.
func tagEntry(key, module, more string) string {
	controlModule, name, _ := strings.Cut(key, "/")
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"controlModule":%q,"name":%q,"ioModule":%q,"address":%q%s}`, controlModule, name, module, name, more)
}

func configFile(modules []string, tags ...string) string {
	return fmt.Sprintf(`{"unit":{"name":"mixer","uid":"unit-1","generation":1},"modules":[%s],"tags":[%s]}`, strings.Join(modules, ","), strings.Join(tags, ","))
}

func inJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
