package unit

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
)

// attempts is how often a Unit that others write at the same time is decided on anew before others have their turn.
const attempts = 5

// runTimeout bounds the write that has a Unit run.
const runTimeout = 2 * time.Second

// reconcile decides on a Unit, stores what follows, and only then tells the runtime and whoever reads Events.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (work.Again, error) {
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
	for range attempts {
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
		switch {
		case apierrors.IsConflict(err):
			// Whoever came first is heard: what is stored now is decided on.
			conflict = err
			if f, err = c.liveFacts(ctx, key); err == nil {
				continue
			}
			return work.Again{}, ignoreNotFound(err)
		case err != nil:
			return work.Again{}, ignoreNotFound(err)
		}
		c.runtimes.Tell(key, orderOf(stored, f.runtime))
		return work.After(d.after), unread
	}
	return work.Again{}, conflict
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
	c.newestUnits.remember(stored)
	if before := unit.Status.State; before != stored.Status.State {
		klog.FromContext(ctx).Info("Unit", "before", before, "state", stored.Status.State)
	}
	for _, e := range d.events {
		c.recorder.Event(stored, e.eventType, e.reason, e.message)
	}
	return stored, nil
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
