package unitruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalfake "github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	physicalinformers "github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const ns = "site-north"

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// plant is a host cluster with one namespace and our own API, whose caches are as current as refresh makes them. The fake API servers
// know no resourceVersions, preconditions or grace: deletions are immediate.
type plant struct {
	t            *testing.T
	host         *fake.Clientset
	ours         *physicalfake.Clientset
	clock        *clocktesting.FakeClock
	recorder     *record.FakeRecorder
	c            *Controller
	hostIndexers map[string]cache.Indexer
	indexers     map[string]cache.Indexer
	// known are our own objects as the controller's handlers heard of them.
	known        map[string]map[string]metav1.Object
	writes       []string
	certificates int
	certificate  error
	made         int
}

func newPlant(t *testing.T, objects ...runtime.Object) *plant {
	t.Helper()
	p := &plant{
		t:        t,
		host:     fake.NewClientset(append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})...),
		ours:     physicalfake.NewSimpleClientset(),
		clock:    clocktesting.NewFakeClock(begin()),
		recorder: record.NewFakeRecorder(1000),
		known:    map[string]map[string]metav1.Object{"units": {}, "controlmodules": {}, "iomodules": {}},
	}
	hostInformers := informers.NewSharedInformerFactory(p.host, 0)
	probes := informers.NewSharedInformerFactory(p.host, 0)
	ours := physicalinformers.NewSharedInformerFactory(p.ours, 0)
	core, physical := hostInformers.Core().V1(), ours.Physical().V1alpha1()
	p.c = New(Options{
		Image: "unit-runtime:v1", Host: p.host, Client: p.ours.PhysicalV1alpha1(),
		Pods: core.Pods(), ConfigMaps: core.ConfigMaps(), ProbePods: probes.Core().V1().Pods(), Nodes: core.Nodes(), Namespaces: core.Namespaces(),
		Units: physical.Units(), ControlModules: physical.ControlModules(), Modules: physical.IOModules(),
		EnsureCertificate: func(context.Context, string) error {
			p.certificates++
			return p.certificate
		},
		Recorder: p.recorder, Clock: p.clock,
	})
	t.Cleanup(p.c.queue.ShutDown)
	p.indexers = map[string]cache.Indexer{
		"units": physical.Units().Informer().GetIndexer(), "controlmodules": physical.ControlModules().Informer().GetIndexer(),
		"iomodules": physical.IOModules().Informer().GetIndexer(),
	}
	p.hostIndexers = map[string]cache.Indexer{
		"pods": core.Pods().Informer().GetIndexer(), "configmaps": core.ConfigMaps().Informer().GetIndexer(),
		"probes": probes.Core().V1().Pods().Informer().GetIndexer(),
		"nodes":  core.Nodes().Informer().GetIndexer(), "namespaces": core.Namespaces().Informer().GetIndexer(),
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

// put makes an object known, or changes it.
func (p *plant) put(objects ...metav1.Object) {
	p.t.Helper()
	for _, object := range objects {
		kind, handler := p.kind(object)
		before := p.known[kind][object.GetName()]
		if err := p.indexers[kind].Add(object); err != nil {
			p.t.Fatal(err)
		}
		p.known[kind][object.GetName()] = object
		if before == nil {
			handler.OnAdd(object, false)
		} else {
			handler.OnUpdate(before, object)
		}
		// What writes the status needs the object there.
		if unit, ok := object.(*v1alpha1.Unit); ok {
			var err error
			if before == nil {
				err = p.ours.Tracker().Add(unit.DeepCopy())
			} else {
				err = p.ours.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("units"), unit.DeepCopy(), ns)
			}
			if err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p *plant) remove(objects ...metav1.Object) {
	p.t.Helper()
	for _, object := range objects {
		kind, handler := p.kind(object)
		if err := p.indexers[kind].Delete(object); err != nil {
			p.t.Fatal(err)
		}
		delete(p.known[kind], object.GetName())
		handler.OnDelete(object)
		if kind == "units" {
			if err := p.ours.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("units"), ns, object.GetName()); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p *plant) kind(object metav1.Object) (string, cache.ResourceEventHandler) {
	switch object.(type) {
	case *v1alpha1.Unit:
		return "units", p.c.sources[0].Handler
	case *v1alpha1.ControlModule:
		return "controlmodules", p.c.sources[1].Handler
	default:
		return "iomodules", p.c.sources[2].Handler
	}
}

// refresh makes the caches of the host's objects current.
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
		lists["probes"] = append(lists["probes"], &pods.Items[i])
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
	units, err := p.ours.PhysicalV1alpha1().Units(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	// Of our own objects only the status may have been written.
	for i := range units.Items {
		if p.known["units"][units.Items[i].Name] != nil {
			if err := p.indexers["units"].Update(&units.Items[i]); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// once reconciles each of the Units one time, and returns the first error.
func (p *plant) once(units ...string) error {
	p.t.Helper()
	var first error
	for _, unit := range units {
		p.refresh()
		p.host.ClearActions()
		p.ours.ClearActions()
		_, err := p.c.reconcile(context.Background(), types.NamespacedName{Namespace: ns, Name: unit})
		if err != nil && first == nil {
			first = err
		}
		for _, a := range slices.Concat(p.host.Actions(), p.ours.Actions()) {
			if slices.Contains([]string{"create", "update", "patch", "delete"}, a.GetVerb()) {
				p.writes = append(p.writes, a.GetVerb()+" "+strings.TrimSuffix(a.GetResource().Resource, "s")+" "+nameOf(a))
			}
		}
	}
	return first
}

func nameOf(a clienttesting.Action) string {
	switch named := a.(type) {
	case clienttesting.CreateAction: // An update is one too.
		return named.GetObject().(metav1.Object).GetName()
	case clienttesting.PatchAction:
		return named.GetName()
	case clienttesting.DeleteAction:
		return named.GetName()
	default:
		return ""
	}
}

// settle reconciles until nothing is written any more, and returns all that was.
func (p *plant) settle(units ...string) []string {
	p.t.Helper()
	p.writes = nil
	for range 10 {
		before := len(p.writes)
		if err := p.once(units...); err != nil {
			p.t.Fatal(err)
		}
		if len(p.writes) == before {
			return p.writes
		}
	}
	p.t.Fatalf("does not settle: %q", p.writes)
	return nil
}

func (p *plant) expect(what, unit string, want ...string) {
	p.t.Helper()
	if got := p.settle(unit); !slices.Equal(got, want) {
		p.t.Fatalf("%s: wrote %q, want %q", what, got, want)
	}
}

func (p *plant) pod(name string) *corev1.Pod {
	p.t.Helper()
	pod, err := p.host.CoreV1().Pods(ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
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

func (p *plant) config(unit string) string {
	p.t.Helper()
	configMap, err := p.host.CoreV1().ConfigMaps(ns).Get(context.Background(), probepod.RuntimeName(unit), metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return configMap.Data[probepod.ConfigKey]
}

// deployed is the condition RuntimeDeployed as "Status Reason", "" without one.
func (p *plant) deployed(unit string) (string, string) {
	p.t.Helper()
	u, err := p.ours.PhysicalV1alpha1().Units(ns).Get(context.Background(), unit, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	condition := meta.FindStatusCondition(u.Status.Conditions, ConditionRuntimeDeployed)
	if condition == nil {
		return "", ""
	}
	return string(condition.Status) + " " + condition.Reason, condition.Message
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

func unitNamed(name string) *v1alpha1.Unit {
	return &v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-of-" + name), Generation: 1}}
}

// controlModule has one tag of each module, named as the module.
func controlModule(name, unit string, modules ...string) *v1alpha1.ControlModule {
	c := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-of-" + name), Generation: 1}}
	c.Spec.UnitRef.Name = unit
	for _, module := range modules {
		c.Spec.Tags = append(c.Spec.Tags, v1alpha1.Tag{
			Name: "of-" + module, IOModuleRef: v1alpha1.IOModuleReference{Name: module}, Address: "holding:1", DataType: v1alpha1.DataTypeUint16,
			Access: v1alpha1.AccessRead, Period: &metav1.Duration{Duration: time.Second},
		})
	}
	return c
}

func modbusModule(name, endpoint string, connections int32) *v1alpha1.IOModule {
	m := &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-of-" + name), Generation: 1}}
	m.Spec = v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolModbus, Modbus: &v1alpha1.ModbusConnection{Endpoint: endpoint}}
	if connections > 0 {
		m.Spec.Modbus.MaxConnections = ptr.To(connections)
	}
	m.Status.ProbePodName = "network-io-probe"
	return m
}

func node(name string, labels map[string]string, ready corev1.ConditionStatus, since time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)},
		}},
	}
}

func probeAt(ip string) *corev1.Pod {
	pod := probepod.Build(probepod.Pod{Namespace: ns, Name: "network-io-probe", Kind: probepod.Network})
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip}
	return pod
}

// next is the object with another generation and resourceVersion, as an update of its spec gives it.
func next[T interface {
	metav1.Object
	DeepCopy() T
}](object T, change func(T)) T {
	copied := object.DeepCopy()
	change(copied)
	copied.SetGeneration(object.GetGeneration() + 1)
	copied.SetResourceVersion(fmt.Sprint(copied.GetGeneration()))
	return copied
}
