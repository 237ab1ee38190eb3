package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Req: P-14
func TestATagIsCheckedAgainstTheModuleThatItNames(t *testing.T) {
	modbus := physical.IOModuleSpec{Protocol: physical.ProtocolModbus, Modbus: &physical.ModbusConnection{},
		Channels: []physical.Channel{{Name: "level", Address: "holding:1", DataType: physical.DataTypeUint16, Access: physical.AccessRead}}}
	opcua := physical.IOModuleSpec{Protocol: physical.ProtocolOPCUA}
	ethernetip := physical.IOModuleSpec{Protocol: physical.ProtocolEtherNetIP}
	simulation := physical.IOModuleSpec{Protocol: physical.ProtocolSimulation,
		Channels: []physical.Channel{{Name: "pump", Address: "pump", DataType: physical.DataTypeBool}}}
	for _, tc := range []struct {
		name string
		spec physical.IOModuleSpec
		tag  physical.Tag
		want string
	}{
		{"a register", modbus, physical.Tag{Address: "holding:7", DataType: physical.DataTypeFloat32, Access: physical.AccessReadWrite}, ""},
		{"a reference number where none are allowed", modbus, physical.Tag{Address: "40001"}, "address"},
		{"an address of another protocol", modbus, physical.Tag{Address: "ns=2;i=5"}, "address"},
		{"a table that cannot be written", modbus, physical.Tag{Address: "input:0", Access: physical.AccessReadWrite}, "access"},
		{"a number in a table of bits", modbus, physical.Tag{Address: "coil:0", DataType: physical.DataTypeUint16}, "dataType"},
		{"beyond the end of the table", modbus, physical.Tag{Address: "holding:65535", DataType: physical.DataTypeUint32}, "address"},
		{"a declared channel that is only read", modbus, physical.Tag{Address: "holding:1", Access: physical.AccessReadWrite}, "access"},
		{"a NodeId", opcua, physical.Tag{Address: "ns=2;s=Boiler.Pressure"}, ""},
		{"no NodeId", opcua, physical.Tag{Address: "holding:1"}, "address"},
		{"a tag of a controller", ethernetip, physical.Tag{Address: "Program:Main.Level"}, ""},
		{"no tag of a controller", ethernetip, physical.Tag{Address: "ns=2;i=5"}, "address"},
		{"a simulated channel", simulation, physical.Tag{Address: "pump"}, ""},
		{"a channel that the simulation does not have", simulation, physical.Tag{Address: "valve"}, "address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := CheckTagReference(&tc.tag, &tc.spec, field.NewPath("tag"))
			got := ""
			if len(errs) > 0 {
				got = strings.TrimPrefix(errs[0].Field, "tag.")
			}
			if got != tc.want || len(errs) > 1 {
				t.Errorf("errors %v, want one of %q", errs, tc.want)
			}
		})
	}
}
