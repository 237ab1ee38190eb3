package maintenance

import (
	"bytes"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The tests here run over net.Pipe: no socket is opened (T-19). The real client meets a whole simulated node in
// test/plant.

func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()

	ca, err := x509.NewSelfSignedCertificateAuthority(x509.ECDSA(true))
	if err != nil {
		t.Fatal(err)
	}

	pair, err := x509.NewKeyPair(ca)
	if err != nil {
		t.Fatal(err)
	}

	return *pair.Certificate
}

// Req: T-09
func TestWhatAnswersIsClassified(t *testing.T) {
	cert := newCertificate(t)

	serveTLS := func(config *tls.Config) func(net.Conn) {
		return func(conn net.Conn) {
			server := tls.Server(conn, config)
			if server.Handshake() == nil {
				io.Copy(io.Discard, server) //nolint:errcheck // until the client leaves
			}

			conn.Close() //nolint:errcheck
		}
	}

	for _, tc := range []struct {
		name  string
		serve func(net.Conn)
		want  Class // empty: a session opens
	}{
		{"TLS 1.3 with HTTP/2 opens a session", serveTLS(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}), ""},
		{"TLS without HTTP/2 is not Talos", serveTLS(&tls.Config{Certificates: []tls.Certificate{cert}}), ClassNotTalos},
		{"TLS 1.2 is not Talos", serveTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}), ClassNotTalos},
		{"another application protocol is not Talos", serveTLS(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"spdy"}}), ClassNotTalos},
		{"plain text is not Talos", func(conn net.Conn) {
			go io.WriteString(conn, "SSH-2.0-OpenSSH_9.9\r\n") //nolint:errcheck // a pipe's writer waits for its reader
			io.Copy(io.Discard, conn)                          //nolint:errcheck
		}, ClassNotTalos},
		{"silence is unreachable", func(conn net.Conn) { io.Copy(io.Discard, conn) }, ClassUnreachable}, //nolint:errcheck
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close() //nolint:errcheck
			defer far.Close()  //nolint:errcheck

			go tc.serve(far)

			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()

			client, err := open(ctx, "192.0.2.1", near)
			if ClassOf(err) != tc.want || (err == nil) != (tc.want == "") {
				t.Fatalf("have %v, want class %q", err, tc.want)
			}

			if err != nil {
				if !strings.Contains(err.Error(), "192.0.2.1") {
					t.Errorf("the error does not name the address: %v", err)
				}

				return
			}

			leaf, parseErr := stdx509.ParseCertificate(cert.Certificate[0])
			if parseErr != nil {
				t.Fatal(parseErr)
			}

			if want := x509.SPKIFingerprint(leaf).String(); !SameFingerprint(client.Fingerprint(), want) {
				t.Errorf("fingerprint %q, want %q", client.Fingerprint(), want)
			}

			client.Close() //nolint:errcheck
		})
	}
}

// Req: T-09
func TestHandshakeErrorsAreClassified(t *testing.T) {
	remote := func(code uint8) error { return &net.OpError{Op: "remote error", Err: alertError(code)} }

	for _, tc := range []struct {
		name string
		err  error
		want Class
	}{
		{"closed at once", io.EOF, ClassUnreachable},
		{"closed amidst", io.ErrUnexpectedEOF, ClassUnreachable},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, ClassUnreachable},
		{"too late", context.DeadlineExceeded, ClassUnreachable},
		{"cancelled", context.Canceled, ClassUnreachable},
		{"certificate required", remote(116), ClassNotInMaintenance},
		{"bad certificate", remote(42), ClassNotInMaintenance},
		{"protocol version", remote(70), ClassNotTalos},
		{"no such protocol", remote(120), ClassNotTalos},
		{"no TLS record", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, ClassNotTalos},
		{"no certificate", errNoLeaf, ClassNotTalos},
	} {
		if have := handshakeClass(fmt.Errorf("wrapped: %w", tc.err)); have != tc.want {
			t.Errorf("%s: have %q, want %q", tc.name, have, tc.want)
		}
	}
}

// alertError is like what crypto/tls hands out for an alert of the peer: a type of its own with the alert's number.
type alertError uint8

func (alertError) Error() string { return "an alert" }

// Req: T-18
func TestThePinRefusesAnotherKey(t *testing.T) {
	leaf := func() *stdx509.Certificate {
		cert, err := stdx509.ParseCertificate(newCertificate(t).Certificate[0])
		if err != nil {
			t.Fatal(err)
		}

		return cert
	}

	first, second := leaf(), leaf()
	pin := &leafPin{}

	for _, step := range []struct {
		name string
		show []*stdx509.Certificate
		want error
	}{
		{"no certificate", nil, errNoLeaf},
		{"the first key", []*stdx509.Certificate{first}, nil},
		{"the same key again", []*stdx509.Certificate{first}, nil},
		{"another key", []*stdx509.Certificate{second}, errKeyChanged},
		{"another leaf before the same key", []*stdx509.Certificate{second, first}, errKeyChanged},
		{"the first key still", []*stdx509.Certificate{first}, nil},
	} {
		if err := pin.check(tls.ConnectionState{PeerCertificates: step.show}); !errors.Is(err, step.want) {
			t.Errorf("%s: have %v, want %v", step.name, err, step.want)
		}
	}
}

func TestSameFingerprint(t *testing.T) {
	a := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	b := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32))

	for _, tc := range []struct {
		a, b string
		want bool
	}{{a, a, true}, {a, a + "\n", true}, {a, b, false}, {"", "", false}, {a, "", false}, {"%", "%", false}} {
		if SameFingerprint(tc.a, tc.b) != tc.want {
			t.Errorf("SameFingerprint(%q, %q) is not %v", tc.a, tc.b, tc.want)
		}
	}
}

// Req: T-02
func TestNoNameIsDialed(t *testing.T) {
	if err := Predial(t.Context(), "node.example"); ClassOf(err) != ClassUnreachable {
		t.Errorf("a name was dialed: %v", err)
	}
}

// Req: T-15, T-18
func TestApplyErrorsAreClassified(t *testing.T) {
	for code, want := range map[codes.Code]struct{ apply, dryRun Class }{
		codes.InvalidArgument:    {ClassRejected, ClassRejected},
		codes.Unimplemented:      {ClassRejected, ClassRejected},
		codes.PermissionDenied:   {ClassNotInMaintenance, ClassNotInMaintenance},
		codes.Unauthenticated:    {ClassNotInMaintenance, ClassNotInMaintenance},
		codes.FailedPrecondition: {ClassBusy, ClassBusy},
		codes.Aborted:            {ClassBusy, ClassBusy},
		codes.Unavailable:        {ClassOutcomeUnknown, ClassUnreachable},
		codes.DeadlineExceeded:   {ClassOutcomeUnknown, ClassUnreachable},
		codes.Canceled:           {ClassOutcomeUnknown, ClassUnreachable},
		codes.Internal:           {ClassNodeError, ClassNodeError},
		codes.Unknown:            {ClassNodeError, ClassNodeError},
	} {
		s := &session{address: "192.0.2.1", pin: &leafPin{}}
		config := []byte("machine:\n  token: abcdef.0123456789abcdef\n")
		cause := fmt.Errorf("wrapped: %w", status.Error(code, "bad value abcdef.0123456789abcdef"))

		for options, class := range map[ApplyOptions]Class{{}: want.apply, {DryRun: true}: want.dryRun} {
			err := s.applyError(cause, config, options)
			if ClassOf(err) != class {
				t.Errorf("%s, %+v: have %q, want %q", code, options, ClassOf(err), class)
			}

			if strings.Contains(err.Error(), "abcdef") || errors.Is(err, cause) {
				t.Errorf("%s: the error holds the node's raw message: %v", code, err)
			}
		}
	}

	for class, want := range map[Class]bool{
		ClassUnreachable: true, ClassIdentityAbsent: true, ClassNodeError: true, ClassBusy: true,
		ClassNotTalos: false, ClassNotInMaintenance: false, ClassRejected: false, ClassOutcomeUnknown: false,
	} {
		if have := (&Error{Class: class}).Retryable(); have != want {
			t.Errorf("%s: retryable is %v", class, have)
		}
	}
}
