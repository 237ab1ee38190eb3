package opcua

import (
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// site is a probe as io-probe runs it, of one module, with a directory of credentials.
type site struct {
	*testing.T
	*probe.Probe
	credentials string
}

func supervise(t *testing.T, spec string) *site {
	t.Helper()
	s := &site{T: t, credentials: t.TempDir()}
	devices := probe.Drivers{OPCUA: opcua.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20), opcua.Options{
		Credentials: probe.CredentialFiles(s.credentials).Read, ApplicationKey: probe.ApplicationKey,
	})}
	s.Probe = probe.New(probe.Options{
		Open: devices.Open, Clock: clock.RealClock{}, Seed: 1, BootID: "boot", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(s.Stop)
	c, err := probe.ParseConfig([]byte(`{"modules":[{"name":"plant","uid":"u","generation":1,"spec":{"protocol":"opcua","opcua":` + spec + `}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(c)
	return s
}

// put writes a credential as a whole, as the kubelet does.
func (s *site) put(key, value string) {
	s.Helper()
	temporary := filepath.Join(s.credentials, "..new")
	if err := os.WriteFile(temporary, []byte(value), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(s.credentials, key)); err != nil {
		s.Fatal(err)
	}
}

// within waits for a state, which comes by itself.
func (s *site) within(what string, limit time.Duration, is func(api.ModuleState) bool) {
	s.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		m := s.List().Modules[0]
		if is(m) {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("not %s within %s: %+v", what, limit, m)
		}
	}
}

func online(m api.ModuleState) bool { return m.Found && m.Connected && m.Reason == api.ReasonConnected }

func faultOf(reason driver.Reason) func(api.ModuleState) bool {
	return func(m api.ModuleState) bool { return m.Found && !m.Connected && m.Reason == string(reason) }
}

// patience is what a loaded machine may take for a verdict, and the longest wait after a refusal.
const patience = 30 * time.Second

// Req: P-13, P-06 (a changed credential is used by the running probe, in both directions)
func TestARunningProbeUsesTheCredentialsAsTheyStand(t *testing.T) {
	server := start(t, settings{Variables: 100})
	s := supervise(t, fmt.Sprintf(`{"endpoint":%q,"securityPolicy":"Basic256Sha256","trustedThumbprint":%q,"identity":"UserName","userName":"operator","credentialsKey":"password"}`,
		server.endpoint(), server.Thumbprint))
	s.within("told that there is no password", patience, faultOf(driver.ReasonConfigurationError))
	s.put("password", "wrong")
	s.within("told that it is wrong", patience, faultOf(driver.ReasonCredentialsRejected))
	s.put("password", "secret\n")
	s.within("online", patience, online)
	s.within("discovered", patience, func(m api.ModuleState) bool { return m.Channels.Count >= 100 && m.Channels.Reason == "" })
	s.put("password", "wrong")
	s.within("told that it is wrong again", patience, faultOf(driver.ReasonCredentialsRejected))
}

// Req: P-13 (who we are to a server may be changed while the probe runs)
func TestARunningProbeUsesItsOwnCertificateAsItStands(t *testing.T) {
	certificate, key := makeCertificate(t, "io-probe", 2048)
	dir, no := t.TempDir(), false
	trusted := filepath.Join(dir, "pki", "trusted", "certs")
	if err := os.MkdirAll(trusted, 0o700); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(certificate))
	if err := os.WriteFile(filepath.Join(trusted, "io-probe.der"), block.Bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, settings{Variables: 10, TrustClients: &no, Dir: dir})
	s := supervise(t, fmt.Sprintf(`{"endpoint":%q,"securityPolicy":"Basic256Sha256","trustedThumbprint":%q}`, server.endpoint(), server.Thumbprint))
	s.within("refused by a server that does not know it", patience, faultOf(driver.ReasonClientCertificateRejected))
	s.put(probe.ApplicationKey, certificate+key)
	s.within("online", patience, online)
}
