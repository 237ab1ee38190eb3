package opcua

import (
	"errors"
	"fmt"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// The encodings of the replies (OPC 10000-6, Annex A).
const (
	openSecureChannelResponse = 449
	getEndpointsResponse      = 431
	createSessionResponse     = 464
	activateSessionResponse   = 470
	closeSessionResponse      = 476
	browseResponse            = 530
	browseNextResponse        = 536
	readResponse              = 634
	writeResponse             = 676
)

// meaning is what a status says: answered when it concerns what was asked, and not answered when it ends the session
// or never let it begin.
type meaning struct {
	reason   driver.Reason
	answered bool
}

// meanings maps what servers answer to reasons; any other bad status is a device failure.
var meanings = map[ua.StatusCode]meaning{
	ua.StatusBadTooManySessions:       {driver.ReasonTooManySessions, false},
	ua.StatusBadTCPNotEnoughResources: {driver.ReasonTooManySessions, false},

	ua.StatusBadSecurityChecksFailed:               {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateInvalid:                 {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateTimeInvalid:             {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateIssuerTimeInvalid:       {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateHostNameInvalid:         {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateURIInvalid:              {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateUseNotAllowed:           {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateIssuerUseNotAllowed:     {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateUntrusted:               {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateRevocationUnknown:       {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateIssuerRevocationUnknown: {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateRevoked:                 {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateIssuerRevoked:           {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadCertificateChainIncomplete:         {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadNoValidCertificates:                {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadApplicationSignatureInvalid:        {driver.ReasonClientCertificateRejected, false},
	ua.StatusBadNonceInvalid:                       {driver.ReasonProtocolError, false},
	ua.StatusBadIdentityTokenInvalid:               {driver.ReasonCredentialsRejected, false},
	ua.StatusBadIdentityTokenRejected:              {driver.ReasonCredentialsRejected, false},
	ua.StatusBadUserSignatureInvalid:               {driver.ReasonCredentialsRejected, false},
	ua.StatusBadSecurityPolicyRejected:             {driver.ReasonSecurityModeRejected, false},
	ua.StatusBadSecurityModeRejected:               {driver.ReasonSecurityModeRejected, false},
	ua.StatusBadSecurityModeInsufficient:           {driver.ReasonAccessDenied, true},
	ua.StatusBadServerHalted:                       {driver.ReasonServerNotRunning, false},
	ua.StatusBadShutdown:                           {driver.ReasonServerNotRunning, false},
	ua.StatusBadTCPEndpointURLInvalid:              {driver.ReasonConfigurationError, false},
	ua.StatusBadServerURIInvalid:                   {driver.ReasonConfigurationError, false},
	ua.StatusBadTCPServerTooBusy:                   {driver.ReasonDeviceBusy, false},
	ua.StatusBadTCPInternalError:                   {driver.ReasonProtocolError, false},
	ua.StatusBadTCPMessageTooLarge:                 {driver.ReasonProtocolError, false},
	ua.StatusBadTCPMessageTypeInvalid:              {driver.ReasonProtocolError, false},
	ua.StatusBadDecodingError:                      {driver.ReasonProtocolError, false},
	ua.StatusBadProtocolVersionUnsupported:         {driver.ReasonProtocolError, false},
	ua.StatusBadSequenceNumberInvalid:              {driver.ReasonProtocolError, false},
	ua.StatusBadTimeout:                            {driver.ReasonTimeout, false},
	ua.StatusBadRequestTimeout:                     {driver.ReasonTimeout, false},
	ua.StatusBadSessionIDInvalid:                   {driver.ReasonConnectionLost, false},
	ua.StatusBadSessionClosed:                      {driver.ReasonConnectionLost, false},
	ua.StatusBadSessionNotActivated:                {driver.ReasonConnectionLost, false},
	ua.StatusBadSecureChannelClosed:                {driver.ReasonConnectionLost, false},
	ua.StatusBadSecureChannelIDInvalid:             {driver.ReasonConnectionLost, false},
	ua.StatusBadSecureChannelTokenUnknown:          {driver.ReasonConnectionLost, false},
	ua.StatusBadTCPSecureChannelUnknown:            {driver.ReasonConnectionLost, false},
	ua.StatusBadConnectionClosed:                   {driver.ReasonConnectionLost, false},
	ua.StatusBadServerNotConnected:                 {driver.ReasonConnectionLost, false},

	ua.StatusBadUserAccessDenied:     {driver.ReasonAccessDenied, true},
	ua.StatusBadNotReadable:          {driver.ReasonAccessDenied, true},
	ua.StatusBadNotWritable:          {driver.ReasonAccessDenied, true},
	ua.StatusBadNodeIDUnknown:        {driver.ReasonConfigurationError, true},
	ua.StatusBadNodeIDInvalid:        {driver.ReasonConfigurationError, true},
	ua.StatusBadAttributeIDInvalid:   {driver.ReasonConfigurationError, true},
	ua.StatusBadIndexRangeInvalid:    {driver.ReasonConfigurationError, true},
	ua.StatusBadIndexRangeNoData:     {driver.ReasonConfigurationError, true},
	ua.StatusBadTypeMismatch:         {driver.ReasonConfigurationError, true},
	ua.StatusBadOutOfRange:           {driver.ReasonConfigurationError, true},
	ua.StatusBadConfigurationError:   {driver.ReasonConfigurationError, true},
	ua.StatusBadServiceUnsupported:   {driver.ReasonNotSupported, true},
	ua.StatusBadNotSupported:         {driver.ReasonNotSupported, true},
	ua.StatusBadNotImplemented:       {driver.ReasonNotSupported, true},
	ua.StatusBadWriteNotSupported:    {driver.ReasonNotSupported, true},
	ua.StatusBadTooManyOperations:    {driver.ReasonDeviceBusy, true},
	ua.StatusBadResourceUnavailable:  {driver.ReasonDeviceBusy, true},
	ua.StatusBadOutOfMemory:          {driver.ReasonDeviceBusy, true},
	ua.StatusBadNoContinuationPoints: {driver.ReasonDeviceBusy, true},
}

// meaningOf is what a bad status says.
func meaningOf(status ua.StatusCode) meaning {
	// The lower half tells details that no decision rests on.
	if m, ok := meanings[status&0xFFFF0000]; ok {
		return m
	}
	return meaning{driver.ReasonDeviceFailure, true}
}

// statusText is a status as the standard writes it, such as "BadNodeIdUnknown (0x80340000)".
func statusText(status ua.StatusCode) string {
	if known, ok := ua.StatusCodes[status&0xFFFF0000]; ok && known.Name != "" {
		name := known.Name
		if len(name) > len("Status") && name[:len("Status")] == "Status" {
			name = name[len("Status"):]
		}
		return fmt.Sprintf("%s (0x%08X)", name, uint32(status))
	}
	return fmt.Sprintf("status 0x%08X", uint32(status))
}

// linkError is the typed form of an error of the connection, of the protocol on it, or of the server. It leaves out what differs from one time
// to the next while the cause stays, such as our port, or how far a server got that then fell silent: the text ends up in a status.
func linkError(err error, hostPort, step string) *driver.Error {
	if known, ok := errors.AsType[*driver.Error](err); ok {
		return known
	}
	where := hostPort
	if step != "" {
		where += ", " + step
	}
	if status, ok := errors.AsType[ua.StatusCode](err); ok {
		m := meaningOf(status)
		return &driver.Error{Reason: m.reason, Answered: m.answered, Err: fmt.Errorf("%s: the server answers %s", where, statusText(status))}
	}
	if reason := driver.LinkReason(err); reason == driver.ReasonTimeout {
		return &driver.Error{Reason: reason, Err: fmt.Errorf("%s does not answer in time", hostPort)}
	}
	return driver.LinkError(err, "%s", where)
}

// atStep is an error of connecting: nothing that the server says there is an answer to what was asked.
func atStep(err error, hostPort, step string) *driver.Error {
	e := *linkError(err, hostPort, step)
	e.Answered = false
	return &e
}
