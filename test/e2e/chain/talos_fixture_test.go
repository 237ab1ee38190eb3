package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	typed "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/machineconfiguration"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

const (
	clusterName = "plant"
	talosDisk   = "/dev/nvme0n1"

	// sweepLimit is for a sweep that was asked for, and that others may be in line before; the silent addresses of one test
	// alone take seconds.
	sweepLimit = 40 * time.Second
	// configureLimit is for the way from an approval to its outcome, retries included.
	configureLimit = 60 * time.Second
)

// secretsBundle is a secrets bundle that all tests use: to make one takes seconds.
var secretsBundle = sync.OnceValue(func() []byte {
	data, err := render.GenerateBundle("v1.13")
	if err != nil {
		panic(err)
	}
	return data
})

// cell is a namespace with one TalosCluster.
type cell struct {
	namespace string
	clusters  typed.TalosClusterInterface
	machines  typed.TalosMachineInterface
}

// addresses declares single addresses.
func addresses(list ...string) v1alpha1.TalosDiscovery {
	return v1alpha1.TalosDiscovery{Addresses: list}
}

// newCell declares a cluster that looks for machines in the ranges. Its bundle is what withBundle makes.
func newCell(t *testing.T, ranges v1alpha1.TalosDiscovery) cell {
	t.Helper()
	namespace, client := env.Namespace(t), env.Admin(t)
	c := cell{
		namespace: namespace,
		clusters:  client.TalosV1alpha1().TalosClusters(namespace),
		machines:  client.TalosV1alpha1().TalosMachines(namespace),
	}
	_, err := c.clusters.Create(t.Context(), &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: v1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://127.0.70.1:6443",
			SecretsRef:           v1alpha1.SecretReference{Name: c.secretName()},
			TalosVersion:         "v1.13",
			KubernetesVersion:    "v1.36.0",
			Discovery:            ranges,
		},
	}, metav1.CreateOptions{})
	must(t, err)
	// Sweeps of one test must not wait for machines of another that is over.
	t.Cleanup(func() { _ = c.clusters.Delete(context.Background(), clusterName, metav1.DeleteOptions{}) })
	return c
}

func (c cell) secretName() string { return c.namespace + "-bundle" }

func (c cell) bundleLabel() map[string]string {
	return map[string]string{bundle.ClusterLabel: c.namespace + "." + clusterName}
}

// withBundle makes the cluster's secrets bundle in the server's namespace.
func (c cell) withBundle(t *testing.T, data []byte) cell {
	t.Helper()
	c.putSecret(t, installation.Namespace, c.bundleLabel(), data)
	return c
}

func (c cell) putSecret(t *testing.T, namespace string, labels map[string]string, data []byte) {
	t.Helper()
	secrets := env.Host().CoreV1().Secrets(namespace)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.secretName(), Labels: labels},
		Data:       map[string][]byte{bundle.Key: data},
	}
	_, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	}
	must(t, err)
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), c.secretName(), metav1.DeleteOptions{}) })
}

// declare changes the ranges.
func (c cell) declare(t *testing.T, ranges v1alpha1.TalosDiscovery) *v1alpha1.TalosCluster {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/discovery", "value": ranges}})
	must(t, err)
	cluster, err := c.clusters.Patch(t.Context(), clusterName, types.JSONPatchType, patch, metav1.PatchOptions{})
	must(t, err)
	return cluster
}

// swept waits until a sweep of the spec as it is has ended.
func (c cell) swept(t *testing.T) *v1alpha1.TalosCluster {
	t.Helper()
	return until(t, sweepLimit, clusterName, c.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		d := cluster.Status.Discovery
		if d == nil || d.CompletedAt == nil || cluster.Status.ObservedGeneration != cluster.Generation {
			return fmt.Sprintf("no sweep of generation %d has ended", cluster.Generation)
		}
		return ""
	})
}

// sweepAgain asks for a sweep, and returns when one has ended that began no earlier.
func (c cell) sweepAgain(t *testing.T) *v1alpha1.TalosCluster {
	t.Helper()
	var at *metav1.Time
	return until(t, sweepLimit, clusterName, c.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		if at == nil {
			// Only now, so that the watch misses nothing of what follows.
			at = c.askForSweep(t)
		}
		// One that began before has a time before: requests are told apart by the second, rounded up.
		d := cluster.Status.Discovery
		if d == nil || d.StartedAt == nil || d.StartedAt.Before(at) || d.CompletedAt == nil {
			return fmt.Sprintf("the sweep that was asked for at %s has not ended: %+v", at, d)
		}
		return ""
	})
}

// askForSweep asks for a sweep, and tells when it was asked for as it is stored. Three in one second are too many.
func (c cell) askForSweep(t *testing.T) *metav1.Time {
	t.Helper()
	var request *v1alpha1.DiscoveryRequest
	harness.Eventually(t, onlineLimit, func() string {
		var err error
		if request, err = c.clusters.RequestDiscovery(t.Context(), clusterName, &v1alpha1.DiscoveryRequest{}, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return request.Status.RequestedAt
}

// pending waits for the machine of a node.
func (c cell) pending(t *testing.T, node *talosnode.Node) *v1alpha1.TalosMachine {
	t.Helper()
	return until(t, sweepLimit, node.Hardware().UUID, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		if m.Status.Phase != v1alpha1.MachinePending || m.Status.Hardware == nil {
			return fmt.Sprintf("phase is %q", m.Status.Phase)
		}
		return ""
	})
}

// approve approves a node's machine by the plugin, as an operator does.
func (c cell) approve(t *testing.T, node *talosnode.Node, role v1alpha1.MachineRole, more ...string) {
	t.Helper()
	args := append([]string{
		"approve", "machine", node.Hardware().UUID, "-n", c.namespace, "--yes", "--role", string(role), "--install-disk", talosDisk,
	}, more...)
	if output, err := kubectlPlugin(t, args...); err != nil {
		t.Fatalf("kubectl fieldplane %q: %v\n%s", args, err, output)
	}
}

// approveDirectly approves a machine as a worker past the plugin, which refuses some of what the server has to stand.
func (c cell) approveDirectly(t *testing.T, m *v1alpha1.TalosMachine, edit func(*v1alpha1.TalosMachineSpec)) {
	t.Helper()
	m = m.DeepCopy()
	m.Spec.Approved, m.Spec.Role, m.Spec.Install = ptr.To(true), v1alpha1.RoleWorker, &v1alpha1.MachineInstall{Disk: talosDisk}
	edit(&m.Spec)
	_, err := c.machines.UpdateApproval(t.Context(), m.Name, m, metav1.UpdateOptions{})
	must(t, err)
}

// configured waits for a reason of the condition Configured.
func (c cell) configured(t *testing.T, name, want string) *v1alpha1.TalosMachine {
	t.Helper()
	return until(t, configureLimit, name, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		if have := condition(m.Status.Conditions, machineconfiguration.ConditionConfigured); have != want {
			return fmt.Sprintf("Configured is %q, not %q", have, want)
		}
		return ""
	})
}

// applied waits until a machine has its configuration. A machine that is quick to leave may cut its own answer off.
func (c cell) applied(t *testing.T, name string) *v1alpha1.TalosMachine {
	t.Helper()
	return until(t, configureLimit, name, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		have := condition(m.Status.Conditions, machineconfiguration.ConditionConfigured)
		if have != "True Applied" && have != "True AppliedUnconfirmed" {
			return fmt.Sprintf("Configured is %q", have)
		}
		return ""
	})
}

// stage waits until a node is that far.
func stage(t *testing.T, node *talosnode.Node, want talosnode.Stage) {
	t.Helper()
	harness.Eventually(t, configureLimit, func() string {
		if have := node.Stage(); have != want {
			return fmt.Sprintf("node %s is %s, not %s", node.Name(), have, want)
		}
		return ""
	})
}

// receivedNothing fails the test if a node was ever sent a configuration.
func receivedNothing(t *testing.T, nodes ...*talosnode.Node) {
	t.Helper()
	for _, node := range nodes {
		if got := node.Configurations(); len(got) > 0 {
			t.Errorf("node %s was sent %+v", node.Name(), got)
		}
	}
}

// receivedOne fails the test unless a node was sent exactly one configuration, a valid one of the role.
func receivedOne(t *testing.T, node *talosnode.Node, role v1alpha1.MachineRole) {
	t.Helper()
	got := node.Configurations()
	if len(got) != 1 || !got[0].Accepted || got[0].DryRun || got[0].Authenticated || got[0].Role != string(role) {
		t.Errorf("node %s was sent %+v, not one configuration of a %s", node.Name(), got, role)
	}
}

// box is a machine with a whole identity of its own.
func box(n int) talosnode.Hardware {
	return talosnode.Hardware{
		UUID: fmt.Sprintf("7c9e6679-7425-40de-944b-%012x", n), Serial: fmt.Sprintf("CHAIN%04d", n), Manufacturer: "Advantech", Product: "ARK-3534",
		Links: []talosnode.Link{{Name: "eth0", MAC: fmt.Sprintf("c4:00:ad:77:%02x:%02x", n>>8, n&0xff), Driver: "igb"}},
		Disks: []talosnode.Disk{{
			Path: talosDisk, SizeBytes: 512_110_190_592, Model: "SAMSUNG MZVL2512HCJQ", Serial: fmt.Sprintf("DISK%04d", n), Transport: "nvme",
		}},
	}
}

// boxes is a plant of such machines at consecutive addresses of 127.0.third.0/24, from last on.
func boxes(t *testing.T, third, last int, names ...string) *plant.Plant {
	t.Helper()
	var spec plant.Spec
	for i, name := range names {
		spec.Talos = append(spec.Talos, plant.TalosSpec{
			Name: name, Address: fmt.Sprintf("127.0.%d.%d", third, last+i), Hardware: box(third<<8 + last + i),
		})
	}
	return startPlant(t, spec)
}

// host is a node's address without its port.
func host(node *talosnode.Node) string {
	name, _, _ := net.SplitHostPort(node.Address())
	return name
}

// setPatches changes the cluster's patches to these and no others.
func (c cell) setPatches(t *testing.T, patches ...string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"configPatches": append([]string{}, patches...)}})
	must(t, err)
	_, err = c.clusters.Patch(t.Context(), clusterName, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
}
