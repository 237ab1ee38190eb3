package unitruntime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	program "github.com/fieldplane/fieldplane/pkg/unitruntime"
)

// Req: P-14, P-15
func TestTheLifeOfARuntime(t *testing.T) {
	p := newPlant(t)
	mixer := unitNamed("mixer")
	mixer.Spec.NodeSelector = map[string]string{"zone": "a"}
	p.put(mixer)
	p.expect("a Unit without tags has a runtime too", "mixer", "create configmap unit-runtime-mixer", "create pod unit-runtime-mixer")
	if p.certificates == 0 {
		t.Error("the runtime has no certificate")
	}
	pod := p.pod("unit-runtime-mixer")
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "Unit" || owner.UID != mixer.UID {
		t.Errorf("the pod is owned by %+v", owner)
	}
	if pod.Spec.NodeSelector["zone"] != "a" || pod.Spec.Containers[0].Image != "unit-runtime:v1" {
		t.Errorf("it runs %s on %v", pod.Spec.Containers[0].Image, pod.Spec.NodeSelector)
	}
	if unit, ours := probepod.UnitOf(pod); unit != "mixer" || !ours {
		t.Errorf("the pod is of Unit %q, ours %t", unit, ours)
	}

	inlet := controlModule("inlet", "mixer", "flow")
	flow := modbusModule("flow", "tcp://192.0.2.1:502", 0)
	p.put(inlet, flow)
	p.expect("tags change the configuration and wake the kubelet", "mixer", "update configmap unit-runtime-mixer", "patch pod unit-runtime-mixer")
	if again := p.pod("unit-runtime-mixer"); again.UID != pod.UID || again.Annotations[probepod.ConfigHashAnnotation] != configHash([]byte(p.config("mixer"))) {
		t.Error("the same pod should have the hash of the new config")
	}

	moved := next(mixer, func(u *v1alpha1.Unit) { u.Spec.NodeSelector = map[string]string{"zone": "b"} })
	p.put(moved)
	p.expect("another nodeSelector moves the pod", "mixer", "update configmap unit-runtime-mixer", "delete pod unit-runtime-mixer", "create pod unit-runtime-mixer")
	if got := p.pod("unit-runtime-mixer").Spec.NodeSelector["zone"]; got != "b" {
		t.Errorf("it is pinned to %q", got)
	}

	p.c.image = "unit-runtime:v2"
	p.expect("an upgrade makes it anew", "mixer", "delete pod unit-runtime-mixer", "create pod unit-runtime-mixer")

	p.remove(moved)
	p.expect("with the Unit everything goes, the pod first", "mixer", "delete pod unit-runtime-mixer", "delete configmap unit-runtime-mixer")
}

// Req: P-14
func TestTheConfigHasTheUnitsTagsAndTheModulesThatTheyName(t *testing.T) {
	p := newPlant(t)
	outlet := controlModule("outlet", "mixer", "valve", "gone")
	outlet.Spec.Tags[0].Access, outlet.Spec.Tags[0].HoldValue = v1alpha1.AccessReadWrite, ptr.To("0")
	outlet.Spec.Tags[0].Scaling, outlet.Spec.Tags[0].Unit = &v1alpha1.Scaling{Factor: ptr.To(0.1)}, "bar"
	p.put(unitNamed("mixer"), unitNamed("boiler"),
		outlet, controlModule("inlet", "mixer", "flow"), controlModule("burner", "boiler", "flow", "flame"),
		modbusModule("flow", "tcp://192.0.2.1:502", 0), modbusModule("valve", "tcp://192.0.2.2:502", 0), modbusModule("flame", "tcp://192.0.2.3:502", 0),
		modbusModule("nobodys", "tcp://192.0.2.4:502", 0))
	p.settle("mixer")
	want := `{"unit":{"name":"mixer","uid":"uid-of-mixer","generation":1},
"modules":[
{"name":"flow","uid":"uid-of-flow","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":"tcp://192.0.2.1:502"}}},
{"name":"valve","uid":"uid-of-valve","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":"tcp://192.0.2.2:502"}}}
],
"tags":[
{"controlModule":"inlet","name":"of-flow","ioModule":"flow","address":"holding:1","dataType":"uint16","access":"Read","period":"1s"},
{"controlModule":"outlet","name":"of-gone","ioModule":"gone","address":"holding:1","dataType":"uint16","access":"Read","period":"1s"},
{"controlModule":"outlet","name":"of-valve","ioModule":"valve","address":"holding:1","dataType":"uint16","access":"ReadWrite","period":"1s","scaling":{"factor":0.1},"unit":"bar","holdValue":"0"}
]}
`
	if got := p.config("mixer"); got != want {
		t.Errorf("the config is\n%swant\n%s", got, want)
	}

	is, err := program.ParseConfig([]byte(want))
	if err != nil || is.Hash != configHash([]byte(want)) || is.Unnamed > 0 {
		t.Errorf("the runtime does not take it: %+v, %v", is, err)
	}
	for _, tag := range is.Tags {
		if tag.Problem != "" {
			t.Errorf("the runtime finds %s/%s wrong: %s", tag.ControlModule, tag.Name, tag.Problem)
		}
	}

	// A ControlModule that moves to another Unit is in one config and not in the other.
	p.put(next(outlet, func(c *v1alpha1.ControlModule) { c.Spec.UnitRef.Name = "boiler" }))
	p.settle("mixer", "boiler")
	if strings.Contains(p.config("mixer"), "outlet") || !strings.Contains(p.config("boiler"), "outlet") {
		t.Errorf("outlet is the boiler's; mixer has\n%sboiler has\n%s", p.config("mixer"), p.config("boiler"))
	}
}

// Req: P-14, P-15 (a device that allows fewer connections than it has clients is read through its probe)
func TestADeviceWithFewerConnectionsThanClientsIsReadThroughItsProbe(t *testing.T) {
	const direct, through = `"modbus"`, `"via":{"address":"192.0.2.100:9443"}`
	for _, tc := range []struct {
		name    string
		modules []*v1alpha1.IOModule
		// users are the ControlModules, each of a Unit of its own; mixer's is looked at.
		users map[string][]string
		want  bool
	}{
		{name: "no limit is stated", modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 0)},
			users: map[string][]string{"mixer": {"flow"}, "boiler": {"flow"}}},
		{name: "one connection, the probe and the Unit", modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 1)},
			users: map[string][]string{"mixer": {"flow"}}, want: true},
		{name: "two connections, the probe and the Unit", modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 2)},
			users: map[string][]string{"mixer": {"flow"}}},
		{name: "two connections, the probe and two Units", modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 2)},
			users: map[string][]string{"mixer": {"flow"}, "boiler": {"flow"}}, want: true},
		{name: "the second client is of another module of the device", users: map[string][]string{"mixer": {"flow"}, "boiler": {"level"}}, want: true,
			modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 2), modbusModule("level", "tcp://192.0.2.1", 0)}},
		{name: "the limit is stated by another module of the device", users: map[string][]string{"mixer": {"flow"}}, want: true,
			modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 0), modbusModule("level", "tcp://192.0.2.1:502", 1)}},
		{name: "another port is another device", users: map[string][]string{"mixer": {"flow"}, "boiler": {"level"}},
			modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 2), modbusModule("level", "tcp://192.0.2.1:503", 0)}},
		{name: "two probes measure the device", users: map[string][]string{"mixer": {"flow"}}, want: true,
			modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 2), bound(modbusModule("level", "tcp://192.0.2.1:502", 0))}},
		{name: "a ControlModule of no Unit is no client", modules: []*v1alpha1.IOModule{modbusModule("flow", "tcp://192.0.2.1:502", 2)},
			users: map[string][]string{"mixer": {"flow"}, "none": {"flow"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlant(t, probeAt("192.0.2.100"))
			for _, m := range tc.modules {
				p.put(m)
			}
			for unit, modules := range tc.users {
				if unit != "none" {
					p.put(unitNamed(unit))
				}
				p.put(controlModule("of-"+unit, unit, modules...))
			}
			p.settle("mixer")
			config := p.config("mixer")
			if !strings.Contains(config, direct) || strings.Contains(config, through) != tc.want {
				t.Errorf("through the probe: want %t, have\n%s", tc.want, config)
			}
		})
	}
}

func bound(m *v1alpha1.IOModule) *v1alpha1.IOModule {
	m.Spec.ControllerRef = &v1alpha1.ControllerReference{Name: "edge"}
	return m
}

// Req: P-15
func TestWhileItsProbeIsAwayADeviceIsNotReadDirectly(t *testing.T) {
	p := newPlant(t)
	flow := modbusModule("flow", "tcp://192.0.2.1:502", 1)
	p.put(unitNamed("mixer"), controlModule("inlet", "mixer", "flow"), flow)
	p.settle("mixer")
	if got := p.config("mixer"); !strings.Contains(got, `"via":{"address":""}`) {
		t.Errorf("before there is a probe the config is\n%s", got)
	}
	if _, err := p.host.CoreV1().Pods(ns).Create(context.Background(), probeAt("192.0.2.100"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("the probe comes", "mixer", "update configmap unit-runtime-mixer", "patch pod unit-runtime-mixer")
	if err := p.host.CoreV1().Pods(ns).Delete(context.Background(), "network-io-probe", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("the probe goes, and the address stays", "mixer")
	if _, err := p.host.CoreV1().Pods(ns).Create(context.Background(), probeAt("192.0.2.101"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("it comes back elsewhere", "mixer", "update configmap unit-runtime-mixer", "patch pod unit-runtime-mixer")
	if got := p.config("mixer"); !strings.Contains(got, `"via":{"address":"192.0.2.101:9443"}`) {
		t.Errorf("the config is\n%s", got)
	}
}

// Req: P-15
func TestAConfigThatIsTooLargeIsToldAndTheRuntimeGoesOn(t *testing.T) {
	p := newPlant(t)
	small := controlModule("inlet", "mixer", "flow")
	huge := next(small, func(c *v1alpha1.ControlModule) {
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 2000 {
			// What cannot be compressed much.
			address := make([]byte, 1000)
			for j := range address {
				address[j] = byte('!' + random.IntN(90))
			}
			tag := c.Spec.Tags[0]
			tag.Name, tag.Address = fmt.Sprint("t", i), string(address)
			c.Spec.Tags = append(c.Spec.Tags, tag)
		}
	})
	p.put(unitNamed("mixer"), huge)
	p.expect("there is nothing but the word of it", "mixer", "update unit mixer")
	if got, message := p.deployed("mixer"); got != "False ConfigTooLarge" || !strings.Contains(message, "2001 tags") || !strings.Contains(message, "900 KiB compressed: there is no runtime") {
		t.Errorf("condition %s: %s", got, message)
	}
	if got := p.events(); strings.Count(got, "ConfigTooLarge") != 1 {
		t.Errorf("events %q", got)
	}
	p.put(next(huge, func(c *v1alpha1.ControlModule) { c.Spec = small.Spec }))
	p.expect("a smaller one is taken", "mixer", "create configmap unit-runtime-mixer", "create pod unit-runtime-mixer", "update unit mixer")
	if got, _ := p.deployed("mixer"); got != "True Deployed" {
		t.Errorf("condition %s", got)
	}
	before := p.config("mixer")
	p.put(next(next(huge, func(*v1alpha1.ControlModule) {}), func(*v1alpha1.ControlModule) {}))
	p.expect("one that grew is not", "mixer", "update unit mixer")
	if got, message := p.deployed("mixer"); got != "False ConfigTooLarge" || !strings.Contains(message, "goes on with") || p.config("mixer") != before {
		t.Errorf("condition %s: %s", got, message)
	}
}

// Req: P-15
func TestAConfigOfTwentyThousandTagsIsCompressed(t *testing.T) {
	p := newPlant(t)
	p.put(unitNamed("mixer"))
	for m := range 200 {
		p.put(modbusModule(fmt.Sprint("m", m), fmt.Sprintf("tcp://192.0.2.%d:502", m), 1))
	}
	for c := range 20 {
		module := controlModule(fmt.Sprint("c", c), "mixer")
		for i := range 1000 {
			module.Spec.Tags = append(module.Spec.Tags, v1alpha1.Tag{
				Name: fmt.Sprint("process-value-", i), IOModuleRef: v1alpha1.IOModuleReference{Name: fmt.Sprint("m", i%200)},
				Address: fmt.Sprint("holding:", i), DataType: v1alpha1.DataTypeUint16, Access: v1alpha1.AccessRead, Period: &metav1.Duration{Duration: time.Second},
			})
		}
		p.put(module)
	}
	p.expect("it fits", "mixer", "create configmap unit-runtime-mixer", "create pod unit-runtime-mixer")
	configMap, err := p.host.CoreV1().ConfigMaps(ns).Get(context.Background(), "unit-runtime-mixer", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := configMap.BinaryData[probepod.ConfigKey]
	if len(configMap.Data) != 0 || len(file) > MaxConfigBytes || p.pod("unit-runtime-mixer").Annotations[probepod.ConfigHashAnnotation] != configHash(file) {
		t.Errorf("the file has %d bytes, beside %d texts", len(file), len(configMap.Data))
	}
	is, err := program.ParseConfig(file)
	if err != nil || len(is.Tags) != 20_000 || len(is.Modules) != 200 || is.Hash != configHash(file) {
		t.Errorf("the runtime does not take it: %v", err)
	}
	t.Logf("20,000 tags take %d KiB, compressed %d KiB", len(textIn(configMap))>>10, len(file)>>10)

	if _, err := p.host.CoreV1().Pods(ns).Create(context.Background(), probeAt("192.0.2.100"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("the probe comes", "mixer", "update configmap unit-runtime-mixer", "patch pod unit-runtime-mixer")
	if err := p.host.CoreV1().Pods(ns).Delete(context.Background(), "network-io-probe", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("the probe goes, and its address is read from what is compressed", "mixer")
	for c := range 20 {
		p.remove(controlModule(fmt.Sprint("c", c), "mixer"))
	}
	p.expect("with fewer tags it is a text again", "mixer", "update configmap unit-runtime-mixer", "patch pod unit-runtime-mixer")
	if !strings.Contains(p.config("mixer"), `"name":"mixer"`) {
		t.Errorf("the config is %q", p.config("mixer"))
	}
}

// Req: P-15
func TestANameThatSomebodyElseHasIsLeftAloneAndTold(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Pod"} {
		t.Run(kind, func(t *testing.T) {
			p := newPlant(t)
			name := metav1.ObjectMeta{Namespace: ns, Name: "unit-runtime-mixer"}
			var err error
			if kind == "Pod" {
				_, err = p.host.CoreV1().Pods(ns).Create(context.Background(), &corev1.Pod{ObjectMeta: name}, metav1.CreateOptions{})
			} else {
				_, err = p.host.CoreV1().ConfigMaps(ns).Create(context.Background(), &corev1.ConfigMap{ObjectMeta: name}, metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			p.put(unitNamed("mixer"))
			p.twice("mixer")
			if got, message := p.deployed("mixer"); got != "False RuntimeNameTaken" || !strings.HasPrefix(message, kind+" unit-runtime-mixer") {
				t.Errorf("condition %s: %s", got, message)
			}
			for _, write := range p.writes {
				if strings.HasPrefix(write, "delete") || strings.HasPrefix(write, "patch") {
					t.Errorf("%s", write)
				}
			}
		})
	}
}

// twice reconciles twice: a name that is taken is tried again every time.
func (p *plant) twice(unit string) {
	p.t.Helper()
	for range 2 {
		if err := p.once(unit); err != nil {
			p.t.Fatal(err)
		}
	}
}

// Req: P-11, P-15
func TestARuntimeLeavesALostNode(t *testing.T) {
	p := newPlant(t, node("edge-1", nil, corev1.ConditionTrue, begin()))
	p.put(unitNamed("mixer"))
	p.settle("mixer")
	pod := p.pod("unit-runtime-mixer")
	pod.Spec.NodeName, pod.Status.Phase = "edge-1", corev1.PodRunning
	p.update(pod)
	p.clock.Step(time.Minute)
	lost := node("edge-1", nil, corev1.ConditionUnknown, p.clock.Now())
	if _, err := p.host.CoreV1().Nodes().Update(context.Background(), lost, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("a node that was just lost keeps it", "mixer")
	p.clock.Step(hosted.NodeLostAfter)
	p.expect("one that stays lost does not", "mixer", "delete pod unit-runtime-mixer", "update unit mixer", "create pod unit-runtime-mixer", "update unit mixer")
	if got := p.events(); !strings.Contains(got, "RuntimeNodeLost Node edge-1 is unreachable: the runtime is made anew") {
		t.Errorf("events %q", got)
	}
	if got, _ := p.deployed("mixer"); got != "True Deployed" {
		t.Errorf("condition %s", got)
	}
	p.remove(unitNamed("mixer"))
	stuck := p.pod("unit-runtime-mixer")
	stuck.Spec.NodeName, stuck.DeletionTimestamp = "edge-1", &metav1.Time{Time: p.clock.Now()}
	p.update(stuck)
	p.expect("on a lost node its removal waits for no kubelet", "mixer", "delete pod unit-runtime-mixer", "delete configmap unit-runtime-mixer")
}

// Req: P-15
func TestARuntimeThatFindsNoNodeIsTold(t *testing.T) {
	p := newPlant(t, node("edge-1", map[string]string{"zone": "a"}, corev1.ConditionFalse, begin()))
	mixer := unitNamed("mixer")
	mixer.Spec.NodeSelector = map[string]string{"zone": "a"}
	p.put(mixer)
	p.settle("mixer")
	pod := p.pod("unit-runtime-mixer")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	p.update(pod)
	p.expect("it is told", "mixer", "update unit mixer")
	if got, message := p.deployed("mixer"); got != "False RuntimeUnschedulable" || message != "The runtime needs a node with zone=a: node edge-1 is not ready" {
		t.Errorf("condition %s: %s", got, message)
	}
}

// Req: P-11
func TestTheCertificateComesFirstAndOnceForManyUnits(t *testing.T) {
	p := newPlant(t)
	p.certificate = errors.New("no CA")
	p.put(unitNamed("mixer"), unitNamed("boiler"))
	if err := p.once("mixer"); !errors.Is(err, p.certificate) || len(p.writes) > 0 {
		t.Errorf("without a certificate: %v, wrote %q", err, p.writes)
	}
	p.certificate = nil
	p.certificates = 0
	p.settle("mixer", "boiler")
	if p.certificates != 1 {
		t.Errorf("the certificate was looked at %d times within a minute", p.certificates)
	}
	p.c.Reconsider(ns)
	p.certificate = errors.New("no CA")
	if err := p.once("mixer"); !errors.Is(err, p.certificate) || p.certificates != 2 {
		t.Errorf("after a doubt it was looked at %d times, and %v", p.certificates, err)
	}
	p.put(controlModule("inlet", "mixer", "flow"))
	p.writes = nil
	if err := p.once("mixer"); !errors.Is(err, p.certificate) || len(p.writes) != 2 {
		t.Errorf("a runtime that runs is kept up to date without it: %v, wrote %q", err, p.writes)
	}
}

// Req: P-12, P-15
func TestANamespaceThatGoesAwayAndAUnitThatIsBeingDeletedGetNothing(t *testing.T) {
	p := newPlant(t)
	going := unitNamed("mixer")
	going.DeletionTimestamp = &metav1.Time{Time: begin()}
	p.put(going)
	p.expect("a Unit that is being deleted", "mixer")
	p.put(unitNamed("boiler"))
	gone := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
	if _, err := p.host.CoreV1().Namespaces().Update(context.Background(), gone, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.expect("a namespace that goes away", "boiler")
}

// Req: P-15
func TestAnotherUnitOfTheNameHasAnotherPod(t *testing.T) {
	p := newPlant(t)
	p.put(unitNamed("mixer"))
	p.settle("mixer")
	renewed := unitNamed("mixer")
	renewed.UID, renewed.ResourceVersion = "another", "9"
	p.put(renewed)
	p.expect("the former one's goes", "mixer", "update configmap unit-runtime-mixer", "delete pod unit-runtime-mixer", "create pod unit-runtime-mixer")
	if owner := metav1.GetControllerOf(p.pod("unit-runtime-mixer")); owner.UID != "another" {
		t.Errorf("the pod is owned by %+v", owner)
	}
}
