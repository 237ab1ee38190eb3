package machinestate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/machine/machinetest"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Req: T-18a
func TestAMachineIsFollowedFromInstallingToRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, newCluster(), worker(1, installing))
		w.node(1).Fail(machine.OpDial, machine.ClassUnreachable)
		w.run()

		w.pass(5 * time.Minute)
		w.expect(1, reasonUnreachable, reasonUpToDate)

		if phase := w.machine(1).Status.Phase; phase != v1alpha1.MachineInstalling {
			t.Errorf("phase %s", phase)
		}

		w.node(1).Recover(machine.OpDial).SetStatus(machine.Status{Stage: "booting", Unmet: []string{"services: kubelet"}})
		w.pass(lastRetry)
		w.expect(1, reasonNotRunning)

		w.node(1).SetStatus(machine.Status{Stage: "running", Unmet: []string{"nodeReady: no"}, TalosVersion: "v1.13.9"})
		w.pass(soon)
		w.expect(1, reasonNotReady)

		w.node(1).SetStatus(machine.Status{Stage: "running", Ready: true, TalosVersion: "v1.13.9"})
		w.pass(later)
		w.expect(1, reasonReady, reasonUpToDate, reasonAsSent, reasonNotRequired)

		status := w.machine(1).Status
		if status.Phase != v1alpha1.MachineRunning || status.TalosVersion != "v1.13.9" {
			t.Errorf("status %+v", status)
		}

		w.expectEffects()

		// A reboot by somebody else shows in Ready; what has run stays Running.
		w.node(1).SetStatus(machine.Status{Stage: "rebooting"})
		w.pass(later)
		w.expect(1, reasonNotRunning)

		if phase := w.machine(1).Status.Phase; phase != v1alpha1.MachineRunning {
			t.Errorf("phase %s", phase)
		}

		if told := strings.Join(w.events.all(), "\n"); !strings.Contains(told, "Normal Ready") || strings.Contains(told, "Unreachable") {
			t.Errorf("told %s", told)
		}
	})
}

// Req: T-18a
func TestAnInstallationThatTakesTooLongHasFailedUntilTheMachineRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, newCluster(), worker(1, installing))
		w.net.Put(target(1), nil)
		node := w.net
		w.run()

		w.pass(installTime - time.Minute)
		w.expect(1, reasonUnreachable)
		w.pass(3 * time.Minute)
		w.expect(1, reasonInstallTimedOut)

		if phase := w.machine(1).Status.Phase; phase != v1alpha1.MachineFailed {
			t.Errorf("phase %s", phase)
		}

		node.Node(target(1)).OfCluster(bundleOf(0)).SetHardware(maintenance.Hardware{UUID: name(1)}).
			SetConfiguration(renderFor(w.machine(1), newCluster(), bundleOf(0)).config)
		w.pass(lastRetry)
		w.expect(1, reasonReady)

		if phase := w.machine(1).Status.Phase; phase != v1alpha1.MachineRunning {
			t.Errorf("phase %s", phase)
		}
	})
}

// Req: T-09, T-18a
func TestSilenceIsAskedEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, newCluster(), worker(1))
		w.net.Put(target(1), nil)
		w.run()
		w.pass(2 * time.Minute)

		first := len(w.net.Dials())
		w.pass(time.Hour)

		if rest := len(w.net.Dials()) - first; first > 10 || rest < 55 || rest > 62 {
			t.Errorf("dialed %d times in two minutes and %d times in the hour after", first, rest)
		}

		if writes := w.api.Writes(); len(writes) != 1 {
			t.Errorf("written: %v", writes)
		}
	})
}

// Req: T-18a
func TestNothingIsWrittenThatDidNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1), controlPlane(2))
		w.pass(time.Minute)

		before := len(w.api.Writes())
		w.pass(time.Hour)

		if after := len(w.api.Writes()); after != before || before != 2 {
			t.Errorf("%d writes at first, %d after an hour", before, after)
		}

		if dials := len(w.net.Dials()); dials < 200 || dials > 260 {
			t.Errorf("%d sessions in an hour", dials)
		}

		w.expectEffects()
	})
}

// Req: T-12
func TestAMachineThatIsNotApprovedAndConfiguredIsLeftUntouched(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
	}{
		{"never approved", func(m *v1alpha1.TalosMachine) { m.Spec.Approved = nil }},
		{"un-approved", func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) }},
		{"rejected", func(m *v1alpha1.TalosMachine) { m.Spec.Rejected = &v1alpha1.MachineRejection{Reason: "no"} }},
		{"without a configuration", func(m *v1alpha1.TalosMachine) { m.Status.Configuration = nil }},
		{"being configured", func(m *v1alpha1.TalosMachine) { m.Status.Configuration.AppliedAt = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, newCluster(), worker(1, c.edit))
				w.pass(time.Hour)

				if dials, writes := w.net.Dials(), w.api.Writes(); len(dials)+len(writes) > 0 {
					t.Errorf("dialed %v, wrote %v", dials, writes)
				}

				// Positive control: it is looked at when that is over.
				now := metav1.Now()
				w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.Approved, m.Spec.Rejected = ptr.To(true), nil })
				w.editStatus(1, func(s *v1alpha1.TalosMachineStatus) {
					s.Configuration = &v1alpha1.MachineConfiguration{Hash: s.ConfigHash, AppliedAt: &now, BundleHash: bundleHash(0)}
				})
				w.settle()
				w.expect(1, reasonReady, reasonUpToDate)
			})
		})
	}
}

// Req: T-18a
func TestAPausedClustersMachinesAreNotEvenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newCluster()
		cluster.Spec.Paused = true
		cluster.Spec.ConfigPatches = sysctl(1)

		w := start(t, cluster, worker(1))
		w.pass(time.Hour)
		w.expect(1, reasonPaused)

		if dials := w.net.Dials(); len(dials) > 0 {
			t.Errorf("dialed %v", dials)
		}

		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })
		w.settle()
		w.expect(1, reasonReady, reasonUpToDate)
		w.expectEffects("apply configuration NO_REBOOT 001")
	})
}

// Req: T-18
func TestAnotherMachineAtTheAddressIsAskedForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, newCluster(), worker(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) }))
		w.node(1).SetHardware(maintenance.Hardware{UUID: name(2), Serial: "SN"})
		w.run()
		w.pass(10 * time.Minute)
		w.expect(1, reasonIdentityMismatch)

		status := w.machine(1).Status
		if !meta.IsStatusConditionTrue(status.Conditions, ConditionIdentityMismatch) || status.Phase != v1alpha1.MachineRunning {
			t.Errorf("status %+v", status)
		}

		for _, call := range w.node(1).Calls() {
			if call.Op != machine.OpDial && call.Op != machine.OpIdentity || call.Role != machine.RoleReader {
				t.Errorf("asked %+v", call)
			}
		}

		w.node(1).SetHardware(maintenance.Hardware{UUID: name(1), Serial: "SN"})
		w.pass(later)
		w.expect(1, reasonReady)

		if meta.FindStatusCondition(w.machine(1).Status.Conditions, ConditionIdentityMismatch) != nil {
			t.Error("IdentityMismatch stands")
		}
	})
}

// Another machine takes the address between the look and the sending.
// Req: T-18
func TestWhoIsThereIsReadOnTheConnectionThatSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.settle()

		// The fourth session since is the one that would send: looked at, its configuration read, and tried before.
		identities := 0
		w.node(1).Before(machine.OpIdentity, func(context.Context, machinetest.Call) error {
			if identities++; identities == 4 {
				w.node(1).SetHardware(maintenance.Hardware{UUID: name(9), Serial: "SN"})
			}

			return nil
		})
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.pass(10 * time.Minute)
		w.expectEffects()

		if identities < 4 || len(w.node(1).Calls(machine.OpTry)) != 1 {
			t.Fatalf("the test swapped nothing: %d identities", identities)
		}
	})
}

// Req: T-18
func TestAMachineThatIsBackInMaintenanceHasFailedUntilItAnswersAsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, newCluster(), worker(1, installing))
		w.node(1).Fail(machine.OpDial, machine.ClassInMaintenance)
		w.run()

		// It takes a moment to leave.
		w.pass(leaving - time.Second)
		w.expect(1, reasonLeavingMaintenance)
		w.pass(later)
		w.expect(1, reasonBackInMaintenance)

		status := w.machine(1).Status
		if back := meta.FindStatusCondition(status.Conditions, ConditionBackInMaintenance); status.Phase != v1alpha1.MachineFailed ||
			back == nil || back.Status != yes || back.Reason != "AnswersInMaintenance" {
			t.Errorf("status %+v", status)
		}

		// Discovery says it in its own words, and nobody fights over them.
		w.editStatus(1, func(s *v1alpha1.TalosMachineStatus) {
			meta.FindStatusCondition(s.Conditions, ConditionBackInMaintenance).Message = "as discovery says"
		})

		writes := len(w.api.Writes())
		w.pass(time.Hour)

		if after := len(w.api.Writes()); after != writes {
			t.Errorf("%d further writes", after-writes)
		}

		w.node(1).Recover(machine.OpDial)
		w.pass(later)
		w.expect(1, reasonReady)

		if status := w.machine(1).Status; status.Phase != v1alpha1.MachineRunning || meta.FindStatusCondition(status.Conditions, ConditionBackInMaintenance) != nil {
			t.Errorf("status %+v", status)
		}
	})
}

// Req: T-18
func TestAnotherMachineInMaintenanceAtTheAddressIsNotTakenForThisOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pending := worker(2, func(m *v1alpha1.TalosMachine) {
			m.Spec.Approved = nil
			m.Spec.Endpoint = address(3)
			m.Status = v1alpha1.TalosMachineStatus{Phase: v1alpha1.MachinePending, ObservedEndpoint: address(1)}
		})
		w := prepare(t, newCluster(), worker(1), pending)
		w.node(1).Fail(machine.OpDial, machine.ClassInMaintenance)
		w.run()
		w.pass(10 * time.Minute)
		w.expect(1, reasonAnotherMachine)

		if status := w.machine(1).Status; status.Phase != v1alpha1.MachineRunning {
			t.Errorf("status %+v", status)
		}
	})
}

// Req: T-06, T-18a
func TestAMachineIsFoundAtItsApprovedAddressesAndChangedAtItsEndpointAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := worker(1, func(m *v1alpha1.TalosMachine) {
			m.Spec.Network = &v1alpha1.MachineNetwork{Links: []v1alpha1.MachineLinkConfig{
				{PermanentMAC: "b4:45:06:00:00:01", Addresses: []string{"198.51.100.7/24"}},
			}}
		})
		m.Status.ConfigHash = renderFor(m, newCluster(), bundleOf(0)).hash

		w := prepare(t, newCluster(), m)
		node := w.node(1)
		w.net.Put("198.51.100.7:50000", node)
		w.net.Put(target(1), nil)
		w.run()
		w.settle()
		w.expect(1, reasonReady, reasonUpToDate, reasonAsSent)

		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.pass(10 * time.Minute)
		w.expect(1, reasonReady, reasonAnswersElsewhere)
		w.expectEffects()

		if tried := node.Calls(machine.OpTry); len(tried) > 0 {
			t.Errorf("tried %v", tried)
		}

		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.Endpoint = "198.51.100.7" })
		w.settle()
		w.expectEffects("apply configuration NO_REBOOT 001")
	})
}

// Req: T-15, T-18a
func TestDriftIsReportedAndNeverCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), controlPlane(1))
		w.settle()
		w.expect(1, reasonAsSent)

		running, _ := w.node(1).Configuration()
		token := bundleOf(0).TrustdInfo.Token
		changed := strings.Replace(string(running), "machine:\n", "# by hand\nmachine:\n    sysctls:\n        vm.swappiness: \"7\"\n", 1)
		changed = strings.ReplaceAll(changed, token, "abcdef.0123456789abcdef")

		if !strings.Contains(string(running), token) {
			t.Fatal("there is nothing that could be told")
		}

		w.node(1).SetConfiguration([]byte(changed))
		w.pass(time.Hour)
		w.expect(1, reasonChanged, reasonUpToDate)
		w.expectEffects()

		message := meta.FindStatusCondition(w.machine(1).Status.Conditions, ConditionDrifted).Message
		if !strings.Contains(message, "+        vm.swappiness: \"7\"") || strings.Contains(message, token) ||
			strings.Contains(message, "0123456789abcdef") || len(message) > notice.Max {
			t.Errorf("the difference is %s", message)
		}

		// Written otherwise, it is the same.
		w.node(1).SetConfiguration([]byte("# a comment\n" + string(running)))
		w.pass(later)
		w.expect(1, reasonAsSent)
	})
}

// Req: T-16
func TestABundleThatIsNoneIsToldAndNothingIsDialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, newCluster(), worker(1))

		if err := w.host.CoreV1().Secrets(own).Delete(context.Background(), "c-bundle", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		w.run()
		w.pass(time.Minute)
		w.expect(1, "BundleNotFound")

		if dials := w.net.Dials(); len(dials) > 0 {
			t.Errorf("dialed %v", dials)
		}
	})
}

// Req: T-15, T-18a
func TestARotatedBundleSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.settle()

		secret, err := w.host.CoreV1().Secrets(own).Get(context.Background(), "c-bundle", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		secret.Data["bundle"] = bundleYAML(1)

		if _, err := w.host.CoreV1().Secrets(own).Update(context.Background(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		// Of the bundle's secrets, all but the CA that the sessions need may have been exchanged.
		for _, trusting := range []bool{false, true} {
			if trusting {
				w.node(1).OfCluster(nil)
			}

			w.pass(2 * later)
			w.expect(1, reasonBundleRotated)
		}

		w.expect(1, reasonReady)
		w.expectEffects()
	})
}

// A control plane boots until there is an etcd, so it counts as running before.
func TestAControlPlaneThatWaitsForEtcdRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newCluster()
		cluster.Status.Bootstrap = nil

		w := prepare(t, cluster, controlPlane(1, installing), worker(2, installing))
		for n := 1; n <= 2; n++ {
			w.node(n).SetEtcd().SetStatus(machine.Status{Stage: "booting", Unmet: []string{"services: etcd"}})
		}
		w.run()
		w.settle()
		w.expect(1, reasonAwaitingBootstrap)
		w.expect(2, reasonNotRunning)

		if is, other := w.machine(1).Status.Phase, w.machine(2).Status.Phase; is != v1alpha1.MachineRunning || other != v1alpha1.MachineInstalling {
			t.Errorf("phases %s and %s", is, other)
		}
	})
}

// Req: T-18a
func TestDecidingChangesNothingOfWhatItLooksAt(t *testing.T) {
	m := worker(1, func(m *v1alpha1.TalosMachine) {
		m.Status.Update = &v1alpha1.MachineUpdate{Hash: "x", IntendedAt: ptr.To(metav1.NewTime(time.Unix(1, 0)))}
	})
	p := pictureOf(m, newCluster())
	before := m.DeepCopy()
	first, step := decide(p)

	if !equality.Semantic.DeepEqual(before, m) {
		t.Error("the machine was changed")
	}

	if second, again := decide(p); !equality.Semantic.DeepEqual(first, second) || step != again {
		t.Error("it decides otherwise the second time")
	}
}
