package opcua

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// makePEM is an application's certificate and key.
func makePEM(t *testing.T) []byte {
	t.Helper()
	a, err := NewApplication("test", "urn:test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(a.key)})...)
}

// Req: P-13 (a changed certificate is used without remaking a pod)
func TestOurOwnCertificateMayStandAmongTheCredentials(t *testing.T) {
	first, second := makePEM(t), makePEM(t)
	stored := map[string][]byte{}
	broken := errors.New("the disk is on fire")
	credentials := func(key string) ([]byte, error) {
		if raw, ok := stored[key]; ok && raw == nil {
			return nil, broken
		} else if ok {
			return raw, nil
		}
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	secure := Config{SecurityPolicy: PolicyBasic256Sha256, SecurityMode: ModeSignAndEncrypt, Identity: Anonymous}
	read := func() secrets {
		t.Helper()
		s, err := readSecrets(secure, "own", credentials)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	without := read()
	if without.application != nil {
		t.Error("an application of nothing")
	}
	stored["own"] = first
	one := read()
	stored["own"] = second
	two := read()
	if one.application == nil || two.application == nil || one.application.Thumbprint() == two.application.Thumbprint() {
		t.Fatal("not what the credentials hold")
	}
	if without.digest == one.digest || one.digest == two.digest {
		t.Error("a change is not noticed")
	}
	for name, raw := range map[string][]byte{"no certificate": []byte("x"), "what cannot be read": nil} {
		stored["own"] = raw
		if _, err := readSecrets(secure, "own", credentials); driver.ReasonOf(err) != driver.ReasonConfigurationError {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := readSecrets(Config{SecurityPolicy: PolicyNone}, "own", credentials); err != nil || s.application != nil {
			t.Errorf("%s, where none is needed: %v", name, err)
		}
	}
}
