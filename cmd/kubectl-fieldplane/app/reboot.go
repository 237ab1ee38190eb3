package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const rebootLong = `Reboot a machine into the configuration that waits for it. A change that needs a reboot is never applied by itself: it
waits, with condition RebootRequired, until this command is given.

The reboot is asked for exactly the configuration that was shown; if another one waits meanwhile, nothing happens. It is
done when the cluster allows it: one machine at a time, and while the others are ready.`

const rebootExample = `  # See what waits, and reboot into it
  kubectl fieldplane reboot machine ` + exampleUUID + `

  # What that changes
  kubectl fieldplane config machine ` + exampleUUID + ` --diff`

// rebootTimeout is how long a machine may take to be back, its turn included.
const rebootTimeout = 20 * time.Minute

// reboot is one run of the command.
type reboot struct {
	plugin
	target

	machine   string
	yes, wait bool
	timeout   time.Duration
}

func newRebootCommand(p plugin) *cobra.Command {
	command := reboot{plugin: p}
	cmd := p.machineCommand(machineCommand{
		name: "reboot", short: "Reboot a machine into the configuration that waits for it", long: rebootLong, example: rebootExample,
		offers: rebootWaits,
		check: func() error {
			if command.timeout <= 0 {
				return told(fmt.Sprintf("--timeout %s is no time to wait", command.timeout), "Use a time such as 20m, and only with --wait.")
			}
			return nil
		},
		run: func(ctx context.Context, t target, machine string) error {
			command.target, command.machine = t, machine
			return command.run(ctx)
		},
	})
	cmd.Flags().BoolVarP(&command.yes, "yes", "y", false, "Do not ask for confirmation")
	cmd.Flags().BoolVar(&command.wait, "wait", false, "Wait until the machine runs the new configuration")
	cmd.Flags().DurationVar(&command.timeout, "timeout", rebootTimeout, "How long --wait waits")
	return cmd
}

func rebootWaits(machine *v1alpha1.TalosMachine) bool {
	update := machine.Status.Update
	return approved(machine) && update != nil && update.RebootRequired && update.Hash != ""
}

// rebootStands tells whether a reboot that was asked for is under way, or waits for its turn. One of which nothing came, or
// that is older than the approval or than the change, has to be asked for again.
func rebootStands(machine *v1alpha1.TalosMachine) bool {
	update, asked, given := machine.Status.Update, machine.Status.Reboot, machine.Status.Approval
	switch {
	case !approved(machine) || update == nil || asked == nil || asked.Hash != update.Hash || asked.RequestedAt == nil || asked.CompletedAt != nil:
		return false
	case update.IntendedAt != nil:
		return true
	case asked.IntendedAt != nil:
		return false
	}
	return !asked.RequestedAt.Before(update.Since) && (given == nil || !asked.RequestedAt.Before(&given.Time))
}

func (r reboot) run(ctx context.Context) error {
	shown, err := r.getMachine(ctx, r.machine)
	if err != nil {
		return err
	}
	review{machine: shown, now: r.clock.Now()}.printIdentity(r.Out)
	if err := r.refuse(shown); err != nil {
		return err
	}
	update, asked := shown.Status.Update, shown.Status.Reboot
	r.printWaiting(ctx, shown)
	if rebootStands(shown) {
		fmt.Fprintf(r.Out, "\nThe reboot was asked for by %s, %s ago; nothing to do.\n", orNone(asked.RequestedBy), age(r.clock.Now(), *asked.RequestedAt))
	} else {
		if !r.yes {
			if err := r.ask(question{text: "Reboot it into this configuration?", done: "rebooted", flag: "--yes"}); err != nil {
				return err
			}
		}
		// For what was shown, and for nothing else that may have come to wait since.
		request := &v1alpha1.RebootRequest{Spec: v1alpha1.RebootRequestSpec{Hash: update.Hash}}
		if _, err := r.client.TalosV1alpha1().TalosMachines(r.namespace).RequestReboot(ctx, r.machine, request, metav1.CreateOptions{}); err != nil {
			return attempt{
				to: "ask for the reboot", namespace: r.namespace, machine: r.machine, writes: true,
				needs: operatorRight("create", "talosmachines", "reboot"),
			}.explain(err)
		}
		fmt.Fprintf(r.Out, "The reboot of %s was asked for.\n", resourceName(r.machine))
	}
	if !r.wait {
		fmt.Fprintf(r.Out, "See how it goes on: kubectl -n %s get talosmachine %s --watch\n", r.namespace, r.machine)
		return nil
	}
	return r.follow(ctx, update.Hash)
}

func (r reboot) refuse(machine *v1alpha1.TalosMachine) error {
	const plain = "This command reboots a machine into a configuration that waits for it, and for no other reason."
	switch update := machine.Status.Update; {
	case machine.DeletionTimestamp != nil:
		return told("the machine is being deleted", "Nothing is sent to it any more.")
	case !approved(machine):
		return told("the machine is not approved: nothing is sent to it", fmt.Sprintf("See what it waits for: kubectl fieldplane -n %s pending", r.namespace))
	case update == nil:
		if found := meta.FindStatusCondition(machine.Status.Conditions, "UpToDate"); found != nil && found.Status == metav1.ConditionFalse {
			return told(fmt.Sprintf("no change waits for a reboot: %s: %s", clean(found.Reason), clean(found.Message)), plain)
		}
		return told("no change of the machine's configuration waits", plain)
	case !rebootWaits(machine) && !rebootStands(machine):
		return told("the change of the machine's configuration that is under way needs no reboot, as far as is known",
			plain+fmt.Sprintf(" See how it goes on: kubectl -n %s get talosmachine %s --watch", r.namespace, r.machine))
	default:
		return nil
	}
}

// printWaiting shows what the machine would be rebooted into, and what that interrupts.
func (r reboot) printWaiting(ctx context.Context, machine *v1alpha1.TalosMachine) {
	update := machine.Status.Update
	fmt.Fprint(r.Out, "\nWhat waits for a reboot:\n")
	table := printers.GetNewTabWriter(r.Out)
	fmt.Fprintf(table, "  Configuration:\t%s\n", orNone(update.Hash))
	if update.Since != nil {
		fmt.Fprintf(table, "  Waits:\tfor %s\n", age(r.clock.Now(), *update.Since))
	}
	if found := condition(machine, conditionRebootRequired); found != nil {
		fmt.Fprintf(table, "  Why:\t%s\n", orNone(found.Message))
	}
	fmt.Fprintf(table, "  What changes:\tkubectl fieldplane -n %s config machine %s --diff\n", r.namespace, r.machine)
	_ = table.Flush()

	if machine.Spec.Role == v1alpha1.RoleControlPlane {
		fmt.Fprint(r.Out, "\nWarning: it is a control plane: its etcd member and its Kubernetes API are away meanwhile.\n")
	} else {
		fmt.Fprint(r.Out, "\nWarning: what runs on it stops meanwhile; it is not drained.\n")
	}
	// Who may not read the cluster learns it from the machine, which then waits.
	cluster, err := r.client.TalosV1alpha1().TalosClusters(r.namespace).Get(ctx, machine.Spec.ClusterRef.Name, metav1.GetOptions{})
	if err == nil && cluster.Spec.Paused {
		fmt.Fprintf(r.Out, "Warning: TalosCluster %s is paused: it is not rebooted until spec.paused is cleared.\n", clean(cluster.Name))
	}
}

// follow waits until the machine is back with the configuration.
func (r reboot) follow(ctx context.Context, hash string) error {
	shown := &progress{out: r.ErrOut, draws: r.draws(), clock: r.clock}
	defer shown.end()
	started := r.clock.Now()
	for {
		machine, err := r.look(ctx)
		switch {
		// A server that restarts comes back, and the request is stored.
		case err != nil && outcomeUnknown(err):
			shown.show(0, 0, "the server does not answer; waiting for it")
		case err != nil:
			return attempt{to: "read the machine", namespace: r.namespace, machine: r.machine}.explain(err)
		default:
			done, text, err := r.progressOf(machine, hash)
			if err != nil {
				return err
			}
			if done {
				shown.end()
				fmt.Fprintf(r.Out, "%s runs the new configuration.\n", resourceName(r.machine))
				return nil
			}
			shown.show(0, 0, text)
		}
		if r.clock.Now().Sub(started) >= r.timeout {
			shown.end()
			if err != nil {
				return attempt{to: "see how the reboot goes on", namespace: r.namespace, machine: r.machine}.explain(err)
			}
			return told(fmt.Sprintf("the machine does not run the new configuration within %s", r.timeout),
				fmt.Sprintf("It goes on without this command. Its conditions say what is wrong: kubectl -n %s get talosmachine %s -o yaml", r.namespace, r.machine))
		}
		if err := r.pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

func (r reboot) look(ctx context.Context) (*v1alpha1.TalosMachine, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return r.client.TalosV1alpha1().TalosMachines(r.namespace).Get(ctx, r.machine, metav1.GetOptions{})
}

// progressOf tells how far the reboot is, or why it does not go on.
func (r reboot) progressOf(machine *v1alpha1.TalosMachine, hash string) (done bool, text string, err error) {
	asked, update := machine.Status.Reboot, machine.Status.Update
	again := "Run the same command again: it shows what waits now."
	switch {
	case asked != nil && asked.Hash == hash && asked.CompletedAt != nil:
		return true, "", nil
	case !approved(machine):
		return false, "", told("the machine is approved no more: nothing is sent to it", fmt.Sprintf("See what it waits for: kubectl fieldplane -n %s pending", r.namespace))
	case asked == nil || asked.Hash != hash:
		return false, "", told("the reboot is asked for no more: something else was decided of the machine meanwhile", again)
	case update == nil || update.Hash != hash:
		return false, "", told("the configuration that the reboot was asked for does not wait any more", again)
	case asked.IntendedAt != nil && update.IntendedAt != nil:
		return false, "rebooting", nil
	case !rebootStands(machine):
		return false, "", told("nothing came of the reboot"+why(machine), again)
	case update.IntendedAt != nil:
		return false, "sending the configuration", nil
	default:
		return false, "waiting for its turn" + why(machine), nil
	}
}

// why is what the machine says about the configuration that it does not run yet.
func why(machine *v1alpha1.TalosMachine) string {
	found := meta.FindStatusCondition(machine.Status.Conditions, conditionUpToDate)
	// That it has to be asked for stands there until somebody who acts on it has seen that it was.
	if found == nil || found.Status == metav1.ConditionTrue || found.Message == "" || found.Reason == conditionRebootRequired {
		return ""
	}
	return ": " + clean(found.Message)
}
