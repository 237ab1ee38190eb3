// Package probetest makes the certificates that tests of the probe need.
package probetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Authority is a CA of a test's own.
type Authority struct {
	CA          []byte
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is a certificate and its key in PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority makes a CA.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{CA: encode("CERTIFICATE", der), certificate: certificate, key: key}
}

// Issue signs a certificate for a DNS name (may be empty) and URI, valid for lifetime.
func (a *Authority) Issue(t testing.TB, dnsName, uri string, lifetime time.Duration) Pair {
	t.Helper()
	key := newKey(t)
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
		URIs:         []*url.URL{u},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if dnsName != "" {
		template.DNSNames = []string{dnsName}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Certificate: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}
}

// Namespace issues what the Secret fieldplane-tls of a namespace holds.
func (a *Authority) Namespace(t testing.TB, namespace string) Pair {
	t.Helper()
	return a.Issue(t, authority.ProbeServerName(namespace), authority.NamespaceURI(namespace), time.Hour)
}

// Controllers are the credentials of the controllers.
func (a *Authority) Controllers(t testing.TB) api.Credentials {
	t.Helper()
	return a.Credentials(t, a.Issue(t, "", authority.ControllersURI, time.Hour))
}

// Credentials are those of a pair, trusting this authority.
func (a *Authority) Credentials(t testing.TB, p Pair) api.Credentials {
	t.Helper()
	c, err := api.StaticCredentials(a.CA, p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Write puts ca.crt, tls.crt and tls.key into dir.
func (a *Authority) Write(t testing.TB, dir string, p Pair) {
	t.Helper()
	for name, data := range map[string][]byte{"ca.crt": a.CA, "tls.crt": p.Certificate, "tls.key": p.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
