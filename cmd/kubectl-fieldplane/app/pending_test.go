package app

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const secondUUID = "5d5d5544-004d-4b10-8056-b4c04f4a3134"

// site is what two namespaces hold: two machines that wait, one that is approved, and what was not registered.
func site() []runtime.Object {
	ago := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now().Add(-d))) }
	return []runtime.Object{
		pendingMachine(),
		pendingMachine(func(m *v1alpha1.TalosMachine) {
			m.Namespace, m.Name = "site-b", secondUUID
			m.Spec.ClusterRef.Name, m.Spec.Endpoint, m.Spec.Identity.Serial = "filling", "198.51.100.7", ""
			m.Status.ObservedEndpoint, m.Status.Hardware = "198.51.100.9", nil
			m.CreationTimestamp = metav1.NewTime(now().Add(-26 * time.Hour))
		}),
		pendingMachine(func(m *v1alpha1.TalosMachine) {
			m.Name = "6e6e5544-004d-4b10-8056-b4c04f4a3135"
			approveAs(m, v1alpha1.RoleWorker)
		}),
		plantCluster(func(c *v1alpha1.TalosCluster) {
			c.Status.Discovery = &v1alpha1.DiscoveryStatus{
				Weak: []v1alpha1.WeakCandidate{{Address: "192.0.2.20", Missing: []string{"serial"}, Manufacturer: "QEMU", Hint: "qm set ID --smbios1 serial=S", SeenAt: ago(10 * time.Minute)}},
				Collisions: []v1alpha1.IdentityCollision{
					{Address: "192.0.2.21", Identity: v1alpha1.MachineIdentity{UUID: uuid, Serial: "OTHER"}, MachineName: uuid, Message: "192.0.2.21 answers with the UUID of machine " + uuid, SeenAt: ago(2 * time.Hour)},
					{Address: "192.0.2.22", Identity: v1alpha1.MachineIdentity{UUID: "7f7f", Serial: "7MK1J33"}, MachineName: uuid, Message: "same serial as " + uuid},
				},
			}
		}),
	}
}

// Req: A-08, T-04, T-05, T-07, T-09
func TestPendingListsWhatWaitsAndWhatWasNotRegistered(t *testing.T) {
	s := newSession(site()...)
	s.run(t, "pending", "-A").wantOK(t)
	wantText(t, s.out, `NAMESPACE   UUID                                   CLUSTER   ADDRESS                               SERIAL    HARDWARE                   DISKS                                                   AGE   WAITS FOR
site-a      4c4c4544-004d-4b10-8056-b4c04f4a3133   plant     192.0.2.10                            7MK1J33   Dell Inc. PowerEdge R650   /dev/nvme0n1 960 GB, /dev/sda 4.0 TB, /dev/sdb 4.0 TB   5m    approval
site-b      5d5d5544-004d-4b10-8056-b4c04f4a3134   filling   198.51.100.7 (seen at 198.51.100.9)   <none>    <none>                     <none>                                                  26h   approval

Seen in the declared ranges, with an identity that is incomplete or in doubt:
NAMESPACE   CLUSTER   ADDRESS      SERIAL    PROBLEM                                           MACHINE          SINCE
site-a      plant     192.0.2.20   <none>    missing: serial                                   not registered   10m
site-a      plant     192.0.2.21   OTHER     has the UUID of another machine                   not registered   120m
site-a      plant     192.0.2.22   7MK1J33   shares its serial or a MAC with another machine   7f7f             <unknown>

192.0.2.20: qm set ID --smbios1 serial=S
192.0.2.21: answers with the UUID of machine 4c4c4544-004d-4b10-8056-b4c04f4a3133
192.0.2.22: same serial as 4c4c4544-004d-4b10-8056-b4c04f4a3133
`)
	list := s.client.Actions()[0].(clienttesting.ListActionImpl)
	if list.Namespace != "" {
		t.Errorf("-A lists namespace %q", list.Namespace)
	}
}

// Req: T-05, T-13, T-18
func TestPendingSaysWhatEachMachineWaitsFor(t *testing.T) {
	with := func(kind string, edit func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
		return pendingMachine(edit, func(m *v1alpha1.TalosMachine) {
			if kind != "" {
				m.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Message: "because\x1b"}}
			}
		})
	}
	waits, rejected := func(*v1alpha1.TalosMachine) {}, func(m *v1alpha1.TalosMachine) {
		m.Spec.Rejected, m.Status.Phase = &v1alpha1.MachineRejection{Reason: "scrap"}, v1alpha1.MachineRejected
	}
	runs := func(m *v1alpha1.TalosMachine) {
		approveAs(m, v1alpha1.RoleWorker)
		m.Status.Phase, m.Status.Configuration = v1alpha1.MachineRunning, &v1alpha1.MachineConfiguration{AppliedAt: ptr.To(metav1.NewTime(now()))}
	}
	unapprovedAgain := func(m *v1alpha1.TalosMachine) { runs(m); m.Spec.Approved = ptr.To(false) }
	for _, test := range []struct {
		name    string
		machine *v1alpha1.TalosMachine
		args    []string
		// want is empty where the machine is not shown.
		want string
	}{
		{name: "an approval", machine: with("", waits), want: "approval"},
		{name: "an approval that accepts shared hardware", machine: with("SharesHardware", waits), want: "approval; --accept-shared-hardware: because\uFFFD"},
		{name: "a renewed one", machine: with("BackInMaintenance", runs), want: "a renewed approval: it was configured, and is back in maintenance mode"},
		{name: "a renewed one after the last was taken back", machine: with("BackInMaintenance", unapprovedAgain), want: "a renewed approval: it was configured, and is back in maintenance mode"},
		{name: "another one, since the disk is another", machine: with("InstallDiskChanged", func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) }), want: "another approval: InstallDiskChanged: because\uFFFD"},
		{name: "nothing: it is approved", machine: with("", func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) })},
		{name: "nothing: it runs", machine: with("SharesHardware", runs)},
		{name: "nothing: it runs on without its approval", machine: with("", unapprovedAgain), args: []string{"--all"}},
		{name: "nothing: it is rejected", machine: with("", rejected)},
		{name: "nothing, shown with --all: it is rejected", machine: with("BackInMaintenance", rejected), args: []string{"--all"}, want: "nothing, rejected: scrap"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(test.machine, plantCluster()).run(t, append([]string{"pending", "--no-headers"}, test.args...)...).wantOK(t)
			shown := strings.Contains(s.out, uuid)
			if shown != (test.want != "") || test.want != "" && !strings.HasSuffix(strings.TrimSpace(s.out), "   "+test.want) {
				t.Errorf("want %q, have:\n%s", test.want, s.out)
			}
		})
	}
}

// Req: A-08, T-05
func TestPendingOutputs(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		out  string
	}{
		{"one namespace", []string{"--no-headers"}, uuid},
		{"wide has the fingerprint", []string{"-o", "wide"}, "b4:45:06:aa:00:01,b4:45:06:aa:00:02   " + fingerprint},
		{"names, as approve takes them", []string{"-o", "name"}, "talosmachine.talos.fieldplane.dev/" + uuid + "\n"},
		{"yaml", []string{"-o", "yaml"}, "kind: TalosMachineList\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(site()...).run(t, append([]string{"pending"}, test.args...)...).wantOK(t)
			wantContains(t, s.out, test.out)
			for _, foreign := range []string{secondUUID, "6e6e5544", "managedFields"} {
				if strings.Contains(s.out, foreign) {
					t.Errorf("%s has no place in:\n%s", foreign, s.out)
				}
			}
		})
	}

	t.Run("json reads back as what is stored", func(t *testing.T) {
		s := newSession(site()...).run(t, "pending", "-A", "-o", "json").wantOK(t)
		var list v1alpha1.TalosMachineList
		if err := json.Unmarshal([]byte(s.out), &list); err != nil {
			t.Fatalf("%v in:\n%s", err, s.out)
		}
		if list.Kind != "TalosMachineList" || len(list.Items) != 2 || list.Items[0].Kind != "TalosMachine" || list.Items[0].Spec.Identity.Serial != "7MK1J33" {
			t.Errorf("have %+v", list)
		}
	})

	t.Run("json of nothing is an empty list", func(t *testing.T) {
		s := newSession().run(t, "pending", "-o", "json").wantOK(t)
		wantContains(t, s.out, `"items": []`)
		if s.errOut != "" {
			t.Errorf("stderr %q", s.errOut)
		}
	})

	t.Run("many disks are cut short, except with -o wide", func(t *testing.T) {
		machine := pendingMachine(func(m *v1alpha1.TalosMachine) {
			m.Status.Hardware.Disks = append(m.Status.Hardware.Disks, m.Status.Hardware.Disks...)
		})
		wantContains(t, newSession(machine.DeepCopy()).run(t, "pending").out, "/dev/sdb 4.0 TB, 3 more ")
		wantContains(t, newSession(machine).run(t, "pending", "-o", "wide").out, "/dev/sdb 4.0 TB, /dev/nvme0n1 960 GB, /dev/sda 4.0 TB, /dev/sdb 4.0 TB ")
	})
}

// Req: T-01, T-10
func TestPendingWithoutMachinesSaysWhereTheyAreLookedFor(t *testing.T) {
	const example = "Machines are looked for only at the addresses that a TalosCluster declares, for example:\n" +
		`  kubectl -n site-a patch taloscluster NAME --type=merge -p '{"spec":{"discovery":{"cidrs":["192.0.2.0/24"]}}}'` + "\n"
	swept := metav1.NewTime(now().Add(-40 * time.Second))
	for _, test := range []struct {
		name    string
		cluster func(*v1alpha1.TalosCluster)
		want    string
	}{
		{"no cluster", nil, ""},
		{"a cluster that declares nothing", func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = v1alpha1.TalosDiscovery{} }, "TalosCluster site-a/plant declares no addresses: nothing is looked for.\n"},
		{"one that was not swept yet", func(*v1alpha1.TalosCluster) {}, "TalosCluster site-a/plant declares 192.0.2.0/24; it was not swept yet.\n"},
		{"one that is being swept", func(c *v1alpha1.TalosCluster) { c.Status.Discovery = &v1alpha1.DiscoveryStatus{StartedAt: &swept} }, "TalosCluster site-a/plant declares 192.0.2.0/24; it is being swept now.\n"},
		{"one that is paused", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }, "TalosCluster site-a/plant declares 192.0.2.0/24; it is paused: nothing is looked for.\n"},
		{"one that was swept", func(c *v1alpha1.TalosCluster) {
			c.Spec.Discovery.Addresses = []string{"198.51.100.7"}
			c.Status.Discovery = &v1alpha1.DiscoveryStatus{StartedAt: &swept, CompletedAt: &swept, Candidates: 257, Answered: 1}
		}, "TalosCluster site-a/plant declares 192.0.2.0/24, 198.51.100.7; swept 40s ago: 257 addresses asked, 1 answered in maintenance mode.\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			if test.cluster != nil {
				s = newSession(plantCluster(test.cluster))
			}
			s.run(t, "pending").wantOK(t)
			wantText(t, s.errOut, "No machine waits for approval in namespace site-a.\n"+test.want+example)
			if s.out != "" {
				t.Errorf("stdout %q", s.out)
			}
		})
	}
	t.Run("in every namespace", func(t *testing.T) {
		wantContains(t, newSession().run(t, "pending", "-A").wantOK(t).errOut, "No machine waits for approval in any namespace.", "kubectl -n NAMESPACE patch")
	})
	t.Run("but what is not registered is shown", func(t *testing.T) {
		s := newSession(site()[3]).run(t, "pending").wantOK(t)
		wantContains(t, s.errOut, "No machine waits")
		wantContains(t, s.out, "missing: serial", "not registered", "qm set ID")
	})
}

// Req: T-13
func TestPendingNeedsNoRightOnClusters(t *testing.T) {
	s := newSession(site()...)
	s.client.PrependReactor("list", "talosclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1alpha1.Resource("talosclusters"), "", errors.New("no"))
	})
	s.run(t, "pending").wantOK(t)
	wantContains(t, s.out, uuid)
	wantContains(t, s.errOut, "you may not list talosclusters")
}

func TestPendingRefuses(t *testing.T) {
	for _, test := range []struct {
		name       string
		args       []string
		what, todo string
	}{
		{"an argument", []string{"pending", "site-a"}, `takes no argument, and there is "site-a"`, "kubectl fieldplane pending --help"},
		{"an unknown output", []string{"pending", "-o", "csv"}, "-o csv is not possible", "wide, json, yaml or name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newSession(site()...).run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
	for resource, to := range map[string]string{"talosmachines": "list machines", "talosclusters": "list clusters"} {
		t.Run("when the server cannot "+to, func(t *testing.T) {
			s := newSession(site()...)
			s.client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("connection refused")
			})
			s.run(t, "pending").wantRefused(t, "cannot "+to+": connection refused", "kubectl version")
		})
	}
	t.Run("everywhere, for want of the right, with a way out", func(t *testing.T) {
		s := newSession()
		s.client.PrependReactor("list", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), "", errors.New("no"))
		})
		s.run(t, "pending", "-A").wantRefused(t, "forbidden", "Without -A only one namespace is read.")
	})
}
