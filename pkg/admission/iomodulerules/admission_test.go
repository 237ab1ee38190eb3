package iomodulerules

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/physical"
)

func attributes(obj, old runtime.Object, subresource string, op admission.Operation, dryRun bool) admission.Attributes {
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, "site-a", "m",
		schema.GroupVersionResource{Group: physical.GroupName, Version: "v1alpha1", Resource: "iomodules"}, subresource, op, nil, dryRun, nil)
}

// Req: P-02, P-09, P-17
func TestBinding(t *testing.T) {
	controller := &physical.ControllerReference{Name: "plc-1"}
	pinned := &physical.ProbePlacement{NodeSelector: map[string]string{"zone": "b"}}
	network := []physical.Protocol{physical.ProtocolModbus, physical.ProtocolOPCUA, physical.ProtocolEtherNetIP}

	type cell struct {
		name      string
		protocols []physical.Protocol
		spec      physical.IOModuleSpec
		refused   []string // what the message names; none: accepted
	}
	for _, tc := range []cell{
		{"a network module needs no Controller", network, physical.IOModuleSpec{}, nil},
		{"a network module may have a Controller", network, physical.IOModuleSpec{ControllerRef: controller}, nil},
		{"a network module may pin its shared probe", network, physical.IOModuleSpec{ProbePlacement: pinned}, nil},
		{"a bound module does not pin the shared probe", network, physical.IOModuleSpec{ControllerRef: controller, ProbePlacement: pinned},
			[]string{"spec.probePlacement.nodeSelector", `{"zone":"b"}`, `Controller "plc-1"`, "remove one of the two"}},
		{"an empty selector is none, bound", network, physical.IOModuleSpec{ControllerRef: controller, ProbePlacement: &physical.ProbePlacement{}}, nil},

		{"a simulation with its Controller", []physical.Protocol{physical.ProtocolSimulation}, physical.IOModuleSpec{ControllerRef: controller}, nil},
		{"a simulation without a Controller is refused", []physical.Protocol{physical.ProtocolSimulation}, physical.IOModuleSpec{},
			[]string{"spec.controllerRef", "Required", `"simulation"`, "name the simulation Controller"}},
		{"a simulation has no probe to pin", []physical.Protocol{physical.ProtocolSimulation}, physical.IOModuleSpec{ControllerRef: controller, ProbePlacement: pinned},
			[]string{"spec.probePlacement.nodeSelector", `{"zone":"b"}`, `"simulation"`}},
		{"both faults of a simulation are told", []physical.Protocol{physical.ProtocolSimulation}, physical.IOModuleSpec{ProbePlacement: pinned},
			[]string{"spec.controllerRef", "spec.probePlacement.nodeSelector"}},
		{"an empty selector is none, simulated", []physical.Protocol{physical.ProtocolSimulation}, physical.IOModuleSpec{ControllerRef: controller, ProbePlacement: &physical.ProbePlacement{NodeSelector: map[string]string{}}}, nil},
	} {
		for _, protocol := range tc.protocols {
			for _, op := range []admission.Operation{admission.Create, admission.Update} {
				for _, dryRun := range []bool{false, true} {
					t.Run(string(op)+" "+string(protocol)+": "+tc.name, func(t *testing.T) {
						module := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: tc.spec}
						module.Spec.Protocol = protocol
						var old runtime.Object
						if op == admission.Update {
							old = module.DeepCopy()
						}
						err := New().Validate(context.Background(), attributes(module, old, "", op, dryRun), nil)
						if len(tc.refused) == 0 {
							if err != nil {
								t.Errorf("refused: %v", err)
							}
							return
						}
						if !apierrors.IsInvalid(err) {
							t.Fatalf("have %v", err)
						}
						for _, text := range tc.refused {
							if !strings.Contains(err.Error(), text) {
								t.Errorf("%q does not say %q", err, text)
							}
						}
					})
				}
			}
		}
	}
}

func TestOtherResourcesAndSubresourcesPass(t *testing.T) {
	invalid := &physical.IOModule{Spec: physical.IOModuleSpec{Protocol: physical.ProtocolSimulation}}
	if err := New().Validate(context.Background(), attributes(invalid, invalid, "status", admission.Update, false), nil); err != nil {
		t.Errorf("status: %v", err)
	}
	other := admission.NewAttributesRecord(invalid, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{Group: "example.com", Resource: "iomodules"}, "", admission.Create, nil, false, nil)
	if err := New().Validate(context.Background(), other, nil); err != nil {
		t.Errorf("another group: %v", err)
	}
	if err := New().Validate(context.Background(), attributes(&physical.Unit{}, nil, "", admission.Create, false), nil); !apierrors.IsInternalError(err) {
		t.Errorf("a wrong object: %v", err)
	}
}

func TestRegistration(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	plugin, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{})
	if err != nil {
		t.Fatal(err)
	}
	if !plugin.Handles(admission.Create) || !plugin.Handles(admission.Update) || plugin.Handles(admission.Delete) {
		t.Error("handles the wrong operations")
	}
}
