package unit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/controlmodule"
)

// fewModules are as many as are read one by one; of a Unit that requires more, all of the namespace are listed.
const fewModules = 64

// cachedFacts are what the caches know of a Unit, or what was read and written since.
func (c *Controller) cachedFacts(unit *v1alpha1.Unit) (facts, error) {
	names := c.required.of(keyOf(unit))
	modules := make([]module, 0, len(names))
	for _, name := range names {
		stored, err := c.modules.IOModules(unit.Namespace).Get(name)
		switch {
		case apierrors.IsNotFound(err):
			modules = append(modules, module{name: name})
			continue
		case err != nil:
			return facts{}, err
		}
		modules = append(modules, c.see(c.newestModules.of(stored)))
	}
	return c.factsOf(unit, modules), nil
}

// liveFacts are what the store has: the Unit first, so that all of the rest is from after the command that it carries (P-16c).
func (c *Controller) liveFacts(ctx context.Context, key types.NamespacedName) (facts, error) {
	unit, err := c.client.Units(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return facts{}, err
	}
	c.newestUnits.remember(unit)
	controlModules, err := c.client.ControlModules(key.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(v1alpha1.ControlModuleUnitRef, key.Name).String(),
	})
	if err != nil {
		return facts{}, fmt.Errorf("ControlModules of Unit %s: %w", key, err)
	}
	names := map[string]bool{}
	var invalid []string
	for i := range controlModules.Items {
		controlModule := &controlModules.Items[i]
		is := contributed(controlModule)
		if is.unit != key {
			continue
		}
		for _, name := range is.modules {
			names[name] = true
		}
		if c := meta.FindStatusCondition(controlModule.Status.Conditions, controlmodule.ConditionReferencesResolved); c != nil && c.Reason == controlmodule.ReasonTagInvalid {
			invalid = append(invalid, fmt.Sprintf("ControlModule %s: %s", controlModule.Name, c.Message))
		}
	}
	stored, err := c.readModules(ctx, key.Namespace, names)
	if err != nil {
		return facts{}, fmt.Errorf("IOModules of Unit %s: %w", key, err)
	}
	var modules []module
	for _, name := range slices.Sorted(maps.Keys(names)) {
		is := module{name: name}
		if m := stored[name]; m != nil {
			c.newestModules.remember(m)
			is = c.see(m)
			is.confirmed = is.state == v1alpha1.ModuleOnline && c.evidence.Confirmed(types.NamespacedName{Namespace: key.Namespace, Name: name}, m.UID)
		}
		modules = append(modules, is)
	}
	f := c.factsOf(unit, modules)
	f.live, f.invalid = true, invalid
	return f, nil
}

// readModules reads those of the named modules that there are.
func (c *Controller) readModules(ctx context.Context, namespace string, names map[string]bool) (map[string]*v1alpha1.IOModule, error) {
	found := make(map[string]*v1alpha1.IOModule, len(names))
	if len(names) > fewModules {
		list, err := c.client.IOModules(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if m := &list.Items[i]; names[m.Name] {
				found[m.Name] = m
			}
		}
		return found, nil
	}
	for name := range names {
		m, err := c.client.IOModules(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			found[name] = m
		}
	}
	return found, nil
}

// see are the facts of a stored module, and for how long it has been Unknown.
func (c *Controller) see(m *v1alpha1.IOModule) module {
	is := moduleOf(m)
	if is.state == v1alpha1.ModuleUnknown {
		is.unknownFor = c.modulesSeen.age(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, as{m.UID, string(is.state), seconds(is.since)})
	}
	return is
}

func (c *Controller) factsOf(unit *v1alpha1.Unit, modules []module) facts {
	f := facts{
		unit: unit, modules: modules, now: metav1.NewTime(c.wall()), newEpisode: c.newEpisode,
		inState: c.unitsSeen.age(keyOf(unit), as{unit.UID, string(unit.Status.State), seconds(unit.Status.LastTransitionTime)}),
	}
	f.runtime.report, f.runtime.pod, f.runtime.inContact = c.runtimes.Report(keyOf(unit))
	f.runtime.awaited = !f.runtime.inContact && c.clock.Since(c.began) < awaitLimit
	return f
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}
