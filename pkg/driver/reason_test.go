package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// Req: P-13
func TestLinkReasonIsDecidedByType(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: &os.SyscallError{Syscall: "connect", Err: err}}
	}
	for _, c := range []struct {
		name string
		err  error
		want Reason
	}{
		{"nothing listens", op(syscall.ECONNREFUSED), ReasonRefused},
		{"a dial that the kernel gave up", op(syscall.ETIMEDOUT), ReasonTimeout},
		{"a read past its deadline", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, ReasonTimeout},
		{"a context past its deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), ReasonTimeout},
		{"no route", op(syscall.EHOSTUNREACH), ReasonHostUnreachable},
		{"network down", op(syscall.ENETUNREACH), ReasonHostUnreachable},
		{"reset", op(syscall.ECONNRESET), ReasonConnectionLost},
		{"broken pipe", op(syscall.EPIPE), ReasonConnectionLost},
		{"closed by the peer", io.EOF, ReasonConnectionLost},
		{"closed within a frame", io.ErrUnexpectedEOF, ReasonConnectionLost},
		{"unknown host", &net.DNSError{Err: "no such host", IsNotFound: true}, ReasonNameResolutionFailed},
		{"a resolver that is silent", &net.DNSError{Err: "i/o timeout", IsTimeout: true}, ReasonNameResolutionFailed},
		{"text that only looks like a refusal", errors.New("connection refused"), ReasonProtocolError},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := LinkReason(c.err); got != c.want {
				t.Errorf("LinkReason(%v) = %s, want %s", c.err, got, c.want)
			}
		})
	}
}

func TestReasonOfFindsAWrappedError(t *testing.T) {
	if got := ReasonOf(fmt.Errorf("module m: %w", &Error{Reason: ReasonTimeout, Err: io.EOF})); got != ReasonTimeout {
		t.Errorf("ReasonOf = %s, want Timeout", got)
	}
	if got := ReasonOf(io.EOF); got != ReasonProtocolError {
		t.Errorf("ReasonOf(an untyped error) = %s, want ProtocolError", got)
	}
}

// Req: P-13. The text ends up in a status.
func TestALostConnectionReadsTheSameHoweverItWasLost(t *testing.T) {
	for _, cause := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, fmt.Errorf("registering a session: %w", io.EOF),
		&net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40953}, Err: os.NewSyscallError("read", syscall.ECONNRESET)},
	} {
		err := LinkError(cause, "unit %d at %s", 3, "192.0.2.1:502")
		if have, want := err.Error(), "ConnectionLost: unit 3 at 192.0.2.1:502: the device closed the connection"; have != want {
			t.Errorf("have %q, want %q", have, want)
		}
		if err.Answered || !errors.Is(err, cause) {
			t.Errorf("%v is not %v any more", err, cause)
		}
	}
	refused := LinkError(&net.OpError{Op: "dial", Source: &net.TCPAddr{Port: 40953}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "connecting to x")
	if have, want := refused.Error(), "Refused: connecting to x: connect: connection refused"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}
