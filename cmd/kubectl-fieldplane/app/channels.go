package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

const channelsLong = `List the channels that an IOModule's device has: those found on it by OPC UA browsing or by listing the tags of a
controller, and those that the module declares. They are read from the probe that measures the module, once it is Online.

The address is what a tag of a ControlModule names. A channel with a problem is one that the device refuses.`

const channelsExample = `  # What the device has
  kubectl fieldplane channels mixer-1

  # With ranges, the device's own types and what it says of refused channels
  kubectl fieldplane channels mixer-1 -o wide

  # The addresses alone
  kubectl fieldplane channels mixer-1 -o address`

// channelPage is how many channels are asked for at once.
const channelPage = 1000

// channelsReader reads a page of iomodules/channels, whose query the generated client does not know.
type channelsReader func(ctx context.Context, namespace, module, next string) (*v1alpha1.IOModuleChannels, error)

func newChannelsReader(client rest.Interface) channelsReader {
	return func(ctx context.Context, namespace, module, next string) (*v1alpha1.IOModuleChannels, error) {
		page := &v1alpha1.IOModuleChannels{}
		request := client.Get().Namespace(namespace).Resource("iomodules").Name(module).SubResource("channels").Param("limit", strconv.Itoa(channelPage))
		if next != "" {
			request = request.Param("continue", next)
		}
		return page, request.Do(ctx).Into(page)
	}
}

// listChannels is one run of the command.
type listChannels struct {
	plugin
	target

	module    string
	output    string
	noHeaders bool
}

func newChannelsCommand(p plugin) *cobra.Command {
	command := listChannels{plugin: p}
	outputs := []string{"wide", "json", "yaml", "address"}
	cmd := &cobra.Command{
		Use:                   "channels MODULE",
		Short:                 "List the channels that a field device has",
		Long:                  channelsLong,
		Example:               channelsExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeModules,
		RunE: func(cmd *cobra.Command, args []string) error {
			const form = "Write: kubectl fieldplane channels MODULE. See which there are: kubectl get iomodules"
			switch {
			case len(args) == 0:
				return told("which module is not said", form)
			case len(args) > 1:
				return told(fmt.Sprintf("one module is listed at a time, and there are %d arguments", len(args)), form)
			case command.output != "" && !slices.Contains(outputs, command.output):
				return told(fmt.Sprintf("-o %s is not possible", command.output), "Use -o wide, json, yaml or address.")
			}
			_, name, qualified := strings.Cut(args[0], "/")
			if command.module = name; !qualified {
				command.module = args[0]
			}
			var err error
			if command.target, err = p.connect(); err != nil {
				return err
			}
			return command.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&command.output, "output", "o", "", "wide, json, yaml or address")
	cmd.Flags().BoolVar(&command.noHeaders, "no-headers", false, "Leave out the headers")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (c listChannels) run(ctx context.Context) error {
	all, err := c.read(ctx)
	if err != nil {
		return c.explain(err)
	}
	switch c.output {
	case "json":
		return (&printers.JSONPrinter{}).PrintObj(all, c.Out)
	case "yaml":
		return (&printers.YAMLPrinter{}).PrintObj(all, c.Out)
	case "address":
		for _, channel := range all.Items {
			fmt.Fprintln(c.Out, clean(channel.Address))
		}
	default:
		if err := c.print(all); err != nil {
			return err
		}
	}
	if all.Truncated {
		fmt.Fprintf(c.ErrOut, "The device has more channels than these %d.\n", len(all.Items))
	}
	return nil
}

// read reads all pages of one discovery. A device that is discovered anew meanwhile is read again from the start, once.
func (c listChannels) read(ctx context.Context) (*v1alpha1.IOModuleChannels, error) {
	all, err := c.readOnce(ctx)
	if apierrors.IsResourceExpired(err) {
		return c.readOnce(ctx)
	}
	return all, err
}

func (c listChannels) readOnce(ctx context.Context) (*v1alpha1.IOModuleChannels, error) {
	var all *v1alpha1.IOModuleChannels
	for next := ""; ; {
		page, err := c.channels(ctx, c.namespace, c.module, next)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all.Items = append(all.Items, page.Items...)
			all.Truncated = all.Truncated || page.Truncated
		}
		if next = page.Continue; next == "" || len(page.Items) == 0 {
			all.Continue, all.RemainingItemCount = "", nil
			all.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("IOModuleChannels"))
			return all, nil
		}
	}
}

func (c listChannels) print(all *v1alpha1.IOModuleChannels) error {
	if len(all.Items) == 0 {
		fmt.Fprintf(c.ErrOut, "No channels were found on %s, and none are declared.\n", clean(c.module))
		return nil
	}
	table := printers.GetNewTabWriter(c.Out)
	if !c.noHeaders {
		fmt.Fprint(table, "NAME\tADDRESS\tTYPE\tACCESS\tUNIT\tPROBLEM")
		if c.output == "wide" {
			fmt.Fprint(table, "\tRANGE\tDEVICE TYPE\tDECLARED\tMESSAGE")
		}
		fmt.Fprintln(table)
	}
	for _, channel := range all.Items {
		kind := string(channel.DataType)
		if kind == "" {
			kind = channel.DeviceType
		}
		if channel.Count > 1 {
			kind += "[" + strconv.Itoa(int(channel.Count)) + "]"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s", clean(channel.Name), clean(channel.Address), orNone(kind), orNone(string(channel.Access)),
			orNone(channel.Unit), orNone(channel.Problem))
		if c.output == "wide" {
			span := ""
			if channel.Range != nil {
				span = fmt.Sprintf("%g to %g", channel.Range.Low, channel.Range.High)
			}
			fmt.Fprintf(table, "\t%s\t%s\t%t\t%s", orNone(span), orNone(channel.DeviceType), channel.Declared, orNone(channel.Message))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

func (c listChannels) explain(err error) error {
	switch {
	case notServed(err):
		return &failure{what: "the fieldplane server of this cluster does not know iomodules/channels",
			todo: "Check that fieldplane is installed and as new as this plugin: kubectl fieldplane --version", cause: err}
	case apierrors.IsNotFound(err):
		return &failure{what: fmt.Sprintf("there is no IOModule %s in namespace %s", clean(c.module), c.namespace),
			todo: "See which there are: kubectl get iomodules -A", cause: err}
	case apierrors.IsForbidden(err):
		return &failure{what: "the server refuses: " + clean(err.Error()),
			todo: "Listing channels needs get on iomodules/channels, as the ClusterRole fieldplane-view grants it.", cause: err}
	}
	return &failure{what: "cannot list the channels: " + clean(err.Error()),
		todo: fmt.Sprintf("See how the module is: kubectl -n %s describe iomodule %s", c.namespace, clean(c.module)), cause: err}
}

// completeModules offers the IOModules of the namespace, with how each is.
func (p plugin) completeModules(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	t, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := t.client.PhysicalV1alpha1().IOModules(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, module := range list.Items {
		if strings.HasPrefix(module.Name, toComplete) {
			out = append(out, cobra.CompletionWithDesc(module.Name, strings.TrimSpace(string(module.Spec.Protocol)+" "+string(module.Status.State))))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
