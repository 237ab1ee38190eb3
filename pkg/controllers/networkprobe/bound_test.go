package networkprobe

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// edge is a Controller that is a node, or awaits it when that is "".
func edge(node string) *v1alpha1.Controller {
	c := &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edge", UID: "uid-of-edge"}}
	c.Spec.NodeName = "whatever the specification says"
	c.Status.Phase = v1alpha1.ControllerAwaitingNode
	if node != "" {
		c.Status.Phase, c.Status.NodeName = v1alpha1.ControllerReady, node
	}
	return c
}

func bound(name, controller string) *v1alpha1.IOModule {
	module := modbus(name, nil)
	module.Spec.ControllerRef = &v1alpha1.ControllerReference{Name: controller}
	return module
}

func (p *plant) control(controllers ...*v1alpha1.Controller) {
	p.t.Helper()
	for _, c := range controllers {
		if err := p.controllers.Add(c); err != nil {
			p.t.Fatal(err)
		}
	}
}

// edgeProbe is the name of its probe.
func edgeProbe() string { return controllerBaseName("edge") }

// Req: P-04, P-08, P-10
func TestTheLifeOfAControllersProbe(t *testing.T) {
	p := newPlant(t)
	name := edgeProbe()
	p.add(bound("flow", "edge"))
	p.expect("without a Controller there is nothing")
	p.control(edge(""))
	p.expect("nor while it awaits its node")
	p.control(edge("edge-1"))
	p.expect("with a node there is a probe", "create configmap "+name, "create pod "+name)

	pod := p.pod(name)
	term := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	if term.MatchFields[0].Values[0] != "edge-1" || !probepod.IsOurs(pod, probepod.Controller) || pod.Annotations[ControllerAnnotation] != "edge" {
		t.Errorf("the pod is %+v", pod)
	}
	cm, err := p.host.CoreV1().ConfigMaps(ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, owners := range map[string][]metav1.OwnerReference{"pod": pod.OwnerReferences, "ConfigMap": cm.OwnerReferences} {
		if len(owners) != 1 || owners[0].APIVersion != "physical.fieldplane.dev/v1alpha1" || owners[0].Kind != "Controller" ||
			owners[0].Name != "edge" || owners[0].UID != "uid-of-edge" || owners[0].BlockOwnerDeletion != nil {
			t.Errorf("the %s is owned by %+v", what, owners)
		}
	}
	if ControllerOf(cm) != "edge" || p.listed(name) != "flow" {
		t.Errorf("the ConfigMap is %+v", cm)
	}

	p.add(bound("level", "edge"), bound("lost", "another"))
	p.expect("one more module changes the ConfigMap alone", "update configmap "+name, "patch pod "+name)
	moved := edge("edge-2")
	p.control(moved)
	p.expect("a Controller that is another node takes its probe there", "delete pod "+name, "create pod "+name)
	moved.Status.Phase = v1alpha1.ControllerNotReady
	p.control(moved)
	p.expect("a node that is not ready keeps it")
	renewed := edge("edge-2")
	renewed.UID = "another"
	p.control(renewed)
	p.expect("another Controller of that name owns it", "update configmap "+name, "delete pod "+name, "create pod "+name)

	simulated := edge("edge-2")
	simulated.Spec.Simulation = true
	for what, change := range map[string]func(){
		"its last modules go":        func() { p.remove(bound("flow", "edge")); p.remove(bound("level", "edge")) },
		"the Controller goes":        func() { _ = p.controllers.Delete(renewed) },
		"the Controller has no node": func() { p.control(edge("")) },
		"it becomes a simulation":    func() { p.control(simulated) },
		"the Controller is going": func() {
			going := edge("edge-2")
			going.DeletionTimestamp = &metav1.Time{Time: begin()}
			p.control(going)
		},
	} {
		p.control(renewed)
		p.add(bound("flow", "edge"), bound("level", "edge"))
		p.settle()
		change()
		p.expect("nothing is left when "+what, "delete pod "+name, "delete configmap "+name)
	}
}

// Req: P-04, P-06, P-08
func TestAModuleMovesBetweenTheSharedProbeAndAControllers(t *testing.T) {
	p := newPlant(t)
	name := edgeProbe()
	p.control(edge("edge-1"))
	p.add(modbus("flow", nil), modbus("level", nil))
	p.settle()
	p.add(bound("flow", "edge"))
	p.expect("it leaves the shared probe first",
		"update configmap "+BaseName, "patch pod "+BaseName, "create configmap "+name, "create pod "+name)
	p.add(bound("level", "edge"))
	p.expect("the last one takes the shared probe with it",
		"delete pod "+BaseName, "delete configmap "+BaseName, "update configmap "+name, "patch pod "+name)
	p.add(modbus("flow", nil))
	p.expect("and back",
		"update configmap "+name, "patch pod "+name, "create configmap "+BaseName, "create pod "+BaseName)
}

// Req: P-04, P-09
func TestAControllersProbeHasShardsToo(t *testing.T) {
	p := newPlant(t)
	name := edgeProbe()
	p.control(edge("edge-1"))
	var all []*v1alpha1.IOModule
	for _, n := range names(1, MaxModules+1) {
		all = append(all, bound(n, "edge"))
	}
	p.add(all...)
	p.expect("as many as one probe carries", "create configmap "+name, "create pod "+name)
	first := p.listed(name)
	p.add(bound("a", "edge"))
	p.expect("one more", "create configmap "+name+"-2", "create pod "+name+"-2")
	if p.listed(name) != first || p.listed(name+"-2") != "a" {
		t.Errorf("the second shard lists %s", p.listed(name+"-2"))
	}
	if err := p.controllers.Delete(edge("edge-1")); err != nil {
		t.Fatal(err)
	}
	p.settle()
	if got := p.listed(name) + p.listed(name+"-2"); got != "absentabsent" {
		t.Errorf("without the Controller there is %s", got)
	}
}

// Req: P-11
func TestAControllersProbeStaysOnItsLostNodeAndTheControllerIsTold(t *testing.T) {
	p := newPlant(t, node("edge-1", nil, corev1.ConditionTrue, begin()))
	name := edgeProbe()
	p.control(edge("edge-1"))
	p.add(bound("flow", "edge"))
	p.settle()
	pod := p.pod(name)
	pod.Spec.NodeName, pod.Status.Phase = "edge-1", corev1.PodRunning
	p.update(pod)
	p.settle()
	if err := p.host.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
		node("edge-1", nil, corev1.ConditionUnknown, p.clock.Now()), ""); err != nil {
		t.Fatal(err)
	}
	if after, err := p.once(); err != nil || after != hosted.NodeLostAfter || len(p.writes) > 0 {
		t.Fatalf("is looked at again after %s, %v; wrote %q", after, err, p.writes)
	}
	if got := p.events(); got != "" {
		t.Errorf("a moment is told: %s", got)
	}
	p.clock.Step(hosted.NodeLostAfter)
	p.expect("it can go nowhere")
	if got := p.events(); strings.Count(got, "ProbeNodeLost Node edge-1 is unreachable: probe "+name) != 1 {
		t.Errorf("events: %s", got)
	}

	pod.Spec.NodeName = ""
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	p.update(pod)
	p.expect("one that its node does not take")
	if got := p.events(); !strings.Contains(got, "ProbeUnschedulable The probe needs node edge-1: node edge-1 is unreachable") {
		t.Errorf("events: %s", got)
	}
}

// Req: P-04, P-09
func TestNamesOfControllersProbes(t *testing.T) {
	seen := map[string]string{}
	for _, controller := range []string{
		"edge", "edge-2", "edge.2", "2", "network", "cell-1", "edge-0123456789", "edge-0123456789-2",
		strings.Repeat("a", 199) + "." + strings.Repeat("b", 53), strings.Repeat("a", 199) + "." + strings.Repeat("c", 53), strings.Repeat("a.", 126) + "a",
	} {
		for _, n := range []int{1, 2, 99999999} {
			name := shardName(controllerBaseName(controller), n)
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Errorf("%s: %v", name, problems)
			}
			base, gotN, ok := parseName(name)
			if !ok || base != controllerBaseName(controller) || gotN != n {
				t.Errorf("%s reads as %s, %d, %t", name, base, gotN, ok)
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%s is the name for %s and %s", name, controller, other)
			}
			seen[name] = fmt.Sprintf("%s, %d", controller, n)
		}
	}
	if got := controllerBaseName("cell-1"); !strings.HasPrefix(got, "controller-io-probe-cell-1-") {
		t.Errorf("%s does not name the Controller", got)
	}
}

// Req: P-03, P-04
func TestWhereAControllersProbeBelongs(t *testing.T) {
	with := func(change func(*v1alpha1.Controller)) *v1alpha1.Controller {
		c := edge("edge-1")
		change(c)
		return c
	}
	for name, tc := range map[string]struct {
		controller *v1alpha1.Controller
		want       string
	}{
		"no Controller":         {nil, ""},
		"a new one":             {&v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}, Spec: v1alpha1.ControllerSpec{NodeName: "n"}}, ""},
		"one that awaits":       {edge(""), ""},
		"one that is ready":     {edge("edge-1"), "edge-1"},
		"one that is not ready": {with(func(c *v1alpha1.Controller) { c.Status.Phase = v1alpha1.ControllerNotReady }), "edge-1"},
		"a simulation":          {with(func(c *v1alpha1.Controller) { c.Status.Phase = v1alpha1.ControllerSimulated }), ""},
		"one that goes":         {with(func(c *v1alpha1.Controller) { c.DeletionTimestamp = &metav1.Time{} }), ""},
		"one that awaits, with the name of a node of before": {
			with(func(c *v1alpha1.Controller) { c.Status.Phase = v1alpha1.ControllerAwaitingNode }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NodeOf(tc.controller); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
