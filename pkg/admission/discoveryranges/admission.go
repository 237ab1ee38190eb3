// Package discoveryranges refuses discovery ranges that are too wide or not IPv4 (T-01), and configuration patches that
// rendering would not accept (T-15).
package discoveryranges

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

// PluginName is the name under which the plugin is registered.
const PluginName = "DiscoveryRanges"

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Ranges is the plugin.
type Ranges struct{ *admission.Handler }

var _ admission.ValidationInterface = &Ranges{}

// New returns the plugin, which needs nothing else.
func New() *Ranges {
	return &Ranges{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (r *Ranges) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != talos.Resource("talosclusters") || a.GetSubresource() != "" {
		return nil
	}
	cluster, ok := a.GetObject().(*talos.TalosCluster)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected a TalosCluster, have %T", PluginName, a.GetObject()))
	}
	if stored, ok := a.GetOldObject().(*talos.TalosCluster); ok && equality.Semantic.DeepEqual(stored.Spec.Discovery, cluster.Spec.Discovery) {
		return nil
	}
	if errs := discovery(&cluster.Spec.Discovery); len(errs) > 0 {
		return apierrors.NewInvalid(talos.Kind("TalosCluster"), cluster.Name, errs)
	}
	return nil
}

// discovery checks what is declared, entry by entry (T-01).
func discovery(declared *talos.TalosDiscovery) field.ErrorList {
	var errs field.ErrorList
	for _, entry := range ranges.Validate(declared.Addresses, declared.Cidrs) {
		path := field.NewPath("spec", "discovery", entry.List)
		if entry.Index >= 0 {
			path = path.Index(entry.Index)
		}
		errs = append(errs, field.Invalid(path, entry.Value, entry.Rule))
	}
	return errs
}
