package unit

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/controlmodule"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// Req: P-14, P-16b
func TestAUnitWithATagThatCannotBeIsNotStarted(t *testing.T) {
	for _, tc := range []struct {
		name     string
		reason   string
		override bool
		state    isa88.State
		outcome  v1alpha1.CommandOutcome
	}{
		{"its ControlModule says so", controlmodule.ReasonTagInvalid, false, isa88.Idle, v1alpha1.CommandRefused},
		{"an override passes over it", controlmodule.ReasonTagInvalid, true, isa88.Running, v1alpha1.CommandDone},
		{"all tags are well", controlmodule.ReasonResolved, false, isa88.Running, v1alpha1.CommandDone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inPlant(t, func(t *testing.T, p *plant) {
				p.module("flow", v1alpha1.ModuleOnline)
				p.unit("mixer", isa88.Idle, "flow")
				stored, err := p.fake.Tracker().Get(moduleOfTags, ns, "mixer")
				if err != nil {
					t.Fatal(err)
				}
				tags := stored.(*v1alpha1.ControlModule).DeepCopy()
				tags.Status.Conditions = []metav1.Condition{{Type: controlmodule.ConditionReferencesResolved, Reason: tc.reason, Message: "no such register"}}
				p.mu.Lock()
				p.put(moduleOfTags, tags)
				p.mu.Unlock()
				p.lead()
				p.want("mixer", isa88.Idle)
				p.send("mixer", v1alpha1.CommandStart, tc.override)
				c := p.want("mixer", tc.state).Status.LastCommand
				if c.Outcome != tc.outcome || strings.Contains(c.Message, "no such register") != (tc.reason == controlmodule.ReasonTagInvalid) {
					t.Errorf("the command is %s: %s", c.Outcome, c.Message)
				}
			})
		})
	}
}
