package unitruntime

import (
	"fmt"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// A value older than this many of its tag's periods is Uncertain, and then Bad (P-15).
const (
	uncertainAfter = 3
	badAfter       = 10
)

// situation is all that the quality of a tag follows from, at the moment when it is read out.
type situation struct {
	// problem is what is wrong with the tag's or the module's entry, in the config or on the server.
	problem string
	// writeOnly: the tag is not read.
	writeOnly bool
	// down: the last exchange with the device failed, for the reason that cause tells.
	down  bool
	cause string
	// sampled: the device has answered for the tag; status and message are what it said last.
	sampled bool
	status  driver.StatusCode
	message string
	// answerAge is the age of that answer, and valueAge that of the value, which may be older; by a monotonic clock, from when the
	// question was sent.
	answerAge, valueAge time.Duration
	hasValue            bool
	period              time.Duration
}

// judge is the quality of a tag and, where it is not Good, why. It is judged whenever a value is told and never before, so that no
// value outlives its quality, whatever became of the reader.
func judge(s situation) (driver.StatusCode, string) {
	switch {
	case s.problem != "":
		return driver.StatusBadConfigurationError, s.problem
	case s.writeOnly:
		return driver.StatusBadNotReadable, "the tag is written and not read"
	case s.down:
		return driver.StatusBadNoCommunication, s.cause
	case !s.sampled:
		return driver.StatusBadWaitingForInitialData, "not read yet"
	case s.answerAge > badAfter*s.period:
		return driver.StatusBadNoCommunication, fmt.Sprintf("the device was not read for more than %d periods of %s", badAfter, s.period)
	case s.status.Bad():
		return s.status, s.message
	case !s.hasValue:
		return driver.StatusBadWaitingForInitialData, s.message
	case s.valueAge > badAfter*s.period:
		return driver.StatusBadNoCommunication, fmt.Sprintf("the value is older than %d periods of %s", badAfter, s.period)
	case s.valueAge > uncertainAfter*s.period:
		return driver.StatusUncertainLastUsableValue, fmt.Sprintf("the value is older than %d periods of %s", uncertainAfter, s.period)
	default:
		return s.status, s.message
	}
}
