// Package apid makes one connection to the API of a Talos node, for the packages that know whom they talk to: the
// machinery's own client connects lazily, connects again by itself, and turns every failure into text. Here the
// connection comes first, is the only one, and its failures keep their types.
package apid

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strconv"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
)

// DialTCP connects to an IP address with an optional port, 50000 by default. No name is resolved and no proxy used.
func DialTCP(ctx context.Context, address string) (net.Conn, error) {
	target, err := addrPort(address)
	if err != nil {
		return nil, err
	}

	return (&net.Dialer{}).DialContext(ctx, "tcp", target.String())
}

// addrPort adds Talos's port. Only addresses are accepted: a name could lead anywhere.
func addrPort(address string) (netip.AddrPort, error) {
	if target, err := netip.ParseAddrPort(address); err == nil {
		return target, nil
	}

	addr, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s is no IP address with an optional port", strconv.Quote(remark.Clean(address)))
	}

	return netip.AddrPortFrom(addr, constants.ApidPort), nil
}

// Handshake makes a connection one of TLS 1.3 with HTTP/2, as apid's are; whom to trust is the configuration's. The
// connection stays the caller's to close when this fails.
func Handshake(ctx context.Context, tcp net.Conn, config *tls.Config) (*tls.Conn, error) {
	config = config.Clone()
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = []string{"h2"}

	conn := tls.Client(tcp, config)

	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}

	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, errNoHTTP2
	}

	return conn, nil
}

var errNoHTTP2 = errors.New("the TLS server does not speak HTTP/2")

// Failure is what a failed handshake says about the peer.
type Failure int

// The failures.
const (
	// Foreign: the peer speaks something else.
	Foreign Failure = iota
	// Silent: it says nothing, or the line broke.
	Silent
	// CertificateWanted: it ended TLS because no client certificate came, or not the right one.
	CertificateWanted
)

// FailureOf tells silence and broken lines from a peer that speaks something else.
func FailureOf(err error) Failure {
	var (
		header  tls.RecordHeaderError
		network net.Error
	)

	switch {
	case WantsCertificate(err):
		return CertificateWanted
	case isAlert(err), errors.As(err, &header), errors.Is(err, errNoHTTP2):
		return Foreign
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network), IsEOF(err):
		return Silent
	default:
		return Foreign
	}
}

// IsEOF tells that the peer has closed the connection, amidst something or not.
func IsEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// isAlert tells that the peer ended TLS with an alert.
func isAlert(err error) bool {
	_, ok := alertCode(err)

	return ok
}

// WantsCertificate tells that the peer ended TLS because no client certificate came.
func WantsCertificate(err error) bool {
	const badCertificate, certificateRequired = 42, 116 // RFC 8446, section 6

	code, ok := alertCode(err)

	return ok && (code == certificateRequired || code == badCertificate)
}

// RefusesCertificate tells that the peer ended TLS because of the client certificate, whatever it has against it.
func RefusesCertificate(err error) bool {
	const unsupported, revoked, expired, unknown, unknownCA, accessDenied = 43, 44, 45, 46, 48, 49 // ibid.

	if WantsCertificate(err) {
		return true
	}

	switch code, _ := alertCode(err); code {
	case unsupported, revoked, expired, unknown, unknownCA, accessDenied:
		return true
	}

	return false
}

// alertCode returns the number of a TLS alert from the peer. crypto/tls wraps it in a net.OpError and keeps its type to
// itself, which is a uint8.
func alertCode(err error) (uint8, bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}

	if value := reflect.ValueOf(op.Err); value.Kind() == reflect.Uint8 {
		return uint8(value.Uint()), true
	}

	return 0, false
}
