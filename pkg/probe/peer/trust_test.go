package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
)

// Req: P-11
func TestWhichErrorsAreOfACertificate(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"the probe is of another CA", &url.Error{Op: "Get", URL: "https://192.0.2.100:9443", Err: errors.Join(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}, true},
		{"the probe does not take ours, in the handshake", fmt.Errorf("handshake: %w", tls.AlertError(42)), true},
		{"the probe does not take ours, after the handshake", fmt.Errorf("read: %w", &net.OpError{Op: "remote error", Err: tls.AlertError(42)}), true},
		{"nothing listens", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, false},
		{"the stream broke", io.ErrUnexpectedEOF, false},
		{"it was ended", context.Canceled, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ByCertificate(tc.err); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
