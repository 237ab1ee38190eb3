package iomodule

import (
	"context"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Req: A-08
func TestWhatIsShownOfAModule(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, tc := range []struct {
		name   string
		module physical.IOModule
		want   []any
	}{
		{
			name: "a Modbus device at fault",
			module: physical.IOModule{
				ObjectMeta: metav1.ObjectMeta{Name: "plc1", CreationTimestamp: ago(time.Hour)},
				Spec:       physical.IOModuleSpec{Protocol: physical.ProtocolModbus, Modbus: &physical.ModbusConnection{Endpoint: "tcp://192.0.2.10"}},
				Status: physical.IOModuleStatus{
					State: physical.ModuleFault, Reason: "Timeout", Message: "no answer within 1s", Health: physical.HealthFailure,
					ChannelCount: ptr.To[int32](12), LastTransitionTime: ptr.To(ago(90 * time.Second)), ProbePodName: "network-io-probe",
				},
			},
			want: []any{"plc1", "modbus", "tcp://192.0.2.10", "Fault", "Timeout", "90s", "<none>", "Failure", "12", "network-io-probe", "no answer within 1s", "60m"},
		},
		{
			name: "an OPC UA server bound to a controller",
			module: physical.IOModule{
				ObjectMeta: metav1.ObjectMeta{Name: "ua", CreationTimestamp: ago(time.Minute)},
				Spec: physical.IOModuleSpec{
					Protocol: physical.ProtocolOPCUA, OPCUA: &physical.OPCUAConnection{Endpoint: "opc.tcp://192.0.2.11"},
					ControllerRef: &physical.ControllerReference{Name: "edge1"},
				},
				Status: physical.IOModuleStatus{State: physical.ModuleUnknown, ChannelCount: ptr.To[int32](0)},
			},
			want: []any{"ua", "opcua", "opc.tcp://192.0.2.11", "Unknown", "<none>", "<none>", "edge1", "<none>", "0", "<none>", "<none>", "60s"},
		},
		{
			name: "an EtherNet/IP device",
			module: physical.IOModule{
				ObjectMeta: metav1.ObjectMeta{Name: "cip"},
				Spec:       physical.IOModuleSpec{Protocol: physical.ProtocolEtherNetIP, Ethernetip: &physical.EtherNetIPConnection{Endpoint: "tcp://192.0.2.12"}},
			},
			want: []any{"cip", "ethernetip", "tcp://192.0.2.12", "<none>", "<none>", "<none>", "<none>", "<none>", "<none>", "<none>", "<none>", "<unknown>"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := newTable(clocktesting.NewFakePassiveClock(now)).ConvertToTable(context.Background(), &tc.module, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := table.Rows[0].Cells; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("shown\n%v, want\n%v", got, tc.want)
			}
		})
	}
}
