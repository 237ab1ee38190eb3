// Package spared keeps what others have configured in the host cluster, policies and webhooks, from what the server itself writes
// into the status of Units and IOModules (P-16): a webhook that does not answer, or a policy that is wrong about us, would
// otherwise keep a fault from being stored, or a Unit from being held. What users write they judge as ever.
package spared

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	mutatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

// From returns what makes each plugin that others configure leave alone what the server itself writes.
func From(server initializer.ServerIdentity) admission.Decorator {
	return admission.DecoratorFunc(func(handler admission.Interface, name string) admission.Interface {
		switch name {
		case mutatingadmissionpolicy.PluginName, mutatingwebhook.PluginName, validatingadmissionpolicy.PluginName, validatingwebhook.PluginName:
			return &sparing{Interface: handler, server: server}
		default:
			return handler
		}
	})
}

// sparing is a plugin that does not see some requests.
type sparing struct {
	admission.Interface
	server initializer.ServerIdentity
}

var (
	_ admission.MutationInterface   = &sparing{}
	_ admission.ValidationInterface = &sparing{}
)

// Admit implements admission.MutationInterface.
func (s *sparing) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := s.Interface.(admission.MutationInterface)
	if !ok || s.spares(a) {
		return nil
	}
	return mutating.Admit(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (s *sparing) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	validating, ok := s.Interface.(admission.ValidationInterface)
	if !ok || s.spares(a) {
		return nil
	}
	return validating.Validate(ctx, a, o)
}

// spares tells whether a request is the server's own to the status that holds hang on.
func (s *sparing) spares(a admission.Attributes) bool {
	if a.GetSubresource() != "status" || a.GetOperation() != admission.Update || !s.server.Is(a.GetUserInfo()) {
		return false
	}
	resource := a.GetResource().GroupResource()
	return resource == physical.Resource("units") || resource == physical.Resource("iomodules")
}
