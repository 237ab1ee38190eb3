package clusterstatus

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
)

// ConditionBundleReady tells whether a cluster's secrets bundle is there, whole, and this cluster's (T-16).
const ConditionBundleReady = "BundleReady"

// Reasons of the condition BundleReady, beside those of package bundle.
const (
	// ReasonBundleFound: the bundle is there.
	ReasonBundleFound = "BundleFound"
	// ReasonBundleRotated: the bundle is there, and is another than the one that machines were configured with. It is
	// the reason of the Warning Event too.
	ReasonBundleRotated = "BundleRotated"
	// ReasonBundleUnreadable: the host cluster does not give the Secret, so nobody knows.
	ReasonBundleUnreadable = "BundleUnreadable"
)

const (
	// readInterval is how often a cluster's Secret is read: no watch tells about it, since the server may read the
	// Secrets of its namespace but not list them.
	readInterval = 30 * time.Second
	// readTimeout bounds one read.
	readTimeout = 10 * time.Second
	// readers is how many Secrets are read at once.
	readers = 4
	// patience is how many reads in a row fail before the condition says so: one that fails says nothing of the bundle.
	patience = 2
)

// reading is what is known of a cluster's bundle, since this process runs.
type reading struct {
	// hash is that of the whole bundle, "" when there is a problem; problem is nil when the bundle is whole.
	hash    string
	problem *bundle.Problem
	// failed is why the Secret could not be read, patience times or more in a row; "" when it could.
	failed   string
	failures int
}

// readings are the readings of all clusters.
type readings struct {
	mu  sync.Mutex
	all map[types.UID]reading
}

func newReadings() *readings { return &readings{all: make(map[types.UID]reading)} }

func (r *readings) of(cluster types.UID) (reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	one, ok := r.all[cluster]

	return one, ok
}

// change changes the reading of a cluster, and tells whether there is anything new to say.
func (r *readings) change(cluster types.UID, change func(*reading)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	one := r.all[cluster]
	change(&one)

	was := r.all[cluster]
	r.all[cluster] = one

	return was.hash != one.hash || was.failed != one.failed || !reflect.DeepEqual(was.problem, one.problem)
}

func (r *readings) forget(cluster types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.all, cluster)
}

// read reads a cluster's bundle, and tells whether there is such a cluster and anything new to say of it. No byte of the
// bundle is kept.
func (c *Controller) read(ctx context.Context, key types.NamespacedName) (exists, news bool) {
	cluster, err := c.clusters.TalosClusters(key.Namespace).Get(key.Name)
	if err != nil {
		return false, false
	}

	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	found, problem, err := c.bundles.Load(readCtx, cluster)
	hash := ""

	if found != nil {
		hash, err = bundle.HashOf(found)
	}

	switch {
	case ctx.Err() != nil: // being stopped, which says nothing of the bundle
	case err != nil:
		klog.FromContext(ctx).Error(err, "Secrets bundle not read", "cluster", key)
		news = c.readings.change(cluster.UID, func(r *reading) {
			if r.failures++; r.failures >= patience {
				// Of the error only what kind it is: the same one is worded anew each time.
				r.failed = fmt.Sprintf("the Secret %s cannot be read in the server's namespace: %s", cluster.Spec.SecretsRef.Name, kindOf(err))
			}
		})
	default:
		news = c.readings.change(cluster.UID, func(r *reading) { *r = reading{hash: hash, problem: problem} })
	}

	// Deleted while it was read, it is not to be remembered.
	if again, err := c.clusters.TalosClusters(key.Namespace).Get(key.Name); err != nil || again.UID != cluster.UID {
		c.readings.forget(cluster.UID)
	}

	return true, news
}

func kindOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}

	return "the host cluster does not answer"
}

// assess puts what is known of a cluster's bundle into its status. As long as nothing is, what stands there stands.
func (c *Controller) assess(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) {
	found, ok := c.readings.of(cluster.UID)
	if !ok || found.hash == "" && found.problem == nil && found.failed == "" {
		return
	}

	condition := judge(found, cluster, machines)
	condition.Type = ConditionBundleReady
	condition.Message = notice.Bounded(condition.Message)
	condition.ObservedGeneration = cluster.Generation
	condition.LastTransitionTime = metav1.NewTime(c.clock.Now())

	meta.SetStatusCondition(&cluster.Status.Conditions, condition)

	if found.hash != "" {
		cluster.Status.BundleHash = found.hash
	}
}

// judge says what a reading means for a cluster.
func judge(found reading, cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) metav1.Condition {
	switch {
	case found.failed != "":
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: ReasonBundleUnreadable, Message: found.failed}
	case found.problem != nil:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: string(found.problem.Reason), Message: found.problem.Message}
	}

	if former, configured := rotated(machines, cluster.Name, found.hash); former > 0 {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonBundleRotated, Message: fmt.Sprintf(
			"the bundle in Secret %s is another than before: %d of %d configured machines run with a former one, and nothing is sent to these until it is back or they are configured anew",
			cluster.Spec.SecretsRef.Name, former, configured)}
	}

	return metav1.Condition{
		Status: metav1.ConditionTrue, Reason: ReasonBundleFound,
		Message: fmt.Sprintf("the bundle in Secret %s is whole", cluster.Spec.SecretsRef.Name),
	}
}

// rotated counts the configured machines of a cluster, and those whose configuration was made with another bundle.
func rotated(machines []*v1alpha1.TalosMachine, cluster, hash string) (former, configured int) {
	for _, machine := range machines {
		configuration := machine.Status.Configuration
		if machine.Spec.ClusterRef.Name != cluster || configuration == nil || configuration.AppliedAt == nil {
			continue
		}

		configured++

		if configuration.BundleHash != "" && configuration.BundleHash != hash {
			former++
		}
	}

	return former, configured
}

// tell makes an Event of a rotation that was not told yet. What the status said before is what was told, also by another
// process.
func (c *Controller) tell(before, after *v1alpha1.TalosCluster) {
	condition := meta.FindStatusCondition(after.Status.Conditions, ConditionBundleReady)
	if condition == nil || condition.Reason != ReasonBundleRotated {
		return
	}

	stood := meta.FindStatusCondition(before.Status.Conditions, ConditionBundleReady)
	if stood != nil && stood.Reason == ReasonBundleRotated && before.Status.BundleHash == after.Status.BundleHash {
		return
	}

	c.recorder.Event(&corev1.ObjectReference{
		APIVersion:      v1alpha1.SchemeGroupVersion.String(),
		Kind:            "TalosCluster",
		Namespace:       after.Namespace,
		Name:            after.Name,
		UID:             after.UID,
		ResourceVersion: after.ResourceVersion,
	}, corev1.EventTypeWarning, ReasonBundleRotated, condition.Message)
}
