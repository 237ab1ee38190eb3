package iomodule

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/networkprobe"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// edgeProbe is the name of the probe of Controller edge, as far as this package is concerned.
const edgeProbe = "controller-io-probe-edge"

// edge is a Controller in a phase, on a node.
func edge(phase v1alpha1.ControllerPhase, node string) *v1alpha1.Controller {
	return &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edge", UID: "uid-of-edge"},
		Status:     v1alpha1.ControllerStatus{Phase: phase, NodeName: node},
	}
}

func ofEdge(name string) *v1alpha1.IOModule {
	m := modbus(name)
	m.Spec.ControllerRef = &v1alpha1.ControllerReference{Name: "edge"}
	return m
}

// edgeListing is the ConfigMap of edge's probe.
func edgeListing(modules string) *corev1.ConfigMap {
	cm := listing(modules)
	cm.Name, cm.Labels = edgeProbe, probepod.Labels(probepod.Controller)
	cm.Annotations = map[string]string{networkprobe.ControllerAnnotation: "edge"}
	return cm
}

// edgePod is edge's probe on a node.
func edgePod(node string) *corev1.Pod {
	pod := running("p-edge")
	pod.Name, pod.Labels, pod.Spec.NodeName, pod.Status.PodIP = edgeProbe, probepod.Labels(probepod.Controller), node, "192.0.2.101"
	return pod
}

func (s *site) updateController(c *v1alpha1.Controller) {
	s.t.Helper()
	if _, err := s.ours.PhysicalV1alpha1().Controllers(ns).Update(s.ctx, c, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) controllerFound(name string) string {
	c := meta.FindStatusCondition(s.module(name).Status.Conditions, conditionControllerFound)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// Req: P-04, P-06, P-07
func TestANetworkModuleOfAControllerIsJudgedByTheControllersProbe(t *testing.T) {
	s := newSite(t, clocktesting.NewFakeClock(begin()),
		[]runtime.Object{edgeListing(`{"name":"flow"}`), edgePod("edge-1")},
		[]runtime.Object{edge(v1alpha1.ControllerReady, "edge-1"), ofEdge("flow")})
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	s.probe.say(says("flow", false, false, api.ReasonMeasuring))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonNotMeasured)
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	if got := s.module("flow").Status; got.ProbePodName != edgeProbe || s.controllerFound("flow") != "True Found" {
		t.Errorf("status %+v", got)
	}
	s.probe.say(says("flow", true, false, "Timeout"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")

	// Whatever its probe says, a Controller whose node is not ready is not believed.
	s.updateController(edge(v1alpha1.ControllerNotReady, "edge-1"))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonControllerNotReady)
	if got := s.controllerFound("flow"); got != "True Found" {
		t.Errorf("ControllerFound is %s", got)
	}
	s.updateController(edge(v1alpha1.ControllerReady, "edge-1"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")

	// The Controller has become another node: what is measured from the former one says nothing.
	s.updateController(edge(v1alpha1.ControllerReady, "edge-2"))
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbePending)
	if got := s.module("flow").Status.Message; !strings.Contains(got, "edge-2") {
		t.Errorf("message %q", got)
	}
	s.updatePod(edgePod("edge-2"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")

	unplaced := edgePod("")
	unplaced.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
	s.updatePod(unplaced)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeUnschedulable)
	if got := s.module("flow").Status.Message; !strings.Contains(got, "node edge-2 does not take") {
		t.Errorf("message %q", got)
	}

	if err := s.ours.PhysicalV1alpha1().Controllers(ns).Delete(s.ctx, "edge", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("flow", v1alpha1.ModuleUnknown, ReasonControllerNotFound)
	if got := s.controllerFound("flow"); got != "False ControllerNotFound" {
		t.Errorf("ControllerFound is %s", got)
	}
	if n := s.probe.opened.Load(); n != 1 {
		t.Errorf("%d streams were opened to one probe", n)
	}
}

// A module that moves is listed by its former probe for a moment, and by none for another.
//
// Req: P-04, P-06, P-07
func TestAFormerProbesVerdictIsNotBelieved(t *testing.T) {
	s := newSite(t, clocktesting.NewFakeClock(begin()),
		[]runtime.Object{listing(`{"name":"flow"}`), running("p1")},
		[]runtime.Object{edge(v1alpha1.ControllerReady, "edge-1"), modbus("flow")})
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	put := func(ref *v1alpha1.ControllerReference, generation int64) {
		t.Helper()
		m := s.module("flow")
		m.Spec.ControllerRef, m.Generation = ref, generation
		if _, err := s.ours.PhysicalV1alpha1().IOModules(ns).Update(s.ctx, m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(&v1alpha1.ControllerReference{Name: "edge"}, 2)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	if got := s.module("flow").Status; got.ProbePodName != "" || s.controllerFound("flow") != "True Found" {
		t.Errorf("status %+v", got)
	}
	if _, err := s.host.CoreV1().ConfigMaps(ns).Create(s.ctx, edgeListing(`{"name":"flow"}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.createPod(edgePod("edge-1"))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	if got := s.module("flow").Status.ProbePodName; got != edgeProbe {
		t.Errorf("measured by %s", got)
	}

	if err := s.host.CoreV1().ConfigMaps(ns).Delete(s.ctx, networkprobe.BaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	put(nil, 3)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	if got := s.controllerFound("flow"); got != "" {
		t.Errorf("a stale ControllerFound is left: %s", got)
	}
}

// Req: A-06, P-04
func TestANewServerGivesAControllersProbeTimeToRepeatItsVerdict(t *testing.T) {
	module, old := ofEdge("flow"), edgePod("edge-1")
	module.Status = v1alpha1.IOModuleStatus{State: v1alpha1.ModuleFault, Reason: "Timeout", ProbePodName: edgeProbe, ObservedGeneration: 1}
	old.CreationTimestamp = metav1.NewTime(begin().Add(-time.Hour))
	c := clocktesting.NewFakeClock(begin())
	s := newSite(t, c, []runtime.Object{edgeListing(`{"name":"flow"}`), old},
		[]runtime.Object{edge(v1alpha1.ControllerReady, "edge-1"), module, modbus("zz")})
	s.probe.mu.Lock()
	s.probe.silent = true
	s.probe.mu.Unlock()
	s.probe.breakStreams(true)
	// Another module shows when the controller has looked at all of them.
	s.await("zz", v1alpha1.ModuleUnknown, ReasonConfigNotPropagated)
	if got := s.module("flow").Status; got.State != v1alpha1.ModuleFault {
		t.Fatalf("state %s (%s)", got.State, got.Reason)
	}
	s.eventually("the silence is noticed", func() bool {
		c.Step(silenceCheck)
		return s.module("flow").Status.Reason == ReasonProbeUnavailable
	})
}

// Req: P-02, P-04
func TestASimulationHasNoNodeWhereAProbeCouldRun(t *testing.T) {
	s := newSite(t, clocktesting.NewFakeClock(begin()), nil, []runtime.Object{edge(v1alpha1.ControllerSimulated, ""), ofEdge("flow")})
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeUnavailable)
	if got := s.module("flow").Status; !strings.Contains(got.Message, "simulation") || s.controllerFound("flow") != "True Found" {
		t.Errorf("status %+v", got)
	}
}

// Req: P-05
func TestHowOldABeatIs(t *testing.T) {
	beating := func(c *v1alpha1.Controller, at time.Time) *v1alpha1.Controller {
		c = c.DeepCopy()
		c.Status.LastAlive = &metav1.Time{Time: at}
		return c
	}
	silent := edge(v1alpha1.ControllerSimulated, "")
	another := silent.DeepCopy()
	another.UID = "another"

	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		h := newHearts(clock.RealClock{})
		h.observe(nil, silent)
		expect := func(what string, c *v1alpha1.Controller, age time.Duration, known bool) {
			t.Helper()
			if gotAge, gotKnown := h.age(c); gotAge != age || gotKnown != known {
				t.Errorf("%s: %s old, known %t; want %s, %t", what, gotAge, gotKnown, age, known)
			}
		}
		beat := beating(silent, now.Add(-2*time.Second))
		h.observe(silent, beat)
		expect("a beat has the age that it says", beat, 2*time.Second, true)
		future := beating(silent, now.Add(time.Hour))
		h.observe(beat, future)
		expect("one that is ahead is as old as it is known", future, 0, true)
		time.Sleep(40 * time.Second)
		expect("and ages", future, 40*time.Second, true)
		time.Sleep(time.Hour - 40*time.Second)
		expect("also when its time has come", future, time.Hour, true)
		next := beating(silent, now.Add(2*time.Hour))
		h.observe(future, next)
		expect("the next one is young again", next, 0, true)

		h.observe(next, beating(another, now.Add(3*time.Hour)))
		expect("one of another Controller was found, not heard", beating(another, now.Add(3*time.Hour)), 0, false)
		h.observe(beating(another, now), nil)
		if len(h.controllers) != 0 {
			t.Error("what went is remembered")
		}
		expect("found in the future at the start, it tells nothing", next, 0, false)
		expect("found in the past, it tells its age", beat, time.Hour+2*time.Second, true)
	})
}

// Req: P-05
func TestADeadControllerWhoseClockWasAheadIsOfflineAndStaysSo(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state v1alpha1.ModuleState
		// then is what it is in the first 30 s of the server, and later what it is then.
		then, later v1alpha1.ModuleState
	}{
		{"one that was Online stays so for a stale period, and no longer", v1alpha1.ModuleOnline, v1alpha1.ModuleOnline, v1alpha1.ModuleOffline},
		{"one that was Offline does not come back by a restart", v1alpha1.ModuleOffline, v1alpha1.ModuleOffline, v1alpha1.ModuleOffline},
		{"one that was never judged waits", "", v1alpha1.ModuleUnknown, v1alpha1.ModuleOffline},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(begin())
			dead := edge(v1alpha1.ControllerSimulated, "")
			dead.Status.LastAlive = &metav1.Time{Time: begin().Add(time.Minute)}
			module := ofEdge("sim")
			module.Spec.Protocol, module.Spec.Modbus = v1alpha1.ProtocolSimulation, nil
			module.Status.State = tc.state
			s := newSite(t, c, nil, []runtime.Object{dead, module})
			is := func(want v1alpha1.ModuleState) {
				t.Helper()
				s.eventually("it is "+string(want), func() bool { return s.module("sim").Status.State == want && s.controllerFound("sim") != "" })
			}
			is(tc.then)
			c.Step(29 * time.Second)
			is(tc.then)
			s.passes(c, "it is "+string(tc.later), func() bool { return s.module("sim").Status.State == tc.later })
			// The moment that it claims to have lived at comes, and goes.
			for range 10 {
				c.Step(5 * time.Second)
				time.Sleep(5 * time.Millisecond)
				is(tc.later)
			}
		})
	}
}
