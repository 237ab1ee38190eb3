// Package ethernetip reads and writes EtherNet/IP devices: one CIP connection per host:port and route, shared by all
// modules that name both, and serialised (P-13).
//
// The wire is our own, over a connection of our own; of gologix it takes what needs no connection, the names of vendors
// and the numbers of CIP. Its client (v0.41.0-beta) cannot be made safe for supervising devices:
//   - it dials by itself, so that no context, no connect limit and no closing of ours reaches a connection that is being
//     made; its DebugCloseConn races with Connect;
//   - it hides every status in a text and drops the extended one, so that a wrong slot, a full device and a missing tag
//     cannot be told apart by type;
//   - after a silence it sends a Forward Close down the dead link and waits once more, which is beyond the second that
//     a request may take (P-16);
//   - it matches no reply to its request, so that a late one is taken for the next;
//   - its tag listing loops for ever on a page that does not advance, and panics on replies cut short;
//   - it encodes array indices from 65536 on wrongly, and cuts the last letter off structures' names.
package ethernetip

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// defaultPort is the port registered for EtherNet/IP explicit messages.
const defaultPort = "44818"

// defaultTimeout is the request timeout of a Config that names none (P-16: 1 s).
const defaultTimeout = time.Second

// Config is one device.
type Config struct {
	// Endpoint is tcp://host[:port]; the port defaults to 44818.
	Endpoint string
	// Path is the route to the CPU in pairs of port and link, such as "1,0" for the backplane, slot 0; empty for a device
	// that is addressed directly.
	Path string
	// IdentityOnly asks for the identity alone, for devices that refuse a Forward Open.
	IdentityOnly bool
	// Timeout of one request, connecting included; zero means 1 s.
	Timeout time.Duration
	// Channels are the declared channels; the first is what Check reads, without any it is the Identity object's status.
	Channels []driver.Channel
}

// ParseEndpoint returns the host:port of a tcp://host[:port] endpoint.
func ParseEndpoint(endpoint string) (string, error) {
	return driver.ParseEndpoint(endpoint, "tcp", defaultPort, false)
}

const (
	// extendedLink in a port segment says that the link address is not one byte (CIP volume 1, C-1.4.1).
	extendedLink = 0x10
	// extendedPort is the first port number that does not fit into a port segment's first byte.
	extendedPort = 0x0F
)

// ParsePath encodes a route, such as "1,0" or "1,3,2,192.168.1.5,1,0", as port segments.
func ParsePath(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	wrong := driver.ConfigurationError(`path %q must be pairs of port and slot, such as "1,0"; a slot may be the IPv4 address of the next chassis`, path)
	parts := strings.Split(path, ",")
	if len(parts)%2 != 0 {
		return nil, wrong
	}
	var route []byte
	for i := 0; i < len(parts); i += 2 {
		port, err := strconv.ParseUint(parts[i], 10, 8)
		if err != nil || port == 0 {
			return nil, wrong
		}
		link, err := strconv.ParseUint(parts[i+1], 10, 8)
		address := ""
		if err != nil {
			a, err := netip.ParseAddr(parts[i+1])
			if err != nil || !a.Is4() {
				return nil, wrong
			}
			address = a.String()
		}
		first := byte(min(port, extendedPort))
		if address != "" {
			first |= extendedLink
		}
		route = append(route, first)
		if address != "" {
			route = append(route, byte(len(address)))
		}
		if port >= extendedPort {
			route = append(route, byte(port), 0)
		}
		if address == "" {
			route = append(route, byte(link))
		} else {
			route = append(route, address...)
		}
		if len(route)%2 != 0 {
			route = append(route, 0)
		}
	}
	if len(route)+len(messageRouter) > 2*255 {
		return nil, driver.ConfigurationError("path %q is too long", path)
	}
	return route, nil
}
