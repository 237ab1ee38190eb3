package api_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
)

// shake does a handshake over loopback and one byte each way; it returns what the client and the server met.
func shake(t *testing.T, server, client *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	served := make(chan error, 1)
	go func() {
		raw, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		conn := tls.Server(raw, server)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if err = conn.Handshake(); err == nil {
			_, err = conn.Write([]byte("x"))
		}
		served <- err
	}()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, client)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	// In TLS 1.3 a server refuses the client's certificate after the client's handshake is done.
	_, clientErr = io.ReadFull(conn, make([]byte, 1))
	return clientErr, <-served
}

// Req: P-11, P-12
func TestOnlyControllersAndTheOwnNamespaceAreLetIn(t *testing.T) {
	ca, stranger := probetest.NewAuthority(t), probetest.NewAuthority(t)
	server := api.ServerConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a")))
	for _, c := range []struct {
		name   string
		client func() (*tls.Config, error)
		letIn  bool
	}{
		{"the controllers", func() (*tls.Config, error) { return api.ClientConfig("site-a", ca.Controllers(t)) }, true},
		{"a runtime of the namespace", func() (*tls.Config, error) {
			return api.ClientConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a")))
		}, true},
		{"a certificate of another namespace", func() (*tls.Config, error) {
			return api.ClientConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-b")))
		}, false},
		{"a namespace whose name only begins alike", func() (*tls.Config, error) {
			return api.ClientConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a-2")))
		}, false},
		{"a certificate of another authority", func() (*tls.Config, error) {
			theirs := stranger.Issue(t, "", authority.ControllersURI, time.Hour)
			c, err := api.ClientConfig("site-a", ca.Credentials(t, theirs))
			return c, err
		}, false},
		{"an expired certificate", func() (*tls.Config, error) {
			return api.ClientConfig("site-a", ca.Credentials(t, ca.Issue(t, "", authority.ControllersURI, -time.Minute)))
		}, false},
		{"no certificate", func() (*tls.Config, error) {
			c, err := api.ClientConfig("site-a", ca.Controllers(t))
			c.Certificates = nil
			return c, err
		}, false},
		{"TLS 1.2", func() (*tls.Config, error) {
			c, err := api.ClientConfig("site-a", ca.Controllers(t))
			c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return c, err
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := c.client()
			if err != nil {
				t.Fatal(err)
			}
			clientErr, serverErr := shake(t, server, client)
			if (clientErr == nil) != c.letIn || (serverErr == nil) != c.letIn {
				t.Errorf("client: %v, server: %v, want let in %v", clientErr, serverErr, c.letIn)
			}
		})
	}
}

// Req: P-12
func TestAClientTrustsAProbeOfItsNamespaceOnly(t *testing.T) {
	ca, stranger := probetest.NewAuthority(t), probetest.NewAuthority(t)
	for _, c := range []struct {
		name   string
		server api.Credentials
	}{
		{"a probe of another namespace", ca.Credentials(t, ca.Namespace(t, "site-b"))},
		{"a probe of another authority", stranger.Credentials(t, stranger.Namespace(t, "site-a"))},
		{"something with the controllers' certificate", ca.Controllers(t)},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := api.ClientConfig("site-a", ca.Controllers(t))
			if err != nil {
				t.Fatal(err)
			}
			if clientErr, _ := shake(t, api.ServerConfig("site-a", c.server), client); clientErr == nil {
				t.Error("the client trusts it")
			}
		})
	}
}

// Req: P-11 (certificates change without restart)
func TestFileCredentialsFollowTheFiles(t *testing.T) {
	dir := t.TempDir()
	var told []error
	credentials := api.FileCredentials(dir, func(err error) { told = append(told, err) })
	if _, _, err := credentials(); err == nil {
		t.Fatal("credentials without files")
	}
	ca := probetest.NewAuthority(t)
	ca.Write(t, dir, ca.Namespace(t, "site-a"))
	server := api.ServerConfig("site-a", credentials)
	good := func(a *probetest.Authority) {
		t.Helper()
		client, err := api.ClientConfig("site-a", a.Controllers(t))
		if err != nil {
			t.Fatal(err)
		}
		if clientErr, serverErr := shake(t, server, client); clientErr != nil || serverErr != nil {
			t.Errorf("client: %v, server: %v", clientErr, serverErr)
		}
	}
	good(ca)
	next := probetest.NewAuthority(t)
	next.Write(t, dir, next.Namespace(t, "site-a"))
	good(next)
	if len(told) != 0 {
		t.Errorf("told of %v while all was well", told)
	}

	if err := os.WriteFile(filepath.Join(dir, "tls.key"), ca.Namespace(t, "site-a").Key, 0o600); err != nil {
		t.Fatal(err)
	}
	good(next)
	if len(told) != 1 {
		t.Errorf("told %v of a key that does not fit, want one error", told)
	}
}

func TestPeerErrorIsTyped(t *testing.T) {
	ca := probetest.NewAuthority(t)
	client, err := api.ClientConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-b")))
	if err != nil {
		t.Fatal(err)
	}
	_, serverErr := shake(t, api.ServerConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a"))), client)
	if refused, ok := errors.AsType[*api.PeerError](serverErr); !ok || len(refused.URIs) != 1 {
		t.Errorf("the server met %v, want a PeerError", serverErr)
	}
}
