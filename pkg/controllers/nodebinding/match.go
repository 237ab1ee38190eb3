package nodebinding

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// bindings are who is which Node.
type bindings struct {
	nodes    map[string]*corev1.Node
	machines map[types.NamespacedName]*v1alpha1.TalosMachine
	// of are the names of the Nodes whose system UUID is a machine's, in order: more than one bind to none.
	of map[types.NamespacedName][]string
}

// bind finds the Nodes of all machines by their UUIDs. Some firmware has the kubelet read the first three fields of the
// UUID in the other byte order; a Node is found so only when nothing claims it, or the machine another, straight.
func bind(machines []*v1alpha1.TalosMachine, nodes []*corev1.Node) bindings {
	out := bindings{
		nodes:    make(map[string]*corev1.Node, len(nodes)),
		machines: make(map[types.NamespacedName]*v1alpha1.TalosMachine, len(machines)),
		of:       make(map[types.NamespacedName][]string),
	}
	byUUID := make(map[string][]string, len(nodes))
	claimed := make(map[string]bool, len(machines))

	for _, node := range nodes {
		out.nodes[node.Name] = node

		// A vendor's placeholder identifies nothing.
		if uuid := identity.UUID(node.Status.NodeInfo.SystemUUID); uuid != "" {
			byUUID[uuid] = append(byUUID[uuid], node.Name)
		}
	}

	for _, names := range byUUID {
		slices.Sort(names)
	}

	for _, machine := range machines {
		out.machines[keyOf(machine)] = machine

		if considered(machine) {
			claimed[uuidOf(machine)] = true
		}
	}

	for key, machine := range out.machines {
		if !considered(machine) {
			continue
		}

		uuid := uuidOf(machine)

		names := byUUID[uuid]
		if swapped := identity.SwappedUUID(uuid); len(names) == 0 && !claimed[swapped] {
			names = byUUID[swapped]
		}

		if len(names) > 0 {
			out.of[key] = names
		}
	}

	return out
}

func keyOf(machine *v1alpha1.TalosMachine) types.NamespacedName {
	return types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}
}

func uuidOf(machine *v1alpha1.TalosMachine) string {
	return strings.ToLower(strings.TrimSpace(machine.Spec.Identity.UUID))
}

func approved(machine *v1alpha1.TalosMachine) bool {
	return ptr.Deref(machine.Spec.Approved, false) && machine.DeletionTimestamp.IsZero()
}

// bindable tells whether a machine is to have a Node: it is approved, and has its configuration.
func bindable(machine *v1alpha1.TalosMachine) bool {
	return approved(machine) && machine.Status.Configuration != nil && machine.Status.Configuration.AppliedAt != nil
}

// considered tells whether a machine's Node is of interest: that of one whose approval was taken back is still its Node,
// although its status is left untouched (T-12).
func considered(machine *v1alpha1.TalosMachine) bool {
	return bindable(machine) || !approved(machine) && machine.Status.NodeName != ""
}

// node is the name of a machine's Node, "" when there is none or no single one.
func (b bindings) node(machine *v1alpha1.TalosMachine) string {
	names := b.of[keyOf(machine)]

	switch {
	case len(names) != 1:
		return ""
	case !bindable(machine) && machine.Status.NodeName != names[0]:
		return ""
	default:
		return names[0]
	}
}
