package authority

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func begin() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := New(begin())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, now time.Time, leaf Leaf) KeyPair {
	t.Helper()
	pair, err := a.Issue(now, leaf)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func parsed(t *testing.T, pair KeyPair) *x509.Certificate {
	t.Helper()
	cert, err := parseCertificate(pair.CertPEM)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Req: A-09, P-11
func TestWhatIsIssued(t *testing.T) {
	a := newAuthority(t)
	for _, tc := range []struct {
		name     string
		leaf     Leaf
		dns      string
		ip       string
		uri      string
		usages   []x509.ExtKeyUsage
		lifetime time.Duration
	}{
		{name: "the API server's certificate serves its names for a year", leaf: Serving("fieldplane-apiserver.fieldplane-system.svc", "127.0.0.1"),
			dns: "fieldplane-apiserver.fieldplane-system.svc", ip: "127.0.0.1", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, lifetime: 365 * 24 * time.Hour},
		{name: "the controllers' certificate can only call", leaf: Controllers(),
			uri: "fieldplane://controllers", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, lifetime: 90 * 24 * time.Hour},
		{name: "a namespace's certificate names its namespace, serves and calls for 90 days", leaf: Namespace("site-north"),
			dns: "io-probe.site-north.fieldplane.internal", uri: "fieldplane://namespace/site-north",
			usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, lifetime: 90 * 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cert := parsed(t, issue(t, a, begin(), tc.leaf))
			if _, err := cert.Verify(x509.VerifyOptions{Roots: a.Pool(), CurrentTime: begin().Add(time.Hour), KeyUsages: tc.usages}); err != nil {
				t.Error(err)
			}
			if cert.IsCA {
				t.Error("is a CA")
			}
			if got := strings.Join(cert.DNSNames, ","); got != tc.dns {
				t.Errorf("DNS names %q, want %q", got, tc.dns)
			}
			if tc.ip != "" && (len(cert.IPAddresses) != 1 || !cert.IPAddresses[0].Equal(net.ParseIP(tc.ip))) {
				t.Errorf("addresses %v, want %s", cert.IPAddresses, tc.ip)
			}
			uri := ""
			for _, u := range cert.URIs {
				uri += u.String()
			}
			if uri != tc.uri {
				t.Errorf("URI %q, want %q", uri, tc.uri)
			}
			if len(cert.ExtKeyUsage) != len(tc.usages) {
				t.Errorf("usages %v, want %v", cert.ExtKeyUsage, tc.usages)
			}
			if want := begin().Add(tc.lifetime); !cert.NotAfter.Equal(want) {
				t.Errorf("ends %v, want %v", cert.NotAfter, want)
			}
			if !cert.NotBefore.Before(begin()) {
				t.Error("a peer whose clock is a little behind would refuse it")
			}
		})
	}
	t.Run("nothing outlives the authority", func(t *testing.T) {
		cert := parsed(t, issue(t, a, begin().Add(Lifetime-24*time.Hour), Namespace("n")))
		if !cert.NotAfter.Equal(begin().Add(Lifetime)) {
			t.Errorf("ends %v", cert.NotAfter)
		}
	})
	t.Run("an expired authority issues nothing", func(t *testing.T) {
		if _, err := a.Issue(begin().Add(Lifetime), Namespace("n")); err == nil {
			t.Error("want an error")
		}
	})
}

// Req: A-09
func TestAnAuthorityIsWrittenAndRead(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	pair, err := a.KeyPair()
	if err != nil {
		t.Fatal(err)
	}
	otherPair, err := other.KeyPair()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(pair)
	if err != nil {
		t.Fatal(err)
	}
	if why := again.Due(begin(), issue(t, a, begin(), Namespace("n")), Namespace("n")); why != "" {
		t.Errorf("what was issued before is refused: %s", why)
	}
	leaf := issue(t, a, begin(), Namespace("n"))

	for _, tc := range []struct {
		name string
		pair KeyPair
		want string
	}{
		{name: "a missing certificate", pair: KeyPair{KeyPEM: pair.KeyPEM}, want: "the CA's certificate: is missing"},
		{name: "a missing key", pair: KeyPair{CertPEM: pair.CertPEM}, want: "the CA's key: is missing"},
		{name: "no PEM", pair: KeyPair{CertPEM: []byte("hello"), KeyPEM: pair.KeyPEM}, want: "not PEM of type CERTIFICATE"},
		{name: "a key in the certificate's place", pair: KeyPair{CertPEM: pair.KeyPEM, KeyPEM: pair.KeyPEM}, want: "not PEM of type CERTIFICATE"},
		{name: "a damaged key", pair: KeyPair{CertPEM: pair.CertPEM, KeyPEM: damaged(pair.KeyPEM)}, want: "the CA's key: is not readable"},
		{name: "a damaged certificate", pair: KeyPair{CertPEM: damaged(pair.CertPEM), KeyPEM: pair.KeyPEM}, want: "the CA's certificate: is not readable"},
		{name: "another's key", pair: KeyPair{CertPEM: pair.CertPEM, KeyPEM: otherPair.KeyPEM}, want: "does not belong"},
		{name: "a leaf in the CA's place", pair: leaf, want: "is not one of a CA"},
	} {
		t.Run(tc.name+" is refused without a word of the key", func(t *testing.T) {
			_, err := Load(tc.pair)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want %q, got %v", tc.want, err)
			}
			for line := range strings.Lines(string(tc.pair.KeyPEM)) {
				if len(line) > 30 && strings.Contains(err.Error(), strings.TrimSpace(line)) {
					t.Errorf("the error quotes the key: %v", err)
				}
			}
		})
	}
}

// damaged keeps the PEM frame and spoils what is in it.
func damaged(pemText []byte) []byte {
	lines := strings.Split(string(pemText), "\n")
	lines[1] = "AAAA" + lines[1][4:]
	return []byte(strings.Join(lines, "\n"))
}

// Req: A-09, P-11
func TestWhenACertificateIsDue(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	north := Namespace("north")
	good := issue(t, a, begin(), north)
	foreign := issue(t, other, begin(), north)
	day := 24 * time.Hour
	for _, tc := range []struct {
		name string
		now  time.Time
		pair KeyPair
		leaf Leaf
		want string
	}{
		{name: "a fresh one is not", now: begin(), pair: good, leaf: north},
		{name: "with just a third of its life left it is not", now: begin().Add(60 * day), pair: good, leaf: north},
		{name: "with less than a third left it is", now: begin().Add(60*day + time.Second), pair: good, leaf: north, want: "ends on"},
		{name: "an expired one is", now: begin().Add(90 * day), pair: good, leaf: north, want: "ends on"},
		{name: "one from the future is", now: begin().Add(-day), pair: good, leaf: north, want: "future"},
		{name: "one of another authority is", now: begin(), pair: foreign, leaf: north, want: "not from the installation's CA"},
		{name: "another namespace's is", now: begin(), pair: good, leaf: Namespace("south"), want: "lacks the name io-probe.south"},
		{name: "the controllers' in a namespace's place is", now: begin(), pair: issue(t, a, begin(), Controllers()), leaf: north, want: "lacks the name"},
		{name: "a namespace's in the controllers' place is", now: begin(), pair: good, leaf: Controllers(), want: "lacks the URI fieldplane://controllers"},
		{name: "one without an address is", now: begin(), pair: issue(t, a, begin(), Serving("a.svc")), leaf: Serving("a.svc", "127.0.0.1"), want: "lacks the address 127.0.0.1"},
		{name: "a serving one where a client's is needed is", now: begin(), pair: issue(t, a, begin(), Serving("a.svc")), leaf: Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Lifetime: day}, want: "lacks a usage"},
		{name: "one without its key is", now: begin(), pair: KeyPair{CertPEM: good.CertPEM}, leaf: north, want: "the key is missing"},
		{name: "one with another's key is", now: begin(), pair: KeyPair{CertPEM: good.CertPEM, KeyPEM: foreign.KeyPEM}, leaf: north, want: "does not belong"},
		{name: "none at all is", now: begin(), leaf: north, want: "the certificate is missing"},
		{name: "one cut short by the authority's end is not, since a new one would be no longer", now: begin().Add(Lifetime - day), pair: issue(t, a, begin().Add(Lifetime-2*day), north), leaf: north},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := a.Due(tc.now, tc.pair, tc.leaf)
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Req: P-11, P-12
func TestTheControllersReachTheProbesOfTheNamespaceTheyMean(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(begin())
	a := newAuthority(t)
	client := NewControllerClient(a, clock)

	handshake := func(t *testing.T, served, wanted string) (*x509.Certificate, error) {
		t.Helper()
		pair := issue(t, a, clock.Now(), Namespace(served))
		cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
		if err != nil {
			t.Fatal(err)
		}
		left, right := net.Pipe()
		defer left.Close()
		defer right.Close()
		server := tls.Server(right, &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, Time: clock.Now,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool(),
		})
		done := make(chan error, 1)
		go func() {
			err := server.Handshake()
			done <- err
			if err == nil {
				io.WriteString(server, "!")
			}
		}()
		conn := tls.Client(left, client.TLSConfig(wanted))
		if err := conn.Handshake(); err != nil {
			left.Close()
			<-done
			return nil, err
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return nil, err
		}
		if err := <-done; err != nil {
			return nil, err
		}
		return server.ConnectionState().PeerCertificates[0], nil
	}

	first, err := handshake(t, "north", "north")
	if err != nil {
		t.Fatal(err)
	}
	if got := first.URIs[0].String(); got != ControllersURI {
		t.Errorf("the probe sees %q", got)
	}
	if _, err := handshake(t, "south", "north"); err == nil {
		t.Error("another namespace's probe was accepted")
	}
	again, err := handshake(t, "north", "north")
	if err != nil || again.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Errorf("a certificate that still serves was not kept: %v", err)
	}
	clock.SetTime(begin().Add(ControllersLifetime))
	renewed, err := handshake(t, "north", "north")
	if err != nil || renewed.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Errorf("an expired certificate was not replaced: %v", err)
	}
}
