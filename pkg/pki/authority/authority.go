// Package authority is the installation's own certificate authority: what it
// signs, for whom, and for how long (A-09, P-11).
//
// It links neither a client nor a server of Kubernetes, so that io-probe can
// share the names with the server at no cost.
package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// Lifetime is how long the authority itself is valid.
	Lifetime = 10 * 365 * 24 * time.Hour
	// ServingLifetime is how long the API server's serving certificate is
	// valid.
	ServingLifetime = 365 * 24 * time.Hour
	// ControllersLifetime is how long the client certificate of the server's
	// controllers is valid.
	ControllersLifetime = 90 * 24 * time.Hour
	// NamespaceLifetime is how long a namespace's probe certificate is valid.
	NamespaceLifetime = 90 * 24 * time.Hour

	// clockSkew is how far behind a peer's clock may be and still accept a
	// certificate made just now.
	clockSkew = 5 * time.Minute
)

const (
	certificateBlock = "CERTIFICATE"
	privateKeyBlock  = "PRIVATE KEY"
)

// KeyPair is a certificate and its private key, both PEM-encoded.
type KeyPair struct {
	CertPEM []byte
	KeyPEM  []byte
}

// Authority signs the certificates of one installation: the API server's, its
// controllers' and every namespace's probes'. It is safe for concurrent use, and
// may be succeeded by another one while it is used.
type Authority struct{ now atomic.Pointer[generation] }

// generation is what an authority is at one time.
type generation struct {
	cert *x509.Certificate
	key  crypto.Signer
	// trusted are the certificates that are believed, its own among them, the
	// newest first.
	trusted []*x509.Certificate
}

func of(cert *x509.Certificate, key crypto.Signer) *Authority {
	a := &Authority{}
	a.now.Store(&generation{cert: cert, key: key, trusted: []*x509.Certificate{cert}})
	return a
}

// New makes an authority with a new ECDSA P-256 key, valid from now.
func New(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA's key: %w", err)
	}
	template := &x509.Certificate{
		// The time in the name keeps two generations apart for whoever debugs
		// with openssl.
		Subject:               pkix.Name{CommonName: "fieldplane-ca@" + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(Lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the CA's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the CA's certificate: %w", err)
	}
	return of(cert, key), nil
}

// Load reads an authority that KeyPair has written; its errors never quote what
// they could not read.
func Load(pair KeyPair) (*Authority, error) {
	cert, err := parseCertificate(pair.CertPEM)
	if err != nil {
		return nil, fmt.Errorf("the CA's certificate: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("the CA's certificate: is not one of a CA")
	}
	key, err := parseKey(pair.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("the CA's key: %w", err)
	}
	if !sameKey(cert, key) {
		return nil, errors.New("the CA's key does not belong to its certificate")
	}
	return of(cert, key), nil
}

// Trust makes everybody who asks from now on believe these authorities too,
// which are PEM-encoded: the one that this one succeeds, or the one that will
// succeed it.
func (a *Authority) Trust(others ...[]byte) error {
	now := *a.now.Load()
	now.trusted = slices.Clone(now.trusted)
	for _, other := range others {
		cert, err := parseCertificate(other)
		if err != nil {
			return fmt.Errorf("a CA's certificate: %w", err)
		}
		if !slices.ContainsFunc(now.trusted, cert.Equal) {
			now.trusted = append(now.trusted, cert)
		}
	}
	// Two replicas that trust the same say the same.
	slices.SortFunc(now.trusted, func(x, y *x509.Certificate) int {
		if order := y.NotBefore.Compare(x.NotBefore); order != 0 {
			return order
		}
		return bytes.Compare(x.Raw, y.Raw)
	})
	a.now.Store(&now)
	return nil
}

// Become makes this authority what another one is, for everybody who has it.
func (a *Authority) Become(other *Authority) { a.now.Store(other.now.Load()) }

// KeyPair is the authority in the form that Load reads.
func (a *Authority) KeyPair() (KeyPair, error) {
	now := a.now.Load()
	return encode(now.cert.Raw, now.key)
}

// CertificatePEM is the certificate of the one who signs.
func (a *Authority) CertificatePEM() []byte { return encodeCertificate(a.now.Load().cert.Raw) }

// TrustPEM is what peers trust, and what an APIService carries as caBundle: the
// certificate of the one who signs, and while one succeeds another that one's.
func (a *Authority) TrustPEM() []byte {
	var bundle []byte
	for _, cert := range a.now.Load().trusted {
		bundle = append(bundle, encodeCertificate(cert.Raw)...)
	}
	return bundle
}

// Pool holds the certificates of TrustPEM.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range a.now.Load().trusted {
		pool.AddCert(cert)
	}
	return pool
}

// Made is when the authority was made.
func (a *Authority) Made() time.Time { return a.now.Load().cert.NotBefore.Add(clockSkew) }

// Expired tells whether the authority can sign nothing more that anybody would
// accept.
func (a *Authority) Expired(now time.Time) bool { return !now.Before(a.now.Load().cert.NotAfter) }

// Aging tells whether less than a third of the authority's life is left, so
// that it is to be succeeded by another one.
func (a *Authority) Aging(now time.Time) bool {
	return a.now.Load().cert.NotAfter.Sub(now) < Lifetime/3
}

// Leaf says what a certificate is for.
type Leaf struct {
	CommonName string
	DNSNames   []string
	IPs        []net.IP
	URI        *url.URL
	Usages     []x509.ExtKeyUsage
	Lifetime   time.Duration
}

// Issue makes a new key and signs a certificate for it that ends with the
// authority at the latest.
func (a *Authority) Issue(now time.Time, leaf Leaf) (KeyPair, error) {
	ca := a.now.Load()
	if !now.Before(ca.cert.NotAfter) {
		return KeyPair{}, fmt.Errorf("issue a certificate for %s: the CA has expired on %s", leaf.CommonName, ca.cert.NotAfter.Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a key for %s: %w", leaf.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: leaf.CommonName},
		DNSNames:              leaf.DNSNames,
		IPAddresses:           leaf.IPs,
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              earlier(now.Add(leaf.Lifetime), ca.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           leaf.Usages,
		BasicConstraintsValid: true,
	}
	if leaf.URI != nil {
		template.URIs = []*url.URL{leaf.URI}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue a certificate for %s: %w", leaf.CommonName, err)
	}
	return encode(der, key)
}

// Due says why a certificate has to be issued anew, or "" if it still serves:
// it is from this authority, for all of this leaf's names and usages, and more
// than a third of its life is left.
func (a *Authority) Due(now time.Time, pair KeyPair, leaf Leaf) string {
	ca := a.now.Load().cert
	cert, err := parseCertificate(pair.CertPEM)
	if err != nil {
		return "the certificate " + err.Error()
	}
	key, err := parseKey(pair.KeyPEM)
	if err != nil {
		return "the key " + err.Error()
	}
	if !sameKey(cert, key) {
		return "the key does not belong to the certificate"
	}
	if err := cert.CheckSignatureFrom(ca); err != nil {
		return "the certificate is not from the installation's CA"
	}
	for _, name := range leaf.DNSNames {
		if cert.VerifyHostname(name) != nil {
			return "the certificate lacks the name " + name
		}
	}
	for _, ip := range leaf.IPs {
		if cert.VerifyHostname(ip.String()) != nil {
			return "the certificate lacks the address " + ip.String()
		}
	}
	if leaf.URI != nil && (len(cert.URIs) != 1 || cert.URIs[0].String() != leaf.URI.String()) {
		return "the certificate lacks the URI " + leaf.URI.String()
	}
	for _, usage := range leaf.Usages {
		if !hasUsage(cert, usage) {
			return "the certificate lacks a usage"
		}
	}
	if now.Before(cert.NotBefore) {
		return "the certificate is from the future"
	}
	// Near the authority's own end no certificate has a third of its usual life
	// left. Issuing again would not give it one.
	if left := cert.NotAfter.Sub(now); left <= 0 || (left < leaf.Lifetime/3 && cert.NotAfter.Before(ca.NotAfter)) {
		return "the certificate ends on " + cert.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

func hasUsage(cert *x509.Certificate, usage x509.ExtKeyUsage) bool {
	for _, has := range cert.ExtKeyUsage {
		if has == usage {
			return true
		}
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func sameKey(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	return ok && public.Equal(key.Public())
}

func encode(der []byte, key crypto.Signer) (KeyPair, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encode a key: %w", err)
	}
	return KeyPair{
		CertPEM: encodeCertificate(der),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: pkcs8}),
	}, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	if len(data) == 0 {
		return nil, errors.New("is missing")
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != certificateBlock {
		return nil, errors.New("is not PEM of type " + certificateBlock)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New("is not readable")
	}
	return cert, nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	if len(data) == 0 {
		return nil, errors.New("is missing")
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != privateKeyBlock {
		return nil, errors.New("is not PEM of type " + privateKeyBlock)
	}
	// The cause stays out: a parser's message may quote what it read.
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("is not readable")
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("is not an ECDSA key")
	}
	return signer, nil
}
