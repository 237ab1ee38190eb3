package app

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// shownDisks is how many disks a line holds without -o wide.
const shownDisks = 3

func columns(always []string, wide ...string) []metav1.TableColumnDefinition {
	var out []metav1.TableColumnDefinition
	for _, name := range always {
		out = append(out, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range wide {
		out = append(out, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	return out
}

// machineTable is the table of machines that wait: a UUID tells nobody which machine it is, its serial and address do.
func machineTable(machines []v1alpha1.TalosMachine, now time.Time, wide bool) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: columns(
		[]string{"Namespace", "UUID", "Cluster", "Address", "Serial", "Hardware", "Disks", "Age", "Waits for"}, "MACs", "Fingerprint")}
	for i := range machines {
		machine := &machines[i]
		hardware := hardwareOf(machine)
		table.Rows = append(table.Rows, row(
			machine.Namespace, machine.Name, machine.Spec.ClusterRef.Name, address(machine), machine.Spec.Identity.Serial,
			product(hardware), disks(hardware.Disks, wide), age(now, machine.CreationTimestamp), explainWaiting(machine),
			strings.Join(machine.Spec.Identity.MACAddresses, ","), hardware.Fingerprint))
	}
	return table
}

func row(cells ...string) metav1.TableRow {
	out := metav1.TableRow{Cells: make([]any, len(cells))}
	for i, cell := range cells {
		out.Cells[i] = orNone(cell)
	}
	return out
}

func address(machine *v1alpha1.TalosMachine) string {
	if observed := machine.Status.ObservedEndpoint; observed != "" && observed != machine.Spec.Endpoint {
		return fmt.Sprintf("%s (seen at %s)", machine.Spec.Endpoint, observed)
	}
	return machine.Spec.Endpoint
}

func product(hardware *v1alpha1.MachineHardware) string {
	return strings.TrimSpace(hardware.Manufacturer + " " + hardware.Product)
}

func disks(disks []v1alpha1.MachineDisk, all bool) string {
	var shown []string
	for i, disk := range disks {
		if i == shownDisks && !all {
			shown = append(shown, fmt.Sprintf("%d more", len(disks)-shownDisks))
			break
		}
		shown = append(shown, disk.Path+" "+size(disk.SizeBytes))
	}
	return strings.Join(shown, ", ")
}

// found is something that answered in a declared range and whose identity is incomplete or in doubt.
type found struct {
	namespace, cluster, address, serial, problem, registered, hint string
	seenAt                                                         metav1.Time
}

// findings lists what the last sweep of each cluster found, weak candidates first.
func findings(clusters []v1alpha1.TalosCluster) []found {
	clusters = slices.Clone(clusters)
	slices.SortStableFunc(clusters, func(a, b v1alpha1.TalosCluster) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var out []found
	for _, cluster := range clusters {
		if cluster.Status.Discovery == nil {
			continue
		}
		for _, weak := range cluster.Status.Discovery.Weak {
			out = append(out, found{
				namespace: cluster.Namespace, cluster: cluster.Name, address: weak.Address, serial: weak.Identity.Serial,
				problem: "missing: " + strings.Join(weak.Missing, ", "), registered: notRegistered, hint: weak.Hint, seenAt: seen(weak.SeenAt),
			})
		}
		for _, collision := range cluster.Status.Discovery.Collisions {
			problem, registered := describeCollision(collision)
			out = append(out, found{
				namespace: cluster.Namespace, cluster: cluster.Name, address: collision.Address, serial: collision.Identity.Serial,
				problem: problem, registered: registered, hint: collision.Message, seenAt: seen(collision.SeenAt),
			})
		}
	}
	return out
}

const notRegistered = "not registered"

// describeCollision says what is wrong with an identity, and as what the machine is registered.
func describeCollision(collision v1alpha1.IdentityCollision) (problem, registered string) {
	reason := collision.Reason
	// A server that tells no reason: a UUID of its own says which it is.
	if reason == "" && collision.Identity.UUID != "" && collision.Identity.UUID != collision.MachineName {
		reason = v1alpha1.FindingSharesHardware
	}
	switch reason {
	case v1alpha1.FindingSharesHardware:
		return "shares its serial or a MAC with another machine", collision.Identity.UUID
	case v1alpha1.FindingIdentityClaimed:
		return "has the UUID of a machine in another namespace", notRegistered
	default:
		return "has the UUID of another machine", notRegistered
	}
}

func seen(at *metav1.Time) metav1.Time {
	if at == nil {
		return metav1.Time{}
	}
	return *at
}

// printHints tells below the table what each finding means and what to do: as a column, its sentences would be wider than
// any screen.
func printHints(out io.Writer, all []found) {
	fmt.Fprintln(out)
	for _, one := range all {
		if one.hint != "" {
			hint := clean(one.hint)
			fmt.Fprintf(out, "%s: %s\n", clean(one.address), strings.TrimPrefix(hint, clean(one.address)+" "))
		}
	}
}

func findingTable(all []found, now time.Time) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: columns(
		[]string{"Namespace", "Cluster", "Address", "Serial", "Problem", "Machine", "Since"})}
	for _, one := range all {
		table.Rows = append(table.Rows, row(one.namespace, one.cluster, one.address, one.serial, one.problem, one.registered, age(now, one.seenAt)))
	}
	return table
}
