package unitruntime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// Req: P-14, P-15, P-11
func TestWhatWakesAUnit(t *testing.T) {
	mixer := unitNamed("mixer")
	told := next(mixer, func(u *v1alpha1.Unit) { u.Status.State = v1alpha1.UnitRunning })
	told.Generation = mixer.Generation
	inlet := controlModule("inlet", "mixer", "flow")
	resolved := next(inlet, func(*v1alpha1.ControlModule) {})
	resolved.Generation = inlet.Generation
	flow := modbusModule("flow", "tcp://192.0.2.1:502", 2)
	measured := next(flow, func(m *v1alpha1.IOModule) { m.Status.State = v1alpha1.ModuleFault })
	measured.Generation = flow.Generation
	moved := next(measured, func(m *v1alpha1.IOModule) { m.Status.ProbePodName = "another" })
	moved.Generation = flow.Generation
	own := probepod.Build(probepod.Pod{Namespace: ns, Name: "unit-runtime-mixer", Kind: probepod.Unit})
	metav1.SetMetaDataAnnotation(&own.ObjectMeta, probepod.UnitAnnotation, "mixer")
	bare := own.DeepCopy()
	bare.Labels = nil
	placed := own.DeepCopy()
	placed.Spec.NodeName = "n1"
	well, ill := node("n1", nil, corev1.ConditionTrue, begin()), node("n1", nil, corev1.ConditionFalse, begin())
	heartbeat := well.DeepCopy()
	heartbeat.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(begin().Add(time.Minute))
	elsewhere := probeAt("192.0.2.101")
	busy := probeAt("192.0.2.100")
	busy.Status.Message = "busy"

	for _, tc := range []struct {
		name          string
		source        int
		before, after any
		pod           *corev1.Pod
		want          []string
	}{
		{name: "a Unit that comes", source: 0, after: mixer, want: []string{"mixer"}},
		{name: "a Unit whose status changes", source: 0, before: mixer, after: told},
		{name: "a Unit that goes concerns who shares its devices", source: 0, before: mixer, want: []string{"boiler", "mixer"}},
		{name: "a Unit that went unseen", source: 0, before: cache.DeletedFinalStateUnknown{Key: ns + "/mixer", Obj: mixer}, want: []string{"boiler", "mixer"}},
		{name: "a resync", source: 1, before: inlet, after: inlet, want: []string{"mixer"}},
		{name: "a ControlModule whose status changes", source: 1, before: inlet, after: resolved},
		{name: "a ControlModule that moves concerns both Units and who shares its devices", source: 1, before: inlet,
			after: next(inlet, func(c *v1alpha1.ControlModule) { c.Spec.UnitRef.Name = "dryer" }), want: []string{"boiler", "dryer", "mixer"}},
		{name: "a ControlModule whose tags change otherwise than in their modules concerns its Unit", source: 1, before: inlet,
			after: next(inlet, func(c *v1alpha1.ControlModule) { c.Spec.Tags[0].Address = "coil:0" }), want: []string{"mixer"}},
		{name: "a ControlModule that goes", source: 1, before: inlet, want: []string{"boiler", "mixer"}},
		{name: "a module whose state changes", source: 2, before: flow, after: measured},
		{name: "a module that another pod measures", source: 2, before: measured, after: moved, want: []string{"boiler", "mixer"}},
		{name: "a module that nobody uses", source: 2, after: modbusModule("other", "tcp://192.0.2.9:502", 0)},
		{name: "a module that goes", source: 2, before: flow, want: []string{"boiler", "mixer"}},
		{name: "a pod of ours", source: 3, after: own, want: []string{"mixer"}},
		{name: "a pod of ours that lost its labels", source: 3, before: own, after: bare, want: []string{"mixer"}},
		{name: "somebody's pod", source: 3, after: bare},
		{name: "a ConfigMap of ours that goes", source: 4, before: &corev1.ConfigMap{ObjectMeta: own.ObjectMeta}, want: []string{"mixer"}},
		{name: "a probe that is elsewhere", source: 5, before: probeAt("192.0.2.100"), after: elsewhere, want: []string{"boiler", "mixer"}},
		{name: "a probe that stays where it is", source: 5, before: probeAt("192.0.2.100"), after: busy},
		{name: "a node that falls ill under a runtime", source: 6, before: well, after: ill, pod: placed, want: []string{"mixer"}},
		{name: "a node that comes while a runtime waits for one", source: 6, after: well, pod: own, want: []string{"mixer"}},
		{name: "a node's heartbeat", source: 6, before: well, after: heartbeat, pod: placed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlant(t)
			p.put(mixer, unitNamed("boiler"), inlet, controlModule("burner", "boiler", "flow"), flow)
			if tc.pod != nil {
				if err := p.hostIndexers["pods"].Add(tc.pod); err != nil {
					t.Fatal(err)
				}
			}
			woken := map[string]bool{}
			p.c.wake = func(units ...types.NamespacedName) {
				for _, unit := range units {
					woken[unit.Name] = true
				}
			}
			handler := p.c.sources[tc.source].Handler
			switch {
			case tc.before == nil:
				handler.OnAdd(tc.after, false)
			case tc.after == nil:
				handler.OnDelete(tc.before)
			default:
				handler.OnUpdate(tc.before, tc.after)
			}
			if got := slices.Sorted(maps.Keys(woken)); !slices.Equal(got, tc.want) {
				t.Errorf("woken %v, want %v", got, tc.want)
			}
		})
	}
}

// Req: P-15 (a thousand Units)
func TestAThousandUnitsOnOneDeviceAreLookedAtInNoTime(t *testing.T) {
	const units = 1000
	f := newFacts()
	flow := modbusModule("flow", "tcp://192.0.2.1:502", 2)
	f.setModule(keyOf(flow), flow)
	for i := range units {
		unit := types.NamespacedName{Namespace: ns, Name: fmt.Sprint("u", i)}
		c := controlModule("of-"+unit.Name, unit.Name, "flow")
		f.setControlModule(keyOf(c), c)
		f.setUnit(unit, true)
	}
	began := time.Now()
	if !f.shared(keyOf(flow)) || len(f.readThrough(types.NamespacedName{Namespace: ns, Name: "network-io-probe"})) != units {
		t.Error("not all share the device")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}

// Req: P-15
func TestTheControllerStopsAndLeavesNothing(t *testing.T) {
	p := newPlant(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.c.Run(ctx) }()
	time.Sleep(20 * time.Millisecond)
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not stop")
	}
}
