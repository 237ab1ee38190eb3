package provider

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAChangedConfigMapReachesItsFileByItselfOrAtOnceWithAnAnnotation(t *testing.T) {
	for name, test := range map[string]struct {
		refresh  time.Duration
		announce func(p *Provider, pod *corev1.Pod) error
	}{
		"by itself after the refresh time": {
			refresh: 50 * time.Millisecond,
			announce: func(p *Provider, pod *corev1.Pod) error {
				p.ObjectChanged(ConfigMap, "site", "settings")
				return nil
			},
		},
		"at once with a new annotation": {
			refresh: time.Hour,
			announce: func(p *Provider, pod *corev1.Pod) error {
				pod.Annotations = map[string]string{"hash": "2"}
				return p.UpdatePod(t.Context(), pod)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(corev1.Container{Name: "main", Image: "io-probe"}, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
			}})
			p := newTestRunner(t, pod).p
			p.config.VolumeRefresh = test.refresh
			p.config.PidDir = t.TempDir()
			if err := os.WriteFile(filepath.Join(p.config.BinDir, "io-probe"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := p.CreatePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Stop(0) })
			shows := func(want string) {
				t.Helper()
				path := filepath.Join(p.config.Dir, "site_probe_u-1", "volumes", "v", "level")
				for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
					content, err := os.ReadFile(path)
					if err == nil && string(content) == want {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("the file shows %q, %v, want %q", content, err, want)
					}
				}
			}
			shows("7")
			if _, err := p.config.Client.CoreV1().ConfigMaps("site").Update(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "settings"}, Data: map[string]string{"level": "8"},
			}, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := test.announce(p, pod.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			shows("8")
		})
	}
}
