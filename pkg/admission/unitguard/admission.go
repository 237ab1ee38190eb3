// Package unitguard asks for the verb override on units/command before a command passes over what holds a Unit (P-16c).
package unitguard

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
	"github.com/fieldplane/fieldplane/pkg/admission/permission"
)

const (
	// PluginName is the name under which the plugin is registered.
	PluginName = "UnitGuard"

	// Verb is the RBAC verb that is asked for, on units/command (P-16a, P-16c).
	Verb = "override"
	// Resource and Subresource are what the verb is asked on.
	Resource    = "units"
	Subresource = "command"
)

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Guard is the plugin.
type Guard struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.ValidationInterface       = &Guard{}
	_ initializer.WantsUncachedAuthorizer = &Guard{}
)

// New returns the plugin, to be initialized with an authorizer.
func New() *Guard {
	return &Guard{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// SetUncachedAuthorizer implements initializer.WantsUncachedAuthorizer.
func (g *Guard) SetUncachedAuthorizer(authz authorizer.UnconditionalAuthorizer) { g.authorizer = authz }

// ValidateInitialization implements admission.InitializationValidator.
func (g *Guard) ValidateInitialization() error {
	if g.authorizer == nil {
		return errors.New(PluginName + " needs an authorizer that is not cached")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (g *Guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == physical.Resource(Resource) && a.GetSubresource() == Subresource && a.GetOperation() == admission.Create {
		return g.validateCommand(ctx, a)
	}
	return nil
}

func (g *Guard) validateCommand(ctx context.Context, a admission.Attributes) error {
	command, ok := a.GetObject().(*physical.UnitCommand)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected a UnitCommand, have %T", PluginName, a.GetObject()))
	}
	if !command.Spec.Override {
		return nil
	}
	// The name is that of the path: the body need not have one.
	return permission.Require(ctx, g.authorizer, a, permission.Permission{
		Verb: Verb, Resource: Resource, Subresource: Subresource, Name: a.GetName(),
		To: fmt.Sprintf("%s Unit %q although a module that it requires is not Online (spec.override)", command.Spec.Command, a.GetName()),
	})
}
