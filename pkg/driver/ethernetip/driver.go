package ethernetip

import (
	"sync"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Driver opens devices and lets those of one host:port and route share a connection.
type Driver struct {
	dial     Dial
	connects *driver.ConnectLimit
	serial   uint32

	mu        sync.Mutex
	endpoints map[key]*shared
	opened    uint32
}

// key is what devices must have in common to share a connection.
type key struct {
	address string
	route   string
	// identityOnly devices may not wait behind, or fail with, those that want more.
	identityOnly bool
}

type shared struct {
	*endpoint
	devices int
}

// New returns a driver that connects by dial, within connects. The serial number tells its connections from those of
// every other client of the same devices, those of a former life of this program included; a random one will do.
func New(dial Dial, connects *driver.ConnectLimit, serial uint32) *Driver {
	return &Driver{dial: dial, connects: connects, serial: serial, endpoints: map[key]*shared{}}
}

// Open checks the configuration and returns its device, without connecting. The error is always a
// ReasonConfigurationError.
func (d *Driver) Open(c Config) (driver.Device, error) {
	address, err := ParseEndpoint(c.Endpoint)
	if err != nil {
		return nil, err
	}
	route, err := ParsePath(c.Path)
	if err != nil {
		return nil, err
	}
	dev := &device{timeout: c.Timeout, identityOnly: c.IdentityOnly}
	if dev.timeout <= 0 {
		dev.timeout = defaultTimeout
	}
	for _, channel := range c.Channels {
		if err := checkChannel(channel); err != nil {
			return nil, err
		}
		dev.declared = append(dev.declared, channel)
	}

	k := key{address: address, route: string(route), identityOnly: c.IdentityOnly}
	if c.IdentityOnly {
		k.route = ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.endpoints[k]
	if s == nil {
		s = &shared{endpoint: newEndpoint(address, c.Path, route, d)}
		// Two endpoints of one device, made one after another, must not claim the same connection.
		s.connections = uint16(d.opened)
		d.opened += 0x1003
		d.endpoints[k] = s
	}
	s.devices++
	dev.endpoint = s.endpoint
	dev.release = func() { d.release(k, s) }
	return dev, nil
}

// release gives up a device's share; the last one closes the connection.
func (d *Driver) release(k key, s *shared) {
	d.mu.Lock()
	s.devices--
	last := s.devices == 0
	if last {
		delete(d.endpoints, k)
	}
	d.mu.Unlock()
	if last {
		s.shutdown()
	}
}

// Endpoints is how many connections there are, or would be if the devices answered.
func (d *Driver) Endpoints() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.endpoints)
}
