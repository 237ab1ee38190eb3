// Package apis_test holds what is true of every kind of both groups.
package apis_test

import (
	"math/rand"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/fieldplane/fieldplane/apis/physical"
	physicalinstall "github.com/fieldplane/fieldplane/apis/physical/install"
	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos"
	talosinstall "github.com/fieldplane/fieldplane/apis/talos/install"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	physicalinstall.Install(scheme)
	talosinstall.Install(scheme)
	return scheme
}

// kinds are all kinds, as served.
func kinds() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, kind := range []string{"IOModule", "Controller", "ControlModule", "Unit"} {
		all = append(all, physicalv1alpha1.SchemeGroupVersion.WithKind(kind))
	}
	for _, kind := range []string{"TalosCluster", "TalosMachine"} {
		all = append(all, talosv1alpha1.SchemeGroupVersion.WithKind(kind))
	}
	return all
}

// defaulted fills an internal object and gives it the defaults that every object has that was ever read.
func defaulted[T runtime.Object](scheme *runtime.Scheme, version schema.GroupVersion) func(T, randfill.Continue) {
	return func(obj T, c randfill.Continue) {
		c.FillNoCustom(obj)
		served, err := scheme.ConvertToVersion(obj, version)
		if err != nil {
			panic(err)
		}
		scheme.Default(served)
		internal, err := scheme.ConvertToVersion(served, schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal})
		if err != nil {
			panic(err)
		}
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(internal).Elem())
	}
}

func fuzzers(scheme *runtime.Scheme) fuzzer.FuzzerFuncs {
	return func(serializer.CodecFactory) []any {
		return []any{
			// The library leaves times behind pointers nil.
			func(to **metav1.Time, c randfill.Continue) {
				*to = nil
				if c.Bool() {
					*to = &metav1.Time{Time: time.Unix(c.Int63n(1<<32), 0)}
				}
			},
			defaulted[*physical.IOModule](scheme, physicalv1alpha1.SchemeGroupVersion),
			defaulted[*physical.Controller](scheme, physicalv1alpha1.SchemeGroupVersion),
			defaulted[*physical.ControlModule](scheme, physicalv1alpha1.SchemeGroupVersion),
			defaulted[*physical.Unit](scheme, physicalv1alpha1.SchemeGroupVersion),
			defaulted[*talos.TalosCluster](scheme, talosv1alpha1.SchemeGroupVersion),
			defaulted[*talos.TalosMachine](scheme, talosv1alpha1.SchemeGroupVersion),
		}
	}
}

// Req. What is stored is what comes back, as JSON and as protobuf, in every version.
func TestEveryKindSurvivesJSONAndProtobuf(t *testing.T) {
	for _, install := range []func(*runtime.Scheme){physicalinstall.Install, talosinstall.Install} {
		roundtrip.RoundTripProtobufTestForAPIGroup(t, install, fuzzers(newScheme()))
	}
}

// Req: A-01
func TestEveryKindSurvivesYAML(t *testing.T) {
	scheme := newScheme()
	codecs := serializer.NewCodecFactory(scheme)
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	if !ok {
		t.Fatal("no YAML")
	}
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzers(scheme)), rand.NewSource(1), codecs)
	for _, gvk := range kinds() {
		t.Run(gvk.Kind, func(t *testing.T) {
			internal := schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal}
			codec := codecs.CodecForVersions(info.Serializer, info.Serializer, gvk.GroupVersion(), internal)
			for range 50 {
				obj, err := scheme.New(internal.WithKind(gvk.Kind))
				if err != nil {
					t.Fatal(err)
				}
				filler.Fill(obj)
				text, err := runtime.Encode(codec, obj)
				if err != nil {
					t.Fatal(err)
				}
				back, err := runtime.Decode(codec, text)
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				clear := func(obj runtime.Object) { obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) }
				clear(obj)
				clear(back)
				if !apiequality.Semantic.DeepEqual(obj, back) {
					t.Fatalf("changed by\n%s", text)
				}
			}
		})
	}
}
