package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	corev1 "k8s.io/api/core/v1"
)

const statusLong = `Show how the plant stands, what is worst first: every Unit with its state and what holds it; IOModules that are not Online;
Controllers that are not ready; machines that wait for somebody; TalosClusters with something to settle. The first line
counts them.

With -w it is read again every two seconds: on a terminal it is drawn over, elsewhere every change is a line. What you may not
read is named and left out. It exits with 0 however the plant stands.`

const statusExample = `  # The plant of this namespace
  kubectl fieldplane status

  # Of all namespaces, until Ctrl-C
  kubectl fieldplane status -A -w

  # With messages, all modules that hold a Unit, and the runtimes' pods
  kubectl fieldplane status -o wide`

// statusCommand is one run of status.
type statusCommand struct {
	plugin
	target

	watching  bool
	output    string
	noHeaders bool
}

func newStatusCommand(p plugin) *cobra.Command {
	command := &statusCommand{plugin: p}
	everywhere := false
	outputs := []string{"wide", "json", "yaml", "name"}
	cmd := &cobra.Command{
		Use:                   "status",
		Short:                 "Show how the plant stands",
		Long:                  statusLong,
		Example:               statusExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return told(fmt.Sprintf("status takes no argument, and there is %q", args[0]), "See "+cmd.CommandPath()+" --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case command.output != "" && !slices.Contains(outputs, command.output):
				return told(fmt.Sprintf("-o %s is not possible", command.output), "Use -o wide, json, yaml or name.")
			case command.watching && command.output != "" && command.output != "wide":
				return told(fmt.Sprintf("-o %s is not possible with -w", command.output), "Watch the kinds themselves: kubectl get units,iomodules -o json --watch")
			}
			var err error
			if command.target, err = p.connect(); err != nil {
				return err
			}
			if everywhere {
				command.namespace = metav1.NamespaceAll
			}
			ctx, cancel := p.interruptible(cmd.Context())
			defer cancel()
			if command.watching {
				return command.watch(ctx)
			}
			return command.show(ctx)
		},
	}
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "Show every namespace")
	cmd.Flags().BoolVarP(&command.watching, "watch", "w", false, "Show it again and again, until it is ended with Ctrl-C")
	cmd.Flags().StringVarP(&command.output, "output", "o", "", "wide, json, yaml or name")
	cmd.Flags().BoolVar(&command.noHeaders, "no-headers", false, "Leave out the headers and the first line")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c *statusCommand) show(ctx context.Context) error {
	plant, err := c.read(ctx)
	if err != nil {
		return err
	}
	for _, note := range plant.notes {
		fmt.Fprintln(c.ErrOut, note)
	}
	switch c.output {
	case "json":
		return (&printers.JSONPrinter{}).PrintObj(plant.list(), c.Out)
	case "yaml":
		return (&printers.YAMLPrinter{}).PrintObj(plant.list(), c.Out)
	case "name":
		for _, section := range plant.sections() {
			for _, row := range section.rows {
				fmt.Fprintln(c.Out, row.resource())
			}
		}
		return nil
	}
	to := c.display()
	var lines []line
	if !c.noHeaders {
		lines = append(lines, plant.summary(c.where()))
	}
	for _, line := range append(lines, c.tables(plant, false)...) {
		fmt.Fprintln(c.Out, line.render(0, to.colours))
	}
	return nil
}

// tables are what is shown of a plant: one for each kind of which there is something to show. Units that are well are only
// counted where there is no room for all.
func (c *statusCommand) tables(plant *plant, tight bool) []line {
	var lines []line
	for _, section := range plant.sections() {
		if len(section.rows) == 0 {
			continue
		}
		if len(lines) > 0 || !c.noHeaders {
			lines = append(lines, nil)
		}
		all := len(section.rows)
		if tight && section.kind.Kind == "Unit" {
			section.rows = slices.DeleteFunc(section.rows, func(row plantRow) bool { return row.rank >= rankRunning })
		}
		if len(section.rows) > 0 {
			lines = append(lines, section.grid(c.namespace == metav1.NamespaceAll, c.output == "wide").lines(c.noHeaders)...)
		}
		if well := all - len(section.rows); well > 0 {
			lines = append(lines, line{{fmt.Sprintf("%d Units that run or rest, and are well, are not shown for want of room", well), aside}})
		}
	}
	return lines
}

func (c *statusCommand) where() string {
	if c.namespace == metav1.NamespaceAll {
		return "All namespaces"
	}
	return "Namespace " + c.namespace
}

// list holds what is shown as kubectl get shows several kinds together.
func (p *plant) list() *corev1.List {
	list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for _, section := range p.sections() {
		for _, row := range section.rows {
			object := row.object.DeepCopyObject()
			object.GetObjectKind().SetGroupVersionKind(section.kind)
			object.(metav1.Object).SetManagedFields(nil)
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
	}
	return list
}

// resource names a row's object as kubectl does.
func (r plantRow) resource() string {
	return strings.ToLower(r.kind.Kind) + "." + r.kind.Group + "/" + r.name
}
