package opcua

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// issued is a certificate with its key, signed by issuer or by itself.
func issued(t *testing.T, name string, authority bool, issuer *Application, notAfter time.Time) *Application {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, NotBefore: notAfter.Add(-10 * 365 * 24 * time.Hour), NotAfter: notAfter,
		IsCA: authority, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Application{certificate: certificate, key: key}
}

// Req: P-13 (server certificates are verified)
func TestWhichServerCertificatesAreTrusted(t *testing.T) {
	now := time.Now()
	year := now.Add(365 * 24 * time.Hour)
	root := issued(t, "root", true, nil, year)
	middle := issued(t, "middle", true, root, year)
	server := issued(t, "server", false, middle, year)
	direct := issued(t, "direct", false, root, year)
	expired := issued(t, "expired", false, root, now.Add(-time.Hour))
	own := issued(t, "own", false, nil, year)
	sha1Sum := sha1.Sum(own.certificate.Raw)
	certificates := func(all ...*Application) (list []*x509.Certificate) {
		for _, a := range all {
			list = append(list, a.certificate)
		}
		return list
	}
	for _, c := range []struct {
		name      string
		trust     trust
		presented []byte
		trusted   bool
	}{
		{"pinned by SHA-256", trust{thumbprint: own.Thumbprint()}, own.certificate.Raw, true},
		{"pinned by SHA-1", trust{thumbprint: hex.EncodeToString(sha1Sum[:])}, own.certificate.Raw, true},
		{"another one is pinned", trust{thumbprint: root.Thumbprint()}, own.certificate.Raw, false},
		{"another one is pinned, and its authority trusted", trust{thumbprint: own.Thumbprint(), certificates: certificates(root)}, direct.certificate.Raw, false},
		{"pinned and expired", trust{thumbprint: expired.Thumbprint()}, expired.certificate.Raw, true},
		{"itself among the trusted", trust{certificates: certificates(root, own)}, own.certificate.Raw, true},
		{"signed by a trusted authority", trust{certificates: certificates(root)}, direct.certificate.Raw, true},
		{"expired, and signed by a trusted authority", trust{certificates: certificates(root)}, expired.certificate.Raw, false},
		{"a chain to a trusted authority", trust{certificates: certificates(root)}, slices.Concat(server.certificate.Raw, middle.certificate.Raw), true},
		{"a chain with a gap", trust{certificates: certificates(root)}, server.certificate.Raw, false},
		{"a trusted certificate that is no authority does not vouch for others", trust{certificates: certificates(own)}, direct.certificate.Raw, false},
		{"nothing is trusted", trust{}, own.certificate.Raw, false},
		{"no certificate", trust{thumbprint: own.Thumbprint()}, nil, false},
		{"no certificate at all", trust{thumbprint: own.Thumbprint()}, []byte("nonsense"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.trust.verify(c.presented, now)
			if (err == nil) != c.trusted {
				t.Fatal(err)
			}
			if err == nil {
				return
			}
			if driver.ReasonOf(err) != driver.ReasonCertificateUntrusted {
				t.Errorf("the reason is %s", driver.ReasonOf(err))
			}
			if len(c.presented) > 0 && !strings.Contains(err.Error(), thumbprint(leafOf(c.presented))) {
				t.Errorf("no thumbprint in %q", err)
			}
		})
	}
}

func TestKeyPairsAreReadInEitherFormAndNeverTold(t *testing.T) {
	a := issued(t, "user", false, nil, time.Now().Add(time.Hour))
	b := issued(t, "other", false, nil, time.Now().Add(time.Hour))
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := encode("CERTIFICATE", a.certificate.Raw)
	for _, c := range []struct {
		name, pem string
		ok        bool
	}{
		{"PKCS #1", certificate + encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(a.key)), true},
		{"PKCS #8, the key first", encode("PRIVATE KEY", pkcs8) + certificate, true},
		{"another's key", certificate + encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(b.key)), false},
		{"no key", certificate, false},
		{"no certificate", encode("PRIVATE KEY", pkcs8), false},
		{"a key that is none", certificate + encode("PRIVATE KEY", []byte("hunter2")), false},
		{"nothing", "hunter2", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := parseKeyPair([]byte(c.pem))
			if (err == nil) != c.ok {
				t.Fatal(err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Error(err)
			}
		})
	}
}

func TestOurOwnCertificateIsOneThatServersTake(t *testing.T) {
	now := time.Now()
	a, err := NewApplication("io-probe", "urn:fieldplane:io-probe", now)
	if err != nil {
		t.Fatal(err)
	}
	c := a.certificate
	if len(c.URIs) != 1 || c.URIs[0].String() != a.uri || a.key.N.BitLen() != 2048 || c.IsCA || now.Before(c.NotBefore) {
		t.Errorf("%+v", c)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(a.key)}))
	again, err := ParseApplication([]byte(text))
	if err != nil || again.uri != a.uri || again.Thumbprint() != a.Thumbprint() {
		t.Errorf("%+v, %v", again, err)
	}
}

// Req: P-13
func TestACertificateThatGoDoesNotReadIsToldAndCanBeAllowed(t *testing.T) {
	now := time.Now()
	own := issued(t, "own", false, nil, now.Add(365*24*time.Hour))
	// Its serial number becomes negative; of a certificate that is pinned nobody asks for the signature.
	negative := bytes.Replace(own.certificate.Raw, []byte{2, 1, 7}, []byte{2, 1, 0xF9}, 1)
	pinned := trust{thumbprint: thumbprint(negative)}
	t.Setenv("GODEBUG", "x509negativeserial=0")
	_, err := pinned.verify(negative, now)
	if driver.ReasonOf(err) != driver.ReasonCertificateUntrusted || !strings.Contains(err.Error(), "cannot be read: negative serial number") || !strings.Contains(err.Error(), pinned.thumbprint) {
		t.Errorf("%v", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: negative})
	if _, err := parseTrusted(text); err == nil || !strings.Contains(err.Error(), "negative serial number") {
		t.Errorf("%v", err)
	}
	// As cmd/io-probe and cmd/unit-runtime are built.
	t.Setenv("GODEBUG", "x509negativeserial=1")
	if _, err := pinned.verify(negative, now); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := parseTrusted(text); err != nil {
		t.Errorf("%v", err)
	}
}
