package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

const (
	// runningLimit is for the way from an approval to a machine that runs and is ready, with others under way beside it.
	runningLimit = 90 * time.Second
	// turnLimit is for a change that waits for the turn of another machine, or for the next look at its own.
	turnLimit = 90 * time.Second
)

// fleet is a cell and the nodes that its cluster declares, one plant's, so that they know each other.
type fleet struct {
	cell
	plant *plant.Plant
	names []string
}

// lastNode counts the nodes of all fleets: each has its own address in 127.0.77.0/24, and its own hardware by that.
var lastNode atomic.Int32

// newNodes is a plant of machines to be, each at an address of its own.
func newNodes(t *testing.T, edit func(*plant.TalosSpec), names ...string) *plant.Plant {
	t.Helper()
	var spec plant.Spec
	for _, name := range names {
		n := int(lastNode.Add(1))
		if n > 199 {
			t.Fatal("no address is left in 127.0.77.0/24")
		}
		one := plant.TalosSpec{Name: name, Address: fmt.Sprintf("127.0.77.%d", n), Hardware: box(77<<8 + n)}
		if edit != nil {
			edit(&one)
		}
		spec.Talos = append(spec.Talos, one)
	}
	return startPlant(t, spec)
}

// newFleet declares a cluster with a bundle that looks for new nodes of these names.
func newFleet(t *testing.T, names ...string) fleet {
	t.Helper()
	return newFleetOf(t, newNodes(t, nil, names...), names...)
}

func newFleetOf(t *testing.T, p *plant.Plant, names ...string) fleet {
	t.Helper()
	f := fleet{plant: p, names: names}
	var list []string
	for _, name := range names {
		list = append(list, host(p.Node(name)))
	}
	f.cell = newCell(t, addresses(list...)).withBundle(t, secretsBundle())
	f.tellsNothing(t)
	return f
}

func (f fleet) node(name string) *talosnode.Node { return f.plant.Node(name) }

// uuid is the name of a node's machine.
func (f fleet) uuid(name string) string { return f.node(name).Hardware().UUID }

func (f fleet) fault(t *testing.T, name string, fault talosnode.Fault) {
	t.Helper()
	must(t, f.plant.Fault(name, string(fault)))
}

func (f fleet) heal(t *testing.T, name string) {
	t.Helper()
	must(t, f.plant.Heal(name))
}

// approveAs approves a node's machine past the plugin, which most tests do not speak of.
func (f fleet) approveAs(t *testing.T, name string, role v1alpha1.MachineRole, edits ...func(*v1alpha1.TalosMachineSpec)) {
	t.Helper()
	m := f.pending(t, f.node(name))
	f.approveDirectly(t, m, func(spec *v1alpha1.TalosMachineSpec) {
		spec.Role = role
		spec.Network = &v1alpha1.MachineNetwork{Hostname: name}
		if role == v1alpha1.RoleControlPlane {
			spec.AcceptedFingerprint = f.node(name).Fingerprint()
		}
		for _, edit := range edits {
			edit(spec)
		}
	})
}

// run brings the first node up as a control plane, the others as workers, and waits for them.
func (f fleet) run(t *testing.T, names ...string) {
	t.Helper()
	for i, name := range names {
		role := v1alpha1.RoleWorker
		if i == 0 {
			role = v1alpha1.RoleControlPlane
		}
		f.approveAs(t, name, role)
	}
	for _, name := range names {
		f.runs(t, name)
	}
}

// runs waits until a node's machine runs, is ready, and is what it was sent.
func (f fleet) runs(t *testing.T, name string) *v1alpha1.TalosMachine {
	t.Helper()
	return f.machine(t, runningLimit, name, func(m *v1alpha1.TalosMachine) string {
		switch {
		case m.Status.Phase != v1alpha1.MachineRunning:
			return fmt.Sprintf("phase is %q", m.Status.Phase)
		case condition(m.Status.Conditions, "Ready") != "True Ready":
			return fmt.Sprintf("Ready is %q", condition(m.Status.Conditions, "Ready"))
		case condition(m.Status.Conditions, "UpToDate") != "True UpToDate":
			return fmt.Sprintf("UpToDate is %q", condition(m.Status.Conditions, "UpToDate"))
		}
		return ""
	})
}

// machine waits until missing returns "" for a node's machine.
func (f fleet) machine(t *testing.T, limit time.Duration, name string, missing func(*v1alpha1.TalosMachine) string) *v1alpha1.TalosMachine {
	t.Helper()
	return until(t, limit, f.uuid(name), f.machines.Watch, missing)
}

// has waits until a condition of a node's machine is "Status Reason"; "" is none.
func (f fleet) has(t *testing.T, limit time.Duration, name, kind, want string) *v1alpha1.TalosMachine {
	t.Helper()
	return f.machine(t, limit, name, func(m *v1alpha1.TalosMachine) string {
		if have := condition(m.Status.Conditions, kind); have != want {
			return fmt.Sprintf("%s is %q, not %q", kind, have, want)
		}
		return ""
	})
}

// get is a node's machine as it is.
func (f fleet) get(t *testing.T, name string) *v1alpha1.TalosMachine {
	t.Helper()
	m, err := f.machines.Get(t.Context(), f.uuid(name), metav1.GetOptions{})
	must(t, err)
	return m
}

// edit changes a node's machine by a merge patch of its spec.
func (f fleet) edit(t *testing.T, name, spec string) *v1alpha1.TalosMachine {
	t.Helper()
	m, err := f.machines.Patch(t.Context(), f.uuid(name), types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	must(t, err)
	return m
}

// editCluster changes the cluster by a merge patch of its spec.
func (c cell) editCluster(t *testing.T, spec string) *v1alpha1.TalosCluster {
	t.Helper()
	cluster, err := c.clusters.Patch(t.Context(), clusterName, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	must(t, err)
	return cluster
}

// wake has every machine of the cluster looked at now, by a change of the cluster that changes nothing for them: an address more
// is declared, at which nobody listens.
func (f fleet) wake(t *testing.T) {
	t.Helper()
	cluster, err := f.clusters.Get(t.Context(), clusterName, metav1.GetOptions{})
	must(t, err)
	list := cluster.Spec.Discovery.Addresses
	list = append(list, fmt.Sprintf("127.0.79.%d", len(list)))
	text, err := json.Marshal(map[string]any{"discovery": map[string]any{"addresses": list}})
	must(t, err)
	f.editCluster(t, string(text))
}

// sent are the configurations that a node was given to keep: those that it was only to try are none.
func sent(node *talosnode.Node) []talosnode.Received {
	return slices.DeleteFunc(node.Configurations(), func(r talosnode.Received) bool { return r.DryRun })
}

// sentOnce fails the test unless a node was given one configuration in all, of its first installation.
func sentOnce(t *testing.T, node *talosnode.Node, role v1alpha1.MachineRole) {
	t.Helper()
	got := sent(node)
	if len(got) != 1 || !got[0].Accepted || got[0].Authenticated || got[0].Role != string(role) {
		t.Errorf("node %s was sent %+v, not one configuration of a %s", node.Name(), got, role)
	}
}

// hashOf is the hash of what a node runs with.
func hashOf(node *talosnode.Node) string {
	sum := sha256.Sum256(node.Configuration())
	return hex.EncodeToString(sum[:])
}

// bootstrapCalls is how often any of the nodes was told to bootstrap etcd, refused calls included.
func (f fleet) bootstrapCalls() (n int) {
	for _, name := range f.names {
		n += f.node(name).Calls("Bootstrap")
	}
	return n
}

// bootstrapped waits until the cluster is known to be bootstrapped.
func (f fleet) bootstrapped(t *testing.T) *v1alpha1.ClusterBootstrap {
	t.Helper()
	return until(t, runningLimit, clusterName, f.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		b := cluster.Status.Bootstrap
		if b == nil || b.CompletedAt == nil || !strings.HasPrefix(condition(cluster.Status.Conditions, "Bootstrapped"), "True ") {
			return fmt.Sprintf("bootstrap is %+v, Bootstrapped is %q", b, condition(cluster.Status.Conditions, "Bootstrapped"))
		}
		return ""
	}).Status.Bootstrap
}

// leftAlone notes how a waiting machine is, and what it returns fails the test if anything of it has moved since (T-12).
func (f fleet) leftAlone(t *testing.T, name string) (check func()) {
	t.Helper()
	before := f.pending(t, f.node(name))
	return func() {
		t.Helper()
		after := f.get(t, name)
		if after.ResourceVersion != before.ResourceVersion {
			was, _ := yaml.Marshal(before)
			is, _ := yaml.Marshal(after)
			t.Errorf("the machine of %s, which waits for approval, was written:\n%s\nand is now\n%s", name, was, is)
		}
		receivedNothing(t, f.node(name))
	}
}

// bundleMaterial is every value of the tests' bundle.
var bundleMaterial = sync.OnceValue(func() []string {
	bundle, err := render.ParseBundle(secretsBundle())
	if err != nil {
		panic(err)
	}
	return render.BundleMaterial(bundle)
})

// bundleSecrets is bundleMaterial without what everybody may see: certificates and the cluster's id. Who reads a configuration
// reads them.
var bundleSecrets = sync.OnceValue(func() []string {
	bundle, err := render.ParseBundle(secretsBundle())
	if err != nil {
		panic(err)
	}
	bundle.Cluster.ID = ""
	for _, pair := range []*x509.PEMEncodedCertificateAndKey{bundle.Certs.Etcd, bundle.Certs.K8s, bundle.Certs.K8sAggregator, bundle.Certs.OS} {
		pair.Crt = nil
	}
	return render.BundleMaterial(bundle)
})

// leak is where a text holds something of the bundle, "" when it holds nothing.
func leak(text string, secrets []string) string {
	for _, secret := range secrets {
		if i := strings.Index(text, secret); i >= 0 {
			return fmt.Sprintf("%d bytes of the bundle after %q", len(secret), text[max(0, i-100):i])
		}
	}
	return ""
}

// tellsNothing has the test fail at its end if anything of the bundle stands in its objects, its Events or the server's log (T-15).
func (c cell) tellsNothing(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		clusters, err := c.clusters.List(ctx, metav1.ListOptions{})
		must(t, err)
		machines, err := c.machines.List(ctx, metav1.ListOptions{})
		must(t, err)
		events, err := env.Host().CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{})
		must(t, err)
		log, err := os.ReadFile(env.Installation.Log())
		must(t, err)
		said := map[string]string{"the server's log": string(log)}
		for where, list := range map[string]any{"the clusters": clusters, "the machines": machines, "the events": events} {
			text, err := yaml.Marshal(list)
			must(t, err)
			said[where] = string(text)
		}
		for where, text := range said {
			if found := leak(text, bundleMaterial()); found != "" {
				t.Errorf("%s: %s", where, found)
			}
		}
	})
}

// plugin runs kubectl fieldplane, whose output no secret of the bundle may be in.
func plugin(t *testing.T, args ...string) (string, error) {
	t.Helper()
	output, err := kubectlPlugin(t, args...)
	if found := leak(output, bundleSecrets()); found != "" {
		t.Errorf("kubectl fieldplane %q prints %s", args, found)
	}
	return output, err
}

func mustPlugin(t *testing.T, args ...string) string {
	t.Helper()
	output, err := plugin(t, args...)
	if err != nil {
		t.Fatalf("kubectl fieldplane %q: %v\n%s", args, err, output)
	}
	return output
}

// told waits for an Event about an object.
func told(t *testing.T, namespace, kind, name, level, reason string) string {
	t.Helper()
	var lines []string
	harness.Eventually(t, turnLimit, func() string {
		all := eventsOn(t, namespace, kind, name)
		if lines = withReason(all, level, reason); len(lines) == 0 {
			return fmt.Sprintf("told is %q", all)
		}
		return ""
	})
	return lines[0]
}
