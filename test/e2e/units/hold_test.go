package units

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// lost is a way to lose a module, and to have it back.
type lost struct {
	// state and limit are what it becomes, and how soon.
	state     v1alpha1.ModuleState
	limit     time.Duration
	cut, heal func()
	// device is what is behind it, if that can be looked into.
	device *device
}

// The whole of it: Fault, Holding, hold values, Held, back, and nothing more until somebody restarts.
//
// Req: P-14, P-16, P-16b, P-16c
func TestAUnitIsHeldWhenAModuleIsLostAndStaysHeldUntilItIsRestarted(t *testing.T) {
	t.Parallel()
	modbus := func(mode string, more ...func(*v1alpha1.IOModuleSpec)) func(*testing.T, site) lost {
		return func(t *testing.T, s site) lost {
			d := newDevice(t, 1)
			s.addModule(t, "pump", d, 1, more...)
			return lost{v1alpha1.ModuleFault, faultLimit, func() { d.cut(t, mode) }, func() { d.heal(t) }, &d}
		}
	}
	for name, declare := range map[string]func(*testing.T, site) lost{
		"a module without a Controller, whose device falls silent": modbus("silent"),
		"a module without a Controller, whose device is gone":      modbus("closed"),
		"a module of a Controller": func(t *testing.T, s site) lost {
			_, err := s.controllers().Create(t.Context(), &v1alpha1.Controller{
				ObjectMeta: metav1.ObjectMeta{Name: "cell"}, Spec: v1alpha1.ControllerSpec{NodeName: "node-1"},
			}, metav1.CreateOptions{})
			must(t, err)
			return modbus("silent", func(spec *v1alpha1.IOModuleSpec) {
				spec.ControllerRef = &v1alpha1.ControllerReference{Name: "cell"}
			})(t, s)
		},
		"a simulation, whose Controller falls silent": func(t *testing.T, s site) lost {
			silence, beat := s.addSimulated(t, "pump", "line")
			return lost{v1alpha1.ModuleOffline, 40 * time.Second, silence, beat, nil}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := newSite(t), newDevice(t, 1)
			pump := declare(t, s)
			s.addModule(t, "valve", other, 1)
			s.addUnit(t, "mixing", v1alpha1.UnitSpec{},
				reads("temperature", "pump", temperature), drives("speed", "pump", speed, "5"), drives("valve", "valve", valve, "7"))
			s.ready(t, "mixing")
			s.run(t, "mixing", v1alpha1.CommandStart)
			s.set(t, "mixing", "speed", "1200")
			s.set(t, "mixing", "valve", "50")
			units, modules := shoot[*v1alpha1.Unit](t, "mixing", s.units().Watch), shoot[*v1alpha1.IOModule](t, "pump", s.modules().Watch)

			cut := time.Now()
			pump.cut()
			fault := modules.firstSince(t, cut, pump.limit+settleLimit, "the loss", func(m *v1alpha1.IOModule) bool { return m.Status.State == pump.state })
			holding := units.first(t, settleLimit, "Holding", func(u *v1alpha1.Unit) bool { return u.Status.State == v1alpha1.UnitHolding })
			held := units.first(t, settleLimit, "Held", func(u *v1alpha1.Unit) bool { return u.Status.State == v1alpha1.UnitHeld })
			var valveHeld time.Time
			harness.Eventually(t, settleLimit, func() string {
				writes := other.Unit(1).Writes()
				if last := writes[len(writes)-1]; !slices.Equal(last.Values, []uint16{7}) {
					return fmt.Sprintf("the other device was written %q", other.written(1))
				}
				valveHeld = writes[len(writes)-1].At
				return ""
			})
			t.Logf("cut -> %s %v, -> Holding stored %v, -> hold value in the other device %v, -> Held stored %v", pump.state,
				fault.at.Sub(cut).Round(time.Millisecond), holding.at.Sub(fault.at).Round(time.Millisecond),
				valveHeld.Sub(fault.at).Round(time.Millisecond), held.at.Sub(fault.at).Round(time.Millisecond))
			if took := fault.at.Sub(cut); took > pump.limit {
				t.Errorf("%s %v after the cut", pump.state, took)
			}
			if took := holding.at.Sub(fault.at); took > holdLimit {
				t.Errorf("Holding %v after %s", took, pump.state)
			}
			if have := states(units.all()); !slices.Equal(have, []v1alpha1.UnitState{v1alpha1.UnitRunning, v1alpha1.UnitHolding, v1alpha1.UnitHeld}) {
				t.Errorf("the Unit went through %q", have)
			}
			hold := holding.of.Status.Hold
			if hold == nil || hold.Cause != v1alpha1.HoldCauseIOModuleFault || !slices.Equal(hold.Modules, []string{"pump"}) || hold.Since == nil ||
				hold.PreviousState != v1alpha1.UnitRunning || hold.Episode == "" || len(hold.Causes) != 1 || hold.Causes[0].At == nil {
				t.Fatalf("the hold is %+v", hold)
			}
			healthy := map[v1alpha1.ModuleState]string{v1alpha1.ModuleFault: "False ModuleFault", v1alpha1.ModuleOffline: "False ModuleOffline"}[pump.state]
			if have := condition(holding.of.Status.Conditions, "EquipmentHealthy"); have != healthy {
				t.Errorf("EquipmentHealthy is %s", have)
			}
			if lines := told(t, s.name, "mixing", corev1.EventTypeWarning, "HeldByFault"); len(lines) != 1 || !strings.Contains(lines[0], "pump") || !strings.Contains(lines[0], hold.Episode) {
				t.Errorf("told is %q", lines)
			}
			if pump.device != nil {
				s.has(t, settleLimit, "mixing", "HoldValuesWritten False HoldValuesUnreachable")
			} else {
				s.has(t, settleLimit, "mixing", "HoldValuesWritten True HoldValuesTaken")
			}

			// Nothing else is written, and nothing starts.
			refused(t, "a write to a Unit that is held", s.write(t, "mixing", "valve", "60"), "Running")
			refused(t, "RESTART", s.command(t, "mixing", v1alpha1.CommandRestart), "pump", string(pump.state))

			healed := time.Now()
			pump.heal()
			online := modules.firstSince(t, healed, onlineLimit+settleLimit, "the recovery", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleOnline })
			t.Logf("back -> Online %v", online.at.Sub(healed).Round(time.Millisecond))
			if took := online.at.Sub(healed); took > onlineLimit {
				t.Errorf("Online %v after the device was back", took)
			}
			s.has(t, settleLimit, "mixing", "EquipmentHealthy True ModulesOnline", "HoldValuesWritten True HoldValuesTaken", "RuntimeDevicesConnected True DevicesConnected")
			if pump.device != nil {
				if have := pump.device.written(1); len(have) < 2 || slices.ContainsFunc(have[1:], func(line string) bool { return line != "2=5" }) {
					t.Errorf("the device that was lost was written %q", have)
				}
			} else if tag, err := s.tag(t, "mixing", "speed"); err != nil || tag.Value == nil || *tag.Value != "5" {
				t.Errorf("the simulation has %+v, %v", tag, err)
			}
			told(t, s.name, "mixing", corev1.EventTypeNormal, "EquipmentRecovered")
			time.Sleep(2 * time.Second)
			if have := states(units.since(held.at)); !slices.Equal(have, []v1alpha1.UnitState{v1alpha1.UnitHeld}) {
				t.Errorf("once held, the Unit was %q", have)
			}
			if have := s.unit(t, "mixing").Status.Hold; have == nil || have.Episode != hold.Episode || len(have.Causes) != 1 {
				t.Errorf("the hold has become %+v", have)
			}
			if have := other.written(1); !slices.Equal(have, []string{"3=50", "3=7"}) {
				t.Errorf("the other device was written %q", have)
			}

			restarted := time.Now()
			s.run(t, "mixing", v1alpha1.CommandRestart)
			units.firstSince(t, restarted, settleLimit, "Running", func(u *v1alpha1.Unit) bool { return u.Status.State == v1alpha1.UnitRunning })
			// Its conditions may have changed before it left Held.
			have := states(units.since(restarted))
			if have[0] == v1alpha1.UnitHeld {
				have = have[1:]
			}
			if !slices.Equal(have, []v1alpha1.UnitState{v1alpha1.UnitRestarting, v1alpha1.UnitRunning}) {
				t.Errorf("restarted, the Unit was %q", have)
			}
			if hold := s.unit(t, "mixing").Status.Hold; hold != nil {
				t.Errorf("running, it has hold %+v", hold)
			}
			s.set(t, "mixing", "valve", "60")
			if have := other.written(1); !slices.Equal(have, []string{"3=50", "3=7", "3=60"}) {
				t.Errorf("the other device was written %q", have)
			}
		})
	}
}
