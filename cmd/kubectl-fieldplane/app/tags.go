package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

const tagsLong = `Show the tags of a Unit: their values in engineering units, how far each may be trusted, and how old it is. Only those of a
ControlModule, or only single ones, are shown when they are named.

Quality is OPC UA's: Good; Uncertain, when the value is older than three periods or the device doubts it; Bad, when it is of
no use now, and what is shown is the last one that there was. Status says why in OPC UA's words, -o wide also in a sentence.

With -w the values are shown as they change. On a terminal the table is drawn over, what does not fit is counted, and when
the stream is lost that is said, no value looks current any more, and it is taken up again. Elsewhere every change of a value
or a quality is a line, with the time at which it came. Ctrl-C ends it.`

const tagsExample = `  # All values
  kubectl fieldplane tags mixer

  # As they change
  kubectl fieldplane tags mixer -w

  # Those of one ControlModule, with where they come from and what is wrong
  kubectl fieldplane tags mixer pump-3 -o wide

  # The names, as write takes them
  kubectl fieldplane tags mixer -o name`

// tagsWatcher opens the stream of a Unit's tags.
type tagsWatcher func(ctx context.Context, namespace, unit string) (watch.Interface, error)

// tagsCommand is one run of tags.
type tagsCommand struct {
	plugin
	target

	unit string
	// only are the ControlModules and tags that were named; none is all.
	only      []v1alpha1.TagReference
	watching  bool
	output    string
	noHeaders bool
}

func newTagsCommand(p plugin) *cobra.Command {
	const form = "tags UNIT [MODULE[/TAG]...]"
	outputs := []string{"wide", "json", "yaml", "name"}
	command := &tagsCommand{plugin: p}
	cmd := &cobra.Command{
		Use:                   form,
		Short:                 "Show the values of a Unit's tags, once or as they change",
		Long:                  tagsLong,
		Example:               tagsExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return p.completeUnits(cmd, toComplete, func(*v1alpha1.Unit) bool { return true })
			}
			return p.completeTags(cmd, args[0], toComplete, "", func(v1alpha1.Access) bool { return true })
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if command.unit, err = parseUnit(form, args); err != nil {
				return err
			}
			for _, arg := range args[1:] {
				controlModule, tag, _ := strings.Cut(arg, "/")
				command.only = append(command.only, v1alpha1.TagReference{ControlModule: controlModule, Name: tag})
			}
			switch {
			case command.output != "" && !slices.Contains(outputs, command.output):
				return told(fmt.Sprintf("-o %s is not possible", command.output), "Use -o wide, json, yaml or name.")
			case command.output == "name" && command.watching:
				return told("-o name is not possible with -w: names do not change with the values", "Leave one of them out.")
			}
			if command.target, err = p.connect(); err != nil {
				return err
			}
			ctx, cancel := p.interruptible(cmd.Context())
			defer cancel()
			if command.watching {
				return command.watch(ctx)
			}
			return command.show(ctx)
		},
	}
	cmd.Flags().BoolVarP(&command.watching, "watch", "w", false, "Show the values as they change, until it is ended with Ctrl-C")
	cmd.Flags().StringVarP(&command.output, "output", "o", "", "wide, json, yaml or name")
	cmd.Flags().BoolVar(&command.noHeaders, "no-headers", false, "Leave out the headers")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *tagsCommand) attempt(verb string) unitAttempt {
	return unitAttempt{to: "read the tags", namespace: c.namespace, unit: c.unit, verb: verb, subresource: "tags", role: viewRole}
}

// shows tells whether a tag is one of those that were asked for.
func (c *tagsCommand) shows(controlModule, tag string) bool {
	return len(c.only) == 0 || slices.ContainsFunc(c.only, func(only v1alpha1.TagReference) bool {
		return only.ControlModule == controlModule && (only.Name == "" || only.Name == tag)
	})
}

// show shows the values once.
func (c *tagsCommand) show(ctx context.Context) error {
	tags, err := c.client.PhysicalV1alpha1().Units(c.namespace).GetTags(ctx, c.unit, metav1.GetOptions{})
	if err != nil {
		return c.attempt("get").explain(err)
	}
	missing := c.missing(tags.Items)
	tags.Items = slices.DeleteFunc(tags.Items, func(tag v1alpha1.TagValue) bool { return !c.shows(tag.ControlModule, tag.Name) })
	switch c.output {
	case "json", "yaml":
		if err := c.printObject(tags); err != nil {
			return err
		}
		return missing
	case "name":
		for _, tag := range tags.Items {
			fmt.Fprintln(c.Out, clean(tagName(tag.ControlModule, tag.Name)))
		}
		return missing
	}
	if len(tags.Items) == 0 {
		if missing == nil {
			c.explainEmpty()
		}
		return missing
	}
	to := c.display()
	table := tagGrid(tags.Items, c.clock.Now(), c.output == "wide", true)
	for _, line := range table.lines(c.noHeaders) {
		fmt.Fprintln(c.Out, line.render(0, to.colours))
	}
	return missing
}

// explainEmpty says why there is nothing to show. What is watched may still come.
func (c *tagsCommand) explainEmpty() {
	if len(c.only) > 0 {
		fmt.Fprintf(c.ErrOut, "Unit %s has no such tag now. See which it has: kubectl fieldplane -n %s tags %s -o name\n", c.unit, c.namespace, c.unit)
		return
	}
	fmt.Fprintf(c.ErrOut, "Unit %s has no tags: no ControlModule whose unitRef names it declares any.\n", c.unit)
}

// missing is the failure to show what was named and is not there; nil if all is. A name with a typo must not look like a tag
// without a value to whoever reads the output with a program.
func (c *tagsCommand) missing(tags []v1alpha1.TagValue) error {
	var names []string
	for _, only := range c.only {
		if slices.ContainsFunc(tags, func(tag v1alpha1.TagValue) bool {
			return only.ControlModule == tag.ControlModule && (only.Name == "" || only.Name == tag.Name)
		}) {
			continue
		}
		name := only.ControlModule
		if only.Name != "" {
			name = tagName(only.ControlModule, only.Name)
		}
		names = append(names, clean(name))
	}
	if len(names) == 0 {
		return nil
	}
	return told(fmt.Sprintf("Unit %s has no tag of this name: %s", c.unit, strings.Join(names, ", ")),
		fmt.Sprintf("See which it has: kubectl fieldplane -n %s tags %s -o name", c.namespace, c.unit))
}

func (c *tagsCommand) printObject(tags *v1alpha1.UnitTags) error {
	tags.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("UnitTags"))
	if c.output == "yaml" {
		return (&printers.YAMLPrinter{}).PrintObj(tags, c.Out)
	}
	return (&printers.JSONPrinter{}).PrintObj(tags, c.Out)
}

func tagName(controlModule, tag string) string { return controlModule + "/" + tag }

// tagGrid is the table of tags. When the stream is not live nothing is told as if it were true now.
func tagGrid(tags []v1alpha1.TagValue, now time.Time, wide, live bool) *grid {
	table := &grid{header: []string{"TAG", "VALUE", "UNIT", "QUALITY", "STATUS", "AGE"}}
	if wide {
		table.header = append(table.header, "ACCESS", "IOMODULE", "ADDRESS", "MESSAGE")
	}
	for i := range tags {
		tag := &tags[i]
		quality, status := span{string(tag.Quality), qualityTone(tag.Quality)}, span{text: tag.Status}
		if !live {
			quality, status = span{"was " + quality.text, aside}, span{"was " + status.text, aside}
		}
		row := []span{{text: tagName(tag.ControlModule, tag.Name)}, {text: shownValue(tag)}, {text: tag.Unit}, quality, status, {text: tagAge(tag, now)}}
		if wide {
			row = append(row, span{text: string(tag.Access)}, span{text: tag.IOModule}, span{text: tag.Address}, span{text: tag.Message})
		}
		table.add(row...)
	}
	return table
}

// shownValue is a value as a cell shows it: an empty string, and one with spaces at its ends, would look like none.
func shownValue(tag *v1alpha1.TagValue) string {
	switch {
	case tag.Value == nil:
		return ""
	case *tag.Value == "" || strings.TrimSpace(*tag.Value) != *tag.Value:
		return `"` + *tag.Value + `"`
	default:
		return *tag.Value
	}
}

func qualityTone(quality v1alpha1.TagQuality) tone {
	switch quality {
	case v1alpha1.QualityGood:
		return fine
	case v1alpha1.QualityUncertain:
		return doubtful
	default:
		return wrong
	}
}

// tagAge is how long ago a value was true. Clocks of devices are seldom right: one that is ahead is told as such.
func tagAge(tag *v1alpha1.TagValue, now time.Time) string {
	if tag.SourceTime == nil || tag.SourceTime.IsZero() {
		return ""
	}
	switch since := now.Sub(tag.SourceTime.Time); {
	case since < -time.Second:
		return "in " + age(tag.SourceTime.Time, metav1.NewTime(now))
	case since < 0:
		return "0s"
	default:
		return age(now, metav1.NewTime(tag.SourceTime.Time))
	}
}

// completeTags offers the tags of a Unit that are declared with an access that a command is for.
func (p plugin) completeTags(cmd *cobra.Command, unit, toComplete, suffix string, offers func(v1alpha1.Access) bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if suffix != "" {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	name, err := parseUnit("", []string{unit})
	if err != nil {
		return nil, directive
	}
	t, err := p.connect()
	if err != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := t.client.PhysicalV1alpha1().ControlModules(t.namespace).List(ctx, metav1.ListOptions{FieldSelector: v1alpha1.ControlModuleUnitRef + "=" + name})
	if err != nil {
		return nil, directive
	}
	var out []cobra.Completion
	for _, controlModule := range list.Items {
		if controlModule.Spec.UnitRef.Name != name {
			continue
		}
		for _, tag := range controlModule.Spec.Tags {
			if full := tagName(controlModule.Name, tag.Name) + suffix; strings.HasPrefix(full, toComplete) && offers(tag.Access) {
				out = append(out, cobra.CompletionWithDesc(full, clean(strings.TrimSpace(string(tag.DataType)+" "+tag.Unit))))
			}
		}
	}
	return out, directive
}
