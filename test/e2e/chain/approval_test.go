package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Req: T-12, T-13, T-15, T-16, T-18, A-06
func TestAnApprovedMachineGetsExactlyOneConfigurationOfItsRole(t *testing.T) {
	t.Parallel()
	p := startPlant(t, plant.ExampleAt(74))
	control, worker, old, waiting := p.Node("control-1"), p.Node("worker-1"), p.Node("worker-2"), p.Node("twin-a")
	c := newCell(t, addresses(host(control), host(worker), host(old), host(waiting))).withBundle(t, secretsBundle())
	for _, node := range []*talosnode.Node{control, worker, old, waiting} {
		c.pending(t, node)
		receivedNothing(t, node)
	}

	// Shown first, and refused without a role.
	output, err := kubectlPlugin(t, "approve", "machine", control.Hardware().UUID, "-n", c.namespace, "--yes", "--install-disk", talosDisk)
	if err == nil || !containsAll(output, "role", control.Hardware().Serial) {
		t.Errorf("an approval without a role: %v\n%s", err, output)
	}
	output, err = kubectlPlugin(t, "pending", "-n", c.namespace)
	if err != nil || !containsAll(output, control.Hardware().UUID, worker.Hardware().UUID) {
		t.Errorf("what waits: %v\n%s", err, output)
	}
	receivedNothing(t, control)

	c.approve(t, control, v1alpha1.RoleControlPlane, "--fingerprint", control.Fingerprint(), "--hostname", "control-1")
	configured := c.applied(t, control.Hardware().UUID)
	receivedOne(t, control, v1alpha1.RoleControlPlane)
	// What it runs with is there once it runs.
	stage(t, control, talosnode.StageRunning)
	sum := sha256.Sum256(control.Configuration())
	sent := configured.Status.Configuration
	if sent.Hash != hex.EncodeToString(sum[:]) || sent.Endpoint != host(control) || sent.AppliedAt.Before(sent.IntendedAt) || configured.Status.ConfigHash != sent.Hash {
		t.Errorf("what was sent is not what is recorded: %+v", sent)
	}
	if a := configured.Status.Approval; a == nil || a.Fingerprint == "" || a.UnverifiedFingerprint || a.Identity.Serial != control.Hardware().Serial {
		t.Errorf("the approval is recorded as %+v", a)
	}

	// A worker of the same cluster joins it; one of an older Talos, too.
	for _, node := range []*talosnode.Node{worker, old} {
		receivedNothing(t, node)
		c.approve(t, node, v1alpha1.RoleWorker, "--label", "line=mixing")
		c.applied(t, node.Hardware().UUID)
		stage(t, node, talosnode.StageRunning)
		receivedOne(t, node, v1alpha1.RoleWorker)
		if !strings.Contains(string(node.Configuration()), "line: mixing") {
			t.Errorf("the label of the approval is not in the configuration of %s", node.Name())
		}
	}

	// Whatever wakes the controller later, nothing is sent again, and who was not approved is left alone.
	env.MustKubectl(t, "", "label", "taloscluster", clusterName, "-n", c.namespace, "touched=yes")
	c.declare(t, addresses(host(control), host(worker), host(old), host(waiting), "127.0.74.9"))
	c.swept(t)
	c.sweepAgain(t)
	receivedOne(t, control, v1alpha1.RoleControlPlane)
	receivedOne(t, worker, v1alpha1.RoleWorker)
	receivedOne(t, old, v1alpha1.RoleWorker)
	receivedNothing(t, waiting)
	if m := c.pending(t, waiting); len(m.Status.Conditions) > 0 || m.Status.Configuration != nil {
		t.Errorf("a machine that waits is not left untouched: %+v", m.Status)
	}
}

// Req: T-18
func TestAMachineThatIsNotTheApprovedOneGetsNothing(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 50, "replayed", "taken-over", "other-key")
	nodes := map[string]*talosnode.Node{}
	var list []string
	for _, name := range []string{"replayed", "taken-over", "other-key"} {
		nodes[name] = p.Node(name)
		list = append(list, host(p.Node(name)))
	}
	c := newCell(t, addresses(list...)).withBundle(t, secretsBundle())
	// As they were approved: what the faults change is not what is asked for.
	names := map[string]string{}
	for name, node := range nodes {
		names[name] = c.pending(t, node).Name
	}
	must(t, p.Fault("replayed", string(talosnode.FaultIdentity)))
	must(t, p.Fault("taken-over", string(talosnode.FaultTakeover)))

	for name, test := range map[string]struct{ fingerprint, reason string }{
		"replayed":   {reason: "IdentityMismatch"},
		"taken-over": {reason: "IdentityMismatch"},
		// Another machine's fingerprint, as somebody gives it who reads the wrong console.
		"other-key": {fingerprint: nodes["replayed"].Fingerprint(), reason: "FingerprintMismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodes[name]
			before, err := c.machines.Get(t.Context(), names[name], metav1.GetOptions{})
			must(t, err)
			c.approveDirectly(t, before, func(spec *v1alpha1.TalosMachineSpec) { spec.AcceptedFingerprint = test.fingerprint })
			m := c.configured(t, names[name], "False "+test.reason)
			if have := condition(m.Status.Conditions, test.reason); have != "True "+test.reason {
				t.Errorf("%s is %q", test.reason, have)
			}
			if m.Status.Configuration != nil || m.Status.Phase != v1alpha1.MachineFailed {
				t.Errorf("status is %+v", m.Status)
			}
			harness.Eventually(t, onlineLimit, func() string {
				events := eventsOn(t, c.namespace, "TalosMachine", m.Name)
				if len(withReason(events, corev1.EventTypeWarning, test.reason)) == 0 {
					return fmt.Sprintf("told is %q", events)
				}
				return ""
			})
			receivedNothing(t, node)
		})
	}

	// The right machine is back, and gets what was approved for it.
	must(t, p.Heal("replayed"))
	c.applied(t, names["replayed"])
	receivedOne(t, nodes["replayed"], v1alpha1.RoleWorker)
	receivedNothing(t, nodes["taken-over"], nodes["other-key"])
}

// Req: T-18
func TestAControlPlaneIsNotConfiguredWithoutAFingerprintUnlessThatIsAccepted(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 60, "control")
	node := p.Node("control")
	c := newCell(t, addresses(host(node))).withBundle(t, secretsBundle())
	name := c.pending(t, node).Name
	args := []string{"approve", "machine", name, "-n", c.namespace, "--yes", "--role", "controlplane", "--install-disk", talosDisk}
	if output, err := kubectlPlugin(t, args...); err == nil || !strings.Contains(output, "fingerprint") {
		t.Errorf("approved without a fingerprint: %v\n%s", err, output)
	}
	receivedNothing(t, node)
	c.approve(t, node, v1alpha1.RoleControlPlane, "--accept-unverified-fingerprint")
	m := c.applied(t, name)
	if a := m.Status.Approval; a == nil || !a.UnverifiedFingerprint || a.Fingerprint != "" {
		t.Errorf("that nobody compared the fingerprint is recorded as %+v", a)
	}
	receivedOne(t, node, v1alpha1.RoleControlPlane)
}

// Req: T-16
func TestABundleIsReadInTheServersNamespaceAloneAndOnlyForItsCluster(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 70, "worker")
	node := p.Node("worker")
	c := newCell(t, addresses(host(node)))
	name := c.pending(t, node).Name
	// A tenant's own, of the right name and with the right label, where it is never looked for.
	c.putSecret(t, c.namespace, c.bundleLabel(), secretsBundle())
	c.approve(t, node, v1alpha1.RoleWorker)

	expect := func(reason string) {
		t.Helper()
		m := c.configured(t, name, "False "+reason)
		if have := condition(m.Status.Conditions, reason); have != "True "+reason {
			t.Errorf("%s is %q", reason, have)
		}
		if !strings.Contains(fmt.Sprint(m.Status.Conditions), installation.Namespace+"/"+c.secretName()) {
			t.Errorf("the conditions do not say which Secret is missing: %+v", m.Status.Conditions)
		}
		receivedNothing(t, node)
	}
	expect("BundleNotFound")
	c.putSecret(t, installation.Namespace, map[string]string{"talos.fieldplane.dev/cluster": "somebody.else"}, secretsBundle())
	expect("BundleNotForThisCluster")
	c.putSecret(t, installation.Namespace, nil, secretsBundle())
	expect("BundleNotForThisCluster")
	c.putSecret(t, installation.Namespace, c.bundleLabel(), []byte("neither: fish\nnor: fowl\n"))
	expect("BundleInvalid")

	c.withBundle(t, secretsBundle())
	m := c.applied(t, name)
	for _, gone := range []string{"BundleNotFound", "BundleNotForThisCluster", "BundleInvalid"} {
		if have := condition(m.Status.Conditions, gone); have != "" {
			t.Errorf("a stale %s is left: %s", gone, have)
		}
	}
	receivedOne(t, node, v1alpha1.RoleWorker)
}

// Req: T-15
func TestAConfigurationThatCannotBeMadeIsAConditionUntilTheClusterIsPutRight(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 80, "worker")
	node := p.Node("worker")
	c := newCell(t, addresses(host(node))).withBundle(t, secretsBundle())
	name := c.pending(t, node).Name
	// Admission takes it for a part of a configuration; that it is against the approval shows when the two meet.
	c.setPatches(t, "machine:\n  install:\n    wipe: true\n")
	c.approve(t, node, v1alpha1.RoleWorker)
	m := c.configured(t, name, "False RenderFailed")
	if have := condition(m.Status.Conditions, "RenderFailed"); have != "True RenderFailed" || condition(m.Status.Conditions, "Rendered") != "False RenderFailed" {
		t.Errorf("RenderFailed is %q: %+v", have, m.Status.Conditions)
	}
	if text := fmt.Sprint(m.Status.Conditions); !containsAll(text, "cluster spec.configPatches[0]", "machine.install.wipe") {
		t.Errorf("the conditions do not say what is wrong: %s", text)
	}
	receivedNothing(t, node)

	c.setPatches(t)
	m = c.applied(t, name)
	if have := condition(m.Status.Conditions, "RenderFailed"); have != "" {
		t.Errorf("a stale RenderFailed is left: %s", have)
	}
	receivedOne(t, node, v1alpha1.RoleWorker)
}

// Req: T-18a, A-06
func TestAPausedClusterTouchesNoMachine(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 90, "worker", "new")
	node := p.Node("worker")
	c := newCell(t, addresses(host(node))).withBundle(t, secretsBundle())
	name := c.pending(t, node).Name
	pause := func(paused bool) {
		t.Helper()
		env.MustKubectl(t, "", "patch", "taloscluster", clusterName, "-n", c.namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"paused":%v}}`, paused))
	}
	pause(true)
	c.declare(t, addresses(host(node), host(p.Node("new"))))
	c.approve(t, node, v1alpha1.RoleWorker)
	c.configured(t, name, "False Paused")
	until(t, sweepLimit, clusterName, c.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		for _, one := range cluster.Status.Conditions {
			if one.Type == "DiscoveryReady" && one.Reason == "Paused" && one.ObservedGeneration == cluster.Generation {
				return ""
			}
		}
		return fmt.Sprintf("conditions are %+v", cluster.Status.Conditions)
	})
	receivedNothing(t, node)
	if n := len(p.Node("new").Identities()); n > 0 {
		t.Errorf("a paused cluster asked a new address %d times", n)
	}

	pause(false)
	c.applied(t, name)
	receivedOne(t, node, v1alpha1.RoleWorker)
	c.pending(t, p.Node("new"))
}

// Req: T-06, T-12, T-18
func TestAMachineThatWasWipedIsNotConfiguredAgainByItself(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 100, "control")
	node := p.Node("control")
	c := newCell(t, addresses(host(node))).withBundle(t, secretsBundle())
	name := c.pending(t, node).Name
	c.approve(t, node, v1alpha1.RoleControlPlane, "--fingerprint", node.Fingerprint())
	c.applied(t, name)
	stage(t, node, talosnode.StageRunning)

	must(t, p.Wipe("control"))
	c.sweepAgain(t)
	// The next periodic sweep is later than a machine takes to leave maintenance mode.
	m := until(t, 2*time.Minute, name, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		if have := condition(m.Status.Conditions, "BackInMaintenance"); have != "True AnswersInMaintenance" {
			return fmt.Sprintf("BackInMaintenance is %q", have)
		}
		return ""
	})
	if condition(m.Status.Conditions, "Configured") == "" || m.Status.Configuration.AppliedAt == nil {
		t.Errorf("it is forgotten that the machine was configured: %+v", m.Status)
	}
	c.declare(t, addresses(host(node), "127.0.72.101"))
	c.swept(t)
	receivedOne(t, node, v1alpha1.RoleControlPlane)
}
