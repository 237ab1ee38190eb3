package networkprobe

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// NodeLostAfter is how long a node may be NotReady or unreachable before its probe is made anew (P-11).
	NodeLostAfter = 15 * time.Second
	// remakeInterval is the least age of a pod that is made anew because it failed or lost its node: whatever ends it
	// may end the next one too.
	remakeInterval = 10 * time.Second
)

// podAction is what a probe's pod needs.
type podAction string

const (
	createPod podAction = "Create"
	keepPod   podAction = "Keep"
	// patchPod gets the new config hash, for the same pod.
	patchPod podAction = "Patch"
	// remakePod deletes; the next reconcile, when the pod is gone, creates.
	remakePod podAction = "Remake"
	// forceRemakePod deletes without waiting for a kubelet that does not answer.
	forceRemakePod podAction = "ForceRemake"
	// awaitPod is being deleted already.
	awaitPod podAction = "Await"
)

// decision is an action, why, and when to look again if nothing happens before; zero is not at all.
type decision struct {
	action podAction
	why    string
	after  time.Duration
}

// nodeHealth is what is known of the node that a pod is bound to.
type nodeHealth struct {
	// lost is true for a node that is NotReady, unreachable, or gone; why names it.
	lost  bool
	since time.Time
	why   string
}

// decide compares a pod, nil if there is none, with the one that should be. A pod that is bound to no node has no
// node to lose.
func decide(have, want *corev1.Pod, node nodeHealth, now time.Time) decision {
	if have == nil {
		return decision{action: createPod, why: "there is none"}
	}
	if node.lost && pinnedAsWanted(have, want) {
		// It cannot move, and measures again as soon as its node is back: a new one would only begin anew.
		d := decideOnNode(have, want, now)
		if wait := NodeLostAfter - now.Sub(node.since); wait > 0 {
			d.after = earliest(d.after, wait)
		}
		return d
	}
	if node.lost {
		if wait := max(NodeLostAfter-now.Sub(node.since), remakeInterval-now.Sub(have.CreationTimestamp.Time)); wait > 0 {
			d := decideOnNode(have, want, now)
			d.after = earliest(d.after, wait)
			return d
		}
		return decision{action: forceRemakePod, why: node.why}
	}
	return decideOnNode(have, want, now)
}

// pinnedAsWanted tells whether a pod is a Controller's, on the node where it should be.
func pinnedAsWanted(have, want *corev1.Pod) bool {
	return probepod.IsOurs(want, probepod.Controller) && have.DeletionTimestamp == nil && sameOwner(have, want) &&
		have.Annotations[probepod.SpecHashAnnotation] == want.Annotations[probepod.SpecHashAnnotation]
}

// sameOwner tells whether two pods belong to the same Controller, or both to none: one of the same name is another.
func sameOwner(a, b *corev1.Pod) bool {
	uid := func(pod *corev1.Pod) types.UID {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			return owner.UID
		}
		return ""
	}
	return uid(a) == uid(b)
}

func decideOnNode(have, want *corev1.Pod, now time.Time) decision {
	switch {
	case have.DeletionTimestamp != nil:
		return decision{action: awaitPod, why: "it is being deleted"}
	case have.Status.Phase == corev1.PodFailed || have.Status.Phase == corev1.PodSucceeded:
		if wait := remakeInterval - now.Sub(have.CreationTimestamp.Time); wait > 0 {
			return decision{action: keepPod, after: wait}
		}
		return decision{action: remakePod, why: ended(have)}
	case !sameOwner(have, want):
		return decision{action: remakePod, why: "its Controller is another one now"}
	case have.Annotations[probepod.SpecHashAnnotation] != want.Annotations[probepod.SpecHashAnnotation]:
		return decision{action: remakePod, why: "its specification is another one now"}
	case have.Annotations[probepod.ConfigHashAnnotation] != want.Annotations[probepod.ConfigHashAnnotation]:
		return decision{action: patchPod, why: "its configuration is another one now"}
	default:
		return decision{action: keepPod}
	}
}

func ended(pod *corev1.Pod) string {
	if pod.Status.Reason == "" {
		return fmt.Sprintf("it ended with phase %s", pod.Status.Phase)
	}
	return fmt.Sprintf("it ended with phase %s, reason %s", pod.Status.Phase, pod.Status.Reason)
}

// unschedulable tells whether the scheduler has found no node for the pod.
func unschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// earliest is the sooner of two times to look again, of which zero is never.
func earliest(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	default:
		return min(a, b)
	}
}
