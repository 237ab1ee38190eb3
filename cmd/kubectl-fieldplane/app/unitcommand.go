package app

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

const (
	// commandTimeout is how long a command's answer, and then the end of what it began, is waited for.
	commandTimeout = 30 * time.Second
	// sendAgainFor is how long a command that sets a Unit going is sent again. What comes later would surprise.
	sendAgainFor = 10 * time.Second
	// postTimeout bounds a single try: the server answers within about 3 seconds.
	postTimeout = 5 * time.Second
	// followEvery is how often the Unit is read until it is where the command leads.
	followEvery = 250 * time.Millisecond
	// maxCommandID is what spec.id takes.
	maxCommandID = 128
)

// unitVerb is what the commands to a Unit differ in.
type unitVerb struct {
	command              v1alpha1.UnitCommandName
	short, long, example string
	// shows tells that the Unit is shown before: the command sets plant going, or forgets why it stood. None of them asks a
	// question, and the others are sent at once.
	shows bool
	// starts tells that it leads to Running, so that modules that are not Online refuse it, and --override passes over them.
	starts bool
}

func (v unitVerb) name() string { return strings.ToLower(string(v.command)) }

func unitVerbs() []unitVerb {
	return []unitVerb{
		{command: v1alpha1.CommandHold, short: "Hold a Unit now",
			long: `Hold a Unit: its tags get their holdValue, and nothing else is written to a device until somebody restarts it. It is sent
at once and asks nothing. It wins over a START, RESTART or RESUME that is under way.`,
			example: `  # Hold it
  kubectl fieldplane hold mixer

  # With the reason that the next one needs
  kubectl fieldplane hold mixer --reason 'leak at pump 3'`},
		{command: v1alpha1.CommandRestart, shows: true, starts: true, short: "Restart a Unit that is held",
			long: `Restart a Unit that is held. The server refuses it while a module that the Unit needs is not Online, or was not measured
since its controllers began: it says which. The Unit is shown before; nothing is asked.

--override passes over that. It needs the verb override on units/command and a reason; what is passed over is shown first,
and recorded in the Unit's status.`,
			example: `  # What held it is repaired
  kubectl fieldplane restart mixer --reason 'pump 3 is tight again'

  # Although a module that it needs is not Online
  kubectl fieldplane restart mixer --override --reason 'level-2 is out of order; level-1 measures the same'`},
		{command: v1alpha1.CommandStart, shows: true, starts: true, short: "Start a Unit that is idle",
			long: `Start a Unit. The server refuses it while a module that the Unit needs is not Online, or was not measured since its
controllers began: it says which. The Unit is shown before; nothing is asked.

--override passes over that. It needs the verb override on units/command and a reason; what is passed over is shown first,
and recorded in the Unit's status.`,
			example: `  # Start it
  kubectl fieldplane start mixer`},
		{command: v1alpha1.CommandStop, short: "Stop a Unit",
			long: `Stop a Unit: its tags get their holdValue, and nothing else is written to a device. It is sent at once and asks nothing.
A Unit that is stopped is reset, and then started anew.`,
			example: `  # Stop it
  kubectl fieldplane stop mixer`},
		{command: v1alpha1.CommandAbort, short: "Abort a Unit",
			long: `Abort a Unit: as stop, from every state in which the Unit does something, and before every other command. It is sent at once
and asks nothing. A Unit that is aborted is reset, and then started anew.`,
			example: `  # Abort it
  kubectl fieldplane abort mixer --reason 'overpressure'`},
		{command: v1alpha1.CommandReset, shows: true, short: "Reset a Unit that is complete, stopped or aborted",
			long: `Reset a Unit that is complete, stopped or aborted, so that it can be started anew. The Unit is shown before; nothing is
asked.`,
			example: `  # So that it can be started anew
  kubectl fieldplane reset mixer`},
		{command: v1alpha1.CommandPause, short: "Pause a Unit that runs",
			long: `Pause a Unit that runs. A pause writes nothing to a device; what makes the equipment safe is hold.`,
			example: `  # Pause it
  kubectl fieldplane pause mixer`},
		{command: v1alpha1.CommandResume, shows: true, starts: true, short: "Resume a Unit that is paused",
			long: `Resume a Unit that is paused. The server refuses it while a module that the Unit needs is not Online, or was not measured
since its controllers began: it says which. The Unit is shown before; nothing is asked.

--override passes over that. It needs the verb override on units/command and a reason; what is passed over is shown first,
and recorded in the Unit's status.`,
			example: `  # Go on
  kubectl fieldplane resume mixer`},
	}
}

const unitCommandLong = `

It waits until the server has carried the command out, and then until the Unit is where it leads. An answer that is lost is
asked for again under the same id, so that the command is carried out once.`

// unitCommand is one run of a command to a Unit.
type unitCommand struct {
	plugin
	target
	unitVerb

	unit     string
	reason   string
	id       string
	override bool
	noWait   bool
	timeout  time.Duration
	output   string

	// say is where what happens is told; an object that is asked for has Out for itself.
	say io.Writer
}

func newUnitCommands(p plugin) []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range unitVerbs() {
		command := &unitCommand{plugin: p, unitVerb: verb}
		cmd := &cobra.Command{
			Use:     verb.name() + " UNIT",
			Short:   verb.short,
			Long:    verb.long + unitCommandLong + "\n\n" + exitCodes,
			Example: verb.example,
			ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return p.completeUnits(cmd, toComplete, func(unit *v1alpha1.Unit) bool {
					_, allowed := isa88.Next(isa88.State(unit.Status.State), isa88.Command(verb.command))
					return allowed
				})
			},
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) > 1 {
					return told(fmt.Sprintf("%s takes one Unit at a time, and there are %d arguments", verb.name(), len(args)),
						"Write: kubectl fieldplane "+verb.name()+" UNIT")
				}
				var err error
				if command.unit, err = parseUnit(verb.name()+" UNIT", args); err != nil {
					return err
				}
				return command.start(cmd.Context())
			},
		}
		command.addFlags(cmd)
		commands = append(commands, cmd)
	}
	return commands
}

func newModeCommand(p plugin) *cobra.Command {
	const form = "mode UNIT automatic|manual"
	command := &unitCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   form,
		Short: "Say who decides what a Unit does: the control logic or the operator",
		Long: "Change the mode of a Unit: automatic follows the control logic, manual the operator. A mode changes nothing about which\n" +
			"commands are allowed, or what holds the Unit." + unitCommandLong + "\n\n" + exitCodes,
		Example: "  # The operator decides\n  kubectl fieldplane mode mixer manual --reason 'cleaning'",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return p.completeUnits(cmd, toComplete, func(*v1alpha1.Unit) bool { return true })
			case 1:
				return []cobra.Completion{"automatic", "manual"}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if command.unit, err = parseUnit(form, args); err != nil {
				return err
			}
			if len(args) != 2 {
				return told("which mode is not said", "Write: kubectl fieldplane "+form)
			}
			switch command.command = v1alpha1.UnitCommandName(strings.ToUpper(args[1])); command.command {
			case v1alpha1.CommandAutomatic, v1alpha1.CommandManual:
				return command.start(cmd.Context())
			}
			return told(fmt.Sprintf("there is no mode %q", args[1]), "Use automatic or manual.")
		},
	}
	command.addFlags(cmd)
	return cmd
}

func (c *unitCommand) addFlags(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&c.reason, "reason", "", "Why; recorded with the command, for whoever sees the Unit")
	if c.starts {
		cmd.Flags().BoolVar(&c.override, "override", false, "Pass over modules that are not Online or not measured yet, and a runtime that does not answer; needs --reason")
	}
	cmd.Flags().StringVar(&c.id, "id", "", "Id of the command: one that the server knows already is not carried out again. By default a new one")
	cmd.Flags().BoolVar(&c.noWait, "no-wait", false, "Do not wait until the Unit is where the command leads")
	cmd.Flags().DurationVar(&c.timeout, "timeout", commandTimeout, "How long to wait for an answer, and then for the Unit")
	cmd.Flags().StringVarP(&c.output, "output", "o", "", "json, yaml or name")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("id", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
}

// start checks what can be known without the server, and runs the command.
func (c *unitCommand) start(ctx context.Context) error {
	switch c.reason = strings.TrimSpace(c.reason); {
	case c.override && c.reason == "":
		return told("--override needs --reason: it is recorded why modules were passed over", "Add --reason with what makes it safe.")
	case len(c.reason) > maxReason:
		return told(fmt.Sprintf("--reason has %d bytes, and at most %d are possible", len(c.reason), maxReason), "Say it shorter.")
	case len(c.id) > maxCommandID:
		return told(fmt.Sprintf("--id has %d bytes, and at most %d are possible", len(c.id), maxCommandID), "Use a shorter one.")
	case c.timeout <= 0:
		return told(fmt.Sprintf("--timeout %s is no time to wait", c.timeout), "Use a time such as 30s, or --no-wait.")
	}
	switch c.output {
	case "":
		c.say = c.Out
	case "json", "yaml", "name":
		c.say = c.ErrOut
	default:
		return told(fmt.Sprintf("-o %s is not possible", c.output), "Use -o json, yaml or name.")
	}
	// Once, whatever happens: a command that is sent again is the same command.
	if c.id == "" {
		c.id = c.newID()
	}
	var err error
	if c.target, err = c.connect(); err != nil {
		return err
	}
	ctx, cancel := c.interruptible(ctx)
	defer cancel()
	return c.run(ctx)
}

func (c *unitCommand) run(ctx context.Context) error {
	if c.shows {
		if err := c.show(ctx); err != nil {
			return err
		}
	}
	if c.override {
		c.warn(ctx)
	}
	answer, err := c.send(ctx)
	if err != nil {
		return err
	}
	if err := c.follow(ctx, answer); err != nil {
		return err
	}
	switch c.output {
	case "json":
		return (&printers.JSONPrinter{}).PrintObj(answer, c.Out)
	case "yaml":
		return (&printers.YAMLPrinter{}).PrintObj(answer, c.Out)
	case "name":
		fmt.Fprintln(c.Out, unitResource(c.unit))
	}
	return nil
}

func (c *unitCommand) attempt() unitAttempt {
	return unitAttempt{
		to: "send " + string(c.command), namespace: c.namespace, unit: c.unit, verb: "create", subresource: "command",
		role: unitOperatorRole, override: c.override,
	}
}

// send posts the command until the server has said what became of it.
func (c *unitCommand) send(ctx context.Context) (*v1alpha1.UnitCommand, error) {
	started, again := c.clock.Now(), c.timeout
	if c.starts {
		again = min(again, sendAgainFor)
	}
	toldOf := ""
	// Whoever stands at a terminal sees at once that something happens.
	shown := &progress{out: c.ErrOut, draws: true, clock: c.clock}
	defer shown.end()
	for {
		if c.draws() {
			shown.show(0, 0, "sending "+string(c.command))
		}
		answer, err := c.post(ctx, c.clock.Now().Sub(started) < again)
		switch {
		case err == nil && answer != nil:
			return answer, nil
		case err != nil && !lost(err):
			return nil, c.attempt().explain(err)
		}
		switch elapsed := c.clock.Now().Sub(started); {
		case ctx.Err() != nil:
			return nil, c.notKnown("it was interrupted", err)
		case elapsed >= c.timeout && err == nil:
			return nil, c.notKnown(fmt.Sprintf("the Unit has no record of it after %s, so that it most likely never reached the server", c.timeout), nil)
		case elapsed >= c.timeout:
			return nil, c.notKnown(fmt.Sprintf("nothing was heard of it within %s", c.timeout), err)
		}
		if err != nil && err.Error() != toldOf {
			toldOf = err.Error()
			shown.end()
			fmt.Fprintf(c.ErrOut, "No answer yet (%s); asking again under the same id, so that it is carried out once.\n", clean(toldOf))
		}
		// The interruption is seen above, at the next turn.
		_ = c.pause(ctx, lookEvery)
	}
}

// post sends the command or, when it is too late for that, looks whether a former try was stored: then it returns nil if not.
func (c *unitCommand) post(ctx context.Context, send bool) (*v1alpha1.UnitCommand, error) {
	if !send {
		unit, err := c.lookAtUnit(ctx, c.unit)
		if err != nil {
			return nil, err
		}
		if record := findRecord(unit, c.id); record != nil {
			return c.answer(record, unit), nil
		}
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	answer, err := c.client.PhysicalV1alpha1().Units(c.namespace).Command(ctx, c.unit, &v1alpha1.UnitCommand{
		ObjectMeta: metav1.ObjectMeta{Name: c.unit, Namespace: c.namespace},
		Spec:       v1alpha1.UnitCommandSpec{ID: c.id, Command: c.command, Reason: c.reason, Override: c.override},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	answer.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("UnitCommand"))
	return answer, nil
}

// answer is what the server would have answered, made from what it stored.
func (c *unitCommand) answer(record *v1alpha1.UnitCommandRecord, unit *v1alpha1.Unit) *v1alpha1.UnitCommand {
	answer := &v1alpha1.UnitCommand{
		ObjectMeta: metav1.ObjectMeta{Name: c.unit, Namespace: c.namespace},
		Spec:       v1alpha1.UnitCommandSpec{ID: c.id, Command: c.command, Reason: c.reason, Override: c.override},
		Status:     v1alpha1.UnitCommandStatus{Record: record, State: unit.Status.State},
	}
	answer.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("UnitCommand"))
	return answer
}

func (c *unitCommand) notKnown(why string, err error) error {
	if err != nil {
		why += ": " + clean(err.Error())
	}
	return unfinished(fmt.Sprintf("whether %s was carried out is not known: %s", c.command, why),
		fmt.Sprintf("Look: kubectl -n %s get unit %s -o yaml. To ask again without sending it twice: add --id %s", c.namespace, c.unit, c.id))
}

// findRecord returns what the Unit remembers of a command; nil if it does not.
func findRecord(unit *v1alpha1.Unit, id string) *v1alpha1.UnitCommandRecord {
	if last := unit.Status.LastCommand; last != nil && last.ID == id {
		return last
	}
	for i := range unit.Status.RecentCommands {
		if unit.Status.RecentCommands[i].ID == id {
			return &unit.Status.RecentCommands[i]
		}
	}
	return nil
}
