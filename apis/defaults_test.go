package apis_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talos "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// Req: P-16, P-05
func TestDefaults(t *testing.T) {
	probe := &physical.ProbeSettings{Period: seconds(1), Timeout: seconds(1), FailureThreshold: ptr.To[int32](3), SuccessThreshold: ptr.To[int32](2)}
	unit := physical.UnitSpec{
		HoldOn: []physical.ModuleState{physical.ModuleFault, physical.ModuleOffline}, UnknownHoldAfter: seconds(60), HoldTimeout: seconds(30),
	}
	for _, tc := range []struct {
		name      string
		obj, want runtime.Object
	}{
		{
			name: "a module has probe settings", obj: &physical.IOModule{}, want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe}},
		},
		{
			name: "probe settings that are given are kept",
			obj: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: &physical.ProbeSettings{
				Period: seconds(5), Timeout: &metav1.Duration{Duration: 50 * time.Millisecond}, FailureThreshold: ptr.To[int32](1), SuccessThreshold: ptr.To[int32](1),
			}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: &physical.ProbeSettings{
				Period: seconds(5), Timeout: &metav1.Duration{Duration: 50 * time.Millisecond}, FailureThreshold: ptr.To[int32](1), SuccessThreshold: ptr.To[int32](1),
			}}},
		},
		{
			name: "probe settings that are given in part are completed",
			obj:  &physical.IOModule{Spec: physical.IOModuleSpec{Probe: &physical.ProbeSettings{Period: seconds(5)}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: &physical.ProbeSettings{
				Period: seconds(5), Timeout: seconds(1), FailureThreshold: ptr.To[int32](3), SuccessThreshold: ptr.To[int32](2),
			}}},
		},
		{
			name: "Modbus is unit 1, big-endian, zero-based",
			obj:  &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, Modbus: &physical.ModbusConnection{}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, Modbus: &physical.ModbusConnection{
				UnitID: ptr.To[int32](1), WordOrder: physical.WordOrderABCD, Addressing: physical.ModbusAddressingZeroBased,
			}}},
		},
		{
			name: "Modbus unit 0 stays 0",
			obj: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, Modbus: &physical.ModbusConnection{
				UnitID: ptr.To[int32](0), WordOrder: physical.WordOrderDCBA, Addressing: physical.ModbusAddressingReference,
			}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, Modbus: &physical.ModbusConnection{
				UnitID: ptr.To[int32](0), WordOrder: physical.WordOrderDCBA, Addressing: physical.ModbusAddressingReference,
			}}},
		},
		{
			name: "OPC UA is signed and encrypted",
			obj:  &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, OPCUA: &physical.OPCUAConnection{}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, OPCUA: &physical.OPCUAConnection{
				SecurityPolicy: physical.OPCUASecurityPolicyBasic256Sha256, SecurityMode: physical.OPCUASecurityModeSignAndEncrypt, Identity: physical.OPCUAIdentityAnonymous,
			}}},
		},
		{
			name: "OPC UA without a policy has no mode",
			obj:  &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, OPCUA: &physical.OPCUAConnection{SecurityPolicy: physical.OPCUASecurityPolicyNone}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, OPCUA: &physical.OPCUAConnection{
				SecurityPolicy: physical.OPCUASecurityPolicyNone, SecurityMode: physical.OPCUASecurityModeNone, Identity: physical.OPCUAIdentityAnonymous,
			}}},
		},
		{
			name: "OPC UA as it was asked for",
			obj: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, OPCUA: &physical.OPCUAConnection{
				SecurityPolicy: physical.OPCUASecurityPolicyAes256Sha256RsaPss, SecurityMode: physical.OPCUASecurityModeSign, Identity: physical.OPCUAIdentityUserName,
			}}},
			want: &physical.IOModule{Spec: physical.IOModuleSpec{Probe: probe, OPCUA: &physical.OPCUAConnection{
				SecurityPolicy: physical.OPCUASecurityPolicyAes256Sha256RsaPss, SecurityMode: physical.OPCUASecurityModeSign, Identity: physical.OPCUAIdentityUserName,
			}}},
		},
		{name: "a Controller that is a node has no heartbeat", obj: &physical.Controller{}, want: &physical.Controller{}},
		{
			name: "a simulation is kept alive by the server", obj: &physical.Controller{Spec: physical.ControllerSpec{Simulation: true}},
			want: &physical.Controller{Spec: physical.ControllerSpec{Simulation: true, Heartbeat: physical.HeartbeatManaged}},
		},
		{
			name: "a simulation whose heart was stopped stays so",
			obj:  &physical.Controller{Spec: physical.ControllerSpec{Simulation: true, Heartbeat: physical.HeartbeatSuspended}},
			want: &physical.Controller{Spec: physical.ControllerSpec{Simulation: true, Heartbeat: physical.HeartbeatSuspended}},
		},
		{
			name: "each tag is read every second",
			obj: &physical.ControlModule{Spec: physical.ControlModuleSpec{Tags: []physical.Tag{
				{Name: "a"}, {Name: "b", Access: physical.AccessWrite, Period: seconds(9)},
			}}},
			want: &physical.ControlModule{Spec: physical.ControlModuleSpec{Tags: []physical.Tag{
				{Name: "a", Access: physical.AccessRead, Period: seconds(1)}, {Name: "b", Access: physical.AccessWrite, Period: seconds(9)},
			}}},
		},
		{name: "a Unit holds on Fault and Offline", obj: &physical.Unit{}, want: &physical.Unit{Spec: unit}},
		{
			name: "a Unit as it was asked for, never held for Unknown",
			obj:  &physical.Unit{Spec: physical.UnitSpec{HoldOn: []physical.ModuleState{physical.ModuleFault}, UnknownHoldAfter: seconds(0), HoldTimeout: seconds(5)}},
			want: &physical.Unit{Spec: physical.UnitSpec{HoldOn: []physical.ModuleState{physical.ModuleFault}, UnknownHoldAfter: seconds(0), HoldTimeout: seconds(5)}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := newScheme()
			scheme.Default(tc.obj)
			if !reflect.DeepEqual(tc.obj, tc.want) {
				t.Errorf("have %+v, want %+v", tc.obj, tc.want)
			}
			again := tc.obj.DeepCopyObject()
			scheme.Default(again)
			if !reflect.DeepEqual(again, tc.obj) {
				t.Errorf("defaulted twice: %+v", again)
			}
			// Items of a list are read with the same defaults.
			if module, ok := tc.obj.(*physical.IOModule); ok {
				list := &physical.IOModuleList{Items: []physical.IOModule{{}}}
				scheme.Default(list)
				if list.Items[0].Spec.Probe == nil || module.Spec.Probe == nil {
					t.Error("an item of a list has no defaults")
				}
			}
		})
	}
}

// Req: T-11, T-13. Neither role nor approval, nor anything else that decides over a machine, comes by itself.
func TestNothingOfAMachineIsDefaulted(t *testing.T) {
	scheme := newScheme()
	for _, obj := range []runtime.Object{&talos.TalosMachine{}, &talos.TalosCluster{}, &talos.TalosMachineList{Items: make([]talos.TalosMachine, 1)}} {
		before := obj.DeepCopyObject()
		scheme.Default(obj)
		if !reflect.DeepEqual(obj, before) {
			t.Errorf("defaulted to %+v", obj)
		}
	}
	for path := range sources(t, "talos/v1alpha1") {
		if strings.HasPrefix(path, "func SetDefaults_") {
			t.Errorf("%s: the group has no defaults", path)
		}
	}
}
