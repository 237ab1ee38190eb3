package ethernetip

import (
	"bytes"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13
func TestParseEndpoint(t *testing.T) {
	for endpoint, want := range map[string]string{
		"tcp://192.0.2.1":       "192.0.2.1:44818",
		"tcp://192.0.2.1:2222":  "192.0.2.1:2222",
		"tcp://PLC.example":     "plc.example:44818",
		"tcp://[2001:db8::1]":   "[2001:db8::1]:44818",
		"192.0.2.1":             "",
		"udp://192.0.2.1":       "",
		"tcp://192.0.2.1/a":     "",
		"tcp://u@192.0.2.1":     "",
		"tcp://192.0.2.1:":      "",
		"tcp://192.0.2.1:0":     "",
		"tcp://192.0.2.1:65536": "",
		"tcp://":                "",
		"tcp://%zz":             "",
	} {
		got, err := ParseEndpoint(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ParseEndpoint(%q) = %q, %v, want %q", endpoint, got, err, want)
		}
		if err != nil && driver.ReasonOf(err) != driver.ReasonConfigurationError {
			t.Errorf("ParseEndpoint(%q): reason %s", endpoint, driver.ReasonOf(err))
		}
	}
}

// Req: P-13 (CIP volume 1, appendix C-1.4.1)
func TestParsePathEncodesPortSegments(t *testing.T) {
	for _, c := range []struct {
		name, path string
		want       []byte
		wrong      bool
	}{
		{"no route", "", nil, false},
		{"backplane, slot 0", "1,0", []byte{1, 0}, false},
		{"backplane, slot 12", "1,12", []byte{1, 12}, false},
		{"over Ethernet to the next chassis", "1,1,2,10.0.0.1,1,0", append(append([]byte{1, 1, 0x12, 8}, "10.0.0.1"...), 1, 0), false},
		{"an address of odd length is padded", "2,10.0.0.10", append(append([]byte{0x12, 9}, "10.0.0.10"...), 0), false},
		{"a port beyond 14 is written out", "20,3", []byte{0x0F, 20, 0, 3}, false},
		{"half a pair", "1", nil, true},
		{"port 0", "0,1", nil, true},
		{"an address where the port stands", "10.0.0.1,1", nil, true},
		{"a slot beyond 255", "1,256", nil, true},
		{"an IPv6 address", "2,::1", nil, true},
		{"spaces", "1, 0", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParsePath(c.path)
			if !bytes.Equal(got, c.want) || (err != nil) != c.wrong {
				t.Errorf("ParsePath(%q) = % x, %v, want % x", c.path, got, err, c.want)
			}
		})
	}
}

// Req: P-13
func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
	}{
		{"no endpoint", Config{}},
		{"another scheme", Config{Endpoint: "opc.tcp://h"}},
		{"half a route", Config{Endpoint: "tcp://h", Path: "1"}},
		{"an address that is none", Config{Endpoint: "tcp://h", Channels: []driver.Channel{{Address: "9tag"}}}},
		{"a word order", Config{Endpoint: "tcp://h", Channels: []driver.Channel{{Address: "tag", WordOrder: "ABCD"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDriver()
			if _, err := d.Open(c.config); err == nil || driver.ReasonOf(err) != driver.ReasonConfigurationError {
				t.Errorf("Open: %v, want a ConfigurationError", err)
			}
			if n := d.Endpoints(); n != 0 {
				t.Errorf("%d endpoints of a device that was refused", n)
			}
		})
	}
}
