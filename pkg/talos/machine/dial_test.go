package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// Req: T-18a, T-19
func TestWhoAnswersIsClassified(t *testing.T) {
	bundle, other := theCluster(), otherCluster()

	shows := func(certificate tls.Certificate) func(*tls.Config) {
		return func(config *tls.Config) { config.Certificates = []tls.Certificate{certificate} }
	}

	ownCA, err := talosx509.NewSelfSignedCertificateAuthority(talosx509.ECDSA(true))
	if err != nil {
		t.Fatal(err)
	}

	maintenance := signBy(t, ownCA, talosx509.CommonName(constants.MaintenanceServiceCommonName))

	for _, tc := range []struct {
		name      string
		configure []func(*tls.Config)
		want      Class // empty: a session opens
	}{
		{"a node of the cluster opens a session", nil, ""},
		{"whatever address is in its certificate", []func(*tls.Config){shows(sign(t, bundle, talosx509.IPAddresses([]net.IP{net.IPv4(198, 51, 100, 7)})))}, ""},
		{"and if its clock is a little ahead", []func(*tls.Config){shows(sign(t, bundle, talosx509.NotBefore(time.Now().Add(4*time.Minute))))}, ""},
		{"but not an hour", []func(*tls.Config){shows(sign(t, bundle, talosx509.NotBefore(time.Now().Add(55*time.Minute))))}, ClassUntrusted},
		{"a node of another cluster is untrusted", []func(*tls.Config){shows(sign(t, other))}, ClassUntrusted},
		{"an expired certificate is untrusted", []func(*tls.Config){shows(sign(t, bundle, talosx509.NotBefore(time.Now().Add(-time.Hour)), talosx509.NotAfter(time.Now().Add(-time.Minute))))}, ClassUntrusted},
		{"a client's certificate of the cluster is untrusted", []func(*tls.Config){shows(sign(t, bundle, talosx509.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth})))}, ClassUntrusted},
		{"a certificate of its own making is untrusted", []func(*tls.Config){shows(signBy(t, ownCA))}, ClassUntrusted},
		{"unless it is maintenance mode's", []func(*tls.Config){shows(maintenance), func(config *tls.Config) { config.ClientAuth = tls.NoClientCert }}, ClassInMaintenance},
		{"a service of the cluster that asks for no certificate is not apid", []func(*tls.Config){func(config *tls.Config) { config.ClientAuth = tls.NoClientCert }}, ClassNotTalos},
		{"a node that takes another cluster's clients denies", []func(*tls.Config){func(config *tls.Config) { config.ClientCAs = pool(t, other) }}, ClassDenied},
		{"so does one whose clock is far behind", []func(*tls.Config){func(config *tls.Config) {
			config.Time = func() time.Time { return time.Now().Add(-time.Hour) }
		}}, ClassDenied},
		{"but not a little", []func(*tls.Config){func(config *tls.Config) {
			config.Time = func() time.Time { return time.Now().Add(-4 * time.Minute) }
		}}, ""},
		{"TLS 1.2 is not Talos", []func(*tls.Config){func(config *tls.Config) {
			config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		}}, ClassNotTalos},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()

			client, err := newNode(t, bundle, tc.configure...).dial(ctx, Access{Bundle: bundle, Role: RoleReader})
			if ClassOf(err) != tc.want || (err == nil) != (tc.want == "") {
				t.Fatalf("have %v, want class %q", err, tc.want)
			}

			if err != nil {
				if !strings.Contains(err.Error(), address) {
					t.Errorf("the error does not name the address: %v", err)
				}

				noSecrets(t, err.Error(), bundle)

				return
			}

			client.Close() //nolint:errcheck
		})
	}
}

// Req: T-15
func noSecrets(t *testing.T, text string, bundle *secrets.Bundle) {
	t.Helper()

	for _, value := range render.BundleMaterial(bundle) {
		if strings.Contains(text, value) {
			t.Errorf("a secret of the bundle is in %q", text)
		}
	}
}

func TestWhatIsNoTLSServerIsClassified(t *testing.T) {
	bundle := theCluster()

	for _, tc := range []struct {
		name  string
		serve func(net.Conn)
		want  Class
	}{
		{"plain text is not Talos", func(conn net.Conn) {
			go io.WriteString(conn, "SSH-2.0-OpenSSH_9.9\r\n") //nolint:errcheck // a pipe's writer waits for its reader
			io.Copy(io.Discard, conn)                          //nolint:errcheck
		}, ClassNotTalos},
		{"silence is unreachable", func(conn net.Conn) { io.Copy(io.Discard, conn) }, ClassUnreachable},                               //nolint:errcheck
		{"a line that breaks is unreachable", func(conn net.Conn) { conn.Read(make([]byte, 1<<14)); conn.Close() }, ClassUnreachable}, //nolint:errcheck
		{"silence after the handshake is unreachable", func(conn net.Conn) {
			server := tls.Server(conn, &tls.Config{
				Certificates: []tls.Certificate{sign(t, bundle)}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"},
			})
			if server.Handshake() == nil {
				io.Copy(io.Discard, server) //nolint:errcheck
			}
		}, ClassUnreachable},
		{"another protocol after the handshake ends the session", func(conn net.Conn) {
			server := tls.Server(conn, &tls.Config{
				Certificates: []tls.Certificate{sign(t, bundle)}, ClientAuth: tls.RequireAnyClientCert,
			})
			if server.Handshake() == nil {
				io.Copy(io.Discard, server) //nolint:errcheck
			}
		}, ClassNotTalos},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close() //nolint:errcheck
			defer far.Close()  //nolint:errcheck

			go tc.serve(far)

			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()

			proof, err := newProof(Access{Bundle: bundle, Role: RoleReader})
			if err != nil {
				t.Fatal(err)
			}

			_, err = open(ctx, address, proof, near)
			if ClassOf(err) != tc.want {
				t.Errorf("have %v, want class %q", err, tc.want)
			}

			if strings.HasPrefix(tc.name, "silence") && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v hides that the time was up", err)
			}
		})
	}
}

// Req: T-18a
func TestTheCertificateIsShortLivedAndOfTheRole(t *testing.T) {
	bundle := theCluster()
	now := time.Now().Truncate(time.Second)

	for _, role := range []Role{RoleReader, RoleOperator, RoleAdmin} {
		fixed := *bundle
		fixed.Clock = secrets.NewFixedClock(now)

		proof, err := newProof(Access{Bundle: &fixed, Role: role})
		if err != nil {
			t.Fatal(err)
		}

		leaf, err := x509.ParseCertificate(proof.certificate.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}

		if want := now.Add(15 * time.Minute); !leaf.NotAfter.Equal(want) {
			t.Errorf("%s: good until %s, want %s", role, leaf.NotAfter, want)
		}

		if want := now.Add(-5 * time.Minute); !leaf.NotBefore.Equal(want) {
			t.Errorf("%s: good from %s, want %s", role, leaf.NotBefore, want)
		}

		if !reflect.DeepEqual(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
			t.Errorf("%s: for %v", role, leaf.ExtKeyUsage)
		}

		n := newNode(t, bundle)
		n.session(t, Access{Bundle: bundle, Role: role})

		if len(n.clients) != 1 || !reflect.DeepEqual(n.clients[0].Organization, []string{string(role)}) {
			t.Errorf("%s: the node saw %v", role, n.clients)
		}
	}
}

func TestNoSessionWithoutBundleRoleAndAddress(t *testing.T) {
	bundle := theCluster()

	broken := *bundle
	certs := *bundle.Certs
	certs.OS = &talosx509.PEMEncodedCertificateAndKey{Crt: bundle.Certs.OS.Crt, Key: []byte("-----BEGIN ED25519 PRIVATE KEY-----\nbm90IGEga2V5\n-----END ED25519 PRIVATE KEY-----\n")}
	broken.Certs = &certs

	for _, tc := range []struct {
		name    string
		address string
		access  Access
		want    Class
	}{
		{"no bundle", address, Access{Role: RoleReader}, ClassInvalidAccess},
		{"an empty bundle", address, Access{Bundle: &secrets.Bundle{}, Role: RoleReader}, ClassInvalidAccess},
		{"no role", address, Access{Bundle: bundle}, ClassInvalidAccess},
		{"a role that is none of ours", address, Access{Bundle: bundle, Role: "os:impersonator"}, ClassInvalidAccess},
		{"a CA that cannot sign", address, Access{Bundle: &broken, Role: RoleReader}, ClassInvalidAccess},
		{"a name instead of an address", "node.example", Access{Bundle: bundle, Role: RoleReader}, ClassUnreachable},
	} {
		_, err := Dial(t.Context(), tc.address, tc.access)
		if ClassOf(err) != tc.want {
			t.Errorf("%s: have %v, want class %q", tc.name, err, tc.want)
		}

		if err != nil {
			noSecrets(t, err.Error(), bundle)

			if strings.Contains(err.Error(), "bm90") {
				t.Errorf("%s: the key is in %v", tc.name, err)
			}
		}
	}
}

func TestRolesCoverEachOther(t *testing.T) {
	order := []Role{RoleReader, RoleOperator, RoleAdmin}

	for i, a := range order {
		for j, b := range order {
			if a.Covers(b) != (i >= j) {
				t.Errorf("%s covers %s: %v", a, b, a.Covers(b))
			}
		}

		if Role("").Covers(a) {
			t.Errorf("no role covers %s", a)
		}
	}

	for op, want := range map[Op]Role{
		OpDial: RoleReader, OpIdentity: RoleReader, OpStatus: RoleReader, OpEtcdMembers: RoleReader, OpReboot: RoleOperator,
		OpConfiguration: RoleAdmin, OpTry: RoleAdmin, OpApply: RoleAdmin, OpBootstrap: RoleAdmin,
	} {
		if op.Role() != want {
			t.Errorf("%s needs %s, want %s", op, op.Role(), want)
		}
	}
}
