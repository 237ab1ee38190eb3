package unitguard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// unit is as much of a Unit as the guard needs.
type unit struct {
	name     string
	state    physical.UnitState
	deleting bool
}

// unitOf is the Unit to which a stored ControlModule belongs, read live: an informer may lack the START of an instant ago.
func (g *Guard) unitOf(ctx context.Context, stored *physical.ControlModule, _ change) ([]unit, error) {
	found, err := g.client.PhysicalV1alpha1().Units(stored.Namespace).Get(ctx, stored.Spec.UnitRef.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []unit{brief(found)}, nil
}

// unitsThatRequire are the Units of which a tag is read from a stored IOModule, read live. If nothing but declared channels would
// change, those of tags at their addresses.
func (g *Guard) unitsThatRequire(ctx context.Context, stored *physical.IOModule, change change) ([]unit, error) {
	addresses, narrow := change.addresses()
	modules, err := g.client.PhysicalV1alpha1().ControlModules(stored.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for i := range modules.Items {
		spec := &modules.Items[i].Spec
		if slices.ContainsFunc(spec.Tags, func(tag v1alpha1.Tag) bool {
			return tag.IOModuleRef.Name == stored.Name && (!narrow || addresses.Has(tag.Address))
		}) {
			names.Insert(spec.UnitRef.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	all, err := g.client.PhysicalV1alpha1().Units(stored.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var units []unit
	for i := range all.Items {
		if names.Has(all.Items[i].Name) {
			units = append(units, brief(&all.Items[i]))
		}
	}
	return units, nil
}

func brief(u *v1alpha1.Unit) unit {
	return unit{u.Name, physical.UnitState(u.Status.State), u.DeletionTimestamp != nil}
}

// atWork leaves the Units that are not at rest, by name. One that is being deleted takes no command any more, and if it is
// not at rest whoever deleted it had the verb: its ControlModules may go with it.
func atWork(units []unit) []unit {
	units = slices.DeleteFunc(units, func(u unit) bool { return u.deleting || !isa88.Active(isa88.State(u.state)) })
	slices.SortFunc(units, func(a, b unit) int { return strings.Compare(a.name, b.name) })
	return units
}

// first is the list with one of its Units before all others.
func first(u unit, units []unit) []unit {
	return append([]unit{u}, slices.DeleteFunc(slices.Clone(units), func(other unit) bool { return other == u })...)
}

// change is what a write does to an object.
type change struct {
	kind, name string
	// fields are those that disarm; none for a deletion.
	fields []string
	// last tells that the last finalizer goes.
	last bool
}

// addresses are those of declared channels that change, and whether nothing else does.
func (c change) addresses() (addresses sets.Set[string], alone bool) {
	addresses = sets.New[string]()
	for _, field := range c.fields {
		address, ok := strings.CutPrefix(field, channels+"[")
		if !ok {
			return nil, false
		}
		addresses.Insert(strings.TrimSuffix(address, "]"))
	}
	return addresses, len(addresses) > 0 && !c.last
}

// to ends the sentence "needs the verb override to".
func (c change) to(units []unit) string {
	const most = 3
	var told []string
	for _, u := range units[:min(len(units), most)] {
		told = append(told, fmt.Sprintf("Unit %q is %s", u.name, u.state))
	}
	if more := len(units) - most; more > 0 {
		told = append(told, fmt.Sprintf("%d more are not at rest", more))
	}
	what := fmt.Sprintf("delete %s %q", c.kind, c.name)
	if len(c.fields) > 0 {
		what = fmt.Sprintf("change %s of %s %q", some(c.fields), c.kind, c.name)
	}
	return what + " while " + strings.Join(told, ", ")
}

func some(fields []string) string {
	const most = 4
	if len(fields) <= most {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:most], ", "), len(fields)-most)
}

func kindOf(obj runtime.Object) string {
	switch obj.(type) {
	case *physical.Unit:
		return "Unit"
	case *physical.ControlModule:
		return "ControlModule"
	default:
		return "IOModule"
	}
}
