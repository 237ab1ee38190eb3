package object_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func selectable(k kind) []string {
	declared, ok := physicalv1alpha1.SelectableFields()[k.gvk.Kind]
	if !ok {
		declared = talosv1alpha1.SelectableFields()[k.gvk.Kind]
	}
	all := append([]string{"metadata.name", "metadata.namespace"}, declared...)
	slices.Sort(all)
	return all
}

// Req: A-08. A field that the version accepts and the store does not know would silently select nothing.
func TestTheStoreSelectsByExactlyTheDeclaredFields(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		objects := newArbitrary(scheme, 8)
		attributes := k.main.PredicateFunc(labels.Everything(), fields.Everything()).GetAttrs
		for range tries {
			obj := objects.object(k)
			obj.SetName("n")
			obj.SetNamespace("plant")
			gotLabels, gotFields, err := attributes(obj)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(gotLabels, labels.Set(obj.GetLabels())) {
				t.Fatalf("labels %v, want %v", gotLabels, obj.GetLabels())
			}
			if got := slices.Sorted(maps.Keys(gotFields)); !slices.Equal(got, selectable(k)) {
				t.Fatalf("selects by %v, declared are %v", got, selectable(k))
			}
			content := versioned(t, scheme, k, obj)
			for path, got := range gotFields {
				want := ""
				if value, found, _ := unstructured.NestedFieldNoCopy(content, strings.Split(path, ".")...); found {
					want = fmt.Sprint(value)
				} else if path == talosv1alpha1.MachineApprovedField {
					want = "false" // as admission and the controllers take an absent value
				}
				if got != want {
					t.Fatalf("%s is %q, the object says %q", path, got, want)
				}
			}
		}
	})
}

// Req: A-08
func TestTheServedVersionsAcceptExactlyTheDeclaredFields(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		for _, path := range selectable(k) {
			label, value, err := scheme.ConvertFieldLabel(k.gvk, path, "x")
			if err != nil || label != path || value != "x" {
				t.Errorf("%s=x becomes %s=%s, %v", path, label, value, err)
			}
		}
		for _, path := range []string{"spec", "status", "spec.paused", "metadata.uid", "spec.endpoint", "", "name"} {
			_, _, err := scheme.ConvertFieldLabel(k.gvk, path, "x")
			if err == nil {
				t.Errorf("%q is accepted", path)
				continue
			}
			for _, known := range selectable(k) {
				if !strings.Contains(err.Error(), known) {
					t.Errorf("refusing %q does not say that %s can be used: %v", path, known, err)
				}
			}
		}
	})
}

func TestAnObjectOfAnotherKindHasNoAttributes(t *testing.T) {
	scheme := newScheme()
	all := kinds(t, scheme)
	for i, k := range all {
		other := all[(i+1)%len(all)]
		if _, _, err := k.main.PredicateFunc(labels.Everything(), fields.Everything()).GetAttrs(other.main.New()); err == nil {
			t.Errorf("%s takes a %s", k.gvk.Kind, other.gvk.Kind)
		}
	}
}
