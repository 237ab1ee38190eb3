package unitruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// Whatever comes, goes and changes, in whatever order, and whatever fails meanwhile: in the end every Unit has the runtime that its
// ControlModules and their modules ask for, and nothing else is there. Only the Units that an event woke are looked at: one that an
// event concerns and does not wake would stay as it was.
//
// Req: P-14, P-15
func TestWhateverHappensInTheEndEveryUnitHasItsRuntime(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			p := newPlant(t)
			failing := false
			fail := func(action clienttesting.Action) (bool, runtime.Object, error) {
				if failing && action.GetVerb() != "list" && random.IntN(4) == 0 {
					return true, nil, errors.New("the API is away")
				}
				return false, nil, nil
			}
			p.host.PrependReactor("*", "*", fail)
			p.ours.PrependReactor("*", "*", fail)
			w := &world{p: p, random: random, woken: map[string]bool{}}
			p.c.wake = func(units ...types.NamespacedName) {
				for _, unit := range units {
					w.woken[unit.Name] = true
				}
			}
			for range 120 {
				w.happens()
				if random.IntN(3) == 0 {
					failing = true
					w.reconcile()
					failing = false
				}
				if random.IntN(15) == 0 {
					w.settle()
					w.isRight()
				}
			}
			w.settle()
			w.isRight()
			for _, name := range slices.Sorted(maps.Keys(p.known["units"])) {
				p.remove(p.known["units"][name])
			}
			w.settle()
			w.isRight()
		})
	}
}

// world is a plant in which things happen.
type world struct {
	p      *plant
	random *rand.Rand
	woken  map[string]bool
	made   int64
}

func (w *world) any(prefix string, n int) string { return fmt.Sprint(prefix, w.random.IntN(n)) }

// happens changes one object.
func (w *world) happens() {
	w.made++
	stamp := func(o metav1.Object) {
		o.SetGeneration(w.made)
		o.SetResourceVersion(fmt.Sprint(w.made))
	}
	switch w.random.IntN(12) {
	case 0, 1:
		u := unitNamed(w.any("u", 4))
		u.UID = types.UID(w.any("uid", 3))
		if w.random.IntN(2) == 0 {
			u.Spec.NodeSelector = map[string]string{"zone": w.any("z", 2)}
		}
		stamp(u)
		w.p.put(u)
	case 2, 3, 4:
		var modules []string
		for _, m := range []string{"m0", "m1", "m2", "m3"} {
			if w.random.IntN(2) == 0 {
				modules = append(modules, m)
			}
		}
		c := controlModule(w.any("c", 6), w.any("u", 5), modules...)
		stamp(c)
		w.p.put(c)
	case 5, 6, 7:
		m := modbusModule(w.any("m", 4), "tcp://192.0.2."+w.any("", 3)+":502", w.random.Int32N(4))
		if w.random.IntN(3) == 0 {
			m = bound(m)
		}
		if w.random.IntN(5) == 0 {
			m.Spec = v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolSimulation, ControllerRef: &v1alpha1.ControllerReference{Name: "edge"}}
		}
		m.Status.ProbePodName = w.any("probe", 2)
		stamp(m)
		w.p.put(m)
	case 8:
		// Only the status changes.
		if m, ok := w.p.known["iomodules"][w.any("m", 4)].(*v1alpha1.IOModule); ok {
			m = m.DeepCopy()
			m.Status.ProbePodName, m.ResourceVersion = w.any("probe", 2), fmt.Sprint(w.made)
			w.p.put(m)
		}
	case 9:
		for _, kind := range []string{"units", "controlmodules", "iomodules"} {
			names := slices.Sorted(maps.Keys(w.p.known[kind]))
			if len(names) > 0 && w.random.IntN(3) == 0 {
				w.p.remove(w.p.known[kind][names[w.random.IntN(len(names))]])
			}
		}
	case 10:
		w.probe()
	case 11:
		pods, err := w.p.host.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{LabelSelector: probepod.RuntimeLabel})
		if err != nil || len(pods.Items) == 0 {
			return
		}
		// Somebody deletes a pod.
		pod := &pods.Items[w.random.IntN(len(pods.Items))]
		if err := w.p.host.CoreV1().Pods(ns).Delete(context.Background(), pod.Name, metav1.DeleteOptions{}); err != nil {
			w.p.t.Fatal(err)
		}
		w.p.c.sources[3].Handler.OnDelete(pod)
	}
}

// probe moves a probe, or takes it away.
func (w *world) probe() {
	name := w.any("probe", 2)
	pods := w.p.host.CoreV1().Pods(ns)
	old, err := pods.Get(context.Background(), name, metav1.GetOptions{})
	there := err == nil
	if there {
		if err := pods.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			w.p.t.Fatal(err)
		}
	}
	is := probeAt("192.0.2.10" + w.any("", 3))
	is.Name = name
	if _, err := pods.Create(context.Background(), is, metav1.CreateOptions{}); err != nil {
		w.p.t.Fatal(err)
	}
	if there {
		w.p.c.sources[5].Handler.OnDelete(old)
	}
	w.p.c.sources[5].Handler.OnAdd(is, false)
}

// reconcile looks at the Units that were woken; one that fails stays woken.
func (w *world) reconcile() {
	for _, unit := range slices.Sorted(maps.Keys(w.woken)) {
		before := len(w.p.writes)
		delete(w.woken, unit)
		if w.p.once(unit) != nil || len(w.p.writes) > before {
			// What was written comes back as an event.
			w.woken[unit] = true
		}
	}
}

func (w *world) settle() {
	for range 20 {
		w.reconcile()
		if len(w.woken) == 0 {
			return
		}
	}
	w.p.t.Fatalf("does not settle: %v", w.woken)
}

// isRight compares what there is with what there should be, computed anew and in another way than by the controller.
func (w *world) isRight() {
	p := w.p
	p.t.Helper()
	pods, err1 := p.host.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{LabelSelector: probepod.RuntimeLabel})
	configMaps, err2 := p.host.CoreV1().ConfigMaps(ns).List(context.Background(), metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		p.t.Fatal(err)
	}
	have := map[string]string{}
	for _, pod := range pods.Items {
		unit, _ := probepod.UnitOf(&pod)
		have[unit] = fmt.Sprintf("of %s in zone %q", metav1.GetControllerOf(&pod).UID, pod.Spec.NodeSelector["zone"])
		if pod.Annotations[probepod.ConfigHashAnnotation] != configHash([]byte(p.config(unit))) {
			p.t.Errorf("the pod of %s does not have the hash of its config", unit)
		}
	}
	want := map[string]string{}
	for name, object := range p.known["units"] {
		unit := object.(*v1alpha1.Unit)
		want[name] = fmt.Sprintf("of %s in zone %q", unit.UID, unit.Spec.NodeSelector["zone"])
		if has, should := w.has(name), w.should(name); !maps.Equal(has, should) {
			p.t.Errorf("Unit %s has %v, and should have %v", name, has, should)
		}
	}
	if !maps.Equal(have, want) || len(configMaps.Items) != len(want) {
		p.t.Errorf("there is %v (%d ConfigMaps), and should be %v", have, len(configMaps.Items), want)
	}
}

// has is what a Unit's config says: its tags, and how its modules are reached.
func (w *world) has(unit string) map[string]string {
	var file struct {
		Modules []moduleEntry
		Tags    []tagEntry
	}
	if err := json.Unmarshal([]byte(w.p.config(unit)), &file); err != nil {
		w.p.t.Fatal(err)
	}
	has := map[string]string{}
	for _, m := range file.Modules {
		has[m.Name] = "directly"
		if m.Via != nil {
			has[m.Name] = "through " + m.Via.Address
			if w.probeAddress(m.Name) == "" {
				// Where it was last is as good as nowhere.
				has[m.Name] = "through "
			}
		}
	}
	for _, tag := range file.Tags {
		has[tag.ControlModule+"/"+tag.Name] = tag.IOModule
	}
	return has
}

func (w *world) should(unit string) map[string]string {
	should := map[string]string{}
	for name, object := range w.p.known["controlmodules"] {
		c := object.(*v1alpha1.ControlModule)
		if c.Spec.UnitRef.Name != unit {
			continue
		}
		for _, tag := range c.Spec.Tags {
			should[name+"/"+tag.Name] = tag.IOModuleRef.Name
			if m, ok := w.p.known["iomodules"][tag.IOModuleRef.Name].(*v1alpha1.IOModule); ok {
				should[m.Name] = "directly"
				if w.tooMany(m) {
					should[m.Name] = "through " + w.probeAddress(m.Name)
				}
			}
		}
	}
	return should
}

// tooMany counts the clients of a module's device one by one.
func (w *world) tooMany(module *v1alpha1.IOModule) bool {
	if module.Spec.Modbus == nil {
		return false
	}
	limit := int32(0)
	clients := map[string]bool{}
	for name, object := range w.p.known["iomodules"] {
		m := object.(*v1alpha1.IOModule)
		if m.Spec.Modbus == nil || m.Spec.Modbus.Endpoint != module.Spec.Modbus.Endpoint {
			continue
		}
		if l := m.Spec.Modbus.MaxConnections; l != nil && (limit == 0 || *l < limit) {
			limit = *l
		}
		clients[fmt.Sprint("bound:", m.Spec.ControllerRef != nil)] = true
		for _, object := range w.p.known["controlmodules"] {
			c := object.(*v1alpha1.ControlModule)
			if w.p.known["units"][c.Spec.UnitRef.Name] == nil {
				continue
			}
			if slices.ContainsFunc(c.Spec.Tags, func(t v1alpha1.Tag) bool { return t.IOModuleRef.Name == name }) {
				clients[c.Spec.UnitRef.Name] = true
			}
		}
	}
	return limit > 0 && len(clients) > int(limit)
}

// probeAddress is where the probe of a module answers, "" if it is away.
func (w *world) probeAddress(module string) string {
	m := w.p.known["iomodules"][module].(*v1alpha1.IOModule)
	pod, err := w.p.host.CoreV1().Pods(ns).Get(context.Background(), m.Status.ProbePodName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || pod.Status.Phase != corev1.PodRunning {
		return ""
	}
	return pod.Status.PodIP + ":9443"
}
