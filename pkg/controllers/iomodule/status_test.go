package iomodule

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// Req: P-06
func TestTheStatusOfAVerdict(t *testing.T) {
	module := &v1alpha1.IOModule{Spec: v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolModbus, Channels: make([]v1alpha1.Channel, 3)}}
	meta.SetStatusCondition(&module.Status.Conditions, metav1.Condition{Type: conditionControllerFound, Status: metav1.ConditionFalse, Reason: "ControllerNotFound"})
	t0, t1, t2 := metav1.NewTime(begin()), metav1.NewTime(begin().Add(time.Minute)), metav1.NewTime(begin().Add(time.Hour))
	online := verdict{state: v1alpha1.ModuleOnline, reason: "Connected", message: "the device answers", health: v1alpha1.HealthNormal,
		identity: &v1alpha1.DeviceIdentity{Vendor: "Acme"}, probePod: "network-io-probe", observedGeneration: 4}

	s := nextStatus(module, online, t0)
	ready := meta.FindStatusCondition(s.Conditions, conditionReady)
	if s.State != v1alpha1.ModuleOnline || s.Reason != "Connected" || s.Message == "" || s.Health != v1alpha1.HealthNormal ||
		s.Identity.Vendor != "Acme" || *s.ChannelCount != 3 || !s.LastTransitionTime.Equal(&t0) || s.ProbePodName != "network-io-probe" || s.ObservedGeneration != 4 {
		t.Errorf("status %+v", s)
	}
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != "Connected" || ready.ObservedGeneration != 4 || !ready.LastTransitionTime.Equal(&t0) {
		t.Errorf("Ready %+v", ready)
	}
	if meta.FindStatusCondition(s.Conditions, conditionControllerFound) != nil {
		t.Error("a stale ControllerFound stays")
	}

	module.Status = s
	if again := nextStatus(module, online, t1); !equality.Semantic.DeepEqual(again, s) {
		t.Errorf("the same verdict changes the status: %+v", again)
	}

	faulty := verdict{state: v1alpha1.ModuleFault, reason: "Timeout", message: "no answer", health: v1alpha1.HealthFailure, probePod: "network-io-probe", observedGeneration: 4}
	s = nextStatus(module, faulty, t1)
	ready = meta.FindStatusCondition(s.Conditions, conditionReady)
	if !s.LastTransitionTime.Equal(&t1) || !ready.LastTransitionTime.Equal(&t1) || ready.Status != metav1.ConditionFalse {
		t.Errorf("a change of state at %s: %+v", t1, s)
	}
	if s.Identity == nil || s.Identity.Vendor != "Acme" {
		t.Error("a silent device loses its nameplate")
	}

	module.Status = s
	faulty.reason = "Refused"
	s = nextStatus(module, faulty, t2)
	if s.Reason != "Refused" || !s.LastTransitionTime.Equal(&t1) {
		t.Errorf("another reason is no change of state: %+v", s)
	}

	module.Status = s
	s = nextStatus(module, verdict{state: v1alpha1.ModuleUnknown, reason: ReasonConfigNotPropagated, otherDevice: true}, t2)
	if s.Identity != nil || s.Health != "" {
		t.Errorf("another device inherits the nameplate: %+v", s)
	}
}

// Req: P-06
func TestTheNumberOfChannels(t *testing.T) {
	const generation = 4
	n := ptr.To[int32]
	for _, tc := range []struct {
		name     string
		protocol v1alpha1.Protocol
		declared int
		// before is what the status says, of the generation observed.
		before   *int32
		observed int64
		found    *int32
		other    bool
		want     *int32
	}{
		{name: "modbus declares all it has", protocol: v1alpha1.ProtocolModbus, declared: 2, found: n(3), want: n(2)},
		{name: "modbus without channels has none", protocol: v1alpha1.ProtocolModbus, want: n(0)},
		{name: "simulation declares all it has", protocol: v1alpha1.ProtocolSimulation, want: n(0)},
		{name: "opcua may declare some before it is browsed", protocol: v1alpha1.ProtocolOPCUA, declared: 1, want: n(1)},
		{name: "opcua that declares none is not known", protocol: v1alpha1.ProtocolOPCUA},
		{name: "ethernetip that declares none is not known", protocol: v1alpha1.ProtocolEtherNetIP},
		{name: "opcua has what was found", protocol: v1alpha1.ProtocolOPCUA, declared: 1, found: n(900), want: n(900)},
		{name: "ethernetip has what was found, be it none", protocol: v1alpha1.ProtocolEtherNetIP, found: n(0), want: n(0)},
		{name: "what was found stays known while the probe is away", protocol: v1alpha1.ProtocolOPCUA, before: n(900), observed: generation, want: n(900)},
		{name: "what was found under another specification is not", protocol: v1alpha1.ProtocolOPCUA, before: n(900), observed: generation - 1},
		{name: "what was found on another device is not", protocol: v1alpha1.ProtocolOPCUA, declared: 1, before: n(900), observed: generation, other: true, want: n(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			module := &v1alpha1.IOModule{Spec: v1alpha1.IOModuleSpec{Protocol: tc.protocol, Channels: make([]v1alpha1.Channel, tc.declared)}}
			module.Status.ChannelCount, module.Status.ObservedGeneration = tc.before, tc.observed
			v := verdict{channels: tc.found, otherDevice: tc.other, observedGeneration: generation}
			if got := nextStatus(module, v, metav1.NewTime(begin())).ChannelCount; !ptr.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	for name, c := range map[string]struct {
		summary api.ChannelSummary
		want    *int32
	}{
		"not discovered yet": {api.ChannelSummary{Count: 5}, nil},
		"discovered":         {api.ChannelSummary{Revision: "r", Count: 5}, n(5)},
		"claimed too many":   {api.ChannelSummary{Revision: "r", Count: 1 << 40}, n(driver.MaxChannels)},
		"claimed less":       {api.ChannelSummary{Revision: "r", Count: -1}, n(0)},
	} {
		if got := conclude(connected, &api.ModuleState{Found: true, Connected: true, Channels: c.summary}).channels; !ptr.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Req: P-06
func TestSinceWhichGenerationTheDeviceIsTheSame(t *testing.T) {
	at := func(generation int64, endpoint string) *v1alpha1.IOModule {
		return &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "u", Generation: generation},
			Spec: v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolModbus, Modbus: &v1alpha1.ModbusConnection{Endpoint: endpoint}}}
	}
	c := newConnections()
	step := func(what string, before, after *v1alpha1.IOModule, want int64) {
		t.Helper()
		c.observe(before, after)
		if got := c.since(after); got != want {
			t.Errorf("%s: since generation %d, want %d", what, got, want)
		}
	}
	if got := c.since(at(7, "a")); got != 7 {
		t.Errorf("what was never seen counts as changed, got %d", got)
	}
	step("seen for the first time", nil, at(3, "a"), 3)
	other := at(4, "a")
	other.Spec.Channels = make([]v1alpha1.Channel, 1)
	step("other channels", at(3, "a"), other, 3)
	step("another endpoint", other, at(5, "b"), 5)
	step("back again is another device too", at(5, "b"), at(6, "a"), 6)
	renewed := at(1, "a")
	renewed.UID = "v"
	step("another object of that name", at(6, "a"), renewed, 1)
	c.observe(renewed, nil)
	if len(c.modules) != 0 {
		t.Error("a module that went is remembered")
	}
}

// Req: P-09
func TestWhoListsAModule(t *testing.T) {
	a := newAssignments()
	probe, second := nn("n", "network-io-probe"), nn("n", "network-io-probe-2")
	if got := a.set(probe, assigned{modules: []string{"x", "y"}}); len(got) != 2 {
		t.Errorf("concerned %v", got)
	}
	if got := a.set(probe, assigned{modules: []string{"y", "z"}}); len(got) != 2 {
		t.Errorf("one goes and one comes: concerned %v", got)
	}
	if got := a.set(probe, assigned{modules: []string{"y", "z"}, problem: "name taken"}); len(got) != 2 || a.problemOf(probe) != "name taken" {
		t.Errorf("a problem concerns all: %v", got)
	}
	a.set(second, assigned{modules: []string{"y"}})
	if got, ok := a.probeOf(nn("n", "y"), ""); !ok || got != probe {
		t.Errorf("listed twice: %v", got)
	}
	a.set(probe, assigned{})
	if got, ok := a.probeOf(nn("n", "y"), ""); !ok || got != second {
		t.Errorf("then by the second alone: %v", got)
	}
	if _, ok := a.probeOf(nn("m", "y"), ""); ok {
		t.Error("a probe of one namespace serves another")
	}
	a.set(second, assigned{})

	edge := nn("n", "controller-io-probe-edge")
	a.set(probe, assigned{modules: []string{"y"}})
	a.set(edge, assigned{controller: "edge", modules: []string{"y"}})
	for controller, want := range map[string]types.NamespacedName{"": probe, "edge": edge} {
		if got, ok := a.probeOf(nn("n", "y"), controller); !ok || got != want {
			t.Errorf("of Controller %q: %v", controller, got)
		}
	}
	if got, ok := a.probeOf(nn("n", "y"), "another"); ok {
		t.Errorf("of another Controller: %v", got)
	}
	if got := a.set(edge, assigned{controller: "another", modules: []string{"y"}}); len(got) != 1 {
		t.Errorf("another owner concerns all: %v", got)
	}
	a.set(probe, assigned{})
	a.set(edge, assigned{})
	if len(a.modules)+len(a.probes) != 0 {
		t.Error("remembers what went")
	}
}
