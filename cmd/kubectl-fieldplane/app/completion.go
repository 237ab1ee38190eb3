package app

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// completionTimeout bounds what a press of the Tab key may wait for.
const completionTimeout = 3 * time.Second

// completeMachines offers the machines that wait, by UUID, with what tells them apart. It stays silent about errors: a
// shell has nowhere to show them.
func (p plugin) completeMachines(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
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
	machines, err := listPending(ctx, t)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range machines {
		machine := &machines[i]
		hardware := machine.Status.Hardware
		if hardware == nil {
			hardware = &v1alpha1.MachineHardware{}
		}
		description := clean(strings.Join(strings.Fields(machine.Spec.Endpoint+" "+machine.Spec.Identity.Serial+" "+product(hardware)), " "))
		if name := prefix + machine.Name; strings.HasPrefix(name, toComplete) {
			out = append(out, cobra.CompletionWithDesc(name, description))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
