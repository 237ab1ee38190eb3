package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

const writeLong = `Write values to tags of a Unit that runs, in engineering units. Only tags whose access is Write or ReadWrite are written, and
each value is recorded in the Unit's status, with who wrote it and why, before it is sent.

They are sent once: when no answer comes, nobody knows whether the device took them, and the record is what tells.`

const writeExample = `  # One value
  kubectl fieldplane write mixer pump-3/speed=1450

  # Several, with the reason
  kubectl fieldplane write mixer pump-3/speed=0 valve-1/open=false --reason 'change of the gasket'`

const (
	// maxWrites and maxWriteValue are what a UnitTags takes.
	maxWrites     = 32
	maxWriteValue = 1024
	// writeTimeout bounds the request: a device may take several of its own timeouts.
	writeTimeout = 30 * time.Second
)

// writeTags is one run of write.
type writeTags struct {
	plugin
	target

	unit, reason string
	assignments  []string
}

func newWriteCommand(p plugin) *cobra.Command {
	const form = "write UNIT MODULE/TAG=VALUE..."
	command := &writeTags{plugin: p}
	cmd := &cobra.Command{
		Use:                   form,
		Short:                 "Write values to a Unit's tags",
		Long:                  writeLong + "\n\n" + exitCodes,
		Example:               writeExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return p.completeUnits(cmd, toComplete, func(unit *v1alpha1.Unit) bool { return unit.Status.State == v1alpha1.UnitRunning })
			}
			return p.completeTags(cmd, args[0], toComplete, "=", func(access v1alpha1.Access) bool {
				return access == v1alpha1.AccessWrite || access == v1alpha1.AccessReadWrite
			})
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if command.unit, err = parseUnit(form, args); err != nil {
				return err
			}
			command.assignments, command.reason = args[1:], strings.TrimSpace(command.reason)
			switch {
			case len(command.assignments) == 0:
				return told("what to write is not said", "Write: kubectl fieldplane "+form)
			case len(command.assignments) > maxWrites:
				return told(fmt.Sprintf("%d values are given, and at most %d are written at once", len(command.assignments), maxWrites), "Write them in several goes.")
			case len(command.reason) > maxReason:
				return told(fmt.Sprintf("--reason has %d bytes, and at most %d are possible", len(command.reason), maxReason), "Say it shorter.")
			}
			for _, assignment := range command.assignments {
				if _, err := parseAssignment(assignment, nil); err != nil {
					return err
				}
			}
			if command.target, err = p.connect(); err != nil {
				return err
			}
			ctx, cancel := p.interruptible(cmd.Context())
			defer cancel()
			return command.run(ctx)
		},
	}
	cmd.Flags().StringVar(&command.reason, "reason", "", "Why; recorded with each value")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return cmd
}

// parseAssignment reads MODULE/TAG=VALUE. The name of a tag may have an = in it: of those that the ControlModule declares,
// the one that fits is meant.
func parseAssignment(assignment string, declared []v1alpha1.Tag) (v1alpha1.TagWrite, error) {
	controlModule, rest, ok := strings.Cut(assignment, "/")
	name, value, assigned := strings.Cut(rest, "=")
	for _, tag := range declared {
		if after, fits := strings.CutPrefix(rest, tag.Name+"="); fits && (!slices.ContainsFunc(declared, func(t v1alpha1.Tag) bool { return t.Name == name }) || tag.Name == name) {
			name, value = tag.Name, after
		}
	}
	switch {
	case !ok || !assigned || controlModule == "" || name == "":
		return v1alpha1.TagWrite{}, told(fmt.Sprintf("%q is not MODULE/TAG=VALUE", assignment), "Name the ControlModule, its tag and the value, for example: pump-3/speed=1450")
	case len(value) > maxWriteValue:
		return v1alpha1.TagWrite{}, told(fmt.Sprintf("the value of %s/%s has %d bytes, and at most %d are possible", controlModule, name, len(value), maxWriteValue), "Write a shorter one.")
	}
	return v1alpha1.TagWrite{ControlModule: controlModule, Name: name, Value: value}, nil
}

func (w *writeTags) run(ctx context.Context) error {
	request := &v1alpha1.UnitTags{ObjectMeta: metav1.ObjectMeta{Name: w.unit, Namespace: w.namespace}, Reason: w.reason}
	for _, assignment := range w.assignments {
		write, err := w.parse(ctx, assignment)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(request.Writes, func(other v1alpha1.TagWrite) bool {
			return other.ControlModule == write.ControlModule && other.Name == write.Name
		}) {
			return told(fmt.Sprintf("%s/%s is given twice", write.ControlModule, write.Name), "Nothing was written. Give each tag once.")
		}
		request.Writes = append(request.Writes, write)
	}
	sending, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := w.client.PhysicalV1alpha1().Units(w.namespace).WriteTags(sending, w.unit, request, metav1.UpdateOptions{})
	switch {
	case err == nil:
		for _, write := range request.Writes {
			fmt.Fprintf(w.Out, "%s = %s\n", clean(tagName(write.ControlModule, write.Name)), clean(write.Value))
		}
		return nil
	case writtenOrNot(err):
		return unfinished("whether all values were written is not known: "+clean(err.Error()), w.seeRecords())
	case apierrors.IsConflict(err):
		// Some of several may have been written.
		return &failure{what: "the server refuses: " + clean(err.Error()), todo: w.seeRecords(), cause: err}
	default:
		return unitAttempt{to: "write the tags", namespace: w.namespace, unit: w.unit, verb: "update", subresource: "tags", role: unitOperatorRole}.explain(err)
	}
}

func (w *writeTags) seeRecords() string {
	return fmt.Sprintf("What became of each value is recorded: kubectl -n %s get unit %s -o jsonpath='{.status.writes}'", w.namespace, w.unit)
}

// writtenOrNot tells whether an error leaves open what was written. What the server itself says it cannot do it did not begin;
// what somebody on the way says of it tells nothing.
func writtenOrNot(err error) bool {
	if apierrors.IsServiceUnavailable(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	return outcomeUnknown(err)
}

// parse reads an assignment and, where it can be read in two ways, the ControlModule that tells which is meant.
func (w *writeTags) parse(ctx context.Context, assignment string) (v1alpha1.TagWrite, error) {
	write, err := parseAssignment(assignment, nil)
	if err != nil || strings.Count(assignment, "=") == 1 {
		return write, err
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	controlModule, err := w.client.PhysicalV1alpha1().ControlModules(w.namespace).Get(reading, write.ControlModule, metav1.GetOptions{})
	if err != nil {
		// The server says what is wrong with it, if anything is.
		return write, nil
	}
	return parseAssignment(assignment, controlModule.Spec.Tags)
}
