package units

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	typed "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
)

// The times that P-16 promises, and what tests allow for what has no promise: a pod has to be started, or something is
// already decided and has yet to be stored.
const (
	faultLimit  = 5 * time.Second
	holdLimit   = 500 * time.Millisecond
	onlineLimit = 15 * time.Second
	// contactLimit is from a declaration to a Unit that can be started.
	contactLimit = 90 * time.Second
	settleLimit  = 20 * time.Second
)

// lastDevice is the last byte of the address of the device that was made last.
var lastDevice atomic.Int32

// device is a Modbus device of its own for a test.
type device struct {
	*modbustest.Device
	plant *plant.Plant
}

// What the registers of each unit of a device hold at first: two that are measured, and two that are driven.
const (
	temperature = "holding:0"
	speed       = "holding:2"
	valve       = "holding:3"

	speedRegister, valveRegister = 2, 3
)

// newDevice starts a device with the units until the test ends.
func newDevice(t *testing.T, units ...uint8) device {
	t.Helper()
	spec := plant.ModbusSpec{Name: "device", Address: fmt.Sprintf("127.0.91.%d:5020", lastDevice.Add(1))}
	for _, id := range units {
		spec.Units = append(spec.Units, plant.ModbusUnit{
			ID: id, Vendor: "fieldplane", Product: "Mixer", Revision: "1." + strconv.Itoa(int(id)),
			Registers: []plant.ModbusRegisters{{Table: "holding", Values: []uint16{215, 1480, 0, 0}}},
		})
	}
	p, err := plant.Start(plant.Spec{Modbus: []plant.ModbusSpec{spec}}, nil)
	must(t, err)
	t.Cleanup(p.Close)
	return device{Device: p.Modbus("device"), plant: p}
}

// cut makes something wrong with the device, and returns when.
func (d device) cut(t *testing.T, mode string) time.Time {
	t.Helper()
	at := time.Now()
	must(t, d.plant.Fault("device", mode))
	return at
}

func (d device) heal(t *testing.T) {
	t.Helper()
	must(t, d.plant.Heal("device"))
}

// written are the writes of one register of a unit of the device, as ADDRESS=VALUE.
func (d device) written(unit uint8) []string {
	var lines []string
	for _, w := range d.Unit(unit).Writes() {
		for i, value := range w.Values {
			lines = append(lines, fmt.Sprintf("%d=%d", int(w.Address)+i, value))
		}
	}
	return lines
}

// site is a namespace with equipment.
type site struct {
	name   string
	client versioned.Interface
}

func newSite(t *testing.T) site {
	t.Helper()
	return site{name: env.Namespace(t), client: env.Admin(t)}
}

func (s site) modules() typed.IOModuleInterface { return s.client.PhysicalV1alpha1().IOModules(s.name) }

func (s site) units() typed.UnitInterface { return s.client.PhysicalV1alpha1().Units(s.name) }

func (s site) controllers() typed.ControllerInterface {
	return s.client.PhysicalV1alpha1().Controllers(s.name)
}

// addModule declares a module for a unit of a device.
func (s site) addModule(t *testing.T, name string, d device, unit int32, more ...func(*v1alpha1.IOModuleSpec)) {
	t.Helper()
	module := &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.IOModuleSpec{
			Protocol: v1alpha1.ProtocolModbus, Modbus: &v1alpha1.ModbusConnection{Endpoint: d.Endpoint(), UnitID: ptr.To(unit)},
			Channels: []v1alpha1.Channel{{Name: "temperature", Address: temperature, DataType: v1alpha1.DataTypeUint16}},
		},
	}
	for _, change := range more {
		change(&module.Spec)
	}
	_, err := s.modules().Create(t.Context(), module, metav1.CreateOptions{})
	must(t, err)
}

// quick asks for verdicts as fast as they are to be had, so that a device can fail and heal often.
func quick(spec *v1alpha1.IOModuleSpec) {
	spec.Probe = &v1alpha1.ProbeSettings{
		Period: &metav1.Duration{Duration: 250 * time.Millisecond}, Timeout: &metav1.Duration{Duration: 250 * time.Millisecond},
		FailureThreshold: ptr.To[int32](1), SuccessThreshold: ptr.To[int32](1),
	}
}

// addSimulated declares a simulation, whose heart the test is, and returns how to stop it and to have it beat again.
func (s site) addSimulated(t *testing.T, name, controller string) (silence, beat func()) {
	t.Helper()
	_, err := s.controllers().Create(t.Context(), &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Name: controller}, Spec: v1alpha1.ControllerSpec{Simulation: true, Heartbeat: v1alpha1.HeartbeatExternal},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = s.modules().Create(t.Context(), &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.IOModuleSpec{
			Protocol: v1alpha1.ProtocolSimulation, ControllerRef: &v1alpha1.ControllerReference{Name: controller},
			Channels: []v1alpha1.Channel{
				{Name: "temperature", Address: temperature, DataType: v1alpha1.DataTypeUint16},
				{Name: "speed", Address: speed, DataType: v1alpha1.DataTypeUint16, Access: v1alpha1.AccessReadWrite},
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	var alive atomic.Bool
	alive.Store(true)
	go func() {
		for ; ; time.Sleep(time.Second) {
			if t.Context().Err() != nil {
				return
			}
			if alive.Load() {
				_, _ = s.controllers().Patch(t.Context(), controller, types.MergePatchType,
					fmt.Appendf(nil, `{"status":{"lastAlive":%q}}`, time.Now().UTC().Format(time.RFC3339)), metav1.PatchOptions{}, "status")
			}
		}
	}()
	return func() { alive.Store(false) }, func() { alive.Store(true) }
}

// addUnit declares a Unit with a ControlModule of the same name that has the tags.
func (s site) addUnit(t *testing.T, name string, spec v1alpha1.UnitSpec, tags ...v1alpha1.Tag) {
	t.Helper()
	_, err := s.units().Create(t.Context(), &v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	must(t, err)
	module := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	module.Spec.UnitRef.Name, module.Spec.Tags = name, tags
	_, err = s.client.PhysicalV1alpha1().ControlModules(s.name).Create(t.Context(), module, metav1.CreateOptions{})
	must(t, err)
}

// reads is a tag that is read alone.
func reads(name, module, address string) v1alpha1.Tag {
	return v1alpha1.Tag{
		Name: name, IOModuleRef: v1alpha1.IOModuleReference{Name: module}, Address: address, DataType: v1alpha1.DataTypeUint16,
		Period: &metav1.Duration{Duration: 500 * time.Millisecond},
	}
}

// drives is a tag that is written, too, and has a hold value.
func drives(name, module, address, holdValue string) v1alpha1.Tag {
	tag := reads(name, module, address)
	tag.Access, tag.HoldValue = v1alpha1.AccessReadWrite, ptr.To(holdValue)
	return tag
}

func (s site) unit(t *testing.T, name string) *v1alpha1.Unit {
	t.Helper()
	unit, err := s.units().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return unit
}

// module waits for a module's state, for the spec as it is.
func (s site) module(t *testing.T, limit time.Duration, name string, state v1alpha1.ModuleState) *v1alpha1.IOModule {
	t.Helper()
	return until(t, limit, name, s.modules().Get, func(m *v1alpha1.IOModule) string {
		if m.Status.State != state || m.Status.ObservedGeneration != m.Generation {
			return fmt.Sprintf("is %s (%s), and not %s", m.Status.State, m.Status.Reason, state)
		}
		return ""
	})
}

// is waits for a Unit's state.
func (s site) is(t *testing.T, limit time.Duration, name string, state v1alpha1.UnitState) *v1alpha1.Unit {
	t.Helper()
	return until(t, limit, name, s.units().Get, func(u *v1alpha1.Unit) string {
		if u.Status.State != state {
			return fmt.Sprintf("is %s, and not %s", u.Status.State, state)
		}
		return ""
	})
}

// has waits until a Unit has conditions, each as "Type Status Reason".
func (s site) has(t *testing.T, limit time.Duration, name string, want ...string) *v1alpha1.Unit {
	t.Helper()
	return until(t, limit, name, s.units().Get, func(u *v1alpha1.Unit) string {
		for _, line := range want {
			kind, rest, _ := strings.Cut(line, " ")
			if have := condition(u.Status.Conditions, kind); have != rest {
				return fmt.Sprintf("has %s %s, and not %s", kind, have, rest)
			}
		}
		return ""
	})
}

// command sends one as the administrator.
func (s site) command(t *testing.T, unit string, name v1alpha1.UnitCommandName) error {
	t.Helper()
	_, err := s.units().Command(t.Context(), unit, &v1alpha1.UnitCommand{Spec: v1alpha1.UnitCommandSpec{Command: name}}, metav1.CreateOptions{})
	return err
}

// override sends one that passes over whatever is in the way.
func (s site) override(t *testing.T, unit string, name v1alpha1.UnitCommandName) error {
	t.Helper()
	_, err := s.units().Command(t.Context(), unit, &v1alpha1.UnitCommand{
		Spec: v1alpha1.UnitCommandSpec{Command: name, Override: true, Reason: "a test"},
	}, metav1.CreateOptions{})
	return err
}

// ready waits until a Unit's runtime and all of its devices are there.
func (s site) ready(t *testing.T, unit string) {
	t.Helper()
	s.has(t, contactLimit, unit, "RuntimeReady True RuntimeInContact", "EquipmentHealthy True ModulesOnline", "RuntimeDevicesConnected True DevicesConnected")
}

// run starts, or restarts, a Unit that is ready.
func (s site) run(t *testing.T, unit string, name v1alpha1.UnitCommandName) {
	t.Helper()
	harness.Eventually(t, 2*settleLimit, func() string {
		// What was not measured since the server began is refused, for a moment.
		if err := s.command(t, unit, name); err != nil {
			return err.Error()
		}
		return ""
	})
	s.is(t, settleLimit, unit, v1alpha1.UnitRunning)
}

// write sets a tag of a Unit's ControlModule of the same name.
func (s site) write(t *testing.T, unit, tag, value string) error {
	t.Helper()
	_, err := s.units().WriteTags(t.Context(), unit, &v1alpha1.UnitTags{
		ObjectMeta: metav1.ObjectMeta{Name: unit}, Reason: "a test",
		Writes: []v1alpha1.TagWrite{{ControlModule: unit, Name: tag, Value: value}},
	}, metav1.UpdateOptions{})
	return err
}

// set is write for one that must succeed: the runtime hears of a new state a moment after it is stored.
func (s site) set(t *testing.T, unit, tag, value string) {
	t.Helper()
	harness.Eventually(t, settleLimit, func() string {
		if err := s.write(t, unit, tag, value); err != nil {
			return err.Error()
		}
		return ""
	})
}

// tag is a tag of a Unit's ControlModule of the same name, as the API tells it.
func (s site) tag(t *testing.T, unit, name string) (v1alpha1.TagValue, error) {
	t.Helper()
	tags, err := s.units().GetTags(t.Context(), unit, metav1.GetOptions{})
	if err != nil {
		return v1alpha1.TagValue{}, err
	}
	for _, tag := range tags.Items {
		if tag.Name == name {
			return tag, nil
		}
	}
	return v1alpha1.TagValue{}, fmt.Errorf("Unit %s has no tag %s: %+v", unit, name, tags.Items)
}

// states are the states of a film of a Unit, each once until another comes.
func states(moments []moment[*v1alpha1.Unit]) []v1alpha1.UnitState {
	var out []v1alpha1.UnitState
	for _, m := range moments {
		if state := m.of.Status.State; len(out) == 0 || out[len(out)-1] != state {
			out = append(out, state)
		}
	}
	return out
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
