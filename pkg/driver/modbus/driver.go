package modbus

import (
	"sync"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Driver opens devices and lets those of one host:port share a connection.
type Driver struct {
	dial     Dial
	connects *driver.ConnectLimit

	mu        sync.Mutex
	endpoints map[string]*shared
}

type shared struct {
	*endpoint
	devices int
}

// New returns a driver that connects by dial, within connects.
func New(dial Dial, connects *driver.ConnectLimit) *Driver {
	return &Driver{dial: dial, connects: connects, endpoints: map[string]*shared{}}
}

// Open checks the configuration and returns its device, without connecting. The error is always a
// ReasonConfigurationError.
func (d *Driver) Open(c Config) (driver.Device, error) {
	address, err := ParseEndpoint(c.Endpoint)
	if err != nil {
		return nil, err
	}
	dev := &device{
		timeout:        c.Timeout,
		addressing:     c.Addressing,
		closeAfterPoll: c.CloseAfterPoll,
	}
	if dev.timeout <= 0 {
		dev.timeout = defaultTimeout
	}
	switch c.Addressing {
	case "":
		dev.addressing = ZeroBased
	case ZeroBased, Reference:
	default:
		return nil, driver.ConfigurationError("addressing %q is not zeroBased or reference", c.Addressing)
	}
	if dev.wordOrder, err = checkWordOrder(c.WordOrder); err != nil {
		return nil, err
	}
	dev.verify = c.Verify
	for _, channel := range c.Channels {
		r, err := dev.request(channel)
		if err != nil {
			return nil, err
		}
		dev.channels = append(dev.channels, declaredChannel{channel, r})
		if !dev.declared && channel.Access != driver.AccessWrite {
			dev.probe, dev.declared = r, true
		}
	}
	if !dev.declared {
		if dev.probe, err = dev.request(driver.Channel{Address: "holding:0", DataType: driver.Uint16}); err != nil {
			return nil, err
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.endpoints[address]
	if s == nil {
		s = &shared{endpoint: newEndpoint(address, d.dial, d.connects)}
		d.endpoints[address] = s
	}
	s.devices++
	dev.endpoint = s.endpoint
	dev.unit = s.attach(c.UnitID)
	dev.release = func() { d.release(address, s, dev.unit) }
	return dev, nil
}

// release gives up a device's share; the last one closes the connection.
func (d *Driver) release(address string, s *shared, u *unit) {
	s.detach(u)
	d.mu.Lock()
	s.devices--
	last := s.devices == 0
	if last {
		delete(d.endpoints, address)
	}
	d.mu.Unlock()
	if last {
		s.shutdown()
	}
}

// Endpoints is how many host:port pairs have a connection, or would have one if they answered.
func (d *Driver) Endpoints() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.endpoints)
}
