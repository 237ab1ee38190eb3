package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/scheme"
)

const pendingLong = `List the machines that wait for approval, and what answered in a declared range without a usable identity of its own.

The last column says what each waits for: an approval, a renewed one for a machine that was configured and is back in
maintenance mode, or another one where the approved disk or fingerprint is no longer that of the machine. Rejected
machines wait for nothing; --all shows them with the reason.

Machines are looked for only at the addresses that a TalosCluster declares in spec.discovery. What has no complete
identity, or that of another machine, is not registered: the second table says what is missing, and how to set it.`

const pendingExample = `  # What waits in the current namespace
  kubectl fieldplane pending

  # Everywhere, with MACs, all disks and fingerprints
  kubectl fieldplane pending -A -o wide

  # Rejected machines too, with the reason
  kubectl fieldplane pending --all

  # The names alone, as approve takes them
  kubectl fieldplane pending -o name`

// pending is one run of the command.
type pending struct {
	plugin
	target

	output    string
	noHeaders bool
	// rejected shows what was rejected too.
	rejected bool
}

func newPendingCommand(p plugin) *cobra.Command {
	command := pending{plugin: p}
	everywhere := false
	cmd := &cobra.Command{
		Use:                   "pending",
		Short:                 "List the machines that wait for approval",
		Long:                  pendingLong,
		Example:               pendingExample,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return told(fmt.Sprintf("pending takes no argument, and there is %q", args[0]), "See "+cmd.CommandPath()+" --help")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(outputs(), command.output) {
				return told(fmt.Sprintf("-o %s is not possible", command.output), "Use -o wide, json, yaml or name.")
			}
			var err error
			if command.target, err = p.connect(); err != nil {
				return err
			}
			if everywhere {
				command.namespace = metav1.NamespaceAll
			}
			return command.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "List every namespace")
	cmd.Flags().BoolVar(&command.rejected, "all", false, "Show rejected machines too, with the reason")
	cmd.Flags().StringVarP(&command.output, "output", "o", "", "wide, json, yaml or name")
	cmd.Flags().BoolVar(&command.noHeaders, "no-headers", false, "Leave out the headers")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"wide", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func outputs() []string { return []string{"", "wide", "json", "yaml", "name"} }

func (p pending) run(ctx context.Context) error {
	machines, err := listMachines(ctx, p.target)
	if err != nil {
		return attempt{to: "list machines", namespace: p.namespace}.explain(err)
	}
	machines = slices.DeleteFunc(machines, func(machine v1alpha1.TalosMachine) bool {
		return !waits(&machine) && !(p.rejected && machine.Spec.Rejected != nil)
	})
	switch p.output {
	case "json":
		return p.printList(machines, &printers.JSONPrinter{})
	case "yaml":
		return p.printList(machines, &printers.YAMLPrinter{})
	case "name":
		for _, machine := range machines {
			fmt.Fprintln(p.Out, resourceName(machine.Name))
		}
		return nil
	}

	clusters, err := p.client.TalosV1alpha1().TalosClusters(p.namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		// An approver needs no right on clusters; what he does not see, he is told.
		fmt.Fprintln(p.ErrOut, "Not shown, because you may not list talosclusters: machines that were seen and not registered.")
		clusters = &v1alpha1.TalosClusterList{}
	case err != nil:
		return attempt{to: "list clusters", namespace: p.namespace}.explain(err)
	}
	found := findings(clusters.Items)

	if len(machines) > 0 {
		if err := p.printTable(p.Out, machineTable(machines, p.clock.Now(), p.output == "wide")); err != nil {
			return err
		}
	} else {
		p.explainEmpty(clusters.Items)
	}
	if len(found) > 0 {
		if len(machines) > 0 {
			fmt.Fprintln(p.Out)
		}
		if !p.noHeaders {
			fmt.Fprintln(p.Out, "Seen in the declared ranges, with an identity that is incomplete or in doubt:")
		}
		if err := p.printTable(p.Out, findingTable(found, p.clock.Now())); err != nil {
			return err
		}
		if !p.noHeaders {
			printHints(p.Out, found)
		}
	}
	return nil
}

// explainEmpty says that nothing waits and, since the reason is mostly that nothing is looked for, where it is looked.
func (p pending) explainEmpty(clusters []v1alpha1.TalosCluster) {
	where, namespace := "in namespace "+p.namespace, p.namespace
	if p.namespace == metav1.NamespaceAll {
		where, namespace = "in any namespace", "NAMESPACE"
	}
	fmt.Fprintf(p.ErrOut, "No machine waits for approval %s.\n", where)
	for _, cluster := range clusters {
		fmt.Fprintf(p.ErrOut, "TalosCluster %s/%s %s.\n", cluster.Namespace, cluster.Name, lookedFor(&cluster, p.clock.Now()))
	}
	fmt.Fprintf(p.ErrOut, "Machines are looked for only at the addresses that a TalosCluster declares, for example:\n"+
		"  kubectl -n %s patch taloscluster NAME --type=merge -p '{\"spec\":{\"discovery\":{\"cidrs\":[\"192.0.2.0/24\"]}}}'\n", namespace)
}

func lookedFor(cluster *v1alpha1.TalosCluster, now time.Time) string {
	declared := &cluster.Spec.Discovery
	if len(declared.Addresses)+len(declared.Cidrs) == 0 {
		return "declares no addresses: nothing is looked for"
	}
	text := "declares " + clean(strings.Join(append(slices.Clone(declared.Cidrs), declared.Addresses...), ", "))
	switch swept := cluster.Status.Discovery; {
	case cluster.Spec.Paused:
		return text + "; it is paused: nothing is looked for"
	case swept == nil || swept.StartedAt == nil:
		return text + "; it was not swept yet"
	case swept.CompletedAt == nil:
		return text + "; it is being swept now"
	default:
		return fmt.Sprintf("%s; swept %s ago: %d addresses asked, %d answered in maintenance mode", text, age(now, *swept.CompletedAt), swept.Candidates, swept.Answered)
	}
}

// printList prints objects as kubectl get prints them: each names its kind, and who wrote which field is left out.
func (p pending) printList(machines []v1alpha1.TalosMachine, printer printers.ResourcePrinter) error {
	list := &v1alpha1.TalosMachineList{Items: machines}
	if list.Items == nil {
		list.Items = []v1alpha1.TalosMachine{}
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TalosMachine"))
	}
	typed := printers.NewTypeSetter(scheme.Scheme).ToPrinter(&printers.OmitManagedFieldsPrinter{Delegate: printer})
	return typed.PrintObj(list, p.Out)
}

func (p pending) printTable(out io.Writer, table *metav1.Table) error {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: p.output == "wide", NoHeaders: p.noHeaders}).PrintObj(table, out)
}
