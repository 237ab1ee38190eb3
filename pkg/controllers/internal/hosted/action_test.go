package hosted

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
	probe := probepod.Pod{Namespace: "site-north", Name: "network-io-probe", Kind: probepod.Network, Image: "v1", ConfigHash: "aa"}
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
	lost := func(d time.Duration) NodeHealth {
		return NodeHealth{Lost: true, Since: ago(d), Why: "node n is not ready"}
	}

	for _, tc := range []struct {
		name string
		have *corev1.Pod
		node NodeHealth
		want Action
		// after is when to look again.
		after time.Duration
	}{
		{name: "no pod: one is made", want: Create},
		{name: "a pod as it should be stays", have: pod(nil), want: Keep},
		{name: "a pending pod stays", have: phase(corev1.PodPending, 0), want: Keep},
		{name: "a pod of another image is made anew",
			have: pod(func(p *corev1.Pod) { p.Annotations[probepod.SpecHashAnnotation] = "old" }), want: Remake},
		{name: "a pod of another configuration is told of it and stays the same pod",
			have: pod(func(p *corev1.Pod) { p.Annotations[probepod.ConfigHashAnnotation] = "old" }), want: Patch},
		{name: "a failed pod is made anew", have: phase(corev1.PodFailed, time.Hour), want: Remake},
		{name: "a pod that succeeded is made anew", have: phase(corev1.PodSucceeded, time.Hour), want: Remake},
		{name: "a pod that failed at once waits a little", have: phase(corev1.PodFailed, 4*time.Second), want: Keep, after: 6 * time.Second},
		{name: "a pod that is being deleted is waited for", have: deleting, want: Await},
		{name: "a node lost for 14 s keeps its pod", have: pod(nil), node: lost(14 * time.Second), want: Keep, after: time.Second},
		{name: "a node lost for 15 s loses its pod", have: pod(nil), node: lost(15 * time.Second), want: ForceRemake},
		{name: "a node that is gone loses its pod at once", have: pod(nil), node: NodeHealth{Lost: true, Why: "node n is gone"}, want: ForceRemake},
		{name: "on a lost node a deletion is not waited for", have: deleting, node: lost(time.Minute), want: ForceRemake},
		{name: "a pod that was just put on a lost node waits a little",
			have: phase(corev1.PodPending, 3*time.Second), node: lost(time.Minute), want: Keep, after: 7 * time.Second},
		{name: "on a node lost a moment ago a new configuration is still told",
			have: pod(func(p *corev1.Pod) { p.Annotations[probepod.ConfigHashAnnotation] = "old" }), node: lost(5 * time.Second), want: Patch, after: 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Decide(tc.have, want, tc.node, now)
			if got.Action != tc.want || got.After != tc.after {
				t.Errorf("got %s, again after %s; want %s after %s", got.Action, got.After, tc.want, tc.after)
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
	lost := NodeHealth{Lost: true, Since: begin().Add(-time.Hour), Why: "node edge-1 is unreachable"}

	for _, tc := range []struct {
		name string
		have *corev1.Pod
		node NodeHealth
		want Action
	}{
		{"on the Controller's node it stays", old(build("edge-1", "u1")), NodeHealth{}, Keep},
		{"when that node is lost it stays too: it can go nowhere else", old(build("edge-1", "u1")), lost, Keep},
		{"when the Controller is another node it is made anew there", old(build("edge-0", "u1")), NodeHealth{}, Remake},
		{"and does not wait for a former node that is lost", old(build("edge-0", "u1")), lost, ForceRemake},
		{"another Controller of the same name is another owner", old(build("edge-1", "u0")), NodeHealth{}, Remake},
		{"also when the node is lost", old(build("edge-1", "u0")), lost, ForceRemake},
		{"a probe that lost its owner reference is made anew", stranger, NodeHealth{}, Remake},
		{"one that is being deleted is waited for", deleting, NodeHealth{}, Await},
		{"but not on a lost node", deleting, lost, ForceRemake},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Decide(tc.have, want, tc.node, begin()); got.Action != tc.want {
				t.Errorf("got %s, want %s", got.Action, tc.want)
			}
		})
	}
}

// Req: P-11
func TestANodeIsLostWhileItIsNotReadyOrUnreachable(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status corev1.ConditionStatus
		want   NodeHealth
	}{
		{"ready", corev1.ConditionTrue, NodeHealth{}},
		{"not ready", corev1.ConditionFalse, NodeHealth{true, begin(), "node n is not ready"}},
		{"unreachable", corev1.ConditionUnknown, NodeHealth{true, begin(), "node n is unreachable"}},
		{"never reported", "", NodeHealth{true, begin().Add(-time.Hour), "node n has not reported"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(begin().Add(-time.Hour))}}
			if tc.status != "" {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.status, LastTransitionTime: metav1.NewTime(begin())}}
			}
			if got := HealthOf(node); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
