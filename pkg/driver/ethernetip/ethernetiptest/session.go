package ethernetiptest

import (
	"bytes"
	"encoding/binary"
	"net"
	"time"
)

const headerSize = 24

// Encapsulation commands and statuses.
const (
	nop               = 0x00
	listServices      = 0x04
	listIdentity      = 0x63
	listInterfaces    = 0x64
	registerSession   = 0x65
	unregisterSession = 0x66
	sendRRData        = 0x6F
	sendUnitData      = 0x70

	statusUnsupported    = 0x01
	statusNoMemory       = 0x02
	statusIncorrectData  = 0x03
	statusInvalidSession = 0x64
	statusBadRevision    = 0x69
)

// Items of the common packet format.
const (
	itemNull        = 0x00
	itemIdentity    = 0x0C
	itemConnection  = 0xA1
	itemConnected   = 0xB1
	itemUnconnected = 0xB2
	itemServices    = 0x100
)

// unconnectedSize is how much an unconnected reply holds.
const unconnectedSize = 504

func u16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }
func u32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }

// item is one item of the common packet format.
func item(id uint16, data []byte) []byte {
	return append(u16(u16(nil, id), uint16(len(data))), data...)
}

// handle is one frame and its reply; an empty reply is silence, and end closes the connection.
func (d *Device) handle(conn net.Conn, header, data []byte) (reply []byte, delay time.Duration, end bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	if d.blackhole {
		return nil, 0, false
	}
	delay = d.delay
	if len(d.delayOnce) > 0 {
		delay, d.delayOnce = d.delayOnce[0], d.delayOnce[1:]
	}

	command := binary.LittleEndian.Uint16(header)
	session := binary.LittleEndian.Uint32(header[4:])
	status := uint32(0)
	var answer []byte
	switch command {
	case nop:
		return nil, 0, false
	case listServices:
		service := append(u16(u16(nil, 1), 0x0120), "Communications\x00\x00"...)
		answer = append(u16(nil, 1), item(itemServices, service)...)
	case listIdentity:
		answer = append(u16(nil, 1), item(itemIdentity, d.identityItem())...)
	case listInterfaces:
		answer = u16(nil, 0)
	case registerSession:
		switch {
		case len(data) != 4:
			status = statusIncorrectData
		case binary.LittleEndian.Uint16(data) != 1:
			status = statusBadRevision
		case d.maxSessions > 0 && len(d.sessions) >= d.maxSessions:
			status = statusNoMemory
		default:
			d.nextSession++
			session = d.nextSession
			d.sessions[session] = conn
			answer = data
		}
	case unregisterSession:
		return nil, 0, true
	case sendRRData, sendUnitData:
		if d.sessions[session] != conn {
			status = statusInvalidSession
			break
		}
		var silent bool
		answer, status, silent = d.packet(conn, command, data)
		if silent {
			return nil, 0, false
		}
	default:
		status = statusUnsupported
	}

	reply = u16(u16(nil, command), uint16(len(answer)))
	reply = u32(u32(reply, session), status)
	reply = append(append(reply, header[12:]...), answer...)
	if d.mutate != nil {
		return d.mutate(reply), delay, false
	}
	return spoil(reply, d.malformed), delay, false
}

// packet answers a common packet: an interface handle, a timeout, an address item and a data item.
func (d *Device) packet(conn net.Conn, command uint16, data []byte) (reply []byte, status uint32, silent bool) {
	if len(data) < 8 || binary.LittleEndian.Uint16(data[6:]) != 2 {
		return nil, statusIncorrectData, false
	}
	var ids [2]uint16
	var items [2][]byte
	rest := data[8:]
	for i := range items {
		if len(rest) < 4 || len(rest) < 4+int(binary.LittleEndian.Uint16(rest[2:])) {
			return nil, statusIncorrectData, false
		}
		n := int(binary.LittleEndian.Uint16(rest[2:]))
		ids[i], items[i], rest = binary.LittleEndian.Uint16(rest), rest[4:4+n], rest[4+n:]
	}

	reply = u16(make([]byte, 6), 2)
	switch {
	case command == sendRRData && ids[0] == itemNull && ids[1] == itemUnconnected:
		answer := d.unconnected(conn, items[1])
		return append(append(reply, item(itemNull, nil)...), item(itemUnconnected, answer)...), 0, false
	case command == sendUnitData && ids[0] == itemConnection && ids[1] == itemConnected && len(items[0]) == 4 && len(items[1]) > 2:
		c := d.cip[binary.LittleEndian.Uint32(items[0])]
		if c == nil || c.conn != conn || d.deaf || len(items[1]) > c.size {
			return nil, 0, true
		}
		d.messages = append(d.messages, items[1][2])
		answer := append(bytes.Clone(items[1][:2]), d.answer(items[1][2:], c.size-2)...)
		return append(append(reply, item(itemConnection, u32(nil, c.originatorID))...), item(itemConnected, answer)...), 0, false
	default:
		return nil, statusIncorrectData, false
	}
}

// unconnected answers an unconnected request: one to the connection manager, or to an object of the module itself.
func (d *Device) unconnected(conn net.Conn, request []byte) []byte {
	service, path, data, ok := parseRequest(request)
	if !ok {
		return cipReply(0, failure{general: 0x26}, nil)
	}
	if !bytes.Equal(path, []byte{0x20, 0x06, 0x24, 0x01}) {
		if len(d.route) > 0 && !bytes.HasPrefix(path, []byte{0x20, 0x01}) {
			// The tags are in the CPU, and this is the module before it.
			return cipReply(service, failure{general: 0x05}, nil)
		}
		return d.answer(request, unconnectedSize)
	}
	switch service {
	case 0x54, 0x5B:
		return d.forwardOpen(conn, service, data)
	case 0x4E:
		return d.forwardClose(conn, service, data)
	case 0x52:
		return d.unconnectedSend(service, data)
	default:
		return cipReply(service, failure{general: 0x08}, nil)
	}
}

func (d *Device) forwardOpen(conn net.Conn, service byte, data []byte) []byte {
	fixed, width := 36, 2
	if service == 0x5B {
		fixed, width = 40, 4
	}
	if f := d.refuseOpen; f != nil {
		return cipReply(service, *f, nil)
	}
	if service == 0x5B && d.refuseLarge {
		return cipReply(service, failure{general: 0x08}, nil)
	}
	if len(data) < fixed || len(data) != fixed+2*int(data[fixed-1]) {
		return cipReply(service, failure{general: 0x13}, nil)
	}
	if refused, wrong := d.checkRoute(data[fixed:]); wrong {
		return cipReply(service, refused, nil)
	}
	d.expire()
	if d.maxConnections > 0 && len(d.cip) >= d.maxConnections {
		return cipReply(service, failure{0x01, []uint16{0x0113}}, nil)
	}
	c := &connection{
		conn:             conn,
		originatorID:     binary.LittleEndian.Uint32(data[6:]),
		serial:           binary.LittleEndian.Uint16(data[10:]),
		vendor:           binary.LittleEndian.Uint16(data[12:]),
		originatorSerial: binary.LittleEndian.Uint32(data[14:]),
	}
	// Target to originator parameters stand before the transport class and the path's size.
	parameters := data[fixed-2-width:]
	if c.size = int(binary.LittleEndian.Uint16(parameters)); width == 2 {
		c.size &= 0x1FF
	}
	for _, other := range d.cip {
		if other.serial == c.serial && other.vendor == c.vendor && other.originatorSerial == c.originatorSerial {
			return cipReply(service, failure{0x01, []uint16{0x0100}}, nil)
		}
	}
	d.nextCIP++
	d.opened++
	d.cip[d.nextCIP] = c
	reply := u32(u32(nil, d.nextCIP), c.originatorID)
	reply = append(reply, data[10:18]...)
	reply = append(reply, data[22:26]...)
	reply = append(reply, data[22:26]...)
	return cipReply(service, failure{}, append(reply, 0, 0))
}

func (d *Device) forwardClose(conn net.Conn, service byte, data []byte) []byte {
	if len(data) < 12 {
		return cipReply(service, failure{general: 0x13}, nil)
	}
	for id, c := range d.cip {
		if c.conn == conn && c.serial == binary.LittleEndian.Uint16(data[2:]) && c.originatorSerial == binary.LittleEndian.Uint32(data[6:]) {
			delete(d.cip, id)
			return cipReply(service, failure{}, append(bytes.Clone(data[2:10]), 0, 0))
		}
	}
	return cipReply(service, failure{0x01, []uint16{0x0107}}, nil)
}

func (d *Device) unconnectedSend(service byte, data []byte) []byte {
	if len(data) < 4 {
		return cipReply(service, failure{general: 0x13}, nil)
	}
	n := int(binary.LittleEndian.Uint16(data[2:]))
	padded := n + n%2
	if len(data) < 4+padded+2 {
		return cipReply(service, failure{general: 0x13}, nil)
	}
	if refused, wrong := d.checkRoute(append(bytes.Clone(data[4+padded+2:]), 0x20, 0x02, 0x24, 0x01)); wrong {
		return cipReply(service, refused, nil)
	}
	return d.answer(data[4:4+n], unconnectedSize)
}

// checkRoute refuses every other connection path than the route to the CPU's message router.
func (d *Device) checkRoute(path []byte) (failure, bool) {
	if bytes.Equal(path, append(bytes.Clone(d.route), 0x20, 0x02, 0x24, 0x01)) {
		return failure{}, false
	}
	if len(d.route) > 0 && len(path) > 0 && path[0] == d.route[0] {
		return failure{0x01, []uint16{0x0312}}, true
	}
	return failure{0x01, []uint16{0x0311}}, true
}

// spoil makes a well-formed frame into another.
func spoil(frame []byte, m Malformation) []byte {
	cip := headerSize + 8 + 4 + 4 // the CIP reply of an unconnected message: CPF with a null item
	if len(frame) > headerSize+8 && frame[0] == sendUnitData {
		cip += 4 + 2
	}
	switch m {
	case WrongCommand:
		frame[0] ^= 0x01
	case WrongContext:
		frame[12]++
		if frame[0] == sendUnitData {
			frame[cip-2]++
		}
	case WrongService:
		if len(frame) > cip {
			frame[cip]++
		}
	case NoItems:
		if len(frame) >= headerSize+8 {
			frame = frame[:headerSize+8]
			frame[headerSize+6] = 0
			binary.LittleEndian.PutUint16(frame[2:], 8)
		}
	case HugeItem:
		if len(frame) > cip {
			at := cip - 2
			if frame[0] == sendUnitData {
				at -= 2
			}
			frame[at], frame[at+1] = 0xFF, 0xFF
		}
	case HugeLength:
		binary.LittleEndian.PutUint16(frame[2:], 0xFFFF)
	case HalfFrame:
		frame = frame[:len(frame)/2]
	case Truncated:
		if len(frame) > cip+5 {
			frame = truncate(frame, cip)
		}
	case Noise:
		frame = []byte("HTTP/1.1 400 Bad Request\r\n\r\n")
	}
	return frame
}

// truncate takes the last byte of the CIP data away and corrects all lengths.
func truncate(frame []byte, cip int) []byte {
	frame = frame[:len(frame)-1]
	length := cip - 2
	if frame[0] == sendUnitData {
		length -= 2
	}
	for _, at := range []int{2, length} {
		binary.LittleEndian.PutUint16(frame[at:], binary.LittleEndian.Uint16(frame[at:])-1)
	}
	return frame
}
