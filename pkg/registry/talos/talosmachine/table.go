package talosmachine

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type column = object.Column[*talos.TalosMachine]

// maxReason is how much of a rejection's reason the table shows: it is told by a person, at any length.
const maxReason = 40

// newTable returns what kubectl get shows of TalosMachines: with -o wide, all
// that an approver compares with the machine before him.
func newTable(clock clock.PassiveClock) object.Table[*talos.TalosMachine] {
	return object.Table[*talos.TalosMachine]{
		Clock: clock,
		Columns: []column{
			{Name: "Cluster", Description: "Cluster that the machine belongs to.", Cell: func(m *talos.TalosMachine) any { return m.Spec.ClusterRef.Name }},
			{Name: "Role", Description: "controlplane or worker.", Cell: func(m *talos.TalosMachine) any { return string(m.Spec.Role) }},
			{Name: "Phase", Description: "How far the machine is.", Cell: func(m *talos.TalosMachine) any { return string(m.Status.Phase) }},
			{Name: "Reason", Description: "What the machine waits for, what is wrong with it, or why it was rejected.", Cell: func(m *talos.TalosMachine) any { return reason(m) }},
			{Name: "Endpoint", Description: "Address that configuration is sent to.", Cell: func(m *talos.TalosMachine) any { return m.Spec.Endpoint }},
			{Name: "Serial", Description: "SMBIOS serial number.", Cell: func(m *talos.TalosMachine) any { return m.Spec.Identity.Serial }},
			{Name: "Hardware", Description: "Manufacturer and product.", Cell: func(m *talos.TalosMachine) any { return product(m) }},
			{Name: "Node", Description: "Node that the machine became.", Cell: func(m *talos.TalosMachine) any { return m.Status.NodeName }},
			{Name: "Approved", Description: "Whether the machine may be configured.", Wide: true, Cell: func(m *talos.TalosMachine) any { return strconv.FormatBool(talos.IsApproved(m)) }},
			{Name: "Approved By", Description: "Who approved the machine.", Wide: true, Cell: func(m *talos.TalosMachine) any { return approver(m) }},
			{Name: "MACs", Description: "Permanent MAC addresses.", Wide: true, Cell: func(m *talos.TalosMachine) any { return strings.Join(m.Spec.Identity.MACAddresses, ",") }},
			{Name: "Disks", Description: "Disks of the machine.", Wide: true, Cell: func(m *talos.TalosMachine) any { return disks(m) }},
			{Name: "Observed", Description: "Address at which it last answered in maintenance mode.", Wide: true, Cell: func(m *talos.TalosMachine) any { return m.Status.ObservedEndpoint }},
			{Name: "Fingerprint", Description: "Fingerprint of the maintenance-mode certificate.", Wide: true, Cell: func(m *talos.TalosMachine) any { return fingerprint(m) }},
			{Name: "Talos", Description: "Talos version that the machine runs.", Wide: true, Cell: func(m *talos.TalosMachine) any { return m.Status.TalosVersion }},
		},
	}
}

// reason is the first of what an operator has to know beside the phase, in the order in which it stops the machine.
func reason(m *talos.TalosMachine) string {
	if m.Spec.Rejected != nil {
		return shortened(m.Spec.Rejected.Reason)
	}
	for _, of := range []struct {
		condition string
		status    metav1.ConditionStatus
		// own tells to show the condition's reason rather than its type, which then says enough.
		own bool
	}{
		{conditionApprovalLapsed, metav1.ConditionTrue, false},
		{conditionBackInMaintenance, metav1.ConditionTrue, false},
		{"SharesHardware", metav1.ConditionTrue, false},
		{"Configured", metav1.ConditionFalse, true},
		{conditionReady, metav1.ConditionFalse, true},
		{conditionReady, metav1.ConditionUnknown, true},
		{"RebootRequired", metav1.ConditionTrue, false},
		{"UpToDate", metav1.ConditionFalse, true},
		{"Drifted", metav1.ConditionTrue, false},
	} {
		condition := meta.FindStatusCondition(m.Status.Conditions, of.condition)
		switch {
		case condition == nil || condition.Status != of.status:
		case of.own:
			return condition.Reason
		// Accepted, it is nothing that anybody waits for.
		case of.condition == "SharesHardware" && m.Spec.AcceptSharedHardware:
		default:
			return of.condition
		}
	}
	return ""
}

func shortened(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxReason {
		return string(runes[:maxReason-1]) + "…"
	}
	return text
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
