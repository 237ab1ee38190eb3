// Package discoveryranges refuses discovery ranges that are too wide or not IPv4 (T-01), and configuration patches and
// versions that rendering would not accept (T-15).
package discoveryranges

import (
	"context"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
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

// Validate implements admission.ValidationInterface. What does not change is not checked again: a server that learned a
// new rule must not make the objects of its predecessor unwritable.
func (r *Ranges) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	var (
		kind string
		name string
		errs field.ErrorList
	)
	// A subresource that is created is a request, and no machine or cluster.
	if a.GetSubresource() != "" && a.GetOperation() == admission.Create {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case talos.Resource("talosclusters"):
		cluster, ok := a.GetObject().(*talos.TalosCluster)
		if !ok {
			return unexpected(a)
		}
		stored, ok := a.GetOldObject().(*talos.TalosCluster)
		if !ok {
			stored = &talos.TalosCluster{}
		}
		kind, name = "TalosCluster", cluster.Name
		if !equality.Semantic.DeepEqual(stored.Spec.Discovery, cluster.Spec.Discovery) {
			errs = discovery(&cluster.Spec.Discovery)
		}
		errs = append(errs, versions(&stored.Spec, &cluster.Spec)...)
		errs = append(errs, patches(stored.Spec.ConfigPatches, cluster.Spec.ConfigPatches)...)
	case talos.Resource("talosmachines"):
		machine, ok := a.GetObject().(*talos.TalosMachine)
		if !ok {
			return unexpected(a)
		}
		stored, ok := a.GetOldObject().(*talos.TalosMachine)
		if !ok {
			stored = &talos.TalosMachine{}
		}
		kind, name = "TalosMachine", machine.Name
		errs = patches(stored.Spec.ConfigPatches, machine.Spec.ConfigPatches)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(talos.Kind(kind), name, errs)
	}
	return nil
}

func unexpected(a admission.Attributes) error {
	return apierrors.NewInternalError(fmt.Errorf("%s: unexpected object %T for %s", PluginName, a.GetObject(), a.GetResource().Resource))
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

// versions checks that Talos and Kubernetes go together. The error stands at the version of Kubernetes, since that of Talos
// cannot be changed.
func versions(stored, wanted *talos.TalosClusterSpec) field.ErrorList {
	if stored.TalosVersion == wanted.TalosVersion && stored.KubernetesVersion == wanted.KubernetesVersion {
		return nil
	}
	if err := render.ValidateVersions(wanted.TalosVersion, wanted.KubernetesVersion); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "kubernetesVersion"), wanted.KubernetesVersion, err.Error())}
	}
	return nil
}

// patches checks each configuration patch that was not there before. The error does not repeat the patch, which may hold
// what nobody else should read, a registry's password for one.
func patches(stored, wanted []string) field.ErrorList {
	var errs field.ErrorList
	for i, patch := range wanted {
		if slices.Contains(stored, patch) {
			continue
		}
		if err := render.ValidatePatch([]byte(patch)); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "configPatches").Index(i), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}
