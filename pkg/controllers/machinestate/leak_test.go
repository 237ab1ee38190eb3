package machinestate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/machine/machinetest"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// Whatever goes wrong, and whatever a machine says about it, no value of the bundle is in an event, a condition, the
// rest of the object, or a log line.
// Req: T-15
func TestNoValueOfTheBundleIsToldAnywhere(t *testing.T) {
	material := render.BundleMaterial(bundleOf(0))
	if len(material) < 20 {
		t.Fatalf("only %d values to look for", len(material))
	}

	// The shortest first: messages are bounded, and a long value would keep the others out.
	quoted := slices.Clone(material)
	slices.Reverse(quoted)

	quoting := func(n *machinetest.Node, op machine.Op, class machine.Class) {
		n.Before(op, func(context.Context, machinetest.Call) error {
			return &machine.Error{Class: class, Address: address(1), Op: op, Detail: "the machine quotes " + strings.Join(quoted, " ")}
		})
	}
	unknownMake := func(n *machinetest.Node, op machine.Op) {
		n.Before(op, func(_ context.Context, call machinetest.Call) error {
			return fmt.Errorf("rpc error: invalid config:\n%s\n%s", call.Config, bundleYAML(0))
		})
	}

	cases := []struct {
		name  string
		node  func(*machinetest.Node)
		crash bool
	}{
		{name: "it is applied"},
		{name: "it needs a reboot", node: func(n *machinetest.Node) { n.NeedsReboot(needsReboot) }},
		{name: "it quotes in remarks", node: func(n *machinetest.Node) { n.SetWarnings(quoted...) }},
		{name: "it waits for what quotes", node: func(n *machinetest.Node) {
			n.SetStatus(machine.Status{Stage: "running", Unmet: quoted, TalosVersion: quoted[0]})
		}},
		{name: "its stage quotes", node: func(n *machinetest.Node) { n.SetStatus(machine.Status{Stage: quoted[0]}) }},
		{name: "it calls itself by it", node: func(n *machinetest.Node) { n.SetHardware(maintenance.Hardware{UUID: quoted[0]}) }},
		{name: "it runs something else", node: func(n *machinetest.Node) {
			other, err := render.Render(render.Input{Cluster: newCluster(), Machine: controlPlane(1), Bundle: bundleOf(1)})
			if err != nil {
				panic(err)
			}

			n.SetConfiguration(other)
		}},
		{name: "it runs what quotes", node: func(n *machinetest.Node) {
			n.SetConfiguration([]byte("version: v1alpha1\nmachine:\n  sysctls:\n    x: \"" + quoted[0] + "\"\n"))
		}},
		{name: "it runs what cannot be read", node: func(n *machinetest.Node) { n.SetConfiguration([]byte(strings.Join(quoted, "\n"))) }},
		{name: "the status cannot be written", crash: true},
	}

	for _, op := range []machine.Op{
		machine.OpDial, machine.OpIdentity, machine.OpStatus, machine.OpConfiguration, machine.OpTry, machine.OpApply, machine.OpEtcdMembers,
	} {
		for _, class := range []machine.Class{machine.ClassNodeError, machine.ClassDenied, machine.ClassRejected, machine.ClassBusy, machine.ClassOutcomeUnknown} {
			cases = append(cases, struct {
				name  string
				node  func(*machinetest.Node)
				crash bool
			}{name: fmt.Sprintf("to %s fails as %s with a quote", op, class), node: func(n *machinetest.Node) { quoting(n, op, class) }})
		}

		cases = append(cases, struct {
			name  string
			node  func(*machinetest.Node)
			crash bool
		}{name: fmt.Sprintf("to %s fails with an error of unknown make", op), node: func(n *machinetest.Node) { unknownMake(n, op) }})
	}

	for _, c := range cases {
		for _, changed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, changed %t", c.name, changed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := controlPlane(1)
					if changed {
						m.Spec.ConfigPatches = sysctl(1)
					}

					w := prepare(t, newCluster(), m)
					w.node(1).OfCluster(nil)
					if c.node != nil {
						c.node(w.node(1))
					}

					if c.crash {
						w.api.Before(func(_ context.Context, call fakeapi.Call) error {
							if call.Verb == "updatestatus" {
								return errors.New("no")
							}

							return nil
						})
					}

					w.run()
					w.pass(time.Minute)

					if update := w.machine(1).Status.Update; update != nil && update.RebootRequired {
						w.askReboot(1)
					}

					w.pass(time.Minute)

					after := w.machine(1)
					if !c.crash && equality.Semantic.DeepEqual(after.Status, m.Status) {
						t.Error("nothing happened")
					}

					object, err := json.Marshal(after)
					if err != nil {
						t.Fatal(err)
					}

					w.mu.Lock()
					defer w.mu.Unlock()

					said := string(object) + "\n" + strings.Join(w.events.all(), "\n") + "\n" + strings.Join(w.logs, "\n")

					for _, value := range append(material, privateOf()...) {
						if i := strings.Index(said, value); i >= 0 {
							t.Errorf("%q… is told: %s", value[:4], said[max(0, i-80):i])
						}
					}
				})
			})
		}
	}

	// Positive control: the machines did run all of it.
	config := string(renderFor(controlPlane(1), newCluster(), bundleOf(0)).config)
	for _, value := range []string{bundleOf(0).Cluster.Secret, bundleOf(0).TrustdInfo.Token, bundleOf(0).Secrets.BootstrapToken} {
		if !strings.Contains(config, value) || !slices.Contains(material, value) {
			t.Error("a secret that is looked for was never there")
		}
	}
}

// privateOf is what a machine with another cluster's bundle runs that nobody may see. Certificates are public.
func privateOf() []string {
	other := bundleOf(1)

	return []string{other.Cluster.Secret, other.TrustdInfo.Token, other.Secrets.BootstrapToken, other.Secrets.SecretboxEncryptionSecret}
}
