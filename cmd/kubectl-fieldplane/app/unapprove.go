package app

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const unapproveLong = `Take an approval back: from then on nothing is sent to the machine that was not sent yet.

What it was sent before it keeps: a running node keeps running, in its cluster and with its secrets. Only an un-approved
machine can be rejected, and only its TalosMachine can be deleted. It can be approved again.`

const unapproveExample = `  # Stop before the configuration is sent
  kubectl fieldplane unapprove machine ` + exampleUUID

// unapprove is one run of the command.
type unapprove struct {
	plugin
	target

	machine string
	yes     bool
}

func newUnapproveCommand(p plugin) *cobra.Command {
	yes := false
	cmd := p.machineCommand(machineCommand{
		name: "unapprove", short: "Take the approval of a machine back", long: unapproveLong, example: unapproveExample,
		offers: approved,
		run: func(ctx context.Context, t target, machine string) error {
			return unapprove{plugin: p, target: t, machine: machine, yes: yes}.run(ctx)
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask for confirmation")
	return cmd
}

func (u unapprove) run(ctx context.Context) error {
	shown, err := u.getMachine(ctx, u.machine)
	if err != nil {
		return err
	}
	review{machine: shown, now: u.clock.Now()}.printIdentity(u.Out)
	if !approved(shown) {
		fmt.Fprintf(u.Out, "\n%s is not approved; nothing to do.\n", resourceName(u.machine))
		return nil
	}
	printConsequences(u.Out, shown)
	if !u.yes {
		if err := u.ask(question{text: "Take the approval back?", done: "taken back", flag: "--yes"}); err != nil {
			return err
		}
	}
	wanted := shown.DeepCopy()
	wanted.Spec.Approved = ptr.To(false)
	// wanted carries the resourceVersion of what was shown (T-13).
	if _, err := u.updateApproval(ctx, "take the approval back", wanted, metav1.UpdateOptions{}); err != nil {
		return err
	}
	fmt.Fprintf(u.Out, "%s is approved no more\n", resourceName(u.machine))
	return nil
}

// printConsequences says what taking the approval back stops, and what it does not.
func printConsequences(out io.Writer, machine *v1alpha1.TalosMachine) {
	sent := machine.Status.Configuration
	switch {
	case configured(machine):
		fmt.Fprint(out, "\nIt stops: changes of its configuration, a reboot that waits, and the watching of the node.\n")
		node := "It"
		if machine.Status.NodeName != "" {
			node = "Node " + clean(machine.Status.NodeName)
		}
		fmt.Fprintf(out, "It does not stop the machine. %s keeps running, in the cluster and with the cluster's secrets, until it is drained and wiped.\n", node)
	case sent != nil && sent.IntendedAt != nil:
		fmt.Fprint(out, "\nIt stops: a further attempt to send the configuration.\n"+
			"It does not call one back: its sending had begun, and the machine may have it, may install it and may join the cluster.\n")
	default:
		fmt.Fprint(out, "\nIt stops: the configuration, none of which has been sent. The machine stays untouched, and waits for approval.\n")
	}
}
