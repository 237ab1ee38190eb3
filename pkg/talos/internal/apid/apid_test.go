package apid

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
)

// Req: T-02
func TestAddressesGetTalosPort(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":       "192.0.2.1:50000",
		"192.0.2.1:50001": "192.0.2.1:50001",
		"node.example":    "",
		"":                "",
		"localhost:50000": "",
	} {
		have, err := addrPort(in)
		if (err != nil) != (want == "") || err == nil && have.String() != want {
			t.Errorf("%q gives %v, %v", in, have, err)
		}
	}
}

func TestASessionReadsABoundedAmount(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close() //nolint:errcheck

	go func() {
		for {
			if _, err := far.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}()

	conn := &watchedConn{Conn: near}
	defer conn.Close() //nolint:errcheck

	n, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, errTooMuch) || n > maxSessionBytes {
		t.Errorf("read %d bytes: %v", n, err)
	}

	if !errors.Is(conn.readError(), errTooMuch) {
		t.Errorf("kept %v", conn.readError())
	}
}

func TestFailedHandshakesAreTold(t *testing.T) {
	remote := func(code uint8) error { return &net.OpError{Op: "remote error", Err: alertError(code)} }

	for _, tc := range []struct {
		name    string
		err     error
		want    Failure
		refuses bool
	}{
		{"closed at once", io.EOF, Silent, false},
		{"closed amidst", io.ErrUnexpectedEOF, Silent, false},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, Silent, false},
		{"too late", context.DeadlineExceeded, Silent, false},
		{"cancelled", context.Canceled, Silent, false},
		{"certificate required", remote(116), CertificateWanted, true},
		{"bad certificate", remote(42), CertificateWanted, true},
		{"expired certificate", remote(45), Foreign, true},
		{"a CA that the peer does not know", remote(48), Foreign, true},
		{"protocol version", remote(70), Foreign, false},
		{"no TLS record", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, Foreign, false},
		{"no HTTP/2", errNoHTTP2, Foreign, false},
		{"anything else", errors.New("else"), Foreign, false},
	} {
		err := fmt.Errorf("wrapped: %w", tc.err)

		if have := FailureOf(err); have != tc.want {
			t.Errorf("%s: have %v, want %v", tc.name, have, tc.want)
		}

		if have := RefusesCertificate(err); have != tc.refuses {
			t.Errorf("%s: refuses the certificate: %v", tc.name, have)
		}
	}
}

// alertError is like what crypto/tls hands out for an alert of the peer: a type of its own with the alert's number.
type alertError uint8

func (alertError) Error() string { return "an alert" }
