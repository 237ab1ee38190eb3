package discovery

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
)

// upkeep writes what needs no machine to be asked: that a cluster is not swept, and why; and which machines share
// hardware, those registered by hand included.
type upkeep struct {
	*Controller

	queue workqueue.TypedRateLimitingInterface[chore]
}

// chore is one object to look after.
type chore struct {
	machine bool
	key     types.NamespacedName
}

func newUpkeep(c *Controller) *upkeep {
	return &upkeep{Controller: c, queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[chore](),
		workqueue.TypedRateLimitingQueueConfig[chore]{Name: "discovery", Clock: c.clock},
	)}
}

func (u *upkeep) cluster(key types.NamespacedName) { u.queue.Add(chore{key: key}) }

// gather is how long the machines that share hardware with one are left: many may come at once.
const gather = 100 * time.Millisecond

// handler has a machine looked at when it comes or changes, and the later ones that share hardware with it when it comes or
// goes: what it is never changes.
func (u *upkeep) handler() cache.ResourceEventHandlerFuncs {
	one := func(machine *v1alpha1.TalosMachine) { u.queue.Add(chore{machine: true, key: nameOf(machine)}) }
	all := func(machine *v1alpha1.TalosMachine) {
		one(machine)

		later := make(map[types.NamespacedName]bool)

		for _, part := range parts(machine) {
			for _, other := range u.with(part) {
				if key := nameOf(other); !later[key] && hardware.Earlier(machine, other) {
					later[key] = true
					u.queue.AddAfter(chore{machine: true, key: key}, gather)
				}
			}
		}
	}

	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if machine, ok := obj.(*v1alpha1.TalosMachine); ok {
				all(machine)
			}
		},
		UpdateFunc: func(before, after any) {
			was, okWas := before.(*v1alpha1.TalosMachine)
			is, okIs := after.(*v1alpha1.TalosMachine)

			switch {
			case !okWas || !okIs:
			case was.UID != is.UID: // another one took the name, which the watch missed
				all(was)
				all(is)
			default:
				one(is)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}

			if machine, ok := obj.(*v1alpha1.TalosMachine); ok {
				all(machine)
			}
		},
	}
}

// run does what is queued until the queue is shut down.
func (u *upkeep) run(ctx context.Context) {
	for {
		item, shutdown := u.queue.Get()
		if shutdown {
			return
		}

		do := u.tellUnswept
		if item.machine {
			do = u.tellSharing
		}

		switch err := do(ctx, item.key); {
		case err == nil || ctx.Err() != nil:
			u.queue.Forget(item)
		case apierrors.IsConflict(err):
			u.queue.AddRateLimited(item)
		default:
			klog.FromContext(ctx).Error(err, "Status not written")
			u.queue.AddRateLimited(item)
		}

		u.queue.Done(item)
	}
}
