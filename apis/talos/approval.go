package talos

import "k8s.io/apimachinery/pkg/api/equality"

// IsApproved tells whether a machine may be configured.
func IsApproved(machine *TalosMachine) bool {
	return machine.Spec.Approved != nil && *machine.Spec.Approved
}

// ChangedAcceptance lists, by their paths, the members in which two specs differ that say what an approver accepted (T-18).
func ChangedAcceptance(stored, spec *TalosMachineSpec) []string {
	return differing([]member{
		{"spec.acceptedFingerprint", stored.AcceptedFingerprint == spec.AcceptedFingerprint},
		{"spec.acceptUnverifiedFingerprint", stored.AcceptUnverifiedFingerprint == spec.AcceptUnverifiedFingerprint},
		{"spec.acceptSharedHardware", stored.AcceptSharedHardware == spec.AcceptSharedHardware},
	})
}

// ChangedApproval lists, by their paths, the members in which two specs differ that an approval stands for: those of
// T-13, and what the approver accepted (T-18), since the approval of a control plane is only as good as the fingerprint
// it names. Labels and taints are not among them, as T-13 has it.
func ChangedApproval(stored, spec *TalosMachineSpec) []string {
	return append(differing([]member{
		{"spec.role", stored.Role == spec.Role},
		{"spec.install", equality.Semantic.DeepEqual(stored.Install, spec.Install)},
		{"spec.diskRoles", equality.Semantic.DeepEqual(stored.DiskRoles, spec.DiskRoles)},
		{"spec.network", equality.Semantic.DeepEqual(stored.Network, spec.Network)},
		{"spec.configPatches", equality.Semantic.DeepEqual(stored.ConfigPatches, spec.ConfigPatches)},
	}), ChangedAcceptance(stored, spec)...)
}

type member struct {
	path string
	same bool
}

func differing(members []member) []string {
	var paths []string
	for _, member := range members {
		if !member.same {
			paths = append(paths, member.path)
		}
	}
	return paths
}
