package object_test

import (
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/randfill"

	physicalinstall "github.com/fieldplane/fieldplane/apis/physical/install"
	talosinstall "github.com/fieldplane/fieldplane/apis/talos/install"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/controller"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/controlmodule"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/iomodule"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/unit"
	"github.com/fieldplane/fieldplane/pkg/registry/talos/taloscluster"
	"github.com/fieldplane/fieldplane/pkg/registry/talos/talosmachine"
)

// now is when everything in these tests happens.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	physicalinstall.Install(scheme)
	talosinstall.Install(scheme)
	return scheme
}

// noStorage opens stores that have nowhere to keep anything: strategies and tables need no etcd.
type noStorage struct{}

func (noStorage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:  (&storagebackend.Config{}).ForResource(resource),
		ResourcePrefix: resource.Group + "/" + resource.Resource,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object,
			func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return nil, func() {}, nil
		},
	}, nil
}

// kind is one of our kinds as it is served.
type kind struct {
	// resource is the plural name in its group.
	resource schema.GroupResource
	gvk      schema.GroupVersionKind
	main     *object.REST
	// subresources are all that write a part of it, by name.
	subresources map[string]*object.Subresource
}

// kinds opens every kind.
func kinds(t *testing.T, scheme *runtime.Scheme) []kind {
	t.Helper()
	var all []kind
	for _, open := range []func(*runtime.Scheme, generic.RESTOptionsGetter, clock.PassiveClock) (map[string]rest.Storage, error){
		controller.NewStorage, controlmodule.NewStorage,
		taloscluster.NewStorage,
		func(scheme *runtime.Scheme, options generic.RESTOptionsGetter, _ clock.PassiveClock) (map[string]rest.Storage, error) {
			return unit.NewStorage(scheme, options, clocktesting.NewFakeClock(now), nil, nil)
		},
		func(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock) (map[string]rest.Storage, error) {
			return iomodule.NewStorage(scheme, options, clock, nil)
		},
		func(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock) (map[string]rest.Storage, error) {
			return talosmachine.NewStorage(scheme, options, clock, nil)
		},
	} {
		served, err := open(scheme, noStorage{}, clocktesting.NewFakePassiveClock(now))
		if err != nil {
			t.Fatal(err)
		}
		k := kind{subresources: map[string]*object.Subresource{}}
		for path, storage := range served {
			switch storage := storage.(type) {
			case *object.REST:
				k.main = storage
			case *object.Subresource:
				_, name, _ := strings.Cut(path, "/")
				k.subresources[name] = storage
			case *iomodule.Channels, *unit.Command, *unit.Tags, *taloscluster.Discover, *talosmachine.Reboot, *talosmachine.Config:
				// Nothing is written here by PUT, PATCH or apply.
			default:
				t.Fatalf("%s is served by a %T, of which no test here knows", path, storage)
			}
		}
		k.resource = k.main.DefaultQualifiedResource
		internal, _, err := scheme.ObjectKinds(k.main.New())
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range scheme.PrioritizedVersionsForGroup(k.resource.Group) {
			k.gvk = version.WithKind(internal[0].Kind)
		}
		all = append(all, k)
	}
	return all
}

// versions are all versions in which the kind is served.
func (k kind) versions(scheme *runtime.Scheme) []string {
	var served []string
	for _, version := range scheme.PrioritizedVersionsForGroup(k.gvk.Group) {
		if scheme.Recognizes(version.WithKind(k.gvk.Kind)) {
			served = append(served, version.String())
		}
	}
	return served
}

// strategies are those of the main resource ("") and of each subresource.
func (k kind) strategies() map[string]rest.RESTUpdateStrategy {
	all := map[string]rest.RESTUpdateStrategy{"": k.main.UpdateStrategy}
	for name, subresource := range k.subresources {
		all[name] = subresource.Strategy()
	}
	return all
}

// arbitrary makes objects in which everything may be set, the same ones on every run.
type arbitrary struct {
	fill interface{ Fill(any) }
}

func newArbitrary(scheme *runtime.Scheme, seed int64) arbitrary {
	// The library leaves times behind pointers nil.
	times := func(serializer.CodecFactory) []any {
		return []any{func(to **metav1.Time, c randfill.Continue) {
			*to = nil
			if c.Bool() {
				*to = &metav1.Time{Time: time.Unix(c.Int63n(1<<32), 0)}
			}
		}}
	}
	return arbitrary{fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, times), rand.NewSource(seed), serializer.NewCodecFactory(scheme))}
}

func (a arbitrary) object(k kind) object.Object {
	obj := k.main.New()
	a.fill.Fill(obj)
	return obj.(object.Object)
}

// versioned returns an object as a client sees it.
func versioned(t *testing.T, scheme *runtime.Scheme, k kind, obj runtime.Object) map[string]any {
	t.Helper()
	converted, err := scheme.ConvertToVersion(obj, k.gvk.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(converted)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// changes lists which members of metadata, spec and status differ, as "spec.role".
func changes(before, after map[string]any) []string {
	var changed []string
	for _, part := range []string{"metadata", "spec", "status"} {
		was, _ := before[part].(map[string]any)
		is, _ := after[part].(map[string]any)
		members := map[string]bool{}
		for name := range was {
			members[name] = true
		}
		for name := range is {
			members[name] = true
		}
		for name := range members {
			if !reflect.DeepEqual(was[name], is[name]) {
				changed = append(changed, part+"."+name)
			}
		}
	}
	slices.Sort(changed)
	return changed
}

// shared names the first memory that two values have in common, or is "".
func shared(a, b any) string {
	memory := map[uintptr]string{}
	walk(reflect.ValueOf(a), "", func(at uintptr, path string) { memory[at] = path })
	found := ""
	walk(reflect.ValueOf(b), "", func(at uintptr, path string) {
		if other, ok := memory[at]; ok && found == "" {
			found = fmt.Sprintf("%s and %s", other, path)
		}
	})
	return found
}

func walk(v reflect.Value, path string, visit func(uintptr, string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		// Time zones are the library's, and never written.
		if v.Type() == reflect.TypeFor[*time.Location]() {
			return
		}
		if v.Type().Elem().Size() > 0 {
			visit(v.Pointer(), path)
		}
		walk(v.Elem(), path, visit)
	case reflect.Interface:
		walk(v.Elem(), path, visit)
	case reflect.Map:
		if v.Len() > 0 {
			visit(v.Pointer(), path)
		}
		for _, key := range v.MapKeys() {
			walk(v.MapIndex(key), path+"["+key.String()+"]", visit)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			visit(v.Pointer(), path)
		}
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	}
}

func TestThatSharedMemoryWouldBeFound(t *testing.T) {
	name := "x"
	type part struct{ Name *string }
	type whole struct {
		Parts  []part
		Labels map[string]string
	}
	one := &whole{Parts: []part{{Name: &name}}, Labels: map[string]string{"a": "b"}}
	if got := shared(one, &whole{Parts: []part{{Name: &name}}}); got == "" {
		t.Error("a shared pointer was not found")
	}
	if got := shared(one, &whole{Labels: one.Labels}); got == "" {
		t.Error("a shared map was not found")
	}
	if got := shared(one, &whole{Parts: one.Parts}); got == "" {
		t.Error("a shared slice was not found")
	}
	other := "x"
	if got := shared(one, &whole{Parts: []part{{Name: &other}}, Labels: maps.Clone(one.Labels)}); got != "" {
		t.Errorf("equal values share nothing, found %s", got)
	}
}
