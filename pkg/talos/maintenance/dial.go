package maintenance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// PredialTimeout is how long Predial waits at most: enough for any provisioning network, and a quarter of what a
// whole candidate may cost (T-08).
const PredialTimeout = 500 * time.Millisecond

// maxSessionBytes bounds what a session reads in all. An honest node sends some tens of kilobytes; the peer here is
// anybody.
const maxSessionBytes = 16 << 20

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
//
// The machinery's own client is not used: it connects lazily, connects again by itself, and turns every failure into
// text. Here the connection comes first, is the only one, and its failures keep their types.
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

	watched := &watchedConn{Conn: conn}

	var handedOver atomic.Bool

	channel, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if handedOver.Swap(true) {
				return nil, errSessionOver
			}

			return watched, nil
		}),
		grpc.WithTransportCredentials(established{info: credentials.TLSInfo{
			State:          conn.ConnectionState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0), // idling would close the one connection
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4<<20)),
	)
	if err != nil {
		watched.Close() //nolint:errcheck // see above

		return nil, &Error{Class: ClassUnreachable, Address: address, Op: "dial", Detail: err.Error(), cause: err}
	}

	return &session{
		address: address,
		pin:     pin,
		conn:    watched,
		channel: channel,
		machine: machineapi.NewMachineServiceClient(channel),
		cosi:    state.WrapCore(cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(channel))),
	}, nil
}

var errSessionOver = errors.New("the session's only connection is over")

// session is the Client of one connection.
type session struct {
	address string
	pin     *leafPin
	conn    *watchedConn
	channel *grpc.ClientConn
	machine machineapi.MachineServiceClient
	cosi    state.State
}

func (s *session) Fingerprint() string { return s.pin.fingerprint().String() }

func (s *session) Close() error {
	err := s.channel.Close()
	s.conn.Close() //nolint:errcheck // gRPC has closed it already, unless no call was ever made

	return err
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	fail := func(err error) error {
		return &Error{Class: ClassUnreachable, Address: address, Op: "dial", Detail: err.Error(), cause: ended(ctx, err)}
	}

	target, err := addrPort(address)
	if err != nil {
		return nil, fail(err)
	}

	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", target.String())
	if err != nil {
		return nil, fail(err)
	}

	return conn, nil
}

// addrPort adds Talos's port. Only addresses are accepted: a name could lead anywhere.
func addrPort(address string) (netip.AddrPort, error) {
	if target, err := netip.ParseAddrPort(address); err == nil {
		return target, nil
	}

	addr, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s is no IP address with an optional port", strconv.Quote(clean(address)))
	}

	return netip.AddrPortFrom(addr, constants.ApidPort), nil
}

func handshake(ctx context.Context, address string, tcp net.Conn, pin *leafPin) (*tls.Conn, error) {
	conn := tls.Client(tcp, &tls.Config{
		// A node in maintenance mode has a certificate of its own making: there is nothing to verify it against. The
		// pin holds the session to the first key seen.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   pin.check,
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			// Only a configured node asks. The answer, none, is what makes it end the connection.
			pin.certificateRequested.Store(true)

			return &tls.Certificate{}, nil
		},
	})

	err := conn.HandshakeContext(ctx)
	if err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" {
		err = errNoHTTP2
	}

	if err != nil {
		return nil, &Error{Class: handshakeClass(err), Address: address, Op: "dial", Detail: err.Error(), cause: ended(ctx, err)}
	}

	return conn, nil
}

var errNoHTTP2 = errors.New("the TLS server does not speak HTTP/2")

// handshakeClass tells silence and broken lines from a peer that speaks something else.
func handshakeClass(err error) Class {
	var (
		header  tls.RecordHeaderError
		network net.Error
	)

	switch {
	case wantsCertificate(err):
		return ClassNotInMaintenance
	case isAlert(err), errors.As(err, &header), errors.Is(err, errNoHTTP2), errors.Is(err, errNoLeaf):
		return ClassNotTalos
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network), isEOF(err):
		return ClassUnreachable
	default:
		return ClassNotTalos
	}
}

// isAlert tells that the peer ended TLS with an alert.
func isAlert(err error) bool {
	_, ok := alertCode(err)

	return ok
}

// wantsCertificate tells that the peer ended TLS because no client certificate came.
func wantsCertificate(err error) bool {
	const badCertificate, certificateRequired = 42, 116 // RFC 8446, section 6

	code, ok := alertCode(err)

	return ok && (code == certificateRequired || code == badCertificate)
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

// watchedConn bounds what is read, and keeps the first read error with its type: gRPC passes it on as text only.
type watchedConn struct {
	net.Conn

	read  atomic.Int64
	first atomic.Pointer[error]
}

var errTooMuch = fmt.Errorf("the peer sent more than %d bytes", maxSessionBytes)

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)

	if err == nil && c.read.Add(int64(n)) > maxSessionBytes {
		n, err = 0, errTooMuch
	}

	if err != nil {
		c.first.CompareAndSwap(nil, &err)
	}

	return n, err
}

func (c *watchedConn) readError() error {
	if err := c.first.Load(); err != nil {
		return *err
	}

	return nil
}

// established are the gRPC credentials of a connection whose TLS handshake is over.
type established struct {
	info credentials.TLSInfo
}

func (e established) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, e.info, nil
}

func (e established) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("client side only")
}

func (e established) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3"}
}

func (e established) Clone() credentials.TransportCredentials { return e }

func (e established) OverrideServerName(string) error { return nil }
