package object_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// tries is how many arbitrary objects each rule is tried with.
const tries = 60

// request is the context in which the handlers call a strategy.
func request(k kind, verb, subresource string) context.Context {
	ctx := genericapirequest.WithNamespace(context.Background(), "plant")
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "ada"})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: k.gvk.Group, APIVersion: k.gvk.Version,
		Namespace: "plant", Resource: k.resource.Resource, Subresource: subresource, Name: "n",
	})
}

func each(t *testing.T, test func(t *testing.T, scheme *runtime.Scheme, k kind)) {
	t.Helper()
	scheme := newScheme()
	for _, k := range kinds(t, scheme) {
		t.Run(k.gvk.Kind, func(t *testing.T) { test(t, scheme, k) })
	}
}

func part(obj runtime.Object, name string) any {
	return reflect.ValueOf(obj).Elem().FieldByName(name).Interface()
}

// Req: A-05
func TestNothingThatIsCreatedBringsItsOwnStatus(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		objects := newArbitrary(scheme, 1)
		for range tries {
			obj, empty := objects.object(k), k.main.New().(object.Object)
			if machine, ok := obj.(*talos.TalosMachine); ok {
				// What follows from an approval is tested beside the kind.
				machine.Spec.Approved, machine.Spec.Rejected = nil, nil
			}
			spec := reflect.ValueOf(part(obj.DeepCopyObject(), "Spec")).Interface()
			k.main.CreateStrategy.PrepareForCreate(request(k, "create", ""), obj)
			k.main.CreateStrategy.PrepareForCreate(request(k, "create", ""), empty)
			if got, want := part(obj, "Status"), part(empty, "Status"); !apiequality.Semantic.DeepEqual(got, want) {
				t.Fatalf("status %+v, want the initial %+v", got, want)
			}
			if !apiequality.Semantic.DeepEqual(part(obj, "Spec"), spec) {
				t.Fatal("the spec was changed")
			}
			if obj.GetGeneration() != 1 {
				t.Fatalf("generation %d, want 1", obj.GetGeneration())
			}
		}
	})
}

// written says which members a write to a resource changes, when everything in the object that is sent differs from
// what is stored.
func written(k kind, subresource string) func(member string) bool {
	in := func(list ...string) func(string) bool {
		return func(member string) bool { return slices.Contains(list, member) }
	}
	switch subresource {
	case "":
		// Labels and the like are what a main resource's metadata is for; the server's own are not the strategy's.
		return func(member string) bool { return !strings.HasPrefix(member, "status.") }
	case "status":
		return func(member string) bool { return strings.HasPrefix(member, "status.") }
	case "endpoint":
		return in("spec.endpoint")
	case "approval":
		return in("spec.approved", "spec.rejected", "spec.role", "spec.nodeLabels", "spec.nodeTaints", "spec.install",
			"spec.diskRoles", "spec.network", "spec.acceptedFingerprint", "spec.acceptUnverifiedFingerprint",
			"spec.acceptSharedHardware")
	}
	panic(fmt.Sprintf("%s/%s has no rule here", k.resource, subresource))
}

// follows are what the server itself writes beside what was asked for.
func follows(k kind, subresource, member string) bool {
	switch {
	case member == "metadata.managedFields", member == "metadata.resourceVersion", member == "metadata.generation":
		return true
	case k.gvk.Kind == "TalosMachine" && subresource != "status":
		return member == "status.approval" || member == "status.phase"
	}
	return false
}

// Req: A-05. Whatever is sent, a write changes the members of its own resource and no other's.
func TestAWriteChangesOnlyWhatItsResourceCarries(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		for subresource, strategy := range k.strategies() {
			t.Run("/"+subresource, func(t *testing.T) {
				objects := newArbitrary(scheme, 2)
				mayChange := written(k, subresource)
				changed := map[string]bool{}
				for range tries {
					stored, updated := objects.object(k), objects.object(k)
					before, sent := stored.DeepCopyObject().(object.Object), updated.DeepCopyObject().(object.Object)
					strategy.PrepareForUpdate(request(k, "update", subresource), updated, stored)

					if !apiequality.Semantic.DeepEqual(stored, before) {
						t.Fatal("the stored object was changed")
					}
					if memory := shared(updated, stored); memory != "" {
						t.Fatalf("the new object shares memory with the stored one, which the watch cache holds: %s", memory)
					}
					for _, member := range changes(versioned(t, scheme, k, stored), versioned(t, scheme, k, updated)) {
						if !mayChange(member) && !follows(k, subresource, member) {
							t.Fatalf("%s was changed", member)
						}
						changed[member] = true
					}
					// What the handler and the field manager have put there must arrive.
					if subresource != "" && (!reflect.DeepEqual(updated.GetManagedFields(), sent.GetManagedFields()) ||
						updated.GetResourceVersion() != sent.GetResourceVersion()) {
						t.Fatal("the record of managed fields or the version that the writer saw was lost")
					}
				}
				for _, member := range changes(map[string]any{}, versioned(t, scheme, k, filled(k))) {
					if !strings.HasPrefix(member, "metadata.") && mayChange(member) && !changed[member] && !(subresource == "status" && member == "status.approval") {
						t.Errorf("%s was never changed, and a write here carries it", member)
					}
				}
			})
		}
	})
}

// filled is an object in which every member is set.
func filled(k kind) runtime.Object {
	obj := k.main.New()
	fill(reflect.ValueOf(obj).Elem(), 0)
	return obj
}

func fill(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64, reflect.Float32:
		v.SetFloat(7.5)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		entry := reflect.New(v.Type().Elem()).Elem()
		fill(entry, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), entry)
	case reflect.Struct:
		if when, ok := v.Addr().Interface().(*metav1.Time); ok {
			*when = metav1.NewTime(now)
			return
		}
		if when, ok := v.Addr().Interface().(*metav1.MicroTime); ok {
			*when = metav1.NewMicroTime(now)
			return
		}
		if v.Type() == reflect.TypeFor[metav1.FieldsV1]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "TypeMeta" {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// Req: A-05. Server-side apply must know the same of each resource as its strategy: an applier owns what his apply can
// change, and nothing that it cannot.
func TestAnApplierOwnsExactlyWhatHisWriteCarries(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		content := versioned(t, scheme, k, filled(k))
		all := fieldpath.SetFromValue(value.NewValueInterface(content))
		filters := map[string]map[fieldpath.APIVersion]fieldpath.Filter{
			"": fieldpath.NewExcludeFilterSetMap(k.main.GetResetFields()),
		}
		for name, subresource := range k.subresources {
			filters[name] = subresource.GetResetFieldsFilter()
		}
		for subresource, versions := range filters {
			var known []string
			for version := range versions {
				known = append(known, string(version))
			}
			slices.Sort(known)
			if served := k.versions(scheme); !slices.Equal(known, served) {
				t.Errorf("/%s: reset fields are known for %v, served are %v", subresource, known, served)
			}
			for version, filter := range versions {
				owned := map[string]bool{}
				for path := range filter.Filter(all).Leaves().All() {
					owned[member(path)] = true
				}
				for path := range all.Leaves().All() {
					name := member(path)
					if !strings.Contains(name, ".") || subresource == "" && strings.HasPrefix(name, "metadata.") {
						continue
					}
					if want := written(k, subresource)(name); owned[name] != want {
						t.Errorf("/%s in %s: an apply that sets %s owns it: %v, want %v", subresource, version, name, owned[name], want)
					}
				}
			}
		}
	})
}

// member is the first two elements of a path, as "spec.role".
func member(path fieldpath.Path) string {
	if len(path) > 2 {
		path = path[:2]
	}
	return strings.TrimPrefix(path.String(), ".")
}

// Req: A-05
func TestTheGenerationCountsChangesOfTheSpecAlone(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		for subresource, strategy := range k.strategies() {
			objects := newArbitrary(scheme, 3)
			for range tries {
				stored, updated := objects.object(k), objects.object(k)
				stored.SetGeneration(5)
				updated.SetGeneration(99)
				strategy.PrepareForUpdate(request(k, "update", subresource), updated, stored)
				want := int64(5)
				if !apiequality.Semantic.DeepEqual(part(updated, "Spec"), part(stored, "Spec")) {
					want = 6
				}
				if updated.GetGeneration() != want {
					t.Fatalf("/%s: generation %d, want %d", subresource, updated.GetGeneration(), want)
				}

				// The same spec again, with everything else different.
				same := objects.object(k)
				reflect.ValueOf(same).Elem().FieldByName("Spec").Set(reflect.ValueOf(part(stored.DeepCopyObject(), "Spec")))
				strategy.PrepareForUpdate(request(k, "update", subresource), same, stored)
				if same.GetGeneration() != 5 {
					t.Fatalf("/%s: generation %d after a write that left the spec alone, want 5", subresource, same.GetGeneration())
				}
			}
		}
	})
}

// A subresource that the generated rules do not know is refused as an internal error, which would make the whole
// subresource unusable.
//
// Req
func TestTheGeneratedRulesKnowEveryServedSubresource(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		for subresource, strategy := range k.strategies() {
			stored := named(k.main.New().(object.Object))
			updated := stored.DeepCopyObject()
			errs := rest.ValidateUpdate(request(k, "update", subresource), updated, stored, strategy)
			for _, err := range errs {
				if err.Type == field.ErrorTypeInternal {
					t.Errorf("/%s: %v", subresource, err)
				}
			}
			if _, ok := strategy.(rest.DeclarativeValidationStrategy); !ok {
				t.Errorf("/%s is not validated by the generated rules", subresource)
			}
		}
		// The check above would not notice if rules were never run.
		broken := rest.ValidateUpdate(request(k, "update", "nowhere"), named(k.main.New().(object.Object)), named(k.main.New().(object.Object)), k.main.UpdateStrategy)
		if !slices.ContainsFunc(broken, func(err *field.Error) bool { return err.Type == field.ErrorTypeInternal }) {
			t.Error("an unknown subresource is not refused: the generated rules did not run")
		}
		errs := validateNew(k, named(k.main.New().(object.Object)))
		for _, err := range errs {
			if err.Type == field.ErrorTypeInternal {
				t.Errorf("create: %v", err)
			}
		}
	})
}

func named(obj object.Object) object.Object {
	obj.SetName("n")
	obj.SetNamespace("plant")
	obj.SetUID("u")
	obj.SetResourceVersion("1")
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(now))
	return obj
}

func validateNew(k kind, obj runtime.Object) field.ErrorList {
	ctx := request(k, "create", "")
	errs := k.main.CreateStrategy.Validate(ctx, obj)
	declarative := k.main.CreateStrategy.(rest.DeclarativeValidationStrategy)
	return declarative.ValidateDeclaratively(ctx, obj, nil, errs, operation.Create, declarative.DeclarativeValidationConfig(ctx, obj, nil))
}

// Nobody overwrites what he has not seen, creates by a PUT, or writes beyond his namespace.
//
// Req: T-13
func TestWhatEveryStrategyRefuses(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		for subresource, strategy := range k.strategies() {
			if strategy.AllowUnconditionalUpdate(t.Context()) {
				t.Errorf("/%s: a PUT without resourceVersion overwrites", subresource)
			}
			if strategy.AllowCreateOnUpdate(t.Context()) {
				t.Errorf("/%s: a PUT creates", subresource)
			}
			if !strategy.NamespaceScoped() {
				t.Errorf("/%s is not namespaced", subresource)
			}
		}
	})
}

// Req
// Req: A-04
func TestAnObjectWithThousandsOfErrorsIsToldAFew(t *testing.T) {
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		for subresource, strategy := range k.strategies() {
			declarative := strategy.(rest.DeclarativeValidationStrategy)
			validate := func(n int) field.ErrorList {
				errs := field.ErrorList{}
				for i := range n {
					errs = append(errs, field.Invalid(field.NewPath("spec", "list").Index(i), i, "must be otherwise"))
				}
				obj := named(k.main.New().(object.Object))
				ctx := request(k, "update", subresource)
				return declarative.ValidateDeclaratively(ctx, obj, obj, errs, operation.Update, declarative.DeclarativeValidationConfig(ctx, obj, obj))
			}

			// The generated rules find errors of their own in an empty object.
			own := len(validate(0))
			if few := validate(10); len(few) != 10+own {
				t.Errorf("/%s: %d of %d errors are told", subresource, len(few), 10+own)
			}
			many := validate(100_000)
			if len(many) != 65 {
				t.Fatalf("/%s: %d errors are told", subresource, len(many))
			}
			if rest := many[64].Error(); !strings.HasSuffix(rest, fmt.Sprintf("and %d more errors", 100_000-64+own)) {
				t.Errorf("/%s: the last one is %q", subresource, rest)
			}
		}
	})
}

func TestEveryKindIsServedWithAStatusUnderItsNames(t *testing.T) {
	short := map[string]string{}
	each(t, func(t *testing.T, _ *runtime.Scheme, k kind) {
		if _, ok := k.subresources["status"]; !ok {
			t.Error("no status subresource")
		}
		if got := k.main.Categories(); !slices.Equal(got, []string{"fieldplane"}) {
			t.Errorf("categories %v, want fieldplane", got)
		}
		if k.main.GetSingularName() != strings.ToLower(k.gvk.Kind) || k.resource.Resource != strings.ToLower(k.gvk.Kind)+"s" {
			t.Errorf("served as %s and %s", k.resource.Resource, k.main.GetSingularName())
		}
		for _, name := range k.main.ShortNames() {
			if other, taken := short[name]; taken {
				t.Errorf("short name %s is also that of %s", name, other)
			}
			short[name] = k.gvk.Kind
		}
		for name, subresource := range k.subresources {
			if reflect.TypeOf(subresource.New()) != reflect.TypeOf(k.main.New()) {
				t.Errorf("/%s takes a %T", name, subresource.New())
			}
			// Both at once is refused when the group is installed, and the main resource's would then be applied here.
			if _, ok := any(subresource).(rest.ResetFieldsStrategy); ok {
				t.Errorf("/%s has the main resource's reset fields beside its own filter", name)
			}
		}
	})
}
