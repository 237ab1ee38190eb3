package driver

import (
	"context"
	"testing"
)

// Req: P-15
func TestAWriteThatMayHaveBeenDoneIsToldFromOneThatWasNot(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		maybe bool
	}{
		{"done", nil, false},
		{"refused by the device", &Error{Reason: ReasonDeviceFailure, Answered: true}, false},
		{"refused by the device for want of time", &Error{Reason: ReasonTimeout, Answered: true}, false},
		{"nobody listens", &Error{Reason: ReasonRefused}, false},
		{"no turn on the line", &Error{Reason: ReasonNotMeasured}, false},
		{"the value does not fit", &Error{Reason: ReasonConfigurationError}, false},
		{"the probe cannot be reached", &Error{Reason: ReasonProbeUnavailable}, false},
		{"no answer", &Error{Reason: ReasonTimeout}, true},
		{"the connection ended", &Error{Reason: ReasonConnectionLost}, true},
		{"an answer to something else", &Error{Reason: ReasonProtocolError}, true},
		{"the gateway's device fell silent", &Error{Reason: ReasonUnitNotResponding}, true},
		{"a reason that nobody foresaw", &Error{Reason: "Other"}, true},
		{"the caller gave up", context.Canceled, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := MaybeDone(c.err); got != c.maybe {
				t.Errorf("%v, want %v", got, c.maybe)
			}
		})
	}
}
