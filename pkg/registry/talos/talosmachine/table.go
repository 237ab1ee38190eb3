package talosmachine

import (
	"fmt"
	"strings"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type column = object.Column[*talos.TalosMachine]

// newTable returns what kubectl get shows of TalosMachines: with -o wide, all
// that an approver compares with the machine before him.
func newTable(clock clock.PassiveClock) object.Table[*talos.TalosMachine] {
	return object.Table[*talos.TalosMachine]{
		Clock: clock,
		Columns: []column{
			{Name: "Cluster", Description: "Cluster that the machine belongs to.", Cell: func(m *talos.TalosMachine) any { return m.Spec.ClusterRef.Name }},
			{Name: "Role", Description: "controlplane or worker.", Cell: func(m *talos.TalosMachine) any { return string(m.Spec.Role) }},
			{Name: "Phase", Description: "How far the machine is.", Cell: func(m *talos.TalosMachine) any { return string(m.Status.Phase) }},
			{Name: "Endpoint", Description: "Address that configuration is sent to.", Cell: func(m *talos.TalosMachine) any { return m.Spec.Endpoint }},
			{Name: "Serial", Description: "SMBIOS serial number.", Cell: func(m *talos.TalosMachine) any { return m.Spec.Identity.Serial }},
			{Name: "Hardware", Description: "Manufacturer and product.", Cell: func(m *talos.TalosMachine) any { return product(m) }},
			{Name: "MACs", Description: "Permanent MAC addresses.", Wide: true, Cell: func(m *talos.TalosMachine) any { return strings.Join(m.Spec.Identity.MACAddresses, ",") }},
			{Name: "Disks", Description: "Disks of the machine.", Wide: true, Cell: func(m *talos.TalosMachine) any { return disks(m) }},
			{Name: "Observed", Description: "Address at which it last answered in maintenance mode.", Wide: true, Cell: func(m *talos.TalosMachine) any { return m.Status.ObservedEndpoint }},
			{Name: "Fingerprint", Description: "Fingerprint of the maintenance-mode certificate.", Wide: true, Cell: func(m *talos.TalosMachine) any { return fingerprint(m) }},
			{Name: "Approved By", Description: "Who approved the machine.", Wide: true, Cell: func(m *talos.TalosMachine) any { return approver(m) }},
		},
	}
}

func product(m *talos.TalosMachine) string {
	if m.Status.Hardware == nil {
		return ""
	}
	return strings.TrimSpace(m.Status.Hardware.Manufacturer + " " + m.Status.Hardware.Product)
}

func fingerprint(m *talos.TalosMachine) string {
	if m.Status.Hardware == nil {
		return ""
	}
	return m.Status.Hardware.Fingerprint
}

func approver(m *talos.TalosMachine) string {
	if m.Status.Approval == nil {
		return ""
	}
	return m.Status.Approval.User
}

func disks(m *talos.TalosMachine) string {
	if m.Status.Hardware == nil {
		return ""
	}
	shown := make([]string, 0, len(m.Status.Hardware.Disks))
	for _, disk := range m.Status.Hardware.Disks {
		shown = append(shown, fmt.Sprintf("%s(%dG)", disk.Path, disk.SizeBytes/1e9))
	}
	return strings.Join(shown, ",")
}
