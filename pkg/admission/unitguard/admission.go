// Package unitguard asks for the verb override on units/command before a command passes over what holds a Unit (P-16c), and
// before anything is changed that would keep a fault from holding a Unit that is not at rest (P-16a).
package unitguard

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/admission/goingaway"
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
	client     versioned.Interface
	server     initializer.ServerIdentity
	goingaway.Namespaces
}

var (
	_ admission.ValidationInterface                       = &Guard{}
	_ initializer.WantsUncachedAuthorizer                 = &Guard{}
	_ initializer.WantsFieldplaneClient                   = &Guard{}
	_ initializer.WantsServerIdentity                     = &Guard{}
	_ genericinitializer.WantsExternalKubeClientSet       = &Guard{}
	_ genericinitializer.WantsExternalKubeInformerFactory = &Guard{}
)

// New returns the plugin, to be initialized with an authorizer, clients for our kinds and for the host's namespaces, and the
// server's identity.
func New() *Guard {
	return &Guard{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// SetUncachedAuthorizer implements initializer.WantsUncachedAuthorizer.
func (g *Guard) SetUncachedAuthorizer(authz authorizer.UnconditionalAuthorizer) { g.authorizer = authz }

// SetFieldplaneClient implements initializer.WantsFieldplaneClient.
func (g *Guard) SetFieldplaneClient(client versioned.Interface) { g.client = client }

// SetServerIdentity implements initializer.WantsServerIdentity.
func (g *Guard) SetServerIdentity(server initializer.ServerIdentity) { g.server = server }

// ValidateInitialization implements admission.InitializationValidator.
func (g *Guard) ValidateInitialization() error {
	switch {
	case g.authorizer == nil:
		return errors.New(PluginName + " needs an authorizer that is not cached")
	case g.client == nil:
		return errors.New(PluginName + " needs a client for the physical group")
	case g.server.Empty():
		return errors.New(PluginName + " needs the server's identity")
	case !g.Initialized():
		return errors.New(PluginName + " needs a client and an informer for namespaces")
	}
	return nil
}

// Validate implements admission.ValidationInterface. It compares what is stored with what would be, after mutation and the
// strategy, and so holds on every path alike. The request of a deletecollection names no object, and asks here once for each.
func (g *Guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if a.GetSubresource() != "" {
		if resource == physical.Resource(Resource) && a.GetSubresource() == Subresource && a.GetOperation() == admission.Create {
			return g.validateCommand(ctx, a)
		}
		// No other subresource of ours writes a spec.
		return nil
	}
	// What is new disarms nothing.
	if a.GetOperation() == admission.Create || g.server.Is(a.GetUserInfo()) {
		return nil
	}
	switch resource {
	case physical.Resource("units"):
		return guard(ctx, g, a, disarmUnit, func(_ context.Context, stored *physical.Unit, _ change) ([]unit, error) {
			return []unit{{stored.Name, stored.Status.State, stored.DeletionTimestamp != nil}}, nil
		})
	case physical.Resource("controlmodules"):
		return guard(ctx, g, a, disarmControlModule, g.unitOf)
	case physical.Resource("iomodules"):
		return guard(ctx, g, a, disarmIOModule, g.unitsThatRequire)
	}
	return nil
}

// validateCommand guards what a command passes over.
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

// guarded is a kind that a change or a deletion of disarms Units by.
type guarded interface {
	runtime.Object
	metav1.Object
}

// guard asks for the verb on every Unit that a write would disarm and that is not at rest. disarms lists what an update does
// that disarms; a deletion always does.
func guard[T guarded](ctx context.Context, g *Guard, a admission.Attributes, disarms func(stored, updated T) []string,
	concerned func(ctx context.Context, stored T, change change) ([]unit, error),
) error {
	stored, ok := a.GetOldObject().(T)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected a stored %T, have %T", PluginName, stored, a.GetOldObject()))
	}
	change := change{kind: kindOf(stored), name: stored.GetName()}
	if a.GetOperation() == admission.Update {
		updated, ok := a.GetObject().(T)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("%s: expected a %T, have %T", PluginName, updated, a.GetObject()))
		}
		change.fields = disarms(stored, updated)
		// Taking the last finalizer from an object that is being deleted is what deletes it.
		change.last = stored.GetDeletionTimestamp() != nil && len(stored.GetFinalizers()) > 0 && len(updated.GetFinalizers()) == 0
		if len(change.fields) == 0 && !change.last {
			return nil
		}
	}
	deletes := a.GetOperation() == admission.Delete || change.last && len(change.fields) == 0
	if deletes && g.GoingAwayByInformer(a.GetNamespace()) {
		return nil
	}
	units, err := concerned(ctx, stored, change)
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("could not see which Units would be disarmed by a write to %s %s/%s, try again: %v", change.kind, a.GetNamespace(), change.name, err))
	}
	if units = atWork(units); len(units) == 0 {
		return nil
	}
	refusal := g.require(ctx, a, change, units)
	if refusal == nil || !deletes {
		return refusal
	}
	going, err := g.GoingAway(ctx, a.GetNamespace())
	switch {
	case going:
		return nil
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%v; could not see whether namespace %q is going away, try again: %v", refusal, a.GetNamespace(), err))
	}
	return refusal
}

// require asks for the verb on each Unit: first on all of the namespace, which most who have it have.
func (g *Guard) require(ctx context.Context, a admission.Attributes, change change, units []unit) error {
	need := permission.Permission{Verb: Verb, Resource: Resource, Subresource: Subresource, Object: change.name, To: change.to(units)}
	if len(units) > 1 {
		if err := permission.Require(ctx, g.authorizer, a, need); err == nil || !apierrors.IsForbidden(err) {
			return err
		}
	}
	for _, unit := range units {
		need.Name, need.To = unit.name, change.to(first(unit, units))
		if err := permission.Require(ctx, g.authorizer, a, need); err != nil {
			return err
		}
	}
	return nil
}
