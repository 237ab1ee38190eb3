package chain

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

// Req: P-07, P-11
func TestALostProbeMakesNoDeviceFaultAndMeasuringGoesOn(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, site, *corev1.Pod){
		"its process is killed": func(t *testing.T, _ site, pod *corev1.Pod) {
			must(t, syscall.Kill(pidOf(t, pod), syscall.SIGKILL))
		},
		"its pod is deleted": func(t *testing.T, s site, pod *corev1.Pod) {
			must(t, env.Host().CoreV1().Pods(s.name).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		},
		"its process hangs": func(t *testing.T, s site, pod *corev1.Pod) {
			must(t, syscall.Kill(pidOf(t, pod), syscall.SIGSTOP))
			// Three heartbeats, and the moment until it shows.
			s.verdict(t, 6*time.Second, "mixer", v1alpha1.ModuleUnknown, "ProbeUnavailable")
			// The kubelet finds out by the liveness probe, and starts it anew.
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := newSite(t), newDevice(t, 1)
			s.add(t, "mixer", d, 1)
			s.online(t, firstLimit, "mixer")
			pod := s.probe(t, probeName)
			states, connections := s.states(t, "mixer"), d.Accepted()

			lose(t, s, pod)
			harness.Eventually(t, time.Minute, func() string {
				if d.Accepted() == connections {
					return "no other process measures the device"
				}
				return ""
			})
			s.online(t, firstLimit, "mixer")
			if d.Open() != 1 {
				t.Errorf("%d connections to the device are open", d.Open())
			}
			states.neverFaulty(t)
		})
	}
}

// Req: P-11
func TestWhenTheNodeOfAProbeIsLostMeasuringGoesOnElsewhereWithinAMinute(t *testing.T) {
	// On a node of its own: whatever else ran there would be lost too. It takes nothing else from the moment when it has this probe.
	pool := map[string]string{"pool": "spare"}
	must(t, env.Cluster.AddNode(t.Context(), "spare-1", pool))
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "mixer", d, 1, func(spec *v1alpha1.IOModuleSpec) {
		spec.ProbePlacement = &v1alpha1.ProbePlacement{NodeSelector: pool}
	})
	name := s.online(t, firstLimit, "mixer").Status.ProbePodName
	env.MustKubectl(t, "", "cordon", "spare-1")
	must(t, env.Cluster.AddNode(t.Context(), "spare-2", pool))
	before := s.probe(t, name)
	if before.Spec.NodeName != "spare-1" {
		t.Fatalf("the probe runs on %s", before.Spec.NodeName)
	}
	t.Parallel()

	states, connections := s.states(t, "mixer"), d.Accepted()
	lost := time.Now()
	must(t, env.Cluster.LoseNode("spare-1"))
	// The node is dead, not only cut off: its probe measures nothing any more, and nobody starts it anew.
	keepStopped(t, before)
	s.verdict(t, 6*time.Second, "mixer", v1alpha1.ModuleUnknown, "ProbeUnavailable")

	s.online(t, time.Minute-time.Since(lost), "mixer")
	after := podOf(t, s.name, name)
	if after.UID == before.UID || after.Spec.NodeName != "spare-2" {
		t.Errorf("the module is measured by pod %s on %s", after.UID, after.Spec.NodeName)
	}
	if d.Accepted() == connections {
		t.Error("nobody has connected to the device since")
	}
	states.neverFaulty(t)
	events := withReason(eventsOn(t, s.name, "Pod", name), corev1.EventTypeWarning, "ProbeNodeLost")
	if len(events) != 1 || !containsAll(events[0], "spare-1") {
		t.Errorf("the loss is told %d times: %q", len(events), events)
	}
}

// Req: P-11, P-12
func TestAProbeLetsInItsNamespaceAndTheControllersAlone(t *testing.T) {
	t.Parallel()
	own, foreign, d := newSite(t), newSite(t), newDevice(t, 1, 2)
	own.add(t, "mixer", d, 1)
	foreign.add(t, "tank", d, 2)
	own.online(t, firstLimit, "mixer")
	foreign.online(t, firstLimit, "tank")
	address := net.JoinHostPort(podOf(t, own.name, probeName).Status.PodIP, strconv.Itoa(probepod.APIPort))

	credentials := func(namespace string) api.Credentials {
		secret, err := env.Host().CoreV1().Secrets(namespace).Get(t.Context(), probepod.TLSSecret, metav1.GetOptions{})
		must(t, err)
		c, err := api.StaticCredentials(secret.Data["ca.crt"], secret.Data["tls.crt"], secret.Data["tls.key"])
		must(t, err)
		return c
	}
	dial := (&net.Dialer{Timeout: 2 * time.Second}).DialContext

	list, err := probeclient.New(address, own.name, credentials(own.name), dial, clock.RealClock{}).List(t.Context())
	if err != nil || len(list.Modules) != 1 || list.Modules[0].Name != "mixer" {
		t.Fatalf("a peer of the namespace sees %+v, %v", list, err)
	}
	var alert tls.AlertError
	if list, err := probeclient.New(address, own.name, credentials(foreign.name), dial, clock.RealClock{}).List(t.Context()); !refusedByPeer(err, &alert) {
		t.Errorf("a peer of another namespace sees %+v, %v", list, err)
	}
	// Neither is a probe taken for one of another namespace.
	var wrongName x509.HostnameError
	if list, err := probeclient.New(address, foreign.name, credentials(foreign.name), dial, clock.RealClock{}).List(t.Context()); !errors.As(err, &wrongName) {
		t.Errorf("a probe is taken for one of another namespace: %+v, %v", list, err)
	}
	_, roots, err := credentials(own.name)()
	must(t, err)
	nobody := func() (*tls.Certificate, *x509.CertPool, error) { return &tls.Certificate{}, roots, nil }
	if list, err := probeclient.New(address, own.name, nobody, dial, clock.RealClock{}).List(t.Context()); !refusedByPeer(err, &alert) {
		t.Errorf("a peer without a certificate sees %+v, %v", list, err)
	}
}

// refusedByPeer tells whether the other side ended the handshake by an alert.
func refusedByPeer(err error, alert *tls.AlertError) bool {
	var remote *net.OpError
	return errors.As(err, alert) || errors.As(err, &remote) && fmt.Sprint(remote.Op) == "remote error"
}

// keepStopped stops a pod's process, and each one that takes its place, until the test ends.
func keepStopped(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pidFile := filepath.Join(env.Dir, "cluster", "run", fmt.Sprintf("pod-%s-%s.pid", pod.UID, probepod.ContainerName))
	if pid := child.Alive(pidFile); pid != pidOf(t, pod) {
		t.Fatalf("%s names process %d, not the pod's", pidFile, pid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if pid := child.Alive(pidFile); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if pid := child.Alive(pidFile); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}
