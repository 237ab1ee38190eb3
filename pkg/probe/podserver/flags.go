package podserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultCredentialsDir is where a pod mounts the Secret of the devices' credentials.
const DefaultCredentialsDir = "/etc/fieldplane/credentials"

// Flags are those that every program in a pod has.
type Flags struct {
	Config         string
	TLSDir         string
	Listen         string
	HealthListen   string
	Namespace      string
	CredentialsDir string
}

// AddFlags registers the flags. What the config file names, and whose namespace it is, ends the sentences "File that names …" and
// "Namespace of …".
func (f *Flags) AddFlags(flags *pflag.FlagSet, named, owner string) {
	flags.StringVar(&f.Config, "config", "", "File that names "+named+"; read again when it changes.")
	flags.StringVar(&f.TLSDir, "tls-dir", "", "Directory with ca.crt, tls.crt and tls.key; read again when they change.")
	flags.StringVar(&f.Listen, "listen", ":9443", "Address (host:port) of the API, over mutual TLS.")
	flags.StringVar(&f.HealthListen, "health-listen", ":9080", "Address (host:port) of /livez, /readyz and the /metrics that name nothing of the site, without TLS.")
	flags.StringVar(&f.Namespace, "namespace", "", "Namespace of "+owner+"; only peers of this namespace and the controllers are let in.")
	flags.StringVar(&f.CredentialsDir, "credentials-dir", DefaultCredentialsDir, "Directory with the devices' credentials (passwords, certificates), one file a key; read anew for every connection, and may be absent.")
}

// Validate returns everything that is wrong, each error naming its flag.
func (f *Flags) Validate() error {
	var errs []error
	for _, needed := range []struct{ flag, value, why string }{
		{"--config", f.Config, "name the config file"},
		{"--tls-dir", f.TLSDir, "name the directory with ca.crt, tls.crt and tls.key"},
		{"--namespace", f.Namespace, "name the namespace that the pod is in"},
	} {
		if needed.value == "" {
			errs = append(errs, fmt.Errorf("%s is missing: %s", needed.flag, needed.why))
		}
	}
	if f.Namespace != "" {
		if problems := validation.IsDNS1123Label(f.Namespace); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--namespace %q is no namespace: %s", f.Namespace, strings.Join(problems, "; ")))
		}
	}
	for _, address := range []struct{ flag, value string }{{"--listen", f.Listen}, {"--health-listen", f.HealthListen}} {
		_, port, err := net.SplitHostPort(address.value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q is not host:port: %w", address.flag, address.value, err))
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: the port is not a number from 0 to 65535", address.flag, address.value))
		}
	}
	return errors.Join(errs...)
}
