package opcua

import (
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// defaultApplicationURI names our application where nobody gave another.
const defaultApplicationURI = "urn:fieldplane:io-probe"

// Options is what a driver needs beyond a way to dial.
type Options struct {
	// Credentials finds what configurations name by key.
	Credentials Credentials
	// Application is who we are to servers. Nil makes one, when it is first needed, that lasts as long as the driver.
	Application *Application
	// ApplicationKey is where Credentials may find the PEM certificate and key of an application that servers know already; it goes
	// before Application, and is looked at for every connection.
	ApplicationKey string
	// Now is the time by which certificates are judged; nil is time.Now.
	Now func() time.Time
	// TokenLifetime of a channel's security token, which is renewed in time; zero is one hour.
	TokenLifetime time.Duration
}

// Driver opens devices and lets those of the same endpoint, security and identity share a session.
type Driver struct {
	dial     Dial
	connects *driver.ConnectLimit
	options  Options
	// application makes our own certificate once: it takes a good part of a second.
	application func() (*Application, error)

	mu          sync.Mutex
	connections map[key]*shared
}

// key is what devices must agree in to share a session.
type key struct {
	hostPort, endpoint     string
	policy                 SecurityPolicy
	mode                   SecurityMode
	identity               IdentityKind
	userName, credentials  string
	insecure               bool
	thumbprint, trustedKey string
}

type shared struct {
	*connection
	devices int
}

// New returns a driver that connects by dial, within connects.
func New(dial Dial, connects *driver.ConnectLimit, options Options) *Driver {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.TokenLifetime <= 0 {
		options.TokenLifetime = channelLifetime
	}
	d := &Driver{dial: dial, connects: connects, options: options, connections: map[key]*shared{}}
	d.application = sync.OnceValues(func() (*Application, error) {
		if options.Application != nil {
			return options.Application, nil
		}
		return NewApplication("io-probe", defaultApplicationURI, options.Now())
	})
	return d
}

// Open checks the configuration and returns its device, without connecting. The error is always a
// ReasonConfigurationError or a ReasonInsecureAuthentication.
func (d *Driver) Open(c Config) (driver.Device, error) {
	c, hostPort, err := c.normalise()
	if err != nil {
		return nil, err
	}
	k := key{
		hostPort: hostPort, endpoint: c.Endpoint, policy: c.SecurityPolicy, mode: c.SecurityMode, identity: c.Identity,
		userName: c.UserName, credentials: c.CredentialsKey, insecure: c.AllowInsecureAuth,
		thumbprint: c.TrustedThumbprint, trustedKey: c.TrustedCertificateKey,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.connections[k]
	if s == nil {
		s = &shared{connection: newConnection(opener{
			config: c, applicationKey: d.options.ApplicationKey, hostPort: hostPort, dial: d.dial, application: d.application, now: d.options.Now, lifetime: d.options.TokenLifetime,
		}, d.options.Credentials, d.connects)}
		d.connections[k] = s
	}
	s.devices++
	return &device{
		connection: s.connection, timeout: c.Timeout, channels: c.Channels, now: d.options.Now,
		release: func() { d.release(k, s) },
	}, nil
}

// release gives up a device's share; the last one closes the session.
func (d *Driver) release(k key, s *shared) {
	d.mu.Lock()
	s.devices--
	last := s.devices == 0
	if last {
		delete(d.connections, k)
	}
	d.mu.Unlock()
	if last {
		s.shutdown()
	}
}

// Sessions is how many sessions there are, or would be if their servers answered.
func (d *Driver) Sessions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.connections)
}
