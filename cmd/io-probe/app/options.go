// Package app is the io-probe program: options → validate → run.
package app

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/pkg/probe"
)

// DefaultCredentialsDir is where a probe's pod mounts the Secret of the devices' credentials.
const DefaultCredentialsDir = "/etc/fieldplane/credentials"

// Options are the program's flags.
type Options struct {
	Config         string
	TLSDir         string
	Listen         string
	HealthListen   string
	Namespace      string
	CredentialsDir string
}

// AddFlags registers the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Config, "config", "", "File that names the modules to supervise; read again when it changes.")
	flags.StringVar(&o.TLSDir, "tls-dir", "", "Directory with ca.crt, tls.crt and tls.key; read again when they change.")
	flags.StringVar(&o.Listen, "listen", ":9443", "Address (host:port) of the API and of the modules' metrics, over mutual TLS.")
	flags.StringVar(&o.HealthListen, "health-listen", ":9080", "Address (host:port) of /livez, /readyz and the /metrics that name no module, without TLS.")
	flags.StringVar(&o.Namespace, "namespace", "", "Namespace whose modules are supervised; only peers of this namespace and the controllers are let in.")
	flags.StringVar(&o.CredentialsDir, "credentials-dir", DefaultCredentialsDir, "Directory with the devices' credentials (passwords, certificates), one file a key; read anew for every connection, and may be absent.")
}

// Validate returns everything that is wrong, each error naming its flag.
func (o *Options) Validate() error {
	var errs []error
	for _, f := range []struct{ flag, value, why string }{
		{"--config", o.Config, "name the config file"},
		{"--tls-dir", o.TLSDir, "name the directory with ca.crt, tls.crt and tls.key"},
		{"--namespace", o.Namespace, "name the namespace of the modules"},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s is missing: %s", f.flag, f.why))
		}
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
	o.AddFlags(cmd.Flags())
	return cmd
}
