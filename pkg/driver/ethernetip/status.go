package ethernetip

import (
	"encoding/binary"
	"fmt"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Encapsulation statuses (CIP volume 2, 2-3.6).
const (
	statusNoMemory       = 0x02
	statusInvalidSession = 0x64
)

// encapsulationError is a refusal of the encapsulation layer.
type encapsulationError uint32

// Error tells the status.
func (e encapsulationError) Error() string {
	switch e {
	case statusNoMemory:
		return "the device has no room for another session"
	case statusInvalidSession:
		return "the device has forgotten the session"
	default:
		return fmt.Sprintf("the device refuses with encapsulation status 0x%02x", uint32(e))
	}
}

// reason is what the refusal means for the module.
func (e encapsulationError) reason() driver.Reason {
	switch e {
	case statusNoMemory:
		return driver.ReasonTooManySessions
	case statusInvalidSession:
		return driver.ReasonConnectionLost
	default:
		return driver.ReasonProtocolError
	}
}

// cipStatus is a CIP general status with the first word of its extended status, 0 for none.
type cipStatus struct {
	general  byte
	extended uint16
}

// General statuses (CIP volume 1, appendix B) that the driver acts on.
const (
	statusConnectionFailure = 0x01
	statusNoResources       = 0x02
	statusPartialTransfer   = 0x06
	statusConnectionLost    = 0x07
	statusServiceUnknown    = 0x08
	statusReplyTooLarge     = 0x11
	statusTooMuchData       = 0x15
	// statusEmbedded says that of several services in one packet some were refused.
	statusEmbedded = 0x1E
)

// meaning is what a status says about the module.
type meaning struct {
	reason driver.Reason
	// answered: the device itself answered, so that the status concerns what was asked and not the link.
	answered bool
	text     string
}

// requestStatuses maps what the device answers to a request. Beyond them it is a device failure.
var requestStatuses = map[cipStatus]meaning{
	{0x01, 0}:      {driver.ReasonConnectionLost, false, "the connection behind the device failed"},
	{0x01, 0x0107}: {driver.ReasonConnectionLost, false, "the device has forgotten the connection"},
	{0x01, 0x0203}: {driver.ReasonUnitNotResponding, false, "the CPU behind the device does not answer"},
	{0x01, 0x0204}: {driver.ReasonUnitNotResponding, false, "the CPU behind the device does not answer"},
	{0x02, 0}:      {driver.ReasonDeviceBusy, true, "the device has no resources for the request now"},
	{0x03, 0}:      {driver.ReasonConfigurationError, true, "a value is not allowed"},
	{0x04, 0}:      {driver.ReasonConfigurationError, true, "there is no such tag or member"},
	{0x05, 0}:      {driver.ReasonConfigurationError, true, "there is no such tag or member"},
	{0x07, 0}:      {driver.ReasonConnectionLost, false, "the connection is lost"},
	{0x08, 0}:      {driver.ReasonNotSupported, true, "the device has no such service"},
	{0x09, 0}:      {driver.ReasonConfigurationError, true, "the value is not allowed"},
	{0x0A, 0}:      {driver.ReasonNotSupported, true, "the device has no such attribute"},
	{0x0C, 0}:      {driver.ReasonDeviceBusy, true, "the device is in a state in which it cannot do this"},
	{0x0E, 0}:      {driver.ReasonConfigurationError, true, "it cannot be written"},
	{0x0F, 0}:      {driver.ReasonConfigurationError, true, "access is not permitted"},
	{0x10, 0}:      {driver.ReasonDeviceBusy, true, "the device is in a state in which it cannot do this"},
	{0x11, 0}:      {driver.ReasonConfigurationError, true, "the value is too large for a reply"},
	{0x13, 0}:      {driver.ReasonConfigurationError, true, "the request has too little data"},
	{0x14, 0}:      {driver.ReasonNotSupported, true, "the device has no such attribute"},
	{0x15, 0}:      {driver.ReasonConfigurationError, true, "the request has too much data"},
	{0x16, 0}:      {driver.ReasonConfigurationError, true, "there is no such object"},
	{0x26, 0}:      {driver.ReasonConfigurationError, true, "the address is not accepted"},
	{0xFF, 0x2104}: {driver.ReasonConfigurationError, true, "the address is beyond the end of the tag"},
	{0xFF, 0x2105}: {driver.ReasonConfigurationError, true, "the address is beyond the end of the tag"},
	{0xFF, 0x2107}: {driver.ReasonConfigurationError, true, "the tag has another type"},
}

// openStatuses maps what the device answers to a Forward Open. A refused Forward Open is no connectivity, although the
// device answers; beyond them it is a rejected path.
var openStatuses = map[cipStatus]meaning{
	{0x01, 0x0100}: {reason: driver.ReasonDeviceBusy, text: "it still has our connection of before"},
	{0x01, 0x0106}: {reason: driver.ReasonTooManySessions, text: "another owns the connection"},
	{0x01, 0x0113}: {reason: driver.ReasonTooManySessions, text: "it allows no more connections"},
	{0x01, 0x0203}: {reason: driver.ReasonUnitNotResponding, text: "the CPU behind it does not answer"},
	{0x01, 0x0204}: {reason: driver.ReasonUnitNotResponding, text: "the CPU behind it does not answer"},
	{0x01, 0x0301}: {reason: driver.ReasonTooManySessions, text: "it has no memory for another connection"},
	{0x01, 0x0302}: {reason: driver.ReasonTooManySessions, text: "it has no bandwidth for another connection"},
	{0x01, 0x0311}: {reason: driver.ReasonPathRejected, text: "it has no such port"},
	{0x01, 0x0312}: {reason: driver.ReasonPathRejected, text: "there is nothing in this slot or at this address"},
	{0x01, 0x0315}: {reason: driver.ReasonPathRejected, text: "it does not understand the path"},
	{0x01, 0x0318}: {reason: driver.ReasonPathRejected, text: "the path leads back to itself"},
	{0x02, 0}:      {reason: driver.ReasonTooManySessions, text: "it has no resources for another connection"},
	{0x04, 0}:      {reason: driver.ReasonPathRejected, text: "it does not understand the path"},
	{0x05, 0}:      {reason: driver.ReasonPathRejected, text: "the path leads nowhere"},
	{0x08, 0}:      {reason: driver.ReasonPathRejected, text: "it knows no connections, so that only its identity can be read (identityOnly)"},
	{0x0C, 0}:      {reason: driver.ReasonDeviceBusy, text: "it is in a state in which it cannot do this"},
	{0x10, 0}:      {reason: driver.ReasonDeviceBusy, text: "it is in a state in which it cannot do this"},
}

// String is the status as the standard writes it.
func (s cipStatus) String() string {
	if s.extended == 0 {
		return fmt.Sprintf("CIP status 0x%02x", s.general)
	}
	return fmt.Sprintf("CIP status 0x%02x, 0x%04x", s.general, s.extended)
}

// requestError is the typed form of a refused request.
func (s cipStatus) requestError() *driver.Error {
	m, ok := requestStatuses[s]
	if !ok {
		m, ok = requestStatuses[cipStatus{general: s.general}]
	}
	if !ok {
		m = meaning{driver.ReasonDeviceFailure, true, "the device failed to do it"}
	}
	return &driver.Error{Reason: m.reason, Answered: m.answered, Err: fmt.Errorf("%s (%v)", m.text, s)}
}

// openError is the typed form of a refused Forward Open.
func (s cipStatus) openError(address, path string) *driver.Error {
	m, ok := openStatuses[s]
	if !ok {
		m, ok = openStatuses[cipStatus{general: s.general}]
	}
	if !ok {
		m = meaning{reason: driver.ReasonPathRejected, text: "it refuses"}
	}
	where := "without a path"
	if path != "" {
		where = fmt.Sprintf("with the path %q", path)
	}
	return &driver.Error{Reason: m.reason, Err: fmt.Errorf("%s does not connect %s: %s (%v)", address, where, m.text, s)}
}

// reply is a CIP reply.
type reply struct {
	status cipStatus
	data   []byte
}

// parseReply reads the reply to a CIP request.
func parseReply(service byte, data []byte) (reply, error) {
	if len(data) < 4 || len(data) < 4+2*int(data[3]) {
		return reply{}, fmt.Errorf("%w: it ends within the status", errMalformedReply)
	}
	if data[0] != service|replyBit {
		return reply{}, fmt.Errorf("%w: service 0x%02x to a request of 0x%02x", errMalformedReply, data[0], service)
	}
	r := reply{status: cipStatus{general: data[2]}, data: data[4+2*int(data[3]):]}
	if data[3] > 0 {
		r.status.extended = binary.LittleEndian.Uint16(data[4:])
	}
	return r, nil
}
