// Command plant runs a simulated plant on loopback addresses, and commands one that runs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

const usage = `Usage: plant [flags] VERB

  run                  run a plant until interrupted; the example plant unless --file names another
  list                 what there is and how it is
  fault NAME MODE      make something wrong, see below
  heal NAME            make it well again
  wipe NAME            take a Talos node back to maintenance mode
  power NAME           switch a Talos node off and on again
  patch NAME PATCH     change what a Talos node runs with behind everybody's back:
                       plant patch worker-1 'machine: {sysctls: {vm.swappiness: "1"}}'
  uuid NAME [TEXT]     override a Talos node's UUID in META; without TEXT no longer
  swap NAME OTHER      exchange the addresses of two Talos nodes
  configs [NAME]       what each Talos node was sent: time, size, role and answer, never the content

Faults of devices: closed, silent, slow, reset, and of Modbus devices exception. Faults of Talos nodes:
%s
Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "plant:", err) //nolint:errcheck
		os.Exit(1)
	}
}

// socket is that of the plant that was started from the repository in whose _local/bin this program lies, wherever it is
// called; of any other program, that of the repository it is called in.
func socket() string {
	if self, err := os.Executable(); err == nil {
		if local := filepath.Dir(filepath.Dir(self)); filepath.Base(local) == "_local" {
			return filepath.Join(local, "plant.sock")
		}
	}

	return filepath.Join("_local", "plant.sock")
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("plant", flag.ContinueOnError)
	flags.SetOutput(errOut)

	control := flags.String("control", socket(), "control API: a unix socket (with a slash), or a loopback address with port")
	file := flags.String("file", "", "description of the plant to run, in YAML or JSON")
	asJSON := flags.Bool("json", false, "print JSON")

	flags.Usage = func() {
		var faults strings.Builder
		for _, fault := range talosnode.Faults() {
			fmt.Fprintf(&faults, "  %-20s %s\n", fault, fault.Effect())
		}

		fmt.Fprintf(errOut, usage, faults.String()) //nolint:errcheck
		flags.PrintDefaults()
	}

	if err := flags.Parse(args); err != nil {
		return err
	}

	verb, rest := flags.Arg(0), flags.Args()
	if len(rest) > 0 {
		rest = rest[1:]
	}

	need := func(n int) error {
		if len(rest) != n {
			flags.Usage()

			return fmt.Errorf("%s takes %d arguments", verb, n)
		}

		return nil
	}

	remote := plant.Connect(*control)

	switch verb {
	case "run":
		if err := need(0); err != nil {
			return err
		}

		return serve(ctx, *file, *control, out, errOut)
	case "list":
		statuses, err := remote.List(ctx)
		if err != nil {
			return err
		}

		return printList(out, statuses, *asJSON)
	case "configs":
		configs, err := remote.Configurations(ctx)
		if err != nil {
			return err
		}

		if len(rest) == 1 {
			maps.DeleteFunc(configs, func(name string, _ []talosnode.Received) bool { return name != rest[0] })
		}

		return printConfigs(out, configs, *asJSON)
	case "fault":
		if err := need(2); err != nil {
			return err
		}

		return remote.Fault(ctx, rest[0], rest[1])
	case "heal":
		if err := need(1); err != nil {
			return err
		}

		return remote.Heal(ctx, rest[0])
	case "wipe":
		if err := need(1); err != nil {
			return err
		}

		return remote.Wipe(ctx, rest[0])
	case "power":
		if err := need(1); err != nil {
			return err
		}

		return remote.PowerCycle(ctx, rest[0])
	case "patch":
		if err := need(2); err != nil {
			return err
		}

		return remote.Patch(ctx, rest[0], rest[1])
	case "uuid":
		if len(rest) == 1 {
			rest = append(rest, "")
		}

		if err := need(2); err != nil {
			return err
		}

		return remote.SetUUID(ctx, rest[0], rest[1])
	case "swap":
		if err := need(2); err != nil {
			return err
		}

		return remote.Swap(ctx, rest[0], rest[1])
	default:
		flags.Usage()

		return fmt.Errorf("no verb %q", verb)
	}
}

func serve(ctx context.Context, file, control string, out, errOut io.Writer) error {
	spec := plant.Example()

	if file != "" {
		var err error
		if spec, err = plant.Load(file); err != nil {
			return err
		}
	}

	// First, so that a second plant is told about the first, and not about some port that is in use.
	listener, err := plant.Listen(control)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // Serve has closed it, unless the plant did not start

	logger := log.New(errOut, "", log.LstdFlags|log.Lmicroseconds)

	p, err := plant.Start(spec, logger.Printf)
	if err != nil {
		return err
	}
	defer p.Close()

	if err := printList(out, p.List(), false); err != nil {
		return err
	}

	return p.Serve(ctx, listener)
}

func printList(out io.Writer, statuses []plant.Status, asJSON bool) error {
	if asJSON {
		return printJSON(out, statuses)
	}

	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tKIND\tADDRESS\tSTATE\tFAULT\tASKED\tUUID\tFINGERPRINT\tNOTES") //nolint:errcheck

	for _, s := range statuses {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", s.Name, s.Kind, s.Address, s.State, s.Fault, s.Asked, s.UUID, s.Fingerprint, notes(s)) //nolint:errcheck
	}

	return table.Flush()
}

// notes are what else there is to know of a Talos node.
func notes(s plant.Status) string {
	var out []string

	if s.MachineStage != "" && s.MachineStage != s.State {
		out = append(out, "machine is "+s.MachineStage)
	}

	if s.Waits != "" {
		out = append(out, "waits "+s.Waits)
	}

	if len(s.EtcdMembers) > 0 {
		out = append(out, "etcd of "+strings.Join(s.EtcdMembers, ", "))
	}

	if s.Reboots > 0 {
		times := "times"
		if s.Reboots == 1 {
			times = "time"
		}

		out = append(out, fmt.Sprintf("rebooted %d %s", s.Reboots, times))
	}

	return strings.Join(out, "; ")
}

func printConfigs(out io.Writer, configs map[string][]talosnode.Received, asJSON bool) error {
	if asJSON {
		return printJSON(out, configs)
	}

	names := slices.Sorted(maps.Keys(configs))

	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tRECEIVED\tACCEPTED\tROLE\tLAST BYTES\tLAST MODE\tLAST ANSWER\tLAST AT") //nolint:errcheck

	for _, name := range names {
		received := configs[name]
		accepted := 0

		var last talosnode.Received

		for _, r := range received {
			if r.Accepted {
				accepted++
			}

			last = r
		}

		at := ""
		if len(received) > 0 {
			at = last.At.Format(time.RFC3339)
		}

		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%d\t%s\t%s\t%s\n", name, len(received), accepted, last.Role, last.Bytes, modeOf(last), last.Code, at) //nolint:errcheck
	}

	return table.Flush()
}

// modeOf is how a configuration was to be applied, and how it was.
func modeOf(r talosnode.Received) string {
	out := r.Mode
	if r.Answer != "" && r.Answer != r.Mode {
		out += " → " + r.Answer
	}

	if r.DryRun {
		out += " (dry run)"
	}

	return out
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")

	return encoder.Encode(value)
}
