package talosmachine

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// Req: T-18. The disk that an approver had before him is the one that is wiped, or none is.
func TestAnApprovalNamesTheDiskThatItMeans(t *testing.T) {
	small := talos.MachineDisk{Path: "/dev/sda", SizeBytes: 500e9, Model: "SAMSUNG", Serial: "D1", WWID: "eui.1", Transport: "sata"}
	large := talos.MachineDisk{Path: "/dev/nvme0n1", SizeBytes: 2000e9, Model: "WD", Serial: "D2", Transport: "nvme", BusPath: "/pci0"}
	for _, tc := range []struct {
		name    string
		disks   []talos.MachineDisk
		install *talos.MachineInstall
		want    *talos.MachineDisk
	}{
		{"by its path", []talos.MachineDisk{small, large}, &talos.MachineInstall{Disk: "/dev/nvme0n1"}, &large},
		{"by its properties", []talos.MachineDisk{small, large}, &talos.MachineInstall{DiskSelector: &talos.DiskSelector{Capacity: "< 1TB"}}, &small},
		{"by its type", []talos.MachineDisk{small, large}, &talos.MachineInstall{DiskSelector: &talos.DiskSelector{Type: talos.DiskTypeNVMe}}, &large},
		{"not when two fit", []talos.MachineDisk{small, large}, &talos.MachineInstall{DiskSelector: &talos.DiskSelector{Type: talos.DiskTypeSSD}}, nil},
		{"not when none fits", []talos.MachineDisk{small}, &talos.MachineInstall{Disk: "/dev/sdz"}, nil},
		{"not when none is known", nil, &talos.MachineInstall{Disk: "/dev/sda"}, nil},
		{"not when none is named", []talos.MachineDisk{small}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for path, strategy := range map[string]rest.RESTUpdateStrategy{"": newMain(scheme(), noon), "approval": newApproval(scheme(), noon)} {
				stored := pending()
				stored.Status.Hardware = &talos.MachineHardware{Disks: tc.disks}
				machine := stored.DeepCopy()
				// What a client says of the hardware counts for nothing.
				machine.Status.Hardware = &talos.MachineHardware{Disks: []talos.MachineDisk{{Path: "/dev/sdz", Transport: "forged"}}}
				machine.Spec.Approved, machine.Spec.Install, machine.Spec.AcceptSharedHardware = ptr.To(true), tc.install, true
				strategy.PrepareForUpdate(as("ada", "update", path), machine, stored)

				approval := machine.Status.Approval
				if approval == nil || !reflect.DeepEqual(approval.InstallDisk, tc.want) || !approval.SharedHardware {
					t.Fatalf("/%s: %+v, want the disk %+v", path, approval, tc.want)
				}
				if disk := approval.InstallDisk; disk != nil {
					disk.Path = "/dev/changed"
					if !reflect.DeepEqual(stored.Status.Hardware.Disks, tc.disks) || !reflect.DeepEqual(machine.Status.Hardware.Disks, tc.disks) {
						t.Errorf("/%s: the approval shares memory with the hardware", path)
					}
				}
			}
		})
	}
	// Another disk of an approved machine is resolved anew.
	stored := approvedBy("bo")
	stored.Status.Hardware = &talos.MachineHardware{Disks: []talos.MachineDisk{small, large}}
	stored.Status.Approval.InstallDisk = &small
	machine := stored.DeepCopy()
	machine.Spec.Install = &talos.MachineInstall{Disk: large.Path}
	newApproval(scheme(), noon).PrepareForUpdate(as("ada", "update", "approval"), machine, stored)
	if !reflect.DeepEqual(machine.Status.Approval.InstallDisk, &large) {
		t.Errorf("the approval means %+v", machine.Status.Approval.InstallDisk)
	}
	// So are patches, which the main resource alone carries: they may decide as much.
	stored = approvedBy("bo")
	machine = stored.DeepCopy()
	machine.Spec.ConfigPatches = []string{"machine: {}"}
	newMain(scheme(), noon).PrepareForUpdate(as("ada", "update", ""), machine, stored)
	if machine.Status.Approval.User != "ada" {
		t.Errorf("other patches leave the approval to %s", machine.Status.Approval.User)
	}
	// A new machine has reported nothing.
	machine = approvedBy("mallory")
	machine.Status.Hardware = &talos.MachineHardware{Disks: []talos.MachineDisk{small}}
	newMain(scheme(), noon).PrepareForCreate(as("ada", "create", ""), machine)
	if machine.Status.Approval == nil || machine.Status.Approval.InstallDisk != nil {
		t.Errorf("a new machine's approval: %+v", machine.Status.Approval)
	}
}

// Req: T-06, T-13, T-18a. A machine that came back in maintenance mode is configured again only by a new approval.
func TestANewApprovalOfAMachineThatCameBackForgetsWhatItWasSent(t *testing.T) {
	conditions := func(back metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{
			{Type: "Rendered", Status: "True"}, {Type: "BackInMaintenance", Status: back}, {Type: "Ready", Status: "Unknown"},
			{Type: "UpToDate", Status: "False"}, {Type: "Drifted", Status: "False"}, {Type: "RebootRequired", Status: "True"},
			{Type: "SharesHardware", Status: "False"},
		}
	}
	installed := func(machine *talos.TalosMachine, back metav1.ConditionStatus) *talos.TalosMachine {
		machine = inPhase(machine, talos.MachineRunning, true)
		machine.Status.ConfigHash, machine.Status.TalosVersion, machine.Status.NodeName = "h1", "v1.13.9", "n1"
		machine.Status.Update = &talos.MachineUpdate{Hash: "h2", RebootRequired: true}
		machine.Status.Reboot = &talos.MachineRebootStatus{Hash: "h2", RequestedAt: &earlier}
		machine.Status.Conditions = conditions(back)
		return machine
	}
	unapproved := func(back metav1.ConditionStatus) *talos.TalosMachine {
		machine := installed(approvedBy("bo"), back)
		machine.Spec.Approved, machine.Status.Approval = ptr.To(false), nil
		return machine
	}
	for _, tc := range []struct {
		name    string
		stored  *talos.TalosMachine
		approve bool
		renewed bool
	}{
		{"approving it", unapproved("True"), true, true},
		{"approving one that did not come back", unapproved("False"), true, false},
		{"writing true over true", installed(approvedBy("bo"), "True"), true, false},
		{"un-approving it", installed(approvedBy("bo"), "True"), false, false},
		{"leaving it un-approved", unapproved("True"), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for path, strategy := range map[string]rest.RESTUpdateStrategy{"": newMain(scheme(), noon), "approval": newApproval(scheme(), noon)} {
				stored, machine := tc.stored.DeepCopy(), tc.stored.DeepCopy()
				machine.Spec.Approved = ptr.To(tc.approve)
				// That it came back is the controller's to say.
				machine.Status.Conditions = conditions("True")
				strategy.PrepareForUpdate(as("ada", "update", path), machine, stored)

				want := tc.stored.DeepCopy().Status
				want.Approval = machine.Status.Approval
				if tc.renewed {
					want.Configuration, want.ConfigHash, want.Update, want.Reboot = nil, "", nil, nil
					want.Phase = talos.MachineApproved
					want.Conditions = []metav1.Condition{{Type: "Rendered", Status: "True"}, {Type: "SharesHardware", Status: "False"}}
				}
				// What nobody looks at any more is told as that, and not as it was seen last.
				if talos.IsApproved(tc.stored) && !tc.approve {
					want.Conditions = []metav1.Condition{
						{Type: "Rendered", Status: "True"}, {Type: "BackInMaintenance", Status: "True"},
						{Type: "Ready", Status: "Unknown", Reason: "NotApproved", Message: unwatchedMessage},
						{Type: "SharesHardware", Status: "False"},
					}
				}
				if !reflect.DeepEqual(machine.Status, want) {
					t.Errorf("/%s: status is\n%+v, want\n%+v", path, machine.Status, want)
				}
				if (machine.Status.Approval != nil) != tc.approve {
					t.Errorf("/%s: approval %+v", path, machine.Status.Approval)
				}
				if !reflect.DeepEqual(stored, tc.stored) {
					t.Errorf("/%s: the stored machine was changed", path)
				}
			}
		})
	}
}

// Req: A-02, T-13. A decision of before a restore was taken back; whoever decides anew is not told to do so any more.
func TestADecisionAnswersThatTheFormerOneLapsed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		decide func(*talos.TalosMachine)
		stays  bool
	}{
		{name: "approved", decide: func(m *talos.TalosMachine) { m.Spec.Approved = ptr.To(true) }},
		{name: "rejected", decide: func(m *talos.TalosMachine) { m.Spec.Rejected = &talos.MachineRejection{Reason: "scrapped"} }},
		{name: "neither", decide: func(*talos.TalosMachine) {}, stays: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for path, strategy := range map[string]rest.RESTUpdateStrategy{"": newMain(scheme(), noon), "approval": newApproval(scheme(), noon)} {
				stored := pending()
				stored.Status.Conditions = []metav1.Condition{{Type: "ApprovalLapsed", Status: "True", Reason: "Restored"}}
				machine := stored.DeepCopy()
				tc.decide(machine)
				strategy.PrepareForUpdate(as("ada", "update", path), machine, stored)
				if stays := len(machine.Status.Conditions) == 1; stays != tc.stays {
					t.Errorf("/%s: conditions %+v", path, machine.Status.Conditions)
				}
			}
			stored := pending()
			stored.Status.Conditions = []metav1.Condition{{Type: "ApprovalLapsed", Status: "True", Reason: "Restored"}}
			if have := reason(stored); have != "ApprovalLapsed" {
				t.Errorf("kubectl get shows %q", have)
			}
		})
	}
}
