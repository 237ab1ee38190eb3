package driver

// statuses maps what a device answers to the quality of the channel that was asked for; whatever else it answers is a failure
// of the device. What is not answered is not listed: that is no communication (P-15).
var statuses = map[Reason]StatusCode{
	// What the user may not read.
	ReasonAccessDenied: StatusBadConfigurationError,
	// Modbus 4.
	ReasonDeviceFailure: StatusBadDeviceFailure,
	// Modbus 6, once more after a retry: what was read before is the best that there is.
	ReasonDeviceBusy: StatusUncertainLastUsableValue,
}

// StatusOf is the quality that follows from an error (P-15), and Good without one. Of a protocol that has status codes the device's
// own goes before.
func StatusOf(err *Error) StatusCode {
	switch {
	case err == nil:
		return StatusGood
	case err.Reason == ReasonConfigurationError || err.Reason == ReasonNotSupported:
		// Modbus 1, 2 and 3; a tag that is not there, or has another type. Also where the device was not asked: it is not the link that must be mended.
		return StatusBadConfigurationError
	case !err.Answered:
		return StatusBadNoCommunication
	}
	if status, ok := statuses[err.Reason]; ok {
		return status
	}
	return StatusBadDeviceFailure
}
