package modbus

import (
	"github.com/goburrow/modbus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// exceptions maps what a device or gateway answers to a reason. All prove that somebody
// answered, so that the connection is kept; the gateway's two prove that the unit is gone.
var exceptions = map[byte]struct {
	reason   driver.Reason
	answered bool
}{
	modbus.ExceptionCodeIllegalFunction:                    {driver.ReasonNotSupported, true},
	modbus.ExceptionCodeIllegalDataAddress:                 {driver.ReasonConfigurationError, true},
	modbus.ExceptionCodeIllegalDataValue:                   {driver.ReasonConfigurationError, true},
	modbus.ExceptionCodeServerDeviceFailure:                {driver.ReasonDeviceFailure, true},
	modbus.ExceptionCodeAcknowledge:                        {driver.ReasonDeviceBusy, true},
	modbus.ExceptionCodeServerDeviceBusy:                   {driver.ReasonDeviceBusy, true},
	modbus.ExceptionCodeMemoryParityError:                  {driver.ReasonDeviceFailure, true},
	modbus.ExceptionCodeGatewayPathUnavailable:             {driver.ReasonUnitNotResponding, false},
	modbus.ExceptionCodeGatewayTargetDeviceFailedToRespond: {driver.ReasonUnitNotResponding, false},
}

// exceptionError is the typed form of an exception; a code that the standard does not know is a device failure.
func exceptionError(e *modbus.ModbusError) *driver.Error {
	x, ok := exceptions[e.ExceptionCode]
	if !ok {
		x.reason, x.answered = driver.ReasonDeviceFailure, true
	}
	return &driver.Error{Reason: x.reason, Answered: x.answered, Err: e}
}
