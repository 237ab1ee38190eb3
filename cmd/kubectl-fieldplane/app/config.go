package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const configLong = `Show the Talos configuration that a machine would be sent now, with every secret replaced by ***.

With --diff, show what would change of the configuration that the machine runs; nothing when nothing would. The machine is
asked for it, so it must answer.`

const configExample = `  # What the machine would be sent
  kubectl fieldplane config machine ` + exampleUUID + `

  # What that would change of what it runs
  kubectl fieldplane config machine ` + exampleUUID + ` --diff`

// configurationReader reads talosmachines/config, which is text and therefore not part of the generated client.
type configurationReader func(ctx context.Context, namespace, machine string, diff bool) ([]byte, error)

func newConfigurationReader(client rest.Interface) configurationReader {
	return func(ctx context.Context, namespace, machine string, diff bool) ([]byte, error) {
		request := client.Get().Namespace(namespace).Resource("talosmachines").Name(machine).SubResource("config")
		if diff {
			request = request.Param("diff", "running")
		}
		// Not DoRaw, whose errors leave out what the server says.
		result := request.Do(ctx)
		if err := result.Error(); err != nil {
			return nil, err
		}
		return result.Raw()
	}
}

func newConfigCommand(p plugin) *cobra.Command {
	diff := false
	cmd := p.machineCommand(machineCommand{
		name: "config", short: "Show a machine's configuration without its secrets", long: configLong, example: configExample,
		offers: func(machine *v1alpha1.TalosMachine) bool { return machine.Spec.Role != "" },
		run: func(ctx context.Context, t target, machine string) error {
			return p.printConfiguration(ctx, t, machine, diff)
		},
	})
	cmd.Flags().BoolVar(&diff, "diff", false, "Show the difference to what the machine runs")
	return cmd
}

func (p plugin) printConfiguration(ctx context.Context, t target, machine string, diff bool) error {
	text, err := t.configuration(ctx, t.namespace, machine, diff)
	if err != nil {
		return attempt{
			to: "read the configuration", namespace: t.namespace, machine: machine,
			needs: operatorRight("get", "talosmachines", "config"),
		}.explain(err)
	}
	if diff && strings.TrimSpace(string(text)) == "" {
		fmt.Fprintln(p.ErrOut, "No difference: the machine runs what it would be sent.")
		return nil
	}
	for line := range strings.Lines(string(text)) {
		// What runs was read from a machine.
		fmt.Fprintln(p.Out, clean(strings.TrimRight(line, "\r\n")))
	}
	return nil
}
