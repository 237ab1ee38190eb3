package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	baseversion "k8s.io/component-base/version"

	fieldplaneversion "github.com/fieldplane/fieldplane/pkg/version"
)

// ComponentName is this server among the components whose versions and feature gates are registered.
const ComponentName = "fieldplane"

// NewComponentGlobals registers our version and feature gates beside those of
// the Kubernetes libraries, which keep their own.
func NewComponentGlobals() (compatibility.ComponentGlobalsRegistry, error) {
	registry := compatibility.NewComponentGlobalsRegistry()
	ours := version.MustParse(fieldplaneversion.Minor)
	kube := version.MustParse(baseversion.DefaultKubeBinaryVersion)

	// The aggregator multiplexes every user over one HTTP/2 connection. Cutting
	// it for one anonymous request cuts everybody's watches.
	gates := utilfeature.DefaultMutableFeatureGate
	// The gates are the process's, and accept no other default once they were made into flags.
	if gates.Enabled(genericfeatures.UnauthenticatedHTTP2DOSMitigation) {
		if err := gates.OverrideDefault(genericfeatures.UnauthenticatedHTTP2DOSMitigation, false); err != nil {
			return nil, fmt.Errorf("feature gates: %w", err)
		}
	}
	if err := registry.Register(compatibility.DefaultKubeComponent,
		compatibility.NewEffectiveVersionFromString(kube.String(), "", ""), gates); err != nil {
		return nil, fmt.Errorf("register the Kubernetes libraries: %w", err)
	}
	if err := registry.Register(ComponentName,
		compatibility.NewEffectiveVersionFromString(ours.String(), "", ""), featuregate.NewVersionedFeatureGate(ours)); err != nil {
		return nil, fmt.Errorf("register %s: %w", ComponentName, err)
	}
	if err := registry.SetVersionMapping(ComponentName, compatibility.DefaultKubeComponent,
		func(*version.Version) *version.Version { return kube }); err != nil {
		return nil, fmt.Errorf("map versions of %s: %w", ComponentName, err)
	}
	return registry, nil
}

// RequiredFeatures are gates without which this server would not be what it
// promises; a start with one of them off is refused.
func RequiredFeatures() []featuregate.Feature {
	return []featuregate.Feature{
		genericfeatures.WatchList,
		genericfeatures.MutatingAdmissionPolicy,
		genericfeatures.DeclarativeValidation,
		genericfeatures.RemoteRequestHeaderUID,
	}
}
