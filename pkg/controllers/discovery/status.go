package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

// ConditionDiscoveryReady tells whether the declared ranges are swept, and why not.
const ConditionDiscoveryReady = "DiscoveryReady"

// reasonRegistrationFailed is the one reason for which it is False although the ranges are swept.
const reasonRegistrationFailed = "RegistrationFailed"

// writeTimeout bounds the writing of a cluster's status, with all attempts.
const writeTimeout = 10 * time.Second

// readiness returns the candidates of a cluster, and as a condition whether they are to be asked.
func readiness(cluster *v1alpha1.TalosCluster) ([]netip.Addr, metav1.Condition) {
	not := func(reason, message string) ([]netip.Addr, metav1.Condition) {
		return nil, metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}

	set, err := ranges.Parse(cluster.Spec.Discovery.Addresses, cluster.Spec.Discovery.Cidrs)

	switch {
	case err != nil:
		// Admission refuses such a declaration; it was stored before a rule was made.
		return not("InvalidRanges", fmt.Sprintf("spec.discovery.%v", err))
	case set.Empty():
		return not("NoRanges", "spec.discovery declares nothing: no connection is ever opened")
	case cluster.Spec.Paused:
		return not("Paused", "spec.paused stops discovery")
	}

	return set.Candidates(), metav1.Condition{Status: metav1.ConditionTrue, Reason: "Sweeping", Message: "the declared ranges are swept"}
}

// sweeps tells whether there is anything to ask.
func sweeps(cluster *v1alpha1.TalosCluster) bool {
	_, ready := readiness(cluster)

	return ready.Status == metav1.ConditionTrue && cluster.DeletionTimestamp.IsZero()
}

func (c *Controller) setCondition(cluster *v1alpha1.TalosCluster, condition metav1.Condition) {
	condition.Type = ConditionDiscoveryReady
	condition.ObservedGeneration = cluster.Generation
	condition.LastTransitionTime = metav1.NewTime(c.clock.Now())
	condition.Message = notice.Bounded(condition.Message)

	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
}

// progressInterval is how often a running sweep's progress is written at most. A periodic sweep that is over by then is
// written once, at its end (T-10).
const progressInterval = 2 * time.Second

// requestedAt is when a sweep was last asked for by a user; zero when none was.
func requestedAt(cluster *v1alpha1.TalosCluster) time.Time {
	if discovery := cluster.Status.Discovery; discovery != nil && discovery.RequestedAt != nil {
		return discovery.RequestedAt.Time
	}

	return time.Time{}
}

// unanswered tells that no sweep ended that began after it was asked for.
func unanswered(cluster *v1alpha1.TalosCluster) bool {
	discovery := cluster.Status.Discovery

	return !requestedAt(cluster).IsZero() &&
		(discovery.StartedAt == nil || discovery.CompletedAt == nil || discovery.StartedAt.Time.Before(requestedAt(cluster)))
}

// startOf is the time at which a sweep is told to have begun that begins now. The API knows seconds alone, and a request
// bears the next one: whoever asked is to see that the sweep answers it. One far ahead is of a clock that was set back.
func startOf(cluster *v1alpha1.TalosCluster, now time.Time) time.Time {
	if ahead := requestedAt(cluster).Sub(now); ahead > 0 && ahead < time.Minute {
		return now.Add(ahead)
	}

	return now
}

// tellProgress shows how far a sweep is, until the function that it returns is called: at once when somebody waits for
// it, else when it takes long. It goes on beside the sweep: a slow API server delays no machine.
func (c *Controller) tellProgress(ctx context.Context, s *sweep) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)

	var telling sync.WaitGroup

	telling.Go(func() {
		ticker := c.clock.NewTicker(progressInterval)
		defer ticker.Stop()

		if s.urgent {
			c.announce(ctx, s)
		}

		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				c.announce(ctx, s)
			}
		}
	})

	return func() {
		cancel()
		telling.Wait()
	}
}

// announce shows that a sweep runs, and how far it is.
func (c *Controller) announce(ctx context.Context, s *sweep) {
	soFar := s.counts()

	err := c.writeStatus(ctx, s.cluster, func(cluster *v1alpha1.TalosCluster) {
		discovery := discoveryOf(&cluster.Status)
		discovery.StartedAt = at(s.started)
		discovery.CompletedAt = nil
		discovery.Candidates = int32(s.candidates)
		discovery.Asked = s.asked.Load()
		// Its own, not those of the last: whoever asked for it watches them.
		discovery.Answered, discovery.Registered = soFar.Answered, soFar.Registered

		// What an earlier sweep failed in stands until this one ended.
		stood := meta.FindStatusCondition(cluster.Status.Conditions, ConditionDiscoveryReady)
		if stood == nil || stood.Reason != reasonRegistrationFailed {
			_, ready := readiness(cluster)
			c.setCondition(cluster, ready)
		}
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Progress of a sweep not written")
	}
}

// conclude writes down what a sweep found (T-10).
func (c *Controller) conclude(ctx context.Context, s *sweep, result Result) error {
	ended := c.clock.Now()
	if ended.Before(s.started) {
		ended = s.started // by less than a second, see startOf
	}

	return c.writeStatus(ctx, s.cluster, func(cluster *v1alpha1.TalosCluster) {
		cluster.Status.ObservedGeneration = max(cluster.Status.ObservedGeneration, s.cluster.Generation)

		discovery := discoveryOf(&cluster.Status)
		discovery.StartedAt = at(s.started)
		discovery.CompletedAt = at(ended)
		discovery.Candidates = int32(s.candidates)
		discovery.Asked = 0
		discovery.Answered = result.Answered
		discovery.Registered = result.Registered
		discovery.Weak = result.Weak
		discovery.Collisions = result.Collisions

		// It may have been paused just now.
		_, condition := readiness(cluster)
		if condition.Status == metav1.ConditionTrue && result.Failure != nil {
			condition = metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonRegistrationFailed, Message: result.Failure.Error()}
		}

		c.setCondition(cluster, condition)
	})
}

// tellUnswept says of a cluster that is not swept why that is so.
func (c *Controller) tellUnswept(ctx context.Context, key types.NamespacedName) error {
	cluster, err := c.clusters.TalosClusters(key.Namespace).Get(key.Name)
	if err != nil || !cluster.DeletionTimestamp.IsZero() {
		return nil //nolint:nilerr // gone, or going
	}

	return c.writeStatus(ctx, cluster, func(cluster *v1alpha1.TalosCluster) {
		_, ready := readiness(cluster)
		if ready.Status == metav1.ConditionTrue {
			return // a sweep comes, and says so
		}

		c.setCondition(cluster, ready)

		// A sweep that was ended did not complete, and runs no more.
		if discovery := cluster.Status.Discovery; discovery != nil && discovery.CompletedAt == nil {
			discovery.StartedAt = nil
			discovery.Asked = 0
		}
	})
}

func discoveryOf(status *v1alpha1.TalosClusterStatus) *v1alpha1.DiscoveryStatus {
	if status.Discovery == nil {
		status.Discovery = &v1alpha1.DiscoveryStatus{}
	}

	return status.Discovery
}

func at(t time.Time) *metav1.Time {
	out := metav1.NewTime(t)

	return &out
}

// writeStatus changes a cluster's status, if there is a change, and leaves what others wrote there.
func (c *Controller) writeStatus(ctx context.Context, cluster *v1alpha1.TalosCluster, change func(*v1alpha1.TalosCluster)) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	clusters := c.client.TalosV1alpha1().TalosClusters(cluster.Namespace)

	// What the lister has by now, which may be newer than what the sweep began with.
	current, err := c.clusters.TalosClusters(cluster.Namespace).Get(cluster.Name)
	if err != nil {
		current = cluster
	}

	for {
		desired := current.DeepCopy()
		change(desired)

		if current.UID != cluster.UID || equality.Semantic.DeepEqual(current.Status, desired.Status) {
			return nil
		}

		_, err := clusters.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("status of TalosCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
		}

		if current, err = clusters.Get(ctx, cluster.Name, metav1.GetOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}

			return fmt.Errorf("status of TalosCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
		}
	}
}
