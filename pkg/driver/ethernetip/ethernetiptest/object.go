package ethernetiptest

import (
	"encoding/binary"
	"math"
)

// parseRequest splits a CIP request into service, path and data.
func parseRequest(request []byte) (service byte, path, data []byte, ok bool) {
	if len(request) < 2 || len(request) < 2+2*int(request[1]) {
		return 0, nil, nil, false
	}
	n := 2 * int(request[1])
	return request[0], request[2 : 2+n], request[2+n:], true
}

// cipReply is a CIP reply.
func cipReply(service byte, f failure, data []byte) []byte {
	reply := []byte{service | 0x80, 0, f.general, byte(len(f.extended))}
	for _, e := range f.extended {
		reply = u16(reply, e)
	}
	return append(reply, data...)
}

// segment is one segment of a padded EPATH.
type segment struct {
	kind   byte // 'c'lass, 'i'nstance, 'a'ttribute, 'e'lement, 's'ymbol
	number uint32
	name   string
}

// parsePath reads a padded EPATH.
func parsePath(path []byte) (segments []segment, ok bool) {
	kinds := map[byte]byte{0x20: 'c', 0x24: 'i', 0x28: 'e', 0x30: 'a'}
	for len(path) > 0 {
		if path[0] == 0x91 {
			if len(path) < 2 {
				return nil, false
			}
			n := int(path[1])
			padded := 2 + n + n%2
			if n == 0 || len(path) < padded {
				return nil, false
			}
			segments = append(segments, segment{kind: 's', name: string(path[2 : 2+n])})
			path = path[padded:]
			continue
		}
		kind := kinds[path[0]&^0x03]
		size := map[byte]int{0: 2, 1: 4, 2: 6}[path[0]&0x03]
		if kind == 0 || size == 0 || len(path) < size {
			return nil, false
		}
		s := segment{kind: kind}
		switch size {
		case 2:
			s.number = uint32(path[1])
		case 4:
			s.number = uint32(binary.LittleEndian.Uint16(path[2:]))
		case 6:
			s.number = binary.LittleEndian.Uint32(path[2:])
		}
		segments = append(segments, s)
		path = path[size:]
	}
	return segments, true
}

// answer is the CPU's reply to a CIP request, of at most size bytes.
func (d *Device) answer(request []byte, size int) []byte {
	service, path, data, ok := parseRequest(request)
	if !ok {
		return cipReply(service, failure{general: 0x26}, nil)
	}
	if f, ok := d.failures[service]; ok {
		return cipReply(service, f, nil)
	}
	segments, ok := parsePath(path)
	if !ok || len(segments) == 0 {
		return cipReply(service, failure{general: 0x04}, nil)
	}
	// What a reply holds besides its four bytes of head.
	size -= 4
	var f failure
	first := segments[0]
	last := segments[len(segments)-1]
	switch {
	case service == 0x0A && first == segment{kind: 'c', number: 2}:
		return d.multiple(service, data, size)
	case len(segments) == 3 && last.kind == 'a' && d.attributes[[3]uint32{first.number, segments[1].number, last.number}] != nil:
		data, f = d.attributeService(service, [3]uint32{first.number, segments[1].number, last.number}, data)
	case first == segment{kind: 'c', number: 1}:
		data, f = d.identityObject(service, segments)
	case service == 0x55 && first == segment{kind: 'c', number: 0x68} && len(segments) == 2:
		data, f = d.listPrograms(last.number)
	case d.noSymbols:
		data, f = nil, failure{general: 0x05}
	case service == 0x55:
		data, f = d.listSymbols(segments, data, size)
	case first == segment{kind: 'c', number: 0x6C} && len(segments) == 2:
		data, f = d.templateObject(service, last.number, data, size)
	default:
		data, f = d.tagService(service, segments, data, size)
	}
	return cipReply(service, f, data)
}

// attributeService answers Get and Set Attribute Single.
func (d *Device) attributeService(service byte, at [3]uint32, data []byte) ([]byte, failure) {
	switch service {
	case 0x0E:
		return d.attributes[at], failure{}
	case 0x10:
		switch {
		case len(data) < len(d.attributes[at]):
			return nil, failure{general: 0x13}
		case len(data) > len(d.attributes[at]):
			return nil, failure{general: 0x15}
		}
		d.attributes[at] = append([]byte{}, data...)
		return nil, failure{}
	}
	return nil, failure{general: 0x08}
}

// multiple answers a multiple service packet.
func (d *Device) multiple(service byte, data []byte, size int) []byte {
	if len(data) < 2 {
		return cipReply(service, failure{general: 0x13}, nil)
	}
	n := int(binary.LittleEndian.Uint16(data))
	if len(data) < 2+2*n {
		return cipReply(service, failure{general: 0x13}, nil)
	}
	var f failure
	offsets, replies := u16(nil, uint16(n)), []byte(nil)
	for i := range n {
		from, to := int(binary.LittleEndian.Uint16(data[2+2*i:])), len(data)
		if i+1 < n {
			to = int(binary.LittleEndian.Uint16(data[4+2*i:]))
		}
		if from > to || to > len(data) {
			return cipReply(service, failure{general: 0x20}, nil)
		}
		// What is left when the offsets and the heads of those to come are there.
		room := size - 2 - 2*n - len(replies) - 4*(n-1-i)
		reply := d.answer(data[from:to], room)
		if len(reply) > room {
			reply = cipReply(data[from], failure{general: 0x11}, nil)
		}
		if reply[2] != 0 {
			f.general = 0x1E
		}
		offsets = u16(offsets, uint16(2+2*n+len(replies)))
		replies = append(replies, reply...)
	}
	return cipReply(service, f, append(offsets, replies...))
}

// attributes are those of the Identity object, 1 to 7.
func (id Identity) attributes() [][]byte {
	return [][]byte{
		u16(nil, id.Vendor),
		u16(nil, id.DeviceType),
		u16(nil, id.ProductCode),
		{id.Major, id.Minor},
		u16(nil, id.Status),
		u32(nil, id.Serial),
		append([]byte{byte(min(len(id.Name), math.MaxUint8))}, id.Name...),
	}
}

// identityItem is the item of a ListIdentity reply.
func (d *Device) identityItem() []byte {
	data := u16(nil, 1)
	// The socket address is big-endian, and nobody should believe it.
	data = append(data, 0, 2, 0xAF, 0x12, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	for _, a := range d.identity.attributes() {
		data = append(data, a...)
	}
	return append(data, 3)
}

func (d *Device) identityObject(service byte, segments []segment) ([]byte, failure) {
	if len(segments) < 2 || segments[1] != (segment{kind: 'i', number: 1}) {
		return nil, failure{general: 0x05}
	}
	attributes := d.identity.attributes()
	switch {
	case service == 0x01:
		var all []byte
		for _, a := range attributes {
			all = append(all, a...)
		}
		return all, failure{}
	case service != 0x0E:
		return nil, failure{general: 0x08}
	case len(segments) != 3 || segments[2].kind != 'a' || segments[2].number < 1 || int(segments[2].number) > len(attributes):
		return nil, failure{general: 0x14}
	default:
		return attributes[segments[2].number-1], failure{}
	}
}

// listPrograms answers attribute 28 of the program objects.
func (d *Device) listPrograms(from uint32) (data []byte, f failure) {
	for i, name := range d.programs {
		if id := uint32(i + 1); id >= from {
			data = append(u32(u32(data, id), uint32(len(name))), name...)
		}
	}
	return data, failure{}
}

// listSymbols answers Get Instance Attribute List of the symbol objects of the controller or of a program.
func (d *Device) listSymbols(segments []segment, data []byte, size int) ([]byte, failure) {
	scope, segments := d.scopeOf(segments)
	if scope == nil || len(segments) != 2 || segments[0] != (segment{kind: 'c', number: 0x6B}) || segments[1].kind != 'i' {
		return nil, failure{general: 0x05}
	}
	if len(data) < 2 || len(data) != 2+2*int(binary.LittleEndian.Uint16(data)) {
		return nil, failure{general: 0x13}
	}
	from := segments[1].number
	if d.endless {
		from = 0
	}
	var reply []byte
	for _, t := range scope.tags {
		if t.instance < from {
			continue
		}
		entry := u32(nil, t.instance)
		for at := 2; at < len(data); at += 2 {
			switch attribute := binary.LittleEndian.Uint16(data[at:]); {
			case attribute == 1:
				entry = append(u16(entry, uint16(len(t.name))), t.name...)
			case attribute == 2:
				entry = u16(entry, t.symbolType())
			case attribute == 8:
				for i := range 3 {
					n := 0
					if i < len(t.dims) {
						n = t.dims[i]
					}
					entry = u32(entry, uint32(n))
				}
			case attribute == 10 && !d.oldFirmware:
				entry = append(entry, t.access)
			default:
				return nil, failure{general: 0x14}
			}
		}
		if len(reply)+len(entry) > size {
			return reply, failure{general: 0x06}
		}
		reply = append(reply, entry...)
	}
	if d.endless {
		return reply, failure{general: 0x06}
	}
	return reply, failure{}
}

// templateObject answers the attributes and the definition of a template.
func (d *Device) templateObject(service byte, instance uint32, data []byte, size int) ([]byte, failure) {
	t := d.templates[uint16(instance)]
	if t == nil || instance > math.MaxUint16 {
		return nil, failure{general: 0x05}
	}
	definition := t.definition()
	switch service {
	case 0x03:
		if len(data) < 2 || len(data) != 2+2*int(binary.LittleEndian.Uint16(data)) {
			return nil, failure{general: 0x13}
		}
		reply := u16(nil, binary.LittleEndian.Uint16(data))
		for at := 2; at < len(data); at += 2 {
			attribute := binary.LittleEndian.Uint16(data[at:])
			reply = u16(u16(reply, attribute), 0)
			switch attribute {
			case 1:
				reply = u16(reply, t.handle)
			case 2:
				reply = u16(reply, uint16(len(t.members)))
			case 4:
				// In 32-bit words, and 23 bytes more than what can be read.
				reply = u32(reply, uint32(len(definition)+23)/4)
			case 5:
				reply = u32(reply, uint32(t.size))
			default:
				return nil, failure{general: 0x0A}
			}
		}
		return reply, failure{}
	case 0x4C:
		if len(data) != 6 {
			return nil, failure{general: 0x13}
		}
		offset, n := int(binary.LittleEndian.Uint32(data)), int(binary.LittleEndian.Uint16(data[4:]))
		if offset > len(definition) {
			return nil, failure{0xFF, []uint16{0x2104}}
		}
		part := definition[offset:min(len(definition), offset+n)]
		if len(part) > size {
			return part[:size], failure{general: 0x06}
		}
		return part, failure{}
	default:
		return nil, failure{general: 0x08}
	}
}
