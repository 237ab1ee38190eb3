package opcua

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

// applicationLifetime of a certificate that we make ourselves: it is made anew with the process.
const applicationLifetime = 10 * 365 * 24 * time.Hour

// Application is the client application instance: its certificate, and the key to it. Servers know us by it.
type Application struct {
	certificate *x509.Certificate
	key         *rsa.PrivateKey
	uri         string
}

// NewApplication makes an application with a key of 2048 bits and a certificate of its own signature, whose
// URI name is the application's URI, as servers check.
func NewApplication(name, uri string, now time.Time) (*Application, error) {
	parsed, err := url.Parse(uri)
	if err != nil {
		return nil, fmt.Errorf("application URI: %w", err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"fieldplane"}},
		// Clocks on plant floors are often behind.
		NotBefore: now.Add(-24 * time.Hour),
		NotAfter:  now.Add(applicationLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment | x509.KeyUsageKeyEncipherment |
			x509.KeyUsageDataEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{parsed},
		DNSNames:              []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Application{certificate: certificate, key: key, uri: uri}, nil
}

// ParseApplication reads an application's PEM certificate and RSA key; the certificate's URI name is the application's URI.
func ParseApplication(pemData []byte) (*Application, error) {
	certificate, key, err := parseKeyPair(pemData)
	if err != nil {
		return nil, err
	}
	if len(certificate.URIs) == 0 {
		return nil, errors.New("the certificate has no URI name, which is the application's URI")
	}
	return &Application{certificate: certificate, key: key, uri: certificate.URIs[0].String()}, nil
}

// Thumbprint is the SHA-256 of the application's certificate, by which an operator finds it among those that a server rejected.
func (a *Application) Thumbprint() string { return thumbprint(a.certificate.Raw) }

// Certificate is the application's certificate in DER.
func (a *Application) Certificate() []byte { return a.certificate.Raw }

// parseKeyPair reads a PEM certificate and its RSA key (PKCS #1 or #8), in either order. No part of the key is in an error.
func parseKeyPair(pemData []byte) (*x509.Certificate, *rsa.PrivateKey, error) {
	var certificate *x509.Certificate
	var key *rsa.PrivateKey
	for rest := pemData; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch block.Type {
		case "CERTIFICATE":
			parsed, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, errors.New("its certificate cannot be read")
			}
			if certificate == nil {
				certificate = parsed
			}
		case "RSA PRIVATE KEY":
			parsed, err := x509.ParsePKCS1PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, errors.New("its private key cannot be read")
			}
			key = parsed
		case "PRIVATE KEY":
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, errors.New("its private key cannot be read")
			}
			rsaKey, ok := parsed.(*rsa.PrivateKey)
			if !ok {
				return nil, nil, errors.New("its private key is not RSA")
			}
			key = rsaKey
		}
	}
	switch {
	case certificate == nil:
		return nil, nil, errors.New("it has no PEM certificate")
	case key == nil:
		return nil, nil, errors.New("it has no PEM private key")
	case !key.PublicKey.Equal(certificate.PublicKey):
		return nil, nil, errors.New("its key does not belong to its certificate")
	}
	return certificate, key, nil
}

func thumbprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
