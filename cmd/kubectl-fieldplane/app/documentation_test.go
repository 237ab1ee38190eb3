package app

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// TestEveryDocumentedCommandWorks runs what the documentation and the help texts tell users to type.
func TestEveryDocumentedCommandWorks(t *testing.T) {
	root := newCommand(plugin{})
	texts := map[string]string{"help": root.Example}
	for _, name := range []string{"docs/approving.md", "docs/units.md"} {
		manual, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(manual)
	}
	for _, cmd := range root.Commands() {
		texts["help of "+cmd.Name()] = cmd.Example
	}
	for source, text := range texts {
		lines := regexp.MustCompile(`(?m)^ *kubectl fieldplane (.*)$`).FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1)
		if len(lines) == 0 {
			t.Errorf("%s: no command found", source)
		}
		for _, line := range lines {
			t.Run(source+": "+line[1], func(t *testing.T) {
				args := words(line[1])
				for i, arg := range args {
					if arg == "secrets.yaml" {
						args[i] = bundleFile(t, bundleForTests(t))
					}
				}
				s := newSession(siteFor(args)...)
				s.input = "y\n"
				s.thenMachine(t, rebootAsked(func(r *v1alpha1.MachineRebootStatus) { r.CompletedAt = r.RequestedAt }))
				rebooted := s.steps
				s.steps = nil
				s.client.PrependReactor("create", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) {
					rebooted[0]()
					return true, &v1alpha1.RebootRequest{}, nil
				})
				s.then(t, func(c *v1alpha1.TalosCluster) { c.Status.Discovery = sweep(0, 1) })
				s.units(func(command *physical.UnitCommand) (*physical.UnitCommand, error) {
					return done(destination(command.Spec.Command))(command)
				}, mixerTags(), nil)
				s.interrupted = slices.Contains(args, "-w")
				s.run(t, args...).wantOK(t)
			})
		}
	}
}

// words splits a line as a shell does, single quotes included.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if quoted := i%2 == 1; quoted {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// siteFor is the site with a machine as the command is for, and the Unit of the local cluster beside that of the examples.
func siteFor(args []string) []runtime.Object {
	objects := append(site(), mixer(), mixer(func(u *physical.Unit) { u.Name = "mixing" }))
	machine := objects[0].(*v1alpha1.TalosMachine)
	given := map[string]bool{}
	for _, arg := range args {
		given[arg] = true
	}
	switch {
	case given["--renew"]:
		approveAs(machine, v1alpha1.RoleWorker)
		machine.Status.Conditions = []metav1.Condition{{Type: conditionBackInMaintenance, Status: metav1.ConditionTrue}}
	case given["unapprove"]:
		approveAs(machine, v1alpha1.RoleWorker)
	case given["reboot"]:
		waitingForReboot(machine)
	case given["unreject"]:
		machine.Spec.Rejected = &v1alpha1.MachineRejection{Reason: "scrap"}
	}
	return objects
}
