// Package modbustest is a Modbus TCP device in the test's own process, with faults on command. It shares no code with
// the driver, and it is also the simulated plant's device.
package modbustest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// What a device does with a request for a unit id that it does not have.
type AbsentUnit int

// Devices differ in this.
const (
	// StaySilent is what pymodbus does: the client runs into its timeout.
	StaySilent AbsentUnit = iota
	// AnswerTargetFailed is what gateways do: exception 0x0B.
	AnswerTargetFailed
)

// Malformation is a way to answer wrongly.
type Malformation int

// The malformed replies on offer.
const (
	WellFormed Malformation = iota
	// WrongUnit echoes another unit id.
	WrongUnit
	// WrongProtocol has a protocol id that is not zero.
	WrongProtocol
	// WrongFunction answers another function than was asked.
	WrongFunction
	// ShortCount carries fewer registers than were asked for.
	ShortCount
	// HugeLength announces more bytes than Modbus allows.
	HugeLength
	// HalfFrame sends the first half of a reply and then nothing.
	HalfFrame
	// Noise is not Modbus at all.
	Noise
)

// Device is a Modbus TCP server. All methods may be called at any time, from any goroutine.
type Device struct {
	mu       sync.Mutex
	address  string
	listener net.Listener
	conns    map[net.Conn]struct{}
	serving  sync.WaitGroup
	units    map[byte]*Unit

	absent     AbsentUnit
	blackhole  bool
	delay      time.Duration
	delayOnce  []time.Duration
	malformed  Malformation
	maxClients int
	accepted   int
	requests   int
}

// New returns a device for host:port, not yet started; with port 0 the first Start chooses one and keeps it.
func New(address string) *Device {
	return &Device{address: address, conns: map[net.Conn]struct{}{}, units: map[byte]*Unit{}}
}

// Start listens, the first time or again after Stop.
func (d *Device) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", d.address)
	// A program that this process is just starting holds all that was open for a moment, a port that was closed meanwhile too.
	for range 100 {
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		listener, err = net.Listen("tcp", d.address)
	}
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

// Blackhole accepts connections and never answers, on open connections neither; requests of that time are lost.
func (d *Device) Blackhole(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blackhole = on
}

// Delay delays every reply.
func (d *Device) Delay(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

// DelayNext delays the next reply only.
func (d *Device) DelayNext(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delayOnce = append(d.delayOnce, delay)
}

// Malform answers wrongly until WellFormed is set.
func (d *Device) Malform(m Malformation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.malformed = m
}

// MaxClients closes connections beyond n as soon as they are accepted; 0 is no limit.
func (d *Device) MaxClients(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maxClients = n
}

// Absent sets what happens to requests for other units than the device has.
func (d *Device) Absent(a AbsentUnit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.absent = a
}

// Accepted is how many connections were accepted in all, those beyond MaxClients included.
func (d *Device) Accepted() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accepted
}

// Open is how many connections are open now.
func (d *Device) Open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

// Requests is how many requests were received in all.
func (d *Device) Requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

// Unit returns the unit with the id, adding it if need be.
func (d *Device) Unit(id byte) *Unit {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.units[id]
	if u == nil {
		u = newUnit()
		d.units[id] = u
	}
	return u
}

// RemoveUnit takes a unit off the bus.
func (d *Device) RemoveUnit(id byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.units, id)
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
	defer func() {
		_ = conn.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.conns, conn)
	}()
	for {
		header := make([]byte, 7)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint16(header[4:]))
		if length < 2 || length > 254 {
			return
		}
		pdu := make([]byte, length-1)
		if _, err := io.ReadFull(conn, pdu); err != nil {
			return
		}
		reply := d.handle(header, pdu)
		if reply == nil {
			continue
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// handle is one request and its reply as a whole frame; nil for silence.
func (d *Device) handle(header, pdu []byte) []byte {
	d.mu.Lock()
	d.requests++
	if d.blackhole {
		d.mu.Unlock()
		return nil
	}
	delay := d.delay
	if len(d.delayOnce) > 0 {
		delay, d.delayOnce = d.delayOnce[0], d.delayOnce[1:]
	}
	unit := d.units[header[6]]
	absent, malformed := d.absent, d.malformed
	d.mu.Unlock()

	if delay > 0 {
		time.Sleep(delay)
	}
	var answer []byte
	switch {
	case unit != nil:
		answer = unit.answer(pdu)
	case absent == AnswerTargetFailed:
		answer = exception(pdu[0], 0x0B)
	}
	if answer == nil {
		return nil
	}
	return frame(header, answer, malformed)
}

// frame puts the header before a PDU, and spoils the whole as asked.
func frame(header, pdu []byte, m Malformation) []byte {
	if m == Noise {
		return []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	}
	if m == ShortCount && len(pdu) > 3 {
		pdu = append([]byte{pdu[0], pdu[1] - 2}, pdu[2:len(pdu)-2]...)
	} else if m == ShortCount && len(pdu) > 1 {
		pdu = pdu[:len(pdu)-1]
	}
	adu := append(append([]byte{}, header...), pdu...)
	binary.BigEndian.PutUint16(adu[4:], uint16(len(pdu)+1))
	switch m {
	case WrongUnit:
		adu[6]++
	case WrongProtocol:
		adu[3] = 1
	case WrongFunction:
		adu[7]++
	case HugeLength:
		binary.BigEndian.PutUint16(adu[4:], 0xFFFF)
	case HalfFrame:
		adu = adu[:len(adu)/2]
	}
	return adu
}
