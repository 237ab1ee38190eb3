package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/apid"
	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
)

const (
	// certificateLife is how long a session's client certificate is good for: longer than any session, and short
	// enough that a leaked one is worth little.
	certificateLife = 15 * time.Minute
	// clockSkew is how far a node's clock may lag behind ours, or lead. A node refuses a certificate that is not valid
	// yet, and its clock is only right once it has found its time server.
	clockSkew = 5 * time.Minute
	// dialTimeout bounds dialing, whatever the caller's context allows.
	dialTimeout = 10 * time.Second
)

// Dial opens a session with the node at an address, an IP address with an optional port, 50000 by default; no name is
// resolved and no proxy used. It returns when the node has taken our certificate. It is a Factory.
//
// The peer must have a valid server certificate under the bundle's OS CA. That its address is among the certificate's is
// not asked: a node behind NAT, or one whose address has just moved, has another, and it would prove nothing against a
// node of the same cluster, since trustd signs any address that a worker asks for (siderolabs/talos,
// internal/app/trustd/internal/reg: "TODO: Verify that the request is coming from the IP address declared in the CSR").
// Which node of the cluster it is, the caller finds out by its UUID, on the same connection (T-18). Client certificates of
// the cluster, which people have in their talosconfig, do not pass for a node's.
func Dial(ctx context.Context, address string, access Access) (Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	proof, err := newProof(access)
	if err != nil {
		return nil, &Error{Class: ClassInvalidAccess, Address: address, Op: OpDial, Detail: err.Error()}
	}

	tcp, err := apid.DialTCP(ctx, address)
	if err != nil {
		return nil, dialError(ctx, address, ClassUnreachable, err)
	}

	return open(ctx, address, proof, tcp)
}

func dialError(ctx context.Context, address string, class Class, err error) error {
	return &Error{Class: class, Address: address, Op: OpDial, Detail: remark.Clean(err.Error()), cause: ended(ctx, err)}
}

// open makes a session of a fresh connection, which is the session's from here on, also when this fails.
func open(ctx context.Context, address string, own *proof, tcp net.Conn) (Client, error) {
	var asked atomic.Bool

	conn, err := apid.Handshake(ctx, tcp, &tls.Config{
		// The standard verification asks for the address too; verify does the rest of it.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection:   own.verify,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked.Store(true)

			return &own.certificate, nil
		},
	})
	if err == nil && !asked.Load() {
		err = errNotAsked
	}

	if err != nil {
		tcp.Close() //nolint:errcheck // the handshake's error says more

		return nil, dialError(ctx, address, handshakeClass(err), err)
	}

	channel, err := apid.Open(address, conn)
	if err != nil {
		return nil, dialError(ctx, address, ClassUnreachable, err)
	}

	if err := channel.Accepted(ctx); err != nil {
		channel.Close() //nolint:errcheck // see above

		return nil, dialError(ctx, address, acceptedClass(err), err)
	}

	return newSession(address, channel), nil
}

var (
	errNoLeaf      = errors.New("the TLS server shows no certificate")
	errMaintenance = errors.New("the node shows the certificate of maintenance mode")
	// errNotAsked tells apart the other services of a node that have certificates of the same CA, such as trustd's.
	errNotAsked = errors.New("the TLS server asks for no client certificate")
)

// untrustedError is the verification's own; a type, since it wraps any of crypto/x509's.
type untrustedError struct{ cause error }

func (e untrustedError) Error() string { return e.cause.Error() }

func (e untrustedError) Unwrap() error { return e.cause }

// handshakeClass is what a failed handshake means here.
func handshakeClass(err error) Class {
	var untrusted untrustedError

	switch {
	case errors.Is(err, errMaintenance):
		return ClassInMaintenance
	case errors.As(err, &untrusted):
		return ClassUntrusted
	case errors.Is(err, errNotAsked), errors.Is(err, errNoLeaf):
		return ClassNotTalos
	case apid.RefusesCertificate(err):
		return ClassDenied
	case apid.FailureOf(err) == apid.Silent:
		return ClassUnreachable
	default:
		return ClassNotTalos
	}
}

// acceptedClass is what it means that a node, whose certificate was good, does not go on.
func acceptedClass(err error) Class {
	switch {
	case apid.RefusesCertificate(err):
		return ClassDenied
	case apid.FailureOf(err) == apid.Silent:
		return ClassUnreachable
	default:
		return ClassNotTalos
	}
}

// proof is what one session shows, and by what it judges the peer.
type proof struct {
	roots       *x509.CertPool
	certificate tls.Certificate
	now         func() time.Time
}

var (
	errNoBundle   = errors.New("there is no secrets bundle with an OS CA")
	errNoRole     = errors.New("the role is none of reader, operator and admin")
	errCannotSign = errors.New("the secrets bundle's OS CA cannot sign a client certificate")
)

// newProof makes a fresh client certificate. Its errors hold nothing of the bundle.
func newProof(access Access) (*proof, error) {
	if access.Bundle == nil || access.Bundle.Certs == nil || access.Bundle.Certs.OS == nil {
		return nil, errNoBundle
	}

	if access.Role.rank() == 0 {
		return nil, errNoRole
	}

	clock := access.Bundle.Clock
	if clock == nil {
		clock = secrets.NewClock()
	}

	ca := access.Bundle.Certs.OS

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca.Crt) {
		return nil, errCannotSign
	}

	pair, err := secrets.NewAdminCertificateAndKey(
		clock.Now().Add(-clockSkew), ca, role.MakeSet(role.Role(access.Role)), clockSkew+certificateLife)
	if err != nil {
		return nil, errCannotSign
	}

	certificate, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return nil, errCannotSign
	}

	return &proof{roots: roots, certificate: certificate, now: clock.Now}, nil
}

// verify accepts a server certificate under the cluster's OS CA.
func (c *proof) verify(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return errNoLeaf
	}

	leaf := cs.PeerCertificates[0]

	at := c.now()
	if lead := leaf.NotBefore.Sub(at); lead > 0 && lead <= clockSkew {
		at = leaf.NotBefore
	}

	intermediates := x509.NewCertPool()
	for _, certificate := range cs.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}

	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:         c.roots,
		Intermediates: intermediates,
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})

	switch {
	case err == nil:
		return nil
	case leaf.Subject.CommonName == constants.MaintenanceServiceCommonName:
		return errMaintenance
	default:
		return untrustedError{cause: err}
	}
}
