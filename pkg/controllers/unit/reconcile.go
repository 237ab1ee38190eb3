package unit

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// attempts is how often a Unit that others write at the same time is decided on anew before others have their turn.
const attempts = 5

// holdAttempts is how often a hold is decided on against commands that come meanwhile, before it waits for its turn again.
const holdAttempts = 50

// runTimeout bounds the write that has a Unit run.
const runTimeout = 2 * time.Second

// reconcile decides on a Unit, stores what follows, and only then tells the runtime and whoever reads Events.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (work.Again, error) {
	defer c.announcements.tellUnlessUrgent()
	cached, err := c.units.Units(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget(key)
		return work.Again{}, nil
	}
	if err != nil {
		return work.Again{}, err
	}
	f, err := c.cachedFacts(c.newestUnits.of(cached))
	if err != nil {
		return work.Again{}, err
	}
	var conflict error
	for attempt := 0; attempt < attempts; attempt++ {
		d := decide(f)
		var unread error
		if d.readLive {
			live, err := c.liveFacts(ctx, key)
			if apierrors.IsNotFound(err) {
				return work.Again{}, nil // the cache will say so
			}
			if unread = err; err == nil {
				f, d = live, decide(live)
			}
		}
		stored, err := c.store(ctx, f.unit, d)
		if apierrors.IsConflict(err) && d.holds(f.unit) {
			// Whoever writes to the Unit without a pause must not keep it running. What holds it was true a moment ago, and need not be
			// read again for that.
			if f, d, stored, err = c.holdAnyway(ctx, f, d, err); err == nil && stored == nil {
				conflict = nil
				continue // it is not to be held any more
			}
		}
		switch {
		case apierrors.IsConflict(err):
			// Whoever came first is heard: what is stored now is decided on.
			conflict = err
			if f, err = c.liveFacts(ctx, key); err == nil {
				continue
			}
			return work.Again{}, ignoreNotFound(err)
		case err != nil:
			if d.holds(f.unit) && !apierrors.IsNotFound(err) {
				// The runtime hears no more that it may run: from api.Contact on it holds by itself if it has lost the device too (P-16b).
				c.runtimes.Forget(key)
			}
			return work.Again{}, ignoreNotFound(err)
		}
		if order := orderOf(stored, f.runtime); isa88.Holdable(order.State) && c.storeMisses(f) {
			// As if the server were away: it cannot hold, and the runtime does if it loses the device too (P-16b).
			c.runtimes.Forget(key)
		} else {
			c.runtimes.Tell(key, order)
		}
		return work.After(d.after), unread
	}
	if conflict == nil {
		return work.Backoff(), nil
	}
	return work.Again{}, conflict
}

// storeMisses tells whether the store may lack a fault of a module that the Unit requires: it does not answer, or takes none.
func (c *Controller) storeMisses(f facts) bool {
	return c.storeSilent.Load() || slices.ContainsFunc(f.modules, func(m module) bool {
		return c.evidence.Unstored(types.NamespacedName{Namespace: f.unit.Namespace, Name: m.name})
	})
}

// holds tells whether a decision takes a Unit that could go on out of harm.
func (d decision) holds(unit *v1alpha1.Unit) bool {
	is := isa88.State(d.status.State)
	return isa88.State(unit.Status.State) != is && (is == isa88.Holding || is == isa88.Stopping || is == isa88.Aborting)
}

// holdAnyway stores a hold that met a conflict by a patch, which the server applies to whatever is stored by then: who
// writes labels, or values, without a pause would else come first again and again. Without an error and without a stored Unit, what is
// stored now is no longer to be held: it is among the facts.
func (c *Controller) holdAnyway(ctx context.Context, f facts, d decision, err error) (facts, decision, *v1alpha1.Unit, error) {
	for range holdAttempts {
		patch, failed := patchOf(f.unit, d.status)
		if failed != nil {
			return f, d, nil, failed
		}
		var stored *v1alpha1.Unit
		stored, err = c.client.Units(f.unit.Namespace).Patch(ctx, f.unit.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil {
			c.tell(ctx, f.unit, stored, d)
			return f, d, stored, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return f, d, nil, err
		}
		// Its state is another, or another command came.
		unit, failed := c.client.Units(f.unit.Namespace).Get(ctx, f.unit.Name, metav1.GetOptions{})
		if failed != nil {
			return f, d, nil, failed
		}
		c.newestUnits.remember(unit)
		live := f.live
		f = c.factsOf(unit, f.modules)
		// The modules were read before this Unit was, which is enough to hold it, and not to have it run (P-16c).
		f.live = live
		if d = decide(f); !d.holds(unit) {
			f.live = false
			return f, d, nil, nil
		}
	}
	return f, d, nil, err
}

// patchOf turns the status of a Unit into one that was decided on, if the Unit is still the same, and in the same state, and if the
// command that the decision answers is still the last. All that others write of a status stays.
func patchOf(unit *v1alpha1.Unit, status v1alpha1.UnitStatus) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	test := func(path string, value any) operation { return operation{"test", path, value} }
	set := func(path string, value any) operation { return operation{"add", path, value} }
	patch := []operation{
		test("/metadata/uid", unit.UID),
		test("/status/state", unit.Status.State),
		set("/status/state", status.State),
		set("/status/lastTransitionTime", status.LastTransitionTime),
		set("/status/hold", status.Hold),
		set("/status/overridden", status.Overridden),
		set("/status/mode", status.Mode),
		set("/status/conditions", status.Conditions),
		set("/status/runtimePodName", status.RuntimePodName),
		set("/status/observedGeneration", status.ObservedGeneration),
	}
	if was := unit.Status.LastCommand; was != nil && !equality.Semantic.DeepEqual(was, status.LastCommand) {
		patch = append(patch, test("/status/lastCommand/id", was.ID), test("/status/lastCommand/outcome", was.Outcome), set("/status/lastCommand", status.LastCommand))
	}
	return json.Marshal(patch)
}

// store writes the status if it has changed, against the resourceVersion that was decided on.
func (c *Controller) store(ctx context.Context, unit *v1alpha1.Unit, d decision) (*v1alpha1.Unit, error) {
	if equality.Semantic.DeepEqual(d.status, unit.Status) {
		return unit, nil
	}
	if is := d.status.State; is != unit.Status.State && (is == v1alpha1.UnitRunning || is == v1alpha1.UnitRestarting) {
		// What was read for it is soon too old, and a write that hangs is not to arrive then.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, runTimeout)
		defer cancel()
	}
	updated := unit.DeepCopy()
	updated.Status = d.status
	stored, err := c.client.Units(unit.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	c.tell(ctx, unit, stored, d)
	return stored, nil
}

// tell tells what was stored.
func (c *Controller) tell(ctx context.Context, unit, stored *v1alpha1.Unit, d decision) {
	c.newestUnits.remember(stored)
	if before := unit.Status.State; before != stored.Status.State {
		klog.FromContext(ctx).Info("Unit", "before", before, "state", stored.Status.State)
	}
	c.announcements.add(stored, d.events)
}

// forget leaves nothing of a Unit that is gone.
func (c *Controller) forget(key types.NamespacedName) {
	c.runtimes.Forget(key)
	c.newestUnits.forget(key)
	c.unitsSeen.forget(key)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
