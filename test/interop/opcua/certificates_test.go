package opcua

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"
)

// userCertificate is a PEM certificate of a user with its key.
func userCertificate(t *testing.T) string {
	t.Helper()
	certificate, key := makeCertificate(t, "operator", 2048)
	return certificate + key
}

// otherCertificate is a PEM certificate of an authority that signed nothing here.
func otherCertificate(t *testing.T) string {
	t.Helper()
	certificate, _ := makeCertificate(t, "somebody else", 2048)
	return certificate
}

func makeCertificate(t *testing.T, name string, bits int) (certificate, key string) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		IsCA:     true, BasicConstraintsValid: true, URIs: []*url.URL{{Scheme: "urn", Opaque: "interop:client"}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
}
