package modbus

import (
	"testing"

	"github.com/goburrow/modbus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13. Every exception code there can be.
func TestExceptionsMapToReasons(t *testing.T) {
	want := map[byte]driver.Reason{
		1: driver.ReasonNotSupported,
		2: driver.ReasonConfigurationError,
		3: driver.ReasonConfigurationError,
		4: driver.ReasonDeviceFailure,
		5: driver.ReasonDeviceBusy,
		6: driver.ReasonDeviceBusy,
		8: driver.ReasonDeviceFailure,
		// The gateway answers, the unit does not.
		10: driver.ReasonUnitNotResponding,
		11: driver.ReasonUnitNotResponding,
	}
	for code := range 256 {
		got := exceptionError(&modbus.ModbusError{FunctionCode: 3, ExceptionCode: byte(code)})
		reason, ok := want[byte(code)]
		if !ok {
			reason = driver.ReasonDeviceFailure
		}
		if got.Reason != reason {
			t.Errorf("exception %d: reason %s, want %s", code, got.Reason, reason)
		}
		if answered := code != 10 && code != 11; got.Answered != answered {
			t.Errorf("exception %d: answered %v, want %v", code, got.Answered, answered)
		}
	}
}
