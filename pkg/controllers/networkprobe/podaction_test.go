package networkprobe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// Req: P-08, P-10, P-11
func TestWhatAPodNeeds(t *testing.T) {
	probe := probepod.Pod{Namespace: "site-north", Name: BaseName, Kind: probepod.Network, Image: "v1", ConfigHash: "aa"}
	want := probepod.Build(probe)
	now := begin()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := want.DeepCopy()
		p.CreationTimestamp = metav1.NewTime(ago(time.Hour))
		p.Status.Phase = corev1.PodRunning
		if change != nil {
			change(p)
		}
		return p
	}
	phase := func(phase corev1.PodPhase, age time.Duration) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.Status.Phase, p.CreationTimestamp = phase, metav1.NewTime(ago(age)) })
	}
	deleting := pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} })
	lost := func(d time.Duration) nodeHealth {
		return nodeHealth{lost: true, since: ago(d), why: "node n is not ready"}
	}

	for _, tc := range []struct {
		name string
		have *corev1.Pod
		node nodeHealth
		want podAction
		// after is when to look again.
		after time.Duration
	}{
		{name: "no pod: one is made", want: createPod},
		{name: "a pod as it should be stays", have: pod(nil), want: keepPod},
		{name: "a pending pod stays", have: phase(corev1.PodPending, 0), want: keepPod},
		{name: "a pod of another image is made anew",
			have: pod(func(p *corev1.Pod) { p.Annotations[probepod.SpecHashAnnotation] = "old" }), want: remakePod},
		{name: "a pod of another configuration is told of it and stays the same pod",
			have: pod(func(p *corev1.Pod) { p.Annotations[probepod.ConfigHashAnnotation] = "old" }), want: patchPod},
		{name: "a failed pod is made anew", have: phase(corev1.PodFailed, time.Hour), want: remakePod},
		{name: "a pod that succeeded is made anew", have: phase(corev1.PodSucceeded, time.Hour), want: remakePod},
		{name: "a pod that failed at once waits a little", have: phase(corev1.PodFailed, 4*time.Second), want: keepPod, after: 6 * time.Second},
		{name: "a pod that is being deleted is waited for", have: deleting, want: awaitPod},
		{name: "a node lost for 14 s keeps its pod", have: pod(nil), node: lost(14 * time.Second), want: keepPod, after: time.Second},
		{name: "a node lost for 15 s loses its pod", have: pod(nil), node: lost(15 * time.Second), want: forceRemakePod},
		{name: "a node that is gone loses its pod at once", have: pod(nil), node: nodeHealth{lost: true, why: "node n is gone"}, want: forceRemakePod},
		{name: "on a lost node a deletion is not waited for", have: deleting, node: lost(time.Minute), want: forceRemakePod},
		{name: "a pod that was just put on a lost node waits a little",
			have: phase(corev1.PodPending, 3*time.Second), node: lost(time.Minute), want: keepPod, after: 7 * time.Second},
		{name: "on a node lost a moment ago a new configuration is still told",
			have: pod(func(p *corev1.Pod) { p.Annotations[probepod.ConfigHashAnnotation] = "old" }), node: lost(5 * time.Second), want: patchPod, after: 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := decide(tc.have, want, tc.node, now)
			if got.action != tc.want || got.after != tc.after {
				t.Errorf("got %s, again after %s; want %s after %s", got.action, got.after, tc.want, tc.after)
			}
		})
	}
}

// Req: P-04, P-11
func TestWhatTheNodeOfAControllersProbeChanges(t *testing.T) {
	build := func(node string, owner types.UID) *corev1.Pod {
		return probepod.Build(probepod.Pod{
			Namespace: "site-north", Name: "controller-io-probe-edge", Kind: probepod.Controller, Image: "v1", ConfigHash: "aa", NodeName: node,
			Owner: &metav1.OwnerReference{APIVersion: "v", Kind: "Controller", Name: "edge", UID: owner, Controller: ptr.To(true)},
		})
	}
	want := build("edge-1", "u1")
	old := func(pod *corev1.Pod) *corev1.Pod {
		pod.CreationTimestamp = metav1.NewTime(begin().Add(-time.Hour))
		pod.Status.Phase = corev1.PodRunning
		return pod
	}
	deleting := old(build("edge-1", "u1"))
	deleting.DeletionTimestamp = &metav1.Time{Time: begin()}
	stranger := old(build("edge-1", "u1"))
	stranger.OwnerReferences = nil
	lost := nodeHealth{lost: true, since: begin().Add(-time.Hour), why: "node edge-1 is unreachable"}

	for _, tc := range []struct {
		name string
		have *corev1.Pod
		node nodeHealth
		want podAction
	}{
		{"on the Controller's node it stays", old(build("edge-1", "u1")), nodeHealth{}, keepPod},
		{"when that node is lost it stays too: it can go nowhere else", old(build("edge-1", "u1")), lost, keepPod},
		{"when the Controller is another node it is made anew there", old(build("edge-0", "u1")), nodeHealth{}, remakePod},
		{"and does not wait for a former node that is lost", old(build("edge-0", "u1")), lost, forceRemakePod},
		{"another Controller of the same name is another owner", old(build("edge-1", "u0")), nodeHealth{}, remakePod},
		{"also when the node is lost", old(build("edge-1", "u0")), lost, forceRemakePod},
		{"a probe that lost its owner reference is made anew", stranger, nodeHealth{}, remakePod},
		{"one that is being deleted is waited for", deleting, nodeHealth{}, awaitPod},
		{"but not on a lost node", deleting, lost, forceRemakePod},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decide(tc.have, want, tc.node, begin()); got.action != tc.want {
				t.Errorf("got %s, want %s", got.action, tc.want)
			}
		})
	}
}

// Req: P-11
func TestANodeIsLostWhileItIsNotReadyOrUnreachable(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status corev1.ConditionStatus
		want   nodeHealth
	}{
		{"ready", corev1.ConditionTrue, nodeHealth{}},
		{"not ready", corev1.ConditionFalse, nodeHealth{true, begin(), "node n is not ready"}},
		{"unreachable", corev1.ConditionUnknown, nodeHealth{true, begin(), "node n is unreachable"}},
		{"never reported", "", nodeHealth{true, begin().Add(-time.Hour), "node n has not reported"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(begin().Add(-time.Hour))}}
			if tc.status != "" {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.status, LastTransitionTime: metav1.NewTime(begin())}}
			}
			if got := healthOf(node); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
