package unit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// statusRoom is what package object leaves for the status of a Unit: etcd stores nothing that is larger.
const statusRoom = 1 << 20

// storable fails unless the decision can be stored and read again by everybody.
func storable(t *testing.T, f facts, d decision) {
	t.Helper()
	unit := f.unit.DeepCopy()
	unit.Status = d.status
	if size := unit.Size(); size > statusRoom/2 {
		t.Errorf("what is decided takes %d bytes", size)
	}
	text, err := json.Marshal(unit)
	if err == nil {
		err = json.Unmarshal(text, &v1alpha1.Unit{})
	}
	if err != nil {
		t.Errorf("what is decided cannot be read again: %v", err)
	}
}

func long(prefix string, i int) string {
	return fmt.Sprintf("%s%06d%s", prefix, i, strings.Repeat("x", 253-len(prefix)-6))
}

// Whoever may edit the namespace has the runtime's pod in hand. A status that cannot be stored would be a hold that is lost.
//
// Req: P-12, P-16, P-16b
func TestNothingThatARuntimeSaysKeepsAHoldFromBeingStored(t *testing.T) {
	names := make([]string, 400_000)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
	}
	east := time.FixedZone("far west", -23*3600)
	for name, latch := range map[string]api.Latch{
		"a latch of more modules than there are":   {ID: "l", At: begin(), Modules: names},
		"a latch of a module with an endless name": {ID: "l", At: begin(), Modules: []string{strings.Repeat("m", 3<<20), "../flow", "", "\x00", "level"}},
		"a latch of no module":                     {ID: "l", At: begin()},
		"a latch of long ago":                      {ID: "l", Modules: []string{"flow"}},
		"a latch of a year that has no text":       {ID: "l", At: time.Date(9999, 12, 31, 23, 59, 59, 0, east), Modules: []string{"flow"}},
		"a latch with an endless name":             {ID: strings.Repeat("l", 3<<20), At: begin(), Modules: []string{"flow"}},
	} {
		for _, state := range []isa88.State{isa88.Running, isa88.Held} {
			t.Run(fmt.Sprintf("%s, %s", name, state), func(t *testing.T) {
				f := factsOf(unitIn(state), moduleIn("flow", v1alpha1.ModuleFault))
				f.runtime.report.Latch = &latch
				f.runtime.report.Runtime.ConfigError = strings.Repeat("c", 1<<20)
				for i := range 2000 {
					f.runtime.report.Outstanding = append(f.runtime.report.Outstanding, api.HoldWrite{ControlModule: strings.Repeat("c", 1000), Name: fmt.Sprint(i), Reason: "No"})
					f.runtime.report.Modules = append(f.runtime.report.Modules, api.ModuleLink{Name: "flow", UID: "uid-of-flow", Known: true, Reason: strings.Repeat("r", 1000)})
				}
				d := decide(f)
				if is := isa88.State(d.status.State); isa88.Holdable(is) {
					t.Errorf("the Unit is %s", is)
				}
				storable(t, f, d)
				// It is the same every time, and is acknowledged in the end.
				f = again(f, d)
				if d = decide(f); len(d.status.Hold.Causes) > maxCauses {
					t.Errorf("%d causes", len(d.status.Hold.Causes))
				}
				storable(t, f, d)
				if got := orderOf(f.unit, f.runtime).LatchAcknowledged; got != latch.ID {
					t.Error("the latch is never acknowledged")
				}
			})
		}
	}
}

// Req: P-16
func TestHoweverManyModulesFailTheHoldCanBeStored(t *testing.T) {
	var modules []module
	for i := range 20_000 {
		m := moduleIn(long("m", i), v1alpha1.ModuleFault)
		m.reason = strings.Repeat("R", 128)
		modules = append(modules, m)
	}
	f := factsOf(unitIn(isa88.Running), modules...)
	began := time.Now()
	d := decide(f)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("to decide took %s", took)
	}
	if d.status.State != v1alpha1.UnitHolding || len(d.status.Hold.Causes) != maxCauses || len(d.status.Hold.Modules) != maxModules {
		t.Errorf("%s, %d causes, %d modules", d.status.State, len(d.status.Hold.Causes), len(d.status.Hold.Modules))
	}
	storable(t, f, d)

	// Nor may an override leave a status that a hold finds no room in.
	f.unit = unitIn(isa88.Idle)
	f.unit.Status.LastCommand = command(v1alpha1.CommandStart)
	f.unit.Status.LastCommand.Override = true
	d = decide(f)
	if d.status.State != v1alpha1.UnitIdle || d.status.LastCommand.Outcome != v1alpha1.CommandRefused {
		t.Errorf("%s, %s", d.status.State, d.status.LastCommand.Outcome)
	}
	f.modules = modules[:maxOverridden]
	d = decide(f)
	if d.status.State != v1alpha1.UnitRunning || len(d.status.Overridden) != maxOverridden {
		t.Errorf("%s, %d are overridden", d.status.State, len(d.status.Overridden))
	}
	storable(t, f, d)
}

// Somebody who may change labels changes them again and again, each time between the controller's look and its write.
//
// Req: P-16, P-16a
func TestAWriterWithoutAPauseKeepsNoUnitRunning(t *testing.T) {
	for _, what := range []string{"a fault", "a module that is gone"} {
		t.Run(what, func(t *testing.T) {
			inPlant(t, func(t *testing.T, p *plant) {
				var many []string
				for i := range 40 {
					many = append(many, fmt.Sprintf("m%d", i))
					p.module(many[i], v1alpha1.ModuleOnline)
				}
				p.unit("reactor", isa88.Running, many...)
				p.lead()
				p.want("reactor", isa88.Running)
				writes, held := 0, 0
				p.mu.Lock()
				p.stored = func(u *v1alpha1.Unit) {
					if held == 0 && u.Status.State == v1alpha1.UnitHolding {
						held = writes
						if u.Status.Hold == nil || u.Status.Hold.PreviousState != v1alpha1.UnitRunning || len(u.Status.Writes) != 1 || u.Labels["n"] == "" {
							t.Errorf("stored is %+v", u)
						}
					}
				}
				p.mu.Unlock()
				p.hook(func(call string, _ int) error {
					if call == "update units" && writes < 50 {
						writes++
						p.change("reactor", func(u *v1alpha1.Unit) {
							u.Labels = map[string]string{"n": fmt.Sprint(writes)}
							u.Status.Writes = []v1alpha1.TagWriteRecord{{Value: fmt.Sprint(writes)}}
						})
					}
					return nil
				}, nil)
				if what == "a fault" {
					p.module("m7", v1alpha1.ModuleFault)
				} else {
					p.deleteModule("m7")
				}
				time.Sleep(5 * time.Second)
				p.want("reactor", isa88.Held)
				if held == 0 || held > 5 {
					t.Errorf("held after %d writes of somebody else", held)
				}
			})
		})
	}
}

// The same of a fault that the store does not take, which this controller then cannot see.
//
// Req: P-16b
func TestAFaultThatCannotBeStoredEndsTheWordThatAllIsWell(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		state := func(unit string) isa88.State {
			p.runtimes.mu.Lock()
			defer p.runtimes.mu.Unlock()
			return p.runtimes.of(unit).order.State
		}
		for _, name := range []string{"flow", "level"} {
			p.module(name, v1alpha1.ModuleOnline)
		}
		p.unit("reactor", isa88.Running, "flow", "level")
		p.unit("tank", isa88.Running, "level")
		p.unit("idle", isa88.Idle, "flow")
		p.lead()
		p.fails("flow", true)
		synctest.Wait()
		// What reminds the controller of the Unit changes nothing.
		p.runtimes.set("reactor", func(u *told) { u.report.Runtime.BootID = "another" })
		time.Sleep(2 * patrolPeriod)
		if reactor, tank, idle := state("reactor"), state("tank"), state("idle"); reactor != "" || tank != isa88.Running || idle != isa88.Idle {
			t.Errorf("told reactor %q, tank %q, idle %q", reactor, tank, idle)
		}
		p.want("reactor", isa88.Running)
		p.fails("flow", false)
		synctest.Wait()
		if reactor := state("reactor"); reactor != isa88.Running {
			t.Errorf("once it is stored, or over, told %q", reactor)
		}
	})
}

// A runtime that hears "Running" of a server that cannot store a fault would never hold by itself.
//
// Req: P-16b
func TestWhatCannotBeStoredIsNotToldToGoOn(t *testing.T) {
	no := errors.New("etcdserver: mvcc: database space exceeded")
	key := types.NamespacedName{Namespace: ns, Name: "reactor"}
	order := func(p *plant) api.Order {
		p.runtimes.mu.Lock()
		defer p.runtimes.mu.Unlock()
		return p.runtimes.of(key.Name).order
	}
	for name, test := range map[string]struct {
		fails string
		fault bool
		wait  time.Duration
		then  isa88.State
	}{
		"the hold is refused":           {fails: "update units", fault: true, wait: time.Second, then: isa88.Held},
		"the store does not answer":     {fails: "", wait: 2 * patrolPeriod, then: isa88.Running},
		"the modules cannot be listed":  {fails: "list iomodules", wait: 2 * patrolPeriod, then: isa88.Running},
		"the store refuses every write": {fails: "update units", fault: true, wait: 2 * patrolPeriod, then: isa88.Held},
	} {
		t.Run(name, func(t *testing.T) {
			inPlant(t, func(t *testing.T, p *plant) {
				p.module("flow", v1alpha1.ModuleOnline)
				p.unit("reactor", isa88.Running, "flow")
				p.lead()
				p.want("reactor", isa88.Running)
				if got := order(p); got.State != isa88.Running {
					t.Fatalf("told %+v", got)
				}
				p.hook(func(call string, _ int) error {
					if strings.HasPrefix(call, test.fails) {
						return no
					}
					return nil
				}, nil)
				if test.fault {
					p.module("flow", v1alpha1.ModuleFault)
				}
				time.Sleep(test.wait)
				synctest.Wait()
				// Whatever the runtime says meanwhile.
				p.runtimes.set("reactor", func(u *told) { u.report.Runtime.BootID = "another" })
				synctest.Wait()
				if got := order(p); isa88.Holdable(got.State) {
					t.Errorf("still told %+v", got)
				}
				p.hook(nil, nil)
				time.Sleep(patrolPeriod)
				p.want("reactor", test.then)
				if got := order(p); got.State != test.then {
					t.Errorf("told %+v in the end", got)
				}
			})
		})
	}
}
