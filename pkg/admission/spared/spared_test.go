package spared

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

var errNo = errors.New("the webhook does not answer")

type mutating struct{ *admission.Handler }

func (mutating) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errNo
}

type validating struct{ *admission.Handler }

func (validating) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errNo
}

// Req: P-16, A-04
func TestPoliciesAndWebhooksJudgeUsersAndNotTheHoldsOfTheServer(t *testing.T) {
	const server, alice = "system:serviceaccount:fieldplane-system:fieldplane-apiserver", "alice"
	decorate := From(initializer.NewServerIdentity(server, "system:apiserver")).Decorate
	for _, tc := range []struct {
		name        string
		user        user.Info
		resource    schema.GroupResource
		subresource string
		operation   admission.Operation
		spared      bool
	}{
		{"the server holds a Unit", &user.DefaultInfo{Name: "system:apiserver"}, physical.Resource("units"), "status", admission.Update, true},
		{"the server stores a fault", &user.DefaultInfo{Name: "system:apiserver"}, physical.Resource("iomodules"), "status", admission.Update, true},
		{"another replica does", &user.DefaultInfo{Name: server}, physical.Resource("units"), "status", admission.Update, true},
		{"a user writes the status", &user.DefaultInfo{Name: alice}, physical.Resource("units"), "status", admission.Update, false},
		{"nobody writes the status", nil, physical.Resource("units"), "status", admission.Update, false},
		{"the server writes the spec", &user.DefaultInfo{Name: "system:apiserver"}, physical.Resource("units"), "", admission.Update, false},
		{"the server makes a Unit", &user.DefaultInfo{Name: "system:apiserver"}, physical.Resource("units"), "", admission.Create, false},
		{"the server writes of a machine", &user.DefaultInfo{Name: "system:apiserver"}, talos.Resource("talosmachines"), "status", admission.Update, false},
		{"another group has units", &user.DefaultInfo{Name: "system:apiserver"}, schema.GroupResource{Group: "example.com", Resource: "units"}, "status", admission.Update, false},
		{"a user sends a command", &user.DefaultInfo{Name: alice}, physical.Resource("units"), "command", admission.Create, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "plant", "reactor", tc.resource.WithVersion("v1alpha1"), tc.subresource,
				tc.operation, nil, false, tc.user)
			for _, name := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"} {
				all := admission.NewHandler(admission.Create, admission.Update)
				if err := decorate(mutating{all}, name).(admission.MutationInterface).Admit(t.Context(), a, nil); (err == nil) != tc.spared {
					t.Errorf("%s mutates: %v", name, err)
				}
				if err := decorate(validating{all}, name).(admission.ValidationInterface).Validate(t.Context(), a, nil); (err == nil) != tc.spared {
					t.Errorf("%s validates: %v", name, err)
				}
				// What it does not do it does not do decorated.
				if err := decorate(mutating{all}, name).(admission.ValidationInterface).Validate(t.Context(), a, nil); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if _, still := decorate(validating{}, "UnitGuard").(validating); !still {
				t.Error("one of ours is decorated")
			}
		})
	}
}
