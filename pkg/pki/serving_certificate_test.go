package pki

import (
	"bytes"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

type listener struct{ calls int }

func (l *listener) Enqueue() { l.calls++ }

// Req: A-09
func TestAServingCertificateIsReplacedWhileItServes(t *testing.T) {
	ca, err := authority.New(begin())
	must(t, err)
	first, err := ca.Issue(begin(), authority.Serving("a.svc"))
	must(t, err)
	second, err := ca.Issue(begin(), authority.Serving("a.svc"))
	must(t, err)
	c, err := NewServingCertificate(first)
	must(t, err)
	l := &listener{}
	c.AddListener(l)

	if err := c.Replace(authority.KeyPair{CertPEM: first.CertPEM, KeyPEM: second.KeyPEM}); err == nil {
		t.Error("a key that does not belong to its certificate was taken")
	}
	if cert, key := c.CurrentCertKeyContent(); !bytes.Equal(cert, first.CertPEM) || !bytes.Equal(key, first.KeyPEM) || l.calls != 0 {
		t.Errorf("a refused replacement changed what is served (%d calls)", l.calls)
	}
	must(t, c.Replace(second))
	if cert, key := c.CurrentCertKeyContent(); !bytes.Equal(cert, second.CertPEM) || !bytes.Equal(key, second.KeyPEM) || l.calls != 1 {
		t.Errorf("the replacement is not served, or the listener was not told once (%d calls)", l.calls)
	}
	if _, err := NewServingCertificate(authority.KeyPair{}); err == nil {
		t.Error("nothing was taken for a certificate")
	}
}
