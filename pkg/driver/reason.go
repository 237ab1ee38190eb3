package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Reason says in one word, of the form that Kubernetes conditions want, why a device did not do what it was asked.
type Reason string

// The reasons of every protocol. Decisions are taken on these and on Error.Answered, never on an error's text.
const (
	// ReasonRefused: the host is there and nothing listens on the port.
	ReasonRefused Reason = "Refused"
	// ReasonTimeout: no answer within the request timeout.
	ReasonTimeout Reason = "Timeout"
	// ReasonConnectionLost: the peer reset or closed the connection.
	ReasonConnectionLost Reason = "ConnectionLost"
	// ReasonHostUnreachable: the network has no route to the host.
	ReasonHostUnreachable Reason = "HostUnreachable"
	// ReasonNameResolutionFailed: the endpoint's host name has no address.
	ReasonNameResolutionFailed Reason = "NameResolutionFailed"
	// ReasonUnitNotResponding: the gateway answers and this unit behind it does not (Modbus exceptions 0x0A, 0x0B).
	ReasonUnitNotResponding Reason = "UnitNotResponding"
	// ReasonProtocolError: what came back is not the protocol, or not the answer to what was asked.
	ReasonProtocolError Reason = "ProtocolError"
	// ReasonConfigurationError: the module's specification cannot work as it stands.
	ReasonConfigurationError Reason = "ConfigurationError"
	// ReasonDeviceFailure: the device answers that it failed to do what was asked.
	ReasonDeviceFailure Reason = "DeviceFailure"
	// ReasonDeviceBusy: the device answers that it is busy.
	ReasonDeviceBusy Reason = "DeviceBusy"
	// ReasonNotSupported: the device answers that it has no such function.
	ReasonNotSupported Reason = "NotSupported"
	// ReasonTooManySessions: the device allows no further session or connection.
	ReasonTooManySessions Reason = "TooManySessions"
	// ReasonPathRejected: the device refuses the route to the CPU, or has none (an EtherNet/IP Forward Open was refused).
	ReasonPathRejected Reason = "PathRejected"
	// ReasonCertificateUntrusted: the device's certificate is not one that the module's specification trusts.
	ReasonCertificateUntrusted Reason = "CertificateUntrusted"
	// ReasonCertificateExpiring: the device's certificate expires within 30 days, or has expired and is pinned.
	ReasonCertificateExpiring Reason = "CertificateExpiring"
	// ReasonClientCertificateRejected: the device does not trust our own certificate.
	ReasonClientCertificateRejected Reason = "ClientCertificateRejected"
	// ReasonCredentialsRejected: the device refuses the user that the module's specification names.
	ReasonCredentialsRejected Reason = "CredentialsRejected"
	// ReasonInsecureAuthentication: the password would travel in clear text, and nobody allowed that.
	ReasonInsecureAuthentication Reason = "InsecureAuthentication"
	// ReasonSecurityModeRejected: the device does not offer the security that the module's specification asks for.
	ReasonSecurityModeRejected Reason = "SecurityModeRejected"
	// ReasonServerNotRunning: the server on the device answers that it does not run.
	ReasonServerNotRunning Reason = "ServerNotRunning"
	// ReasonAccessDenied: the device answers that this user may not do what was asked.
	ReasonAccessDenied Reason = "AccessDenied"
	// ReasonNotMeasured: our own side had no turn to ask, so that nothing is known; it is no verdict on the device
	// (P-07: what was not measured is Unknown).
	ReasonNotMeasured Reason = "NotMeasured"
	// ReasonProbeUnavailable: the probe that speaks with the device for us does not answer, or does not supervise it (P-11).
	ReasonProbeUnavailable Reason = "ProbeUnavailable"
)

// Error is the error of every Device call.
type Error struct {
	Reason Reason
	// Answered is true when the device itself answered, so that the error concerns what was asked and not the link.
	Answered bool
	Err      error
}

// Error tells the reason and its cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return string(e.Reason)
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf is the reason that err carries, or ReasonProtocolError when it carries none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ReasonProtocolError
}

// linkReasons maps what the network says to a reason. The order matters only for the resolver, whose errors may
// also be timeouts.
var linkReasons = [...]struct {
	is     func(error) bool
	reason Reason
}{
	{isResolverError, ReasonNameResolutionFailed},
	{isAny(syscall.ECONNREFUSED), ReasonRefused},
	{isAny(os.ErrDeadlineExceeded, context.DeadlineExceeded, syscall.ETIMEDOUT), ReasonTimeout},
	{isAny(syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN), ReasonHostUnreachable},
	{isAny(syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed), ReasonConnectionLost},
	{isTimeout, ReasonTimeout},
}

// LinkReason is the reason behind an error of dialing, writing or reading; an error that is not the network's is a
// ReasonProtocolError.
func LinkReason(err error) Reason {
	for _, c := range linkReasons {
		if c.is(err) {
			return c.reason
		}
	}
	return ReasonProtocolError
}

// LinkError is the typed form of an error of the connection, or of the protocol on it; the format says where, such as "unit 3
// at 192.0.2.1:502". The text ends up in a status, so that it leaves out what differs from one time to the next while the
// cause stays: our own port, and whether a peer hung up with FIN or RST, which depends on what it had not read yet.
func LinkError(err error, format string, args ...any) *Error {
	reason := LinkReason(err)
	cause := err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		cause = op.Err
	}
	if reason == ReasonConnectionLost {
		cause = &hungUpError{err}
	}
	return &Error{Reason: reason, Err: fmt.Errorf(format+": %w", append(args, cause)...)}
}

// hungUpError is the end of a connection that the peer ended.
type hungUpError struct{ cause error }

func (e *hungUpError) Error() string { return "the device closed the connection" }

func (e *hungUpError) Unwrap() error { return e.cause }

func isAny(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
}

func isResolverError(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
