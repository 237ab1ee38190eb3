// Package machineendpoint keeps the address that configuration is sent to inside the ranges that the cluster declares,
// except for users who may update talosmachines/endpoint (T-14).
package machineendpoint

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/informers"
	listers "github.com/fieldplane/fieldplane/generated/listers/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
	"github.com/fieldplane/fieldplane/pkg/admission/permission"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

const (
	// PluginName is the name under which the plugin is registered.
	PluginName = "MachineEndpoint"

	// Verb is the RBAC verb that an endpoint outside the declared ranges needs (T-14).
	Verb = "update"
	// Subresource is the subresource that the verb is asked on.
	Subresource = "endpoint"
)

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Endpoint is the plugin.
type Endpoint struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	server     initializer.ServerIdentity
	client     versioned.Interface
	clusters   listers.TalosClusterLister
	synced     cache.InformerSynced
}

var (
	_ admission.ValidationInterface        = &Endpoint{}
	_ initializer.WantsFieldplaneInformers = &Endpoint{}
	_ initializer.WantsFieldplaneClient    = &Endpoint{}
	_ initializer.WantsUncachedAuthorizer  = &Endpoint{}
	_ initializer.WantsServerIdentity      = &Endpoint{}
)

// New returns the plugin, to be initialized with an authorizer, the server's identity, and the TalosClusters.
func New() *Endpoint {
	return &Endpoint{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetFieldplaneInformers implements initializer.WantsFieldplaneInformers.
func (p *Endpoint) SetFieldplaneInformers(f informers.SharedInformerFactory) {
	clusters := f.Talos().V1alpha1().TalosClusters()
	p.clusters, p.synced = clusters.Lister(), clusters.Informer().HasSynced
}

// SetFieldplaneClient implements initializer.WantsFieldplaneClient.
func (p *Endpoint) SetFieldplaneClient(client versioned.Interface) { p.client = client }

// SetUncachedAuthorizer implements initializer.WantsUncachedAuthorizer.
func (p *Endpoint) SetUncachedAuthorizer(authz authorizer.UnconditionalAuthorizer) {
	p.authorizer = authz
}

// SetServerIdentity implements initializer.WantsServerIdentity.
func (p *Endpoint) SetServerIdentity(server initializer.ServerIdentity) { p.server = server }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Endpoint) ValidateInitialization() error {
	switch {
	case p.authorizer == nil:
		return errors.New(PluginName + " needs an authorizer that is not cached")
	case p.server.Empty():
		return errors.New(PluginName + " needs the server's identity")
	case p.client == nil || p.clusters == nil:
		return errors.New(PluginName + " needs a client and informers for the talos group")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *Endpoint) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != talos.Resource("talosmachines") {
		return nil
	}
	// A subresource that is created is a request, and no machine.
	if a.GetSubresource() != "" && a.GetOperation() == admission.Create {
		return nil
	}
	machine, ok := a.GetObject().(*talos.TalosMachine)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected a TalosMachine, have %T", PluginName, a.GetObject()))
	}
	if machine.Spec.Endpoint == "" {
		return nil
	}
	switch a.GetOperation() {
	case admission.Create:
		// Discovery answers for what it found: the ranges may have shrunk since its sweep began.
		if p.server.Is(a.GetUserInfo()) {
			return nil
		}
	case admission.Update:
		stored, ok := a.GetOldObject().(*talos.TalosMachine)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("%s: expected a stored TalosMachine, have %T", PluginName, a.GetOldObject()))
		}
		// Ranges may shrink; the machines keep their endpoints.
		if stored.Spec.Endpoint == machine.Spec.Endpoint {
			return nil
		}
	}

	declared, outside, lookupErr := p.declared(ctx, a.GetNamespace(), machine.Spec.ClusterRef.Name, machine.Spec.Endpoint)
	if declared {
		return nil
	}
	err := permission.Require(ctx, p.authorizer, a, permission.Permission{
		Verb: Verb, Subresource: Subresource, Name: machine.Name,
		To: fmt.Sprintf("set spec.endpoint to %q, %s", machine.Spec.Endpoint, outside),
	})
	if err != nil && lookupErr != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("could not read TalosCluster %q to see whether spec.endpoint %q is in its spec.discovery, try again: %v",
			machine.Spec.ClusterRef.Name, machine.Spec.Endpoint, lookupErr))
	}
	return err
}

// declared tells whether the cluster declares the endpoint, and if not, says so for a message. It believes the informer
// only when that says yes: the cluster may have been written, with the machine, an instant ago.
func (p *Endpoint) declared(ctx context.Context, namespace, name, endpoint string) (yes bool, outside string, err error) {
	if p.synced() {
		if cluster, err := p.clusters.TalosClusters(namespace).Get(name); err == nil && contains(cluster, endpoint) {
			return true, "", nil
		}
	}
	cluster, err := p.client.TalosV1alpha1().TalosClusters(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, fmt.Sprintf("since TalosCluster %q, which would have to declare it in spec.discovery, does not exist", name), nil
	case err != nil:
		return false, fmt.Sprintf("since TalosCluster %q could not be read", name), err
	case contains(cluster, endpoint):
		return true, "", nil
	}
	return false, fmt.Sprintf("which spec.discovery of TalosCluster %q does not declare", name), nil
}

// contains tells whether a cluster declares an endpoint; a declaration that is not valid declares nothing.
func contains(cluster *v1alpha1.TalosCluster, endpoint string) bool {
	set, err := ranges.Parse(cluster.Spec.Discovery.Addresses, cluster.Spec.Discovery.Cidrs)
	return err == nil && set.Contains(endpoint)
}
