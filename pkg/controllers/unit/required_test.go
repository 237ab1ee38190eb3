package unit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

func nn(name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }

func tagged(name, unit string, modules ...string) *v1alpha1.ControlModule {
	c := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.ControlModuleSpec{UnitRef: v1alpha1.UnitReference{Name: unit}}}
	for i, m := range modules {
		c.Spec.Tags = append(c.Spec.Tags, v1alpha1.Tag{Name: fmt.Sprint(i), IOModuleRef: v1alpha1.IOModuleReference{Name: m}})
	}
	return c
}

// Req: P-14, P-16
func TestWhichModulesAUnitRequires(t *testing.T) {
	r := newRequired()
	step := func(what string, concerned []types.NamespacedName, want []string, units map[string][]string, modules map[string][]string) {
		t.Helper()
		var names []string
		for _, c := range concerned {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s concerns %v, want %v", what, names, want)
		}
		for unit, want := range units {
			if got := r.of(nn(unit)); !slices.Equal(got, want) {
				t.Errorf("%s: %s requires %v, want %v", what, unit, got, want)
			}
		}
		for module, want := range modules {
			var got []string
			for _, u := range r.unitsOf(nn(module)) {
				got = append(got, u.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s concerns %v, want %v", what, module, got, want)
			}
		}
	}
	step("a ControlModule", r.set(tagged("a", "reactor", "level", "flow", "flow")), []string{"reactor"},
		map[string][]string{"reactor": {"flow", "level"}}, map[string][]string{"flow": {"reactor"}, "level": {"reactor"}})
	step("the same again", r.set(tagged("a", "reactor", "flow", "level")), nil, map[string][]string{"reactor": {"flow", "level"}}, nil)
	step("another of the same Unit", r.set(tagged("b", "reactor", "flow", "valve")), []string{"reactor"}, map[string][]string{"reactor": {"flow", "level", "valve"}}, nil)
	step("one of another Unit", r.set(tagged("c", "mixer", "flow")), []string{"mixer"}, map[string][]string{"mixer": {"flow"}}, map[string][]string{"flow": {"mixer", "reactor"}})
	step("the first moves", r.set(tagged("a", "mixer", "level")), []string{"mixer", "reactor"},
		map[string][]string{"reactor": {"flow", "valve"}, "mixer": {"flow", "level"}}, map[string][]string{"level": {"mixer"}})
	step("the second goes", r.remove(nn("b")), []string{"reactor"}, map[string][]string{"reactor": nil}, map[string][]string{"valve": nil, "flow": {"mixer"}})
	step("it goes again", r.remove(nn("b")), nil, nil, nil)
	elsewhere := tagged("a", "reactor", "flow")
	elsewhere.Namespace = "site-south"
	r.set(elsewhere)
	step("another site", nil, nil, map[string][]string{"reactor": nil}, map[string][]string{"flow": {"mixer"}})
	for _, key := range []types.NamespacedName{nn("a"), nn("c"), keyOf(elsewhere)} {
		r.remove(key)
	}
	if len(r.controlModules)+len(r.units)+len(r.modules)+len(r.sorted) > 0 {
		t.Errorf("something is left: %+v", r)
	}
}

// Req: P-16
func TestTheIndexIsTheSameAsALookAtAllControlModules(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := newRequired()
	all := map[string]*v1alpha1.ControlModule{}
	for range 5000 {
		name := fmt.Sprint("c", random.IntN(6))
		if random.IntN(4) == 0 {
			delete(all, name)
			r.remove(nn(name))
		} else {
			var modules []string
			for range random.IntN(4) {
				modules = append(modules, fmt.Sprint("m", random.IntN(5)))
			}
			all[name] = tagged(name, fmt.Sprint("u", random.IntN(3)), modules...)
			r.set(all[name])
		}
		for u := range 3 {
			unit := fmt.Sprint("u", u)
			var want []string
			for _, c := range all {
				if c.Spec.UnitRef.Name == unit {
					want = append(want, contributed(c).modules...)
				}
			}
			slices.Sort(want)
			want = slices.Compact(want)
			if got := r.of(nn(unit)); !slices.Equal(got, want) {
				t.Fatalf("%s requires %v, want %v", unit, got, want)
			}
			for m := range 5 {
				module := fmt.Sprint("m", m)
				if concerns := slices.Contains(r.unitsOf(nn(module)), nn(unit)); concerns != slices.Contains(want, module) {
					t.Fatalf("%s concerns %s: %v", module, unit, concerns)
				}
			}
		}
	}
}
