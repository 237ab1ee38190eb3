// Package ethernetiptest is an EtherNet/IP target in the test's own process, with the tags of a Logix controller and with
// faults on command. It shares no code with the driver.
//
// It leaves out implicit (I/O) messaging, UDP, and everything of CIP that neither the driver nor its independent peers use.
package ethernetiptest

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// Malformation is a way to answer wrongly.
type Malformation int

// The malformed replies on offer.
const (
	WellFormed Malformation = iota
	// WrongCommand answers another encapsulation command than was sent.
	WrongCommand
	// WrongContext echoes another sender context, and another sequence count.
	WrongContext
	// WrongService answers another CIP service than was asked for.
	WrongService
	// NoItems has an empty common packet format.
	NoItems
	// HugeItem announces an item that is longer than the frame.
	HugeItem
	// HugeLength announces more bytes than come.
	HugeLength
	// HalfFrame sends the first half of a reply and then nothing.
	HalfFrame
	// Truncated has consistent lengths and lacks the end of the CIP data.
	Truncated
	// Noise is not EtherNet/IP at all.
	Noise
)

// Identity is the Identity object's instance 1 (CIP class 0x01).
type Identity struct {
	Vendor, DeviceType, ProductCode uint16
	Major, Minor                    byte
	Status                          uint16
	Serial                          uint32
	Name                            string
}

// Device is an EtherNet/IP target. All methods may be called at any time, from any goroutine.
type Device struct {
	mu       sync.Mutex
	address  string
	listener net.Listener
	conns    map[net.Conn]struct{}
	serving  sync.WaitGroup

	identity  Identity
	templates map[uint16]*template
	scopes    map[string]*scope
	programs  []string
	// attributes are those of objects beside the symbols, by class, instance and attribute.
	attributes map[[3]uint32][]byte

	sessions    map[uint32]net.Conn
	nextSession uint32
	cip         map[uint32]*connection
	nextCIP     uint32

	route          []byte
	maxClients     int
	maxSessions    int
	maxConnections int
	linger         time.Duration
	refuseOpen     *failure
	refuseLarge    bool
	failures       map[byte]failure
	oldFirmware    bool
	noSymbols      bool
	endless        bool
	blackhole      bool
	deaf           bool
	delay          time.Duration
	delayOnce      []time.Duration
	malformed      Malformation
	mutate         func([]byte) []byte

	accepted, requests, opened int
	// messages are the services of the connected requests.
	messages []byte
}

// failure is a CIP status.
type failure struct {
	general  byte
	extended []uint16
}

// connection is one class 3 connection.
type connection struct {
	conn             net.Conn
	originatorID     uint32
	serial           uint16
	vendor           uint16
	originatorSerial uint32
	size             int
	// expires is when the connection of a session that ended is given up.
	expires time.Time
}

// New returns a device for host:port, not yet started; with port 0 the first Start chooses one and keeps it. It is a
// Logix controller without tags, addressed directly.
func New(address string) *Device {
	d := &Device{
		address: address,
		conns:   map[net.Conn]struct{}{},
		identity: Identity{
			Vendor: 1, DeviceType: 0x0E, ProductCode: 166, Major: 33, Minor: 11, Status: 0x3060, Serial: 0x00C0FFEE,
			Name: "1756-L83E/B",
		},
		templates:   map[uint16]*template{},
		scopes:      map[string]*scope{"": newScope()},
		sessions:    map[uint32]net.Conn{},
		nextSession: 0x1000,
		cip:         map[uint32]*connection{},
		nextCIP:     0x20000000,
		failures:    map[byte]failure{},
	}
	d.defineString()
	return d
}

// Start listens, the first time or again after Stop.
func (d *Device) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		return err
	}
	d.listener = listener
	d.address = listener.Addr().String()
	d.serving.Go(func() { d.accept(listener) })
	return nil
}

// Addr is the host:port on which the device listens or listened.
func (d *Device) Addr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.address
}

// Endpoint is the address as an IOModule names it.
func (d *Device) Endpoint() string { return "tcp://" + d.Addr() }

// Stop refuses connections and resets those that are open, as a device does whose program died.
func (d *Device) Stop() {
	d.mu.Lock()
	listener := d.listener
	d.listener = nil
	d.mu.Unlock()
	if listener != nil {
		_ = listener.Close()
	}
	d.Reset()
	d.serving.Wait()
}

// Close stops the device for good.
func (d *Device) Close() error {
	d.Stop()
	return nil
}

// Reset sends an RST on every open connection.
func (d *Device) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// Disconnect closes every open connection in the regular way.
func (d *Device) Disconnect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close()
	}
}

// Forget gives up every CIP connection and keeps the sessions, as a target does when a connection's time is over.
// Requests on such connections are not answered.
func (d *Device) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.cip)
}

// ForgetSessions gives up every session and keeps the TCP connections; requests of them get encapsulation status 0x64.
func (d *Device) ForgetSessions() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.cip)
	clear(d.sessions)
}

// set changes one setting under the lock.
func (d *Device) set(change func()) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	return d
}

// SetIdentity sets the Identity object.
func (d *Device) SetIdentity(id Identity) *Device { return d.set(func() { d.identity = id }) }

// Route sets the route to the CPU that a Forward Open must have, as bytes of port segments: 1, 0 is the backplane, slot 0.
func (d *Device) Route(segments ...byte) *Device { return d.set(func() { d.route = segments }) }

// MaxClients closes TCP connections beyond n as soon as they are accepted; 0 is no limit.
func (d *Device) MaxClients(n int) *Device { return d.set(func() { d.maxClients = n }) }

// MaxSessions refuses RegisterSession beyond n sessions with encapsulation status 2; 0 is no limit.
func (d *Device) MaxSessions(n int) *Device { return d.set(func() { d.maxSessions = n }) }

// MaxConnections refuses a Forward Open beyond n CIP connections with status 0x01, 0x0113; 0 is no limit.
func (d *Device) MaxConnections(n int) *Device { return d.set(func() { d.maxConnections = n }) }

// Linger keeps the CIP connections of a TCP connection that went away for so long.
func (d *Device) Linger(t time.Duration) *Device { return d.set(func() { d.linger = t }) }

// RefuseForwardOpen answers every Forward Open with the status; general 0 ends it.
func (d *Device) RefuseForwardOpen(general byte, extended ...uint16) *Device {
	return d.set(func() {
		d.refuseOpen = nil
		if general != 0 {
			d.refuseOpen = &failure{general, extended}
		}
	})
}

// RefuseLarge answers a Large Forward Open with status 0x08.
func (d *Device) RefuseLarge(on bool) *Device { return d.set(func() { d.refuseLarge = on }) }

// FailService answers one CIP service with the status; general 0 ends it.
func (d *Device) FailService(service, general byte, extended ...uint16) *Device {
	return d.set(func() {
		delete(d.failures, service)
		if general != 0 {
			d.failures[service] = failure{general, extended}
		}
	})
}

// SetAttribute sets an attribute of an object beside the symbols, by class, instance and attribute.
func (d *Device) SetAttribute(class, instance, attribute uint32, data []byte) *Device {
	return d.set(func() {
		if d.attributes == nil {
			d.attributes = map[[3]uint32][]byte{}
		}
		d.attributes[[3]uint32{class, instance, attribute}] = data
	})
}

// Attribute is what an attribute holds.
func (d *Device) Attribute(class, instance, attribute uint32) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attributes[[3]uint32{class, instance, attribute}]
}

// OldFirmware knows no external access (attribute 10) of symbols.
func (d *Device) OldFirmware(on bool) *Device { return d.set(func() { d.oldFirmware = on }) }

// NoSymbols has no symbol objects, as drives and I/O adapters have none.
func (d *Device) NoSymbols(on bool) *Device { return d.set(func() { d.noSymbols = on }) }

// EndlessList answers a tag listing with the first page for ever.
func (d *Device) EndlessList(on bool) *Device { return d.set(func() { d.endless = on }) }

// Blackhole accepts TCP connections and never answers, on open connections neither; requests of that time are lost.
func (d *Device) Blackhole(on bool) *Device { return d.set(func() { d.blackhole = on }) }

// Deaf does not answer connected messages, while sessions are still managed.
func (d *Device) Deaf(on bool) *Device { return d.set(func() { d.deaf = on }) }

// Delay delays every reply.
func (d *Device) Delay(t time.Duration) *Device { return d.set(func() { d.delay = t }) }

// DelayNext delays the next reply only.
func (d *Device) DelayNext(t time.Duration) *Device {
	return d.set(func() { d.delayOnce = append(d.delayOnce, t) })
}

// Malform answers wrongly until WellFormed is set.
func (d *Device) Malform(m Malformation) *Device { return d.set(func() { d.malformed = m }) }

// Mutate passes every frame through f before it is sent; nil ends it. f runs under the device's lock.
func (d *Device) Mutate(f func([]byte) []byte) *Device { return d.set(func() { d.mutate = f }) }

// count reads one number under the lock.
func (d *Device) count(n func() int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return n()
}

// Accepted is how many TCP connections were accepted in all, those beyond MaxClients included.
func (d *Device) Accepted() int { return d.count(func() int { return d.accepted }) }

// Open is how many TCP connections are open now.
func (d *Device) Open() int { return d.count(func() int { return len(d.conns) }) }

// Requests is how many frames were received in all.
func (d *Device) Requests() int { return d.count(func() int { return d.requests }) }

// Services returns the services of the connected requests since the last call.
func (d *Device) Services() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.messages
	d.messages = nil
	return all
}

// Sessions is how many sessions are registered now.
func (d *Device) Sessions() int { return d.count(func() int { return len(d.sessions) }) }

// Connections is how many CIP connections are open now.
func (d *Device) Connections() int {
	return d.count(func() int {
		d.expire()
		return len(d.cip)
	})
}

// Opened is how many CIP connections were opened in all.
func (d *Device) Opened() int { return d.count(func() int { return d.opened }) }

// expire gives up the CIP connections whose TCP connection is gone for long enough. The lock is held.
func (d *Device) expire() {
	for id, c := range d.cip {
		if !c.expires.IsZero() && time.Now().After(c.expires) {
			delete(d.cip, id)
		}
	}
}

func (d *Device) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.accepted++
		full := d.maxClients > 0 && len(d.conns) >= d.maxClients
		stopped := d.listener != listener
		if full || stopped {
			d.mu.Unlock()
			_ = conn.Close()
			continue
		}
		d.conns[conn] = struct{}{}
		d.serving.Go(func() { d.serve(conn) })
		d.mu.Unlock()
	}
}

func (d *Device) serve(conn net.Conn) {
	defer d.hangUp(conn)
	for {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		data := make([]byte, binary.LittleEndian.Uint16(header[2:]))
		if _, err := io.ReadFull(conn, data); err != nil {
			return
		}
		reply, delay, end := d.handle(conn, header, data)
		time.Sleep(delay)
		if len(reply) > 0 {
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
		if end {
			return
		}
	}
}

// hangUp forgets a TCP connection, its session, and its CIP connections unless they linger.
func (d *Device) hangUp(conn net.Conn) {
	_ = conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, conn)
	for handle, c := range d.sessions {
		if c == conn {
			delete(d.sessions, handle)
		}
	}
	for id, c := range d.cip {
		switch {
		case c.conn != conn:
		case d.linger > 0:
			c.expires = time.Now().Add(d.linger)
		default:
			delete(d.cip, id)
		}
	}
}
