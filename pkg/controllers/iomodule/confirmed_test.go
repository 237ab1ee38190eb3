package iomodule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Req: P-16c
func TestAModuleIsConfirmedByWhatIsHeardInThisLeadership(t *testing.T) {
	module, old := modbus("flow"), running("p1")
	module.Status = v1alpha1.IOModuleStatus{State: v1alpha1.ModuleOnline, Reason: api.ReasonConnected, ProbePodName: "network-io-probe", ObservedGeneration: 1}
	old.CreationTimestamp = metav1.NewTime(begin().Add(-time.Hour))
	s := newSite(t, clocktesting.NewFakeClock(begin()), []runtime.Object{listing(`{"name":"flow"}`), old}, []runtime.Object{module, modbus("zz")})
	s.probe.mu.Lock()
	s.probe.silent = true
	s.probe.mu.Unlock()
	s.probe.breakStreams(true)
	confirmed := func() bool { return s.controller.Confirmed(nn(ns, "flow"), s.module("flow").UID) }
	s.await("zz", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	if s.module("flow").Status.State != v1alpha1.ModuleOnline || confirmed() {
		t.Error("what a former leader stored is taken for evidence")
	}
	s.probe.mu.Lock()
	s.probe.modules = map[string]api.ModuleState{"flow": says("flow", true, true, api.ReasonConnected)}
	s.probe.mu.Unlock()
	s.probe.breakStreams(false)
	s.updatePod(running("p2"))
	s.eventually("it is confirmed", confirmed)
	if s.controller.Confirmed(nn(ns, "flow"), "another") || s.controller.Confirmed(nn(ns, "nowhere"), "") || s.controller.Confirmed(nn("elsewhere", "flow"), s.module("flow").UID) {
		t.Error("another module is confirmed")
	}
	s.probe.say(says("flow", true, false, "Timeout"))
	s.eventually("it is not any more", func() bool { return !confirmed() })
	s.probe.say(says("flow", false, false, api.ReasonMeasuring))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonNotMeasured)
	if confirmed() {
		t.Error("what is not measured is confirmed")
	}
}

// Req: P-05, P-16c
func TestASimulationIsConfirmedByABeatThatIsHeard(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	beating := func(at time.Time) *v1alpha1.Controller {
		controller := edge(v1alpha1.ControllerSimulated, "")
		controller.Spec.Simulation = true
		controller.Status.LastAlive = &metav1.Time{Time: at}
		return controller
	}
	module := &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sim", UID: "uid-of-sim", Generation: 1},
		Spec: v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolSimulation, ControllerRef: &v1alpha1.ControllerReference{Name: "edge"}}}
	s := newSite(t, c, nil, []runtime.Object{beating(begin().Add(-5 * time.Second)), module})
	s.await("sim", v1alpha1.ModuleOnline, ReasonControllerAlive)
	if s.controller.Confirmed(nn(ns, "sim"), "uid-of-sim") {
		t.Error("a beat that was found is taken for one that was heard")
	}
	c.Step(time.Second)
	s.updateController(beating(c.Now()))
	s.eventually("it is confirmed", func() bool { return s.controller.Confirmed(nn(ns, "sim"), "uid-of-sim") })
	c.Step(lifePeriod)
	if s.controller.Confirmed(nn(ns, "sim"), "uid-of-sim") {
		t.Error("a heart that has stopped confirms")
	}
}
