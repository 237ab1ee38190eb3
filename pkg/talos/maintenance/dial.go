package maintenance

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/apid"
)

// PredialTimeout is how long Predial waits at most: enough for any provisioning network, and a quarter of what a
// whole candidate may cost (T-08).
const PredialTimeout = 500 * time.Millisecond

// Predial tells cheaply whether anything listens at an address. A sweep asks it before it dials an address that has
// not answered before, so that dead addresses cost 500 ms instead of 2 s; an address that has answered gets the full
// time at once (T-08).
func Predial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, PredialTimeout)
	defer cancel()

	conn, err := dialTCP(ctx, address)
	if err != nil {
		return err
	}

	conn.Close() //nolint:errcheck // nothing was sent

	return nil
}

// Dial opens a session with the node at an address, an IP address with an optional port, 50000 by default. It returns
// when the TLS handshake is over; no name is resolved and no proxy used. It is a Factory.
func Dial(ctx context.Context, address string) (Client, error) {
	tcp, err := dialTCP(ctx, address)
	if err != nil {
		return nil, err
	}

	return open(ctx, address, tcp)
}

// open makes a session of a fresh connection, which is the session's from here on, also when this fails.
func open(ctx context.Context, address string, tcp net.Conn) (Client, error) {
	pin := &leafPin{}

	conn, err := handshake(ctx, address, tcp, pin)
	if err != nil {
		tcp.Close() //nolint:errcheck // the handshake's error says more

		return nil, err
	}

	channel, err := apid.Open(address, conn)
	if err != nil {
		return nil, &Error{Class: ClassUnreachable, Address: address, Op: "dial", Detail: err.Error(), cause: err}
	}

	return &session{
		address: address,
		pin:     pin,
		channel: channel,
		machine: machineapi.NewMachineServiceClient(channel),
		cosi:    channel.COSI(),
	}, nil
}

// session is the Client of one connection.
type session struct {
	address string
	pin     *leafPin
	channel *apid.Channel
	machine machineapi.MachineServiceClient
	cosi    state.State
}

func (s *session) Fingerprint() string { return s.pin.fingerprint().String() }

func (s *session) Close() error { return s.channel.Close() }

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	conn, err := apid.DialTCP(ctx, address)
	if err != nil {
		return nil, &Error{Class: ClassUnreachable, Address: address, Op: "dial", Detail: err.Error(), cause: ended(ctx, err)}
	}

	return conn, nil
}

func handshake(ctx context.Context, address string, tcp net.Conn, pin *leafPin) (*tls.Conn, error) {
	conn, err := apid.Handshake(ctx, tcp, &tls.Config{
		// A node in maintenance mode has a certificate of its own making: there is nothing to verify it against. The
		// pin holds the session to the first key seen.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   pin.check,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			// Only a configured node asks. The answer, none, is what makes it end the connection.
			pin.certificateRequested.Store(true)

			return &tls.Certificate{}, nil
		},
	})
	if err != nil {
		return nil, &Error{Class: handshakeClass(err), Address: address, Op: "dial", Detail: err.Error(), cause: ended(ctx, err)}
	}

	return conn, nil
}

// handshakeClass is what a failed handshake means here.
func handshakeClass(err error) Class {
	switch apid.FailureOf(err) {
	case apid.CertificateWanted:
		return ClassNotInMaintenance
	case apid.Silent:
		return ClassUnreachable
	default:
		return ClassNotTalos
	}
}

// leafPin remembers the first public key that a peer shows and refuses any other (T-18).
type leafPin struct {
	certificateRequested atomic.Bool

	mu    sync.Mutex
	first x509.Fingerprint
}

var (
	errNoLeaf     = errors.New("the TLS server shows no certificate")
	errKeyChanged = errors.New("the peer shows another key than at the start of the session")
)

func (p *leafPin) check(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return errNoLeaf
	}

	have := x509.SPKIFingerprint(cs.PeerCertificates[0])

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.first == nil {
		p.first = have
	}

	if !p.first.Equal(have) {
		return errKeyChanged
	}

	return nil
}

func (p *leafPin) fingerprint() x509.Fingerprint {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.first
}

// SameFingerprint tells whether two fingerprints, one of them perhaps copied from a console, are equal (T-18). No
// fingerprint equals none.
func SameFingerprint(a, b string) bool {
	fa, errA := x509.ParseFingerprint(a)
	fb, errB := x509.ParseFingerprint(b)

	return errA == nil && errB == nil && len(fa) > 0 && fa.Equal(fb)
}
