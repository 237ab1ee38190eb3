package unit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// inPlant runs a test in a time of its own, where nothing is waited for in vain.
func inPlant(t *testing.T, test func(t *testing.T, p *plant)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newPlant(t)) })
}

// Req: P-16, P-16b, P-16c
func TestAUnitIsStartedHeldAndRestarted(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.module("level", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Idle, "flow", "level")
		p.lead()
		p.want("reactor", isa88.Idle)

		p.send("reactor", v1alpha1.CommandStart, false)
		unit := p.want("reactor", isa88.Running)
		if unit.Status.LastCommand.Outcome != v1alpha1.CommandDone || unit.Status.RuntimePodName != "unit-runtime-reactor" {
			t.Errorf("%+v", unit.Status)
		}

		p.module("flow", v1alpha1.ModuleFault)
		unit = p.want("reactor", isa88.Held)
		hold := unit.Status.Hold
		if hold.Cause != v1alpha1.HoldCauseIOModuleFault || hold.PreviousState != v1alpha1.UnitRunning || !slices.Equal(hold.Modules, []string{"flow"}) || hold.Episode != "episode-1" {
			t.Errorf("the hold is %+v", hold)
		}
		if c := meta.FindStatusCondition(unit.Status.Conditions, ConditionEquipmentHealthy); c.Status != "False" || c.Reason != ReasonModuleFault || !strings.Contains(c.Message, "flow is Fault") {
			t.Errorf("%+v", c)
		}
		if got := p.told("Warning " + ReasonHeldByFault); len(got) != 1 || !strings.Contains(got[0], "flow is Fault") || !strings.Contains(got[0], hold.Episode) {
			t.Errorf("told %v", p.told(""))
		}

		p.send("reactor", v1alpha1.CommandRestart, false)
		if unit = p.want("reactor", isa88.Held); unit.Status.LastCommand.Outcome != v1alpha1.CommandRefused || !strings.Contains(unit.Status.LastCommand.Message, "flow is Fault") {
			t.Errorf("%+v", unit.Status.LastCommand)
		}
		p.module("flow", v1alpha1.ModuleOnline)
		p.want("reactor", isa88.Held)
		p.send("reactor", v1alpha1.CommandRestart, false)
		if unit = p.want("reactor", isa88.Running); unit.Status.Hold != nil {
			t.Errorf("the hold is %+v", unit.Status.Hold)
		}

		// The runtime was told of each state, in this order, and of none before it was stored.
		var states []string
		revision := int64(0)
		for _, o := range p.runtimes.orders("reactor") {
			if len(states) == 0 || states[len(states)-1] != string(o.State) {
				states = append(states, string(o.State))
			}
			if o.Revision <= revision || o.UID != "uid-of-reactor" || (o.State == isa88.Holding) != (o.Episode != "") && o.State != isa88.Held {
				t.Errorf("told %+v after revision %d", o, revision)
			}
			revision = o.Revision
		}
		if want := "Idle Running Holding Held Restarting Running"; strings.Join(states, " ") != want {
			t.Errorf("told %v, want %s", states, want)
		}
	})
}

// Req: P-16
func TestNothingRestartsByItself(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Running, "flow")
		l := p.lead()
		p.want("reactor", isa88.Running)
		p.module("flow", v1alpha1.ModuleFault)
		p.want("reactor", isa88.Held)
		p.module("flow", v1alpha1.ModuleOnline)
		unit := p.want("reactor", isa88.Held)
		if c := meta.FindStatusCondition(unit.Status.Conditions, ConditionEquipmentHealthy); c.Status != "True" || len(p.told(ReasonEquipmentRecovered)) != 1 {
			t.Errorf("%+v, told %v", c, p.told(""))
		}
		for range 5 {
			time.Sleep(time.Hour)
			p.want("reactor", isa88.Held)
			l.crash()
			l = p.lead()
		}
		if got := p.want("reactor", isa88.Held); got.ResourceVersion != unit.ResourceVersion {
			t.Error("something is written without a change")
		}
	})
}

// Req: P-16
func TestAFlappingModuleIsOneHold(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Running, "flow")
		p.runtimes.slow["reactor"] = true
		p.lead()
		synctest.Wait()
		for i := range 20 {
			if i == 10 {
				p.runtimes.mu.Lock()
				p.runtimes.slow["reactor"] = false
				p.runtimes.mu.Unlock()
			}
			p.module("flow", v1alpha1.ModuleFault)
			synctest.Wait()
			time.Sleep(3 * time.Second)
			p.module("flow", v1alpha1.ModuleOnline)
			synctest.Wait()
			time.Sleep(3 * time.Second)
		}
		unit := p.want("reactor", isa88.Held)
		if hold := unit.Status.Hold; hold.Episode != "episode-1" || len(hold.Causes) != 1 || p.episodes != 1 || hold.Causes[0].At.Sub(hold.Since.Time) < 100*time.Second {
			t.Errorf("%d holds, the last is %+v", p.episodes, hold)
		}
		if got := p.told(ReasonHeldByFault); len(got) != 1 {
			t.Errorf("told %v", got)
		}
	})
}

// Req: P-16, A-06
func TestAFaultWhileNobodyLeadsIsFoundAtTheStart(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Idle, "flow")
		p.unit("mixer", isa88.Paused, "flow")
		l := p.lead()
		p.send("reactor", v1alpha1.CommandStart, false)
		p.want("reactor", isa88.Running)
		l.crash()
		p.module("flow", v1alpha1.ModuleFault)
		time.Sleep(time.Minute)
		if p.settle("reactor") != isa88.Running {
			t.Fatal("somebody leads")
		}
		p.lead()
		p.want("reactor", isa88.Held)
		p.want("mixer", isa88.Held)
	})
}

// Req: P-16c
func TestANewLeaderStartsNothingThatItHasNotSeenMeasured(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Held, "flow")
		p.measured("flow", false)
		p.lead()
		p.send("reactor", v1alpha1.CommandRestart, false)
		if unit := p.want("reactor", isa88.Held); unit.Status.LastCommand.Outcome != v1alpha1.CommandRefused || !strings.Contains(unit.Status.LastCommand.Message, "since the present controllers began") {
			t.Errorf("%+v", unit.Status.LastCommand)
		}
		p.measured("flow", true)
		p.send("reactor", v1alpha1.CommandRestart, false)
		p.want("reactor", isa88.Running)
	})
}

// Req: P-16c
func TestAUnitThatRestartsWaitsUntilItsModulesAreMeasured(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Restarting, "flow")
		p.measured("flow", false)
		p.lead()
		time.Sleep(10 * time.Second)
		p.want("reactor", isa88.Restarting)
		p.measured("flow", true)
		time.Sleep(confirmationPause)
		p.want("reactor", isa88.Running)
	})
}

// Req: P-16c
func TestALateStartIsNeverCarriedOut(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Idle, "flow")
		p.send("reactor", v1alpha1.CommandStart, false)
		time.Sleep(12 * time.Second)
		p.lead()
		if unit := p.want("reactor", isa88.Idle); unit.Status.LastCommand.Outcome != v1alpha1.CommandExpired || len(p.told(ReasonCommandExpired)) != 1 {
			t.Errorf("%+v", unit.Status.LastCommand)
		}
	})
}

// RESTART runs into a Fault: whatever the controllers are about to ask or write when the Fault is stored, the Unit ends up held, with
// one hold more at most, and Running is never stored for longer than it takes to hear of the Fault.
//
// Req: P-16, P-16c
func TestARestartMeetsAFaultAtEveryStep(t *testing.T) {
	for _, from := range []struct {
		state   isa88.State
		command v1alpha1.UnitCommandName
	}{{isa88.Held, v1alpha1.CommandRestart}, {isa88.Idle, v1alpha1.CommandStart}, {isa88.Paused, v1alpha1.CommandResume}} {
		steps := 0
		for step := 1; ; step++ {
			reached := false
			inPlant(t, func(t *testing.T, p *plant) {
				p.module("flow", v1alpha1.ModuleOnline)
				p.module("level", v1alpha1.ModuleOnline)
				p.unit("reactor", from.state, "flow", "level")
				p.lead()
				p.want("reactor", from.state)
				at := (step + 1) / 2
				fault := func(_ string, number int) error {
					if number == at {
						reached = true
						p.module("flow", v1alpha1.ModuleFault)
					}
					return nil
				}
				if step%2 == 1 {
					p.hook(fault, nil)
				} else {
					p.hook(nil, fault)
				}
				episodes := p.episodes
				p.send("reactor", from.command, false)
				unit := p.settle("reactor")
				p.hook(nil, nil)
				switch {
				case !reached:
				case unit == isa88.Held && p.episodes-episodes <= 1:
				case unit == isa88.Idle && p.get("reactor").Status.LastCommand.Outcome == v1alpha1.CommandRefused:
				default:
					t.Errorf("step %d: the Unit is %s after %d holds: %+v", step, unit, p.episodes-episodes, p.get("reactor").Status)
				}
				p.check(p.get("reactor"), p.get("reactor"))
			})
			if !reached {
				break
			}
			steps++
		}
		if steps < 8 {
			t.Errorf("%s: only %d steps were tried", from.command, steps)
		}
		t.Logf("%s: %d steps", from.command, steps)
	}
}

// scenario is what the controllers have to get through in the tests of crashes and of lost updates.
type scenario struct {
	name string
	from isa88.State
	// act is done while the controllers run; want is where the Unit ends up, with holds since the begin.
	act   func(*plant)
	want  []isa88.State
	holds int
}

func scenarios() []scenario {
	return []scenario{
		{"a fault", isa88.Running, func(p *plant) { p.module("flow", v1alpha1.ModuleFault) }, []isa88.State{isa88.Held}, 1},
		{"a fault in Restarting", isa88.Restarting, func(p *plant) { p.module("flow", v1alpha1.ModuleFault) }, []isa88.State{isa88.Held}, 1},
		{"a missing module", isa88.Paused, func(p *plant) { p.deleteModule("flow") }, []isa88.State{isa88.Held}, 1},
		{"two faults", isa88.Running, func(p *plant) {
			p.module("flow", v1alpha1.ModuleFault)
			p.module("level", v1alpha1.ModuleOffline)
		}, []isa88.State{isa88.Held}, 1},
		{"HOLD", isa88.Running, func(p *plant) { p.send("reactor", v1alpha1.CommandHold, false) }, []isa88.State{isa88.Held}, 1},
		{"STOP", isa88.Running, func(p *plant) { p.send("reactor", v1alpha1.CommandStop, false) }, []isa88.State{isa88.Stopped}, 0},
		{"ABORT", isa88.Held, func(p *plant) { p.send("reactor", v1alpha1.CommandAbort, false) }, []isa88.State{isa88.Aborted}, 0},
		// Of a RESTART that meets a crash nothing may be known but that it was carried out once or not at all.
		{"RESTART", isa88.Held, func(p *plant) { p.send("reactor", v1alpha1.CommandRestart, false) }, []isa88.State{isa88.Running, isa88.Held}, 0},
		{"START", isa88.Idle, func(p *plant) { p.send("reactor", v1alpha1.CommandStart, false) }, []isa88.State{isa88.Running, isa88.Idle}, 0},
		{"RESTART and a fault", isa88.Held, func(p *plant) {
			p.send("reactor", v1alpha1.CommandRestart, false)
			p.module("flow", v1alpha1.ModuleFault)
		}, []isa88.State{isa88.Held}, 1},
		{"PAUSE and a fault", isa88.Running, func(p *plant) {
			p.send("reactor", v1alpha1.CommandPause, false)
			p.module("flow", v1alpha1.ModuleFault)
		}, []isa88.State{isa88.Held}, 1},
	}
}

func (s scenario) begin(p *plant) *leader {
	p.module("flow", v1alpha1.ModuleOnline)
	p.module("level", v1alpha1.ModuleOnline)
	p.unit("reactor", s.from, "flow", "level")
	p.runtimes.slow["reactor"] = true
	l := p.lead()
	synctest.Wait()
	p.runtimes.mu.Lock()
	p.runtimes.slow["reactor"] = false
	p.runtimes.mu.Unlock()
	return l
}

// end has the runtimes do what they were told, and looks where the Unit is.
func (s scenario) end(t *testing.T, p *plant, what string) {
	t.Helper()
	synctest.Wait()
	p.runtimes.set("reactor", func(u *told) { u.report.Applied = true })
	got := p.settle("reactor")
	if !slices.Contains(s.want, got) {
		t.Errorf("%s: the Unit is %s, want %v: %+v", what, got, s.want, p.get("reactor").Status)
	}
	status := p.get("reactor").Status
	if status.LastCommand != nil && status.LastCommand.Outcome == v1alpha1.CommandAccepted {
		t.Errorf("%s: %s waits still", what, status.LastCommand.Command)
	}
	if s.holds > 0 && (status.Hold == nil || status.Hold.Episode == "" || len(status.Hold.Causes) == 0) {
		t.Errorf("%s: the hold is %+v", what, status.Hold)
	}
	if holds := len(p.told("Warning Held")) + len(p.told("Normal Held")); holds > s.holds {
		t.Errorf("%s: %d holds are told: %v", what, holds, p.told(""))
	}
}

// Req: P-16, P-16b, A-06
func TestACrashAtEveryStepLosesNothing(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			crashes := 0
			for step := 1; ; step++ {
				reached := false
				inPlant(t, func(t *testing.T, p *plant) {
					l := s.begin(p)
					at := (step + 1) / 2
					crash := func(_ string, number int) error {
						if number >= at {
							reached = true
							l.cancel()
							return errCrashed
						}
						return nil
					}
					if step%2 == 1 {
						p.hook(crash, nil)
					} else {
						p.hook(nil, crash)
					}
					s.act(p)
					synctest.Wait()
					l.crash()
					p.hook(nil, nil)
					l = p.lead()
					s.end(t, p, fmt.Sprintf("crash %d", step))
				})
				if !reached {
					break
				}
				crashes++
			}
			if crashes < 2 {
				t.Errorf("only %d crashes", crashes)
			}
		})
	}
}

// Req: P-16, A-06
func TestAnUpdateOfSomebodyElseAtEveryStepIsNotLost(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			for step := 1; ; step++ {
				reached := false
				inPlant(t, func(t *testing.T, p *plant) {
					s.begin(p)
					p.hook(func(_ string, number int) error {
						if number == step {
							reached = true
							p.change("reactor", func(u *v1alpha1.Unit) {
								u.Labels = map[string]string{"line": "7"}
								u.Status.Writes = []v1alpha1.TagWriteRecord{{ControlModule: "dosing", Name: "rate", Value: "1"}}
							})
						}
						return nil
					}, nil)
					s.act(p)
					s.end(t, p, fmt.Sprintf("request %d", step))
					if unit := p.get("reactor"); reached && (unit.Labels["line"] != "7" || len(unit.Status.Writes) != 1) {
						t.Errorf("request %d: what another wrote is lost: %+v", step, unit)
					}
				})
				if !reached {
					break
				}
			}
		})
	}
}

// Req: P-16, A-06
func TestRequestsThatFailAreMadeAgain(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "units"}, "reactor", errors.New("it is newer"))
	for _, s := range scenarios() {
		for name, err := range map[string]error{"conflicts": conflict, "errors": apierrors.NewInternalError(errors.New("the disk is slow"))} {
			for _, how := range []int{1, 3, 12} {
				t.Run(fmt.Sprintf("%s, %d %s", s.name, how, name), func(t *testing.T) {
					inPlant(t, func(t *testing.T, p *plant) {
						s.begin(p)
						left := how
						p.hook(func(call string, _ int) error {
							if left > 0 && strings.HasPrefix(call, "update") {
								left--
								return err
							}
							return nil
						}, nil)
						s.act(p)
						synctest.Wait()
						time.Sleep(8 * time.Second)
						s.end(t, p, name)
						if left > 0 {
							t.Errorf("%d were left", left)
						}
					})
				})
			}
		}
	}
}

// Two leaders believe that they lead: one of them was asleep.
//
// Req: P-16, A-06
func TestTwoLeadersMakeOneHold(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			inPlant(t, func(t *testing.T, p *plant) {
				s.begin(p)
				p.lead()
				synctest.Wait()
				s.act(p)
				s.end(t, p, "two leaders")
			})
		})
	}
}

// Req: P-16
func TestDanglingTagsOfARunningUnitHoldIt(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		for _, name := range []string{"deleted", "named", "other"} {
			p.module(name, v1alpha1.ModuleOnline)
			p.unit("unit-"+name, isa88.Running, "flow", name)
		}
		p.lead()
		synctest.Wait()
		p.deleteModule("deleted")
		p.tags("unit-named", "unit-named", "flow", "nowhere")
		for _, name := range []string{"unit-deleted", "unit-named"} {
			unit := p.want(name, isa88.Held)
			if unit.Status.Hold.Cause != v1alpha1.HoldCauseIOModuleMissing || len(p.told(ReasonHeldByMissingModule)) != 2 {
				t.Errorf("the hold is %+v, told %v", unit.Status.Hold, p.told(""))
			}
		}
		p.want("unit-other", isa88.Running)
		p.send("unit-deleted", v1alpha1.CommandRestart, false)
		if c := p.want("unit-deleted", isa88.Held).Status.LastCommand; c.Outcome != v1alpha1.CommandRefused || !strings.Contains(c.Message, "does not exist") {
			t.Errorf("%+v", c)
		}
		// A new one of that name is another module, and measured before it counts.
		p.module("deleted", v1alpha1.ModuleUnknown)
		p.want("unit-deleted", isa88.Held)
		p.module("deleted", v1alpha1.ModuleOnline)
		p.send("unit-deleted", v1alpha1.CommandRestart, false)
		p.want("unit-deleted", isa88.Running)
	})
}

// Req: P-16
func TestATagThatIsAddedCounts(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.module("level", v1alpha1.ModuleFault)
		p.unit("reactor", isa88.Running, "flow")
		p.lead()
		p.want("reactor", isa88.Running)
		p.tags("more", "reactor", "level")
		p.want("reactor", isa88.Held)
		if err := p.fake.Tracker().Delete(moduleOfTags, ns, "more"); err != nil {
			t.Fatal(err)
		}
		// Until the cache has heard of it, it would hold once more.
		synctest.Wait()
		p.send("reactor", v1alpha1.CommandRestart, false)
		p.want("reactor", isa88.Running)
		// One that belongs to another Unit from now on concerns both.
		p.tags("more", "reactor", "flow")
		p.unit("mixer", isa88.Running)
		p.want("mixer", isa88.Running)
		p.tags("more", "mixer", "level")
		p.want("mixer", isa88.Held)
		p.want("reactor", isa88.Running)
	})
}

// Req: P-16
func TestUnknownHoldsAfterAWhileWhateverIsDoneToTheClock(t *testing.T) {
	for _, tc := range []struct {
		name string
		jump time.Duration
		// after is when, since the module became Unknown, the clock jumps.
		after time.Duration
		// the Unit runs until, and is held at.
		runs, held time.Duration
	}{
		{"the clock is left alone", 0, 0, 59 * time.Second, 61 * time.Second},
		{"it is set back by an hour", -time.Hour, 10 * time.Second, 59 * time.Second, 61 * time.Second},
		{"it is set back by 20 s", -20 * time.Second, 30 * time.Second, 59 * time.Second, 61 * time.Second},
		{"it is set ahead by 20 s", 20 * time.Second, 10 * time.Second, 10 * time.Second, 61 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inPlant(t, func(t *testing.T, p *plant) {
				p.module("flow", v1alpha1.ModuleOnline)
				p.unit("reactor", isa88.Running, "flow")
				p.lead()
				synctest.Wait()
				begun := time.Now()
				p.module("flow", v1alpha1.ModuleUnknown)
				p.want("reactor", isa88.Running)
				if got := p.told("Warning " + ReasonModuleUnknown); len(got) != 1 {
					t.Errorf("told %v", p.told(""))
				}
				time.Sleep(tc.after)
				p.clock.jump(tc.jump)
				time.Sleep(tc.runs - time.Since(begun))
				p.want("reactor", isa88.Running)
				time.Sleep(tc.held - time.Since(begun))
				if unit := p.want("reactor", isa88.Held); unit.Status.Hold.Cause != v1alpha1.HoldCauseIOModuleUnknown {
					t.Errorf("%+v", unit.Status.Hold)
				}
			})
		})
	}
	t.Run("a new leader goes on counting", func(t *testing.T) {
		inPlant(t, func(t *testing.T, p *plant) {
			p.module("flow", v1alpha1.ModuleUnknown)
			p.unit("reactor", isa88.Running, "flow")
			for range 5 {
				l := p.lead()
				time.Sleep(11 * time.Second)
				p.want("reactor", isa88.Running)
				l.crash()
			}
			p.lead()
			time.Sleep(6 * time.Second)
			p.want("reactor", isa88.Held)
		})
	})
	t.Run("0 is never, and a module that comes back begins anew", func(t *testing.T) {
		inPlant(t, func(t *testing.T, p *plant) {
			p.module("flow", v1alpha1.ModuleUnknown)
			p.unit("never", isa88.Running, "flow")
			p.change("never", func(u *v1alpha1.Unit) { u.Spec.UnknownHoldAfter.Duration = 0 })
			p.unit("reactor", isa88.Running, "flow")
			p.lead()
			time.Sleep(50 * time.Second)
			p.module("flow", v1alpha1.ModuleOnline)
			synctest.Wait()
			time.Sleep(time.Second)
			p.module("flow", v1alpha1.ModuleUnknown)
			time.Sleep(50 * time.Second)
			p.want("reactor", isa88.Running)
			time.Sleep(11 * time.Second)
			p.want("reactor", isa88.Held)
			time.Sleep(24 * time.Hour)
			p.want("never", isa88.Running)
		})
	})
}

// Req: P-16
func TestManyUnitsOnOneModuleAndOneUnitOnManyModules(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("shared", v1alpha1.ModuleOnline)
		var modules []string
		for i := range 50 {
			p.unit(fmt.Sprintf("unit-%d", i), isa88.Running, "shared")
			name := fmt.Sprintf("module-%02d", i)
			modules = append(modules, name)
			p.module(name, v1alpha1.ModuleOnline)
		}
		p.unit("large", isa88.Running, modules...)
		p.lead()
		p.want("large", isa88.Running)
		p.module("shared", v1alpha1.ModuleFault)
		for i := range 50 {
			p.want(fmt.Sprintf("unit-%d", i), isa88.Held)
		}
		if got := p.told(ReasonHeldByFault); len(got) != 50 {
			t.Errorf("%d holds are told", len(got))
		}
		p.want("large", isa88.Running)
		for _, name := range modules {
			p.module(name, v1alpha1.ModuleFault)
		}
		if hold := p.want("large", isa88.Held).Status.Hold; len(hold.Causes) != 50 || len(hold.Modules) != 50 || hold.Episode != "episode-51" {
			t.Errorf("%+v", hold)
		}
		for _, name := range modules {
			p.module(name, v1alpha1.ModuleOnline)
		}
		p.send("large", v1alpha1.CommandRestart, false)
		p.want("large", isa88.Running)
	})
}

// Req: P-16b
func TestARuntimeThatIsAwayLeavesTheUnitHoldingAndAlarms(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Running, "flow")
		p.lead()
		p.want("reactor", isa88.Running)
		time.Sleep(awaitLimit)
		p.runtimes.mu.Lock()
		p.runtimes.away["reactor"] = true
		p.runtimes.mu.Unlock()
		p.runtimes.set("reactor", func(*told) {})
		if c := meta.FindStatusCondition(p.want("reactor", isa88.Running).Status.Conditions, ConditionRuntimeReady); c.Reason != ReasonRuntimeUnreachable {
			t.Errorf("%+v", c)
		}
		p.module("flow", v1alpha1.ModuleFault)
		p.want("reactor", isa88.Holding)
		time.Sleep(29 * time.Second)
		if got := p.told(ReasonStateTooLong); len(got) != 0 {
			t.Errorf("told too early: %v", got)
		}
		time.Sleep(2 * time.Second)
		unit := p.want("reactor", isa88.Holding)
		if c := meta.FindStatusCondition(unit.Status.Conditions, ConditionTransientStateTimeout); c == nil || c.Status != "True" {
			t.Errorf("%+v", unit.Status.Conditions)
		}
		time.Sleep(time.Hour)
		if got := p.told(ReasonStateTooLong); len(got) != 1 {
			t.Errorf("told %v", got)
		}
		p.runtimes.mu.Lock()
		p.runtimes.away["reactor"] = false
		p.runtimes.do("reactor")
		p.runtimes.mu.Unlock()
		p.runtimes.set("reactor", func(*told) {})
		unit = p.want("reactor", isa88.Held)
		if c := meta.FindStatusCondition(unit.Status.Conditions, ConditionTransientStateTimeout); c != nil {
			t.Errorf("%+v", c)
		}
	})
}

// Req: P-16b
func TestARuntimesLatchHoldsAndIsAcknowledgedOnceItIsStored(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Running, "flow")
		l := p.lead()
		p.want("reactor", isa88.Running)
		l.crash()
		p.runtimes.set("reactor", func(u *told) {
			u.report.Latch = &api.Latch{ID: "latch", At: time.Now(), Modules: []string{"flow"}}
		})
		p.lead()
		unit := p.want("reactor", isa88.Held)
		if unit.Status.Hold.Cause != v1alpha1.HoldCauseRuntime || len(p.told(ReasonHeldByRuntime)) != 1 {
			t.Errorf("%+v, told %v", unit.Status.Hold, p.told(""))
		}
		for _, o := range p.runtimes.orders("reactor") {
			if isa88.Holdable(o.State) && o.LatchAcknowledged != "" {
				t.Errorf("acknowledged by %+v", o)
			}
		}
		if report, _, _ := p.runtimes.Report(types.NamespacedName{Name: "reactor"}); report.Latch != nil {
			t.Error("it was never acknowledged")
		}
		p.send("reactor", v1alpha1.CommandRestart, false)
		p.want("reactor", isa88.Running)
	})
}

// Req: P-16b
func TestAUnitThatIsGoneIsForgotten(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Running, "flow")
		p.lead()
		p.want("reactor", isa88.Running)
		if err := p.fake.Tracker().Delete(unitResource, ns, "reactor"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !slices.Contains(p.runtimes.gone, "reactor") {
			t.Error("its runtime is told on")
		}
		// What is left of it, and comes late, does nothing.
		p.module("flow", v1alpha1.ModuleFault)
		p.runtimes.set("reactor", func(*told) {})
		synctest.Wait()
	})
}

// Req: P-16
func TestAWatchThatHasDiedKeepsNoUnitRunning(t *testing.T) {
	for _, dead := range []string{"iomodules", "units"} {
		t.Run(dead, func(t *testing.T) {
			inPlant(t, func(t *testing.T, p *plant) {
				p.fake.PrependWatchReactor(dead, func(clienttesting.Action) (bool, watch.Interface, error) {
					return true, watch.NewFake(), nil
				})
				p.module("flow", v1alpha1.ModuleOnline)
				p.unit("reactor", isa88.Idle, "flow")
				if dead == "iomodules" {
					p.unit("reactor", isa88.Running, "flow")
				}
				p.lead()
				synctest.Wait()
				p.module("flow", v1alpha1.ModuleFault)
				synctest.Wait()
				if dead == "units" {
					p.change("reactor", func(u *v1alpha1.Unit) { u.Status.State = v1alpha1.UnitRunning })
				}
				p.want("reactor", isa88.Running)
				time.Sleep(patrolPeriod)
				if got := p.settle("reactor"); isa88.Holdable(got) {
					t.Errorf("the Unit is %s", got)
				}
			})
		})
	}
}

// A thousand times a RESTART and a Fault come at once, in whatever order goroutines run. A Unit may be stored as Running on a stored
// Fault only until the controllers have heard of it, which takes no time that this clock knows.
//
// Req: P-16, P-16c
func TestARestartIsRacedAgainstAFaultAThousandTimes(t *testing.T) {
	const rounds = 1000
	inPlant(t, func(t *testing.T, p *plant) {
		p.module("flow", v1alpha1.ModuleOnline)
		p.unit("reactor", isa88.Held, "flow")
		p.lead()
		random := rand.New(rand.NewPCG(1, 2))
		refused, held := 0, 0
		for round := range rounds {
			p.module("flow", v1alpha1.ModuleOnline)
			p.want("reactor", isa88.Held)
			episodes, pause := p.episodes, random.IntN(200)
			var racing sync.WaitGroup
			racing.Go(func() { p.send("reactor", v1alpha1.CommandRestart, false) })
			racing.Go(func() {
				for range pause {
					goruntime.Gosched()
				}
				p.module("flow", v1alpha1.ModuleFault)
			})
			racing.Wait()
			switch unit := p.want("reactor", isa88.Held); {
			case p.episodes == episodes+1:
				held++
			case p.episodes == episodes && unit.Status.LastCommand.Outcome == v1alpha1.CommandRefused:
				refused++
			default:
				t.Fatalf("round %d: %d holds, and the command is %+v", round, p.episodes-episodes, unit.Status.LastCommand)
			}
			// The next command is another one.
			time.Sleep(time.Minute)
		}
		t.Logf("of %d commands %d were refused, and %d were carried out and held", rounds, refused, held)
		if refused == 0 || held == 0 {
			t.Error("it is always the same that wins: nothing was raced")
		}
	})
}
