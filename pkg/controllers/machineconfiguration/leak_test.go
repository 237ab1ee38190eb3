package machineconfiguration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// Whatever goes wrong, and whatever a machine says about it, no value of the bundle is in an event, a condition, the
// rest of the object, or a log line.
// Req: T-15
func TestNoValueOfTheBundleIsToldAnywhere(t *testing.T) {
	data := bundleYAML(t)
	material := render.BundleMaterial(bundleOf(t))

	if len(material) < 20 {
		t.Fatalf("only %d values to look for", len(material))
	}

	// The shortest first: messages are bounded, and a long value would keep the others out.
	quoted := slices.Clone(material)
	slices.Reverse(quoted)

	quoting := func(class maintenance.Class, op string) error {
		return &maintenance.Error{Class: class, Address: endpoint, Op: op, Detail: "the machine quotes " + strings.Join(quoted, " ")}
	}
	unknownMake := func(config []byte) error { return fmt.Errorf("rpc error: invalid config:\n%s\n%s", config, data) }

	for _, c := range []struct {
		name  string
		data  []byte
		edit  func(*v1alpha1.TalosMachine)
		node  func(*node)
		crash bool
	}{
		{name: "it is applied"},
		{name: "it is applied with warnings that quote it", node: func(n *node) { n.warnings = quoted }},
		{name: "the machine refuses it and quotes it", node: func(n *node) {
			n.applyErr = func([]byte) error { return quoting(maintenance.ClassRejected, "apply configuration") }
		}},
		{name: "the machine is busy and quotes it", node: func(n *node) {
			n.applyErr = func([]byte) error { return quoting(maintenance.ClassBusy, "apply configuration") }
		}},
		{name: "the connection is lost with a quote", node: func(n *node) {
			n.applyErr = func([]byte) error { return quoting(maintenance.ClassOutcomeUnknown, "apply configuration") }
		}},
		{name: "sending fails with an error of unknown make", node: func(n *node) { n.applyErr = unknownMake }},
		{name: "dialing fails with a quote", node: func(n *node) { n.dialErr = quoting(maintenance.ClassUnreachable, "dial") }},
		{name: "dialing fails with an error of unknown make", node: func(n *node) { n.dialErr = unknownMake(nil) }},
		{name: "reading fails with a quote", node: func(n *node) { n.readErr = quoting(maintenance.ClassNodeError, "read identity") }},
		{name: "the machine calls itself by it", node: func(n *node) { n.hardware.Serial = material[len(material)-1] }},
		{name: "the role is not set", edit: func(m *v1alpha1.TalosMachine) { m.Spec.Role = "" }},
		{name: "the role is none", edit: func(m *v1alpha1.TalosMachine) { m.Spec.Role = "init" }},
		{name: "no disk", edit: func(m *v1alpha1.TalosMachine) { m.Spec.Install = nil }},
		{name: "a patch that is none", edit: func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = []string{"machine: [1]"} }},
		{name: "a patch of what is protected", edit: func(m *v1alpha1.TalosMachine) {
			m.Spec.ConfigPatches = []string{"machine:\n  token: abcdef.0123456789abcdef"}
		}},
		{name: "half a bundle", data: data[:len(data)/2]},
		{name: "a bundle without its end", data: data[:len(data)-40]},
		{name: "a bundle with more than a bundle", data: append([]byte("surprise: true\n"), data...)},
		{name: "a bundle in base64", data: []byte(base64.StdEncoding.EncodeToString(data))},
		{name: "the status cannot be written", crash: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				if c.node != nil {
					c.node(n)
				}

				m := machine()
				if c.edit != nil {
					c.edit(m)
				}

				stored := data
				if c.data != nil {
					stored = c.data
				}

				w := start(t, n, cluster(), secret(stored), m)

				if c.crash {
					w.api.Before(func(_ context.Context, call fakeapi.Call) error {
						if call.Verb == "updatestatus" {
							return errors.New("no")
						}

						return nil
					})
				}

				w.pass(2 * time.Minute)

				after := w.machine()
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

				for _, value := range material {
					if strings.Contains(said, value) {
						t.Errorf("%q… is told: %s", value[:4], around(said, value))
					}
				}
			})
		})
	}
}

func around(text, value string) string {
	i := strings.Index(text, value)

	return text[max(0, i-80):i]
}
