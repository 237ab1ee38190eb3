package localcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLifetime outlives every local cluster; nothing here is rotated.
const certificateLifetime = 10 * 365 * 24 * time.Hour

// authority is a certificate authority and its key, as PEM and parsed.
type authority struct {
	cert    *x509.Certificate
	key     crypto.Signer
	certPEM []byte
}

// pki holds everything the control plane authenticates with. Each file is made
// once per data directory, so that credentials given out survive a restart.
type pki struct {
	dir string
	// cluster signs serving certificates and clients, as kubeadm's "ca" does.
	cluster *authority
	// frontProxy signs only the aggregator's client certificate: a client of the
	// cluster CA must never pass for the aggregator.
	frontProxy *authority
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func preparePKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p := &pki{dir: dir}
	var err error
	if p.cluster, err = p.loadOrCreateAuthority("ca", "kubernetes"); err != nil {
		return nil, err
	}
	if p.frontProxy, err = p.loadOrCreateAuthority("front-proxy-ca", "front-proxy-ca"); err != nil {
		return nil, err
	}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, firstServiceIP}
	for _, leaf := range []struct {
		name   string
		issuer *authority
		req    leafRequest
	}{
		{"kube-apiserver", p.cluster, leafRequest{commonName: "kube-apiserver", server: true, ips: loopback,
			dnsNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}}},
		{"kube-controller-manager-serving", p.cluster, leafRequest{commonName: "kube-controller-manager", server: true, ips: loopback, dnsNames: []string{"localhost"}}},
		{"kube-scheduler-serving", p.cluster, leafRequest{commonName: "kube-scheduler", server: true, ips: loopback, dnsNames: []string{"localhost"}}},
		{"kubelet-serving", p.cluster, leafRequest{commonName: "kubelet", server: true, ips: loopback, dnsNames: []string{"localhost"}}},
		{"kubelet-client", p.cluster, leafRequest{commonName: kubeletClientName}},
		{"front-proxy-client", p.frontProxy, leafRequest{commonName: frontProxyClientName}},
		{"admin", p.cluster, leafRequest{commonName: "kubernetes-admin", organizations: []string{"system:masters"}}},
		{"kube-controller-manager", p.cluster, leafRequest{commonName: "system:kube-controller-manager"}},
		{"kube-scheduler", p.cluster, leafRequest{commonName: "system:kube-scheduler"}},
	} {
		if exists(p.path(leaf.name+".crt"), p.path(leaf.name+".key")) {
			continue
		}
		certPEM, keyPEM, err := leaf.issuer.issue(leaf.req)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", leaf.name, err)
		}
		if err := p.write(leaf.name, certPEM, keyPEM); err != nil {
			return nil, err
		}
	}
	if !exists(p.path("service-account.key"), p.path("service-account.pub")) {
		if err := p.createServiceAccountKey(); err != nil {
			return nil, fmt.Errorf("service account key: %w", err)
		}
	}
	return p, nil
}

func (p *pki) loadOrCreateAuthority(name, commonName string) (*authority, error) {
	certPEM, err := os.ReadFile(p.path(name + ".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return p.createAuthority(name, commonName)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	keyPEM, err := os.ReadFile(p.path(name + ".key"))
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("certificate authority %s: no PEM in its files; remove %s to start afresh", name, p.dir)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	return &authority{cert: cert, key: key, certPEM: certPEM}, nil
}

func (p *pki) createAuthority(name, commonName string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		// A minute back: the test's clock and the server's need not agree exactly.
		NotBefore:             now.Add(-time.Minute),
		NotAfter:              now.Add(certificateLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key, certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	return a, p.write(name, a.certPEM, keyPEM)
}

func (p *pki) createServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.path("service-account.key"), keyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.path("service-account.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)
}

func (p *pki) write(name string, certPEM, keyPEM []byte) error {
	if err := os.WriteFile(p.path(name+".key"), keyPEM, 0o600); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	if err := os.WriteFile(p.path(name+".crt"), certPEM, 0o600); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}

// leafRequest says what a leaf certificate is for: a server if server is set, else a client.
type leafRequest struct {
	commonName    string
	organizations []string
	server        bool
	ips           []net.IP
	dnsNames      []string
}

func (a *authority) issue(req leafRequest) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if req.server {
		usage = x509.ExtKeyUsageServerAuth
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: req.commonName, Organization: req.organizations},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(certificateLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		IPAddresses:  req.ips,
		DNSNames:     req.dnsNames,
	}, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func exists(paths ...string) bool {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}
