package bootstrap

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
)

func completed(cluster *v1alpha1.TalosCluster) bool {
	return cluster.Status.Bootstrap != nil && cluster.Status.Bootstrap.CompletedAt != nil
}

// reconcile brings one cluster as far as it goes, and says when to look again. Its errors are those of API calls and hold
// nothing of a bundle.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	cached, err := c.clusters.TalosClusters(key.Namespace).Get(key.Name)
	if err != nil || !cached.DeletionTimestamp.IsZero() ||
		completed(cached) && meta.IsStatusConditionTrue(cached.Status.Conditions, ConditionBootstrapped) {
		return 0, nil // gone, named by a machine only, or done
	}

	// What the cache says may be out of date, and this ends in an effect that cannot be undone.
	cluster, err := c.client.TalosV1alpha1().TalosClusters(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("TalosCluster %s: %w", key, err)
	case !cluster.DeletionTimestamp.IsZero():
		return 0, nil
	}

	result, err := c.advance(ctx, cluster)
	if err != nil {
		return 0, err
	}

	if err := c.record(ctx, cluster, result); err != nil {
		return 0, err
	}

	return outcomes()[result.reason].again, nil
}

// advance goes from the cluster's machines to the one bootstrap, and stops at the first thing that is in the way.
func (c *Controller) advance(ctx context.Context, cluster *v1alpha1.TalosCluster) (verdict, error) {
	switch {
	case completed(cluster) && cluster.Status.Bootstrap.IntendedAt != nil:
		return verdict{reason: reasonBootstrapped, message: "etcd was bootstrapped on control plane " + cluster.Status.Bootstrap.MachineName}, nil
	case completed(cluster):
		return verdict{reason: reasonEtcdFound, message: "etcd was found on control plane " + cluster.Status.Bootstrap.MachineName}, nil
	case cluster.Spec.Paused:
		return wait(reasonPaused, "spec.paused stops everything").verdict, nil
	}

	machines, err := c.machines.TalosMachines(cluster.Namespace).List(labels.Everything())
	if err != nil {
		return verdict{}, err
	}

	all := subjects(cluster, machines)
	known, strangers := split(all)

	if early, ok := nobodyToAsk(all); ok {
		return early, nil
	}

	secrets, trouble, err := c.bundles.Load(ctx, cluster)
	if err != nil {
		return verdict{}, err
	}

	if trouble != nil {
		return verdict{reason: reason(trouble.Reason), message: trouble.Message}, nil
	}

	hash, err := bundle.HashOf(secrets)
	if err != nil {
		return verdict{}, err
	}

	answers := c.ask(ctx, known, secrets, asks, askTimeout)
	if ctx.Err() != nil {
		return verdict{}, ctx.Err() // who was not asked to the end has not kept silent
	}

	decided := c.decide(cluster, answers, hash)
	if decided.target == nil {
		return decided.verdict, nil
	}

	// Before it is decided for the first time whose the cluster's etcd will be; and once after each start, however long ago that was
	// decided: the store may have been restored since, and know nothing of an etcd that came after the snapshot.
	if _, swept := c.swept.Load(cluster.UID); !swept || !intended(cluster.Status.Bootstrap) {
		answers = append(answers, c.ask(ctx, strangers, secrets, sweeps, sweepTimeout)...)
		if ctx.Err() != nil {
			return verdict{}, ctx.Err()
		}

		if decided = c.decide(cluster, answers, hash); decided.target == nil {
			return decided.verdict, nil
		}

		c.swept.Store(cluster.UID, true)
	}

	// Somebody may have approved, or lost, a control plane since.
	current, err := c.client.TalosV1alpha1().TalosMachines(cluster.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("TalosMachines of %s: %w", cluster.Namespace, err)
	}

	fresh := make([]*v1alpha1.TalosMachine, 0, len(current.Items))
	for i := range current.Items {
		fresh = append(fresh, &current.Items[i])
	}

	if asked, _ := split(subjects(cluster, fresh)); !reflect.DeepEqual(asked, known) {
		return verdict{}, apierrors.NewConflict(v1alpha1.Resource("talosclusters"), cluster.Name,
			fmt.Errorf("its control planes changed while they were asked"))
	}

	return c.send(ctx, attempt{cluster: cluster, target: *decided.target, secrets: secrets, hash: hash})
}

func (c *Controller) decide(cluster *v1alpha1.TalosCluster, answers []answer, hash string) decision {
	recorded := cluster.Status.Bootstrap
	vain := intended(recorded) && c.vain.was(cluster.UID, recorded.IntendedAt.Time)

	return decide(recorded, answers, hash, c.clock.Now(), vain)
}

// split takes those apart that are asked each time, and those that are asked once.
func split(all []subject) (known, strangers []subject) {
	for _, s := range all {
		if s.stranger {
			strangers = append(strangers, s)
		} else {
			known = append(known, s)
		}
	}

	return known, strangers
}

// nobodyToAsk is the verdict on a cluster of which no machine could be bootstrapped, so that none needs to be asked.
func nobodyToAsk(all []subject) (verdict, bool) {
	var approved []answer

	for _, s := range all {
		if s.required {
			return verdict{}, false
		}

		if s.approved {
			approved = append(approved, answer{subject: s})
		}
	}

	if len(approved) == 0 {
		return wait(reasonNoControlPlane, "no control plane of this cluster is approved").verdict, true
	}

	return wait(reasonAwaitingControlPlane, "no control plane has its configuration yet: %s", names(approved)).verdict, true
}
