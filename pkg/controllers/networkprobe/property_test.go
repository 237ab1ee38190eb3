package networkprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// Whatever comes, goes and moves, in whatever order, and whatever fails meanwhile: in the end there is what the modules of that
// moment ask for, and nothing else.
//
// Req: P-04, P-08, P-09
func TestWhateverHappensInTheEndThereIsWhatTheModulesAskFor(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			p := newPlant(t)
			failing := false
			p.host.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if failing && action.GetVerb() != "list" && random.IntN(4) == 0 {
					return true, nil, errors.New("the API is away")
				}
				return false, nil, nil
			})
			modules, controllers := map[string]*v1alpha1.IOModule{}, map[string]*v1alpha1.Controller{}
			for range 60 {
				switch random.IntN(10) {
				default:
					m := anyModule(random)
					modules[m.Name] = m
					p.add(m)
				case 0:
					name := fmt.Sprint("m", random.IntN(6))
					if m := modules[name]; m != nil {
						p.remove(m)
						delete(modules, name)
					}
				case 1, 2, 3:
					c := anyController(random)
					controllers[c.Name] = c
					p.control(c)
				case 4:
					name := fmt.Sprint("c", random.IntN(2))
					if c := controllers[name]; c != nil {
						_ = p.controllers.Delete(c)
						delete(controllers, name)
					}
				}
				if random.IntN(3) == 0 {
					failing = true
					_, _ = p.once()
					failing = false
				}
				if random.IntN(10) == 0 {
					p.settle()
					p.isRight(modules, controllers)
				}
			}
			p.settle()
			p.isRight(modules, controllers)
			for _, m := range modules {
				p.remove(m)
			}
			p.settle()
			p.isRight(nil, controllers)
		})
	}
}

func anyModule(random *rand.Rand) *v1alpha1.IOModule {
	selectors := []map[string]string{nil, {}, {"zone": "a"}, {"zone": "b"}}
	m := modbus(fmt.Sprint("m", random.IntN(6)), selectors[random.IntN(len(selectors))])
	m.Generation = random.Int64N(100)
	if random.IntN(3) > 0 {
		m.Spec.ProbePlacement = nil
		m.Spec.ControllerRef = &v1alpha1.ControllerReference{Name: fmt.Sprint("c", random.IntN(9)/4)}
		if random.IntN(6) == 0 {
			m.Spec.Protocol = v1alpha1.ProtocolSimulation
		}
	}
	return m
}

func anyController(random *rand.Rand) *v1alpha1.Controller {
	phases := []v1alpha1.ControllerPhase{v1alpha1.ControllerReady, v1alpha1.ControllerReady, v1alpha1.ControllerReady, v1alpha1.ControllerReady, v1alpha1.ControllerNotReady, v1alpha1.ControllerAwaitingNode, v1alpha1.ControllerSimulated, ""}
	c := edge(fmt.Sprint("n", random.IntN(2)))
	c.Name, c.UID = fmt.Sprint("c", random.IntN(2)), types.UID(fmt.Sprint("u", random.IntN(2)))
	c.Status.Phase = phases[random.IntN(len(phases))]
	if random.IntN(8) == 0 {
		c.DeletionTimestamp = &metav1.Time{Time: begin()}
	}
	return c
}

// isRight compares what there is with what there should be, computed anew and in another way than by the controller.
func (p *plant) isRight(modules map[string]*v1alpha1.IOModule, controllers map[string]*v1alpha1.Controller) {
	p.t.Helper()
	want := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		probe := BaseName
		switch ref := m.Spec.ControllerRef; {
		case m.Spec.Protocol == v1alpha1.ProtocolSimulation:
			continue
		case ref != nil:
			c := controllers[ref.Name]
			if c == nil || c.DeletionTimestamp != nil || c.Status.Phase != v1alpha1.ControllerReady && c.Status.Phase != v1alpha1.ControllerNotReady {
				continue
			}
			probe = fmt.Sprintf("%s of %s on %s", c.Name, c.UID, c.Status.NodeName)
		case m.Spec.ProbePlacement != nil && len(m.Spec.ProbePlacement.NodeSelector) > 0:
			probe = "zone " + m.Spec.ProbePlacement.NodeSelector["zone"]
		}
		want[probe] += " " + name
	}
	pods, err1 := p.host.CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{})
	configMaps, err2 := p.host.CoreV1().ConfigMaps(ns).List(context.Background(), metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		p.t.Fatal(err)
	}
	listed := map[string]string{}
	for _, cm := range configMaps.Items {
		listed[cm.Name] = " " + strings.Join(ListedModules(&cm), " ")
		if owner := metav1.GetControllerOf(&cm); (owner == nil) != (ControllerOf(&cm) == "") {
			p.t.Errorf("ConfigMap %s is of Controller %q, and owned by %+v", cm.Name, ControllerOf(&cm), owner)
		}
	}
	have := map[string]string{}
	for _, pod := range pods.Items {
		probe := pod.Name
		if zone, pinned := pod.Spec.NodeSelector["zone"]; pinned {
			probe = "zone " + zone
		}
		if owner := metav1.GetControllerOf(&pod); owner != nil {
			term := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
			probe = fmt.Sprintf("%s of %s on %s", owner.Name, owner.UID, term.MatchFields[0].Values[0])
		}
		have[probe] = listed[pod.Name]
		if !probepod.IsProbe(&pod) {
			p.t.Errorf("pod %s is not ours", pod.Name)
		}
	}
	if !maps.Equal(have, want) || len(configMaps.Items) != len(want) {
		p.t.Errorf("there is %v (%d ConfigMaps), and should be %v", have, len(configMaps.Items), want)
	}
}
