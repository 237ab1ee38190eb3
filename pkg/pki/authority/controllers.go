package authority

import (
	"crypto/tls"
	"sync"

	"k8s.io/utils/clock"
)

// ControllerClient is the controllers' side of mTLS to the probes. Its
// certificate is never stored: it is made here, and made anew in time, however
// long the process lives (P-11).
type ControllerClient struct {
	authority *Authority
	clock     clock.PassiveClock

	mu   sync.Mutex
	pair KeyPair
	cert *tls.Certificate
}

// NewControllerClient returns a client whose certificates this authority signs.
func NewControllerClient(authority *Authority, clock clock.PassiveClock) *ControllerClient {
	return &ControllerClient{authority: authority, clock: clock}
}

// TLSConfig verifies a probe of this namespace and no other, and shows it the
// controllers' certificate (P-12).
func (c *ControllerClient) TLSConfig(namespace string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    c.authority.Pool(),
		ServerName: ProbeServerName(namespace),
		Time:       c.clock.Now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.certificate()
		},
	}
}

func (c *ControllerClient) certificate() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.cert != nil && c.authority.Due(now, c.pair, Controllers()) == "" {
		return c.cert, nil
	}
	pair, err := c.authority.Issue(now, Controllers())
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, err
	}
	c.pair, c.cert = pair, &cert
	return c.cert, nil
}
