// Package app is the unit-runtime program: options → validate → run.
package app

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
)

// DefaultStateFile is where a runtime's pod mounts what outlives a kill of the program.
const DefaultStateFile = "/var/lib/fieldplane/state.json"

// Options are the program's flags.
type Options struct {
	podserver.Flags
	StateFile string
}

// AddFlags registers the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Flags.AddFlags(flags, "the Unit, its modules and its tags", "the Unit")
	flags.StringVar(&o.StateFile, "state-file", DefaultStateFile, "File that keeps the last order and the runtime's own hold; it must outlive a kill of the program.")
}

// Validate returns everything that is wrong, each error naming its flag.
func (o *Options) Validate() error {
	err := o.Flags.Validate()
	switch {
	case o.StateFile == "":
		err = errors.Join(err, errors.New("--state-file is missing: name a file that outlives a kill of the program"))
	case !filepath.IsAbs(o.StateFile):
		err = errors.Join(err, fmt.Errorf("--state-file %q is no absolute path", o.StateFile))
	}
	return err
}

// NewCommand returns the command; its context's end stops the program.
func NewCommand() *cobra.Command {
	o := &Options{}
	cmd := &cobra.Command{
		Use:   "unit-runtime",
		Short: "Read, write and hold the tags of one Unit",
		Long: `unit-runtime reads the tags of the Unit that its config file names, each from its device and at its period.

Over mutual TLS (--listen) it serves, to peers of its namespace and to the controllers:
  GET /v1/unit                           the order in force, what is outstanding of it, the runtime's own
                                         hold, and the devices as they are reached
  GET /v1/unit?watch=true                the same, and again at every change, one JSON document a line
  GET /v1/tags                           every tag: value, quality and source time
  GET /v1/tags?watch=true                the same, and then what changes, one JSON document a line
and to the controllers alone:
  PUT /v1/unit                           an order: the state that the Unit is in
  PUT /v1/tags                           values to write; refused unless the Unit is Running

In Holding, Held, Stopping, Stopped, Aborting and Aborted every tag that has a hold value is written to it, and nothing
else is sent to any device. A runtime that loses a device while no order came for 10 s holds by itself, and
stays so until the controllers have taken note, through restarts too (--state-file).`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o, klog.Background())
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
