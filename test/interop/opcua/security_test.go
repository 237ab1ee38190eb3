package opcua

import (
	"context"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
)

func TestEveryPolicyModeAndIdentityOpensASession(t *testing.T) {
	s := shared(t)
	user := userCertificate(t)
	credentials := map[string]string{"password": "secret\n", "certificate": user}
	for _, policy := range []opcua.SecurityPolicy{opcua.PolicyNone, opcua.PolicyBasic256Sha256, opcua.PolicyAes128Sha256RsaOaep, opcua.PolicyAes256Sha256RsaPss} {
		modes := []opcua.SecurityMode{opcua.ModeSign, opcua.ModeSignAndEncrypt}
		if policy == opcua.PolicyNone {
			modes = []opcua.SecurityMode{opcua.ModeNone}
		}
		for _, mode := range modes {
			for _, identity := range []opcua.IdentityKind{opcua.Anonymous, opcua.UserName, opcua.Certificate} {
				t.Run(string(policy)+" "+string(mode)+" "+string(identity), func(t *testing.T) {
					c := opcua.Config{Endpoint: s.endpoint(), SecurityPolicy: policy, SecurityMode: mode, Identity: identity}
					if policy != opcua.PolicyNone {
						c.TrustedThumbprint = s.Thumbprint
					}
					switch identity {
					case opcua.UserName:
						c.UserName, c.CredentialsKey, c.AllowInsecureAuth = "operator", "password", policy == opcua.PolicyNone
					case opcua.Certificate:
						c.CredentialsKey = "certificate"
					}
					device := open(t, newDriver(credentials), c)
					if answer := check(t, device); answer.Reason != "" {
						t.Errorf("the answer is %+v", answer)
					}
					id, err := device.Identify(t.Context())
					if want := (driver.Identity{Vendor: "Interop Works", Product: "Plant Server", Serial: "SN-4711", Revision: "7.1.2"}); err != nil || id != want {
						t.Errorf("identity %+v, %v", id, err)
					}
					value, err := driver.ReadOne(t.Context(), device, driver.Channel{Name: "v", Address: "nsu=urn:interop:plant%3Bv=1;s=Plant/Area0/Unit0.V0"})
					if err != nil || value != float64(20) {
						t.Errorf("read %v, %v", value, err)
					}
				})
			}
		}
	}
}

// reason checks once more than a refusal needs, and returns the last error.
func reason(t *testing.T, device driver.Device) error {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, err := device.Check(context.Background())
		if err == nil {
			t.Fatal("the check succeeds")
		}
		if r := driver.ReasonOf(err); r != driver.ReasonTimeout && r != driver.ReasonNotMeasured {
			return err
		}
	}
	t.Fatal("nothing but timeouts")
	return nil
}

func TestRefusalsHaveTheirReasons(t *testing.T) {
	no := false
	s := shared(t)
	strict := start(t, settings{Variables: 10, TrustClients: &no, Dir: t.TempDir()})
	credentials := map[string]string{"wrong": "guess", "ca": otherCertificate(t)}
	for _, c := range []struct {
		name   string
		change func(*opcua.Config)
		want   driver.Reason
		tells  string
	}{
		{"nobody said which certificate is trusted", func(c *opcua.Config) {}, driver.ReasonCertificateUntrusted, s.Thumbprint},
		{"another certificate is pinned", func(c *opcua.Config) { c.TrustedThumbprint = strings.Repeat("ab", 32) }, driver.ReasonCertificateUntrusted, s.Thumbprint},
		{"another authority is trusted", func(c *opcua.Config) { c.TrustedCertificateKey = "ca" }, driver.ReasonCertificateUntrusted, s.Thumbprint},
		{"a wrong password", func(c *opcua.Config) {
			c.TrustedThumbprint, c.Identity, c.UserName, c.CredentialsKey = s.SHA1, opcua.UserName, "operator", "wrong"
		}, driver.ReasonCredentialsRejected, "BadUserAccessDenied"},
		{"a key that the Secret does not have", func(c *opcua.Config) {
			c.TrustedThumbprint, c.Identity, c.UserName, c.CredentialsKey = s.SHA1, opcua.UserName, "operator", "absent"
		}, driver.ReasonConfigurationError, `"absent"`},
		{"the server does not trust us", func(c *opcua.Config) {
			c.Endpoint, c.TrustedThumbprint = strict.endpoint(), strict.Thumbprint
		}, driver.ReasonClientCertificateRejected, "our certificate's SHA-256 thumbprint is "},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := opcua.Config{Endpoint: s.endpoint()}
			c.change(&config)
			err := reason(t, open(t, newDriver(credentials), config))
			if got := driver.ReasonOf(err); got != c.want || !strings.Contains(err.Error(), c.tells) {
				t.Errorf("%s (%v), want %s with %q", got, err, c.want, c.tells)
			}
			if strings.Contains(err.Error(), "guess") {
				t.Error("the error tells the password")
			}
		})
	}
}

// Keys of more than 2048 bits have a padding of another form, in the direction of their owner.
func TestLongKeysOfEitherSideOpenASession(t *testing.T) {
	s := start(t, settings{Variables: 10, KeySize: 4096, Dir: t.TempDir()})
	certificate, key := makeCertificate(t, "client", 4096)
	application, err := opcua.ParseApplication([]byte(certificate + key))
	if err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	for _, a := range []*opcua.Application{nil, application} {
		for _, policy := range []opcua.SecurityPolicy{opcua.PolicyBasic256Sha256, opcua.PolicyAes256Sha256RsaPss} {
			d := opcua.New(dialer.DialContext, driver.NewConnectLimit(20), opcua.Options{
				Application: a, Credentials: func(string) ([]byte, error) { return []byte("secret"), nil },
			})
			check(t, open(t, d, opcua.Config{
				Endpoint: s.endpoint(), SecurityPolicy: policy, TrustedThumbprint: s.Thumbprint, Identity: opcua.UserName, UserName: "operator", CredentialsKey: "k",
			}))
		}
	}
}

// Req: P-13 (a trusted certificate is used, by itself or by its thumbprint)
func TestTheServersCertificateMayBeTrustedAsAFile(t *testing.T) {
	s := shared(t)
	file := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate}))
	check(t, open(t, newDriver(map[string]string{"server.pem": file}), opcua.Config{Endpoint: s.endpoint(), TrustedCertificateKey: "server.pem"}))
	check(t, open(t, newDriver(nil), opcua.Config{Endpoint: s.endpoint(), TrustedThumbprint: strings.ToUpper(s.SHA1)}))
}
