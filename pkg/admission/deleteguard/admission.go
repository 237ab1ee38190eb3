// Package deleteguard refuses to delete an approved TalosMachine, or a TalosCluster that has one, until it is
// un-approved: what runs would be left without an owner. A namespace that is going away takes all with it (T-17).
package deleteguard

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/admission/approvedmachines"
	"github.com/fieldplane/fieldplane/pkg/admission/goingaway"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

// PluginName is the name under which the plugin is registered.
const PluginName = "DeleteGuard"

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Guard is the plugin.
type Guard struct {
	*admission.Handler
	client versioned.Interface
	goingaway.Namespaces
}

var (
	_ admission.ValidationInterface                       = &Guard{}
	_ initializer.WantsFieldplaneClient                   = &Guard{}
	_ genericinitializer.WantsExternalKubeClientSet       = &Guard{}
	_ genericinitializer.WantsExternalKubeInformerFactory = &Guard{}
)

// New returns the plugin, to be initialized with clients for our kinds and for the host's namespaces.
func New() *Guard {
	return &Guard{Handler: admission.NewHandler(admission.Delete)}
}

// SetFieldplaneClient implements initializer.WantsFieldplaneClient.
func (g *Guard) SetFieldplaneClient(client versioned.Interface) { g.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (g *Guard) ValidateInitialization() error {
	switch {
	case g.client == nil:
		return errors.New(PluginName + " needs a client for the talos group")
	case !g.Initialized():
		return errors.New(PluginName + " needs a client and an informer for namespaces")
	}
	return nil
}

// Validate implements admission.ValidationInterface. The object is the stored one: the request of a deletecollection
// names none, and asks here once for each.
func (g *Guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	var (
		name    string
		refusal error
		err     error
	)
	switch a.GetResource().GroupResource() {
	case talos.Resource("talosmachines"):
		machine, ok := a.GetOldObject().(*talos.TalosMachine)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("%s: expected a stored TalosMachine, have %T", PluginName, a.GetOldObject()))
		}
		name = machine.Name
		if ptr.Deref(machine.Spec.Approved, false) {
			refusal = errors.New("spec.approved is true: an approved machine cannot be deleted; take the approval back first: kubectl fieldplane unapprove machine " + name)
		}
	case talos.Resource("talosclusters"):
		cluster, ok := a.GetOldObject().(*talos.TalosCluster)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("%s: expected a stored TalosCluster, have %T", PluginName, a.GetOldObject()))
		}
		name = cluster.Name
		if g.GoingAwayByInformer(cluster.Namespace) {
			return nil
		}
		if refusal, err = g.approvedMachines(ctx, cluster); err != nil {
			return apierrors.NewServiceUnavailable(fmt.Sprintf("could not list the machines of TalosCluster %s/%s to see whether one is approved, try again: %v", cluster.Namespace, name, err))
		}
	}
	if refusal == nil {
		return nil
	}

	going, err := g.GoingAway(ctx, a.GetNamespace())
	switch {
	case going:
		return nil
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%s %q: %v; could not see whether namespace %q is going away, try again: %v",
			a.GetResource().Resource, name, refusal, a.GetNamespace(), err))
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), name, refusal)
}

// approvedMachines returns why the cluster cannot be deleted, or nil.
func (g *Guard) approvedMachines(ctx context.Context, cluster *talos.TalosCluster) (refusal, err error) {
	approved, err := approvedmachines.Of(ctx, g.client, cluster.Namespace, cluster.Name)
	if err != nil || len(approved) == 0 {
		return nil, err
	}
	return fmt.Errorf("its machines with spec.approved true must be un-approved first: %s", approvedmachines.Told(approved)), nil
}
