package server

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/plant"
)

// chainLimit is how long it may take from a device's loss to the hold through the loss of the leader.
const chainLimit = 20 * time.Second

// The leader is frozen before it can know that the device is lost; what it would have stored last is stored in its name; then it
// is killed. Everything from there on is the other replica's.
//
// Req: P-16, A-06
func TestALeaderThatIsKilledBetweenFaultAndHoldIsReplacedByOneThatHolds(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	stopped(t)
	leases := env.Host().CoordinationV1().Leases(installation.Namespace)
	if err := leases.Delete(t.Context(), apiserver.LeaseName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	etcd := externalEtcd(t)
	replicas := map[string]*process{}
	for _, name := range []string{"a", "b"} {
		replicas[name] = startServer(t, freePort(t), "--etcd-servers="+etcd, "--leader-election-identity="+name)
	}
	for _, replica := range replicas {
		replica.waitReady(t)
	}
	name := holder(t, leaderLimit, "")
	leader, follower := replicas[name], replicas[map[string]string{"a": "b", "b": "a"}[name]]

	const register, held = 2, 5
	p, err := plant.Start(plant.Spec{Modbus: []plant.ModbusSpec{{Name: "pump", Address: "127.0.93.1:5020", Units: []plant.ModbusUnit{
		{ID: 1, Registers: []plant.ModbusRegisters{{Table: "holding", Values: []uint16{215, 1480, 0, 0}}}},
	}}, {Name: "valve", Address: "127.0.93.2:5020", Units: []plant.ModbusUnit{
		{ID: 1, Registers: []plant.ModbusRegisters{{Table: "holding", Values: []uint16{215, 1480, 0, 0}}}},
	}}}}, nil)
	must(t, err)
	t.Cleanup(p.Close)
	client := direct(t, follower.address).PhysicalV1alpha1()
	ctx, create := t.Context(), metav1.CreateOptions{}
	for _, name := range []string{"pump", "valve"} {
		_, err := client.IOModules(namespace).Create(ctx, &physicalv1alpha1.IOModule{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: physicalv1alpha1.IOModuleSpec{
				Protocol: physicalv1alpha1.ProtocolModbus,
				Modbus:   &physicalv1alpha1.ModbusConnection{Endpoint: p.Modbus(name).Endpoint(), UnitID: ptr.To[int32](1)},
			},
		}, create)
		must(t, err)
	}
	units := client.Units(namespace)
	_, err = units.Create(ctx, &physicalv1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: "mixing"}}, create)
	must(t, err)
	drive := &physicalv1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: "drive"}}
	drive.Spec.UnitRef.Name = "mixing"
	for _, name := range []string{"pump", "valve"} {
		drive.Spec.Tags = append(drive.Spec.Tags, physicalv1alpha1.Tag{
			Name: name, IOModuleRef: physicalv1alpha1.IOModuleReference{Name: name}, Address: "holding:2", DataType: physicalv1alpha1.DataTypeUint16,
			Access: physicalv1alpha1.AccessReadWrite, HoldValue: ptr.To("5"),
		})
	}
	_, err = client.ControlModules(namespace).Create(ctx, drive, create)
	must(t, err)
	eventually(t, 2*time.Minute, func() error {
		_, err := units.Command(ctx, "mixing", &physicalv1alpha1.UnitCommand{Spec: physicalv1alpha1.UnitCommandSpec{Command: physicalv1alpha1.CommandStart}}, create)
		return err
	})

	// The other replica serves while the leader stands still.
	leader.Signal(syscall.SIGSTOP)
	began := time.Now()
	must(t, p.Fault("pump", "silent"))
	config := clientrest.CopyConfig(directConfig(t, follower.address))
	config.Impersonate = env.ServerConfig().Impersonate
	asServer, err := versioned.NewForConfig(config)
	must(t, err)
	eventually(t, 5*time.Second, func() error {
		m, err := client.IOModules(namespace).Get(ctx, "pump", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.Now()
		m.Status.State, m.Status.Reason, m.Status.LastTransitionTime = physicalv1alpha1.ModuleFault, "Timeout", &now
		_, err = asServer.PhysicalV1alpha1().IOModules(namespace).UpdateStatus(ctx, m, metav1.UpdateOptions{})
		return err
	})
	fault := time.Now()
	unit, err := units.Get(ctx, "mixing", metav1.GetOptions{})
	must(t, err)
	if unit.Status.State != physicalv1alpha1.UnitRunning {
		t.Fatalf("nobody leads, and the Unit is %s", unit.Status.State)
	}
	leader.Signal(syscall.SIGKILL)

	state := func(want physicalv1alpha1.UnitState) func() error {
		return func() error {
			if unit, err = units.Get(ctx, "mixing", metav1.GetOptions{}); err != nil {
				return err
			}
			if unit.Status.State != want && unit.Status.State != physicalv1alpha1.UnitHeld {
				return fmt.Errorf("the Unit is %s", unit.Status.State)
			}
			return nil
		}
	}
	eventually(t, 2*chainLimit, state(physicalv1alpha1.UnitHolding))
	holding := time.Now()
	t.Logf("leader gone with a stored Fault -> Holding %v; the device was cut %v before", holding.Sub(fault).Round(time.Millisecond), fault.Sub(began).Round(time.Millisecond))
	if took := holding.Sub(began); took > chainLimit {
		t.Errorf("held %v after the device was cut", took)
	}
	eventually(t, chainLimit, state(physicalv1alpha1.UnitHeld))
	if err := leads(follower); err != nil {
		t.Error(err)
	}
	hold := unit.Status.Hold
	if hold.PreviousState != physicalv1alpha1.UnitRunning || !slices.Equal(hold.Modules, []string{"pump"}) || !slices.ContainsFunc(hold.Causes, func(c physicalv1alpha1.UnitHoldCause) bool {
		return c.Cause == physicalv1alpha1.HoldCauseIOModuleFault
	}) {
		t.Errorf("the hold is %+v", hold)
	}
	if value := p.Modbus("valve").Unit(1).Holding(register); value != held {
		t.Errorf("the other device has %d", value)
	}
	eventually(t, chainLimit, func() error {
		list, err := env.Host().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "Unit" && strings.HasPrefix(e.Reason, "HeldBy") && e.Type == corev1.EventTypeWarning
		}) {
			return fmt.Errorf("the hold is not told")
		}
		return nil
	})
}
