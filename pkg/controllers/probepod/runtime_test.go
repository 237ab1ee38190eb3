package probepod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ofUnit() Pod {
	return Pod{
		Namespace: "site-north", Name: "unit-runtime-mixer", Kind: Unit, Image: "registry/unit-runtime:v1", ConfigHash: "aa",
		NodeSelector: map[string]string{"zone": "a"},
		Owner:        &metav1.OwnerReference{Kind: "Unit", Name: "mixer", UID: "u"},
	}
}

// Req: P-10, P-15
func TestARuntimeDiffersFromAProbeInItsProgramAndItsState(t *testing.T) {
	pod := Build(ofUnit())
	c := pod.Spec.Containers[0]
	want := []string{
		"--config=/etc/fieldplane/unit-runtime/config.json",
		"--tls-dir=/etc/fieldplane/tls",
		"--credentials-dir=/etc/fieldplane/credentials",
		"--listen=$(POD_IP):9443",
		"--health-listen=$(POD_IP):9080",
		"--namespace=$(POD_NAMESPACE)",
		"--state-file=/var/lib/fieldplane/state.json",
	}
	if !slices.Equal(c.Args, want) {
		t.Errorf("args %q, want %q", c.Args, want)
	}
	if !slices.Equal(c.Command, []string{"unit-runtime"}) || c.Image != "registry/unit-runtime:v1" || c.Name != RuntimeContainerName {
		t.Errorf("command %q of image %q in %s", c.Command, c.Image, c.Name)
	}
	writable := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return !m.ReadOnly })
	if writable < 0 || c.VolumeMounts[writable].MountPath != "/var/lib/fieldplane" || c.VolumeMounts[writable].Name != "state" {
		t.Errorf("mounts %+v, want one that can be written", c.VolumeMounts)
	}
	if v := pod.Spec.Volumes; v[0].ConfigMap.Name != "unit-runtime-mixer" || v[len(v)-1].EmptyDir == nil || v[len(v)-1].Name != "state" {
		t.Errorf("volumes %+v", v)
	}
	if pod.Spec.NodeSelector["zone"] != "a" || len(pod.OwnerReferences) != 1 || len(pod.Spec.Tolerations) != 0 || pod.Spec.Affinity != nil {
		t.Errorf("selector %v, owners %v, tolerations %v", pod.Spec.NodeSelector, pod.OwnerReferences, pod.Spec.Tolerations)
	}
	probe := Build(shared())
	alike := func(pod *corev1.Pod) *corev1.PodSpec {
		rest := pod.Spec.DeepCopy()
		rest.NodeSelector, rest.Volumes = nil, nil
		c := &rest.Containers[0]
		c.Name, c.Image, c.Command, c.Args, c.VolumeMounts, c.Resources.Limits = "", "", nil, nil, nil, nil
		return rest
	}
	if specHash(*alike(pod)) != specHash(*alike(probe)) {
		t.Error("differs from a probe in more than its program, its limits and its state")
	}
}

// Req: P-15
func TestWhoFollowsProbesDoesNotMeetRuntimes(t *testing.T) {
	runtime, probe := Build(ofUnit()), Build(shared())
	if _, met := runtime.Labels[KindLabel]; met || IsProbe(runtime) || !IsOurs(runtime, Unit) {
		t.Errorf("a runtime has labels %v", runtime.Labels)
	}
	if _, met := probe.Labels[RuntimeLabel]; met || IsOurs(probe, Unit) {
		t.Errorf("a probe has labels %v", probe.Labels)
	}
}

// Req: P-15
func TestEveryUnitHasARuntimeNameOfItsOwn(t *testing.T) {
	long := strings.Repeat("a", 253)
	names := map[string]string{}
	for _, unit := range []string{
		"mixer", "mixer.1", long[:maxReadable], long[:maxReadable+1], long[:253], long[:252] + "b",
		long[:maxReadable-3] + "...xy", long[:maxReadable-3] + "---xy", "a" + strings.Repeat("-", 250) + "b", "a" + strings.Repeat("-", 250) + "c",
	} {
		name := RuntimeName(unit)
		if other, taken := names[name]; taken {
			t.Errorf("%s and %s are both %s", unit, other, name)
		}
		names[name] = unit
		if len(name) > 253 {
			t.Errorf("%s has %d characters", name, len(name))
		}
		if strings.Contains(name, ".-") {
			t.Errorf("%s is no name of a pod", name)
		}
	}
	if got := RuntimeName("mixer"); got != "unit-runtime-mixer" {
		t.Errorf("the runtime of mixer is %s", got)
	}
}

// Req: P-15
func TestAnObjectIsAUnitsRuntimeByItsLabelsNameAndAnnotationTogether(t *testing.T) {
	object := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := Build(ofUnit())
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, UnitAnnotation, "mixer")
		if change != nil {
			change(pod)
		}
		return pod
	}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"as it was made", object(nil), true},
		{"another manager", object(func(p *corev1.Pod) { p.Labels[ManagedByLabel] = "Helm" }), false},
		{"without the annotation", object(func(p *corev1.Pod) { delete(p.Annotations, UnitAnnotation) }), false},
		{"another Unit's name in the annotation", object(func(p *corev1.Pod) { p.Annotations[UnitAnnotation] = "boiler" }), false},
		{"a copy under another name", object(func(p *corev1.Pod) { p.Name = "unit-runtime-copy" }), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, got := UnitOf(tc.pod); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
