package chain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Req: T-02, T-05, T-12, T-13, T-15, T-18, A-06
func TestADeclaredRangeBecomesARunningClusterWhoseEtcdIsBootstrappedOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker", "waiting")
	leftAlone := f.leftAlone(t, "waiting")
	phases := map[string]*recorded{}
	for _, name := range []string{"control", "worker"} {
		f.pending(t, f.node(name))
		phases[name] = record(t, f.uuid(name), f.machines.Watch, func(m *v1alpha1.TalosMachine) string { return string(m.Status.Phase) })
	}
	harness.Eventually(t, onlineLimit, func() string {
		for name, r := range phases {
			if len(r.all()) == 0 {
				return "nothing of " + name + " was seen yet"
			}
		}
		return ""
	})

	args := func(name, role string) []string {
		return []string{"approve", "machine", f.uuid(name), "-n", f.namespace, "--yes", "--role", role, "--install-disk", talosDisk, "--hostname", name}
	}
	mustPlugin(t, append(args("control", "controlplane"), "--fingerprint", f.node("control").Fingerprint())...)
	mustPlugin(t, args("worker", "worker")...)
	for _, name := range []string{"control", "worker"} {
		m := f.runs(t, name)
		phases[name].are(t, "Pending", "Approved", "Configuring", "Installing", "Running")
		if m.Status.TalosVersion != "v1.13.9" || m.Status.ConfigHash != hashOf(f.node(name)) || m.Status.Configuration.Hash != m.Status.ConfigHash {
			t.Errorf("%s: status is %+v", name, m.Status)
		}
		for kind, want := range map[string]string{"Drifted": "False AsSent", "RebootRequired": "False NotRequired", "BackInMaintenance": "", "IdentityMismatch": ""} {
			if have := condition(m.Status.Conditions, kind); have != want {
				t.Errorf("%s: %s is %q, not %q", name, kind, have, want)
			}
		}
		if !strings.HasSuffix(f.node(name).Hostname(), name) {
			t.Errorf("%s has the host name %s", name, f.node(name).Hostname())
		}
	}

	b := f.bootstrapped(t)
	if b.MachineName != f.uuid("control") || b.Endpoint != host(f.node("control")) || b.IntendedAt == nil || b.CompletedAt.Before(b.IntendedAt) {
		t.Errorf("the bootstrap is recorded as %+v", b)
	}
	until(t, onlineLimit, clusterName, f.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		if n := cluster.Status.Machines; n != (v1alpha1.MachineCounts{Total: 3, Pending: 1, Approved: 2, Running: 2}) {
			return fmt.Sprintf("counts are %+v", n)
		}
		return ""
	})

	// Nothing is done twice, whatever asks for it.
	f.sweepAgain(t)
	f.wake(t)
	f.swept(t)
	for name, want := range map[string]int{"control": 1, "worker": 0, "waiting": 0} {
		if n := f.node(name).Bootstraps(); n != want {
			t.Errorf("%s was bootstrapped %d times, not %d", name, n, want)
		}
		if n := f.node(name).Reboots(); n > 0 {
			t.Errorf("%s was rebooted %d times", name, n)
		}
	}
	if n := f.bootstrapCalls(); n != 1 {
		t.Errorf("Bootstrap was called %d times", n)
	}
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
	sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)
	leftAlone()

	// What people see of it.
	table := env.MustKubectl(t, "", "get", "talosmachines", "-n", f.namespace, "-o", "wide")
	if !containsAll(table, "Running", "Pending", "controlplane", "worker") {
		t.Errorf("kubectl get shows\n%s", table)
	}
	for _, name := range []string{"control", "worker"} {
		told(t, f.namespace, "TalosMachine", f.uuid(name), corev1.EventTypeNormal, "Applied")
	}
}

// Req: T-18a. Whoever looks at a machine that is away sees that nobody knows, and not that all is well.
func TestAMachineThatIsGoneIsNotReadyAndComesBackByItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker")
	f.run(t, "control", "worker")
	f.fault(t, "worker", talosnode.FaultClosed)
	f.wake(t)
	m := f.has(t, turnLimit, "worker", "Ready", "Unknown Unreachable")
	if m.Status.Phase != v1alpha1.MachineRunning || m.Status.Configuration.AppliedAt == nil {
		t.Errorf("status is %+v", m.Status)
	}
	told(t, f.namespace, "TalosMachine", m.Name, corev1.EventTypeWarning, "Unreachable")
	f.heal(t, "worker")
	f.wake(t)
	f.has(t, turnLimit, "worker", "Ready", "True Ready")

	// Another machine of the cluster at its address is none of it.
	must(t, f.plant.Swap("control", "worker"))
	f.wake(t)
	m = f.has(t, turnLimit, "worker", "IdentityMismatch", "True IdentityMismatch")
	if !slices.Contains([]string{"Unknown IdentityMismatch"}, condition(m.Status.Conditions, "Ready")) {
		t.Errorf("Ready is %q", condition(m.Status.Conditions, "Ready"))
	}
	must(t, f.plant.Swap("control", "worker"))
	f.wake(t)
	f.has(t, turnLimit, "worker", "IdentityMismatch", "")
	f.runs(t, "worker")
	sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
}
