// Package app is the kubectl plugin: it finds machines, and approves, rejects and reboots them; it sends commands to Units,
// and shows their tags and the whole plant. It decides nothing that the server does not decide again; what it adds is that
// nobody approves what he has not been shown, and that no lost answer makes one command two.
package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	utiluuid "k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/tagwatch"
	"github.com/fieldplane/fieldplane/pkg/version"
)

// target is what a command works on: the API and the namespace that kubectl's own flags select.
type target struct {
	client        versioned.Interface
	configuration configurationReader
	channels      channelsReader
	watchTags     tagsWatcher
	// secrets are those of the core API, for gen-secrets alone.
	secrets   corev1client.SecretsGetter
	namespace string
}

// plugin is what every command needs, all of it injected.
type plugin struct {
	genericiooptions.IOStreams
	clock clock.PassiveClock
	// connect is called once the arguments are found good.
	connect func() (target, error)
	// interactive tells whether somebody can answer a question.
	interactive func() bool
	// generate makes the secrets of a new cluster of a Talos version.
	generate func(talosVersion string) ([]byte, error)
	// draws tells whether ErrOut is a terminal, on which a line can be drawn over.
	draws func() bool
	// pause waits for a moment, or until the context ends.
	pause func(ctx context.Context, duration time.Duration) error
	// display is what Out is shown on.
	display func() display
	// interruptible returns a context that ends when the user interrupts the plugin, instead of the plugin ending at once.
	interruptible func(ctx context.Context) (context.Context, context.CancelFunc)
	// ticks sends at every interval, until it is stopped.
	ticks func(interval time.Duration) (ticks <-chan time.Time, stop func())
	// newID makes the id of a command.
	newID func() string
}

// Run runs the plugin and returns its exit code.
func Run(streams genericiooptions.IOStreams, args []string) int {
	config := genericclioptions.NewConfigFlags(true)
	cmd := newCommand(plugin{
		IOStreams:   streams,
		clock:       clock.RealClock{},
		connect:     func() (target, error) { return connect(config, streams.ErrOut) },
		interactive: func() bool { return isTerminal(streams.In) },
		generate:    render.GenerateBundle,
		draws:       func() bool { return isTerminal(streams.ErrOut) },
		pause:       pause,
		display:     func() display { return displayOf(streams.Out, os.Getenv) },
		interruptible: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		},
		ticks: func(interval time.Duration) (<-chan time.Time, func()) {
			ticker := time.NewTicker(interval)
			return ticker.C, ticker.Stop
		},
		newID: func() string { return string(utiluuid.NewUUID()) },
	})
	config.AddFlags(cmd.PersistentFlags())
	cmd.SetArgs(args)
	return execute(cmd, streams.ErrOut)
}

func execute(cmd *cobra.Command, errOut io.Writer) int {
	err := cmd.Execute()
	if err != nil {
		fmt.Fprintln(errOut, "error:", err)
	}
	return exitCode(err)
}

const exitCodes = "It exits with 0 when what was asked for is done; with 1 when it was refused, or could not be asked for, and nothing was\n" +
	"changed by it; and with 2 when it was sent and is not finished, or nobody knows what became of it."

func newCommand(p plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-fieldplane",
		Short: "Approve machines, command Units, and see how the plant stands",
		Long: "See how the plant stands; hold, restart, start and stop its Units, and watch and write their tags. Find machines in the\n" +
			"ranges that a TalosCluster declares, approve or reject them, see what they are configured with, and reboot them when a\n" +
			"change waits for it. A machine stays untouched until it is approved.\n\n" + exitCodes,
		Example: "  # The whole plant at a glance\n" +
			"  kubectl fieldplane status -A\n\n" +
			"  # Hold a Unit now\n" +
			"  kubectl fieldplane hold mixer\n\n" +
			"  # Its values as they change\n" +
			"  kubectl fieldplane tags mixer -w\n\n" +
			"  # Look for machines now\n" +
			"  kubectl fieldplane discover plant\n\n" +
			"  # What waits for approval, in every namespace\n" +
			"  kubectl fieldplane pending -A\n\n" +
			"  # Look at a machine and approve it as a worker\n" +
			"  kubectl fieldplane approve machine " + exampleUUID + " --role worker --install-disk /dev/sda",
		Version:       version.Version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fieldplane"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return told(fmt.Sprintf("unknown command %q", args[0]), "The commands are: "+strings.Join(commandNames(cmd), ", ")+". See "+cmd.CommandPath()+" --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// kubectl completes its plugins in a way of its own; a script for the binary's name would never be asked.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	cmd.SetIn(p.In)
	cmd.SetOut(p.Out)
	cmd.SetErr(p.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return told(err.Error(), "See "+cmd.CommandPath()+" --help")
	})
	cmd.AddCommand(
		newDiscoverCommand(p), newPendingCommand(p),
		newApproveCommand(p), newUnapproveCommand(p), newRejectCommand(p), newUnrejectCommand(p),
		newConfigCommand(p), newRebootCommand(p), newGenSecretsCommand(p),
		newChannelsCommand(p),
		newStatusCommand(p), newTagsCommand(p), newWriteCommand(p), newModeCommand(p),
	)
	cmd.AddCommand(newUnitCommands(p)...)
	return cmd
}

// commandNames lists the commands that a user may type.
func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, command := range cmd.Commands() {
		if command.IsAvailableCommand() {
			names = append(names, command.Name())
		}
	}
	return names
}

func connect(config *genericclioptions.ConfigFlags, errOut io.Writer) (target, error) {
	const check = "Check the cluster that kubectl is set to: kubectl config current-context"
	namespace, _, err := config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return target{}, told("cannot read the kubeconfig: "+err.Error(), check)
	}
	restConfig, err := config.ToRESTConfig()
	if err != nil {
		return target{}, told("cannot read the kubeconfig: "+err.Error(), check)
	}
	// Whoever follows a Unit reads it several times a second, which the client would slow down by itself.
	restConfig.QPS, restConfig.Burst = 50, 100
	restConfig.WarningHandler = rest.NewWarningWriter(errOut, rest.WarningWriterOptions{Deduplicate: true})
	client, err := versioned.NewForConfig(restConfig)
	if err != nil {
		return target{}, told("cannot use the kubeconfig: "+err.Error(), check)
	}
	core, err := corev1client.NewForConfig(restConfig)
	if err != nil {
		return target{}, told("cannot use the kubeconfig: "+err.Error(), check)
	}
	return target{
		client:        client,
		secrets:       core,
		configuration: newConfigurationReader(client.TalosV1alpha1().RESTClient()),
		channels:      newChannelsReader(client.PhysicalV1alpha1().RESTClient()),
		watchTags: func(ctx context.Context, namespace, unit string) (watch.Interface, error) {
			return tagwatch.WatchTags(ctx, client.PhysicalV1alpha1().RESTClient(), namespace, unit)
		},
		namespace: namespace,
	}, nil
}

func pause(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
