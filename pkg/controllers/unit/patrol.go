package unit

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// patrolPeriod is how long a Unit may run on a stored fault that no watch tells of.
const patrolPeriod = 15 * time.Second

// patrols looks at the store itself, again and again: a watch that has died tells nobody that it has. While the store does not
// answer, no fault is stored in it either: no runtime is told then that all is well, so that one that loses a device holds by
// itself (P-16b).
func (c *Controller) patrols(ctx context.Context) {
	ticker := c.clock.NewTicker(patrolPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		err := c.patrol(ctx)
		if ctx.Err() != nil {
			return
		}
		was := c.storeSilent.Swap(err != nil)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The store could not be looked at past the watches; until it can, runtimes are told nothing")
			c.every(c.runtimes.Forget)
		} else if was {
			c.every(c.queue.Add)
		}
	}
}

// every does something for each Unit that the cache has.
func (c *Controller) every(do func(types.NamespacedName)) {
	units, err := c.units.List(labels.Everything())
	if err != nil {
		return
	}
	for _, unit := range units {
		do(keyOf(unit))
	}
}

// patrol has every Unit decided on that is stored in a Holdable state and requires a module that is stored as anything but Online, by
// what is stored and not by the caches. Tags it takes from a cache.
func (c *Controller) patrol(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	modules, err := c.client.IOModules(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermNotEqualSelector(v1alpha1.IOModuleState, string(v1alpha1.ModuleOnline)).String(),
	})
	if err != nil {
		return fmt.Errorf("IOModules: %w", err)
	}
	concerned := map[types.NamespacedName]bool{}
	for i := range modules.Items {
		m := &modules.Items[i]
		if m.Status.State == v1alpha1.ModuleOnline {
			continue
		}
		units := c.required.unitsOf(keyOf(m))
		if len(units) > 0 {
			c.newestModules.remember(m)
		}
		for _, unit := range units {
			concerned[unit] = true
		}
	}
	if len(concerned) == 0 {
		return nil
	}
	units, err := c.client.Units(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermNotEqualSelector(v1alpha1.UnitStateField, string(v1alpha1.UnitIdle)),
			fields.OneTermNotEqualSelector(v1alpha1.UnitStateField, string(v1alpha1.UnitHeld)),
		).String(),
	})
	if err != nil {
		return fmt.Errorf("units: %w", err)
	}
	for i := range units.Items {
		unit := &units.Items[i]
		if key := keyOf(unit); concerned[key] && isa88.Holdable(stateOf(unit)) {
			c.newestUnits.remember(unit)
			c.urgency.mark(key)
			c.queue.Add(key)
		}
	}
	return nil
}
