package chain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/test/harness"
)

// addController declares a Controller.
func (s site) addController(t *testing.T, name string, spec v1alpha1.ControllerSpec) *v1alpha1.Controller {
	t.Helper()
	c, err := s.client.PhysicalV1alpha1().Controllers(s.name).Create(t.Context(), &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	must(t, err)
	return c
}

// changeController edits a Controller's spec, again if somebody was faster.
func (s site) changeController(t *testing.T, name string, edit func(*v1alpha1.ControllerSpec)) {
	t.Helper()
	client := s.client.PhysicalV1alpha1().Controllers(s.name)
	for {
		c, err := client.Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		edit(&c.Spec)
		if _, err = client.Update(t.Context(), c, metav1.UpdateOptions{}); err == nil {
			return
		} else if !isConflict(err) {
			t.Fatal(err)
		}
	}
}

// of binds a module to a Controller.
func of(controller string) func(*v1alpha1.IOModuleSpec) {
	return func(spec *v1alpha1.IOModuleSpec) {
		spec.ControllerRef = &v1alpha1.ControllerReference{Name: controller}
	}
}

// leavesNothing waits until no pod and no ConfigMap of a probe is left.
func (s site) leavesNothing(t *testing.T, limit time.Duration) {
	t.Helper()
	harness.Eventually(t, limit, func() string {
		of := metav1.ListOptions{LabelSelector: probepod.KindLabel}
		pods, err := env.Host().CoreV1().Pods(s.name).List(t.Context(), of)
		must(t, err)
		configMaps, err := env.Host().CoreV1().ConfigMaps(s.name).List(t.Context(), of)
		must(t, err)
		if len(pods.Items)+len(configMaps.Items) > 0 {
			return fmt.Sprintf("%d pods and %d ConfigMaps are left", len(pods.Items), len(configMaps.Items))
		}
		return ""
	})
}

// measuredOn waits until a module is Online by a probe on a node, and returns its pod.
func (s site) measuredOn(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	until(t, firstLimit, name, s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.State != v1alpha1.ModuleOnline || m.Status.ObservedGeneration != m.Generation {
			return "is " + stateOf(m)
		}
		var err error
		if pod, err = env.Host().CoreV1().Pods(s.name).Get(t.Context(), m.Status.ProbePodName, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if pod.Spec.NodeName != node {
			return fmt.Sprintf("is measured on %s, not on %s", pod.Spec.NodeName, node)
		}
		return ""
	})
	return pod
}

// Req: P-03, P-04, P-06, P-10
func TestABoundModuleIsMeasuredOnItsControllersNodeWhicheverThatIs(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1, 2, 3)
	// A node that takes nobody else: it is cordoned and tainted.
	own := "cell-of-" + s.name
	must(t, env.Cluster.AddNode(t.Context(), own, nil))
	env.MustKubectl(t, "", "taint", "node", own, "example.com/cell=1:NoSchedule")
	env.MustKubectl(t, "", "cordon", own)

	s.addController(t, "cell-1", v1alpha1.ControllerSpec{NodeName: own})
	s.addController(t, "cell-2", v1alpha1.ControllerSpec{NodeName: "node-b"})
	s.add(t, "pump", d, 1, of("cell-1"))
	s.add(t, "valve", d, 2, of("cell-1"))
	s.add(t, "mixer", d, 3, of("cell-2"))
	pod := s.measuredOn(t, "pump", own)
	if again := s.measuredOn(t, "valve", own); again.UID != pod.UID {
		t.Errorf("two modules of a Controller have two probes: %s, %s", pod.Name, again.Name)
	}
	if other := s.measuredOn(t, "mixer", "node-b"); other.Name == pod.Name {
		t.Errorf("two Controllers have one probe: %s", other.Name)
	}
	pump := s.online(t, onlineLimit, "pump").Status
	if c := condition(pump.Conditions, "ControllerFound"); c != "True Found" {
		t.Errorf("ControllerFound is %q", c)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "Controller" || owner.Name != "cell-1" {
		t.Errorf("the pod's owners are %+v", pod.OwnerReferences)
	}
	if pods := s.probePods(t); len(pods) != 2 {
		t.Errorf("two probes are needed, and there are %q", pods)
	}

	// Another Controller, another node, no Controller: the module moves, and nothing stays behind.
	states := s.states(t, "pump")
	s.change(t, "pump", of("cell-2"))
	s.measuredOn(t, "pump", "node-b")
	s.changeController(t, "cell-2", func(spec *v1alpha1.ControllerSpec) { spec.NodeName = "node-a" })
	s.measuredOn(t, "pump", "node-a")
	s.measuredOn(t, "mixer", "node-a")
	s.change(t, "pump", func(spec *v1alpha1.IOModuleSpec) { spec.ControllerRef = nil })
	free := until(t, firstLimit, "pump", s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.State != v1alpha1.ModuleOnline || m.Status.ProbePodName != probeName {
			return fmt.Sprintf("is %s, measured by %s", stateOf(m), m.Status.ProbePodName)
		}
		return ""
	}).Status
	if c := condition(free.Conditions, "ControllerFound"); c != "" {
		t.Errorf("a stale ControllerFound is left: %s", c)
	}
	states.neverFaulty(t)

	// The node goes altogether.
	must(t, env.Cluster.RemoveNode(t.Context(), own))
	s.verdict(t, onlineLimit, "valve", v1alpha1.ModuleUnknown, "AwaitingNode")
	untilGone(t, onlineLimit, "the probe of a Controller that awaits its node", func() error {
		_, err := env.Host().CoreV1().Pods(s.name).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err
	})
	must(t, s.modules.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.leavesNothing(t, 2*onlineLimit)
}

// Req: P-04, P-07, P-11
func TestWhenTheNodeOfAControllerIsLostItsModulesAreUnknownAndItsProbeWaitsForIt(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	own := "cell-of-" + s.name
	must(t, env.Cluster.AddNode(t.Context(), own, nil))
	// Whatever else ran there would be lost too.
	env.MustKubectl(t, "", "cordon", own)
	s.addController(t, "cell-1", v1alpha1.ControllerSpec{NodeName: own})
	s.add(t, "pump", d, 1, of("cell-1"))
	pod := s.measuredOn(t, "pump", own)
	states := s.states(t, "pump")

	must(t, env.Cluster.LoseNode(own))
	lost := s.verdict(t, time.Minute, "pump", v1alpha1.ModuleUnknown, "ControllerNotReady").Status
	if c := condition(lost.Conditions, "ControllerFound"); c != "True Found" || lost.Health != "" || !strings.Contains(lost.Message, "cell-1") {
		t.Errorf("a module that nobody measures: %+v", lost)
	}
	// As long as after what a shared probe would be made anew elsewhere (15 s).
	harness.Eventually(t, 2*onlineLimit, func() string {
		if told := withReason(eventsOn(t, s.name, "Controller", "cell-1"), corev1.EventTypeWarning, "ProbeNodeLost"); len(told) != 1 || !strings.Contains(told[0], own) {
			return fmt.Sprintf("the loss is told so: %q", told)
		}
		return ""
	})
	must(t, env.Cluster.RestoreNode(t.Context(), own))
	s.online(t, onlineLimit, "pump")
	if after := podOf(t, s.name, pod.Name); after.UID != pod.UID {
		t.Error("the probe was made anew, though it can run nowhere else")
	}
	states.neverFaulty(t)
}

// Req: P-04, P-08, P-12
func TestNothingIsLeftOfAControllersProbeInWhateverOrderThingsGo(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(*testing.T, site){
		"the Controller first": func(t *testing.T, s site) {
			must(t, s.client.PhysicalV1alpha1().Controllers(s.name).Delete(t.Context(), "cell-1", metav1.DeleteOptions{}))
			unbound := s.verdict(t, onlineLimit, "pump", v1alpha1.ModuleUnknown, "ControllerNotFound").Status
			if c := condition(unbound.Conditions, "ControllerFound"); c != "False ControllerNotFound" || unbound.ProbePodName != "" {
				t.Errorf("a module whose Controller is gone: %+v", unbound)
			}
			s.leavesNothing(t, 2*onlineLimit)
			must(t, s.modules.Delete(t.Context(), "pump", metav1.DeleteOptions{}))
		},
		"the module first": func(t *testing.T, s site) {
			must(t, s.modules.Delete(t.Context(), "pump", metav1.DeleteOptions{}))
			s.leavesNothing(t, 2*onlineLimit)
			must(t, s.client.PhysicalV1alpha1().Controllers(s.name).Delete(t.Context(), "cell-1", metav1.DeleteOptions{}))
		},
		"a Controller that waits for what it owns": func(t *testing.T, s site) {
			foreground := metav1.DeletePropagationForeground
			must(t, s.client.PhysicalV1alpha1().Controllers(s.name).Delete(t.Context(), "cell-1", metav1.DeleteOptions{PropagationPolicy: &foreground}))
			untilGone(t, time.Minute, "the Controller", func() error {
				_, err := s.client.PhysicalV1alpha1().Controllers(s.name).Get(t.Context(), "cell-1", metav1.GetOptions{})
				return err
			})
		},
		"both at once": func(t *testing.T, s site) {
			must(t, s.client.PhysicalV1alpha1().Controllers(s.name).Delete(t.Context(), "cell-1", metav1.DeleteOptions{}))
			must(t, s.modules.Delete(t.Context(), "pump", metav1.DeleteOptions{}))
		},
		"a Controller of that name comes again": func(t *testing.T, s site) {
			controllers := s.client.PhysicalV1alpha1().Controllers(s.name)
			must(t, controllers.Delete(t.Context(), "cell-1", metav1.DeleteOptions{}))
			again := s.addController(t, "cell-1", v1alpha1.ControllerSpec{NodeName: "node-a"})
			harness.Eventually(t, firstLimit, func() string {
				pods, err := env.Host().CoreV1().Pods(s.name).List(t.Context(), metav1.ListOptions{LabelSelector: probepod.KindLabel})
				must(t, err)
				if len(pods.Items) != 1 || metav1.GetControllerOf(&pods.Items[0]).UID != again.UID {
					return "no pod is the new Controller's"
				}
				return ""
			})
			s.measuredOn(t, "pump", "node-a")
			must(t, controllers.Delete(t.Context(), "cell-1", metav1.DeleteOptions{}))
		},
		"the namespace": func(t *testing.T, s site) {
			must(t, env.Host().CoreV1().Namespaces().Delete(t.Context(), s.name, metav1.DeleteOptions{}))
			untilGone(t, time.Minute, "the namespace", func() error {
				_, err := env.Host().CoreV1().Namespaces().Get(t.Context(), s.name, metav1.GetOptions{})
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := newSite(t), newDevice(t, 1)
			s.addController(t, "cell-1", v1alpha1.ControllerSpec{NodeName: "node-a"})
			s.add(t, "pump", d, 1, of("cell-1"))
			s.measuredOn(t, "pump", "node-a")
			remove(t, s)
			s.leavesNothing(t, 2*onlineLimit)
			harness.Eventually(t, onlineLimit, func() string {
				if d.Open() > 0 {
					return "the device is still connected"
				}
				return ""
			})
		})
	}
}

// Should this server be away when a Controller goes, the host cluster removes what the Controller owned: it has to know our kinds
// for that, over the aggregation layer.
//
// Req: P-04
func TestTheHostClusterRemovesWhatADeletedControllerOwned(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	configMaps := env.Host().CoreV1().ConfigMaps(s.name)
	owned := map[string]*v1alpha1.Controller{}
	for _, name := range []string{"stays", "goes"} {
		owned[name] = s.addController(t, name, v1alpha1.ControllerSpec{})
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Controller", Name: name, UID: owned[name].UID,
			}},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	must(t, s.client.PhysicalV1alpha1().Controllers(s.name).Delete(t.Context(), "goes", metav1.DeleteOptions{}))
	// The garbage collector looks for new kinds every 30 s.
	untilGone(t, time.Minute, "what the deleted Controller owned", func() error {
		_, err := configMaps.Get(t.Context(), "goes", metav1.GetOptions{})
		return err
	})
	if _, err := configMaps.Get(context.WithoutCancel(t.Context()), "stays", metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			t.Error("what a living Controller owns is removed too")
		} else {
			t.Error(err)
		}
	}
}
