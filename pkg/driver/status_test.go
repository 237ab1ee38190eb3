package driver

import "testing"

// Req: P-15
func TestTheQualityFollowsFromTheError(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    *Error
		status StatusCode
		text   string
	}{
		{"a value", nil, 0, "Good"},
		{"link down", &Error{Reason: ReasonTimeout}, 0x80310000, "Bad_NoCommunication"},
		{"refused", &Error{Reason: ReasonRefused}, 0x80310000, "Bad_NoCommunication"},
		{"the unit behind a gateway is gone (Modbus 0x0A, 0x0B)", &Error{Reason: ReasonUnitNotResponding}, 0x80310000, "Bad_NoCommunication"},
		{"a device failure that nobody answered", &Error{Reason: ReasonDeviceFailure}, 0x80310000, "Bad_NoCommunication"},
		{"no turn to ask", &Error{Reason: ReasonNotMeasured}, 0x80310000, "Bad_NoCommunication"},
		{"a register that is not there (Modbus 2, 3)", &Error{Reason: ReasonConfigurationError, Answered: true}, 0x80890000, "Bad_ConfigurationError"},
		{"a channel that cannot be asked for", &Error{Reason: ReasonConfigurationError}, 0x80890000, "Bad_ConfigurationError"},
		{"a function that is not there (Modbus 1)", &Error{Reason: ReasonNotSupported, Answered: true}, 0x80890000, "Bad_ConfigurationError"},
		{"what the user may not read", &Error{Reason: ReasonAccessDenied, Answered: true}, 0x80890000, "Bad_ConfigurationError"},
		{"a device failure (Modbus 4)", &Error{Reason: ReasonDeviceFailure, Answered: true}, 0x808B0000, "Bad_DeviceFailure"},
		{"busy after a retry (Modbus 6)", &Error{Reason: ReasonDeviceBusy, Answered: true}, 0x40900000, "Uncertain_LastUsableValue"},
		{"an answer that nobody foresaw", &Error{Reason: "Other", Answered: true}, 0x808B0000, "Bad_DeviceFailure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := StatusOf(c.err)
			if got != c.status || got.String() != c.text {
				t.Errorf("%v, want %v", got, c.status)
			}
			if s := Refused(c.err); s.Status != got || s.Err != c.err {
				t.Errorf("sample %+v", s)
			}
		})
	}
}

// Req: P-15
func TestTheQualityIsTheSeverityBits(t *testing.T) {
	for _, c := range []struct {
		name                 string
		status               StatusCode
		good, uncertain, bad bool
	}{
		{"good", StatusGood, true, false, false},
		{"good with bits that say more", 0x00300480, true, false, false},
		{"uncertain", StatusUncertainLastUsableValue, false, true, false},
		{"bad", StatusBadSensorFailure, false, false, true},
		{"what nobody should send", 0xC0000000, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.status.Good() != c.good || c.status.Uncertain() != c.uncertain || c.status.Bad() != c.bad {
				t.Errorf("%v is good %v, uncertain %v, bad %v", c.status, c.status.Good(), c.status.Uncertain(), c.status.Bad())
			}
		})
	}
	if got := StatusCode(0x80340000).String(); got != "0x80340000" {
		t.Errorf("a code that we do not give is %q", got)
	}
}
