package taloscluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fieldplane/fieldplane/apis/talos"
)

func declared(change func(*talos.TalosCluster)) *talos.TalosCluster {
	cluster := &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "plant", Name: "line2"}}
	cluster.Spec.Discovery.Addresses = []string{"192.0.2.1"}
	change(cluster)
	return cluster
}

// Req: T-10. Times are kept by the second; the sweep that answers a request must not seem to have begun before it, and no
// two requests may look like one.
func TestWhenASweepIsAskedForIsNeverBeforeItWasAndOnlyEverGrows(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	}
	for _, tc := range []struct {
		name string
		// requests are the moments of each; want is what stands in status after each, 0 if it is refused.
		requests, want []float64
	}{
		{"on the second", []float64{10}, []float64{10}},
		{"within a second", []float64{10.2}, []float64{11}},
		{"two in one second", []float64{10.2, 10.4}, []float64{11, 12}},
		{"a third in that second has to wait for the next", []float64{10.2, 10.4, 10.6, 11.1}, []float64{11, 12, 0, 13}},
		{"one a second", []float64{10, 11, 12}, []float64{10, 11, 12}},
		{"a clock that was set back by a second", []float64{10.5, 9.5}, []float64{11, 0}},
		{"a clock that was set back by a day, so that the old request will never be answered", []float64{86400, 10}, []float64{86400, 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := declared(func(*talos.TalosCluster) {})
			for i, request := range tc.requests {
				err := ask(cluster, at(request))
				if tc.want[i] == 0 {
					if !apierrors.IsTooManyRequests(err) {
						t.Fatalf("at %v: %v", request, err)
					}
					continue
				}
				if have := cluster.Status.Discovery.RequestedAt; err != nil || !have.Time.Equal(at(tc.want[i])) {
					t.Fatalf("at %v: %v, %v", request, have, err)
				}
			}
		})
	}
}

// Req: T-01, T-10, T-18a
func TestNoSweepIsAskedForWhereNoneWouldCome(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name    string
		cluster *talos.TalosCluster
		says    string
	}{
		{"discovery is off", declared(func(c *talos.TalosCluster) { c.Spec.Discovery.Addresses = nil }), "discovery is off"},
		{"paused", declared(func(c *talos.TalosCluster) { c.Spec.Paused = true }), "spec.paused"},
		{"being deleted", declared(func(c *talos.TalosCluster) { c.DeletionTimestamp = &metav1.Time{Time: now} }), "being deleted"},
	} {
		err := ask(tc.cluster, now)
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "line2") || tc.cluster.Status.Discovery != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	ranges := declared(func(c *talos.TalosCluster) {
		c.Spec.Discovery = talos.TalosDiscovery{Cidrs: []string{"192.0.2.0/24"}}
		c.Status.Discovery = &talos.DiscoveryStatus{Candidates: 254, StartedAt: &metav1.Time{Time: now}}
	})
	if err := ask(ranges, now); err != nil || ranges.Status.Discovery.Candidates != 254 || ranges.Status.Discovery.StartedAt == nil {
		t.Errorf("the rest of status is changed: %v, %+v", err, ranges.Status.Discovery)
	}
}

// Req: A-04. What is refused before anything is read.
func TestARequestForASweepIsCheckedBeforeItIsWritten(t *testing.T) {
	discover := &Discover{}
	admitted := errors.New("admission was asked")
	admit := func(context.Context, runtime.Object) error { return admitted }
	for name, tc := range map[string]struct {
		obj  runtime.Object
		fits func(error) bool
	}{
		"another cluster's name": {&talos.DiscoveryRequest{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, apierrors.IsBadRequest},
		"another kind":           {&talos.TalosCluster{}, apierrors.IsBadRequest},
		"admission refuses":      {&talos.DiscoveryRequest{ObjectMeta: metav1.ObjectMeta{Name: "line2"}}, func(err error) bool { return errors.Is(err, admitted) }},
	} {
		if _, err := discover.Create(context.Background(), "line2", tc.obj, admit, &metav1.CreateOptions{}); !tc.fits(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
