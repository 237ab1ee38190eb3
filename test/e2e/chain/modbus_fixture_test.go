package chain

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	typed "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/test/plant"
)

// The limits that people rely on (P-16), and the one for a first verdict, which a pod has to be started for.
const (
	faultLimit  = 5 * time.Second
	onlineLimit = 15 * time.Second
	firstLimit  = 45 * time.Second
)

// probeName is the name of the shared probe without a selector.
const probeName = "network-io-probe"

// device is a Modbus device of its own for a test.
type device struct {
	*modbustest.Device
	plant *plant.Plant
}

// newDevice starts a device with the units, each with a nameplate and two registers.
func newDevice(t *testing.T, units ...uint8) device {
	t.Helper()
	spec := plant.ModbusSpec{Name: "device", Address: fmt.Sprintf("127.0.78.%d:5020", lastDevice.Add(1))}
	for _, id := range units {
		spec.Units = append(spec.Units, plant.ModbusUnit{
			ID: id, Vendor: "fieldplane", Product: "Mixer", Revision: "1." + strconv.Itoa(int(id)),
			Registers: []plant.ModbusRegisters{{Table: "holding", Values: []uint16{215, 1480}}},
		})
	}
	p := startPlant(t, plant.Spec{Modbus: []plant.ModbusSpec{spec}})
	return device{Device: p.Modbus("device"), plant: p}
}

// fault makes something wrong with the device.
func (d device) fault(t *testing.T, mode string) {
	t.Helper()
	must(t, d.plant.Fault("device", mode))
}

func (d device) heal(t *testing.T) {
	t.Helper()
	must(t, d.plant.Heal("device"))
}

// site is a namespace with modules.
type site struct {
	name    string
	client  versioned.Interface
	modules typed.IOModuleInterface
}

func newSite(t *testing.T) site {
	t.Helper()
	namespace, client := env.Namespace(t), env.Admin(t)
	return site{name: namespace, client: client, modules: client.PhysicalV1alpha1().IOModules(namespace)}
}

// add declares a module for a unit of a device.
func (s site) add(t *testing.T, name string, d device, unit int32, more ...func(*v1alpha1.IOModuleSpec)) *v1alpha1.IOModule {
	t.Helper()
	module := &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.IOModuleSpec{
			Protocol: v1alpha1.ProtocolModbus,
			Modbus:   &v1alpha1.ModbusConnection{Endpoint: d.Endpoint(), UnitID: ptr.To(unit)},
			Channels: []v1alpha1.Channel{
				{Name: "temperature", Address: "holding:0", DataType: v1alpha1.DataTypeInt16},
				{Name: "speed", Address: "holding:1", DataType: v1alpha1.DataTypeUint16},
			},
		},
	}
	for _, change := range more {
		change(&module.Spec)
	}
	created, err := s.modules.Create(t.Context(), module, metav1.CreateOptions{})
	must(t, err)
	return created
}

// inZone asks for a probe on the nodes of a zone.
func inZone(zone string) func(*v1alpha1.IOModuleSpec) {
	return func(spec *v1alpha1.IOModuleSpec) {
		spec.ProbePlacement = &v1alpha1.ProbePlacement{NodeSelector: map[string]string{"zone": zone}}
	}
}

// change edits a module's spec as kubectl edit does, again if somebody was faster.
func (s site) change(t *testing.T, name string, edit func(*v1alpha1.IOModuleSpec)) *v1alpha1.IOModule {
	t.Helper()
	for {
		module, err := s.modules.Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		edit(&module.Spec)
		updated, err := s.modules.Update(t.Context(), module, metav1.UpdateOptions{})
		if err == nil {
			return updated
		}
		if !isConflict(err) {
			t.Fatal(err)
		}
	}
}

// verdict waits for a module's state and reason, for the spec as it is.
func (s site) verdict(t *testing.T, limit time.Duration, name string, state v1alpha1.ModuleState, reason string) *v1alpha1.IOModule {
	t.Helper()
	return until(t, limit, name, s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.State != state || m.Status.Reason != reason || m.Status.ObservedGeneration != m.Generation {
			return fmt.Sprintf("is %s of generation %d/%d, not %s %s", stateOf(m), m.Status.ObservedGeneration, m.Generation, state, reason)
		}
		return ""
	})
}

func (s site) online(t *testing.T, limit time.Duration, name string) *v1alpha1.IOModule {
	t.Helper()
	return s.verdict(t, limit, name, v1alpha1.ModuleOnline, "Connected")
}

// stateOf is "State Reason".
func stateOf(m *v1alpha1.IOModule) string {
	return fmt.Sprintf("%s %s", m.Status.State, m.Status.Reason)
}

// states records every state and reason of a module from now on.
func (s site) states(t *testing.T, name string) *recorded {
	t.Helper()
	return record(t, name, s.modules.Watch, stateOf)
}

// neverFaulty fails the test if a module ever was what only a measured device can be.
func (r *recorded) neverFaulty(t *testing.T) {
	t.Helper()
	for _, line := range r.all() {
		if state, _, _ := strings.Cut(line, " "); state != string(v1alpha1.ModuleOnline) && state != string(v1alpha1.ModuleUnknown) {
			t.Errorf("the device was well all the time, and the module was %q: %q", line, r.all())
		}
	}
}

// probe waits until a probe's pod is Ready.
func (s site) probe(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return until(t, firstLimit, name, env.Host().CoreV1().Pods(s.name).Watch, func(pod *corev1.Pod) string {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "the pod is not Ready"
	})
}

// pidOf is the process of a pod's container.
func pidOf(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	for _, c := range pod.Status.ContainerStatuses {
		if pid, err := strconv.Atoi(strings.TrimPrefix(c.ContainerID, "process://")); err == nil && c.State.Running != nil {
			return pid
		}
	}
	t.Fatalf("pod %s runs no process: %+v", pod.Name, pod.Status.ContainerStatuses)
	return 0
}
