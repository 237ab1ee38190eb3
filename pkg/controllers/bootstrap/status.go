package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
)

// reasonSeveralEtcds is the reason of the Warning Event on a cluster that is split.
const reasonSeveralEtcds reason = "SeveralEtcdClusters"

// record writes a verdict into the cluster's status, if it changes anything, and tells a new one as an Event.
func (c *Controller) record(ctx context.Context, cluster *v1alpha1.TalosCluster, v verdict) error {
	// What was done to a machine is written down even when the controller is being stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()

	clusters := c.client.TalosV1alpha1().TalosClusters(cluster.Namespace)
	name := cluster.Namespace + "/" + cluster.Name

	for {
		current, err := clusters.Get(ctx, cluster.Name, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("status of TalosCluster %s: %w", name, err)
		case current.UID != cluster.UID:
			return nil
		// The verdict is about another record. What it says is found out again.
		case !equality.Semantic.DeepEqual(current.Status.Bootstrap, cluster.Status.Bootstrap):
			return apierrors.NewConflict(v1alpha1.Resource("talosclusters"), cluster.Name,
				fmt.Errorf("somebody else records its bootstrap"))
		}

		desired := current.DeepCopy()
		c.apply(desired, v)

		if equality.Semantic.DeepEqual(current.Status, desired.Status) {
			return nil
		}

		_, err = clusters.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

		switch {
		case err == nil:
			c.tell(current, v)

			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("status of TalosCluster %s: %w", name, err)
		}
	}
}

// apply puts a verdict into a cluster's status.
func (c *Controller) apply(cluster *v1alpha1.TalosCluster, v verdict) {
	if v.bootstrap != nil {
		cluster.Status.Bootstrap = v.bootstrap.DeepCopy()
	}

	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type:               ConditionBootstrapped,
		Status:             outcomes()[v.reason].status,
		Reason:             string(v.reason),
		Message:            notice.Bounded(v.message),
		ObservedGeneration: cluster.Generation,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
}

// tell makes an Event of a verdict that is not the one that stood before.
func (c *Controller) tell(before *v1alpha1.TalosCluster, v verdict) {
	if v.warning != "" {
		c.event(before, corev1.EventTypeWarning, reasonSeveralEtcds, v.warning)
	}

	kind := outcomes()[v.reason].event
	if stood := meta.FindStatusCondition(before.Status.Conditions, ConditionBootstrapped); kind == "" || stood != nil && stood.Reason == string(v.reason) {
		return
	}

	c.event(before, kind, v.reason, v.message)
}

func (c *Controller) event(cluster *v1alpha1.TalosCluster, kind string, r reason, message string) {
	c.recorder.Event(&corev1.ObjectReference{
		APIVersion:      v1alpha1.SchemeGroupVersion.String(),
		Kind:            "TalosCluster",
		Namespace:       cluster.Namespace,
		Name:            cluster.Name,
		UID:             cluster.UID,
		ResourceVersion: cluster.ResourceVersion,
	}, kind, string(r), notice.Bounded(message))
}
