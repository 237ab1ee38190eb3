// Package modbus reads Modbus TCP devices: one connection per host:port, shared by all unit ids behind it and
// serialised, since devices allow one to four connections (P-13).
package modbus

import (
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
	return driver.ParseEndpoint(endpoint, "tcp", defaultPort, false)
}
