package chain

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/test/harness"
)

// Req: P-07, P-11
func TestAnEvictedProbeMakesItsModulesUnknownAndIsMadeAnew(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "mixer", d, 1)
	s.online(t, firstLimit, "mixer")
	before := s.probe(t, probeName)
	states := s.states(t, "mixer")
	// As a kubelet leaves a pod that it ended to have room.
	evicted := before.DeepCopy()
	evicted.Status.Phase, evicted.Status.Reason, evicted.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
	for {
		_, err := env.Host().CoreV1().Pods(s.name).UpdateStatus(t.Context(), evicted, metav1.UpdateOptions{})
		if err == nil {
			break
		}
		if !isConflict(err) {
			t.Fatal(err)
		}
		evicted.ResourceVersion = podOf(t, s.name, probeName).ResourceVersion
	}
	harness.Eventually(t, time.Minute, func() string {
		pod, err := env.Host().CoreV1().Pods(s.name).Get(t.Context(), probeName, metav1.GetOptions{})
		if err != nil || pod.UID == before.UID {
			return fmt.Sprintf("the probe is not made anew (%v)", err)
		}
		return ""
	})
	s.online(t, firstLimit, "mixer")
	states.neverFaulty(t)
	if !slices.Contains(states.all(), "Unknown ProbeEvicted") {
		t.Errorf("the eviction is not told: %q", states.all())
	}
}

// Req: P-07, P-11, P-12
func TestAProbeWithTheCertificateOfAnotherNamespaceIsNotBelievedAndGetsItsOwn(t *testing.T) {
	t.Parallel()
	s, foreign, d := newSite(t), newSite(t), newDevice(t, 1, 2)
	s.add(t, "mixer", d, 1)
	foreign.add(t, "tank", d, 2)
	s.online(t, firstLimit, "mixer")
	foreign.online(t, firstLimit, "tank")
	pod := s.probe(t, probeName)
	states := s.states(t, "mixer")

	secret := func(namespace string) *corev1.Secret {
		secret, err := env.Host().CoreV1().Secrets(namespace).Get(t.Context(), probepod.TLSSecret, metav1.GetOptions{})
		must(t, err)
		return secret
	}
	wrong := secret(s.name)
	wrong.Data = secret(foreign.name).Data
	_, err := env.Host().CoreV1().Secrets(s.name).Update(t.Context(), wrong, metav1.UpdateOptions{})
	must(t, err)
	connections := d.Accepted()
	// The connection that stands was made with the former one.
	must(t, syscall.Kill(pidOf(t, pod), syscall.SIGKILL))

	harness.Eventually(t, time.Minute, func() string {
		if string(secret(s.name).Data[corev1.TLSCertKey]) == string(wrong.Data[corev1.TLSCertKey]) {
			return "the Secret still has the certificate of another namespace"
		}
		return ""
	})
	harness.Eventually(t, time.Minute, func() string {
		if d.Accepted() == connections {
			return "no other process measures the device"
		}
		return ""
	})
	// Past the time for which a broken stream costs nothing.
	time.Sleep(4 * time.Second)
	s.online(t, firstLimit, "mixer")
	if after := podOf(t, s.name, probeName); after.UID != pod.UID {
		t.Error("the probe was made anew for a certificate")
	}
	states.neverFaulty(t)
}

// A device that serves one client at a time must not meet two probes. All three run already, so that the new one is as quick as
// the former.
//
// Req: P-04, P-06, P-07, P-09
func TestADeviceWithOneConnectionMovesBetweenProbesWithoutAFault(t *testing.T) {
	t.Parallel()
	s, d, others := newSite(t), newDevice(t, 1), newDevice(t, 1, 2, 3)
	d.MaxClients(1)
	s.addController(t, "cell-1", v1alpha1.ControllerSpec{NodeName: "node-b"})
	places := map[string]func(*v1alpha1.IOModuleSpec){
		"shared":     func(*v1alpha1.IOModuleSpec) {},
		"zone":       inZone("a"),
		"controller": of("cell-1"),
	}
	probes, unit := map[string]string{}, int32(0)
	for name, place := range places {
		unit++
		s.add(t, name, others, unit, place)
		probes[name] = s.online(t, firstLimit, name).Status.ProbePodName
	}
	s.add(t, "pump", d, 1)
	s.online(t, firstLimit, "pump")
	states := s.states(t, "pump")
	for _, name := range []string{"controller", "zone", "shared", "controller", "shared", "zone", "controller"} {
		s.change(t, "pump", func(spec *v1alpha1.IOModuleSpec) {
			spec.ControllerRef, spec.ProbePlacement = nil, nil
			places[name](spec)
		})
		until(t, firstLimit, "pump", s.modules.Watch, func(m *v1alpha1.IOModule) string {
			if m.Status.State != v1alpha1.ModuleOnline || m.Status.ProbePodName != probes[name] || m.Status.ObservedGeneration != m.Generation {
				return fmt.Sprintf("is %s, measured by %s, not by %s", stateOf(m), m.Status.ProbePodName, probes[name])
			}
			return ""
		})
	}
	states.neverFaulty(t)

	// Deleted and declared anew, it is another object, of which nothing is known.
	must(t, s.modules.Delete(t.Context(), "pump", metav1.DeleteOptions{}))
	s.add(t, "pump", d, 1)
	s.online(t, firstLimit, "pump")
	states.neverFaulty(t)
}
