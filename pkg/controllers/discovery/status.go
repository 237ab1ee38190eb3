package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

// ConditionDiscoveryReady tells whether the declared ranges are swept, and why not.
const ConditionDiscoveryReady = "DiscoveryReady"

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

func (c *Controller) setCondition(status *v1alpha1.TalosClusterStatus, cluster *v1alpha1.TalosCluster, condition metav1.Condition) {
	condition.Type = ConditionDiscoveryReady
	condition.ObservedGeneration = cluster.Generation
	condition.LastTransitionTime = metav1.NewTime(c.clock.Now())
	condition.Message = bounded(condition.Message)

	meta.SetStatusCondition(&status.Conditions, condition)
}

// announce shows that a sweep that was asked for has begun.
func (c *Controller) announce(ctx context.Context, cluster *v1alpha1.TalosCluster, started time.Time, candidates int) {
	err := c.writeStatus(ctx, cluster, func(status *v1alpha1.TalosClusterStatus) {
		discovery := discoveryOf(status)
		discovery.StartedAt = at(started)
		discovery.CompletedAt = nil
		discovery.Candidates = int32(candidates)
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Start of a sweep not written")
	}
}

// conclude writes down what a sweep found (T-10).
func (c *Controller) conclude(ctx context.Context, cluster *v1alpha1.TalosCluster, started time.Time, candidates int, result Result) error {
	condition := metav1.Condition{Status: metav1.ConditionTrue, Reason: "Sweeping", Message: "the declared ranges are swept"}
	if result.Failure != nil {
		condition = metav1.Condition{Status: metav1.ConditionFalse, Reason: "RegistrationFailed", Message: result.Failure.Error()}
	}

	ended := c.clock.Now()

	return c.writeStatus(ctx, cluster, func(status *v1alpha1.TalosClusterStatus) {
		status.ObservedGeneration = cluster.Generation

		discovery := discoveryOf(status)
		discovery.StartedAt = at(started)
		discovery.CompletedAt = at(ended)
		discovery.Candidates = int32(candidates)
		discovery.Answered = result.Answered
		discovery.Registered = result.Registered
		discovery.Weak = result.Weak
		discovery.Collisions = result.Collisions
		c.setCondition(status, cluster, condition)
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
func (c *Controller) writeStatus(ctx context.Context, cluster *v1alpha1.TalosCluster, change func(*v1alpha1.TalosClusterStatus)) error {
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
		change(&desired.Status)

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
