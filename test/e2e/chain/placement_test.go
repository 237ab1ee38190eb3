package chain

import (
	"fmt"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

var hashedName = regexp.MustCompile(`^network-io-probe-[0-9a-f]+$`)

// Req: P-08, P-09
func TestEachSelectorHasAProbeOnItsNodesAndAModuleMovesWithItsSelector(t *testing.T) {
	t.Parallel()
	s, d, tank := newSite(t), newDevice(t, 1, 2, 3, 4), newDevice(t, 1)
	s.add(t, "in-a", d, 1, inZone("a"))
	s.add(t, "in-b", tank, 1, inZone("b"))
	s.add(t, "anywhere", d, 3)
	s.add(t, "empty", d, 4, func(spec *v1alpha1.IOModuleSpec) {
		spec.ProbePlacement = &v1alpha1.ProbePlacement{NodeSelector: map[string]string{}}
	})

	probes := map[string]string{}
	for _, name := range []string{"in-a", "in-b", "anywhere", "empty"} {
		probes[name] = s.online(t, firstLimit, name).Status.ProbePodName
	}
	if probes["anywhere"] != probeName || probes["empty"] != probeName {
		t.Errorf("modules without a selector are measured by %q and %q", probes["anywhere"], probes["empty"])
	}
	if probes["in-a"] == probes["in-b"] || !hashedName.MatchString(probes["in-a"]) || !hashedName.MatchString(probes["in-b"]) {
		t.Fatalf("modules with two selectors are measured by %q and %q", probes["in-a"], probes["in-b"])
	}
	for module, node := range map[string]string{"in-a": "node-a", "in-b": "node-b"} {
		if pod := podOf(t, s.name, probes[module]); pod.Spec.NodeName != node {
			t.Errorf("%s is measured on %s, not on %s", module, pod.Spec.NodeName, node)
		}
	}
	if pods := s.probePods(t); len(pods) != 3 {
		t.Errorf("three probes are needed, and there are %q", pods)
	}

	// The selector changes: the module moves, and the probe that has none left goes.
	s.change(t, "in-b", inZone("a"))
	until(t, firstLimit, "in-b", s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.State != v1alpha1.ModuleOnline || m.Status.ProbePodName != probes["in-a"] || m.Status.ObservedGeneration != m.Generation {
			return fmt.Sprintf("is %s, measured by %s", stateOf(m), m.Status.ProbePodName)
		}
		return ""
	})
	untilGone(t, onlineLimit, "the probe without modules", func() error {
		_, err := env.Host().CoreV1().Pods(s.name).Get(t.Context(), probes["in-b"], metav1.GetOptions{})
		return err
	})
	untilGone(t, onlineLimit, "its ConfigMap", func() error {
		_, err := env.Host().CoreV1().ConfigMaps(s.name).Get(t.Context(), probes["in-b"], metav1.GetOptions{})
		return err
	})
	// The former probe has let go of the device.
	harness.Eventually(t, onlineLimit, func() string {
		if tank.Open() != 1 {
			return fmt.Sprintf("%d connections to the device are open", tank.Open())
		}
		return ""
	})

	// Without a selector it is the unpinned probe's, which exists already.
	plain := podOf(t, s.name, probeName)
	s.change(t, "in-b", func(spec *v1alpha1.IOModuleSpec) { spec.ProbePlacement = nil })
	until(t, firstLimit, "in-b", s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.State != v1alpha1.ModuleOnline || m.Status.ProbePodName != probeName {
			return fmt.Sprintf("is %s, measured by %s", stateOf(m), m.Status.ProbePodName)
		}
		return ""
	})
	if podOf(t, s.name, probeName).UID != plain.UID {
		t.Error("the unpinned probe was made anew for one more module")
	}
}

// Req: P-09
func TestASelectorThatNoNodeHasIsToldAndHealsWhenOneComes(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	zone := "zone-of-" + s.name
	s.add(t, "mixer", d, 1, inZone(zone))
	lonely := s.verdict(t, firstLimit, "mixer", v1alpha1.ModuleUnknown, "ProbeUnschedulable")
	if !containsAll(lonely.Status.Message, "zone="+zone) {
		t.Errorf("the message does not name the selector: %q", lonely.Status.Message)
	}
	name := "node-of-" + s.name
	must(t, env.Cluster.AddNode(t.Context(), name, map[string]string{"zone": zone}))
	s.online(t, firstLimit, "mixer")
}

func (s site) probePods(t *testing.T) []string {
	t.Helper()
	pods, err := env.Host().CoreV1().Pods(s.name).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}
