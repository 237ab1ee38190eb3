package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const rejectLong = `Reject a machine: it stays visible with the reason, and nobody can approve it until that is taken back with unreject.

An approved machine is not rejected: unapprove it first. The rejection is written against the machine as it is shown; if
it changes meanwhile, nothing is written.`

const rejectExample = `  # A machine that must not join
  kubectl fieldplane reject machine ` + exampleUUID + ` --reason 'returned to the supplier'

  # See what was rejected, and why
  kubectl fieldplane pending --all`

const unrejectLong = `Take a rejection back: the machine waits for approval again, untouched as before.`

const unrejectExample = `  # The machine may be approved after all
  kubectl fieldplane unreject machine ` + exampleUUID

// maxReason is what spec.rejected.reason takes.
const maxReason = 1024

// rejection is one run of reject or unreject.
type rejection struct {
	plugin
	target

	machine string
	// reason is empty when the rejection is taken back.
	reason string
}

func newRejectCommand(p plugin) *cobra.Command {
	reason := ""
	cmd := p.machineCommand(machineCommand{
		name: "reject", usage: "--reason TEXT", short: "Reject a machine, visibly and until it is taken back", long: rejectLong, example: rejectExample,
		offers: func(machine *v1alpha1.TalosMachine) bool { return !approved(machine) && machine.Spec.Rejected == nil },
		check: func() error {
			switch reason = strings.TrimSpace(reason); {
			case reason == "":
				return told("the reason is not said", "Add --reason with what the next one who sees the machine has to know.")
			case len(reason) > maxReason:
				return told(fmt.Sprintf("--reason has %d bytes, and at most %d are possible", len(reason), maxReason), "Say it shorter.")
			}
			return nil
		},
		run: func(ctx context.Context, t target, machine string) error {
			return rejection{plugin: p, target: t, machine: machine, reason: reason}.run(ctx)
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "Why the machine must not be approved; everybody who may see the machine sees it")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return cmd
}

func newUnrejectCommand(p plugin) *cobra.Command {
	return p.machineCommand(machineCommand{
		name: "unreject", short: "Take a rejection back", long: unrejectLong, example: unrejectExample,
		offers: func(machine *v1alpha1.TalosMachine) bool { return machine.Spec.Rejected != nil },
		run: func(ctx context.Context, t target, machine string) error {
			return rejection{plugin: p, target: t, machine: machine}.run(ctx)
		},
	})
}

func (r rejection) run(ctx context.Context) error {
	shown, err := r.getMachine(ctx, r.machine)
	if err != nil {
		return err
	}
	review{machine: shown, now: r.clock.Now()}.printIdentity(r.Out)

	wanted := shown.DeepCopy()
	done, to := "rejected", "reject the machine"
	if r.reason != "" {
		wanted.Spec.Rejected = &v1alpha1.MachineRejection{Reason: r.reason}
	} else {
		wanted.Spec.Rejected = nil
		done, to = "is rejected no more: it waits for approval", "take the rejection back"
	}
	switch {
	case r.reason == "" && shown.Spec.Rejected == nil:
		fmt.Fprintf(r.Out, "\n%s is not rejected; nothing to do.\n", resourceName(r.machine))
		return nil
	case r.reason != "" && approved(shown):
		return told("the machine is approved, and only what waits can be rejected",
			fmt.Sprintf("Take the approval back first: kubectl fieldplane -n %s unapprove machine %s", r.namespace, r.machine))
	case r.reason != "" && shown.Spec.Rejected != nil && shown.Spec.Rejected.Reason == r.reason:
		fmt.Fprintf(r.Out, "\n%s is already rejected for this reason; nothing to do.\n", resourceName(r.machine))
		return nil
	}
	// wanted carries the resourceVersion of what was shown (T-13).
	if _, err := r.updateApproval(ctx, to, wanted, metav1.UpdateOptions{}); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "\n%s %s\n", resourceName(r.machine), done)
	return nil
}
