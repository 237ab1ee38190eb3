// Package app is the io-probe program: options → validate → run.
package app

import (
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
)

// Options are the program's flags.
type Options struct{ podserver.Flags }

// NewCommand returns the command; its context's end stops the program.
func NewCommand() *cobra.Command {
	o := &Options{}
	cmd := &cobra.Command{
		Use:   "io-probe",
		Short: "Supervise the connectivity of field devices and tell it over mutual TLS",
		Long: `io-probe supervises the field devices that its config file names: Modbus TCP, OPC UA and EtherNet/IP.

Over mutual TLS (--listen) it serves, to peers of its namespace and to the controllers:
  GET /v1/modules                        the state of every module
  GET /v1/modules?watch=true             the same, and then what changes, one JSON document a line
  GET /v1/modules/UID/channels           the channels of a module that was Online, by uid or name;
                                         ?limit= (500, at most 1000) and ?continue= for the next page,
                                         410 when they were discovered anew since the first
  GET /metrics                           metrics, those of each module among them

Channels are discovered once a device is Online, whenever it comes back, and when its module's specification
changes: at most 10,000 of a module, within a minute, two modules at once.

Credentials of devices are files in --credentials-dir, named by the keys of the modules' specifications. A file
that changes is used by the next connection, and closes the connection that was made with what it held before.
` + probe.ApplicationKey + ` there, if it is, is the PEM certificate (its URI name is the application's) and RSA key by which
OPC UA servers know this probe; otherwise it makes one whenever it starts.`,
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
	o.AddFlags(cmd.Flags(), "the modules to supervise", "the modules")
	return cmd
}
