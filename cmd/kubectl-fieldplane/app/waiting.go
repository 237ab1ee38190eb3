package app

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// Conditions of a machine that an approver has to know of.
const (
	conditionSharesHardware    = "SharesHardware"
	conditionBackInMaintenance = "BackInMaintenance"
	conditionRebootRequired    = "RebootRequired"
	conditionUpToDate          = "UpToDate"
)

// conditionsForApprovers are the problems of an approved machine that only another approval settles.
func conditionsForApprovers() []string {
	return []string{"FingerprintRequired", "FingerprintMismatch", "InstallDiskNotFound", "InstallDiskChanged", "SharedHardwareNotAccepted"}
}

// condition returns a condition that is True, nil otherwise.
func condition(machine *v1alpha1.TalosMachine, kind string) *metav1.Condition {
	if found := meta.FindStatusCondition(machine.Status.Conditions, kind); found != nil && found.Status == metav1.ConditionTrue {
		return found
	}
	return nil
}

// configured tells whether the machine took a configuration.
func configured(machine *v1alpha1.TalosMachine) bool {
	return machine.Status.Configuration != nil && machine.Status.Configuration.AppliedAt != nil
}

// waitsFor says what a machine waits for that an approver gives; "" if it waits for nothing.
func waitsFor(machine *v1alpha1.TalosMachine) string {
	var parts []string
	back := condition(machine, conditionBackInMaintenance) != nil
	switch {
	case approved(machine) && back, !approved(machine) && back && machine.Spec.Rejected == nil:
		parts = append(parts, "a renewed approval: it was configured, and is back in maintenance mode")
	case approved(machine):
		for _, kind := range conditionsForApprovers() {
			if found := condition(machine, kind); found != nil {
				parts = append(parts, "another approval: "+kind+": "+found.Message)
			}
		}
		return strings.Join(parts, "; ")
	case machine.Spec.Rejected != nil, machine.Status.Phase != v1alpha1.MachinePending:
		return ""
	default:
		parts = append(parts, "approval")
	}
	if found := condition(machine, conditionSharesHardware); found != nil {
		parts = append(parts, "--accept-shared-hardware: "+found.Message)
	}
	return strings.Join(parts, "; ")
}

// waits tells whether a machine waits for an approver.
func waits(machine *v1alpha1.TalosMachine) bool { return waitsFor(machine) != "" }

// explainWaiting is waitsFor, or why the machine waits for nothing.
func explainWaiting(machine *v1alpha1.TalosMachine) string {
	if machine.Spec.Rejected != nil {
		return "nothing, rejected: " + machine.Spec.Rejected.Reason
	}
	return waitsFor(machine)
}

// listMachines lists machines in the order of their names. All of them: some wait that are approved, and in any phase.
func listMachines(ctx context.Context, t target) ([]v1alpha1.TalosMachine, error) {
	list, err := t.client.TalosV1alpha1().TalosMachines(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b v1alpha1.TalosMachine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}
