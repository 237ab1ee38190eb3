package chain

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// bootstraps is how often any of the nodes took a Bootstrap.
func (f fleet) bootstraps() (n int) {
	for _, name := range f.names {
		n += f.node(name).Bootstraps()
	}
	return n
}

// oneEtcd waits until the control planes are members of one etcd.
func (f fleet) oneEtcd(t *testing.T, names ...string) {
	t.Helper()
	want := slices.Sorted(slices.Values(names))
	harness.Eventually(t, runningLimit, func() string {
		for _, name := range names {
			if have := slices.Sorted(slices.Values(f.node(name).EtcdMembers())); !slices.Equal(have, want) {
				return fmt.Sprintf("the etcd of %s has the members %v", name, have)
			}
		}
		return ""
	})
}

// Req: A-06
func TestOfThreeControlPlanesAtOnceExactlyOneIsBootstrapped(t *testing.T) {
	t.Parallel()
	names := []string{"control-a", "control-b", "control-c"}
	// Once one is bootstrapped the others join, and until then each would let itself be bootstrapped.
	f := newFleetOf(t, newNodes(t, func(spec *plant.TalosSpec) { spec.EtcdJoin.Duration = 3 * time.Second }, names...), names...)
	for _, name := range names {
		f.pending(t, f.node(name))
	}
	// All at once, as far as that can be said.
	f.editCluster(t, `{"paused":true}`)
	for _, name := range names {
		f.approveAs(t, name, v1alpha1.RoleControlPlane)
	}
	f.editCluster(t, `{"paused":false}`)
	for _, name := range names {
		f.runs(t, name)
		sentOnce(t, f.node(name), v1alpha1.RoleControlPlane)
	}
	b := f.bootstrapped(t)
	f.oneEtcd(t, names...)
	for _, name := range names {
		want := 0
		if f.uuid(name) == b.MachineName {
			want = 1
		}
		if n := f.node(name).Bootstraps(); n != want {
			t.Errorf("%s was bootstrapped %d times; recorded is %+v", name, n, b)
		}
	}
	if n := f.bootstrapCalls(); n != 1 {
		t.Errorf("Bootstrap was called %d times", n)
	}
}

// inHand dials a running node with the cluster's bundle, as somebody does with talosctl.
func inHand(t *testing.T, node *talosnode.Node) machine.Client {
	t.Helper()
	bundle, err := render.ParseBundle(secretsBundle())
	must(t, err)
	var client machine.Client
	harness.Eventually(t, configureLimit, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if client, err = machine.Dial(ctx, node.Address(), machine.Access{Bundle: bundle, Role: machine.RoleAdmin}); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// away is a plant whose nodes take so long to install that something else may be done before they are back.
func away(took time.Duration) func(*plant.TalosSpec) {
	return func(spec *plant.TalosSpec) { spec.Install = metav1.Duration{Duration: took} }
}

// Req: A-06
func TestAnEtcdThatIsThereAlreadyIsAdopted(t *testing.T) {
	t.Parallel()
	names := []string{"control-a", "control-b"}
	f := newFleetOf(t, newNodes(t, away(8*time.Second), names...), names...)
	for _, name := range names {
		f.approveAs(t, name, v1alpha1.RoleControlPlane)
	}
	for _, name := range names {
		f.applied(t, f.uuid(name))
	}
	// Before they are back.
	f.editCluster(t, `{"paused":true}`)
	for _, name := range names {
		f.has(t, turnLimit, name, "Ready", "Unknown Paused")
		stage(t, f.node(name), talosnode.StageRunning)
	}
	if n := f.bootstrapCalls(); n > 0 {
		t.Fatalf("a paused cluster called Bootstrap %d times", n)
	}
	must(t, inHand(t, f.node("control-b")).Bootstrap(t.Context()))
	f.oneEtcd(t, names...)

	f.editCluster(t, `{"paused":false}`)
	for _, name := range names {
		f.runs(t, name)
	}
	b := f.bootstrapped(t)
	if b.IntendedAt != nil || b.MachineName == "" || b.Endpoint == "" {
		t.Errorf("what was found is recorded as %+v", b)
	}
	if n := f.bootstrapCalls(); n != 1 {
		t.Errorf("Bootstrap was called %d times, and once by hand", n)
	}
}

// Req: A-06
func TestABootstrapOfWhichNoAnswerCameIsFoundOutAndNotDoneTwice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault talosnode.Fault
		calls int
	}{
		"it was done":                    {talosnode.FaultUnanswered, 1},
		"it was done, and the node left": {talosnode.FaultLostUnanswered, 1},
		"it was not done":                {talosnode.FaultDropped, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := []string{"control-a", "control-b"}
			f := newFleetOf(t, newNodes(t, away(4*time.Second), names...), names...)
			// The one that is chosen has the lowest name, and is the only one there is at first.
			f.approveAs(t, "control-a", v1alpha1.RoleControlPlane)
			f.applied(t, f.uuid("control-a"))
			f.fault(t, "control-a", test.fault)
			intended := until(t, runningLimit, clusterName, f.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
				if b := cluster.Status.Bootstrap; b == nil || b.IntendedAt == nil {
					return fmt.Sprintf("the bootstrap is %+v", b)
				}
				return ""
			}).Status.Bootstrap
			if intended.MachineName != f.uuid("control-a") || intended.Endpoint != host(f.node("control-a")) {
				t.Errorf("the intent is recorded as %+v", intended)
			}
			eventually(t, runningLimit, "the count of calls", func() int { return min(1, f.bootstrapCalls()) }, 1)
			// Another one comes while nobody knows, and is not told to.
			f.approveAs(t, "control-b", v1alpha1.RoleControlPlane)
			f.applied(t, f.uuid("control-b"))
			stage(t, f.node("control-b"), talosnode.StageRunning)
			f.wake(t)
			f.sweepAgain(t)
			f.heal(t, "control-a")
			f.wake(t)

			b := f.bootstrapped(t)
			// The other one may be the first that says so, when it has joined.
			if b.MachineName != f.uuid("control-a") && (b.IntendedAt != nil || b.MachineName != f.uuid("control-b")) {
				t.Errorf("the bootstrap is recorded as %+v", b)
			}
			f.runs(t, "control-a")
			f.runs(t, "control-b")
			f.oneEtcd(t, names...)
			if f.bootstraps() != 1 || f.node("control-a").Bootstraps() != 1 || f.node("control-b").Calls("Bootstrap") != 0 {
				t.Errorf("Bootstrap was taken %d times, and called %d times on the other", f.bootstraps(), f.node("control-b").Calls("Bootstrap"))
			}
			if n := f.node("control-a").Calls("Bootstrap"); n != test.calls {
				t.Errorf("Bootstrap was called %d times, and %d were needed", n, test.calls)
			}
		})
	}
}
