package iomodule

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// errUntrusted is what a follower gets of a probe of another CA.
var errUntrusted = &url.Error{Op: "Get", URL: "https://192.0.2.100:9443", Err: errors.Join(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}

// refuseStreams ends all streams, and lets none be had for this reason; nil lets them be had again.
func (f *fakeProbe) refuseStreams(why error) {
	f.mu.Lock()
	f.refuse = why
	f.mu.Unlock()
	f.breakStreams(false)
}

// passes lets time pass until done.
func (s *site) passes(c *clocktesting.FakeClock, what string, done func() bool) {
	s.t.Helper()
	s.eventually(what, func() bool {
		c.Step(silenceCheck)
		return done()
	})
}

func (s *site) is(name, reason string) func() bool {
	return func() bool { return s.module(name).Status.Reason == reason }
}

// Req: P-07, P-11
func TestARefusedCertificateIsToldAndReportedAndHeals(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	s := online(t, c)
	s.probe.refuseStreams(errUntrusted)
	s.eventually("the stream waits to be opened again", c.HasWaiters)
	s.eventually("whoever mends it is told at once", func() bool {
		c.Step(time.Millisecond)
		return s.distrusted.Load() > 0
	})
	if got := s.module("flow").Status; got.State != v1alpha1.ModuleOnline {
		t.Errorf("a stream that may come back made it %s (%s)", got.State, got.Reason)
	}
	s.passes(c, "it is told", s.is("flow", ReasonProbeDistrusted))
	if got := s.module("flow").Status; got.State != v1alpha1.ModuleUnknown || !strings.Contains(got.Message, "certificates") {
		t.Errorf("status %+v", got)
	}
	s.probe.refuseStreams(errors.New("connection refused"))
	s.passes(c, "another trouble is another reason", s.is("flow", ReasonProbeUnavailable))
	s.probe.refuseStreams(errUntrusted)
	s.passes(c, "and back", s.is("flow", ReasonProbeDistrusted))
	s.probe.refuseStreams(nil)
	s.passes(c, "it is heard again", s.is("flow", api.ReasonConnected))
}

// Req: P-07, P-11
func TestAProbeThatWasEvictedOrEndedIsToldAsThat(t *testing.T) {
	s := online(t, clocktesting.NewFakeClock(begin()))
	pod := running("p1")
	pod.Spec.NodeName = "n1"
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	s.updatePod(pod)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeEvicted)
	if got := s.module("flow").Status.Message; !strings.Contains(got, "n1") {
		t.Errorf("message %q", got)
	}
	pod.Status.Reason = ""
	s.updatePod(pod)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeEnded)
}

// Req: P-07, P-11
func TestASilentProbeOnALostNodeIsToldAsThat(t *testing.T) {
	node := func(ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready}}}}
	}
	pod := running("p1")
	pod.Spec.NodeName = "n1"
	c := clocktesting.NewFakeClock(begin())
	s := newSite(t, c, []runtime.Object{listing(`{"name":"flow"}`), pod, node(corev1.ConditionTrue)}, []runtime.Object{modbus("flow"), modbus("zz")})
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	becomes := func(ready corev1.ConditionStatus) {
		t.Helper()
		if _, err := s.host.CoreV1().Nodes().Update(s.ctx, node(ready), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// What is measured is measured, whatever the cluster thinks of the node.
	becomes(corev1.ConditionUnknown)
	s.probe.say(says("flow", true, false, "Timeout"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")
	s.probe.breakStreams(true)
	s.passes(c, "it is told", s.is("flow", ReasonProbeNodeLost))
	if got := s.module("flow").Status; got.State != v1alpha1.ModuleUnknown || !strings.Contains(got.Message, "node n1 is unreachable") {
		t.Errorf("status %+v", got)
	}
	becomes(corev1.ConditionTrue)
	s.await("flow", v1alpha1.ModuleUnknown, ReasonProbeUnavailable)
}
