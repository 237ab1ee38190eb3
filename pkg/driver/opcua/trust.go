package opcua

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// trust is what a server's certificate is checked against.
type trust struct {
	// thumbprint is the one certificate in lower-case hex, SHA-1 or SHA-256.
	thumbprint   string
	certificates []*x509.Certificate
}

// given tells whether anything is trusted.
func (t trust) given() bool { return t.thumbprint != "" || len(t.certificates) > 0 }

// parseTrusted reads the PEM certificates that are trusted.
func parseTrusted(pemData []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := pemData; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("it holds a certificate that cannot be read: " + unreadable(err))
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no PEM certificate")
	}
	return all, nil
}

// verify checks what the server presents, a certificate or a chain, and returns its certificate. A pinned certificate is
// trusted whatever its dates say: whoever pinned it meant this one.
func (t trust) verify(presented []byte, now time.Time) (*x509.Certificate, error) {
	leaf := leafOf(presented)
	if len(leaf) == 0 {
		return nil, &driver.Error{Reason: driver.ReasonCertificateUntrusted, Err: errors.New("the server presents no certificate")}
	}
	certificate, err := x509.ParseCertificate(leaf)
	if err != nil {
		return nil, untrusted(leaf, "the server's certificate cannot be read: "+unreadable(err))
	}
	if t.thumbprint != "" {
		sha1Sum, sha256Sum := sha1.Sum(leaf), sha256.Sum256(leaf)
		if t.thumbprint == hex.EncodeToString(sha256Sum[:]) || t.thumbprint == hex.EncodeToString(sha1Sum[:]) {
			return certificate, nil
		}
		return nil, untrusted(leaf, "the server's certificate is not the pinned one")
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, trusted := range t.certificates {
		if trusted.Equal(certificate) {
			return certificate, nil
		}
		if trusted.IsCA {
			roots.AddCert(trusted)
		}
	}
	for rest := presented[len(leaf):]; len(rest) > 0; {
		next := leafOf(rest)
		if issuer, err := x509.ParseCertificate(next); err == nil {
			intermediates.AddCert(issuer)
		}
		rest = rest[len(next):]
	}
	if len(t.certificates) == 0 {
		return nil, untrusted(leaf, "the module trusts no certificate yet")
	}
	// Names are not compared: the server is dialled by whatever address reaches it.
	if _, err := certificate.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return nil, untrusted(leaf, "the server's certificate is not trusted")
	}
	return certificate, nil
}

// maxUnreadable bounds what is told of a certificate that cannot be read.
const maxUnreadable = 120

// unreadable says why a certificate cannot be read, as far as it can be shown.
func unreadable(err error) string {
	return clip(strings.TrimPrefix(err.Error(), "x509: "), maxUnreadable)
}

// untrusted is the refusal of a server's certificate; the operator compares the thumbprint with the device's, and pins it.
func untrusted(leaf []byte, cause string) *driver.Error {
	return &driver.Error{
		Reason: driver.ReasonCertificateUntrusted,
		Err:    fmt.Errorf("%s; its SHA-256 thumbprint is %s", cause, thumbprint(leaf)),
	}
}
