package opcuatest_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua/opcuatest"
)

func started(t *testing.T, users map[string]string) *opcuatest.Server {
	t.Helper()
	s, err := opcuatest.New(opcuatest.Options{Address: "127.0.0.1:0", Name: "Press", Users: users, Variables: []opcuatest.Variable{
		{Path: "Line/Press/Pressure", Value: float32(4.2), Unit: "bar", High: 10},
		{Path: "Line/Press/Pressure/Limit", Value: float64(8), Unit: "bar", High: 10, Writable: true},
		{Path: "Line/Parts", Value: uint32(7)},
		{Path: "Running", Value: true},
	}})
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func opened(t *testing.T, s *opcuatest.Server, change func(*opcua.Config)) driver.Device {
	t.Helper()
	var dialer net.Dialer
	d := opcua.New(dialer.DialContext, driver.NewConnectLimit(20), opcua.Options{
		Credentials: func(string) ([]byte, error) { return []byte("secret\n"), nil },
	})
	c := opcua.Config{Endpoint: s.Endpoint(), SecurityPolicy: opcua.PolicyNone, Timeout: 5 * time.Second}
	change(&c)
	device, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return device
}

func reasonOf(device driver.Device) driver.Reason {
	answer, err := device.Check(context.Background())
	if err != nil {
		return driver.ReasonOf(err)
	}
	return answer.Reason
}

// Req: P-13
func TestTheDriverReadsTheServerInEachSecurityMode(t *testing.T) {
	s, named := started(t, nil), started(t, map[string]string{"probe": "secret"})
	for _, c := range []struct {
		name   string
		server *opcuatest.Server
		change func(*opcua.Config)
		want   driver.Reason
	}{
		{"without security", s, func(*opcua.Config) {}, ""},
		{"signed", s, func(c *opcua.Config) {
			c.SecurityPolicy, c.SecurityMode, c.TrustedThumbprint = opcua.PolicyBasic256Sha256, opcua.ModeSign, opcuatest.Thumbprint
		}, ""},
		{"encrypted", s, func(c *opcua.Config) {
			c.SecurityPolicy, c.SecurityMode, c.TrustedThumbprint = opcua.PolicyBasic256Sha256, opcua.ModeSignAndEncrypt, opcuatest.Thumbprint
		}, ""},
		{"encrypted, with a password", named, func(c *opcua.Config) {
			c.SecurityPolicy, c.SecurityMode, c.TrustedThumbprint = opcua.PolicyBasic256Sha256, opcua.ModeSignAndEncrypt, opcuatest.Thumbprint
			c.Identity, c.UserName, c.CredentialsKey = opcua.UserName, "probe", "password"
		}, ""},
		{"with a password in clear text", named, func(c *opcua.Config) {
			c.Identity, c.UserName, c.CredentialsKey, c.AllowInsecureAuth = opcua.UserName, "probe", "password", true
		}, ""},
		{"another user", named, func(c *opcua.Config) {
			c.Identity, c.UserName, c.CredentialsKey, c.AllowInsecureAuth = opcua.UserName, "somebody", "password", true
		}, driver.ReasonCredentialsRejected},
		{"another certificate is pinned", s, func(c *opcua.Config) {
			c.SecurityPolicy, c.SecurityMode, c.TrustedThumbprint = opcua.PolicyBasic256Sha256, opcua.ModeSignAndEncrypt, strings.Repeat("0", 64)
		}, driver.ReasonCertificateUntrusted},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := opened(t, c.server, c.change)
			if have := reasonOf(device); have != c.want {
				_, err := device.Check(t.Context())
				t.Fatalf("%q, not %q: %v", have, c.want, err)
			}
			if c.want != "" {
				return
			}
			list, err := device.Channels(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, item := range list.Items {
				have = append(have, fmt.Sprintf("%s %s %s %s %v", item.Name, item.DataType, item.Access, item.Unit, item.Range != nil))
			}
			if want := []string{
				"Line/Parts uint32 Read  false", "Line/Press/Pressure float32 Read bar true",
				"Line/Press/Pressure/Limit float64 ReadWrite bar true", "Running bool Read  false",
			}; fmt.Sprintf("%q", have) != fmt.Sprintf("%q", want) {
				t.Errorf("have %q\nwant %q", have, want)
			}
		})
	}
}

// Req: P-16
func TestFaultsOnCommandAreThoseThatTheDriverTells(t *testing.T) {
	s := started(t, nil)
	device := opened(t, s, func(c *opcua.Config) { c.Timeout = time.Second })
	check := func(what string, want driver.Reason) {
		t.Helper()
		have := reasonOf(device)
		// A reset is told once, and a loaded machine is slow at times.
		for deadline := time.Now().Add(10 * time.Second); want == "" && have != "" && time.Now().Before(deadline); {
			have = reasonOf(device)
		}
		if have != want {
			t.Errorf("%s: %q, not %q", what, have, want)
		}
	}
	check("well", "")
	s.Blackhole(true)
	check("silent", driver.ReasonTimeout)
	check("silent, on a new connection", driver.ReasonTimeout)
	s.Blackhole(false)
	check("well again", "")
	s.Delay(3 * time.Second)
	check("slow", driver.ReasonTimeout)
	s.Delay(0)
	check("no longer slow", "")
	s.Reset()
	check("after a reset", "")
	s.Stop()
	check("stopped", driver.ReasonRefused)
	if s.Open() != 0 || s.Sessions() != 0 && s.Accepted() == 0 {
		t.Errorf("%d connections are open after the stop", s.Open())
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	check("started again", "")
	if s.Sessions() != 1 {
		t.Errorf("%d sessions", s.Sessions())
	}
}

func TestTheThumbprintIsThatOfTheCertificate(t *testing.T) {
	s := started(t, nil)
	device := opened(t, s, func(c *opcua.Config) {
		c.SecurityPolicy, c.SecurityMode = opcua.PolicyBasic256Sha256, opcua.ModeSignAndEncrypt
	})
	if _, err := device.Check(t.Context()); err == nil || !strings.Contains(err.Error(), opcuatest.Thumbprint) {
		t.Errorf("no %s in %v", opcuatest.Thumbprint, err)
	}
}

func TestWrongDescriptionsOfAServerAreRefused(t *testing.T) {
	for name, variables := range map[string][]opcuatest.Variable{
		"no path":           {{Value: true}},
		"two of one path":   {{Path: "a", Value: true}, {Path: "a", Value: true}},
		"below, then above": {{Path: "a/b", Value: true}, {Path: "a", Value: true}},
		"no type":           {{Path: "a", Value: struct{}{}}},
	} {
		if _, err := opcuatest.New(opcuatest.Options{Address: "127.0.0.1:0", Variables: variables}); err == nil {
			t.Errorf("%s: made", name)
		}
	}
}
