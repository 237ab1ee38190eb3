package networkprobe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// Req: P-08, P-11
func TestWhatWakesANamespace(t *testing.T) {
	module := func(generation int64, version string) *v1alpha1.IOModule {
		m := modbus("flow", nil)
		m.Generation, m.ResourceVersion = generation, version
		return m
	}
	pod := func(name string, labels map[string]string, nodeName string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: nodeName}}
	}
	ours := probepod.Labels(probepod.Network)
	beats := edge("edge-1")
	beats.Status.LastAlive = &metav1.Time{Time: begin()}
	renewed := edge("edge-1")
	renewed.UID = "another"
	well, ill := node("n1", nil, corev1.ConditionTrue, begin()), node("n1", nil, corev1.ConditionFalse, begin())
	heartbeat := well.DeepCopy()
	heartbeat.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(begin().Add(time.Minute))

	for _, tc := range []struct {
		name          string
		source        int
		before, after any
		pods          []*corev1.Pod
		want          bool
	}{
		{name: "a new module", source: 0, after: module(1, "1"), want: true},
		{name: "a module that went", source: 0, before: module(1, "1"), want: true},
		{name: "a module that went unseen", source: 0, before: cache.DeletedFinalStateUnknown{Key: ns + "/flow", Obj: module(1, "1")}, want: true},
		{name: "a module with another specification", source: 0, before: module(1, "1"), after: module(2, "2"), want: true},
		{name: "a module with another status", source: 0, before: module(1, "1"), after: module(1, "2"), want: false},
		{name: "a resync", source: 0, before: module(1, "1"), after: module(1, "1"), want: true},
		{name: "a pod of ours", source: 1, after: pod(BaseName, ours, ""), want: true},
		{name: "a pod of ours that lost its label", source: 1, before: pod("x", ours, ""), after: pod("x", nil, ""), want: true},
		{name: "somebody's pod with the name of a probe", source: 1, before: pod(BaseName, nil, ""), want: true},
		{name: "somebody's pod", source: 1, after: pod("x", nil, ""), want: false},
		{name: "a ConfigMap of ours", source: 2, before: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: BaseName, Labels: ours}}, want: true},
		{name: "a node that falls ill under a probe", source: 3, before: well, after: ill, pods: []*corev1.Pod{pod(BaseName, ours, "n1")}, want: true},
		{name: "a node that goes from under a probe", source: 3, before: well, pods: []*corev1.Pod{pod(BaseName, ours, "n1")}, want: true},
		{name: "a node that comes while a probe waits for one", source: 3, after: well, pods: []*corev1.Pod{pod(BaseName, ours, "")}, want: true},
		{name: "a node without probes", source: 3, before: well, after: ill, pods: []*corev1.Pod{pod(BaseName, ours, "n2")}, want: false},
		{name: "a node's heartbeat", source: 3, before: well, after: heartbeat, pods: []*corev1.Pod{pod(BaseName, ours, "n1")}, want: false},
		{name: "a Controller's pod", source: 1, after: pod("x", probepod.Labels(probepod.Controller), ""), want: true},
		{name: "a node that falls ill under a Controller's probe", source: 3, before: well, after: ill,
			pods: []*corev1.Pod{pod("x", probepod.Labels(probepod.Controller), "n1")}, want: true},
		{name: "a Controller that has its node", source: 4, before: edge(""), after: edge("edge-1"), want: true},
		{name: "a Controller that is another node", source: 4, before: edge("edge-1"), after: edge("edge-2"), want: true},
		{name: "a Controller that lost its node", source: 4, before: edge("edge-1"), after: edge(""), want: true},
		{name: "a Controller that went", source: 4, before: edge("edge-1"), want: true},
		{name: "another Controller of that name", source: 4, before: edge("edge-1"), after: renewed, want: true},
		{name: "a Controller without a node", source: 4, after: edge(""), want: false},
		{name: "a heart that beats", source: 4, before: edge("edge-1"), after: beats, want: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlant(t)
			for _, pod := range tc.pods {
				if err := p.hostIndexers["pods"].Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			handler := p.c.sources[tc.source].Handler
			switch {
			case tc.before == nil:
				handler.OnAdd(tc.after, false)
			case tc.after == nil:
				handler.OnDelete(tc.before)
			default:
				handler.OnUpdate(tc.before, tc.after)
			}
			woken := false
			// The queue takes what it delays in a goroutine of its own.
			for range 50 {
				p.clock.Step(batchWindow)
				if woken = p.c.queue.Len() > 0; woken {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if woken != tc.want {
				t.Errorf("woken %t, want %t", woken, tc.want)
			}
		})
	}
}
