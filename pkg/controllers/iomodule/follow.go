package iomodule

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

// FollowProbes follows probes over mutual TLS, with the controllers' certificate; each probe is verified as one of its
// namespace (P-11, P-12).
func FollowProbes(controllers *authority.ControllerClient, dial probeclient.Dial, c clock.Clock) Follow {
	return func(ctx context.Context, namespace, address string, handle func(probeclient.Update)) error {
		credentials := func() (*tls.Certificate, *x509.CertPool, error) {
			config := controllers.TLSConfig(namespace)
			certificate, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
			return certificate, config.RootCAs, err
		}
		return probeclient.New(address, namespace, api.Credentials(credentials), dial, c).Watch(ctx, handle)
	}
}
