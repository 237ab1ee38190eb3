package taloscluster

import (
	"context"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// Req: A-08
func TestWhatIsShownOfACluster(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	created := metav1.ObjectMeta{Name: "line2", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
	spec := talos.TalosClusterSpec{ControlPlaneEndpoint: "https://192.0.2.1:6443", TalosVersion: "v1.13", KubernetesVersion: "v1.36.2"}
	for _, tc := range []struct {
		name    string
		cluster talos.TalosCluster
		want    []any
	}{
		{
			name: "swept",
			cluster: talos.TalosCluster{ObjectMeta: created, Spec: spec, Status: talos.TalosClusterStatus{
				Machines: talos.MachineCounts{Total: 6, Pending: 2, Running: 3, Failed: 1},
				Discovery: &talos.DiscoveryStatus{
					CompletedAt: ptr.To(metav1.NewTime(now.Add(-20 * time.Second))), Candidates: 254, Answered: 6,
					Weak: make([]talos.WeakCandidate, 1), Collisions: make([]talos.IdentityCollision, 2),
				},
			}},
			want: []any{"line2", "https://192.0.2.1:6443", int64(6), int64(2), int64(3), int64(1), "<none>", "20s", "6/254", "v1.13", "v1.36.2", "1", "2", "false", "60m"},
		},
		{
			name: "its first sweep is running",
			cluster: talos.TalosCluster{ObjectMeta: created, Spec: spec, Status: talos.TalosClusterStatus{
				Discovery: &talos.DiscoveryStatus{StartedAt: ptr.To(metav1.NewTime(now)), Candidates: 254, Asked: 12},
			}},
			want: []any{"line2", "https://192.0.2.1:6443", int64(0), int64(0), int64(0), int64(0), "<none>", "12/254", "0/254", "v1.13", "v1.36.2", "0", "0", "false", "60m"},
		},
		{
			name: "never swept, and paused",
			cluster: talos.TalosCluster{ObjectMeta: created, Spec: talos.TalosClusterSpec{
				ControlPlaneEndpoint: "https://192.0.2.1", TalosVersion: "v1.13", KubernetesVersion: "v1.36.2", Paused: true,
			}},
			want: []any{"line2", "https://192.0.2.1", int64(0), int64(0), int64(0), int64(0), "Paused", "<none>", "<none>", "v1.13", "v1.36.2", "<none>", "<none>", "true", "60m"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := newTable(clocktesting.NewFakePassiveClock(now)).ConvertToTable(context.Background(), &tc.cluster, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := table.Rows[0].Cells; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("shown\n%v, want\n%v", got, tc.want)
			}
		})
	}
}

// Req: A-08
func TestTheReasonIsWhatStopsTheCluster(t *testing.T) {
	of := func(paused bool, list ...metav1.Condition) *talos.TalosCluster {
		return &talos.TalosCluster{Spec: talos.TalosClusterSpec{Paused: paused}, Status: talos.TalosClusterStatus{Conditions: list}}
	}
	noBundle := metav1.Condition{Type: "BundleReady", Status: "False", Reason: "BundleNotFound"}
	waits := metav1.Condition{Type: "Bootstrapped", Status: "False", Reason: "NoControlPlane"}
	for _, tc := range []struct {
		name    string
		cluster *talos.TalosCluster
		want    string
	}{
		{"nothing", of(false, metav1.Condition{Type: "BundleReady", Status: "True"}, metav1.Condition{Type: "DiscoveryReady", Status: "True"}), ""},
		{"nothing is known", of(false), ""},
		{"paused, before all else", of(true, noBundle), "Paused"},
		{"the bundle", of(false, waits, noBundle), "BundleNotFound"},
		{"the sweep", of(false, metav1.Condition{Type: "DiscoveryReady", Status: "False", Reason: "RegistrationFailed"}), "RegistrationFailed"},
		{"etcd, where discovery is off on purpose", of(false, metav1.Condition{Type: "DiscoveryReady", Status: "False", Reason: "NoRanges"}, waits), "NoControlPlane"},
	} {
		if have := reason(tc.cluster); have != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, have, tc.want)
		}
	}
}
