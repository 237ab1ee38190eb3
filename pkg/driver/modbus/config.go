// Package modbus reads Modbus TCP devices: one connection per host:port, shared by all unit ids behind it and
// serialised, since devices allow one to four connections (P-13).
package modbus

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// defaultPort is the port registered for Modbus TCP.
const defaultPort = "502"

// defaultTimeout is the request timeout of a Config that names none (P-16: 1 s).
const defaultTimeout = time.Second

// Config is one device: a unit id behind an endpoint.
type Config struct {
	// Endpoint is tcp://host[:port]; the port defaults to 502.
	Endpoint string
	UnitID   uint8
	// WordOrder of values wider than a register; empty means ABCD.
	WordOrder WordOrder
	// Addressing says how bare numbers among the channels' addresses count; empty means ZeroBased.
	Addressing Addressing
	// CloseAfterPoll gives the connection back after each check, for devices with a single connection.
	CloseAfterPoll bool
	// Timeout of one request, connecting included; zero means 1 s.
	Timeout time.Duration
	// Channels are the declared channels; the first that may be read is what Check reads, without any it is holding
	// register 0.
	Channels []driver.Channel
	// Verify makes the device's Channels read each declared channel once, to find those that the device refuses.
	Verify bool
}

// ParseEndpoint returns the host:port of a tcp://host[:port] endpoint.
func ParseEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", configurationError("endpoint %q is no URL; write tcp://host:port", endpoint)
	}
	if u.Scheme != "tcp" {
		return "", configurationError("endpoint %q must begin with tcp://", endpoint)
	}
	host, port := u.Hostname(), u.Port()
	if host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return "", configurationError("endpoint %q must be tcp://host:port and nothing more", endpoint)
	}
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", configurationError("endpoint %q has an empty port", endpoint)
		}
		port = defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", configurationError("endpoint %q: port %s is not between 1 and 65535", endpoint, port)
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

func configurationError(format string, args ...any) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Err: fmt.Errorf(format, args...)}
}
