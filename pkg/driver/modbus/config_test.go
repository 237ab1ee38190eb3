package modbus

import (
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13
func TestParseEndpoint(t *testing.T) {
	for _, c := range []struct{ name, endpoint, want string }{
		{"host and port", "tcp://10.0.0.5:1502", "10.0.0.5:1502"},
		{"the port defaults to 502", "tcp://plc-1", "plc-1:502"},
		{"host names do not depend on case", "tcp://PLC-1:502", "plc-1:502"},
		{"IPv6", "tcp://[2001:db8::1]:502", "[2001:db8::1]:502"},
		{"IPv6 without port", "tcp://[2001:db8::1]", "[2001:db8::1]:502"},
		{"no scheme", "10.0.0.5:502", ""},
		{"another scheme", "opc.tcp://10.0.0.5:502", ""},
		{"no host", "tcp://:502", ""},
		{"an empty port", "tcp://plc-1:", ""},
		{"port 0", "tcp://plc-1:0", ""},
		{"a port beyond 65535", "tcp://plc-1:65536", ""},
		{"a path", "tcp://plc-1:502/unit/1", ""},
		{"credentials", "tcp://user:password@plc-1", ""},
		{"nothing", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseEndpoint(c.endpoint)
			if c.want == "" {
				if driver.ReasonOf(err) != driver.ReasonConfigurationError || err == nil {
					t.Fatalf("ParseEndpoint(%q) = %q, %v, want a ConfigurationError", c.endpoint, got, err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("ParseEndpoint(%q) = %q, %v, want %q", c.endpoint, got, err, c.want)
			}
		})
	}
}

// Req: P-13 (OpenEMS#86: off by one)
func TestParseAddress(t *testing.T) {
	for _, c := range []struct {
		name       string
		text       string
		addressing Addressing
		want       Address
		fails      bool
	}{
		{"table and offset count from 0", "holding:100", ZeroBased, Address{Holding, 100}, false},
		{"table and offset count from 0 with reference addressing too", "holding:100", Reference, Address{Holding, 100}, false},
		{"coil", "coil:0", ZeroBased, Address{Coil, 0}, false},
		{"discrete", "discrete:65535", ZeroBased, Address{Discrete, 65535}, false},
		{"40001 is holding 0", "40001", Reference, Address{Holding, 0}, false},
		{"40101 is holding 100", "40101", Reference, Address{Holding, 100}, false},
		{"400001 is holding 0", "400001", Reference, Address{Holding, 0}, false},
		{"465536 is holding 65535", "465536", Reference, Address{Holding, 65535}, false},
		{"30001 is input 0", "30001", Reference, Address{Input, 0}, false},
		{"10001 is discrete 0", "10001", Reference, Address{Discrete, 0}, false},
		{"00001 is coil 0", "00001", Reference, Address{Coil, 0}, false},
		{"49999 is holding 9998", "49999", Reference, Address{Holding, 9998}, false},
		{"a reference number is never guessed", "40101", ZeroBased, Address{}, true},
		{"reference numbers have no 0", "40000", Reference, Address{}, true},
		{"beyond the table", "465537", Reference, Address{}, true},
		{"no such table", "20001", Reference, Address{}, true},
		{"four digits", "4001", Reference, Address{}, true},
		{"an offset beyond the table", "holding:65536", ZeroBased, Address{}, true},
		{"a negative offset", "holding:-1", ZeroBased, Address{}, true},
		{"an unknown table", "register:1", ZeroBased, Address{}, true},
		{"nothing", "", Reference, Address{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseAddress(c.text, c.addressing)
			if (err != nil) != c.fails || got != c.want {
				t.Errorf("ParseAddress(%q, %s) = %v, %v, want %v, fails %v", c.text, c.addressing, got, err, c.want, c.fails)
			}
		})
	}
}
