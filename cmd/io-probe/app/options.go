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
)

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
	flags.StringVar(&o.Listen, "listen", ":9443", "Address (host:port) of the API, over mutual TLS.")
	flags.StringVar(&o.HealthListen, "health-listen", ":9080", "Address (host:port) of /livez, /readyz and /metrics, without TLS.")
	flags.StringVar(&o.Namespace, "namespace", "", "Namespace whose modules are supervised; only peers of this namespace and the controllers are let in.")
	flags.StringVar(&o.CredentialsDir, "credentials-dir", "", "Directory with the devices' credentials, one file a key; may be absent. Modbus needs none.")
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
		Use:           "io-probe",
		Short:         "Supervise the connectivity of field devices and tell it over mutual TLS",
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
