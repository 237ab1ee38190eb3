package chain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// Req: P-02, P-04, P-06
func TestAModuleThatIsBoundIsUnknownWithAReasonAndLosesItsConditionWhenItIsFreed(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "pump", d, 1)
	s.online(t, firstLimit, "pump")

	s.change(t, "pump", func(spec *v1alpha1.IOModuleSpec) {
		spec.ControllerRef = &v1alpha1.ControllerReference{Name: "cell-1"}
	})
	bound := s.verdict(t, onlineLimit, "pump", v1alpha1.ModuleUnknown, "ControllerNotFound").Status
	if c := condition(bound.Conditions, "ControllerFound"); c != "False ControllerNotFound" {
		t.Errorf("ControllerFound is %q", c)
	}
	if condition(bound.Conditions, "Ready") != "Unknown ControllerNotFound" || bound.ProbePodName != "" || bound.Health != "" {
		t.Errorf("a module that nobody measures: %+v", bound)
	}
	// It was the shared probe's last module.
	untilGone(t, onlineLimit, "the shared probe", func() error {
		_, err := env.Host().CoreV1().Pods(s.name).Get(t.Context(), probeName, metav1.GetOptions{})
		return err
	})

	_, err := s.client.PhysicalV1alpha1().Controllers(s.name).Create(t.Context(), &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Name: "cell-1"}}, metav1.CreateOptions{})
	must(t, err)
	waiting := s.verdict(t, onlineLimit, "pump", v1alpha1.ModuleUnknown, "AwaitingNode").Status
	if c := condition(waiting.Conditions, "ControllerFound"); c != "True Found" {
		t.Errorf("ControllerFound is %q", c)
	}

	s.change(t, "pump", func(spec *v1alpha1.IOModuleSpec) { spec.ControllerRef = nil })
	free := s.online(t, firstLimit, "pump").Status
	if c := condition(free.Conditions, "ControllerFound"); c != "" {
		t.Errorf("a stale ControllerFound is left: %s", c)
	}
}
