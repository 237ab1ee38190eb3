package machineconfiguration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Req: T-12
func TestAMachineThatIsNotToBeConfiguredIsLeftUntouched(t *testing.T) {
	data := bundleYAML(t)

	for name, edit := range map[string]func(*v1alpha1.TalosMachine){
		"approval was never given": func(m *v1alpha1.TalosMachine) { m.Spec.Approved = nil },
		"approval is false":        func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) },
		"it is rejected":           func(m *v1alpha1.TalosMachine) { m.Spec.Rejected = &v1alpha1.MachineRejection{Reason: "no"} },
		"it is being deleted":      func(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"it was configured": func(m *v1alpha1.TalosMachine) {
			m.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: &metav1.Time{Time: time.Now()}}
		},
		"it has no role either": func(m *v1alpha1.TalosMachine) { m.Spec.Approved, m.Spec.Role = nil, "" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				w := start(t, n, cluster(), machine(edit), secret(data))
				w.pass(10 * time.Minute)

				if n.dialed() != 0 || len(w.api.Calls()) != 0 || len(w.host.Actions()) != 0 || len(w.events.all()) != 0 {
					t.Errorf("%d dials, calls %v, host calls %v, events %v", n.dialed(), w.api.Calls(), w.host.Actions(), w.events.all())
				}
			})
		})
	}
}

// Req: T-15, T-18, A-06
func TestAnApprovedMachineGetsItsConfigurationOnceAfterTheIntentIsRecorded(t *testing.T) {
	data := bundleYAML(t)

	for _, role := range []v1alpha1.MachineRole{v1alpha1.RoleWorker, v1alpha1.RoleControlPlane} {
		t.Run(string(role), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.warnings = []string{"mind the gap"}

				w := start(t, n, cluster(), secret(data), machine(func(m *v1alpha1.TalosMachine) {
					m.Spec.Role = role
					m.Spec.AcceptedFingerprint = print
				}))

				var recorded v1alpha1.TalosMachineStatus

				n.set(func(n *node) { n.onApply = func() { recorded = w.machine().Status } })
				w.pass(time.Hour)

				w.expectSends(1)
				w.expect(reasonApplied)

				sum := sha256.Sum256(n.sent[0])
				hash := hex.EncodeToString(sum[:])

				if c := recorded.Configuration; c == nil || c.Hash != hash || c.Endpoint != endpoint || c.IntendedAt == nil || c.AppliedAt != nil ||
					recorded.Phase != v1alpha1.MachineConfiguring {
					t.Errorf("while it was sent, this was recorded: %+v", recorded)
				}

				status := w.machine().Status
				if c := status.Configuration; c == nil || c.AppliedAt == nil || c.Hash != hash || status.ConfigHash != hash {
					t.Errorf("status %+v", status)
				}

				if n.dials != 1 || n.reads != 1 {
					t.Errorf("%d dials, %d reads: identity and configuration belong on one connection", n.dials, n.reads)
				}

				provider, err := configloader.NewFromBytes(n.sent[0])
				if err != nil || provider.Machine().Type().String() != string(role) {
					t.Errorf("sent a configuration of type %v (%v)", provider.Machine().Type(), err)
				}

				told := w.events.all()
				if len(told) != 1 || !strings.HasPrefix(told[0], "TalosMachine site-a/"+uuid+" Normal Applied: ") || !strings.Contains(told[0], "mind the gap") {
					t.Errorf("events %v", told)
				}
			})
		})
	}
}

// Req: T-11
func TestAMachineWithoutARoleShowsRenderFailedUntilItHasOne(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		w := start(t, n, cluster(), secret(data), machine(func(m *v1alpha1.TalosMachine) { m.Spec.Role = "" }))
		w.pass(10 * time.Minute)
		w.expect(reasonRenderFailed)

		if c := meta.FindStatusCondition(w.machine().Status.Conditions, ConditionRenderFailed); c == nil || c.Message != "render: machine role is not set" {
			t.Errorf("RenderFailed: %+v", c)
		}

		if n.dialed() != 0 || len(w.api.Writes()) != 1 {
			t.Errorf("%d dials, writes %v", n.dialed(), w.api.Writes())
		}

		w.edit(func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleWorker })
		w.settle()
		w.expect(reasonApplied)
		w.expectSends(1)
	})
}

// Req: T-16
func TestTheBundleIsReadOnlyFromTheOwnNamespaceAndOnlyForItsCluster(t *testing.T) {
	data := bundleYAML(t)

	for _, c := range []struct {
		name   string
		secret *corev1.Secret
		want   reason
	}{
		{"no Secret", secret(data, func(s *corev1.Secret) { s.Name = "another" }), reasonBundleNotFound},
		{"in the cluster's namespace", secret(data, func(s *corev1.Secret) { s.Namespace = namespace }), reasonBundleNotFound},
		{"no label", secret(data, func(s *corev1.Secret) { s.Labels = nil }), reasonBundleNotForThisCluster},
		{"another cluster's label", secret(data, func(s *corev1.Secret) { s.Labels[bundle.ClusterLabel] = "site-b.c" }), reasonBundleNotForThisCluster},
		{"another cluster's label, and no bundle", secret(nil, func(s *corev1.Secret) { s.Labels[bundle.ClusterLabel] = "site-b.c" }), reasonBundleNotForThisCluster},
		{"no key", secret(data, func(s *corev1.Secret) { s.Data = map[string][]byte{"other": data} }), reasonBundleInvalid},
		{"no YAML", secret([]byte("{")), reasonBundleInvalid},
		{"half a bundle", secret(data[:len(data)/2]), reasonBundleInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				w := start(t, n, cluster(), machine(), c.secret)
				w.pass(time.Minute)
				w.expect(c.want)
				w.expectSends(0)

				if n.dialed() != 0 {
					t.Error("dialed without a bundle")
				}

				for _, action := range w.host.Actions() {
					if action.GetNamespace() != own || action.GetVerb() != "get" {
						t.Errorf("%s of %s in %s", action.GetVerb(), action.GetResource().Resource, action.GetNamespace())
					}
				}

				// Somebody repairs it.
				right := secret(data)
				if _, err := w.host.CoreV1().Secrets(own).Update(context.Background(), right, metav1.UpdateOptions{}); err != nil {
					if _, err := w.host.CoreV1().Secrets(own).Create(context.Background(), right, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}

				w.pass(pollInterval + time.Second)
				w.expect(reasonApplied)
			})
		})
	}
}

// Req: T-18
func TestWhoHasNoDiskIsSaidToHaveNone(t *testing.T) {
	for disks, want := range map[string]string{"": "it has none", "/dev/sdb": "it has /dev/sdb"} {
		read := maintenance.Hardware{}
		if disks != "" {
			read.Disks = []maintenance.Disk{{DevPath: disks}}
		}

		m := &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Install: &v1alpha1.MachineInstall{Disk: "/dev/sda"}}}
		if r, message := checkInstallDisk(m, read); r != reasonInstallDiskNotFound || !strings.HasSuffix(message, want) {
			t.Errorf("%s: %q", r, message)
		}
	}
}

// Req: T-06, T-18
func TestNothingIsSentToAMachineThatIsNotTheApprovedOne(t *testing.T) {
	data := bundleYAML(t)
	none := func(*v1alpha1.TalosMachine) {}
	controlPlane := func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleControlPlane }

	for _, c := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
		node func(*node)
		want reason
	}{
		{"another UUID", none, func(n *node) { n.hardware.UUID = "0c1d2e3f-8899-4aab-bccd-ddeeff001122" }, reasonIdentityMismatch},
		{"another serial", none, func(n *node) { n.hardware.Serial = "SN-2-X" }, reasonIdentityMismatch},
		{"no serial", none, func(n *node) { n.hardware.Serial = "" }, reasonIdentityMismatch},
		{"a MAC less", none, func(n *node) { n.hardware.Links = n.hardware.Links[:1] }, reasonIdentityMismatch},
		{"no identity", none, func(n *node) { n.hardware = maintenance.Hardware{} }, reasonIdentityMismatch},
		{"no system information", none, func(n *node) { n.readErr = failure(maintenance.ClassIdentityAbsent, "read identity") }, reasonIdentityAbsent},
		{"nobody", none, func(n *node) { n.dialErr = failure(maintenance.ClassUnreachable, "dial") }, reasonUnreachable},
		{"an error of unknown make", none, func(n *node) { n.dialErr = fmt.Errorf("boom") }, reasonUnreachable},
		{"something else than Talos", none, func(n *node) { n.dialErr = failure(maintenance.ClassNotTalos, "dial") }, reasonNotTalos},
		{"a configured machine", none, func(n *node) { n.readErr = failure(maintenance.ClassNotInMaintenance, "read identity") }, reasonNotInMaintenance},
		{"a machine that fails", none, func(n *node) { n.readErr = failure(maintenance.ClassNodeError, "read identity") }, reasonNodeError},
		{"a machine that installs", none, func(n *node) { n.hardware.Stage = "installing" }, reasonMachineBusy},
		{"no endpoint", func(m *v1alpha1.TalosMachine) { m.Spec.Endpoint = "" }, func(*node) {}, reasonEndpointNotSet},
		{"a name as endpoint", func(m *v1alpha1.TalosMachine) { m.Spec.Endpoint = "node.example" }, func(*node) {}, reasonEndpointNotSet},
		{"another fingerprint", func(m *v1alpha1.TalosMachine) { m.Spec.AcceptedFingerprint = otherPrint }, func(*node) {}, reasonFingerprintMismatch},
		{"a fingerprint that is none", func(m *v1alpha1.TalosMachine) { m.Spec.AcceptedFingerprint = "yes" }, func(*node) {}, reasonFingerprintMismatch},
		{
			"another fingerprint, unverified accepted too",
			func(m *v1alpha1.TalosMachine) {
				m.Spec.AcceptedFingerprint, m.Spec.AcceptUnverifiedFingerprint = otherPrint, true
			},
			func(*node) {}, reasonFingerprintMismatch,
		},
		{"a control plane without a fingerprint", controlPlane, func(*node) {}, reasonFingerprintRequired},
		{"no disks", none, func(n *node) { n.hardware.Disks = nil }, reasonInstallDiskNotFound},
		{"no such disk", none, func(n *node) { n.hardware.Disks[0].DevPath = "/dev/sdc" }, reasonInstallDiskNotFound},
		{"a second disk of the kind beyond those that an object lists", func(m *v1alpha1.TalosMachine) {
			m.Spec.Install = &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeHDD}}
		}, func(n *node) {
			for i := range 64 {
				n.hardware.Disks = append(n.hardware.Disks, maintenance.Disk{DevPath: fmt.Sprintf("/dev/sdb%03d", i), Transport: "sata"})
			}
			n.hardware.Disks = append(n.hardware.Disks, maintenance.Disk{DevPath: "/dev/sdz", Transport: "sata", Rotational: true})
		}, reasonInstallDiskNotFound},
		{"two disks that the selector means", func(m *v1alpha1.TalosMachine) {
			m.Spec.Install = &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Type: v1alpha1.DiskTypeHDD}}
		}, func(n *node) { n.hardware.Disks[1].Rotational = true }, reasonInstallDiskNotFound},
		{"another disk under the path that was approved", func(m *v1alpha1.TalosMachine) {
			m.Status.Approval = &v1alpha1.MachineApproval{InstallDisk: &v1alpha1.MachineDisk{Path: "/dev/sda", Serial: "S-A"}}
		}, func(n *node) { n.hardware.Disks[0].Serial = "S-C" }, reasonInstallDiskChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				c.node(n)

				w := start(t, n, cluster(), secret(data), machine(c.edit))
				w.pass(10 * time.Minute)
				w.expect(c.want)
				w.expectSends(0)

				// Unchanged, it is written and told once, and asked again in moderation.
				if writes := len(w.api.Writes()); writes != 1 {
					t.Errorf("%d writes", writes)
				}

				if told := w.events.all(); len(told) != 1 || !strings.Contains(told[0], " "+string(c.want)+": ") {
					t.Errorf("events %v", told)
				}

				if dials := n.dialed(); dials > 30 {
					t.Errorf("%d dials in ten minutes", dials)
				}

				// The approved machine is there, and accepted.
				n.set(func(n *node) { n.hardware, n.dialErr, n.readErr = hardwareOf(), nil, nil })
				w.edit(func(m *v1alpha1.TalosMachine) {
					m.Spec.Endpoint, m.Spec.AcceptedFingerprint = endpoint, ""
					m.Spec.AcceptUnverifiedFingerprint = true
				})
				w.pass(time.Minute)
				w.expect(reasonApplied)
				w.expectSends(1)
			})
		})
	}
}

// Req: T-15
func TestARefusalIsPermanentUntilSomebodyDecidesAnew(t *testing.T) {
	data := bundleYAML(t)
	refuse := func([]byte) error { return failure(maintenance.ClassRejected, "apply configuration") }

	for name, decide := range map[string]func(*world){
		"another configuration": func(w *world) {
			w.edit(func(m *v1alpha1.TalosMachine) { m.Spec.Install.Disk = "/dev/sdb" })
		},
		"a renewed approval": func(w *world) {
			m := w.machine()
			m.Status.Approval = &v1alpha1.MachineApproval{User: "alice", Time: metav1.NewTime(time.Now())}

			_, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(context.Background(), m, metav1.UpdateOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.applyErr = refuse

				w := start(t, n, cluster(), secret(data), machine())
				w.pass(time.Hour)
				w.expect(reasonRefused)
				w.expectSends(1)

				// Neither a restart nor a change that has nothing to do with it sends it again.
				w.stop()
				w.run()
				w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Discovery.Addresses = []string{endpoint} })
				w.pass(time.Hour)
				w.expect(reasonRefused)
				w.expectSends(1)

				n.set(func(n *node) { n.applyErr = nil })
				decide(w)
				w.pass(time.Minute)
				w.expectSends(2)
				w.expect(reasonApplied)
			})
		})
	}
}

// Req: T-13, T-15
func TestARefusalAfterARenewedApprovalIsPermanentToo(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.applyErr = func([]byte) error { return failure(maintenance.ClassRejected, "apply configuration") }

		w := start(t, n, cluster(), secret(data), machine())
		w.pass(time.Hour)
		w.expectSends(1)

		setStatus := func(edit func(*v1alpha1.TalosMachineStatus)) {
			m := w.machine()
			edit(&m.Status)

			if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(context.Background(), m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}

			w.pass(time.Minute)
		}

		setStatus(func(s *v1alpha1.TalosMachineStatus) {
			s.Approval = &v1alpha1.MachineApproval{User: "alice", Time: metav1.NewTime(time.Now())}
		})
		w.expectSends(2)
		w.pass(time.Hour)

		// The approval is newer than the first refusal, and older than the second.
		setStatus(func(s *v1alpha1.TalosMachineStatus) { s.Hardware = &v1alpha1.MachineHardware{Product: "seen again"} })
		w.expect(reasonRefused)
		w.expectSends(2)
	})
}

// Req: T-15
func TestABusyMachineIsTriedAgainInModeration(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.applyErr = func([]byte) error { return failure(maintenance.ClassBusy, "apply configuration") }

		w := start(t, n, cluster(), secret(data), machine())
		w.pass(10 * time.Minute)
		w.expect(reasonMachineBusy)

		if sends := n.sends(); sends < 10 || sends > 30 {
			t.Errorf("sent %d times in ten minutes", sends)
		}

		if c := w.machine().Status.Configuration; c == nil || c.IntendedAt != nil {
			t.Errorf("the intent stands although the machine said no: %+v", c)
		}

		n.set(func(n *node) { n.applyErr = nil })
		w.pass(lastRetry)
		w.expect(reasonApplied)
	})
}

// Req: T-12, T-13
func TestUnapprovingStopsWhatHasNotBeenSent(t *testing.T) {
	data := bundleYAML(t)
	unapprove := func(w *world) func() {
		return func() { w.edit(func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) }) }
	}

	t.Run("just before the intent is recorded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			w := start(t, n, cluster(), secret(data), machine())
			done := false

			w.api.Before(func(_ context.Context, call fakeapi.Call) error {
				if call.Verb == "updatestatus" && !done {
					done = true
					unapprove(w)()
				}

				return nil
			})
			w.pass(10 * time.Minute)
			w.expectSends(0)

			if status := w.machine().Status; status.Configuration != nil || len(status.Conditions) != 0 {
				t.Errorf("status %+v", status)
			}
		})
	})

	t.Run("while it waits for the machine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.dialErr = failure(maintenance.ClassUnreachable, "dial")

			w := start(t, n, cluster(), secret(data), machine())
			w.pass(time.Minute)
			unapprove(w)()
			w.settle()

			before := w.machine()

			n.set(func(n *node) { n.dialErr = nil })
			w.pass(10 * time.Minute)
			w.expectSends(0)

			if w.machine().ResourceVersion != before.ResourceVersion {
				t.Error("its status was written")
			}
		})
	})

	t.Run("while it is being sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			w := start(t, n, cluster(), secret(data), machine())

			var version string

			n.set(func(n *node) {
				n.onApply = func() {
					unapprove(w)()

					version = w.machine().ResourceVersion
				}
			})
			w.pass(10 * time.Minute)
			w.expectSends(1)

			if w.machine().ResourceVersion != version {
				t.Error("the status of an unapproved machine was written")
			}

			// Approved again: what happened is found out, and nothing sent twice.
			n.set(func(n *node) { n.onApply = nil })
			w.edit(func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(true) })
			w.pass(10 * time.Minute)
			w.expectSends(1)
			w.expect(reasonAppliedUnconfirmed)
		})
	})
}

// Req: T-15
func TestAPausedOrAbsentClusterStopsEverything(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		paused := cluster()
		paused.Spec.Paused = true

		w := start(t, n, paused, secret(data), machine())
		w.pass(10 * time.Minute)
		w.expect(reasonPaused)

		if n.dialed() != 0 || len(w.host.Actions()) != 0 {
			t.Errorf("%d dials, host calls %v", n.dialed(), w.host.Actions())
		}

		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })
		w.settle()
		w.expect(reasonApplied)
	})

	synctest.Test(t, func(t *testing.T) {
		w := start(t, newNode(), secret(data), machine())
		w.pass(time.Minute)
		w.expect(reasonClusterNotFound)

		if _, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Create(context.Background(), cluster(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		w.settle()
		w.expect(reasonApplied)
	})
}

// Discovery writes the same status while configuration is under way.
// Req: A-06
func TestTheOutcomeIsRecordedBesideOtherWrites(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		w := start(t, n, cluster(), secret(data), machine())
		n.set(func(n *node) {
			n.onApply = func() {
				m := w.machine()
				m.Status.ObservedEndpoint = "192.0.2.99"

				if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(context.Background(), m, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
		w.pass(time.Minute)
		w.expect(reasonApplied)
		w.expectSends(1)

		if got := w.machine().Status.ObservedEndpoint; got != "192.0.2.99" {
			t.Errorf("observedEndpoint %q", got)
		}
	})
}

// Configuration goes to spec.endpoint, wherever the machine was seen.
// Req: T-06
func TestTheObservedEndpointIsNeverDialed(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		w := start(t, n, cluster(), secret(data), machine(func(m *v1alpha1.TalosMachine) {
			m.Spec.Endpoint = "198.51.100.1" // nobody there
			m.Status.ObservedEndpoint = endpoint
		}))
		w.pass(10 * time.Minute)
		w.expect(reasonUnreachable)
		w.expectSends(0)

		if n.reads != 0 {
			t.Error("the machine was asked at its observed address")
		}
	})
}

// Req: T-05, T-18
func TestAMachineWithHardwareOfAnOlderOneGetsNothingUntilThatIsAccepted(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		older := machine(func(m *v1alpha1.TalosMachine) {
			m.Name, m.Spec.Identity.UUID = "0c1d2e3f-8899-4aab-bccd-ddeeff001122", "0c1d2e3f-8899-4aab-bccd-ddeeff001122"
			m.Spec.Identity.Serial = "SN-OLD"
			m.Spec.Approved = nil
			m.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		})
		n := newNode()

		w := start(t, n, cluster(), secret(data), older, machine(func(m *v1alpha1.TalosMachine) { m.CreationTimestamp = metav1.NewTime(time.Now()) }))
		w.pass(10 * time.Minute)
		w.expect(reasonSharedNotAccepted)
		w.expectSends(0)

		if n.dialed() != 0 {
			t.Error("dialed")
		}

		if told := w.events.all(); len(told) != 1 || !strings.Contains(told[0], older.Name) {
			t.Errorf("events %v", told)
		}

		w.edit(func(m *v1alpha1.TalosMachine) { m.Spec.AcceptSharedHardware = true })
		w.pass(time.Minute)
		w.expect(reasonApplied)
		w.expectSends(1)
	})
}
