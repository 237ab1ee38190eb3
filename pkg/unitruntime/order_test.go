package unitruntime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Req: P-16b (one lock orders state changes and writes to devices)
func TestNoWriteReachesADeviceAfterAHoldWasAnswered(t *testing.T) {
	const devices = 4
	rounds, writers := 40, 48
	if testing.Short() {
		rounds, writers = 12, 16
	}
	s := newSite(t)
	defer func() { s.stop() }()
	var modules, tags []string
	// What may be written at this moment, as far as orders were answered.
	var users, holds atomic.Bool
	var userWrites, holdWrites, wrong atomic.Int64
	for i := range devices {
		name := fmt.Sprint("d", i)
		modules = append(modules, moduleEntry(name, 1))
		tags = append(tags, tagEntry("m/"+name, name, `"dataType":"int16","access":"ReadWrite","holdValue":"0","period":"10ms"`))
		d := s.device("uid-" + name)
		d.values[name] = int16(0)
		random := rand.New(rand.NewPCG(1, uint64(i)))
		d.onWrite = func(address string, value any) {
			if value == int16(0) {
				holdWrites.Add(1)
				if !holds.Load() {
					wrong.Add(1)
				}
			} else {
				userWrites.Add(1)
				if !users.Load() {
					wrong.Add(1)
				}
			}
			d.delay = time.Duration(random.IntN(300)) * time.Microsecond
		}
	}
	s.apply(configFile(modules, tags...))

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				name := fmt.Sprint("d", w%devices)
				_, _ = s.Write(ctx, api.WriteRequest{UID: "unit-1", Writes: []api.TagWrite{
					{TagKey: api.TagKey{ControlModule: "m", Name: name}, Value: "1"},
					{TagKey: api.TagKey{ControlModule: "m", Name: "d0"}, Value: "2"},
				}})
			}
		})
	}
	revision := int64(0)
	order := func(state isa88.State, episode string) {
		revision++
		s.order(revision, state, episode)
	}
	for i := range rounds {
		// What is about to be allowed is allowed before it is ordered, and what is forbidden, after it was answered.
		users.Store(true)
		order(isa88.Running, "")
		holds.Store(false)
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		holds.Store(true)
		order(isa88.Holding, fmt.Sprint("e", i))
		users.Store(false)
		for !s.Report().Applied {
			time.Sleep(100 * time.Microsecond)
		}
		for j := range devices {
			name := fmt.Sprint("d", j)
			s.device("uid-" + name).with(func(d *fakeDevice) {
				if d.values[name] != int16(0) {
					t.Errorf("round %d: %s has %v after the hold was applied", i, name, d.values[name])
				}
			})
		}
		order(isa88.Restarting, "")
	}
	cancel()
	all.Wait()
	if wrong.Load() > 0 || userWrites.Load() == 0 || holdWrites.Load() < int64(rounds) {
		t.Errorf("%d writes came when they were forbidden; %d of users, %d hold values", wrong.Load(), userWrites.Load(), holdWrites.Load())
	}
	t.Logf("%d writes of users, %d hold values", userWrites.Load(), holdWrites.Load())
}

// Req: P-16b (not one that was accepted and waits)
func TestAWriteThatWaitsIsNotSentAfterAHoldNorAfterTheNextStart(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, _ := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Running, "")
		hangs := make(chan struct{})
		io.with(func(d *fakeDevice) { d.writeHangs = hangs })
		results := make(chan api.WriteResult, 3)
		for _, value := range []string{"11", "12", "13"} {
			go func() {
				result, _ := s.write("m/set", value)
				results <- result
			}()
			after(10 * time.Millisecond)
		}
		began := time.Now()
		if report := s.order(2, isa88.Holding, "e"); report.Applied {
			t.Error("applied while a write of before is with the driver")
		}
		if took := time.Since(began); took > drainTime {
			t.Errorf("the answer took %s", took)
		}
		after(time.Second)
		if s.Report().Applied {
			t.Error("applied while a write of before is with the driver")
		}
		s.order(3, isa88.Restarting, "")
		s.order(4, isa88.Running, "")
		io.with(func(d *fakeDevice) { d.writeHangs = nil })
		close(hangs)
		after(10 * time.Second)
		if first := <-results; !first.Uncertain {
			t.Errorf("the one that the driver had: %+v", first)
		}
		for range 2 {
			if result := <-results; result.Done || result.Uncertain {
				t.Errorf("one that waited: %+v", result)
			}
		}
		if got := io.writes(); got != "set=60" {
			t.Errorf("written: %q", got)
		}
		if result, failure := s.write("m/set", "14"); failure != nil || !result.Done {
			t.Errorf("a new one: %+v, %v", result, failure)
		}
	})
}

// Req: P-16b (hold values wait for the write that is with the driver, and those of other devices do not)
func TestADriverThatDoesNotReturnFromAWriteKeepsNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, drive := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Running, "")
		hangs := make(chan struct{})
		io.with(func(d *fakeDevice) { d.writeHangs = hangs })
		go func() { _, _ = s.write("m/set", "11") }()
		after(10 * time.Second)
		var all sync.WaitGroup
		began := time.Now()
		for range 100 {
			all.Go(func() {
				if result, _ := s.write("m/set", "12"); result.Done || result.Uncertain {
					t.Errorf("%+v", result)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("writes to a device that hangs took %s", took)
		}
		if result, failure := s.write("m/speed", "5"); failure != nil || !result.Done {
			t.Errorf("the other device: %+v, %v", result, failure)
		}
		s.order(2, isa88.Holding, "e")
		after(10 * time.Second)
		if got := drive.writes(); got != "speed=5 speed=0" {
			t.Errorf("the other device: %q", got)
		}
		if got := io.writes(); got != "" {
			t.Errorf("overtaken: %q", got)
		}
		io.with(func(d *fakeDevice) { d.writeHangs = nil })
		close(hangs)
		after(2 * time.Second)
		if got := io.writes(); got != "set=60 "+ioHolds {
			t.Errorf("%q", got)
		}
		if !s.Report().Applied {
			t.Error(inJSON(s.Report()))
		}
	})
}

// Req: P-16b (a former leader)
func TestOrdersThatAreNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		running := api.Order{UID: "unit-1", Revision: 7, State: isa88.Running}
		if _, failure := s.PutOrder(t.Context(), running); failure == nil || failure.Code != http.StatusServiceUnavailable {
			t.Errorf("without a config: %v", failure)
		}
		plant(s)
		if _, failure := s.PutOrder(t.Context(), running); failure != nil {
			t.Fatal(failure)
		}
		for _, c := range []struct {
			name  string
			order api.Order
			code  int
		}{
			{"of a former leader", api.Order{UID: "unit-1", Revision: 6, State: isa88.Holding}, http.StatusConflict},
			{"of another Unit", api.Order{UID: "unit-2", Revision: 8, State: isa88.Holding}, http.StatusConflict},
			{"of no Unit", api.Order{Revision: 8, State: isa88.Holding}, http.StatusConflict},
			{"of a state that is none", api.Order{UID: "unit-1", Revision: 8, State: "Flying"}, http.StatusBadRequest},
			{"of the same revision and another state", api.Order{UID: "unit-1", Revision: 7, State: isa88.Held}, http.StatusConflict},
		} {
			if _, failure := s.PutOrder(t.Context(), c.order); failure == nil || failure.Code != c.code || failure.Message == "" {
				t.Errorf("%s: %v, want %d", c.name, failure, c.code)
			}
		}
		if got := s.Report().Order; *got != running {
			t.Errorf("in force: %+v", got)
		}
		// What is refused is no contact with the server either.
		for range 20 {
			after(time.Second)
			_, _ = s.PutOrder(t.Context(), api.Order{UID: "unit-1", Revision: 6, State: isa88.Running})
		}
		s.device("uid-io").cut()
		after(5 * time.Second)
		if s.Report().Latch == nil {
			t.Error("orders of a former leader count as contact")
		}
	})
}

// Req: P-16b (a Unit that was deleted and made anew)
func TestTheOrderOfAnotherUnitIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		io, _ := plant(s)
		s.order(100, isa88.Held, "e")
		after(5 * time.Second)
		_ = io.writes()
		c, err := ParseConfig([]byte(plantConfig()))
		if err != nil {
			t.Fatal(err)
		}
		c.Unit.UID = "unit-2"
		s.Apply(c)
		after(time.Second)
		if report := s.Report(); report.Order != nil || report.Runtime.UID != "unit-2" || io.writes() != "" {
			t.Errorf("%s", inJSON(report))
		}
		if _, failure := s.PutOrder(t.Context(), api.Order{UID: "unit-2", Revision: 1, State: isa88.Running}); failure != nil {
			t.Error(failure)
		}
	})
}

// Req: P-16b (what cannot be remembered is obeyed all the same)
func TestAHoldIsCarriedOutThoughItCannotBeStored(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, _ := plant(s)
		after(5 * time.Second)
		s.order(1, isa88.Running, "")
		if err := os.RemoveAll(filepath.Dir(s.state)); err != nil {
			t.Fatal(err)
		}
		report := s.order(2, isa88.Holding, "e")
		after(time.Second)
		if got := io.writes(); got != ioHolds || !s.Report().Applied {
			t.Errorf("%q, %s", got, inJSON(report))
		}
	})
}

// Req: P-16b
func TestTheStateFile(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		path := filepath.Join(t.TempDir(), "state.json")
		f := NewStateFile(path, s.clock)
		if state, err := f.Load(); err != nil || state.Order != nil {
			t.Errorf("before the first save: %+v, %v", state, err)
		}
		want := State{Order: &api.Order{UID: "u", Revision: 1 << 60, State: isa88.Running}, Latch: &api.Latch{ID: "l", Modules: []string{"a"}}}
		if err := f.Save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(); err != nil || inJSON(got) != inJSON(want) {
			t.Errorf("%s, %v", inJSON(got), err)
		}
		for name, text := range map[string]string{
			"half of it":               `{"order":{"uid":"u","revision":1,"state":"Runn`,
			"an unknown state":         `{"order":{"uid":"u","revision":1,"state":"Flying"}}`,
			"a latch without an order": `{"latch":{"id":"l"}}`,
			"something else":           `7`,
			"nothing":                  ``,
		} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if state, err := f.Load(); err == nil || state.Order != nil || state.Latch != nil {
				t.Errorf("%s: %+v, %v", name, state, err)
			}
		}
		s.stop()
		s.state = path
		s.boot()
		if s.Report().Order != nil {
			t.Error("an order came out of a broken file")
		}
	})
}

// A request may be on its way for longer than a hold takes.
//
// Req: P-16b
func TestAWriteThatWasAcceptedBeforeAHoldIsNotCarriedOutAfterTheNextStart(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		defer s.keepAlive()()
		io, _ := plant(s)
		after(5 * time.Second)
		write := func(revision int64) *api.Error {
			_, failure := s.Write(t.Context(), api.WriteRequest{UID: "unit-1", Revision: revision, Writes: []api.TagWrite{
				{TagKey: api.TagKey{ControlModule: "m", Name: "set"}, Value: "77"},
			}})
			return failure
		}
		s.order(10, isa88.Running, "")
		// Each write that is recorded changes the Unit, and what is told of it.
		s.order(14, isa88.Running, "")
		for _, revision := range []int64{11, 14, 15} {
			if failure := write(revision); failure != nil {
				t.Errorf("a write of revision %d: %v", revision, failure)
			}
		}
		for i, away := range []isa88.State{isa88.Holding, isa88.Stopping, isa88.Aborting, isa88.Pausing, isa88.Idle} {
			began := int64(100 * (i + 1))
			s.order(began, away, "e")
			after(time.Second)
			s.order(began+1, isa88.Running, "")
			io.with(func(d *fakeDevice) { d.values["set"] = int16(0) })
			if failure := write(began - 1); failure == nil || failure.Code != http.StatusConflict {
				t.Errorf("a write from before %s: %v", away, failure)
			}
			io.with(func(d *fakeDevice) {
				if d.values["set"] != int16(0) {
					t.Errorf("after %s the device has %v", away, d.values["set"])
				}
			})
			if failure := write(began + 1); failure != nil {
				t.Errorf("a write of now: %v", failure)
			}
		}
	})
}
