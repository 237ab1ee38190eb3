package channels

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

func module(edits ...func(*physical.IOModule)) *physical.IOModule {
	m := &physical.IOModule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "mixer", UID: "u-1"},
		Spec:       physical.IOModuleSpec{Protocol: physical.ProtocolOPCUA},
		Status:     physical.IOModuleStatus{State: physical.ModuleOnline, ProbePodName: "network-io-probe"},
	}
	for _, edit := range edits {
		edit(m)
	}
	return m
}

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "network-io-probe"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "192.0.2.9"},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// Req: P-06, P-12
func TestAPageIsWhatTheModulesOwnProbeTells(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var asked []any
	reader := NewReader(fake.NewClientset(pod()).CoreV1(), func(_ context.Context, namespace, address, uid string, limit int, token string) (*api.ChannelPage, error) {
		asked = []any{namespace, address, uid, limit, token}
		return &api.ChannelPage{
			DiscoveredAt: at, Truncated: true, Continue: "next", Remaining: 5,
			Items: []driver.ChannelInfo{
				{
					Name: "Plant/Speed", Address: "nsu=urn:x;s=Speed", DataType: driver.Float64, Count: 1, Access: driver.AccessReadWrite,
					Unit: "1/min", Range: &driver.Range{Low: 0, High: 3000},
				},
				{Name: "declared", Address: "holding:1", Declared: true, Problem: driver.ReasonConfigurationError, Message: "no such register"},
				{Name: "one too many"},
			},
		}, nil
	})

	page, err := reader.Page(t.Context(), module(), 2, "token")
	if err != nil {
		t.Fatal(err)
	}
	if want := []any{"site-a", "192.0.2.9:9443", "u-1", 2, "token"}; !equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if len(page.Items) != 2 || page.Continue != "next" || page.RemainingItemCount == nil || *page.RemainingItemCount != 5 || !page.Truncated || !page.DiscoveredAt.Time.Equal(at) {
		t.Fatalf("page %+v", page)
	}
	speed, refused := page.Items[0], page.Items[1]
	if speed.Address != "nsu=urn:x;s=Speed" || speed.DataType != physical.DataTypeFloat64 || speed.Access != physical.AccessReadWrite ||
		speed.Unit != "1/min" || speed.Range == nil || speed.Range.High != 3000 || speed.Count != 1 || speed.Declared {
		t.Errorf("speed %+v", speed)
	}
	if !refused.Declared || refused.Problem != "ConfigurationError" || refused.Message != "no such register" {
		t.Errorf("refused %+v", refused)
	}
}

func equal(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Req: P-06, P-07, A-04
func TestWithoutAProbeThatAnswersTheErrorSaysWhy(t *testing.T) {
	said := func(reason api.ErrorReason, message string) error {
		return &api.Error{Reason: reason, Message: message}
	}
	unavailable := apierrors.IsServiceUnavailable
	for _, test := range []struct {
		name   string
		module *physical.IOModule
		pods   []runtime.Object
		answer error
		fits   func(error) bool
		text   string
	}{
		{name: "nothing measures it", module: module(func(m *physical.IOModule) {
			m.Status = physical.IOModuleStatus{State: physical.ModuleUnknown, Reason: "ProbeUnavailable", Message: "the pod is pending"}
		}), fits: unavailable, text: "Unknown (ProbeUnavailable): the pod is pending"},
		{name: "the pod is gone", module: module(), fits: unavailable, text: "network-io-probe, is gone"},
		{name: "the pod waits", module: module(), pods: []runtime.Object{pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })}, fits: unavailable, text: "does not run"},
		{name: "the pod has no address", module: module(), pods: []runtime.Object{pod(func(p *corev1.Pod) { p.Status.PodIP = "" })}, fits: unavailable, text: "does not run"},
		{name: "the probe does not know it", module: module(), pods: []runtime.Object{pod()}, answer: said(api.ErrorNotFound, "no such module"), fits: unavailable, text: "no such module"},
		{name: "not discovered", module: module(), pods: []runtime.Object{pod()}, answer: said(api.ErrorNotDiscovered, "Timeout: browsing"), fits: unavailable, text: "Timeout: browsing"},
		{name: "discovered anew", module: module(), pods: []runtime.Object{pod()}, answer: said(api.ErrorExpired, "x"), fits: apierrors.IsResourceExpired, text: "without continue"},
		{name: "a token of somebody else's", module: module(), pods: []runtime.Object{pod()}, answer: said(api.ErrorInvalid, "continue is not ours"), fits: apierrors.IsBadRequest, text: "continue is not ours"},
		{name: "a probe that is silent", module: module(), pods: []runtime.Object{pod()}, answer: context.DeadlineExceeded, fits: apierrors.IsTimeout, text: "in time"},
		{name: "a probe of another namespace", module: module(), pods: []runtime.Object{pod()}, answer: errors.New("x509: bad"), fits: unavailable, text: "x509: bad"},
	} {
		t.Run(test.name, func(t *testing.T) {
			reader := NewReader(fake.NewClientset(test.pods...).CoreV1(), func(context.Context, string, string, string, int, string) (*api.ChannelPage, error) {
				if test.answer == nil {
					t.Error("asked a probe")
				}
				return nil, test.answer
			})
			if _, err := reader.Page(t.Context(), test.module, 10, ""); !test.fits(err) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("have %v, want %q", err, test.text)
			}
		})
	}
}

// Req: P-05, P-06
func TestASimulationHasWhatItsSpecificationDeclares(t *testing.T) {
	simulated := module(func(m *physical.IOModule) {
		m.Spec.Protocol, m.Status.ProbePodName = physical.ProtocolSimulation, ""
		m.Spec.Channels = []physical.Channel{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	})
	reader := NewReader(fake.NewClientset().CoreV1(), nil)
	var names []string
	token := ""
	for range 3 {
		page, err := reader.Page(t.Context(), simulated, 2, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.Items {
			names = append(names, c.Name)
		}
		if token = page.Continue; token == "" {
			break
		}
		if *page.RemainingItemCount != 1 {
			t.Errorf("%d remain", *page.RemainingItemCount)
		}
	}
	if strings.Join(names, "") != "abc" || token != "" {
		t.Errorf("have %v, then %q", names, token)
	}
	for _, bad := range []string{"x", "declared-4", "declared--1", "declared-"} {
		if _, err := reader.Page(t.Context(), simulated, 2, bad); !apierrors.IsBadRequest(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
