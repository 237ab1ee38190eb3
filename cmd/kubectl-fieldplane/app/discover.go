package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const discoverLong = `Ask for a sweep of the ranges that a TalosCluster declares now, instead of within a minute, and show what answered in
maintenance mode: machines that were registered by it, machines that were known, and what has no usable identity of its
own, with what is missing and how to set it.

It takes at most 70 seconds from its turn: clusters are swept one after another. Nothing but the declared addresses is
ever contacted, and nothing is configured by it.`

const discoverExample = `  # Sweep now, and see what answers
  kubectl fieldplane discover plant

  # Only ask for it
  kubectl fieldplane discover plant --no-wait`

const (
	discoverTimeout = 3 * time.Minute
	// lookEvery is how often the cluster is read while it is swept.
	lookEvery = 500 * time.Millisecond
	// readTimeout bounds a single look.
	readTimeout = 10 * time.Second
)

// discover is one run of the command.
type discover struct {
	plugin
	target

	cluster string
	timeout time.Duration
	noWait  bool
}

func newDiscoverCommand(p plugin) *cobra.Command {
	command := discover{plugin: p}
	cmd := &cobra.Command{
		Use:                   "discover CLUSTER",
		Short:                 "Look for machines now, and show what answers",
		Long:                  discoverLong,
		Example:               discoverExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if command.cluster, err = parseCluster("discover", args); err != nil {
				return err
			}
			if command.timeout <= 0 {
				return told(fmt.Sprintf("--timeout %s is no time to wait", command.timeout), "Use a time such as 3m, or --no-wait.")
			}
			if command.target, err = p.connect(); err != nil {
				return err
			}
			return command.run(cmd.Context())
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().DurationVar(&command.timeout, "timeout", discoverTimeout, "How long to wait for the end of the sweep")
	cmd.Flags().BoolVar(&command.noWait, "no-wait", false, "Ask for the sweep, and do not wait for it")
	return cmd
}

func (d discover) attempt() attempt {
	return attempt{
		to: "ask for a sweep", namespace: d.namespace, cluster: d.cluster, writes: true,
		needs: operatorRight("create", "talosclusters", "discover"),
	}
}

func (d discover) run(ctx context.Context) error {
	before, err := d.getCluster(ctx, d.cluster)
	if err != nil {
		return err
	}
	if err := d.refuse(before); err != nil {
		return err
	}
	known, err := d.knownMachines(ctx)
	if err != nil {
		return err
	}
	request, err := d.client.TalosV1alpha1().TalosClusters(d.namespace).RequestDiscovery(ctx, d.cluster, &v1alpha1.DiscoveryRequest{}, metav1.CreateOptions{})
	if err != nil {
		return d.attempt().explain(err)
	}
	if d.noWait {
		fmt.Fprintf(d.Out, "A sweep of TalosCluster %s/%s was asked for.\n", d.namespace, d.cluster)
		fmt.Fprintf(d.Out, "See what it finds: kubectl fieldplane -n %s pending\n", d.namespace)
		return nil
	}
	swept, err := d.follow(ctx, request.Status.RequestedAt, before.Status.Discovery)
	if err != nil {
		return err
	}
	return d.report(ctx, swept, known)
}

// refuse tells what stops every sweep of the cluster; nil if nothing does.
func (d discover) refuse(cluster *v1alpha1.TalosCluster) error {
	declared := &cluster.Spec.Discovery
	switch {
	case cluster.DeletionTimestamp != nil:
		return told(fmt.Sprintf("TalosCluster %s/%s is being deleted", d.namespace, d.cluster), "Nothing is looked for in it any more.")
	case len(declared.Addresses)+len(declared.Cidrs) == 0:
		return told(fmt.Sprintf("discovery is off: TalosCluster %s/%s declares no addresses, and nothing else is ever contacted", d.namespace, d.cluster),
			fmt.Sprintf("Declare where machines are, for example: kubectl -n %s patch taloscluster %s --type=merge -p '{\"spec\":{\"discovery\":{\"cidrs\":[\"192.0.2.0/24\"]}}}'", d.namespace, d.cluster))
	case cluster.Spec.Paused:
		return told(fmt.Sprintf("TalosCluster %s/%s is paused: nothing is looked for", d.namespace, d.cluster),
			fmt.Sprintf("If the pause is over: kubectl -n %s patch taloscluster %s --type=merge -p '{\"spec\":{\"paused\":false}}'", d.namespace, d.cluster))
	default:
		return nil
	}
}

// knownMachines are the names of the cluster's machines; nil for who may not list them.
func (d discover) knownMachines(ctx context.Context) (map[string]bool, error) {
	machines, err := listMachines(ctx, d.target)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, attempt{to: "list machines", namespace: d.namespace}.explain(err)
	}
	known := map[string]bool{}
	for i := range machines {
		known[machines[i].Name] = true
	}
	return known, nil
}

// follow shows the sweep until one has ended that began no earlier than it was asked for, and returns the cluster then.
func (d discover) follow(ctx context.Context, asked *metav1.Time, before *v1alpha1.DiscoveryStatus) (*v1alpha1.TalosCluster, error) {
	shown := &progress{out: d.ErrOut, draws: d.draws(), clock: d.clock}
	defer shown.end()
	deadline := d.clock.Now().Add(d.timeout)
	for {
		cluster, err := d.look(ctx)
		// A server that restarts comes back, and the request is stored.
		passes := err != nil && outcomeUnknown(err)
		begun := false
		switch {
		case passes:
			shown.show(0, 0, "the server does not answer; waiting for it")
		case err != nil:
			return nil, attempt{to: "read the cluster", namespace: d.namespace, cluster: d.cluster}.explain(err)
		default:
			if err := d.refuse(cluster); err != nil {
				return nil, err
			}
			swept := cluster.Status.Discovery
			if begun = answersRequest(swept, before, asked); begun && swept.CompletedAt != nil {
				return cluster, nil
			}
			showSweep(shown, swept, begun)
		}
		if !d.clock.Now().Before(deadline) {
			shown.end()
			return nil, d.timedOut(err, begun)
		}
		if err := d.pause(ctx, lookEvery); err != nil {
			return nil, err
		}
	}
}

func (d discover) look(ctx context.Context) (*v1alpha1.TalosCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return d.client.TalosV1alpha1().TalosClusters(d.namespace).Get(ctx, d.cluster, metav1.GetOptions{})
}

func showSweep(shown *progress, swept *v1alpha1.DiscoveryStatus, begun bool) {
	switch {
	case begun:
		shown.show(swept.Asked, swept.Candidates, fmt.Sprintf("%d/%d asked, %d answered, %d registered", swept.Asked, swept.Candidates, swept.Answered, swept.Registered))
	case swept != nil && swept.StartedAt != nil && swept.CompletedAt == nil:
		shown.show(0, 0, "waiting for the sweep that runs already to end")
	default:
		shown.show(0, 0, "waiting for the sweep to begin")
	}
}

// answersRequest tells whether a sweep began no earlier than it was asked for. Times are told in whole seconds, so that
// one which was seen before the request may bear the same.
func answersRequest(swept, before *v1alpha1.DiscoveryStatus, asked *metav1.Time) bool {
	switch {
	case swept == nil || swept.StartedAt == nil:
		return false
	case asked != nil && swept.StartedAt.Truncate(time.Second).Before(asked.Truncate(time.Second)):
		return false
	case before == nil || before.StartedAt == nil || !before.StartedAt.Equal(swept.StartedAt):
		return true
	default:
		return before.CompletedAt != nil && !before.CompletedAt.Equal(swept.CompletedAt)
	}
}

func (d discover) timedOut(err error, begun bool) error {
	see := fmt.Sprintf("See later what it found: kubectl fieldplane -n %s pending", d.namespace)
	switch {
	case err != nil:
		return attempt{to: "see how the sweep goes on", namespace: d.namespace, cluster: d.cluster}.explain(err)
	case begun:
		return told(fmt.Sprintf("the sweep has not ended within %s", d.timeout), "It goes on by itself. "+see)
	default:
		return told(fmt.Sprintf("the sweep has not begun within %s", d.timeout),
			"It was asked for, and begins when its turn comes; if no cluster is swept, the server's log says why: "+
				"kubectl -n fieldplane-system logs deployment/fieldplane-apiserver. "+see)
	}
}

// report shows what the sweep found.
func (d discover) report(ctx context.Context, cluster *v1alpha1.TalosCluster, known map[string]bool) error {
	swept := cluster.Status.Discovery
	// It may be told to have begun when it was asked for, in the second that has not ended yet.
	took := max(0, swept.CompletedAt.Sub(swept.StartedAt.Time))
	fmt.Fprintf(d.Out, "TalosCluster %s/%s: %d addresses asked in %s, %d answered in maintenance mode, %d registered.\n", d.namespace, d.cluster,
		swept.Candidates, took.Round(time.Second), swept.Answered, swept.Registered)
	if swept.Answered == 0 && len(swept.Weak)+len(swept.Collisions) == 0 {
		fmt.Fprint(d.Out, "A machine answers once it has started Talos without a configuration, on port 50000. One that runs in a cluster does not count.\n")
	}
	print := func(table *metav1.Table) error {
		fmt.Fprintln(d.Out)
		return printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, d.Out)
	}
	if known == nil {
		fmt.Fprintln(d.ErrOut, "Not shown, because you may not list talosmachines: the machines that answered.")
	} else {
		machines, err := listMachines(ctx, d.target)
		if err != nil {
			return attempt{to: "list machines", namespace: d.namespace}.explain(err)
		}
		seen := d.answered(machines, known)
		if len(seen) > 0 {
			if err := print(sightingTable(seen)); err != nil {
				return err
			}
		}
		d.printSilent(swept, seen)
	}
	if found := findings([]v1alpha1.TalosCluster{*cluster}); len(found) > 0 {
		fmt.Fprint(d.Out, "\nWith an identity that is incomplete or in doubt:")
		if err := print(findingTable(found, d.clock.Now())); err != nil {
			return err
		}
		printHints(d.Out, found)
	}
	if failed := meta.FindStatusCondition(cluster.Status.Conditions, "DiscoveryReady"); failed != nil && failed.Status == metav1.ConditionFalse {
		return told("the sweep ended with a failure: "+clean(failed.Message), "What is not registered yet is tried again with the next sweep, within a minute.")
	}
	return nil
}

// sighting is a machine in maintenance mode, and whether this sweep registered it.
type sighting struct {
	machine *v1alpha1.TalosMachine
	isNew   bool
}

// answered lists the cluster's machines that are in maintenance mode as far as is known, new ones first.
func (d discover) answered(machines []v1alpha1.TalosMachine, known map[string]bool) []sighting {
	var fresh, old []sighting
	for i := range machines {
		machine := &machines[i]
		switch {
		case machine.Spec.ClusterRef.Name != d.cluster:
		case !known[machine.Name]:
			fresh = append(fresh, sighting{machine, true})
		case machine.Status.ObservedEndpoint != "" && (!configured(machine) || condition(machine, conditionBackInMaintenance) != nil):
			old = append(old, sighting{machine, false})
		}
	}
	return append(fresh, old...)
}

// printSilent says how many of the known machines answered this time: which, the status does not tell.
func (d discover) printSilent(swept *v1alpha1.DiscoveryStatus, seen []sighting) {
	old, answered := 0, int(swept.Answered)-len(swept.Weak)
	for _, one := range seen {
		if one.isNew {
			answered--
		} else {
			old++
		}
	}
	for _, collision := range swept.Collisions {
		if _, registered := describeCollision(collision); registered == notRegistered {
			answered--
		}
	}
	if answered = max(answered, 0); answered < old {
		fmt.Fprintf(d.ErrOut, "Of the %d known machines above, %d answered this time; the others are shown as they last answered.\n", old, answered)
	}
}

func sightingTable(all []sighting) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: columns([]string{"Found", "UUID", "Address", "Serial", "Hardware", "Disks", "Waits for"})}
	for _, one := range all {
		found, waiting := "known", explainWaiting(one.machine)
		if one.isNew {
			found = "new"
		}
		if waiting == "" && approved(one.machine) {
			waiting = "its configuration"
		}
		hardware := hardwareOf(one.machine)
		table.Rows = append(table.Rows, row(found, one.machine.Name, address(one.machine), one.machine.Spec.Identity.Serial,
			product(hardware), disks(hardware.Disks, false), waiting))
	}
	return table
}
