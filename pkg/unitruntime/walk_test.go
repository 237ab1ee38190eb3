package unitruntime

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// walker drives a runtime through orders, losses, kills and reloads as they come, and knows what must be true of it.
type walker struct {
	*site
	random   *rand.Rand
	steps    []string
	revision int64
	state    isa88.State
	episode  string
	fresh    bool
	ordered  time.Time
	server   bool
	cut      map[string]time.Time
	restored map[string]time.Time
	changed  time.Time
	latch    string
}

// Req: P-15, P-16b (whatever comes in whatever order)
func TestWalks(t *testing.T) {
	walks := 80
	if testing.Short() {
		walks = 8
	}
	for seed := range walks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				w := &walker{site: s, random: rand.New(rand.NewPCG(uint64(seed), 7)), state: isa88.Idle, cut: map[string]time.Time{}, restored: map[string]time.Time{}}
				_, _ = plant(s)
				w.changed = time.Now()
				w.order(isa88.Idle)
				for range 80 {
					w.step()
					w.check()
					if t.Failed() {
						t.Fatalf("seed %d:\n%s\n%s", seed, strings.Join(w.steps, "\n"), inJSON(s.Report()))
					}
				}
			})
		})
	}
}

func (w *walker) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf("%v ", time.Now().Format("05.000"))+fmt.Sprintf(format, args...))
}

// order is one of the controllers', who know the latch that was reported last.
func (w *walker) order(state isa88.State) {
	if state == isa88.Holding && w.state != isa88.Holding {
		w.episode = fmt.Sprint("e", w.revision)
	}
	if state != isa88.Holding && state != isa88.Held {
		w.episode = ""
	}
	w.revision++
	o := api.Order{Revision: w.revision, State: state, Episode: w.episode}
	if latch := w.Report().Latch; latch != nil && !isa88.Holdable(state) {
		o.LatchAcknowledged = latch.ID
	}
	w.note("order %+v", o)
	report := w.tell(o)
	if o.LatchAcknowledged != "" && report.Latch != nil {
		w.t.Errorf("the latch is still there")
	}
	if w.state != state || !w.fresh {
		w.changed = time.Now()
	}
	w.state, w.fresh, w.ordered, w.server = state, true, time.Now(), true
}

func (w *walker) step() {
	names := []string{"io", "drive"}
	name := names[w.random.IntN(2)]
	switch n := w.random.IntN(20); {
	case n < 5:
		states := []isa88.State{w.state}
		for _, c := range isa88.Allowed(w.state) {
			next, _ := isa88.Next(w.state, c)
			states = append(states, next)
		}
		if next, ok := isa88.Completed(w.state); ok {
			states = append(states, next)
		}
		w.order(states[w.random.IntN(len(states))])
	case n < 8:
		if w.cut[name].IsZero() {
			w.note("cut %s", name)
			w.device("uid-" + name).cut()
			w.cut[name] = time.Now()
		} else {
			// A loss between two questions is seen by nobody.
			if left := 2100*time.Millisecond - time.Since(w.cut[name]); left > 0 {
				after(left)
			}
			w.note("restore %s", name)
			// It has been without power, and has forgotten what was written to it.
			w.device("uid-" + name).with(func(d *fakeDevice) {
				d.link = nil
				d.values["valve"], d.values["set"], d.values["speed"] = true, int16(500), uint16(40)
			})
			delete(w.cut, name)
			w.restored[name] = time.Now()
		}
	case n < 10:
		w.note("the server goes")
		w.server = false
	case n < 11:
		w.note("kill")
		// What is in memory is lost; the state file is all there is.
		w.stop()
		w.boot()
		w.apply(plantConfig())
		w.fresh, w.changed, w.ordered = false, time.Now(), time.Now()
	case n < 12:
		w.note("reload")
		w.apply(strings.Replace(plantConfig(), `"generation":1,"spec":{`, fmt.Sprintf(`"generation":%d,"spec":{"probe":{"failureThreshold":3,"successThreshold":%d},`, w.random.IntN(9), 1+w.random.IntN(3)), 1))
		w.changed = time.Now()
	case n < 15:
		w.write()
	}
	for left := time.Duration(w.random.IntN(6000)) * time.Millisecond; left > 0; left -= api.KeepAlive {
		if w.server {
			w.tell(api.Order{Revision: w.revision, State: w.state, Episode: w.episode})
			w.fresh, w.ordered = true, time.Now()
		}
		after(min(left, api.KeepAlive))
	}
}

// write is one of a user's, who is served exactly while the Unit runs.
func (w *walker) write() {
	result, failure := w.site.write("m/set", "12.5")
	latched := w.Report().Latch != nil
	allowed := w.state == isa88.Running && w.fresh && !latched
	w.note("write: %+v, %v", result, failure)
	if allowed != (failure == nil) {
		w.t.Errorf("a write in %s, of now %v, latched %v: %v", w.state, w.fresh, latched, failure)
	}
	if up := w.cut["io"].IsZero(); failure == nil && result.Done != up {
		w.t.Errorf("a write with the device up %v: %+v", up, result)
	}
}

// since is how long a device has been as it is.
func (w *walker) since(name string) time.Duration {
	at := w.changed
	for _, t := range []time.Time{w.cut[name], w.restored[name]} {
		if t.After(at) {
			at = t
		}
	}
	return time.Since(at)
}

func (w *walker) check() {
	report := w.Report()
	latched := report.Latch != nil
	if latched && report.Latch.ID != w.latch && w.latch != "" && !w.released(report.Latch.ID) {
		w.t.Errorf("latch %s became %s", w.latch, report.Latch.ID)
	}
	if latched {
		w.latch = report.Latch.ID
	}
	_, holds := holdClass(w.state)
	silent := time.Since(w.ordered)

	lost := false
	for _, name := range []string{"io", "drive"} {
		cut := w.cut[name]
		// A loss takes up to 9 s where the verdict, or the program, is new.
		lost = lost || !cut.IsZero() && w.since(name) > 9*time.Second
		key := map[string]string{"io": "m/level", "drive": "m/speed"}[name]
		switch v := w.tag(key); {
		case !cut.IsZero() && w.since(name) > 1500*time.Millisecond && !v.Status.Bad():
			w.t.Errorf("%s is cut and %s is %v", name, key, v.Status)
		case cut.IsZero() && w.since(name) > 4500*time.Millisecond && !v.Status.Good():
			w.t.Errorf("%s is there and %s is %v (%s)", name, key, v.Status, v.Message)
		}
		if (holds || latched && silent > time.Second) && cut.IsZero() && w.since(name) > 4500*time.Millisecond {
			w.device("uid-" + name).with(func(d *fakeDevice) {
				if name == "io" && (d.values["valve"] != false || d.values["set"] != int16(25)) || name == "drive" && d.values["speed"] != uint16(0) {
					w.t.Errorf("%s is %v in %s, latched %v", name, d.values, w.state, latched)
				}
			})
			for _, o := range report.Outstanding {
				if o.IOModule == name {
					w.t.Errorf("outstanding: %+v", o)
				}
			}
		}
	}
	if isa88.Holdable(w.state) && lost && silent > api.Contact+time.Second && !latched {
		w.t.Errorf("not latched in %s though a device is lost and no order came for %s", w.state, silent)
	}
	if holds && w.fresh && time.Since(w.changed) > 9*time.Second && !report.Applied && w.since("io") > 9*time.Second && w.since("drive") > 9*time.Second {
		w.t.Errorf("%s is not applied", w.state)
	}
	if !holds && !latched && len(report.Outstanding) > 0 {
		w.t.Errorf("outstanding in %s: %+v", w.state, report.Outstanding)
	}
}

// released tells whether a new latch may have come: only once the former was acknowledged.
func (w *walker) released(id string) bool {
	for _, step := range w.steps {
		if strings.Contains(step, "LatchAcknowledged:"+w.latch) {
			return true
		}
	}
	return false
}
