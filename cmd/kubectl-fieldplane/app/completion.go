package app

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// completionTimeout bounds what a press of the Tab key may wait for.
const completionTimeout = 3 * time.Second

// completeMachines offers the machines that a command is for, by UUID, with what tells them apart. It stays silent about
// errors: a shell has nowhere to show them.
func (p plugin) completeMachines(offers func(*v1alpha1.TalosMachine) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		prefix := ""
		switch {
		case len(args) == 0 && strings.HasPrefix(toComplete, "machine/"):
			prefix = "machine/"
		case len(args) == 0:
			return []cobra.Completion{"machine"}, cobra.ShellCompDirectiveNoFileComp
		case len(args) > 1 || strings.Contains(args[0], "/"):
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		t, err := p.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		machines, err := listMachines(ctx, t)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for i := range machines {
			machine := &machines[i]
			if name := prefix + machine.Name; offers(machine) && strings.HasPrefix(name, toComplete) {
				out = append(out, cobra.CompletionWithDesc(name, describeMachine(machine)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// describeMachine is what tells a machine apart from others, in a few words.
func describeMachine(machine *v1alpha1.TalosMachine) string {
	return clean(strings.Join(strings.Fields(machine.Spec.Endpoint+" "+machine.Spec.Identity.Serial+" "+product(hardwareOf(machine))), " "))
}

// completeClusters offers the TalosClusters of the namespace, with where machines are looked for.
func (p plugin) completeClusters(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := t.client.TalosV1alpha1().TalosClusters(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range list.Items {
		if cluster := &list.Items[i]; strings.HasPrefix(cluster.Name, toComplete) {
			out = append(out, cobra.CompletionWithDesc(cluster.Name, lookedFor(cluster, p.clock.Now())))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
