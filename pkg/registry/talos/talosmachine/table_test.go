package talosmachine

import (
	"context"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// Req: A-08
func TestWhatIsShownOfAMachine(t *testing.T) {
	seen := approvedBy("bo")
	seen.Status.Hardware = &talos.MachineHardware{
		Manufacturer: "Dell Inc.", Product: "OptiPlex", Fingerprint: onScreen,
		Disks: []talos.MachineDisk{{Path: "/dev/sda", SizeBytes: 500107862016}, {Path: "/dev/nvme0n1", SizeBytes: 1000204886016}},
	}
	for _, tc := range []struct {
		name    string
		machine *talos.TalosMachine
		want    []any
	}{
		{
			name: "approved, with its hardware", machine: seen,
			want: []any{
				uuid, "line2", "controlplane", "Approved", "<none>", "192.0.2.10", "S1", "Dell Inc. OptiPlex", "<none>", "true", "bo", "b4:45:06:aa:00:02",
				"/dev/sda(500G),/dev/nvme0n1(1000G)", "192.0.2.10", onScreen, "<none>", "60m",
			},
		},
		{
			name: "running", machine: func() *talos.TalosMachine {
				machine := inPhase(approvedBy("bo"), talos.MachineRunning, true)
				machine.Status.NodeName, machine.Status.TalosVersion = "control-1", "v1.13.9"
				return machine
			}(),
			want: []any{
				uuid, "line2", "controlplane", "Running", "<none>", "192.0.2.10", "S1", "<none>", "control-1", "true", "bo", "b4:45:06:aa:00:02",
				"<none>", "192.0.2.10", "<none>", "v1.13.9", "60m",
			},
		},
		{
			name: "registered by hand, and not seen yet",
			machine: func() *talos.TalosMachine {
				machine := pending()
				machine.Spec.Endpoint, machine.Spec.Identity.Serial, machine.Spec.Identity.MACAddresses = "", "", nil
				machine.Status = talos.TalosMachineStatus{Phase: talos.MachinePending}
				return machine
			}(),
			want: []any{
				uuid, "line2", "<none>", "Pending", "<none>", "<none>", "<none>", "<none>", "<none>", "false", "<none>", "<none>",
				"<none>", "<none>", "<none>", "<none>", "60m",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := newTable(noon).ConvertToTable(context.Background(), tc.machine, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := table.Rows[0].Cells; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("shown\n%v, want\n%v", got, tc.want)
			}
		})
	}
}

// Req: A-08, T-18a. What waits, and why, shows without asking for more.
func TestTheReasonIsWhatStopsTheMachine(t *testing.T) {
	conditions := func(list ...metav1.Condition) *talos.TalosMachine {
		machine := approvedBy("bo")
		machine.Status.Conditions = list
		return machine
	}
	because := func(reason string) *talos.TalosMachine {
		machine := rejected()
		machine.Spec.Rejected.Reason = reason
		return machine
	}
	accepted := conditions(metav1.Condition{Type: "SharesHardware", Status: "True", Reason: "SameSerial"}, metav1.Condition{Type: "Drifted", Status: "True"})
	accepted.Spec.AcceptSharedHardware = true
	for _, tc := range []struct {
		name    string
		machine *talos.TalosMachine
		want    string
	}{
		{"nothing", conditions(), ""},
		{"all is well", conditions(metav1.Condition{Type: "Configured", Status: "True"}, metav1.Condition{Type: "Ready", Status: "True"}, metav1.Condition{Type: "Drifted", Status: "False"}), ""},
		{"rejected", because("not ours"), "not ours"},
		{"rejected at length, over several lines", because("it was taken\n\tout of the line that is\nto be scrapped in May"), "it was taken out of the line that is to…"},
		{"configuration", conditions(metav1.Condition{Type: "Configured", Status: "False", Reason: "BundleNotFound"}), "BundleNotFound"},
		{"back, before all that was", conditions(metav1.Condition{Type: "Ready", Status: "Unknown", Reason: "Unreachable"}, metav1.Condition{Type: "BackInMaintenance", Status: "True"}), "BackInMaintenance"},
		{"shared hardware", conditions(metav1.Condition{Type: "SharesHardware", Status: "True"}), "SharesHardware"},
		{"shared hardware that was accepted", accepted, "Drifted"},
		{"not ready", conditions(metav1.Condition{Type: "Ready", Status: "False", Reason: "Unmet"}, metav1.Condition{Type: "RebootRequired", Status: "True"}), "Unmet"},
		{"out of reach", conditions(metav1.Condition{Type: "Ready", Status: "Unknown", Reason: "Unreachable"}), "Unreachable"},
		{"a reboot", conditions(metav1.Condition{Type: "RebootRequired", Status: "True"}, metav1.Condition{Type: "UpToDate", Status: "False", Reason: "RebootRequired"}), "RebootRequired"},
		{"an update", conditions(metav1.Condition{Type: "UpToDate", Status: "False", Reason: "WaitsForOthers"}), "WaitsForOthers"},
	} {
		if have := reason(tc.machine); have != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, have, tc.want)
		}
	}
}
