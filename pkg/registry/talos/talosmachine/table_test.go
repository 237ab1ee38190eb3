package talosmachine

import (
	"context"
	"reflect"
	"testing"

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
				uuid, "line2", "controlplane", "Approved", "192.0.2.10", "S1", "Dell Inc. OptiPlex", "b4:45:06:aa:00:02",
				"/dev/sda(500G),/dev/nvme0n1(1000G)", "192.0.2.10", onScreen, "bo", "60m",
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
			want: []any{uuid, "line2", "<none>", "Pending", "<none>", "<none>", "<none>", "<none>", "<none>", "<none>", "<none>", "<none>", "60m"},
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
