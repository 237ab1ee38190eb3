// Package work takes keys off a queue and has each reconciled, one reconcile at a time for each, as the controllers of
// machines and clusters do.
package work

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Queue holds the keys that wait.
type Queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// NewQueue returns a queue whose pauses between failing reconciles of a key grow from the first to the last.
func NewQueue(name string, first, last time.Duration, c clock.WithTicker) Queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](first, last),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: name, Clock: c},
	)
}

// Again is when a key is looked at again by itself; its zero value waits until something changes.
type Again struct {
	after   time.Duration
	backoff bool
}

// After looks again after a while.
func After(pause time.Duration) Again { return Again{after: pause} }

// Backoff looks again soon, and ever less often.
func Backoff() Again { return Again{backoff: true} }

// Workers reconcile the keys of a queue.
type Workers struct {
	// Kind is what the keys name, for the log.
	Kind string
	// Count is how many keys are reconciled at once, Timeout what one reconcile may take.
	Count   int
	Timeout time.Duration
	// Reconcile brings what a key names as far as it goes. After an error it is tried again by Backoff.
	Reconcile func(context.Context, types.NamespacedName) (Again, error)
}

// Run reconciles until the context is over, and returns when nothing of it runs any more. The queue is shut down then.
func (w Workers) Run(ctx context.Context, q Queue) {
	var running sync.WaitGroup

	for range w.Count {
		running.Go(func() {
			for w.next(ctx, q) {
			}
		})
	}

	<-ctx.Done()
	q.ShutDown()
	running.Wait()
}

func (w Workers) next(ctx context.Context, q Queue) bool {
	key, shutdown := q.Get()
	if shutdown {
		return false
	}

	defer q.Done(key)

	if ctx.Err() != nil {
		return true // only drains the queue
	}

	logger := klog.FromContext(ctx).WithValues(w.Kind, key)

	reconcileCtx, cancel := context.WithTimeout(klog.NewContext(ctx, logger), w.Timeout)
	defer cancel()

	again, err := w.Reconcile(reconcileCtx, key)

	switch {
	case apierrors.IsConflict(err):
		logger.V(2).Info("Changed meanwhile: tried again", "err", err)
		q.AddRateLimited(key)
	case err != nil && ctx.Err() == nil:
		logger.Error(err, "Reconcile failed")
		q.AddRateLimited(key)
	case err != nil: // it was stopped
	case again.backoff:
		q.AddRateLimited(key)
	default:
		q.Forget(key)

		if again.after > 0 {
			q.AddAfter(key, again.after)
		}
	}

	return true
}
