package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/pkg/etcd"
	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/channels"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/tags"
)

const (
	// hostPatience is how long a start waits for the host cluster to answer.
	hostPatience = time.Minute
	// storePatience bounds the start and the stop of the embedded etcd.
	storePatience = 30 * time.Second
)

// NewCommand returns the command line. The server runs until the context ends.
func NewCommand(ctx context.Context) *cobra.Command {
	components, componentsErr := apiserver.NewComponentGlobals()
	options := &Options{}
	if componentsErr == nil {
		options = NewOptions(components)
	}
	command := &cobra.Command{
		Use:           "fieldplane-apiserver",
		Short:         "Serve the physical and talos groups behind a cluster's kube-apiserver, and run their controllers",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: false,
		RunE: func(command *cobra.Command, _ []string) error {
			if componentsErr != nil {
				return componentsErr
			}
			if err := components.Set(); err != nil {
				return fmt.Errorf("--feature-gates, --emulated-version or --min-compatibility-version: %w", err)
			}
			// Which gates are on is then told at /metrics.
			components.AddMetrics()
			utilfeature.DefaultMutableFeatureGate.AddMetrics()
			options.Complete()
			if err := options.Validate(); err != nil {
				return err
			}
			return Run(command.Context(), options)
		},
	}
	command.SetContext(ctx)
	command.AddCommand(newSnapshotCommand(clock.RealClock{}))
	if componentsErr == nil {
		for _, set := range options.Flags().FlagSets {
			command.Flags().AddFlagSet(set)
		}
	}
	return command
}

// Run runs the server until the context ends, then stops it in order: readiness
// fails, controllers stop, requests drain, and the store closes last.
func Run(asked context.Context, options *Options) (err error) {
	ctx, cancel := context.WithCancelCause(asked)
	defer cancel(nil)
	clock := clock.RealClock{}
	tuneMemory(os.Getenv)

	// First the store: its lock keeps a second server from doing anything at all
	// to the first one's data or certificate.
	var storeHealth func() error
	if options.EmbeddedEtcd() {
		startCtx, started := context.WithTimeout(ctx, storePatience)
		store, startErr := etcd.Start(startCtx, etcd.Options{DataDir: options.DataDir, QuotaBytes: options.QuotaBytes})
		started()
		if startErr != nil {
			return why(asked, ctx, fmt.Errorf("embedded etcd: %w", startErr))
		}
		defer func() {
			// The context of the server has ended by now; the store needs one of its own.
			stopCtx, stopped := context.WithTimeout(context.Background(), storePatience)
			defer stopped()
			err = errors.Join(err, store.Close(stopCtx))
			klog.InfoS("Embedded etcd closed")
		}()
		go func() {
			select {
			case storeErr := <-store.Err():
				if storeErr == nil {
					storeErr = errors.New("it stopped by itself")
				}
				cancel(fmt.Errorf("embedded etcd: %w", storeErr))
			case <-ctx.Done():
			}
		}()
		options.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{store.Endpoint()}
		storeHealth = store.Check
	}
	defer func() { err = why(asked, ctx, err) }()

	host, err := hostConfig(options.Recommended.CoreAPI.CoreAPIKubeconfigPath)
	if err != nil {
		return err
	}
	hostClient, err := kubernetes.NewForConfig(host)
	if err != nil {
		return fmt.Errorf("client for the host cluster: %w", err)
	}
	credentials, err := credentials(ctx, hostClient, clock, options)
	if err != nil {
		return err
	}
	serving, err := pki.NewServingCertificate(credentials.Serving)
	if err != nil {
		return err
	}

	controllers := authority.NewControllerClient(credentials.Authority, clock)
	server, err := apiserver.New(apiserver.Settings{
		Recommended:        options.Recommended,
		ServerRun:          options.ServerRun,
		Components:         options.Components,
		Flags:              options.Flags(),
		Host:               host,
		Serving:            serving,
		ServiceAccountUser: "system:serviceaccount:" + options.Namespace + ":" + options.ServiceAccount,
		Namespace:          options.Namespace,
		Probes:             channels.AskProbes(controllers, apiserver.DialProbe, clock),
		Runtimes:           tags.DialRuntimes(controllers, apiserver.DialProbe, clock),
		DialMachine:        machine.Dial,
		StoreHealth:        storeHealth,
		Clock:              clock,
	})
	if err != nil {
		return err
	}
	apiServices, err := aggregator.NewForConfig(host)
	if err != nil {
		return fmt.Errorf("client for APIServices: %w", err)
	}
	if err := server.AddPublisher(apiServices.ApiregistrationV1().APIServices(), credentials.Authority.TrustPEM, clock); err != nil {
		return err
	}
	if err := keepCertificates(server, &pki.Keeper{
		Secrets: hostClient.CoreV1().Secrets(options.Namespace), Names: pki.ServingNames(options.ServiceName, options.Namespace),
		Clock: clock, Credentials: credentials, Serving: serving,
	}); err != nil {
		return err
	}
	marks, closeMarks, err := restoreMarks(options)
	if err != nil {
		return err
	}
	defer closeMarks()
	if err := server.AddControllers(apiserver.ControllerSettings{
		Authority:  credentials.Authority,
		Namespace:  options.Namespace,
		ProbeImage: options.ProbeImage, RuntimeImage: options.RuntimeImage,
		// The lock on the data directory already keeps everybody else out.
		Elect:    !embedded(storeHealth),
		Identity: options.Identity,
		Restored: marks,
		Clock:    clock,
	}); err != nil {
		return err
	}

	// Nobody is served before it can be told who they are.
	if err := server.LearnAuthorities(ctx); err != nil {
		return err
	}
	if err := server.Generic.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// why is the reason for the end of a run with this error. A start that ended because a stop was asked for has not failed; one
// that ended because the store did fails for the store's reason.
func why(asked, ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil || !errors.Is(err, context.Canceled) || cause == nil:
		return err
	case asked.Err() != nil:
		klog.InfoS("Stopped during the start", "step", err.Error())
		return nil
	default:
		return cause
	}
}

func embedded(storeHealth func() error) bool { return storeHealth != nil }

// hostConfig says how the host cluster is reached: by the kubeconfig, or from
// within a pod. The client's default of 5 requests a second would be the
// server's own limit.
func hostConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("host cluster: --kubeconfig %q: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 200, 400
	return config, nil
}

// credentials reads or makes the CA and the serving certificate. A host cluster
// that does not answer yet is waited for.
func credentials(ctx context.Context, client kubernetes.Interface, clock clock.PassiveClock, options *Options) (*pki.Credentials, error) {
	names := pki.ServingNames(options.ServiceName, options.Namespace)
	var credentials *pki.Credentials
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, hostPatience, true, func(ctx context.Context) (bool, error) {
		credentials, last = pki.EnsureServing(ctx, client.CoreV1().Secrets(options.Namespace), clock, names...)
		if last != nil {
			klog.ErrorS(last, "Waiting for the serving certificate", "namespace", options.Namespace)
		}
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", errors.Join(last, err))
	}
	return credentials, nil
}
