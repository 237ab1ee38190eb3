package opcua

import (
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13
func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"opc.tcp://192.0.2.1":                  "192.0.2.1:4840",
		"opc.tcp://PLC-7.plant:48010/UA/Press": "plc-7.plant:48010",
		"opc.tcp://[2001:db8::1]:4841":         "[2001:db8::1]:4841",
		"tcp://192.0.2.1":                      "",
		"opc.tcp://192.0.2.1:":                 "",
		"opc.tcp://192.0.2.1:0":                "",
		"opc.tcp://u:p@192.0.2.1":              "",
		"opc.tcp://192.0.2.1?x=1":              "",
		"opc.tcp://":                           "",
		"192.0.2.1:4840":                       "",
	} {
		got, err := ParseEndpoint(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", endpoint, got, err)
		}
	}
}

// Req: P-13 (no password over policy None unless it is allowed)
func TestConfigurations(t *testing.T) {
	const endpoint = "opc.tcp://192.0.2.1"
	for _, c := range []struct {
		name   string
		config Config
		want   driver.Reason
	}{
		{"the secure defaults", Config{}, ""},
		{"none at all", Config{SecurityPolicy: PolicyNone}, ""},
		{"a policy that is broken", Config{SecurityPolicy: "Basic128Rsa15"}, driver.ReasonConfigurationError},
		{"a mode that is none", Config{SecurityMode: "Encrypt"}, driver.ReasonConfigurationError},
		{"None that signs", Config{SecurityPolicy: PolicyNone, SecurityMode: ModeSign}, driver.ReasonConfigurationError},
		{"a policy that does nothing", Config{SecurityMode: ModeNone}, driver.ReasonConfigurationError},
		{"a password in clear text", Config{SecurityPolicy: PolicyNone, Identity: UserName, UserName: "u", CredentialsKey: "k"}, driver.ReasonInsecureAuthentication},
		{"a password in clear text, allowed", Config{SecurityPolicy: PolicyNone, Identity: UserName, UserName: "u", CredentialsKey: "k", AllowInsecureAuth: true}, ""},
		{"a user without a password", Config{Identity: UserName, UserName: "u"}, driver.ReasonConfigurationError},
		{"a certificate without its key", Config{Identity: Certificate}, driver.ReasonConfigurationError},
		{"an identity that is none", Config{Identity: "Token"}, driver.ReasonConfigurationError},
		{"a thumbprint with colons", Config{TrustedThumbprint: strings.TrimSuffix(strings.Repeat("AB:", 20), ":")}, ""},
		{"a thumbprint that is too short", Config{TrustedThumbprint: "abcd"}, driver.ReasonConfigurationError},
		{"a channel that is none", Config{Channels: []driver.Channel{{Name: "c", Address: "holding:1"}}}, driver.ReasonConfigurationError},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Endpoint = endpoint
			d := testDriver(Options{})
			dev, err := d.Open(c.config)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = dev.Close()
				return
			}
			if err == nil || driver.ReasonOf(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// Req: P-13 (addresses are kept by namespace URI)
func TestAddresses(t *testing.T) {
	namespaces := []string{"http://opcfoundation.org/UA/", "urn:other", "urn:plant;v=1%2"}
	for _, c := range []struct{ text, address, index string }{
		{"i=2258", "i=2258", "i=2258"},
		{"s=a b;c", "s=a b;c", "s=a b;c"},
		{"ns=1;i=5", "nsu=urn:other;i=5", "ns=1;i=5"},
		{"ns=2;s=Plant/Area 1.Unit:0;T 0", "nsu=urn:plant%3Bv=1%252;s=Plant/Area 1.Unit:0;T 0", "ns=2;s=Plant/Area 1.Unit:0;T 0"},
		{"nsu=urn:plant%3bv=1%252;g=09087e75-8e5e-499b-954f-f2a9603db28a", "nsu=urn:plant%3Bv=1%252;g=09087E75-8E5E-499B-954F-F2A9603DB28A", "ns=2;g=09087E75-8E5E-499B-954F-F2A9603DB28A"},
		{"ns=1;b=M/RbKBsRVkePCePcx24oRA==", "nsu=urn:other;b=M/RbKBsRVkePCePcx24oRA==", "ns=1;b=M/RbKBsRVkePCePcx24oRA=="},
		{"ns=9;i=5", "ns=9;i=5", "ns=9;i=5"},
		{"i=85", "i=85", "i=85"},
		{"ns=1;i=70000", "nsu=urn:other;i=70000", "ns=1;i=70000"},
		{"ns=300;i=5", "ns=300;i=5", "ns=300;i=5"},
	} {
		a, err := parseAddress(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		id, err := a.resolve(namespaces)
		if err != nil || id.address(namespaces) != c.address || id.String() != c.index {
			t.Errorf("%s: %s, %s, %v", c.text, id.address(namespaces), id, err)
		}
		// What is encoded is read as the same.
		raw, err := id.ua().Encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, encoded := range [][]byte{raw, appendNodeID(nil, id)} {
			d := decoder{b: encoded}
			if again, _ := d.nodeID(); again != id || d.err != nil || len(d.b) != 0 {
				t.Errorf("%s: encoded and decoded it is %s", c.text, again)
			}
		}
	}
	for _, text := range []string{"", "i=", "i=x", "i=4294967296", "x=1", "ns=1", "ns=65536;i=1", "nsu=;i=1", "g=12", "b=?", "holding:1", "ns=1;2"} {
		if _, err := parseAddress(text); err == nil || driver.ReasonOf(err) != driver.ReasonConfigurationError {
			t.Errorf("%q: %v", text, err)
		}
	}
	a, _ := parseAddress("nsu=urn:gone;i=1")
	if _, err := a.resolve(namespaces); err == nil {
		t.Error("a namespace that is not there was found")
	}
}
