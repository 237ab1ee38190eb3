// Package app is the command line of fieldplane-apiserver: options, then a
// valid configuration, then a running server.
package app

import (
	"fmt"
	"os"
	"slices"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/pkg/etcd"
	"github.com/fieldplane/fieldplane/pkg/version"
)

// Options are everything that the command line and the environment say.
type Options struct {
	Recommended *genericoptions.RecommendedOptions
	ServerRun   *genericoptions.ServerRunOptions
	Logs        *logs.Options
	Components  compatibility.ComponentGlobalsRegistry

	// DataDir is where the embedded etcd keeps its data; unused with --etcd-servers.
	DataDir string
	// QuotaBytes bounds the embedded etcd.
	QuotaBytes int64
	// Namespace is the server's own namespace in the host cluster: its Secrets
	// and its Lease stand there, and nowhere else does it read Secrets (T-16).
	Namespace string
	// ServiceAccount is the name that the server has in its namespace.
	ServiceAccount string
	// ServiceName is the Service through which the aggregator reaches the server.
	ServiceName string
	// ProbeImage is the image of io-probe pods.
	ProbeImage string
	// RuntimeImage is the image of the pods of Units' runtimes.
	RuntimeImage string
	// Identity is this replica's name in the Lease.
	Identity string
}

// NewOptions returns the defaults.
func NewOptions(components compatibility.ComponentGlobalsRegistry) *Options {
	o := &Options{
		Recommended:    genericoptions.NewRecommendedOptions(apiserver.EtcdPrefix, nil),
		ServerRun:      genericoptions.NewServerRunOptionsForComponent(apiserver.ComponentName, components),
		Logs:           logs.NewOptions(),
		Components:     components,
		DataDir:        defaultDataDir,
		QuotaBytes:     etcd.DefaultQuotaBytes,
		Namespace:      os.Getenv("POD_NAMESPACE"),
		Identity:       os.Getenv("POD_NAME"),
		ServiceAccount: "fieldplane-apiserver",
		ServiceName:    "fieldplane-apiserver",
		ProbeImage:     "ghcr.io/fieldplane/io-probe:v" + version.Version,
		RuntimeImage:   "ghcr.io/fieldplane/unit-runtime:v" + version.Version,
	}
	if o.Identity == "" {
		o.Identity, _ = os.Hostname()
	}
	o.Recommended.SecureServing.BindPort = 8443
	// The certificate is made here and kept in a Secret; no file is written.
	o.Recommended.SecureServing.ServerCert.CertDirectory = ""
	o.Recommended.SecureServing.ServerCert.PairName = ""
	o.Recommended.Etcd.DefaultStorageMediaType = apiserver.StorageMediaType
	o.Recommended.Etcd.StorageConfig.Type = storagebackend.StorageTypeETCD3
	apiserver.RegisterAdmissionPlugins(o.Recommended.Admission.Plugins)
	o.Recommended.Admission.RecommendedPluginOrder = apiserver.AdmissionOrder()
	// Its /debug/pprof is the one handler that redirects, and no handler of an
	// aggregated server may; --profiling is for whoever looks for something.
	o.Recommended.Features.EnableProfiling = false
	// Without a bound a stop would wait a minute for the host's informers, which
	// watch us through the aggregator and never end by themselves.
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 10 * time.Second
	return o
}

// Flags returns all flags, by section.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	ours := sets.FlagSet("fieldplane")
	ours.StringVar(&o.DataDir, "data-dir", o.DataDir, "Directory of the embedded etcd, made with mode 0700. Unused with --etcd-servers.")
	ours.Int64Var(&o.QuotaBytes, "embedded-etcd-quota-bytes", o.QuotaBytes, "Size that the embedded etcd may reach; beyond it only deletes are accepted.")
	ours.StringVar(&o.Namespace, "namespace", o.Namespace, "The server's own namespace in the host cluster, where its Secrets and Lease are. Default: $POD_NAMESPACE.")
	ours.StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "Name of the server's ServiceAccount.")
	ours.StringVar(&o.ServiceName, "service-name", o.ServiceName, "Name of the Service through which the host cluster reaches the server.")
	ours.StringVar(&o.ProbeImage, "io-probe-image", o.ProbeImage, "Image of the io-probe pods.")
	ours.StringVar(&o.RuntimeImage, "unit-runtime-image", o.RuntimeImage, "Image of the pods of Units' runtimes.")
	ours.StringVar(&o.Identity, "leader-election-identity", o.Identity, "Name of this replica in the Lease. Default: $POD_NAME or the host name.")

	// Flags of the libraries: the recommended options hold most of them, and
	// these two are not among them.
	o.Recommended.AddFlags(sets.FlagSet("recommended"))
	o.ServerRun.AddUniversalFlags(sets.FlagSet("generic"))
	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	return sets
}

// EmbeddedEtcd says whether the server keeps its data itself.
func (o *Options) EmbeddedEtcd() bool {
	return len(o.Recommended.Etcd.StorageConfig.Transport.ServerList) == 0
}

// Complete fills in what follows from other options.
func (o *Options) Complete() {
	// One kubeconfig serves for all three, unless a flag says otherwise.
	kubeconfig := o.Recommended.CoreAPI.CoreAPIKubeconfigPath
	if o.Recommended.Authentication.RemoteKubeConfigFile == "" {
		o.Recommended.Authentication.RemoteKubeConfigFile = kubeconfig
	}
	if o.Recommended.Authorization.RemoteKubeConfigFile == "" {
		o.Recommended.Authorization.RemoteKubeConfigFile = kubeconfig
	}
}

// Validate returns everything that is wrong with the options, each naming its flag.
func (o *Options) Validate() error {
	var errs []error
	recommended := *o.Recommended
	if o.EmbeddedEtcd() {
		if o.DataDir == "" {
			errs = append(errs, fmt.Errorf("--data-dir must name a directory, or --etcd-servers an etcd cluster"))
		}
		if o.QuotaBytes < 64<<20 {
			errs = append(errs, fmt.Errorf("--embedded-etcd-quota-bytes is %d; it must be at least %d", o.QuotaBytes, 64<<20))
		}
		// The embedded server's address is not known yet, so its absence is no mistake.
		withServers := *o.Recommended.Etcd
		withServers.StorageConfig.Transport.ServerList = []string{"unix://embedded"}
		recommended.Etcd = &withServers
	}
	if o.Namespace == "" {
		errs = append(errs, fmt.Errorf("--namespace (or POD_NAMESPACE) must name the server's own namespace; secrets bundles are read there and nowhere else"))
	} else if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q is not a namespace's name: %v", o.Namespace, problems))
	}
	for _, name := range []struct{ flag, value, what string }{
		{"--service-name", o.ServiceName, "the Service through which the host cluster reaches the server"},
		{"--service-account", o.ServiceAccount, "the server's ServiceAccount"},
	} {
		if problems := validation.IsDNS1123Subdomain(name.value); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s %q must name %s: %v", name.flag, name.value, name.what, problems))
		}
	}
	if o.ProbeImage == "" {
		errs = append(errs, fmt.Errorf("--io-probe-image must name the image of the io-probe pods"))
	}
	if o.RuntimeImage == "" {
		errs = append(errs, fmt.Errorf("--unit-runtime-image must name the image of the pods of Units' runtimes"))
	}
	// Nobody can be elected without a name, and the server would run without its controllers.
	if !o.EmbeddedEtcd() && o.Identity == "" {
		errs = append(errs, fmt.Errorf("--leader-election-identity (or POD_NAME) must name this replica"))
	}
	if !slices.Contains([]string{apiserver.StorageMediaType, "application/json"}, o.Recommended.Etcd.DefaultStorageMediaType) {
		errs = append(errs, fmt.Errorf("--storage-media-type %q must be %s or application/json", o.Recommended.Etcd.DefaultStorageMediaType, apiserver.StorageMediaType))
	}
	for _, plugin := range o.Recommended.Admission.DisablePlugins {
		if slices.Contains(apiserver.OwnAdmissionPlugins(), plugin) {
			errs = append(errs, fmt.Errorf("--disable-admission-plugins must not name %s: it holds rules of our kinds that nothing else enforces", plugin))
		}
	}
	errs = append(errs, recommended.Validate()...)
	errs = append(errs, o.ServerRun.Validate()...)
	if err := logsapi.ValidateAndApply(o.Logs, nil); err != nil {
		errs = append(errs, err)
	}
	return utilerrors.NewAggregate(errs)
}
