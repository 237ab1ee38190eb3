// Package statuswriters keeps the status of units, iomodules, talosclusters and talosmachines in the hands of the server's
// own controllers: whoever could write it could hide a fault or end a hold, or make the server bootstrap a second
// etcd, send a configuration again, or show an approver other hardware than is there (T-18).
package statuswriters

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

// PluginName is the name under which the plugin is registered.
const PluginName = "StatusWriters"

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Writers is the plugin.
type Writers struct {
	*admission.Handler
	server initializer.ServerIdentity
}

var (
	_ admission.ValidationInterface   = &Writers{}
	_ initializer.WantsServerIdentity = &Writers{}
)

// New returns the plugin, to be initialized with the server's identity.
func New() *Writers {
	return &Writers{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetServerIdentity implements initializer.WantsServerIdentity.
func (w *Writers) SetServerIdentity(server initializer.ServerIdentity) { w.server = server }

// ValidateInitialization implements admission.InitializationValidator.
func (w *Writers) ValidateInitialization() error {
	if w.server.Empty() {
		return errors.New(PluginName + " needs the server's identity")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (w *Writers) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "status" {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case physical.Resource("units"), physical.Resource("iomodules"), talos.Resource("talosclusters"), talos.Resource("talosmachines"):
	default:
		return nil
	}
	if w.server.Is(a.GetUserInfo()) {
		return nil
	}
	resource := a.GetResource().GroupResource()
	return apierrors.NewForbidden(resource, a.GetName(),
		fmt.Errorf("the status of %s is written by the fieldplane server's own controllers alone", resource.Resource))
}
