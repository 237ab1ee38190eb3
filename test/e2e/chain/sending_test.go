package chain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// What can go wrong between an approval and the first configuration.

// Req: T-12, T-13
func TestAMachineThatIsUnapprovedBeforeAnythingIsSentGetsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "regretted", "meant")
	for _, name := range f.names {
		f.pending(t, f.node(name))
	}
	for _, name := range f.names {
		f.fault(t, name, talosnode.FaultSilent)
		f.approveAs(t, name, v1alpha1.RoleWorker)
	}
	for _, name := range f.names {
		f.configured(t, f.uuid(name), "False Unreachable")
	}
	mustPlugin(t, "unapprove", "machine", f.uuid("regretted"), "-n", f.namespace, "--yes")
	if m := f.get(t, "regretted"); m.Status.Phase != v1alpha1.MachinePending || m.Status.Approval != nil {
		t.Errorf("status is %+v", m.Status)
	}

	for _, name := range f.names {
		f.heal(t, name)
	}
	// The other one tells that there was time for it, and an opportunity.
	f.sweepAgain(t)
	f.applied(t, f.uuid("meant"))
	check := f.leftAlone(t, "regretted")
	f.wake(t)
	f.sweepAgain(t)
	f.sweepAgain(t)
	check()
	receivedOne(t, f.node("meant"), v1alpha1.RoleWorker)
}

// Req: T-15, A-06
func TestARefusedConfigurationIsSentOnceAndAnotherOneAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "strict")
	f.fault(t, "strict", talosnode.FaultRefuse)
	f.approveAs(t, "strict", v1alpha1.RoleWorker)
	m := f.configured(t, f.uuid("strict"), "False Refused")
	if m.Status.Phase != v1alpha1.MachineFailed || condition(m.Status.Conditions, "ConfigurationRefused") != "True Refused" {
		t.Errorf("status is %+v", m.Status)
	}
	told(t, f.namespace, "TalosMachine", m.Name, corev1.EventTypeWarning, "Refused")

	// Whatever wakes the controller, the same is not sent again.
	f.wake(t)
	f.sweepAgain(t)
	f.sweepAgain(t)
	if got := sent(f.node("strict")); len(got) != 1 || got[0].Accepted {
		t.Fatalf("a configuration that is refused was sent as %+v", got)
	}

	f.heal(t, "strict")
	f.edit(t, "strict", `{"nodeLabels":{"line":"mixing"}}`)
	m = f.applied(t, m.Name)
	if have := condition(m.Status.Conditions, "ConfigurationRefused"); have != "" {
		t.Errorf("a stale refusal is left: %s", have)
	}
	if got := sent(f.node("strict")); len(got) != 2 || !got[1].Accepted {
		t.Errorf("the changed configuration was sent as %+v", got)
	}
}

// Req: T-15, A-06
func TestWhatBecameOfAMachineThatIsLostWithItsConfigurationIsFoundOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control")
	f.fault(t, "control", talosnode.FaultLostUnanswered)
	f.approveAs(t, "control", v1alpha1.RoleControlPlane)
	m := f.configured(t, f.uuid("control"), "Unknown OutcomeUnknown")
	if c := m.Status.Configuration; m.Status.Phase != v1alpha1.MachineConfiguring || c == nil || c.IntendedAt == nil || c.AppliedAt != nil {
		t.Errorf("status is %+v", m.Status)
	}
	f.heal(t, "control")
	stage(t, f.node("control"), talosnode.StageRunning)
	f.configured(t, m.Name, "True AppliedUnconfirmed")
	f.runs(t, "control")
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
}

// Req: T-06, T-18
func TestOfTwoApprovedMachinesThatSwapAddressesNeitherGetsTheOthersConfiguration(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "left", "right")
	for _, name := range f.names {
		f.pending(t, f.node(name))
	}
	f.editCluster(t, `{"paused":true}`)
	for _, name := range f.names {
		f.approveAs(t, name, v1alpha1.RoleWorker)
		f.configured(t, f.uuid(name), "False Paused")
	}
	must(t, f.plant.Swap("left", "right"))
	f.editCluster(t, `{"paused":false}`)
	for _, name := range f.names {
		m := f.configured(t, f.uuid(name), "False IdentityMismatch")
		if m.Status.Configuration != nil {
			t.Errorf("to %s something was to be sent: %+v", name, m.Status.Configuration)
		}
		told(t, f.namespace, "TalosMachine", m.Name, corev1.EventTypeWarning, "IdentityMismatch")
	}
	// Where they are now is seen, and counts for nothing.
	f.sweepAgain(t)
	for _, name := range f.names {
		f.machine(t, sweepLimit, name, func(m *v1alpha1.TalosMachine) string {
			if m.Status.ObservedEndpoint != host(f.node(name)) || m.Spec.Endpoint == m.Status.ObservedEndpoint {
				return fmt.Sprintf("%s was seen at %s, its endpoint is %s", name, m.Status.ObservedEndpoint, m.Spec.Endpoint)
			}
			return ""
		})
	}
	f.sweepAgain(t)
	receivedNothing(t, f.node("left"), f.node("right"))

	must(t, f.plant.Swap("left", "right"))
	f.sweepAgain(t)
	for _, name := range f.names {
		f.applied(t, f.uuid(name))
		receivedOne(t, f.node(name), v1alpha1.RoleWorker)
	}
}

// Req: T-18, A-06
func TestAMachineThatTakesTheAddressOverAfterTheIdentityWasReadGetsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "late")
	f.pending(t, f.node("late"))
	f.fault(t, "late", talosnode.FaultLateTakeover)
	f.approveAs(t, "late", v1alpha1.RoleWorker)
	// The connection broke in the middle; what answers now is another machine.
	m := f.machine(t, configureLimit, "late", func(m *v1alpha1.TalosMachine) string {
		if have := condition(m.Status.Conditions, "Configured"); have != "False IdentityMismatch" {
			return fmt.Sprintf("Configured is %q", have)
		}
		return ""
	})
	if m.Status.Configuration == nil || m.Status.Configuration.IntendedAt == nil || m.Status.Configuration.AppliedAt != nil {
		t.Errorf("the intent stands as %+v", m.Status.Configuration)
	}
	if f.node("late").Fault() != talosnode.FaultTakeover {
		t.Errorf("this test took nothing over: the fault is %q", f.node("late").Fault())
	}
	f.sweepAgain(t)
	f.sweepAgain(t)
	receivedNothing(t, f.node("late"))
}

// Req: T-18
func TestAnotherInstallDiskThanTheApprovedOneIsNotWiped(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "refitted", "stripped")
	f.pending(t, f.node("refitted"))
	f.pending(t, f.node("stripped"))
	f.editCluster(t, `{"paused":true}`)
	for _, name := range f.names {
		f.approveAs(t, name, v1alpha1.RoleWorker)
		m := f.configured(t, f.uuid(name), "False Paused")
		if d := m.Status.Approval.InstallDisk; d == nil || d.Serial != f.node(name).Hardware().Disks[0].Serial {
			t.Errorf("the approval of %s names the disk %+v", name, d)
		}
	}
	// The same path, another disk; and none at all.
	refitted, stripped := f.node("refitted").Hardware(), f.node("stripped").Hardware()
	refitted.Disks = append([]talosnode.Disk{}, refitted.Disks...)
	refitted.Disks[0].Serial = "SPARE0001"
	stripped.Disks = nil
	must(t, f.node("refitted").SetHardware(refitted))
	must(t, f.node("stripped").SetHardware(stripped))
	f.editCluster(t, `{"paused":false}`)
	changed := f.configured(t, f.uuid("refitted"), "False InstallDiskChanged")
	if text := fmt.Sprint(changed.Status.Conditions); !containsAll(text, "SPARE0001", f.get(t, "refitted").Status.Approval.InstallDisk.Serial) {
		t.Errorf("the conditions do not name both disks: %s", text)
	}
	f.configured(t, f.uuid("stripped"), "False InstallDiskNotFound")
	f.sweepAgain(t)
	receivedNothing(t, f.node("refitted"), f.node("stripped"))

	// Whoever approves sees the disk that it would be now, and has to say so.
	args := []string{"approve", "machine", f.uuid("refitted"), "-n", f.namespace, "--yes", "--role", "worker", "--install-disk", talosDisk}
	if output, err := plugin(t, args...); err == nil || !containsAll(output, "SPARE0001", "--renew") {
		t.Errorf("approved with another disk without --renew: %v\n%s", err, output)
	}
	receivedNothing(t, f.node("refitted"))
	mustPlugin(t, append(args, "--renew")...)
	m := f.applied(t, f.uuid("refitted"))
	if d := m.Status.Approval.InstallDisk; d == nil || d.Serial != "SPARE0001" {
		t.Errorf("the new approval names the disk %+v", d)
	}
	receivedOne(t, f.node("refitted"), v1alpha1.RoleWorker)
	receivedNothing(t, f.node("stripped"))
}

// Req: T-15, T-18
func TestASlowMachineIsConfiguredAllTheSame(t *testing.T) {
	t.Parallel()
	hardware := box(77<<8 + 201)
	node, err := talosnode.Start(talosnode.Options{Name: "slow", Address: "127.0.77.201:50000", Hardware: hardware, Slow: 2500 * time.Millisecond})
	must(t, err)
	t.Cleanup(node.Close)
	c := newCell(t, addresses("127.0.77.201")).withBundle(t, secretsBundle())
	c.tellsNothing(t)
	m := c.pending(t, node)
	// More for each call than a sweep has for everything.
	must(t, node.Inject(talosnode.FaultSlow))
	c.approveDirectly(t, m, func(spec *v1alpha1.TalosMachineSpec) {
		spec.Role, spec.AcceptUnverifiedFingerprint = v1alpha1.RoleControlPlane, true
	})
	m = c.applied(t, m.Name)
	if have := condition(m.Status.Conditions, "Configured"); have != "True Applied" {
		t.Errorf("Configured is %q", have)
	}
	must(t, node.Heal())
	stage(t, node, talosnode.StageRunning)
	sentOnce(t, node, v1alpha1.RoleControlPlane)
}

// Req: T-03, T-15, T-18
func TestMaintenanceModeOfEveryTalosThatThereIsTakesAConfiguration(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.11.6", "v1.12.9", "v1.13.9", "v1.14.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			names := []string{"control", "worker"}
			f := newFleetOf(t, newNodes(t, func(spec *plant.TalosSpec) { spec.Talos = version }, names...), names...)
			f.run(t, names...)
			for _, name := range names {
				m := f.get(t, name)
				if m.Status.TalosVersion != version {
					t.Errorf("%s runs %q", name, m.Status.TalosVersion)
				}
				if have := hashOf(f.node(name)); m.Status.ConfigHash != have {
					t.Errorf("%s was sent %s, and runs %s", name, m.Status.ConfigHash, have)
				}
			}
			sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
			sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)
			// It behaves as that version does: only the newer ones answer more than the one call.
			mode := f.node("worker").Configurations()[0].Answer
			if older := strings.HasPrefix(version, "v1.11") || strings.HasPrefix(version, "v1.12"); older == (mode == "NO_REBOOT") {
				t.Errorf("maintenance mode of %s answered %s", version, mode)
			}
			if n := f.bootstrapCalls(); n != 1 {
				t.Errorf("Bootstrap was called %d times", n)
			}
		})
	}
}

// eventually is harness.Eventually for a count.
func eventually(t *testing.T, limit time.Duration, what string, have func() int, want int) {
	t.Helper()
	harness.Eventually(t, limit, func() string {
		if n := have(); n != want {
			return fmt.Sprintf("%s is %d, not %d", what, n, want)
		}
		return ""
	})
}
