package peer

import (
	"crypto/tls"
	"errors"
	"net"
)

// ByCertificate tells whether a handshake failed by the certificate of either side.
func ByCertificate(err error) bool {
	var (
		ours   *tls.CertificateVerificationError
		theirs tls.AlertError
		remote *net.OpError
	)
	return errors.As(err, &ours) || errors.As(err, &theirs) || errors.As(err, &remote) && remote.Op == "remote error"
}
