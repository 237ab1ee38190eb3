package api

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

// Credentials returns the certificate to present and the authorities to trust, as they are at this moment.
type Credentials func() (*tls.Certificate, *x509.CertPool, error)

// ServerConfig accepts the controllers and peers of the namespace, and nobody else (P-11, P-12). The credentials are
// asked at every handshake.
func ServerConfig(namespace string, credentials Credentials) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, roots, err := credentials()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{*certificate},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    roots,
				NextProtos:   []string{"http/1.1"},
				// A resumed session would not be verified against today's authorities.
				SessionTicketsDisabled: true,
				VerifyConnection: func(s tls.ConnectionState) error {
					return acceptPeer(s.PeerCertificates, authority.ControllersURI, authority.NamespaceURI(namespace))
				},
			}, nil
		},
	}
}

// ClientConfig trusts a probe of the namespace, and nobody else. It is made anew for every connection.
func ClientConfig(namespace string, credentials Credentials) (*tls.Config, error) {
	certificate, roots, err := credentials()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{*certificate},
		RootCAs:      roots,
		ServerName:   authority.ProbeServerName(namespace),
		NextProtos:   []string{"http/1.1"},
	}, nil
}

// Expired tells whether the certificate of whoever asked is no longer valid: a stream must not outlive the right to it.
func Expired(r *http.Request, now time.Time) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && now.After(r.TLS.PeerCertificates[0].NotAfter)
}

// PeerError says that a verified peer is not one of those who are let in.
type PeerError struct{ URIs []string }

// Error names who came.
func (e *PeerError) Error() string {
	return fmt.Sprintf("the peer's certificate is for %q, which is not let in", e.URIs)
}

func acceptPeer(chain []*x509.Certificate, allowed ...string) error {
	if len(chain) == 0 {
		return &PeerError{}
	}
	refused := &PeerError{}
	for _, u := range chain[0].URIs {
		for _, a := range allowed {
			if u.String() == a {
				return nil
			}
		}
		refused.URIs = append(refused.URIs, u.String())
	}
	return refused
}

// The keys of a Secret fieldplane-tls, which are the files of a TLS directory.
const (
	caFile          = "ca.crt"
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
)

// FileCredentials reads ca.crt, tls.crt and tls.key of a directory again whenever asked, and parses them when they
// have changed. Files that do not fit together, as in the middle of a change, leave the former ones in force; onError
// is told.
func FileCredentials(dir string, onError func(error)) Credentials {
	var (
		mu          sync.Mutex
		read        [3][]byte
		certificate *tls.Certificate
		roots       *x509.CertPool
	)
	load := func() error {
		var now [3][]byte
		for i, name := range []string{caFile, certificateFile, keyFile} {
			var err error
			if now[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		if certificate != nil && bytes.Equal(now[0], read[0]) && bytes.Equal(now[1], read[1]) && bytes.Equal(now[2], read[2]) {
			return nil
		}
		c, p, err := parse(now[0], now[1], now[2])
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		read, certificate, roots = now, c, p
		return nil
	}
	return func() (*tls.Certificate, *x509.CertPool, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := load(); err != nil {
			if certificate == nil {
				return nil, nil, err
			}
			onError(err)
		}
		return certificate, roots, nil
	}
}

// StaticCredentials are PEM texts that never change.
func StaticCredentials(ca, certificate, key []byte) (Credentials, error) {
	c, roots, err := parse(ca, certificate, key)
	if err != nil {
		return nil, err
	}
	return func() (*tls.Certificate, *x509.CertPool, error) { return c, roots, nil }, nil
}

func parse(ca, certificate, key []byte) (*tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s and %s: %w", certificateFile, keyFile, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, nil, errors.New(caFile + " holds no certificate")
	}
	return &pair, roots, nil
}
