package networkprobe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalfake "github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const ns = "site-north"

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// plant is a host cluster with one namespace, whose caches are as current as refresh makes them. The fake API server knows
// no resourceVersions, preconditions or grace: deletions are immediate.
type plant struct {
	t            *testing.T
	host         *fake.Clientset
	clock        *clocktesting.FakeClock
	recorder     *record.FakeRecorder
	c            *Controller
	modules      cache.Indexer
	controllers  cache.Indexer
	hostIndexers map[string]cache.Indexer
	writes       []string
	certificates int
	certificate  error
	made         int
}

func newPlant(t *testing.T, objects ...runtime.Object) *plant {
	p := &plant{
		t:        t,
		host:     fake.NewClientset(append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})...),
		clock:    clocktesting.NewFakeClock(begin()),
		recorder: record.NewFakeRecorder(1000),
	}
	hostInformers := informers.NewSharedInformerFactory(p.host, 0)
	ours := physicalinformers.NewSharedInformerFactory(physicalfake.NewSimpleClientset(), 0)
	core := hostInformers.Core().V1()
	p.c = New(Options{
		Image: "io-probe:v1", Host: p.host,
		Pods: core.Pods(), ConfigMaps: core.ConfigMaps(), Nodes: core.Nodes(), Namespaces: core.Namespaces(),
		Modules: ours.Physical().V1alpha1().IOModules(), Controllers: ours.Physical().V1alpha1().Controllers(),
		EnsureCertificate: func(context.Context, string) error {
			p.certificates++
			return p.certificate
		},
		Recorder: p.recorder, Clock: p.clock,
	})
	t.Cleanup(p.c.queue.ShutDown)
	p.modules = ours.Physical().V1alpha1().IOModules().Informer().GetIndexer()
	p.controllers = ours.Physical().V1alpha1().Controllers().Informer().GetIndexer()
	p.hostIndexers = map[string]cache.Indexer{
		"pods": core.Pods().Informer().GetIndexer(), "configmaps": core.ConfigMaps().Informer().GetIndexer(),
		"nodes": core.Nodes().Informer().GetIndexer(), "namespaces": core.Namespaces().Informer().GetIndexer(),
	}
	p.host.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		p.made++
		object := action.(clienttesting.CreateAction).GetObject().(metav1.Object)
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", p.made)))
		object.SetCreationTimestamp(metav1.NewTime(p.clock.Now()))
		return false, nil, nil
	})
	return p
}

// refresh makes the caches current.
func (p *plant) refresh() {
	p.t.Helper()
	ctx := context.Background()
	core := p.host.CoreV1()
	pods, err1 := core.Pods("").List(ctx, metav1.ListOptions{})
	configMaps, err2 := core.ConfigMaps("").List(ctx, metav1.ListOptions{})
	nodes, err3 := core.Nodes().List(ctx, metav1.ListOptions{})
	namespaces, err4 := core.Namespaces().List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		p.t.Fatal(err)
	}
	lists := map[string][]any{}
	for i := range pods.Items {
		lists["pods"] = append(lists["pods"], &pods.Items[i])
	}
	for i := range configMaps.Items {
		lists["configmaps"] = append(lists["configmaps"], &configMaps.Items[i])
	}
	for i := range nodes.Items {
		lists["nodes"] = append(lists["nodes"], &nodes.Items[i])
	}
	for i := range namespaces.Items {
		lists["namespaces"] = append(lists["namespaces"], &namespaces.Items[i])
	}
	for name, indexer := range p.hostIndexers {
		if err := indexer.Replace(lists[name], ""); err != nil {
			p.t.Fatal(err)
		}
	}
}

// once reconciles the namespace one time.
func (p *plant) once() (time.Duration, error) {
	p.t.Helper()
	p.refresh()
	p.host.ClearActions()
	after, err := p.c.reconcile(context.Background(), ns)
	for _, a := range p.host.Actions() {
		if slices.Contains([]string{"create", "update", "patch", "delete"}, a.GetVerb()) {
			name := ""
			switch named := a.(type) {
			case clienttesting.CreateAction: // An update is one too.
				name = named.GetObject().(metav1.Object).GetName()
			case clienttesting.PatchAction:
				name = named.GetName()
			case clienttesting.DeleteAction:
				name = named.GetName()
			}
			p.writes = append(p.writes, a.GetVerb()+" "+strings.TrimSuffix(a.GetResource().Resource, "s")+" "+name)
		}
	}
	return after, err
}

// settle reconciles until nothing is written any more, and returns all that was.
func (p *plant) settle() []string {
	p.t.Helper()
	p.writes = nil
	for range 10 {
		before := len(p.writes)
		if _, err := p.once(); err != nil {
			p.t.Fatal(err)
		}
		if len(p.writes) == before {
			return p.writes
		}
	}
	p.t.Fatalf("does not settle: %q", p.writes)
	return nil
}

func (p *plant) add(modules ...*v1alpha1.IOModule) {
	p.t.Helper()
	for _, m := range modules {
		if err := p.modules.Add(m); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *plant) remove(module *v1alpha1.IOModule) {
	p.t.Helper()
	if err := p.modules.Delete(module); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) pod(name string) *corev1.Pod {
	pod, err := p.host.CoreV1().Pods(ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		p.t.Helper()
		p.t.Fatal(err)
	}
	return pod
}

func (p *plant) update(pod *corev1.Pod) {
	p.t.Helper()
	if _, err := p.host.CoreV1().Pods(ns).Update(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) listed(configMap string) string {
	cm, err := p.host.CoreV1().ConfigMaps(ns).Get(context.Background(), configMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "absent"
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Join(ListedModules(cm), ",")
}

func (p *plant) events() string {
	var all []string
	for {
		select {
		case e := <-p.recorder.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func (p *plant) expect(what string, want ...string) {
	p.t.Helper()
	if got := p.settle(); !slices.Equal(got, want) {
		p.t.Fatalf("%s: wrote %q, want %q", what, got, want)
	}
}

func node(name string, labels map[string]string, ready corev1.ConditionStatus, since time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)},
		}},
	}
}

// Req: P-08, P-11
func TestTheLifeOfASharedProbe(t *testing.T) {
	p := newPlant(t)
	flow, level := modbus("flow", nil), modbus("level", nil)
	p.expect("without modules there is nothing")

	p.add(flow)
	p.expect("the first module makes ConfigMap and pod", "create configmap network-io-probe", "create pod network-io-probe")
	if p.certificates == 0 {
		t.Error("the probe has no certificate")
	}
	pod := p.pod(BaseName)
	if len(pod.OwnerReferences) != 0 || len(pod.Spec.NodeSelector) != 0 {
		t.Errorf("the shared probe has owners %v and selector %v", pod.OwnerReferences, pod.Spec.NodeSelector)
	}

	p.add(level)
	p.expect("another one changes the ConfigMap and wakes the kubelet", "update configmap network-io-probe", "patch pod network-io-probe")
	if got := p.listed(BaseName); got != "flow,level" {
		t.Errorf("the ConfigMap lists %s", got)
	}
	if again := p.pod(BaseName); again.UID != pod.UID || again.Annotations[probepod.ConfigHashAnnotation] == pod.Annotations[probepod.ConfigHashAnnotation] {
		t.Error("the same pod should have another config hash")
	}

	changed := flow.DeepCopy()
	changed.Generation, changed.Spec.Modbus.Endpoint = 2, "tcp://192.0.2.9:502"
	p.add(changed)
	p.expect("a changed module too", "update configmap network-io-probe", "patch pod network-io-probe")

	p.remove(changed)
	p.expect("a module that goes is dropped", "update configmap network-io-probe", "patch pod network-io-probe")
	if got := p.listed(BaseName); got != "level" {
		t.Errorf("the ConfigMap lists %s", got)
	}

	p.remove(level)
	p.expect("the last module takes all with it, the pod first", "delete pod network-io-probe", "delete configmap network-io-probe")
}

// Req: P-08, P-10
func TestANewImageRemakesThePod(t *testing.T) {
	p := newPlant(t)
	p.add(modbus("flow", nil))
	p.settle()
	p.c.image = "io-probe:v2"
	p.expect("an upgrade", "delete pod network-io-probe", "create pod network-io-probe")
	if got := p.pod(BaseName).Spec.Containers[0].Image; got != "io-probe:v2" {
		t.Errorf("the image is %s", got)
	}
}

// Req: P-09
func TestOneProbeForEachSelector(t *testing.T) {
	p := newPlant(t)
	zoneA, zoneB := map[string]string{"zone": "a"}, map[string]string{"zone": "b"}
	a, b := baseName(zoneA), baseName(zoneB)
	p.add(modbus("flow", zoneA), modbus("level", zoneB), modbus("other", map[string]string{}))
	p.settle()
	for name, want := range map[string]string{a: "flow", b: "level", BaseName: "other"} {
		if got := p.listed(name); got != want {
			t.Errorf("%s lists %s, want %s", name, got, want)
		}
	}
	if got := p.pod(a).Spec.NodeSelector["zone"]; got != "a" {
		t.Errorf("the probe of zone a is pinned to %q", got)
	}
	if got := p.pod(b).Spec.NodeSelector["zone"]; got != "b" {
		t.Errorf("the probe of zone b is pinned to %q", got)
	}
	if got := p.pod(BaseName).Spec.NodeSelector; len(got) != 0 {
		t.Errorf("the probe of the others is pinned to %v", got)
	}

	moved := modbus("flow", zoneB)
	moved.Generation = 2
	p.add(moved)
	p.expect("a module that moves leaves first, and its empty probe goes", "delete pod "+a, "delete configmap "+a, "update configmap "+b, "patch pod "+b)
	if got := p.listed(b); got != "flow,level" {
		t.Errorf("zone b lists %s", got)
	}

	back := modbus("flow", nil)
	back.Generation = 3
	p.add(back)
	p.expect("of two probes that stay, the one that loses the module is written first",
		"update configmap "+b, "patch pod "+b, "update configmap "+BaseName, "patch pod "+BaseName)
}

// Req: P-09
func TestShardsOpenAndClose(t *testing.T) {
	p := newPlant(t)
	var all []*v1alpha1.IOModule
	for _, name := range names(1, MaxModules+1) {
		all = append(all, modbus(name, nil))
	}
	p.add(all...)
	p.expect("as many as one probe carries", "create configmap "+BaseName, "create pod "+BaseName)
	first := p.listed(BaseName)

	// It sorts before all others, and still goes into the second shard.
	newcomer := modbus("a", nil)
	p.add(newcomer)
	p.expect("one more", "create configmap "+BaseName+"-2", "create pod "+BaseName+"-2")
	if p.listed(BaseName) != first || p.listed(BaseName+"-2") != "a" {
		t.Errorf("the second shard lists %s", p.listed(BaseName+"-2"))
	}

	for _, m := range all {
		p.remove(m)
	}
	p.expect("an emptied first shard is taken over",
		"delete pod "+BaseName+"-2", "delete configmap "+BaseName+"-2", "update configmap "+BaseName, "patch pod "+BaseName)
	if p.listed(BaseName) != "a" {
		t.Errorf("the plain name lists %s", p.listed(BaseName))
	}
}

// Req: P-09
func TestAModuleThatFitsNoConfigMapIsToldAndLeftOut(t *testing.T) {
	p := newPlant(t)
	huge := modbus("huge", nil)
	for i := range 1200 {
		huge.Spec.Channels = append(huge.Spec.Channels, v1alpha1.Channel{Name: fmt.Sprintf("c%d", i), Address: strings.Repeat("a", 1000)})
	}
	p.add(huge, modbus("flow", nil))
	p.settle()
	if got := p.listed(BaseName); got != "flow" {
		t.Errorf("the ConfigMap lists %s", got)
	}
	if got := p.events(); strings.Count(got, "TooLargeForProbe") != 1 {
		t.Errorf("events: %s", got)
	}
}

// Req: P-08
func TestSomebodyElsesObjectsAreLeftAlone(t *testing.T) {
	foreign := metav1.ObjectMeta{Namespace: ns, Name: BaseName, UID: "foreign", Labels: map[string]string{"app": "theirs"}}
	for _, tc := range []struct {
		name    string
		object  runtime.Object
		kind    string
		problem bool
		writes  []string
	}{
		{"a pod", &corev1.Pod{ObjectMeta: foreign}, "Pod", true,
			[]string{"create configmap " + BaseName, "create pod " + BaseName, "update configmap " + BaseName}},
		{"a ConfigMap", &corev1.ConfigMap{ObjectMeta: foreign, Data: map[string]string{"k": "v"}}, "ConfigMap", false,
			[]string{"create configmap " + BaseName}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlant(t, tc.object)
			p.add(modbus("flow", nil))
			after, err := p.once()
			if err != nil {
				t.Fatal(err)
			}
			if after != takenAfter {
				t.Errorf("is tried again after %s, want %s", after, takenAfter)
			}
			if !slices.Equal(p.writes, tc.writes) {
				t.Errorf("wrote %q, want %q", p.writes, tc.writes)
			}
			for range 3 {
				if _, err := p.once(); err != nil {
					t.Fatal(err)
				}
			}
			for _, w := range p.writes {
				if strings.HasPrefix(w, "delete") || strings.HasPrefix(w, "patch") {
					t.Errorf("wrote %q", w)
				}
			}
			if got := p.events(); strings.Count(got, "ProbeNameTaken "+tc.kind+" "+BaseName) != 1 {
				t.Errorf("want one event, got: %s", got)
			}
			if tc.problem {
				cm, err := p.host.CoreV1().ConfigMaps(ns).Get(context.Background(), BaseName, metav1.GetOptions{})
				if err != nil || !strings.Contains(cm.Annotations[ProblemAnnotation], "left alone") {
					t.Errorf("the ConfigMap says %q, %v", cm.Annotations[ProblemAnnotation], err)
				}
				if err := p.host.CoreV1().Pods(ns).Delete(context.Background(), BaseName, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				p.expect("when the name is free again", "create pod "+BaseName, "update configmap "+BaseName)
			}
			p.remove(modbus("flow", nil))
			if writes := p.settle(); tc.kind == "ConfigMap" && len(writes) != 0 {
				t.Errorf("at the end wrote %q", writes)
			}
		})
	}
}

// Req: P-12
func TestANamespaceThatGoesAwayIsLeftAlone(t *testing.T) {
	p := newPlant(t)
	p.add(modbus("flow", nil))
	p.settle()
	namespace, err := p.host.CoreV1().Namespaces().Get(context.Background(), ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.Status.Phase = corev1.NamespaceTerminating
	if _, err := p.host.CoreV1().Namespaces().UpdateStatus(context.Background(), namespace, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.add(modbus("level", nil))
	p.expect("terminating")
	p.remove(modbus("level", nil))
	p.remove(modbus("flow", nil))
	p.expect("terminating, without modules")

	t.Run("even if that is not known yet", func(t *testing.T) {
		p := newPlant(t)
		p.host.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, BaseName, errors.New("going"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return true, nil, err
		})
		p.add(modbus("flow", nil))
		if _, err := p.once(); err != nil {
			t.Errorf("would be tried again: %v", err)
		}
	})
}

// Req: P-11
func TestAProbeThatEndedIsMadeAnew(t *testing.T) {
	p := newPlant(t)
	p.add(modbus("flow", nil))
	p.settle()
	pod := p.pod(BaseName)
	pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
	p.update(pod)
	p.expect("evicted right after it was made, it waits")
	p.clock.Step(hosted.RemakeInterval)
	p.expect("then", "delete pod "+BaseName, "create pod "+BaseName)
}

// Req: P-11
func TestAProbeLeavesALostNode(t *testing.T) {
	p := newPlant(t, node("edge-1", map[string]string{"zone": "a"}, corev1.ConditionTrue, begin()))
	zone := map[string]string{"zone": "a"}
	name := baseName(zone)
	p.add(modbus("flow", zone))
	p.settle()
	pod := p.pod(name)
	pod.Spec.NodeName, pod.Status.Phase = "edge-1", corev1.PodRunning
	p.update(pod)
	p.clock.Step(time.Hour)
	p.expect("on a node that is well")

	if err := p.host.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
		node("edge-1", zone, corev1.ConditionUnknown, p.clock.Now()), ""); err != nil {
		t.Fatal(err)
	}
	after, err := p.once()
	if err != nil || after != hosted.NodeLostAfter {
		t.Fatalf("is looked at again after %s, %v", after, err)
	}
	p.clock.Step(hosted.NodeLostAfter)
	var forced []int64
	p.host.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if grace := action.(clienttesting.DeleteActionImpl).DeleteOptions.GracePeriodSeconds; grace != nil {
			forced = append(forced, *grace)
		}
		return false, nil, nil
	})
	p.expect("after 15 s", "delete pod "+name, "create pod "+name)
	if !slices.Equal(forced, []int64{0}) {
		t.Errorf("graces %v, want a forced deletion", forced)
	}
	if got := p.events(); !strings.Contains(got, "ProbeNodeLost Node edge-1 is unreachable") {
		t.Errorf("events: %s", got)
	}

	pod = p.pod(name)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	p.update(pod)
	p.expect("a pinned one that finds no node")
	if got := p.events(); strings.Count(got, "Warning ProbeUnschedulable") != 1 || !strings.Contains(got, "zone=a") || !strings.Contains(got, "node edge-1 is unreachable") {
		t.Errorf("events: %s", got)
	}
	p.clock.Step(hosted.RepeatEventAfter)
	p.expect("an hour later")
	if got := p.events(); strings.Count(got, "Warning ProbeUnschedulable") != 1 {
		t.Errorf("events an hour later: %s", got)
	}
}

// Req: P-11
func TestTheCertificateComesFirst(t *testing.T) {
	p := newPlant(t)
	p.certificate = errors.New("no CA")
	p.add(modbus("flow", nil))
	if _, err := p.once(); err == nil || len(p.writes) != 0 {
		t.Fatalf("wrote %q, %v", p.writes, err)
	}
	p.certificate = nil
	p.settle()
	p.certificate, p.writes = errors.New("no CA"), nil
	p.add(modbus("level", nil))
	if _, err := p.once(); err == nil || !slices.Equal(p.writes, []string{"update configmap " + BaseName, "patch pod " + BaseName}) {
		t.Errorf("a probe that runs is not kept up to date: wrote %q, %v", p.writes, err)
	}
}
