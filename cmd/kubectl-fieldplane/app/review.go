package app

import (
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/installdisk"
)

// review is what an approver is shown of a machine.
type review struct {
	machine, wanted *v1alpha1.TalosMachine
	// cluster is missing if the approver may not read it: approving needs no right on it.
	cluster    *v1alpha1.TalosCluster
	clusterErr error
	now        time.Time
}

func (r review) print(out io.Writer) {
	r.printIdentity(out)
	hardware := hardwareOf(r.machine)
	r.printLinks(out, hardware.Links)
	r.printDisks(out, hardware.Disks)
	r.printCluster(out)
	for _, warning := range r.warnings() {
		fmt.Fprintf(out, "\nWarning: %s\n", warning)
	}
}

func hardwareOf(machine *v1alpha1.TalosMachine) *v1alpha1.MachineHardware {
	if machine.Status.Hardware == nil {
		return &v1alpha1.MachineHardware{}
	}
	return machine.Status.Hardware
}

// printIdentity shows which machine it is, and how it stands.
func (r review) printIdentity(out io.Writer) {
	spec, status := &r.machine.Spec, &r.machine.Status
	hardware := hardwareOf(r.machine)
	table := printers.GetNewTabWriter(out)
	line := func(name, value string) { fmt.Fprintf(table, "%s:\t%s\n", name, value) }
	line("Machine", clean(r.machine.Name))
	line("Namespace", r.machine.Namespace)
	line("Cluster", orNone(spec.ClusterRef.Name))
	line("Approval", r.approval())
	if status.Phase != "" && status.Phase != v1alpha1.MachinePending {
		line("Phase", clean(string(status.Phase)))
	}
	if status.NodeName != "" {
		line("Node", clean(status.NodeName))
	}
	line("Address", r.address())
	line("Manufacturer", orNone(hardware.Manufacturer))
	line("Product", orNone(hardware.Product))
	line("Serial", orNone(spec.Identity.Serial))
	line("MACs", orNone(strings.Join(spec.Identity.MACAddresses, ", ")))
	fingerprint := orNone(hardware.Fingerprint)
	if hardware.Fingerprint != "" {
		fingerprint += "  (read over the network: compare it with the machine's console)"
	}
	line("Fingerprint", fingerprint)
	line("Seen", age(r.now, r.machine.CreationTimestamp)+" ago for the first time")
	_ = table.Flush()
}

func (r review) approval() string {
	spec := &r.machine.Spec
	switch given := r.machine.Status.Approval; {
	case spec.Rejected != nil:
		return "rejected: " + clean(spec.Rejected.Reason)
	case !approved(r.machine) && configured(r.machine):
		return "none: the machine was configured before, and nothing more is sent to it"
	case !approved(r.machine):
		return "none: the machine waits, untouched"
	case given == nil:
		return "approved as " + clean(string(spec.Role))
	default:
		return fmt.Sprintf("approved as %s by %s, %s ago", clean(string(spec.Role)), clean(given.User), age(r.now, given.Time))
	}
}

func (r review) address() string {
	endpoint, observed := r.machine.Spec.Endpoint, r.machine.Status.ObservedEndpoint
	if observed == "" || observed == endpoint {
		return orNone(endpoint)
	}
	return fmt.Sprintf("%s  (last answered at %s)", orNone(endpoint), clean(observed))
}

func (r review) printLinks(out io.Writer, links []v1alpha1.MachineLink) {
	if len(links) == 0 {
		return
	}
	fmt.Fprint(out, "\nLinks:\n")
	table := printers.GetNewTabWriter(out)
	fmt.Fprint(table, "  NAME\tMAC\tCABLE\tDRIVER\n")
	for _, link := range links {
		cable := "no"
		if link.Up {
			cable = "yes"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", orNone(link.Name), orNone(link.PermanentMAC), cable, orNone(link.Driver))
	}
	_ = table.Flush()
}

func (r review) printDisks(out io.Writer, disks []v1alpha1.MachineDisk) {
	if len(disks) == 0 {
		fmt.Fprint(out, "\nDisks: not known; whether the install disk exists only the machine will tell.\n")
		return
	}
	picked := installdisk.Choose(r.wanted.Spec.Install, disks)
	fmt.Fprint(out, "\nDisks (* is where Talos would be installed):\n")
	table := printers.GetNewTabWriter(out)
	fmt.Fprint(table, "    PATH\tSIZE\tTYPE\tMODEL\tSERIAL\n")
	for i, disk := range disks {
		mark := " "
		switch {
		case picked.Chosen[i] && picked.Count > 1:
			mark = "?"
		case picked.Chosen[i]:
			mark = "*"
		}
		fmt.Fprintf(table, "  %s %s\t%s\t%s\t%s\t%s\n", mark, orNone(disk.Path), size(disk.SizeBytes), diskType(disk), orNone(disk.Model), orNone(disk.Serial))
	}
	_ = table.Flush()
	if disk := installdisk.Only(r.wanted.Spec.Install, disks); disk != nil {
		fmt.Fprintf(out, "\nInstall disk: %s\n", describeDisk(disk))
	}
}

// printCluster shows what the TalosCluster decides of the machine's configuration: no approval of the machine covers it.
func (r review) printCluster(out io.Writer) {
	if r.cluster == nil || r.clusterErr != nil {
		return
	}
	spec := &r.cluster.Spec
	fmt.Fprintf(out, "\nTalosCluster %s decides the rest of the configuration:\n", clean(r.cluster.Name))
	table := printers.GetNewTabWriter(out)
	line := func(name, value string) { fmt.Fprintf(table, "  %s:\t%s\n", name, value) }
	line("Endpoint", orNone(spec.ControlPlaneEndpoint))
	line("Kubernetes", orNone(spec.KubernetesVersion))
	line("Talos", orNone(spec.TalosVersion))
	image := "the one of the Talos version"
	if spec.InstallImage != "" {
		image = clean(spec.InstallImage)
	}
	line("Install image", image)
	line("Patches", fmt.Sprint(len(spec.ConfigPatches)))
	if at := changedAt(r.cluster); at != nil {
		line("Changed", age(r.now, *at)+" ago for the last time")
	}
	_ = table.Flush()
}

// changedAt is when somebody last wrote anything but the status of a cluster; nil if the server does not tell.
func changedAt(cluster *v1alpha1.TalosCluster) *metav1.Time {
	var last *metav1.Time
	for i := range cluster.ManagedFields {
		entry := &cluster.ManagedFields[i]
		if entry.Subresource == "" && entry.Time != nil && (last == nil || last.Before(entry.Time)) {
			last = entry.Time
		}
	}
	return last
}

// warnings are what an approver has to settle before he can know which machine this is.
func (r review) warnings() []string {
	var out []string
	if observed := r.machine.Status.ObservedEndpoint; observed != "" && observed != r.machine.Spec.Endpoint {
		out = append(out, fmt.Sprintf("the machine last answered at %s; configuration goes to spec.endpoint, %s, alone, and only if this machine answers there.",
			clean(observed), orNone(r.machine.Spec.Endpoint)))
	}
	if found := condition(r.machine, conditionBackInMaintenance); found != nil {
		out = append(out, "the machine is back in maintenance mode: "+clean(found.Message))
	}
	if found := condition(r.machine, conditionSharesHardware); found != nil {
		out = append(out, "hardware is shared: "+clean(found.Message))
	}
	switch {
	case apierrors.IsNotFound(r.clusterErr):
		out = append(out, fmt.Sprintf("there is no TalosCluster %s in namespace %s: nothing is configured until there is.", clean(r.machine.Spec.ClusterRef.Name), r.machine.Namespace))
	case r.clusterErr != nil || r.cluster == nil:
		// Without the right to read the cluster its findings stay unknown; the server checks identities all the same.
		return out
	case r.cluster.Spec.Paused:
		out = append(out, fmt.Sprintf("TalosCluster %s is paused: the machine is not configured until spec.paused is cleared.", r.cluster.Name))
	}
	if r.cluster == nil {
		return out
	}
	given := r.machine.Status.Approval
	if at := changedAt(r.cluster); approved(r.machine) && given != nil && at != nil && given.Time.Before(at) {
		out = append(out, fmt.Sprintf("TalosCluster %s was changed %s ago, after the machine was approved.", clean(r.cluster.Name), age(r.now, *at)))
	}
	if r.cluster.Status.Discovery == nil {
		return out
	}
	for _, collision := range r.cluster.Status.Discovery.Collisions {
		if collision.MachineName == r.machine.Name || collision.Identity.UUID == r.machine.Spec.Identity.UUID {
			out = append(out, "identity in doubt: "+clean(collision.Message))
		}
	}
	return out
}
