package driver

import "errors"

// notSent are the failures that come before anything is sent. Where one of them may also come after, it is not listed.
var notSent = map[Reason]bool{
	ReasonRefused:                   true,
	ReasonHostUnreachable:           true,
	ReasonNameResolutionFailed:      true,
	ReasonConfigurationError:        true,
	ReasonNotSupported:              true,
	ReasonTooManySessions:           true,
	ReasonPathRejected:              true,
	ReasonCertificateUntrusted:      true,
	ReasonClientCertificateRejected: true,
	ReasonCredentialsRejected:       true,
	ReasonInsecureAuthentication:    true,
	ReasonSecurityModeRejected:      true,
	ReasonNotMeasured:               true,
	ReasonProbeUnavailable:          true,
}

// MaybeDone tells of an error of Write that the device may have done it all the same: the request was sent, or nobody can
// exclude that, and no answer came (P-15: a write is told as Done, refused or Uncertain).
func MaybeDone(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	return !ok || !e.Answered && !notSent[e.Reason]
}
