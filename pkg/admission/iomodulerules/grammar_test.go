package iomodulerules

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/validation"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
)

// The API's rules and the driver are written apart, since neither may import the other; what the API admits, the driver
// must understand, and what the driver understands, nobody should be kept from writing.
//
// Req: A-04, P-13
func TestTheAPIAndTheModbusDriverAgree(t *testing.T) {
	module := func(endpoint string, addressing physical.ModbusAddressing, address string) *physical.IOModule {
		return &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.IOModuleSpec{
			Protocol: physical.ProtocolModbus,
			Modbus:   &physical.ModbusConnection{Endpoint: endpoint, Addressing: addressing},
			Channels: []physical.Channel{{Name: "c", Address: address}},
		}}
	}
	for _, addressing := range []physical.ModbusAddressing{physical.ModbusAddressingZeroBased, physical.ModbusAddressingReference} {
		for _, address := range []string{
			"coil:0", "discrete:1", "input:65535", "holding:65536", "holding:-1", "holding:", ":1", "Holding:1", "holding:0x1", "holding:+1", "holding:1:2",
			"00001", "10001", "30001", "40001", "465536", "465537", "400000", "40000", "20001", "4001", "4000001", "-4001", "+4001", "4_001", "pressure", "0",
		} {
			t.Run(string(addressing)+" "+address, func(t *testing.T) {
				admitted := len(validation.ValidateIOModule(module("tcp://192.0.2.1", addressing, address))) == 0
				_, err := modbus.ParseAddress(address, modbus.Addressing(addressing))
				if admitted != (err == nil) {
					t.Errorf("admitted: %v, driver: %v", admitted, err)
				}
			})
		}
	}
	for _, endpoint := range []string{
		"tcp://192.0.2.1", "tcp://192.0.2.1:502", "tcp://[2001:db8::1]:502", "tcp://Pump_7:1502", "TCP://pump", "tcp://pump.",
		"tcp://pump:", "tcp://pump:0", "tcp://pump:65536", "tcp://pump/", "tcp://pump?x", "tcp://pump#x", "tcp://u@pump", "tcp:pump", "udp://pump", "pump:502", "", "tcp://",
	} {
		t.Run(endpoint, func(t *testing.T) {
			admitted := endpoint != "" && len(validation.ValidateIOModule(module(endpoint, physical.ModbusAddressingZeroBased, "coil:0"))) == 0
			_, err := modbus.ParseEndpoint(endpoint)
			if admitted != (err == nil) {
				t.Errorf("admitted: %v, driver: %v", admitted, err)
			}
		})
	}
}
