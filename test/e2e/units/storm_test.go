package units

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// The probe's node takes no more pods, so that a probe that is ended stays away.
//
// Req: P-16, P-11
func TestALostProbeAlarmsAtOnceAndHoldsAfterUnknownHoldAfter(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	own := "probes-of-" + s.name
	must(t, env.Cluster.AddNode(t.Context(), own, map[string]string{"probes": s.name}))
	s.addModule(t, "pump", d, 1, func(spec *v1alpha1.IOModuleSpec) {
		spec.ProbePlacement = &v1alpha1.ProbePlacement{NodeSelector: map[string]string{"probes": s.name}}
	})
	probe := s.module(t, contactLimit, "pump", v1alpha1.ModuleOnline).Status.ProbePodName
	env.MustKubectl(t, "", "cordon", own)
	const patience = 5 * time.Second
	s.addUnit(t, "soon", v1alpha1.UnitSpec{UnknownHoldAfter: &metav1.Duration{Duration: patience}}, drives("speed", "pump", speed, "5"))
	s.addUnit(t, "never", v1alpha1.UnitSpec{UnknownHoldAfter: &metav1.Duration{}}, reads("temperature", "pump", temperature))
	for _, unit := range []string{"soon", "never"} {
		s.ready(t, unit)
		s.run(t, unit, v1alpha1.CommandStart)
	}
	modules, soon := shoot[*v1alpha1.IOModule](t, "pump", s.modules().Watch), shoot[*v1alpha1.Unit](t, "soon", s.units().Watch)

	killed := time.Now()
	must(t, env.Host().CoreV1().Pods(s.name).Delete(t.Context(), probe, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	unknown := modules.firstSince(t, killed, contactLimit, "Unknown", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleUnknown })
	alarmed := soon.firstSince(t, killed, settleLimit, "the alarm", func(u *v1alpha1.Unit) bool {
		return condition(u.Status.Conditions, "EquipmentHealthy") == "Unknown ModuleUnknown"
	})
	if alarmed.of.Status.State != v1alpha1.UnitRunning {
		t.Errorf("alarmed, it is %s", alarmed.of.Status.State)
	}
	holding := soon.firstSince(t, killed, patience+settleLimit, "Holding", func(u *v1alpha1.Unit) bool { return u.Status.State == v1alpha1.UnitHolding })
	t.Logf("probe gone -> Unknown %v, -> alarm stored %v, -> Holding stored %v", unknown.at.Sub(killed).Round(time.Millisecond),
		alarmed.at.Sub(unknown.at).Round(time.Millisecond), holding.at.Sub(unknown.at).Round(time.Millisecond))
	if took := alarmed.at.Sub(unknown.at); took > holdLimit {
		t.Errorf("alarmed after %v", took)
	}
	// What is stored is cut to the second.
	if took := holding.at.Sub(unknown.at); took < patience-time.Second || took > patience+time.Second {
		t.Errorf("held after %v of Unknown", took)
	}
	if hold := holding.of.Status.Hold; hold.Cause != v1alpha1.HoldCauseIOModuleUnknown || !slices.Equal(hold.Modules, []string{"pump"}) {
		t.Errorf("the hold is %+v", hold)
	}
	// The runtime reaches the device by itself.
	s.is(t, settleLimit, "soon", v1alpha1.UnitHeld)
	if have := d.written(1); !slices.Equal(have, []string{"2=5"}) {
		t.Errorf("the device was written %q", have)
	}
	told(t, s.name, "soon", corev1.EventTypeWarning, "ModuleUnknown")
	told(t, s.name, "soon", corev1.EventTypeWarning, "HeldByUnknown")
	told(t, s.name, "never", corev1.EventTypeWarning, "ModuleUnknown")
	if state := s.unit(t, "never").Status.State; state != v1alpha1.UnitRunning {
		t.Errorf("a Unit that no Unknown holds is %s", state)
	}
	refused(t, "RESTART", s.command(t, "soon", v1alpha1.CommandRestart), "pump")

	env.MustKubectl(t, "", "uncordon", own)
	for _, unit := range []string{"soon", "never"} {
		s.has(t, contactLimit, unit, "EquipmentHealthy True ModulesOnline")
	}
	if state := s.unit(t, "soon").Status.State; state != v1alpha1.UnitHeld {
		t.Errorf("with the probe back the Unit is %s", state)
	}
	s.run(t, "soon", v1alpha1.CommandRestart)
}

// Req: P-16
func TestADeviceThatFlapsMakesOneHold(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.addModule(t, "pump", d, 1, quick)
	s.addUnit(t, "mixing", v1alpha1.UnitSpec{}, drives("speed", "pump", speed, "5"))
	s.ready(t, "mixing")
	s.run(t, "mixing", v1alpha1.CommandStart)
	units, modules := shoot[*v1alpha1.Unit](t, "mixing", s.units().Watch), shoot[*v1alpha1.IOModule](t, "pump", s.modules().Watch)
	const times = 5
	for range times {
		at := d.cut(t, "closed")
		modules.firstSince(t, at, settleLimit, "Fault", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleFault })
		at = time.Now()
		d.heal(t)
		modules.firstSince(t, at, onlineLimit+settleLimit, "Online", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleOnline })
	}
	s.has(t, settleLimit, "mixing", "EquipmentHealthy True ModulesOnline", "HoldValuesWritten True HoldValuesTaken")
	held := s.is(t, settleLimit, "mixing", v1alpha1.UnitHeld)
	if have := states(units.all()); !slices.Equal(have, []v1alpha1.UnitState{v1alpha1.UnitRunning, v1alpha1.UnitHolding, v1alpha1.UnitHeld}) {
		t.Errorf("the Unit went through %q", have)
	}
	for _, m := range units.all() {
		if hold := m.of.Status.Hold; hold != nil && (hold.Episode != held.Status.Hold.Episode || len(hold.Causes) != 1) {
			t.Errorf("a hold was %+v, and is %+v", hold, held.Status.Hold)
			break
		}
	}
	// The cause has the time of the last loss.
	if hold := held.Status.Hold; !hold.Causes[0].At.After(hold.Since.Time) {
		t.Errorf("the last cause is %+v, since %s", hold.Causes[0], hold.Since)
	}
	if lines := told(t, s.name, "mixing", corev1.EventTypeWarning, "HeldByFault"); len(lines) != 1 {
		t.Errorf("told is %q", lines)
	}
	if have := d.written(1); slices.ContainsFunc(have, func(line string) bool { return line != "2=5" }) {
		t.Errorf("the device was written %q", have)
	}
}

// A few of them have runtimes; the others show that it holds them, too.
//
// Req: P-16
func TestAllUnitsOfAModuleAreHeldAtOnce(t *testing.T) {
	t.Parallel()
	const all, whole = 50, 3
	s, d := newSite(t), newDevice(t, 1)
	s.addModule(t, "pump", d, 1)
	s.module(t, contactLimit, "pump", v1alpha1.ModuleOnline)
	var starting sync.WaitGroup
	starts := make(chan error, all)
	for i := range all {
		name, spec := "unit-"+strconv.Itoa(i), v1alpha1.UnitSpec{}
		if i >= whole {
			spec.NodeSelector = map[string]string{"nowhere": "true"}
		}
		s.addUnit(t, name, spec, drives("speed", "pump", speed, "5"))
	}
	for i := range whole {
		s.ready(t, "unit-"+strconv.Itoa(i))
	}
	for i := range all {
		starting.Go(func() { starts <- s.override(t, "unit-"+strconv.Itoa(i), v1alpha1.CommandStart) })
	}
	starting.Wait()
	for range all {
		must(t, <-starts)
	}
	modules := shoot[*v1alpha1.IOModule](t, "pump", s.modules().Watch)
	units := shootAll[*v1alpha1.Unit](t, s.units().Watch)

	cut := d.cut(t, "closed")
	fault := modules.firstSince(t, cut, settleLimit, "Fault", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleFault })
	last := map[string]time.Time{}
	harness.Eventually(t, settleLimit, func() string {
		for _, m := range units.since(cut) {
			if _, known := last[m.of.Name]; !known && m.of.Status.State == v1alpha1.UnitHolding {
				last[m.of.Name] = m.at
			}
		}
		if len(last) < all {
			return fmt.Sprintf("%d of %d are held", len(last), all)
		}
		return ""
	})
	var took []time.Duration
	for _, at := range last {
		took = append(took, at.Sub(fault.at))
	}
	slices.Sort(took)
	t.Logf("Fault -> Holding of %d Units stored: median %v, all %v", all, took[all/2].Round(time.Millisecond), took[all-1].Round(time.Millisecond))
	if took[all-1] > holdLimit {
		t.Errorf("the last one is held %v after the Fault", took[all-1])
	}
	for i := range whole {
		s.is(t, settleLimit, "unit-"+strconv.Itoa(i), v1alpha1.UnitHeld)
	}
	episodes := map[string]bool{}
	list, err := s.units().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, unit := range list.Items {
		if hold := unit.Status.Hold; hold == nil || !slices.Equal(hold.Modules, []string{"pump"}) || unit.Status.State != v1alpha1.UnitHolding && unit.Status.State != v1alpha1.UnitHeld {
			t.Errorf("%s is %s with hold %+v", unit.Name, unit.Status.State, hold)
		} else {
			episodes[hold.Episode] = true
		}
	}
	if len(episodes) != all {
		t.Errorf("%d Units have %d episodes", all, len(episodes))
	}
}

// Req: P-16
func TestAUnitOnFiftyModulesHasOneHoldWithAllOfThem(t *testing.T) {
	t.Parallel()
	const all = 50
	s := newSite(t)
	ids := make([]uint8, all)
	for i := range ids {
		ids[i] = uint8(i + 1)
	}
	gateway := newDevice(t, ids...)
	var tags []v1alpha1.Tag
	var names []string
	for _, id := range ids {
		name := fmt.Sprintf("pump-%02d", id)
		names = append(names, name)
		s.addModule(t, name, gateway, int32(id))
		tags = append(tags, drives(name, name, speed, strconv.Itoa(int(id))))
	}
	s.addUnit(t, "line", v1alpha1.UnitSpec{}, tags...)
	s.ready(t, "line")
	s.run(t, "line", v1alpha1.CommandStart)
	units := shoot[*v1alpha1.Unit](t, "line", s.units().Watch)
	modules := shootAll[*v1alpha1.IOModule](t, s.modules().Watch)

	cut := gateway.cut(t, "closed")
	fault := modules.firstSince(t, cut, settleLimit, "Fault", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleFault })
	holding := units.first(t, settleLimit, "Holding", func(u *v1alpha1.Unit) bool { return u.Status.State == v1alpha1.UnitHolding })
	whole := units.first(t, settleLimit, "a hold by all", func(u *v1alpha1.Unit) bool {
		return u.Status.Hold != nil && slices.Equal(u.Status.Hold.Modules, names)
	})
	t.Logf("first Fault -> Holding stored %v, -> all %d causes stored %v", holding.at.Sub(fault.at).Round(time.Millisecond), all, whole.at.Sub(fault.at).Round(time.Millisecond))
	if took := holding.at.Sub(fault.at); took > holdLimit {
		t.Errorf("held %v after the first Fault", took)
	}
	held := s.has(t, settleLimit, "line", "EquipmentHealthy False ModuleFault", "HoldValuesWritten False HoldValuesUnreachable")
	if have := held.Status.Hold; len(have.Causes) != all || have.Episode != holding.of.Status.Hold.Episode {
		t.Errorf("%d causes, episode %s, and it began with %s", len(have.Causes), have.Episode, holding.of.Status.Hold.Episode)
	}
	if lines := told(t, s.name, "line", corev1.EventTypeWarning, "HeldByFault"); len(lines) != 1 {
		t.Errorf("told is %q", lines)
	}
	gateway.heal(t)
	s.has(t, onlineLimit+settleLimit, "line", "EquipmentHealthy True ModulesOnline", "HoldValuesWritten True HoldValuesTaken")
	for _, id := range ids {
		if have := gateway.Unit(id).Holding(speedRegister); have != uint16(id) {
			t.Errorf("unit %d has %d for its hold value", id, have)
		}
	}
	if have := states(units.all()); !slices.Equal(have, []v1alpha1.UnitState{v1alpha1.UnitRunning, v1alpha1.UnitHolding, v1alpha1.UnitHeld}) {
		t.Errorf("the Unit went through %q", have)
	}
}

// A RESTART is sent at about the moment at which the device is lost, again and again, of a few Units at the same time.
//
// Req: P-16, P-16c
func TestARestartNeverWinsARaceWithAFault(t *testing.T) {
	t.Parallel()
	const units, rounds, early = 5, 7, 200 * time.Millisecond
	s := newSite(t)
	type race struct {
		device  device
		module  string
		unit    string
		modules *film[*v1alpha1.IOModule]
		units   *film[*v1alpha1.Unit]
	}
	races := make([]*race, units)
	for i := range races {
		r := &race{device: newDevice(t, 1), module: "pump-" + strconv.Itoa(i), unit: "unit-" + strconv.Itoa(i)}
		s.addModule(t, r.module, r.device, 1, quick)
		s.addUnit(t, r.unit, v1alpha1.UnitSpec{}, drives("speed", r.module, speed, "5"))
		races[i] = r
	}
	for _, r := range races {
		s.ready(t, r.unit)
		r.modules, r.units = shoot[*v1alpha1.IOModule](t, r.module, s.modules().Watch), shoot[*v1alpha1.Unit](t, r.unit, s.units().Watch)
		s.run(t, r.unit, v1alpha1.CommandStart)
		must(t, s.command(t, r.unit, v1alpha1.CommandHold))
	}
	var mu sync.Mutex
	outcomes := map[string]int{}
	t.Run("races", func(t *testing.T) {
		for _, r := range races {
			t.Run(r.unit, func(t *testing.T) {
				t.Parallel()
				for round := range rounds {
					s.is(t, settleLimit, r.unit, v1alpha1.UnitHeld)
					s.has(t, settleLimit, r.unit, "EquipmentHealthy True ModulesOnline", "RuntimeDevicesConnected True DevicesConnected")
					began := time.Now()
					answered := make(chan error)
					go func() {
						// The cut comes in between, and the Fault at most half a second after it.
						time.Sleep(rand.N(2 * early))
						ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), settleLimit)
						defer cancel()
						_, err := s.units().Command(ctx, r.unit, &v1alpha1.UnitCommand{Spec: v1alpha1.UnitCommandSpec{
							ID: "round-" + strconv.Itoa(round), Command: v1alpha1.CommandRestart,
						}}, metav1.CreateOptions{})
						answered <- err
					}()
					time.Sleep(early)
					r.device.cut(t, "closed")
					fault := r.modules.firstSince(t, began, settleLimit, "Fault", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleFault })
					err := <-answered
					if err != nil && !isConflict(err) {
						t.Errorf("RESTART: %v", err)
					}
					held := s.is(t, settleLimit, r.unit, v1alpha1.UnitHeld)
					ran := slices.Contains(states(r.units.since(began)), v1alpha1.UnitRunning)
					mu.Lock()
					outcomes[fmt.Sprintf("accepted %v, ran %v", err == nil, ran)]++
					mu.Unlock()
					if last := held.Status.LastCommand; last.ID != "round-"+strconv.Itoa(round) || last.Outcome == v1alpha1.CommandAccepted {
						t.Errorf("the last command is %+v", last)
					}
					r.device.heal(t)
					r.modules.firstSince(t, fault.at, onlineLimit+settleLimit, "Online", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleOnline })
				}
			})
		}
	})
	worst, late := time.Duration(0), 0
	for _, r := range races {
		took, after := runningOnFault(t, r.modules.all(), r.units.all())
		worst = max(worst, took)
		late += after
	}
	t.Logf("%d races: %v; at most %v Running with a stored Fault; Running was stored after a Fault %d times", units*rounds, outcomes, worst.Round(time.Millisecond), late)
	if worst > holdLimit {
		t.Errorf("a Unit was Running with a stored Fault for %v", worst)
	}
}

// runningOnFault is for how long a Unit was at most seen Running while its module was in Fault, and how often it came to be Running
// while a Fault was stored: the versions of one store have one order.
func runningOnFault(t *testing.T, modules []moment[*v1alpha1.IOModule], units []moment[*v1alpha1.Unit]) (worst time.Duration, late int) {
	t.Helper()
	type change struct {
		at      time.Time
		version int64
		module  *v1alpha1.IOModule
		unit    *v1alpha1.Unit
	}
	version := func(text string) int64 {
		number, err := strconv.ParseInt(text, 10, 64)
		must(t, err)
		return number
	}
	var changes []change
	for _, m := range modules {
		changes = append(changes, change{at: m.at, version: version(m.of.ResourceVersion), module: m.of})
	}
	for _, u := range units {
		changes = append(changes, change{at: u.at, version: version(u.of.ResourceVersion), unit: u.of})
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.version - b.version) })
	var fault, running bool
	var began time.Time
	for _, c := range changes {
		was := fault && running
		wasRunning := running
		if c.module != nil {
			fault = c.module.Status.State == v1alpha1.ModuleFault
		} else {
			running = c.unit.Status.State == v1alpha1.UnitRunning
		}
		switch is := fault && running; {
		case is && !was:
			began = c.at
			if !wasRunning {
				late++
			}
		case was && !is:
			worst = max(worst, c.at.Sub(began))
		}
	}
	if fault && running {
		t.Error("in the end the Unit is Running with a stored Fault")
	}
	return worst, late
}

// With a device behind the module, and by kubectl: what the tests of the API itself do not retarget.
//
// Req: P-16a, A-05
func TestADeviceIsNotExchangedUnderAUnitThatRuns(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.addModule(t, "pump", d, 1, func(spec *v1alpha1.IOModuleSpec) {
		spec.Probe = &v1alpha1.ProbeSettings{Timeout: &metav1.Duration{Duration: 500 * time.Millisecond}}
	})
	tag := drives("speed", "pump", speed, "5")
	tag.Scaling = &v1alpha1.Scaling{Factor: ptr.To(1.0)}
	s.addUnit(t, "mixing", v1alpha1.UnitSpec{}, tag, reads("temperature", "pump", temperature))
	s.ready(t, "mixing")
	s.run(t, "mixing", v1alpha1.CommandStart)
	user := "editor." + s.name
	env.MustKubectl(t, "", "create", "role", "editor", "-n", s.name, "--verb=*",
		"--resource=units.physical.fieldplane.dev,controlmodules.physical.fieldplane.dev,iomodules.physical.fieldplane.dev")
	env.MustKubectl(t, "", "create", "rolebinding", "editor", "-n", s.name, "--role=editor", "--user="+user)
	harness.Eventually(t, settleLimit, func() string {
		// It takes a moment until a right is known.
		if output, err := env.Kubectl(t, "", "get", "iomodules.physical.fieldplane.dev", "-n", s.name, "--as="+user); err != nil {
			return output
		}
		return ""
	})
	edits := map[string][2]string{
		"another address of the device": {"iomodule/pump", `[{"op":"replace","path":"/spec/modbus/endpoint","value":"tcp://127.0.91.250:5020"}]`},
		"another unit id":               {"iomodule/pump", `[{"op":"replace","path":"/spec/modbus/unitID","value":2}]`},
		"a probe elsewhere":             {"iomodule/pump", `[{"op":"add","path":"/spec/probePlacement","value":{"nodeSelector":{"zone":"b"}}}]`},
		"a longer timeout":              {"iomodule/pump", `[{"op":"replace","path":"/spec/probe/timeout","value":"1s"}]`},
		"another name of a tag":         {"controlmodule/mixing", `[{"op":"replace","path":"/spec/tags/0/name","value":"rate"}]`},
		"no hold value":                 {"controlmodule/mixing", `[{"op":"remove","path":"/spec/tags/0/holdValue"}]`},
		"another scaling":               {"controlmodule/mixing", `[{"op":"replace","path":"/spec/tags/0/scaling/factor","value":2}]`},
	}
	patch := func(edit [2]string, args ...string) (string, error) {
		kind, name, _ := strings.Cut(edit[0], "/")
		return env.Kubectl(t, "", append([]string{"patch", kind + "s.physical.fieldplane.dev", name, "-n", s.name, "--type=json", "-p", edit[1], "--as=" + user}, args...)...)
	}
	for name, edit := range edits {
		if output, err := patch(edit); err == nil || !strings.Contains(output, "Forbidden") || !strings.Contains(output, `Unit "mixing" is Running`) || !strings.Contains(output, "override") {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
	}
	env.MustKubectl(t, "", "create", "role", "override", "-n", s.name, "--verb=override", "--resource=units.physical.fieldplane.dev/command", "--resource-name=mixing")
	env.MustKubectl(t, "", "create", "rolebinding", "override", "-n", s.name, "--role=override", "--user="+user)
	for name, edit := range edits {
		harness.Eventually(t, settleLimit, func() string {
			if output, err := patch(edit, "--dry-run=server"); err != nil {
				return name + ", with the verb: " + output
			}
			return ""
		})
	}
	// One of them for real: the module is another, and not measured yet; nothing of the former one runs on unnoticed.
	if output, err := patch(edits["another address of the device"]); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	held := s.is(t, 2*faultLimit+settleLimit, "mixing", v1alpha1.UnitHeld)
	if hold := held.Status.Hold; !slices.Equal(hold.Modules, []string{"pump"}) {
		t.Errorf("the hold is %+v", hold)
	}
}
