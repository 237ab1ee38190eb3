package apiserver

import (
	"slices"
	"testing"

	genericfeatures "k8s.io/apiserver/pkg/features"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	baseversion "k8s.io/component-base/version"

	fieldplaneversion "github.com/fieldplane/fieldplane/pkg/version"
)

// A version stamped into the libraries, or taken for theirs, silently turns gates off.
//
// Req
func TestTheLibrariesKeepTheirOwnVersionAndGates(t *testing.T) {
	components, err := NewComponentGlobals()
	if err != nil {
		t.Fatal(err)
	}
	if err := components.Set(); err != nil {
		t.Fatal(err)
	}
	if errs := components.Validate(); len(errs) > 0 {
		t.Errorf("%v", errs)
	}
	if errs := genericoptions.NewServerRunOptionsForComponent(ComponentName, components).Validate(); len(errs) > 0 {
		t.Errorf("%v", errs)
	}

	kube := components.EffectiveVersionFor(compatibility.DefaultKubeComponent)
	if got := kube.BinaryVersion().String(); got != baseversion.DefaultKubeBinaryVersion {
		t.Errorf("the libraries run as %s, want %s", got, baseversion.DefaultKubeBinaryVersion)
	}
	if kube.EmulationVersion().String() != kube.BinaryVersion().String() {
		t.Errorf("the libraries emulate %s", kube.EmulationVersion())
	}
	if got := components.EffectiveVersionFor(ComponentName).BinaryVersion().String(); got != fieldplaneversion.Minor {
		t.Errorf("the server runs as %s, want %s", got, fieldplaneversion.Minor)
	}

	gates := components.FeatureGateFor(compatibility.DefaultKubeComponent)
	required := RequiredFeatures()
	for _, feature := range required {
		if !gates.Enabled(feature) {
			t.Errorf("%s is off", feature)
		}
	}
	for _, feature := range []featuregate.Feature{genericfeatures.WatchList, genericfeatures.MutatingAdmissionPolicy, genericfeatures.DeclarativeValidation} {
		if !slices.Contains(required, feature) {
			t.Errorf("a start without %s is not refused", feature)
		}
	}
	if gates.Enabled(genericfeatures.UnauthenticatedHTTP2DOSMitigation) {
		t.Error("one anonymous request would cut everybody's watches: UnauthenticatedHTTP2DOSMitigation is on")
	}
}
