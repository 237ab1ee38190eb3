// Package hosted is how this server's programs are kept running in the host cluster: what becomes of a pod, and of one whose node is
// lost, whose a name is, and what is told of it. Probes and the runtimes of Units are kept alike (P-11).
package hosted

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// NodeLostAfter is how long a node may be NotReady or unreachable before its pods are made anew (P-11).
	NodeLostAfter = 15 * time.Second
	// RemakeInterval is the least age of a pod that is made anew because it failed or lost its node: whatever ends it
	// may end the next one too.
	RemakeInterval = 10 * time.Second
)

// Action is what a pod needs.
type Action string

// What a pod may need.
const (
	// Create: there is none.
	Create Action = "Create"
	// Keep: it is as it should be.
	Keep Action = "Keep"
	// Patch gets the new config hash, for the same pod.
	Patch Action = "Patch"
	// Remake deletes; the next reconcile, when the pod is gone, creates.
	Remake Action = "Remake"
	// ForceRemake deletes without waiting for a kubelet that does not answer.
	ForceRemake Action = "ForceRemake"
	// Await is being deleted already.
	Await Action = "Await"
)

// Decision is an action, why, and when to look again if nothing happens before; zero is not at all.
type Decision struct {
	Action Action
	Why    string
	After  time.Duration
}

// NodeHealth is what is known of the node that a pod is bound to.
type NodeHealth struct {
	// Lost is true for a node that is NotReady, unreachable, or gone; Why names it.
	Lost  bool
	Since time.Time
	Why   string
}

// Decide compares a pod, nil if there is none, with the one that should be. A pod that is bound to no node has no
// node to lose.
func Decide(have, want *corev1.Pod, node NodeHealth, now time.Time) Decision {
	if have == nil {
		return Decision{Action: Create, Why: "there is none"}
	}
	if node.Lost && pinnedAsWanted(have, want) {
		// It cannot move, and measures again as soon as its node is back: a new one would only begin anew.
		d := decideOnNode(have, want, now)
		if wait := NodeLostAfter - now.Sub(node.Since); wait > 0 {
			d.After = Earliest(d.After, wait)
		}
		return d
	}
	if node.Lost {
		if wait := max(NodeLostAfter-now.Sub(node.Since), RemakeInterval-now.Sub(have.CreationTimestamp.Time)); wait > 0 {
			d := decideOnNode(have, want, now)
			d.After = Earliest(d.After, wait)
			return d
		}
		return Decision{Action: ForceRemake, Why: node.Why}
	}
	return decideOnNode(have, want, now)
}

// pinnedAsWanted tells whether a pod is a Controller's, on the node where it should be.
func pinnedAsWanted(have, want *corev1.Pod) bool {
	return probepod.IsOurs(want, probepod.Controller) && have.DeletionTimestamp == nil && sameOwner(have, want) &&
		have.Annotations[probepod.SpecHashAnnotation] == want.Annotations[probepod.SpecHashAnnotation]
}

// sameOwner tells whether two pods belong to the same Controller or Unit, or both to none: one of the same name is another.
func sameOwner(a, b *corev1.Pod) bool {
	uid := func(pod *corev1.Pod) types.UID {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			return owner.UID
		}
		return ""
	}
	return uid(a) == uid(b)
}

func decideOnNode(have, want *corev1.Pod, now time.Time) Decision {
	switch {
	case have.DeletionTimestamp != nil:
		return Decision{Action: Await, Why: "it is being deleted"}
	case have.Status.Phase == corev1.PodFailed || have.Status.Phase == corev1.PodSucceeded:
		if wait := RemakeInterval - now.Sub(have.CreationTimestamp.Time); wait > 0 {
			return Decision{Action: Keep, After: wait}
		}
		return Decision{Action: Remake, Why: ended(have)}
	case !sameOwner(have, want):
		return Decision{Action: Remake, Why: "it belongs to somebody else now"}
	case have.Annotations[probepod.SpecHashAnnotation] != want.Annotations[probepod.SpecHashAnnotation]:
		return Decision{Action: Remake, Why: "its specification is another one now"}
	case have.Annotations[probepod.ConfigHashAnnotation] != want.Annotations[probepod.ConfigHashAnnotation]:
		return Decision{Action: Patch, Why: "its configuration is another one now"}
	default:
		return Decision{Action: Keep}
	}
}

func ended(pod *corev1.Pod) string {
	if pod.Status.Reason == "" {
		return fmt.Sprintf("it ended with phase %s", pod.Status.Phase)
	}
	return fmt.Sprintf("it ended with phase %s, reason %s", pod.Status.Phase, pod.Status.Reason)
}

// Unschedulable tells whether the scheduler has found no node for the pod.
func Unschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// Earliest is the sooner of two times to look again, of which zero is never.
func Earliest(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	default:
		return min(a, b)
	}
}
