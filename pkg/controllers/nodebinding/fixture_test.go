package nodebinding

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
)

func TestMain(m *testing.M) {
	// The fake clientset's watch panics when more events wait than this.
	watch.DefaultChanSize = 1 << 16

	os.Exit(m.Run())
}

const (
	namespace = "site-a"
	uuid      = "6f7a1c52-3b1e-4d8f-9a60-0cc47ab01056"
	// swapped is the same with its first three fields in the other byte order.
	swapped = "521c7a6f-1e3b-8f4d-9a60-0cc47ab01056"
	other   = "0d5c2b1a-9f8e-4c7d-8b6a-0cc47ab01057"
)

func machine(uuid string, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	now := metav1.Now()

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuid, Generation: 1},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "c"},
			Identity:   v1alpha1.MachineIdentity{UUID: uuid},
			Approved:   ptr.To(true),
		},
		Status: v1alpha1.TalosMachineStatus{Configuration: &v1alpha1.MachineConfiguration{AppliedAt: &now}},
	}
	for _, edit := range edits {
		edit(m)
	}

	return m
}

func unapproved(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) }

func unconfigured(m *v1alpha1.TalosMachine) { m.Status.Configuration = nil }

func bound(node string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.NodeName = node }
}

func node(name, systemUUID string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.SystemUUID = systemUUID

	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: ready, Message: "said by the machine"},
		}
	}

	return n
}

func controller(edits ...func(*physicalv1alpha1.Controller)) *physicalv1alpha1.Controller {
	c := &physicalv1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge", Generation: 3}}
	for _, edit := range edits {
		edit(c)
	}

	return c
}

func onNode(name string) func(*physicalv1alpha1.Controller) {
	return func(c *physicalv1alpha1.Controller) { c.Spec.NodeName = name }
}

func onMachine(name string) func(*physicalv1alpha1.Controller) {
	return func(c *physicalv1alpha1.Controller) {
		c.Spec.MachineRef = &physicalv1alpha1.MachineReference{Name: name}
	}
}

func simulated(c *physicalv1alpha1.Controller) { c.Spec.Simulation = true }

// world is a running controller with all around it, in a synctest bubble.
type world struct {
	t      *testing.T
	api    *fakeapi.API
	host   *kubefake.Clientset
	events *record.FakeRecorder
}

// start serves the objects; Nodes are the host cluster's.
func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()

	var ours, host []runtime.Object

	for _, object := range objects {
		if _, ok := object.(*corev1.Node); ok {
			host = append(host, object)
		} else {
			ours = append(ours, object)
		}
	}

	w := &world{t: t, api: fakeapi.New(ours...), host: kubefake.NewClientset(host...), events: record.NewFakeRecorder(100)}

	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(w.api.Fake, 0)
	hosts := kubeinformers.NewSharedInformerFactory(w.host, 0)
	binding := New(Config{
		Client:      w.api,
		Machines:    factory.Talos().V1alpha1().TalosMachines(),
		Controllers: factory.Physical().V1alpha1().Controllers(),
		Nodes:       hosts.Core().V1().Nodes(),
		Recorder:    w.events,
		Clock:       clock.RealClock{},
	})

	factory.Start(ctx.Done())
	hosts.Start(ctx.Done())

	done := make(chan error, 1)
	go func() { done <- binding.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}

		factory.Shutdown()
		hosts.Shutdown()
	})
	w.pass(time.Second)

	return w
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) machine(name string) *v1alpha1.TalosMachine {
	w.t.Helper()

	m, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return m
}

func (w *world) controller() *physicalv1alpha1.Controller {
	w.t.Helper()

	c, err := w.api.Fake.PhysicalV1alpha1().Controllers(namespace).Get(context.Background(), "edge", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return c
}

func (w *world) putNode(n *corev1.Node) {
	w.t.Helper()

	nodes := w.host.CoreV1().Nodes()
	if _, err := nodes.UpdateStatus(context.Background(), n, metav1.UpdateOptions{}); err == nil {
		w.pass(time.Second)

		return
	}

	if _, err := nodes.Create(context.Background(), n, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}

	w.pass(time.Second)
}

func (w *world) deleteNode(name string) {
	w.t.Helper()

	if err := w.host.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}

	w.pass(time.Second)
}

// writes are the requests so far that changed something of ours.
func (w *world) writes() int {
	n := 0

	for _, action := range w.api.Fake.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			n++
		}
	}

	return n
}

func (w *world) told() []string {
	var out []string

	for {
		select {
		case line := <-w.events.Events:
			out = append(out, line)
		default:
			return out
		}
	}
}
