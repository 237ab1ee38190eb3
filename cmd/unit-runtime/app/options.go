// Package app is the unit-runtime program: options → validate → run.
package app

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
)

// Where a runtime's pod mounts what is mounted.
const (
	DefaultCredentialsDir = "/etc/fieldplane/credentials"
	DefaultStateFile      = "/var/lib/fieldplane/state.json"
)

// Options are the program's flags.
type Options struct {
	Config         string
	TLSDir         string
	Listen         string
	HealthListen   string
	Namespace      string
	CredentialsDir string
	StateFile      string
}

// AddFlags registers the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Config, "config", "", "File that names the Unit, its modules and its tags; read again when it changes.")
	flags.StringVar(&o.TLSDir, "tls-dir", "", "Directory with ca.crt, tls.crt and tls.key; read again when they change.")
	flags.StringVar(&o.Listen, "listen", ":9443", "Address (host:port) of the API, over mutual TLS.")
	flags.StringVar(&o.HealthListen, "health-listen", ":9080", "Address (host:port) of /livez, /readyz and /metrics, without TLS.")
	flags.StringVar(&o.Namespace, "namespace", "", "Namespace of the Unit; only peers of this namespace and the controllers are let in.")
	flags.StringVar(&o.CredentialsDir, "credentials-dir", DefaultCredentialsDir, "Directory with the devices' credentials (passwords, certificates), one file a key; read anew for every connection, and may be absent.")
	flags.StringVar(&o.StateFile, "state-file", DefaultStateFile, "File that keeps the last order and the runtime's own hold; it must outlive a kill of the program.")
}

// Validate returns everything that is wrong, each error naming its flag.
func (o *Options) Validate() error {
	var errs []error
	for _, f := range []struct{ flag, value, why string }{
		{"--config", o.Config, "name the config file"},
		{"--tls-dir", o.TLSDir, "name the directory with ca.crt, tls.crt and tls.key"},
		{"--namespace", o.Namespace, "name the namespace of the Unit"},
		{"--state-file", o.StateFile, "name a file that outlives a kill of the program"},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s is missing: %s", f.flag, f.why))
		}
	}
	if o.StateFile != "" && !filepath.IsAbs(o.StateFile) {
		errs = append(errs, fmt.Errorf("--state-file %q is no absolute path", o.StateFile))
	}
	if o.Namespace != "" {
		if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--namespace %q is no namespace: %s", o.Namespace, strings.Join(problems, "; ")))
		}
	}
	for _, f := range []struct{ flag, value string }{{"--listen", o.Listen}, {"--health-listen", o.HealthListen}} {
		_, port, err := net.SplitHostPort(f.value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q is not host:port: %w", f.flag, f.value, err))
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: the port is not a number from 0 to 65535", f.flag, f.value))
		}
	}
	return errors.Join(errs...)
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
