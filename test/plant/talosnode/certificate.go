package talosnode

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// newLeafLocked gives maintenance mode a new key, as a boot does, a change of addresses, and every twelfth hour.
func (n *Node) newLeafLocked() error {
	ca, err := talosx509.NewSelfSignedCertificateAuthority(talosx509.ECDSA(true))
	if err != nil {
		return err
	}

	pair, err := talosx509.NewKeyPair(ca,
		talosx509.CommonName(constants.MaintenanceServiceCommonName),
		talosx509.IPAddresses([]net.IP{n.address.IP}),
		talosx509.NotAfter(time.Now().Add(24*time.Hour)),
		talosx509.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return err
	}

	n.leaf = pair.Certificate

	return nil
}

// RotateKey gives maintenance mode a new key; open connections keep the old one.
func (n *Node) RotateKey() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.newLeafLocked()
}

// Fingerprint is what the node's console shows of its maintenance certificate.
func (n *Node) Fingerprint() string {
	leaf, err := x509.ParseCertificate(n.currentLeaf().Certificate[0])
	if err != nil {
		return ""
	}

	return talosx509.SPKIFingerprint(leaf).String()
}

func (n *Node) currentLeaf() *tls.Certificate {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.leaf
}

// Trustd stands for what a plant's control planes do for others: they sign the apid certificates of workers that know the
// cluster's machine token, and they are its etcd. Its zero value is ready.
type Trustd struct {
	mu      sync.Mutex
	signers map[*Node]signer
	etcds   map[string]*etcd
	members map[*Node]*etcd
	lastID  uint64
	// changed is closed when an etcd comes or goes.
	changed chan struct{}
}

type signer struct {
	token string
	ca    *talosx509.PEMEncodedCertificateAndKey
}

// join makes a running control plane sign.
func (t *Trustd) join(n *Node, token string, ca *talosx509.PEMEncodedCertificateAndKey) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.signers == nil {
		t.signers = make(map[*Node]signer)
	}

	t.signers[n] = signer{token: token, ca: ca}
}

func (t *Trustd) leave(n *Node) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.signers, n)
}

// sign returns a certificate from a control plane of the same cluster, errNoCertificate when none runs.
func (t *Trustd) sign(token string, ip net.IP) (*tls.Certificate, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, s := range t.signers {
		if s.token == token {
			return signLeaf(s.ca, ip)
		}
	}

	return nil, errNoCertificate
}

// signLeaf makes an apid certificate under the cluster's OS CA.
func signLeaf(pair *talosx509.PEMEncodedCertificateAndKey, ip net.IP) (*tls.Certificate, error) {
	ca, err := talosx509.NewCertificateAuthorityFromCertificateAndKey(pair)
	if err != nil {
		return nil, err
	}

	leaf, err := talosx509.NewKeyPair(ca,
		talosx509.IPAddresses([]net.IP{ip}),
		talosx509.NotAfter(time.Now().Add(24*time.Hour)),
		talosx509.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return nil, err
	}

	return leaf.Certificate, nil
}
