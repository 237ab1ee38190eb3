package channels

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Req: P-12 (a probe is in the hands of whoever edits its namespace)
func TestWhatAProbeSaysIsBoundedAndSafeToShow(t *testing.T) {
	bad := "\x1b[2Jowned\u202e\x00" + strings.Repeat("x", 1<<20)
	var page *api.ChannelPage
	var failure error
	reader := NewReader(fake.NewClientset(pod()).CoreV1(), func(context.Context, string, string, string, int, string) (*api.ChannelPage, error) {
		return page, failure
	})
	page = &api.ChannelPage{Items: []driver.ChannelInfo{{
		Name: bad, DeviceType: bad, DataType: driver.DataType(bad), Unit: bad, Message: bad, Problem: driver.Reason(bad), Access: driver.Access(bad), Count: -1,
	}}}
	got, err := reader.Page(t.Context(), module(), 10, "")
	if err != nil {
		t.Fatal(err)
	}
	c := got.Items[0]
	for _, text := range []string{c.Name, c.DeviceType, string(c.DataType), c.Unit, c.Message, c.Problem, string(c.Access)} {
		if len(text) > 1024 || strings.ContainsAny(text, "\x1b\x00\u202e") || !strings.HasPrefix(text, "[2Jowned") {
			t.Errorf("%d bytes that begin with %.20q", len(text), text)
		}
	}
	if c.Count != 0 {
		t.Errorf("%d elements", c.Count)
	}

	page = &api.ChannelPage{Continue: strings.Repeat("c", 1<<20)}
	if _, err := reader.Page(t.Context(), module(), 10, ""); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a continue of a MiB: %v", err)
	}
	for _, failure = range []error{errors.New(bad), &api.Error{Reason: api.ErrorInvalid, Message: bad}, &api.Error{Reason: api.ErrorNotFound, Message: bad}} {
		if _, err := reader.Page(t.Context(), module(), 10, ""); err == nil || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 4096 {
			t.Errorf("%.80q", err)
		}
	}
}

// Req: P-12 (who lets a probe hang keeps nobody else from theirs)
func TestAProbeThatHangsTakesNoTurnsOfOtherNamespaces(t *testing.T) {
	hanging := make(chan struct{})
	in := func(namespace string) (*physical.IOModule, *corev1.Pod) {
		return module(func(m *physical.IOModule) { m.Namespace = namespace }), pod(func(p *corev1.Pod) { p.Namespace = namespace })
	}
	theirs, theirPod := in("site-b")
	ours, ourPod := in("site-a")
	var asked sync.WaitGroup
	reader := NewReader(fake.NewClientset(theirPod, ourPod).CoreV1(), func(_ context.Context, namespace, _, _ string, _ int, _ string) (*api.ChannelPage, error) {
		if namespace == "site-b" {
			asked.Done()
			<-hanging
		}
		return &api.ChannelPage{}, nil
	})
	var running sync.WaitGroup
	asked.Add(maxNamespaceTurns)
	for range maxNamespaceTurns {
		running.Go(func() {
			if _, err := reader.Page(context.Background(), theirs, 10, ""); err != nil {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	if _, err := reader.Page(t.Context(), theirs, 10, ""); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more of the same namespace: %v", err)
	}
	if _, err := reader.Page(t.Context(), ours, 10, ""); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	close(hanging)
	running.Wait()
	asked.Add(1)
	if _, err := reader.Page(t.Context(), theirs, 10, ""); err != nil {
		t.Errorf("after they ended: %v", err)
	}
	if n := len(reader.turns.byNamespace); n != 0 || reader.turns.all != 0 {
		t.Errorf("%d namespaces and %d turns are left", n, reader.turns.all)
	}
}
