package probepod

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func shared() Pod {
	return Pod{Namespace: "site-north", Name: "network-io-probe", Kind: Network, Image: "registry/io-probe:v1", ConfigHash: "aa"}
}

func pinned() Pod {
	p := shared()
	p.NodeSelector = map[string]string{"zone": "a"}
	return p
}

func ofController() Pod {
	p := shared()
	p.Kind, p.NodeName = Controller, "edge-1"
	p.Owner = &metav1.OwnerReference{Kind: "Controller", Name: "edge-1", UID: "u"}
	return p
}

// Req: P-10, P-08, P-09, P-04
func TestTheThreeKindsOfProbeDifferInPinAndOwnerAlone(t *testing.T) {
	for _, tc := range []struct {
		name     string
		probe    Pod
		selector map[string]string
		node     string
		owners   int
	}{
		{name: "a shared probe has no pin and no owner", probe: shared()},
		{name: "a shared probe of a zone is pinned by the selector and has no owner", probe: pinned(), selector: map[string]string{"zone": "a"}},
		{name: "a Controller's probe is pinned to the node and owned by the Controller", probe: ofController(), node: "edge-1", owners: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := Build(tc.probe)
			if len(pod.Spec.NodeSelector) != len(tc.selector) || pod.Spec.NodeSelector["zone"] != tc.selector["zone"] {
				t.Errorf("node selector %v, want %v", pod.Spec.NodeSelector, tc.selector)
			}
			node := ""
			if a := pod.Spec.Affinity; a != nil {
				node = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
			}
			if node != tc.node {
				t.Errorf("pinned to node %q, want %q", node, tc.node)
			}
			if pod.Spec.NodeName != "" {
				t.Error("goes past the scheduler")
			}
			// The pin is of no use if a taint of that node undoes it; without a pin taints are to be obeyed.
			toleratesAll := len(pod.Spec.Tolerations) == 1 && pod.Spec.Tolerations[0] == corev1.Toleration{Operator: corev1.TolerationOpExists}
			if tc.node != "" && !toleratesAll || tc.node == "" && len(pod.Spec.Tolerations) > 0 {
				t.Errorf("tolerates %v", pod.Spec.Tolerations)
			}
			if len(pod.OwnerReferences) != tc.owners {
				t.Errorf("owners %v, want %d", pod.OwnerReferences, tc.owners)
			}
			rest := pod.Spec.DeepCopy()
			rest.NodeSelector, rest.Affinity, rest.Tolerations = nil, nil, nil
			if specHash(*rest) != specHash(Build(shared()).Spec) {
				t.Error("differs from the others in more than that")
			}
			if !IsOurs(pod, tc.probe.Kind) {
				t.Error("does not count as ours")
			}
		})
	}
}

// Req: P-10, P-11
func TestTheContainerIsToldWhatIoProbeNeeds(t *testing.T) {
	pod := Build(shared())
	c := pod.Spec.Containers[0]
	want := []string{
		"--config=/etc/fieldplane/io-probe/config.json",
		"--tls-dir=/etc/fieldplane/tls",
		"--credentials-dir=/etc/fieldplane/credentials",
		"--listen=$(POD_IP):9443",
		"--health-listen=$(POD_IP):9080",
		"--namespace=$(POD_NAMESPACE)",
	}
	if !slices.Equal(c.Args, want) {
		t.Errorf("args %q, want %q", c.Args, want)
	}
	if !slices.Equal(c.Command, []string{"io-probe"}) || c.Image != "registry/io-probe:v1" {
		t.Errorf("command %q of image %q", c.Command, c.Image)
	}
	for path, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.IntValue() != HealthPort {
			t.Errorf("health probe %v, want %s on %d", probe.HTTPGet, path, HealthPort)
		}
	}
	sources := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			sources[v.Name] = "ConfigMap " + v.ConfigMap.Name
		case v.Secret != nil && v.Secret.Optional != nil && *v.Secret.Optional:
			sources[v.Name] = "optional Secret " + v.Secret.SecretName
		case v.Secret != nil:
			sources[v.Name] = "Secret " + v.Secret.SecretName
		}
	}
	for _, m := range c.VolumeMounts {
		want := map[string]string{
			"/etc/fieldplane/io-probe":    "ConfigMap network-io-probe",
			"/etc/fieldplane/tls":         "Secret fieldplane-tls",
			"/etc/fieldplane/credentials": "optional Secret fieldplane-device-credentials",
		}[m.MountPath]
		if sources[m.Name] != want || !m.ReadOnly {
			t.Errorf("%s holds %s, read-only %t; want %s", m.MountPath, sources[m.Name], m.ReadOnly, want)
		}
	}
	if len(c.VolumeMounts) != 3 {
		t.Errorf("%d mounts, want 3", len(c.VolumeMounts))
	}
	if *pod.Spec.AutomountServiceAccountToken {
		t.Error("the probe gets a token of the cluster")
	}
}

// Req: P-11
func TestTheSpecHashFollowsTheSpecAndNotTheConfig(t *testing.T) {
	before := Build(shared()).Annotations
	config, image := shared(), shared()
	config.ConfigHash = "bb"
	image.Image = "registry/io-probe:v2"
	if after := Build(config).Annotations; after[SpecHashAnnotation] != before[SpecHashAnnotation] || after[ConfigHashAnnotation] == before[ConfigHashAnnotation] {
		t.Error("a new configuration looks like a new pod")
	}
	if after := Build(image).Annotations; after[SpecHashAnnotation] == before[SpecHashAnnotation] {
		t.Error("a new image looks like the same pod")
	}
}

// Req: P-08
func TestOnlyBothLabelsMakeAnObjectOurs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   bool
	}{
		{"both labels", map[string]string{ManagedByLabel: ManagedBy, KindLabel: string(Network)}, true},
		{"no labels", nil, false},
		{"another manager", map[string]string{ManagedByLabel: "Helm", KindLabel: string(Network)}, false},
		{"the manager alone", map[string]string{ManagedByLabel: ManagedBy}, false},
		{"another kind of probe", map[string]string{ManagedByLabel: ManagedBy, KindLabel: string(Controller)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := IsOurs(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}, Network); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
