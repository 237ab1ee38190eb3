package ethernetip

import (
	"errors"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13 (libplctag#213: wrong path or slot)
func TestAForwardOpensStatusBecomesAReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		status cipStatus
		want   driver.Reason
	}{
		{"no connections at all, as Micro800", cipStatus{0x08, 0}, driver.ReasonPathRejected},
		{"no such port", cipStatus{0x01, 0x0311}, driver.ReasonPathRejected},
		{"nothing in the slot", cipStatus{0x01, 0x0312}, driver.ReasonPathRejected},
		{"a path that is no path", cipStatus{0x01, 0x0315}, driver.ReasonPathRejected},
		{"path segment error", cipStatus{0x04, 0}, driver.ReasonPathRejected},
		{"path destination unknown", cipStatus{0x05, 0}, driver.ReasonPathRejected},
		{"what nobody knows", cipStatus{0x55, 0x7777}, driver.ReasonPathRejected},
		{"a connection failure that nobody knows", cipStatus{0x01, 0x7777}, driver.ReasonPathRejected},
		{"no more connections", cipStatus{0x01, 0x0113}, driver.ReasonTooManySessions},
		{"no resources", cipStatus{0x02, 0}, driver.ReasonTooManySessions},
		{"the CPU behind does not answer", cipStatus{0x01, 0x0204}, driver.ReasonUnitNotResponding},
		{"a connection of before", cipStatus{0x01, 0x0100}, driver.ReasonDeviceBusy},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.status.openError("192.0.2.1:44818", "1,5")
			if err.Reason != c.want || err.Answered {
				t.Errorf("%v is %s, answered %v; want %s, which is no connectivity", c.status, err.Reason, err.Answered, c.want)
			}
			if !strings.Contains(err.Error(), `"1,5"`) {
				t.Errorf("%q does not name the path", err)
			}
		})
	}
}

// Req: P-13
func TestARequestsStatusBecomesAReason(t *testing.T) {
	for _, c := range []struct {
		name     string
		status   cipStatus
		want     driver.Reason
		answered bool
	}{
		{"no such tag", cipStatus{0x04, 0}, driver.ReasonConfigurationError, true},
		{"no such member", cipStatus{0x05, 0x0001}, driver.ReasonConfigurationError, true},
		{"beyond the end", cipStatus{0xFF, 0x2105}, driver.ReasonConfigurationError, true},
		{"another type", cipStatus{0xFF, 0x2107}, driver.ReasonConfigurationError, true},
		{"no such service", cipStatus{0x08, 0}, driver.ReasonNotSupported, true},
		{"no resources now", cipStatus{0x02, 0}, driver.ReasonDeviceBusy, true},
		{"the keyswitch", cipStatus{0x10, 0x2101}, driver.ReasonDeviceBusy, true},
		{"what nobody knows", cipStatus{0x77, 0}, driver.ReasonDeviceFailure, true},
		{"an extended status that nobody knows", cipStatus{0xFF, 0x1234}, driver.ReasonDeviceFailure, true},
		{"the connection is gone", cipStatus{0x07, 0}, driver.ReasonConnectionLost, false},
		{"the CPU behind does not answer", cipStatus{0x01, 0x0204}, driver.ReasonUnitNotResponding, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.status.requestError(); err.Reason != c.want || err.Answered != c.answered {
				t.Errorf("%v is %s, answered %v; want %s, %v", c.status, err.Reason, err.Answered, c.want, c.answered)
			}
		})
	}
}

func TestParseReplyTakesOnlyWholeRepliesToWhatWasAsked(t *testing.T) {
	for _, c := range []struct {
		name  string
		data  []byte
		want  cipStatus
		wrong bool
	}{
		{"success", []byte{0xCC, 0, 0, 0, 1, 2}, cipStatus{}, false},
		{"a status", []byte{0xCC, 0, 5, 0}, cipStatus{5, 0}, false},
		{"an extended status", []byte{0xCC, 0, 0xFF, 1, 0x05, 0x21}, cipStatus{0xFF, 0x2105}, false},
		{"two words of extended status", []byte{0xCC, 0, 1, 2, 0x13, 1, 9, 9}, cipStatus{1, 0x0113}, false},
		{"another service", []byte{0xCD, 0, 0, 0}, cipStatus{}, true},
		{"a request", []byte{0x4C, 0, 0, 0}, cipStatus{}, true},
		{"half an extended status", []byte{0xCC, 0, 1, 1, 5}, cipStatus{}, true},
		{"nothing", nil, cipStatus{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := parseReply(serviceReadTag, c.data)
			if (err != nil) != c.wrong || r.status != c.want {
				t.Errorf("%+v, %v; want %v", r, err, c.want)
			}
			if err != nil && !errors.Is(err, errMalformedReply) {
				t.Errorf("%v is no malformed reply", err)
			}
		})
	}
}
