package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func machinesResource() (r metav1.GroupVersionResource) {
	return metav1.GroupVersionResource{Group: v1alpha1.GroupName, Version: "v1alpha1", Resource: "talosmachines"}
}

// Req: T-13
func TestApproveShowsTheHardwareThenAsksThenWritesWhatWasShown(t *testing.T) {
	s := newSession(pendingMachine(), plantCluster())
	s.input = "y\n"
	s.run(t, approvalArgs("--hostname", "mixer-1", "--label", "line=mixing", "--label", "example.com/hall=3", "--taint", "plant=mixing:NoSchedule")...).wantOK(t)
	wantText(t, s.out, `Machine:        4c4c4544-004d-4b10-8056-b4c04f4a3133
Namespace:      site-a
Cluster:        plant
Approval:       none: the machine waits, untouched
Address:        192.0.2.10
Manufacturer:   Dell Inc.
Product:        PowerEdge R650
Serial:         7MK1J33
MACs:           b4:45:06:aa:00:01, b4:45:06:aa:00:02
Fingerprint:    xA9a1t2dMxB0NJ0qH1pDzilWbA3+DK/DjVbFaJBYheE=  (read over the network: compare it with the machine's console)
Seen:           5m ago for the first time

Links:
  NAME   MAC                 CABLE   DRIVER
  eno1   b4:45:06:aa:00:01   yes     tg3
  eno2   b4:45:06:aa:00:02   no      tg3

Disks (* is where Talos would be installed):
    PATH           SIZE     TYPE   MODEL      SERIAL
    /dev/nvme0n1   960 GB   nvme   PM9A3      S64G
  * /dev/sda       4.0 TB   hdd    ST4000NM   ZC1A
    /dev/sdb       4.0 TB   hdd    ST4000NM   ZC1B

Install disk: /dev/sda (4.0 TB ST4000NM, serial ZC1A, wwid naa.1)

TalosCluster plant decides the rest of the configuration:
  Endpoint:        https://192.0.2.5:6443
  Kubernetes:      v1.36.2
  Talos:           v1.13
  Install image:   the one of the Talos version
  Patches:         1
  Changed:         8m ago for the last time

This would be stored:
  spec.approved                       false -> true
  spec.install.disk                   (unset) -> /dev/sda
  spec.network.hostname               (unset) -> mixer-1
  spec.nodeLabels[example.com/hall]   (unset) -> 3
  spec.nodeLabels[line]               (unset) -> mixing
  spec.nodeTaints[0].effect           (unset) -> NoSchedule
  spec.nodeTaints[0].key              (unset) -> plant
  spec.nodeTaints[0].value            (unset) -> mixing
  spec.role                           (unset) -> worker

Approve it as worker? What is on /dev/sda (4.0 TB ST4000NM, serial ZC1A, wwid naa.1) is lost. [y/N]: talosmachine.talos.fieldplane.dev/4c4c4544-004d-4b10-8056-b4c04f4a3133 approved as worker
See how it goes on: kubectl -n site-a get talosmachine 4c4c4544-004d-4b10-8056-b4c04f4a3133 --watch
`)

	update := s.approval(t)
	sent := update.GetObject().(*v1alpha1.TalosMachine)
	if sent.ResourceVersion != "4711" {
		t.Errorf("resourceVersion %q is not that of what was shown", sent.ResourceVersion)
	}
	if len(update.UpdateOptions.DryRun) != 0 {
		t.Errorf("sent as a dry run: %v", update.UpdateOptions.DryRun)
	}
	want := pendingMachine().Spec
	want.Approved, want.Role = ptr.To(true), v1alpha1.RoleWorker
	want.Install = &v1alpha1.MachineInstall{Disk: "/dev/sda"}
	want.Network = &v1alpha1.MachineNetwork{Hostname: "mixer-1"}
	want.NodeLabels = map[string]string{"line": "mixing", "example.com/hall": "3"}
	want.NodeTaints = []v1alpha1.NodeTaint{{Key: "plant", Value: "mixing", Effect: v1alpha1.TaintNoSchedule}}
	if diff := differenceOfSpecs(t, want, sent.Spec); diff != nil {
		t.Errorf("stored otherwise: %v", diff)
	}
}

func differenceOfSpecs(t *testing.T, a, b v1alpha1.TalosMachineSpec) []change {
	t.Helper()
	changes, err := differences(&v1alpha1.TalosMachine{Spec: a}, &v1alpha1.TalosMachine{Spec: b})
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// Req: T-11, T-13, T-18
func TestApproveRefuses(t *testing.T) {
	const disks = "The machine reports:\n" +
		"  /dev/nvme0n1   960 GB   nvme   PM9A3      S64G\n" +
		"  /dev/sda       4.0 TB   hdd    ST4000NM   ZC1A\n" +
		"  /dev/sdb       4.0 TB   hdd    ST4000NM   ZC1B\n"
	approve := func(args ...string) []string { return append([]string{"approve", "machine", uuid}, args...) }
	unverifiedByManifest := func(m *v1alpha1.TalosMachine) {
		m.Spec.AcceptUnverifiedFingerprint = true
	}
	for _, test := range []struct {
		name       string
		edit       func(*v1alpha1.TalosMachine)
		args       []string
		input      string
		noTerminal bool
		what, todo string
		// unseen is set where the arguments alone are wrong.
		unseen bool
	}{
		{name: "without a role", args: approve("--install-disk", "/dev/sda", "--yes"), what: "the role is not said", todo: "--role worker"},
		{name: "without a role even if a manifest names one", edit: func(m *v1alpha1.TalosMachine) { m.Spec.Role = v1alpha1.RoleWorker },
			args: approve("--install-disk", "/dev/sda", "--yes"), what: "the role is not said", todo: "--role worker"},
		{name: "a role that does not exist", args: approve("--role", "init", "--yes"), what: `--role "init" is not a role`, todo: "--role worker", unseen: true},
		{name: "without an install disk, listing those seen", args: approve("--role", "worker", "--yes"), what: "the install disk is not said", todo: disks},
		{name: "without an install disk on a machine whose disks are not known", edit: func(m *v1alpha1.TalosMachine) { m.Status.Hardware = nil },
			args: approve("--role", "worker", "--yes"), what: "the install disk is not said", todo: "not known"},
		{name: "a disk that the machine has not reported", args: approve("--role", "worker", "--install-disk", "/dev/vda", "--yes"), what: "has not reported a disk /dev/vda", todo: disks},
		{name: "a selector that matches no disk", args: approve("--role", "worker", "--install-disk-selector", "type=ssd,serial=ZC1A", "--yes"),
			what: "has not reported a disk with serial=ZC1A,type=ssd", todo: disks},
		{name: "a selector that matches two disks", args: approve("--role", "worker", "--install-disk-selector", "model=ST*", "--yes"),
			what: "2 of the machine's disks have model=ST*", todo: "serial"},
		{name: "a selector with an unknown key", args: approve("--role", "worker", "--install-disk-selector", "size=4GB"), what: `"size" is none of`, todo: "type=ssd", unseen: true},
		{name: "a selector with an unknown type", args: approve("--role", "worker", "--install-disk-selector", "type=tape"), what: `type "tape"`, todo: "type=ssd", unseen: true},
		{name: "a selector with a malformed capacity", args: approve("--role", "worker", "--install-disk-selector", "capacity=big"), what: `capacity "big"`, todo: "KEY=VALUE", unseen: true},
		{name: "a disk and a selector", args: approvalArgs("--install-disk-selector", "type=nvme"), what: "exclude each other", todo: "one of the two", unseen: true},
		{name: "a disk that is no path", args: approve("--role", "worker", "--install-disk", "sda"), what: `"sda" is not the path`, todo: "/dev/sda", unseen: true},
		{name: "a control plane without a fingerprint", args: approve("--role", "controlplane", "--install-disk", "/dev/sda", "--yes"),
			what: "no fingerprint", todo: "console"},
		{name: "a control plane that only a manifest accepts unverified", edit: unverifiedByManifest, args: approve("--role", "controlplane", "--install-disk", "/dev/sda", "--yes"),
			what: "no fingerprint", todo: "--accept-unverified-fingerprint"},
		{name: "a control plane whose fingerprint only a manifest names", edit: func(m *v1alpha1.TalosMachine) { m.Spec.AcceptedFingerprint = fingerprint },
			args: approve("--role", "controlplane", "--install-disk", "/dev/sda", "--yes"), what: "no fingerprint", todo: "console"},
		{name: "a fingerprint other than that of what answers", args: approve("--role", "controlplane", "--install-disk", "/dev/sda", "--fingerprint", other, "--yes"),
			what: "DO NOT APPROVE: the fingerprints differ. --fingerprint is " + other + ", but what answers at the machine's address has " + fingerprint, todo: "Another machine may be answering"},
		{name: "a worker's stored fingerprint other than that of what answers", edit: func(m *v1alpha1.TalosMachine) { m.Spec.AcceptedFingerprint = other }, args: approvalArgs("--yes"),
			what: "DO NOT APPROVE: the fingerprints differ. the stored spec.acceptedFingerprint", todo: "Another machine"},
		{name: "a text that is no fingerprint", args: approvalArgs("--fingerprint", "aa:bb"), what: "not the base64 form of a SHA-256", todo: "console", unseen: true},
		{name: "a fingerprint and not checking it", args: approvalArgs("--fingerprint", fingerprint, "--accept-unverified-fingerprint"), what: "exclude each other", todo: "alone", unseen: true},
		{name: "a rejected machine", edit: func(m *v1alpha1.TalosMachine) { m.Spec.Rejected = &v1alpha1.MachineRejection{Reason: "scrap"} }, args: approvalArgs("--yes"),
			what: "rejected: scrap", todo: "kubectl fieldplane -n site-a unreject machine " + uuid},
		{name: "a machine that is being deleted", edit: func(m *v1alpha1.TalosMachine) {
			m.DeletionTimestamp, m.Finalizers = ptr.To(metav1.NewTime(now())), []string{"example.com/hold"}
		}, args: approvalArgs("--yes"), what: "being deleted", todo: "pending"},
		{name: "without a terminal and without --yes", args: approvalArgs(), input: "y\n", noTerminal: true, what: "no terminal", todo: "--yes"},
		{name: "the answer no", args: approvalArgs(), input: "n\n", what: "the answer was not yes", todo: "nothing was written"},
		{name: "no answer", args: approvalArgs(), input: "\n", what: "the answer was not yes", todo: "nothing was written"},
		{name: "the end of input", args: approvalArgs(), what: "the answer was not yes", todo: "nothing was written"},
		{name: "a client-side dry run", args: approvalArgs("--dry-run=client"), what: "--dry-run=client is not possible", todo: "--dry-run=server", unseen: true},
		{name: "a label that is none", args: approvalArgs("--label", "line"), what: `--label "line"`, todo: "KEY=VALUE", unseen: true},
		{name: "a label with an invalid value", args: approvalArgs("--label", "line=a b"), what: `--label "line=a b"`, todo: "KEY=VALUE", unseen: true},
		{name: "a label with two values", args: approvalArgs("--label", "line=a", "--label", "line=b"), what: "given twice", todo: "KEY=VALUE", unseen: true},
		{name: "a taint without an effect", args: approvalArgs("--taint", "plant=mixing"), what: `--taint "plant=mixing"`, todo: "NoSchedule", unseen: true},
		{name: "a taint with an unknown effect", args: approvalArgs("--taint", "plant=mixing:Never"), what: "none of NoSchedule", todo: "NoSchedule", unseen: true},
		{name: "two taints of one key", args: approvalArgs("--taint", "a=1:NoSchedule", "--taint", "a=1:NoExecute"), what: "one taint for each key", todo: "NoSchedule", unseen: true},
		{name: "a host name that is none", args: approvalArgs("--hostname", "Mixer_1"), what: `--hostname "Mixer_1"`, todo: "lower-case", unseen: true},
		{name: "no machine", args: []string{"approve", "--role", "worker"}, what: "which machine is not said", todo: "approve machine UUID", unseen: true},
		{name: "a machine without the word", args: []string{"approve", uuid}, what: "takes a machine, and", todo: "approve machine UUID", unseen: true},
		{name: "something that is not approved", args: []string{"approve", "cluster/plant"}, what: `takes a machine, and "cluster" is none`, todo: "approve machine UUID", unseen: true},
		{name: "a machine of another group", args: []string{"approve", "machines.cluster.x-k8s.io/" + uuid}, what: "takes a machine, and", todo: "approve machine UUID", unseen: true},
		{name: "two machines", args: []string{"approve", "machine", uuid, uuid}, what: "one machine at a time", todo: "approve machine UUID", unseen: true},
		{name: "a name that no machine can have", args: []string{"approve", "machine", "../nodes"}, what: `"../nodes" is not the name`, todo: "approve machine UUID", unseen: true},
		{name: "an unknown flag", args: approvalArgs("--force"), what: "unknown flag: --force", todo: "kubectl fieldplane approve --help", unseen: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := pendingMachine()
			if test.edit != nil {
				test.edit(machine)
			}
			s := newSession(machine, plantCluster())
			s.input, s.noTerminal = test.input, test.noTerminal
			s.run(t, test.args...)
			s.wantRefused(t, test.what, test.todo)
			if test.unseen {
				if s.out != "" || len(s.client.Actions()) != 0 {
					t.Errorf("asked the server although the arguments are wrong: %v\n%s", s.client.Actions(), s.out)
				}
			} else {
				wantContains(t, s.out, "Serial:", "7MK1J33", "192.0.2.10")
			}
		})
	}
}

// Req: T-13, T-18
func TestApproveAccepts(t *testing.T) {
	for _, test := range []struct {
		name  string
		edit  func(*v1alpha1.TalosMachine)
		args  []string
		check func(*testing.T, v1alpha1.TalosMachineSpec)
		out   string
	}{
		{name: "a control plane with the fingerprint of its console",
			args: []string{"approve", "machine/" + uuid, "--role", "controlplane", "--install-disk", "/dev/sda", "--fingerprint", fingerprint, "-y"},
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if spec.Role != v1alpha1.RoleControlPlane || spec.AcceptedFingerprint != fingerprint || spec.AcceptUnverifiedFingerprint {
					t.Errorf("stored %+v", spec)
				}
			}},
		{name: "a control plane whose missing fingerprint is accepted",
			args: []string{"approve", "machine", uuid, "--role", "controlplane", "--install-disk", "/dev/sda", "--accept-unverified-fingerprint", "-y"},
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if spec.AcceptedFingerprint != "" || !spec.AcceptUnverifiedFingerprint {
					t.Errorf("stored %+v", spec)
				}
			}},
		{name: "a worker, taking back what only a manifest accepted", edit: func(m *v1alpha1.TalosMachine) { m.Spec.AcceptUnverifiedFingerprint = true }, args: approvalArgs("-y"),
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if spec.AcceptUnverifiedFingerprint {
					t.Error("accepted unverified without the approver's word")
				}
			}},
		{name: "a UUID in upper case, as firmware shows it, and a name as -o name prints it",
			args: []string{"approve", "talosmachine.talos.fieldplane.dev/" + strings.ToUpper(uuid), "--role", "worker", "--install-disk", "/dev/sda", "-y"}},
		{name: "the one disk that a selector finds",
			args: []string{"approve", "machine", uuid, "--role", "worker", "--install-disk-selector", "capacity=>= 1TB, serial=*1B, type=hdd", "-y"},
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if want := (v1alpha1.DiskSelector{Capacity: ">= 1TB", Serial: "*1B", Type: v1alpha1.DiskTypeHDD}); spec.Install.Disk != "" || *spec.Install.DiskSelector != want {
					t.Errorf("stored %+v", spec.Install)
				}
			}, out: "  * /dev/sdb"},
		{name: "a bus path", args: []string{"approve", "machine", uuid, "--role", "worker", "--install-disk-selector", "busPath=/pci0000:00/*,type=hdd", "-y"},
			out: "  * /dev/sdb"},
		{name: "any disk of a machine whose hardware is not known", edit: func(m *v1alpha1.TalosMachine) { m.Status.Hardware = nil },
			args: []string{"approve", "machine", uuid, "--role", "worker", "--install-disk", "/dev/vda", "-y"}, out: "Disks: not known"},
		{name: "an install disk that is stored already, and says what else is approved with it", edit: func(m *v1alpha1.TalosMachine) {
			m.Spec.Install = &v1alpha1.MachineInstall{Disk: "/dev/sdb", Wipe: true}
			m.Spec.ConfigPatches = []string{"machine:\n  sysctls: {secret: hunter2}\n"}
		}, args: []string{"approve", "machine", uuid, "--role", "worker", "-y"},
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if spec.Install.Disk != "/dev/sdb" || !spec.Install.Wipe || len(spec.ConfigPatches) != 1 {
					t.Errorf("stored %+v", spec)
				}
			}, out: "Stored before, and approved with it:\n  spec.configPatches   1, shown by kubectl get -o yaml\n  spec.install.disk    /dev/sdb\n  spec.install.wipe    true\n"},
		{name: "another disk than the stored one, without its wipe", edit: func(m *v1alpha1.TalosMachine) {
			m.Spec.Install = &v1alpha1.MachineInstall{Disk: "/dev/sdb", Wipe: true}
		}, args: approvalArgs("-y"),
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if spec.Install.Disk != "/dev/sda" || spec.Install.Wipe {
					t.Errorf("stored %+v", spec.Install)
				}
			}},
		{name: "labels and taints beside those that are stored", edit: func(m *v1alpha1.TalosMachine) {
			m.Spec.NodeLabels = map[string]string{"hall": "3", "line": "old"}
			m.Spec.NodeTaints = []v1alpha1.NodeTaint{{Key: "a", Effect: v1alpha1.TaintNoExecute}, {Key: "b", Effect: v1alpha1.TaintNoExecute}}
			m.Spec.Network = &v1alpha1.MachineNetwork{Nameservers: []string{"192.0.2.1"}}
		}, args: approvalArgs("-y", "--label", "line=new", "--taint", "a:NoSchedule", "--hostname", "mixer-1"),
			check: func(t *testing.T, spec v1alpha1.TalosMachineSpec) {
				if len(spec.NodeLabels) != 2 || spec.NodeLabels["hall"] != "3" || spec.NodeLabels["line"] != "new" {
					t.Errorf("labels %v", spec.NodeLabels)
				}
				if len(spec.NodeTaints) != 2 || spec.NodeTaints[0].Key != "b" || spec.NodeTaints[1].Effect != v1alpha1.TaintNoSchedule {
					t.Errorf("taints %v", spec.NodeTaints)
				}
				if spec.Network.Hostname != "mixer-1" || len(spec.Network.Nameservers) != 1 {
					t.Errorf("network %v", spec.Network)
				}
			}},
		{name: "a change to an approved machine, showing who approved it", edit: func(m *v1alpha1.TalosMachine) {
			approveAs(m, v1alpha1.RoleWorker)
		}, args: approvalArgs("-y", "--hostname", "mixer-1"), out: "approved as worker by alice, 60m ago"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := pendingMachine()
			if test.edit != nil {
				test.edit(machine)
			}
			s := newSession(machine, plantCluster())
			s.noTerminal = true
			s.run(t, test.args...).wantOK(t)
			sent := s.approval(t).GetObject().(*v1alpha1.TalosMachine)
			if sent.Spec.Approved == nil || !*sent.Spec.Approved || sent.ResourceVersion != "4711" {
				t.Errorf("sent approved %v, resourceVersion %q", sent.Spec.Approved, sent.ResourceVersion)
			}
			if test.check != nil {
				test.check(t, sent.Spec)
			}
			wantContains(t, s.out, test.out, "approved as")
			if strings.Contains(s.out+s.errOut, "hunter2") {
				t.Error("prints the content of a patch")
			}
		})
	}
}

func approveAs(m *v1alpha1.TalosMachine, role v1alpha1.MachineRole) {
	m.Spec.Approved, m.Spec.Role, m.Spec.Install = ptr.To(true), role, &v1alpha1.MachineInstall{Disk: "/dev/sda"}
	m.Status.Phase = v1alpha1.MachineApproved
	m.Status.Approval = &v1alpha1.MachineApproval{User: "alice", Time: metav1.NewTime(now().Add(-time.Hour))}
}

// Req: T-13
func TestApproveOfAnApprovedMachineWithTheSameValuesWritesNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
		args []string
	}{
		{name: "a worker", edit: func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) }, args: approvalArgs()},
		{name: "its taints in another order", edit: func(m *v1alpha1.TalosMachine) {
			approveAs(m, v1alpha1.RoleWorker)
			m.Spec.NodeTaints = []v1alpha1.NodeTaint{{Key: "a", Effect: v1alpha1.TaintNoExecute}, {Key: "b", Effect: v1alpha1.TaintNoExecute}}
		}, args: approvalArgs("--taint", "b:NoExecute", "--taint", "a:NoExecute")},
		{name: "a control plane whose fingerprint has changed since", edit: func(m *v1alpha1.TalosMachine) {
			approveAs(m, v1alpha1.RoleControlPlane)
			m.Spec.AcceptedFingerprint = other
		}, args: []string{"approve", "machine", uuid, "--role", "controlplane", "--install-disk", "/dev/sda", "--fingerprint", other}},
		{name: "a control plane, without repeating the fingerprint", edit: func(m *v1alpha1.TalosMachine) {
			approveAs(m, v1alpha1.RoleControlPlane)
			m.Spec.AcceptUnverifiedFingerprint = true
		}, args: []string{"approve", "machine", uuid, "--role", "controlplane"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(test.edit), plantCluster())
			s.noTerminal = true
			s.run(t, test.args...).wantOK(t)
			wantContains(t, s.out, "is already approved with exactly this; nothing to do.")
			if writes := s.writes(); len(writes) != 0 {
				t.Errorf("written: %v", writes)
			}
		})
	}
}

// Req: T-13
func TestApproveDryRunAsksTheServerAndShowsWhatItWouldStore(t *testing.T) {
	for _, flag := range []string{"--dry-run", "--dry-run=server"} {
		t.Run(flag, func(t *testing.T) {
			s := newSession(pendingMachine(), plantCluster())
			s.noTerminal = true
			s.client.PrependReactor("update", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
				stored := action.(clienttesting.UpdateAction).GetObject().DeepCopyObject().(*v1alpha1.TalosMachine)
				stored.Status.Phase = v1alpha1.MachineApproved
				stored.Status.Approval = &v1alpha1.MachineApproval{User: "alice", Time: metav1.NewTime(now())}
				return true, stored, nil
			})
			s.run(t, approvalArgs(flag)...).wantOK(t)
			update := s.approval(t)
			if have := update.UpdateOptions.DryRun; len(have) != 1 || have[0] != metav1.DryRunAll {
				t.Errorf("dryRun %v", have)
			}
			if have := update.GetObject().(*v1alpha1.TalosMachine).ResourceVersion; have != "4711" {
				t.Errorf("resourceVersion %q", have)
			}
			_, have, _ := strings.Cut(s.out, "\nThe server would store:\n")
			wantText(t, have, `  spec.approved          false -> true
  spec.install.disk      (unset) -> /dev/sda
  spec.role              (unset) -> worker
  status.approval.user   (unset) -> alice
  status.phase           Pending -> Approved

What would be wiped: /dev/sda (4.0 TB ST4000NM, serial ZC1A, wwid naa.1)
talosmachine.talos.fieldplane.dev/4c4c4544-004d-4b10-8056-b4c04f4a3133 approved as worker (server dry run: nothing was stored)
`)
		})
	}
}

// Req: T-13
func TestApproveTellsWhatTheServerAnswers(t *testing.T) {
	resource := machinesResource()
	group := v1alpha1.Resource(resource.Resource)
	for _, test := range []struct {
		name       string
		answer     error
		what, todo string
	}{
		{"a conflict", apierrors.NewConflict(group, uuid, errors.New("modified")), "changed after it was shown; nothing was written", "Run the same command again"},
		{"a cluster that was changed just now", apierrors.NewConflict(group, uuid, errors.New(`TalosCluster "plant" was changed in the last seconds`)),
			`TalosCluster "plant" was changed in the last seconds`, "look at what it shows of the TalosCluster"},
		{"a missing verb, in the server's own words", apierrors.NewForbidden(group, uuid, errors.New(`needs the verb approve on talosmachines/approval to set spec.approved to true`)),
			"needs the verb approve on talosmachines/approval to set spec.approved to true", "kubectl auth can-i approve talosmachines.talos.fieldplane.dev/" + uuid + " --subresource=approval -n site-a"},
		{"an invalid value", apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("TalosMachine").GroupKind(), uuid, field.ErrorList{field.Invalid(field.NewPath("spec", "nodeLabels"), "x", "is bad")}),
			"spec.nodeLabels", "Nothing was written"},
		{"a machine that went away", apierrors.NewNotFound(group, uuid), "there is no machine " + uuid + " in namespace site-a", "pending -A"},
		{"no server behind the aggregator", apierrors.NewServiceUnavailable("no endpoints"), "no endpoints", "Whether it was stored is not known"},
		{"silence", errors.New("i/o timeout"), "i/o timeout", "Whether it was stored is not known"},
	} {
		for _, dryRun := range []string{"none", "server"} {
			t.Run(test.name+", dry run "+dryRun, func(t *testing.T) {
				s := newSession(pendingMachine(), plantCluster()).answer(test.answer)
				s.run(t, approvalArgs("--yes", "--dry-run="+dryRun)...)
				s.approval(t)
				s.client.ClearActions()
				s.wantRefused(t, test.what, test.todo)
			})
		}
	}
}

func TestApproveTellsWhyAMachineCannotBeRead(t *testing.T) {
	resource := machinesResource()
	group := v1alpha1.Resource(resource.Resource)
	notServed := apierrors.NewGenericServerResponse(404, "get", group, uuid, "404 page not found", 0, true)
	for _, test := range []struct {
		name       string
		answer     error
		what, todo string
	}{
		{"there is none", apierrors.NewNotFound(group, uuid), "there is no machine " + uuid + " in namespace site-a", "kubectl fieldplane pending -A"},
		{"the group is not served", notServed, "does not serve the API group talos.fieldplane.dev", "kubectl get apiservice v1alpha1.talos.fieldplane.dev"},
		{"the right is missing", apierrors.NewForbidden(group, uuid, errors.New(`User "bob" cannot get resource`)), `User "bob" cannot get resource`, "get and list on talosmachines"},
		{"the credentials are unknown", apierrors.NewUnauthorized("no"), "does not know you", "kubectl auth whoami"},
		{"the server does not answer", apierrors.NewServiceUnavailable("no endpoints"), "no endpoints", "kubectl get apiservice"},
		{"nothing answers", errors.New("connection refused"), "connection refused", "kubectl version"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.client.PrependReactor("get", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			s.run(t, approvalArgs("--yes")...)
			s.wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: T-07, T-18
func TestApproveWarnsOfWhatMakesTheIdentityDoubtful(t *testing.T) {
	for _, test := range []struct {
		name    string
		machine func(*v1alpha1.TalosMachine)
		cluster func(*v1alpha1.TalosCluster)
		want    string
	}{
		{name: "it answered at another address than configuration goes to", machine: func(m *v1alpha1.TalosMachine) { m.Status.ObservedEndpoint = "192.0.2.77" },
			want: "Warning: the machine last answered at 192.0.2.77; configuration goes to spec.endpoint, 192.0.2.10, alone"},
		{name: "another machine has its UUID", cluster: func(c *v1alpha1.TalosCluster) {
			c.Status.Discovery = &v1alpha1.DiscoveryStatus{Collisions: []v1alpha1.IdentityCollision{{MachineName: uuid, Message: "192.0.2.9 answers with the UUID"}}}
		}, want: "Warning: identity in doubt: 192.0.2.9 answers with the UUID"},
		{name: "it shares hardware with another machine", cluster: func(c *v1alpha1.TalosCluster) {
			c.Status.Discovery = &v1alpha1.DiscoveryStatus{Collisions: []v1alpha1.IdentityCollision{{MachineName: "x", Identity: v1alpha1.MachineIdentity{UUID: uuid}, Message: "same serial as x"}}}
		}, want: "Warning: identity in doubt: same serial as x"},
		{name: "its cluster is paused", cluster: func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }, want: "Warning: TalosCluster plant is paused"},
		{name: "its cluster does not exist", machine: func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "gone" }, want: "Warning: there is no TalosCluster gone in namespace site-a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine, cluster := pendingMachine(), plantCluster()
			if test.machine != nil {
				test.machine(machine)
			}
			if test.cluster != nil {
				test.cluster(cluster)
			}
			s := newSession(machine, cluster).run(t, approvalArgs("--yes")...).wantOK(t)
			wantContains(t, s.out, test.want)
		})
	}
}

// Req: T-13
func TestApproveNeedsNoRightOnClusters(t *testing.T) {
	s := newSession(pendingMachine())
	s.client.PrependReactor("get", "talosclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1alpha1.Resource("talosclusters"), "plant", errors.New("no"))
	})
	s.run(t, approvalArgs("--yes")...).wantOK(t)
	s.approval(t)
	if strings.Contains(s.out, "Warning") {
		t.Errorf("warns of what it cannot know:\n%s", s.out)
	}
}

// Req: T-18
func TestNothingThatAMachineTellsReachesTheTerminalRaw(t *testing.T) {
	const evil = "PowerEdge\x1b[2K\rSerial: trusted\u202e\n"
	machine := pendingMachine(func(m *v1alpha1.TalosMachine) {
		m.Spec.Identity.Serial, m.Spec.Identity.MACAddresses = evil, []string{evil}
		m.Spec.Endpoint, m.Status.ObservedEndpoint = evil, evil+"x"
		hardware := m.Status.Hardware
		hardware.Manufacturer, hardware.Product, hardware.Fingerprint = evil, evil, evil
		hardware.Disks[1].Model, hardware.Disks[1].Serial, hardware.Disks[2].Path = evil, evil, evil
		hardware.Links[0] = v1alpha1.MachineLink{Name: evil, PermanentMAC: evil, Driver: evil}
	})
	cluster := plantCluster(func(c *v1alpha1.TalosCluster) {
		c.Status.Discovery = &v1alpha1.DiscoveryStatus{
			Weak:       []v1alpha1.WeakCandidate{{Address: evil, Identity: v1alpha1.MachineIdentity{Serial: evil}, Missing: []string{evil}, Hint: evil}},
			Collisions: []v1alpha1.IdentityCollision{{MachineName: uuid, Address: evil, Message: evil}},
		}
	})
	rejected := func(m *v1alpha1.TalosMachine) { m.Spec.Rejected = &v1alpha1.MachineRejection{Reason: evil} }
	runs := func(m *v1alpha1.TalosMachine) {
		waitingForReboot(m)
		m.Status.NodeName, m.Status.Update.Hash = evil, evil
		m.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: ptr.To(metav1.NewTime(now()))}
		for _, kind := range []string{conditionRebootRequired, conditionUpToDate} {
			m.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Message: evil}}
		}
	}
	doubtful := func(m *v1alpha1.TalosMachine) {
		for _, kind := range []string{conditionSharesHardware, conditionBackInMaintenance} {
			withCondition(kind, evil)(m)
		}
	}
	for name, test := range map[string]struct {
		edit func(*v1alpha1.TalosMachine)
		args []string
	}{
		"approve":            {args: approvalArgs("--dry-run")},
		"a doubtful machine": {doubtful, approvalArgs("--dry-run", "--accept-shared-hardware")},
		"another disk":       {anotherDisk, approvalArgs("--dry-run")},
		"a refusal":          {args: []string{"approve", "machine", uuid, "--role", "worker"}},
		"a rejected machine": {rejected, approvalArgs("--yes")},
		"pending":            {doubtful, []string{"pending", "-o", "wide"}},
		"pending --all":      {rejected, []string{"pending", "--all"}},
		"pending as yaml":    {args: []string{"pending", "-o", "yaml"}},
		"completion":         {args: []string{"__complete", "approve", "machine", ""}},
		"reject":             {args: []string{"reject", "machine", uuid, "--reason", "scrap"}},
		"unreject":           {rejected, []string{"unreject", "machine", uuid}},
		"unapprove":          {runs, []string{"unapprove", "machine", uuid, "--yes"}},
		"reboot":             {runs, []string{"reboot", "machine", uuid, "--yes"}},
		"discover":           {doubtful, []string{"discover", "plant"}},
		"a refused command":  {args: approvalArgs("--fingerprint", fingerprint)},
	} {
		t.Run(name, func(t *testing.T) {
			machine := machine.DeepCopy()
			if test.edit != nil {
				test.edit(machine)
			}
			s := newSession(machine, cluster.DeepCopy()).then(t, func(c *v1alpha1.TalosCluster) {
				found := c.Status.Discovery
				c.Status.Discovery = sweep(1, 2)
				c.Status.Discovery.Weak, c.Status.Discovery.Collisions = found.Weak, found.Collisions
			})
			s.run(t, test.args...)
			if s.out == "" {
				t.Fatalf("prints nothing: %s", s.errOut)
			}
			raws := []string{"\x1b", "\r", "\u202e"}
			if name == "pending as yaml" {
				// YAML for other programs keeps the value; what would move the cursor is escaped there.
				raws = raws[:2]
			}
			for _, raw := range raws {
				if strings.Contains(s.out+s.errOut, raw) {
					t.Errorf("prints %q:\n%q", raw, s.out+s.errOut)
				}
			}
		})
	}
}

// Req: T-13. What a cluster gives its machines is part of what is approved.
func TestAClusterThatChangesWhileItIsLookedAtStopsAnApproval(t *testing.T) {
	s := newSession(site()...)
	reads := 0
	s.client.PrependReactor("get", "talosclusters", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if reads++; reads == 1 {
			return false, nil, nil
		}
		stored, err := s.client.Tracker().Get(action.GetResource(), action.GetNamespace(), action.(clienttesting.GetAction).GetName())
		if err != nil {
			return true, nil, err
		}
		changed := stored.DeepCopyObject().(*v1alpha1.TalosCluster)
		changed.Spec.ConfigPatches = []string{"machine: {sysctls: {a: b}}"}
		return true, changed, nil
	})
	s.run(t, approvalArgs("--yes")...).wantRefused(t, "TalosCluster plant changed after it was shown; nothing was written", "shows the cluster as it is now")
	if reads != 2 {
		t.Errorf("%d reads", reads)
	}
}
