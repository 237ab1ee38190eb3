package units

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/tagwatch"
	"github.com/fieldplane/fieldplane/test/harness"
)

// Req: P-14, P-15, A-05
func TestTagsAreBadAtOnceAndWritesAreRecordedAndEndWithTheHold(t *testing.T) {
	t.Parallel()
	s, pump, tank := newSite(t), newDevice(t, 1), newDevice(t, 1)
	s.addModule(t, "pump", pump, 1)
	s.addModule(t, "tank", tank, 1)
	s.addUnit(t, "mixing", v1alpha1.UnitSpec{},
		reads("silent", "pump", temperature), reads("gone", "tank", temperature), drives("speed", "pump", speed, "5"))
	s.ready(t, "mixing")
	s.run(t, "mixing", v1alpha1.CommandStart)

	s.set(t, "mixing", "speed", "1200")
	if value := pump.Unit(1).Holding(speedRegister); value != 1200 {
		t.Errorf("the device has %d", value)
	}
	record := s.unit(t, "mixing").Status.Writes[0]
	if record.Value != "1200" || record.Outcome != v1alpha1.WriteDone || record.Actor == "" || record.Reason != "a test" || record.ControlModule != "mixing" || record.Name != "speed" {
		t.Errorf("recorded is %+v", record)
	}
	shown := func(name, value string, quality v1alpha1.TagQuality) func(*v1alpha1.UnitTags) bool {
		return func(tags *v1alpha1.UnitTags) bool {
			return slices.ContainsFunc(tags.Items, func(tag v1alpha1.TagValue) bool {
				return tag.Name == name && tag.Quality == quality && (value == "" || tag.Value != nil && *tag.Value == value)
			})
		}
	}
	tags := shootAll[*v1alpha1.UnitTags](t, func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
		return tagwatch.WatchTags(ctx, s.client.PhysicalV1alpha1().RESTClient(), s.name, "mixing")
	})
	tags.first(t, settleLimit, "the written value", shown("speed", "1200", v1alpha1.QualityGood))

	cut := map[string]time.Time{"silent": pump.cut(t, "silent"), "gone": tank.cut(t, "closed")}
	limits := map[string]time.Duration{"silent": 3 * time.Second, "gone": 2 * time.Second}
	bad := map[string]time.Time{}
	for name, at := range cut {
		first := tags.firstSince(t, at, limits[name]+settleLimit, name+" is Bad", shown(name, "", v1alpha1.QualityBad))
		bad[name] = first.at
		t.Logf("%s -> Bad told %v", name, first.at.Sub(at).Round(time.Millisecond))
		if took := first.at.Sub(at); took > limits[name] {
			t.Errorf("%s is Bad after %v", name, took)
		}
		i := slices.IndexFunc(first.of.Items, func(tag v1alpha1.TagValue) bool { return tag.Name == name })
		tag := first.of.Items[i]
		if tag.Status != "Bad_NoCommunication" || tag.Value == nil || *tag.Value != "215" || tag.SourceTime == nil || tag.SourceTime.After(at.Add(time.Second)) || tag.Message == "" {
			t.Errorf("%s is %+v", name, tag)
		}
	}

	s.is(t, settleLimit, "mixing", v1alpha1.UnitHeld)
	refused(t, "a write to a Unit that is held", s.write(t, "mixing", "speed", "900"), "Running")
	if writes := s.unit(t, "mixing").Status.Writes; len(writes) == 0 || writes[0].Value != "1200" {
		t.Errorf("recorded is %+v", writes)
	}
	pump.Unit(1).SetHolding(0, 321)
	tank.Unit(1).SetHolding(0, 322)
	healed := time.Now()
	pump.heal(t)
	tank.heal(t)
	good := map[string]time.Time{}
	for name, value := range map[string]string{"silent": "321", "gone": "322"} {
		good[name] = tags.firstSince(t, healed, onlineLimit+settleLimit, name+" is Good", shown(name, value, v1alpha1.QualityGood)).at
	}
	// Nothing was ever told as Good that was not.
	for _, m := range tags.all() {
		for _, tag := range m.of.Items {
			if tag.Quality != v1alpha1.QualityGood || tag.Name == "speed" {
				continue
			}
			if m.at.After(bad[tag.Name]) && m.at.Before(good[tag.Name]) {
				t.Errorf("%s was told as Good while its device was away: %+v", tag.Name, tag)
			}
			if age := m.at.Sub(tag.SourceTime.Time); age > 3*time.Second {
				t.Errorf("%s was told as Good when it was %v old", tag.Name, age)
			}
		}
	}
	if have := pump.written(1); have[0] != "2=1200" || slices.ContainsFunc(have[1:], func(line string) bool { return line != "2=5" }) {
		t.Errorf("the device was written %q", have)
	}
}

// What goes through the probe's one connection is the whole chain: values, writes, the loss and the hold values.
//
// Req: P-14, P-15, P-16, P-16b
func TestUnitsThatShareTheOneConnectionOfADeviceAreHeldLikeAllOthers(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	d.MaxClients(1)
	s.addModule(t, "pump", d, 1, func(spec *v1alpha1.IOModuleSpec) { spec.Modbus.MaxConnections = ptr.To[int32](1) })
	s.addUnit(t, "mixing", v1alpha1.UnitSpec{}, drives("speed", "pump", speed, "5"))
	s.addUnit(t, "cleaning", v1alpha1.UnitSpec{}, drives("valve", "pump", valve, "7"))
	for unit, tag := range map[string]string{"mixing": "speed", "cleaning": "valve"} {
		s.ready(t, unit)
		s.run(t, unit, v1alpha1.CommandStart)
		s.set(t, unit, tag, "50")
	}
	if have := d.written(1); !slices.Contains(have, "2=50") || !slices.Contains(have, "3=50") || len(have) != 2 {
		t.Errorf("the device was written %q", have)
	}
	if open := d.Open(); open != 1 {
		t.Errorf("%d connections to the device are open", open)
	}
	// One is held by hand, and the other takes no notice.
	must(t, s.command(t, "cleaning", v1alpha1.CommandHold))
	s.is(t, settleLimit, "cleaning", v1alpha1.UnitHeld)
	if have := d.written(1); len(have) != 3 || have[2] != "3=7" {
		t.Errorf("the device was written %q", have)
	}
	s.set(t, "mixing", "speed", "60")

	modules, units := shoot[*v1alpha1.IOModule](t, "pump", s.modules().Watch), shoot[*v1alpha1.Unit](t, "mixing", s.units().Watch)
	cut := d.cut(t, "silent")
	fault := modules.firstSince(t, cut, faultLimit+settleLimit, "Fault", func(m *v1alpha1.IOModule) bool { return m.Status.State == v1alpha1.ModuleFault })
	holding := units.firstSince(t, cut, settleLimit, "Holding", func(u *v1alpha1.Unit) bool { return u.Status.State == v1alpha1.UnitHolding })
	t.Logf("cut -> Fault %v, -> Holding stored %v", fault.at.Sub(cut).Round(time.Millisecond), holding.at.Sub(fault.at).Round(time.Millisecond))
	if took := fault.at.Sub(cut); took > faultLimit {
		t.Errorf("Fault %v after the cut", took)
	}
	if took := holding.at.Sub(fault.at); took > holdLimit {
		t.Errorf("Holding %v after the Fault", took)
	}
	s.is(t, settleLimit, "mixing", v1alpha1.UnitHeld)
	for _, unit := range []string{"mixing", "cleaning"} {
		harness.Eventually(t, settleLimit, func() string {
			hold := s.unit(t, unit).Status.Hold
			if !slices.Equal(hold.Modules, []string{"pump"}) {
				return fmt.Sprintf("%s is held by %+v", unit, hold)
			}
			return ""
		})
	}
	if hold := s.unit(t, "cleaning").Status.Hold; hold.Cause != v1alpha1.HoldCauseOperator || len(hold.Causes) != 2 {
		t.Errorf("the hold by hand has become %+v", hold)
	}
	before := len(d.written(1))
	d.heal(t)
	for _, unit := range []string{"mixing", "cleaning"} {
		s.has(t, onlineLimit+settleLimit, unit, "EquipmentHealthy True ModulesOnline", "HoldValuesWritten True HoldValuesTaken")
	}
	if d.Unit(1).Holding(speedRegister) != 5 || d.Unit(1).Holding(valveRegister) != 7 ||
		slices.ContainsFunc(d.written(1)[before:], func(line string) bool { return line != "2=5" && line != "3=7" }) {
		t.Errorf("the device was written %q", d.written(1))
	}
	if open := d.Open(); open > 1 {
		t.Errorf("%d connections to the device are open", open)
	}
	s.run(t, "mixing", v1alpha1.CommandRestart)
	if state := s.unit(t, "cleaning").Status.State; state != v1alpha1.UnitHeld {
		t.Errorf("the other Unit is %s", state)
	}
}
