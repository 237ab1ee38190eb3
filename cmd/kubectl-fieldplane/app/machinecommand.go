package app

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// machineCommand is what the commands about one machine differ in.
type machineCommand struct {
	// name of the command; usage is what its first line shows after the machine.
	name, usage, short, long, example string
	// offers tells which machines the shell completes.
	offers func(*v1alpha1.TalosMachine) bool
	// check finds what is wrong with the flags alone, before anything is asked of the server; it may be nil.
	check func() error
	run   func(ctx context.Context, t target, machine string) error
}

func (p plugin) machineCommand(c machineCommand) *cobra.Command {
	use := c.name + " machine UUID"
	if c.usage != "" {
		use += " " + c.usage
	}
	cmd := &cobra.Command{
		Use:     use,
		Short:   c.short,
		Long:    c.long,
		Example: c.example,
		// The flags are listed below in full; a second hint would only lengthen the usage line.
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeMachines(c.offers),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, err := parseMachine(c.name, args)
			if err != nil {
				return err
			}
			if c.check != nil {
				if err := c.check(); err != nil {
					return err
				}
			}
			t, err := p.connect()
			if err != nil {
				return err
			}
			return c.run(cmd.Context(), t, machine)
		},
	}
	cmd.Flags().SortFlags = false
	return cmd
}
