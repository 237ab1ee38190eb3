package pki

import (
	"crypto/tls"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

// ServingCertificate is the certificate that the server serves with now. It
// goes from the Secret to the listener without ever being a file, and can be
// replaced while connections are open.
type ServingCertificate struct {
	mu        sync.RWMutex
	pair      authority.KeyPair
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = &ServingCertificate{}

// NewServingCertificate serves with pair until Replace.
func NewServingCertificate(pair authority.KeyPair) (*ServingCertificate, error) {
	c := &ServingCertificate{}
	if err := c.Replace(pair); err != nil {
		return nil, err
	}
	return c, nil
}

// Replace makes new connections use pair.
func (c *ServingCertificate) Replace(pair authority.KeyPair) error {
	if _, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM); err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	c.mu.Lock()
	c.pair = pair
	listeners := append([]dynamiccertificates.Listener(nil), c.listeners...)
	c.mu.Unlock()
	for _, listener := range listeners {
		listener.Enqueue()
	}
	return nil
}

// Name says in the server's log where the certificate comes from.
func (c *ServingCertificate) Name() string { return "secret/" + ServingSecretName }

// CurrentCertKeyContent is the certificate and its key, PEM-encoded.
func (c *ServingCertificate) CurrentCertKeyContent() (cert, key []byte) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.pair.CertPEM, c.pair.KeyPEM
}

// AddListener tells listener of every later Replace.
func (c *ServingCertificate) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}
