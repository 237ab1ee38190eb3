package ethernetiptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Type is a tag's type as the symbol object tells it, without dimensions: an elementary type's code, or a structure.
type Type uint16

// The elementary types, by their CIP codes, and the STRING structure.
const (
	BOOL   Type = 0xC1
	SINT   Type = 0xC2
	INT    Type = 0xC3
	DINT   Type = 0xC4
	LINT   Type = 0xC5
	USINT  Type = 0xC6
	UINT   Type = 0xC7
	UDINT  Type = 0xC8
	ULINT  Type = 0xC9
	REAL   Type = 0xCA
	LREAL  Type = 0xCB
	DWORD  Type = 0xD3
	STRING Type = 0x8FCE
)

// structure is the bit that tells a structure from an elementary type.
const structure = 0x8000

// Access is a tag's external access.
const (
	ReadWrite byte = 0
	ReadOnly  byte = 2
	NoAccess  byte = 3
)

// Member is one member of a structure; Count is 0 for a scalar.
type Member struct {
	Name  string
	Type  Type
	Count int
}

// template is a structure's definition.
type template struct {
	name    string
	handle  uint16
	size    int
	members []member
}

type member struct {
	Member
	offset int
	bit    int
}

// tag is one symbol with its value.
type tag struct {
	instance uint32
	name     string
	typ      Type
	dims     []int
	access   byte
	data     []byte
	system   bool
}

// scope is the controller's or a program's symbols.
type scope struct {
	tags   []*tag
	byName map[string]*tag
}

func newScope() *scope { return &scope{byName: map[string]*tag{}} }

func (d *Device) defineString() {
	t := &template{name: "STRING", handle: 0x0FCE, size: 88, members: []member{
		{Member: Member{Name: "LEN", Type: DINT}},
		{Member: Member{Name: "DATA", Type: SINT, Count: 82}, offset: 4},
	}}
	d.templates[0x0FCE] = t
}

// Define makes a structure of the members and returns its type. BOOLs share hidden bytes, as in a controller.
func (d *Device) Define(name string, members ...Member) Type {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := uint16(0x100 + len(d.templates))
	t := &template{name: name, handle: 0xA000 | id}
	bits := 8
	host := 0
	for _, m := range members {
		if m.Type == BOOL && m.Count == 0 {
			if bits == 8 {
				host, bits = t.size, 0
				t.members = append(t.members, member{Member: Member{Name: fmt.Sprintf("ZZZZZZZZZZ%s%d", name, len(t.members)), Type: SINT}, offset: host})
				t.size++
			}
			t.members = append(t.members, member{Member: m, offset: host, bit: bits})
			bits++
			continue
		}
		bits = 8
		align := d.sizeOf(m.Type)
		if m.Type&structure != 0 || m.Count > 0 || align > 4 {
			align = 4
		}
		t.size = (t.size + align - 1) / align * align
		t.members = append(t.members, member{Member: m, offset: t.size})
		t.size += d.sizeOf(m.Type) * max(1, m.Count)
	}
	t.size = (t.size + 3) / 4 * 4
	d.templates[id] = t
	return structure | Type(id)
}

// DefineRecursive makes a structure that claims to contain itself, which no controller has.
func (d *Device) DefineRecursive(name string) Type {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := uint16(0x100 + len(d.templates))
	typ := structure | Type(id)
	d.templates[id] = &template{name: name, handle: 0xB000 | id, size: 8, members: []member{
		{Member: Member{Name: "Value", Type: DINT}},
		{Member: Member{Name: "Self", Type: typ}, offset: 4},
	}}
	return typ
}

// sizeOf is the size of one element. The lock is held.
func (d *Device) sizeOf(t Type) int {
	if t&structure != 0 {
		return d.templates[uint16(t)&0x0FFF].size
	}
	switch t {
	case BOOL, SINT, USINT:
		return 1
	case INT, UINT:
		return 2
	case DINT, UDINT, REAL, DWORD:
		return 4
	default:
		return 8
	}
}

// Add adds a tag with zero values; "Program:Main.X" is X in the program Main, which is added with it.
func (d *Device) Add(name string, t Type, dims ...int) *Device {
	return d.add(name, t, dims, ReadWrite, false)
}

// AddWithAccess adds a tag whose external access is limited.
func (d *Device) AddWithAccess(name string, t Type, access byte, dims ...int) *Device {
	return d.add(name, t, dims, access, false)
}

// AddSystem adds a tag that the controller marks as its own.
func (d *Device) AddSystem(name string, t Type) *Device { return d.add(name, t, nil, ReadWrite, true) }

func (d *Device) add(name string, t Type, dims []int, access byte, system bool) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.scopes[""]
	if rest, ok := strings.CutPrefix(name, "Program:"); ok {
		program, local, _ := strings.Cut(rest, ".")
		name = local
		key := strings.ToLower(program)
		if d.scopes[key] == nil {
			d.scopes[key] = newScope()
			d.programs = append(d.programs, program)
			s.put(&tag{name: "Program:" + program, typ: 0x68, system: true})
		}
		s = d.scopes[key]
	}
	n := 1
	for _, dim := range dims {
		n *= dim
	}
	s.put(&tag{name: name, typ: t, dims: dims, access: access, system: system, data: make([]byte, n*d.sizeOf(t))})
	return d
}

// put gives a tag its instance, with gaps between them as in a controller.
func (s *scope) put(t *tag) {
	t.instance = 3
	if n := len(s.tags); n > 0 {
		t.instance = s.tags[n-1].instance + 2
	}
	s.tags = append(s.tags, t)
	s.byName[strings.ToLower(t.name)] = t
}

// symbolType is attribute 2 of the symbol.
func (t *tag) symbolType() uint16 {
	v := uint16(t.typ) | uint16(len(t.dims))<<13
	if t.system {
		v |= 0x1000
	}
	return v
}

// definition is the template as Read Template returns it, a multiple of four bytes plus one that the size formula needs.
func (t *template) definition() []byte {
	var data []byte
	for _, m := range t.members {
		info, typ := uint16(m.Count), uint16(m.Type)
		if m.Type == BOOL {
			info = uint16(m.bit)
		} else if m.Count > 0 {
			typ |= 0x2000
		}
		data = u32(u16(u16(data, info), typ), uint32(m.offset))
	}
	data = append(append(data, t.name...), ";nEBCEFEE\x00"...)
	for _, m := range t.members {
		data = append(append(data, m.Name...), 0)
	}
	for len(data)%4 != 1 {
		data = append(data, 0)
	}
	return data
}

// Set writes a value, of the Go type that the tag's type has, by the address that a client would use.
func (d *Device) Set(address string, value any) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.mustPlace(address)
	switch v := value.(type) {
	case bool:
		p.tag.data[p.offset] &^= 1 << p.bit
		if v {
			p.tag.data[p.offset] |= 1 << p.bit
		}
	case string:
		binary.LittleEndian.PutUint32(p.tag.data[p.offset:], uint32(len(v)))
		copy(p.tag.data[p.offset+4:p.offset+86], v)
	default:
		raw, err := binary.Append(nil, binary.LittleEndian, value)
		if err != nil || len(raw) > len(p.tag.data)-p.offset {
			panic(fmt.Sprintf("%s cannot hold %T: %v", address, value, err))
		}
		copy(p.tag.data[p.offset:], raw)
	}
	return d
}

// Bytes is the raw value of one element.
func (d *Device) Bytes(address string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.mustPlace(address)
	return bytes.Clone(p.tag.data[p.offset : p.offset+d.sizeOf(p.typ)])
}

// Bit is the value of a BOOL.
func (d *Device) Bit(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.mustPlace(address)
	return p.tag.data[p.offset]>>p.bit&1 == 1
}

// mustPlace finds a tag by its written address, such as Program:Main.Motors[2].Speed.
func (d *Device) mustPlace(address string) place {
	var segments []segment
	for i, part := range strings.Split(address, ".") {
		name, indices, _ := strings.Cut(part, "[")
		if i > 0 && strings.Trim(name, "0123456789") == "" {
			panic("the fixture knows no bits of numbers: " + address)
		}
		segments = append(segments, segment{kind: 's', name: name})
		for index := range strings.SplitSeq(strings.TrimSuffix(indices, "]"), ",") {
			if n, err := strconv.ParseUint(index, 10, 32); err == nil {
				segments = append(segments, segment{kind: 'e', number: uint32(n)})
			}
		}
	}
	p, f := d.place(segments)
	if f.general != 0 {
		panic(fmt.Sprintf("no tag %s: status 0x%02x", address, f.general))
	}
	return p
}

// place is where a value lies.
type place struct {
	tag    *tag
	typ    Type
	offset int
	bit    int
	count  int // elements from here to the end
}

// scopeOf takes the program off the front of a path.
func (d *Device) scopeOf(segments []segment) (*scope, []segment) {
	first := segments[0]
	if program, ok := strings.CutPrefix(strings.ToLower(first.name), "program:"); ok && first.kind == 's' {
		return d.scopes[program], segments[1:]
	}
	if (first == segment{kind: 'c', number: 0x68}) && len(segments) > 2 {
		if n := segments[1].number; segments[1].kind == 'i' && n >= 1 && int(n) <= len(d.programs) {
			return d.scopes[strings.ToLower(d.programs[n-1])], segments[2:]
		}
		return nil, nil
	}
	return d.scopes[""], segments
}

// place follows a path to a value.
func (d *Device) place(segments []segment) (place, failure) {
	s, segments := d.scopeOf(segments)
	unknown := failure{general: 0x05}
	if s == nil || len(segments) == 0 {
		return place{}, unknown
	}
	var t *tag
	switch first := segments[0]; {
	case first.kind == 's':
		t, segments = s.byName[strings.ToLower(first.name)], segments[1:]
	case first == segment{kind: 'c', number: 0x6B} && len(segments) > 1:
		for _, candidate := range s.tags {
			if candidate.instance == segments[1].number {
				t = candidate
			}
		}
		segments = segments[2:]
	}
	if t == nil || t.data == nil || t.access == NoAccess {
		return place{}, failure{general: 0x04}
	}
	p := place{tag: t, typ: t.typ, count: 1}
	dims := t.dims
	for _, n := range dims {
		p.count *= n
	}
	for {
		if len(dims) > 0 && len(segments) > 0 && segments[0].kind == 'e' {
			index, total := 0, 1
			for _, dim := range dims {
				if len(segments) == 0 || segments[0].kind != 'e' || int(segments[0].number) >= dim {
					return place{}, failure{0xFF, []uint16{0x2105}}
				}
				index = index*dim + int(segments[0].number)
				total *= dim
				segments = segments[1:]
			}
			p.offset += index * d.sizeOf(p.typ)
			p.count = total - index
		}
		if len(segments) == 0 {
			return p, failure{}
		}
		if segments[0].kind != 's' || p.typ&structure == 0 {
			return place{}, failure{general: 0x04}
		}
		found := false
		for _, m := range d.templates[uint16(p.typ)&0x0FFF].members {
			if strings.EqualFold(m.Name, segments[0].name) {
				p.offset, p.bit, p.typ, p.count, dims, found = p.offset+m.offset, m.bit, m.Type, max(1, m.Count), nil, true
				if m.Count > 0 {
					dims = []int{m.Count}
				}
				break
			}
		}
		if !found || p.offset+d.sizeOf(p.typ) > len(t.data) {
			return place{}, unknown
		}
		segments = segments[1:]
	}
}

// head is what stands before a value: its type, and for a structure its handle.
func (d *Device) head(t Type) []byte {
	if t&structure != 0 {
		return u16(u16(nil, 0x02A0), d.templates[uint16(t)&0x0FFF].handle)
	}
	return u16(nil, uint16(t))
}

// tagService answers the services of tags: read, write, both fragmented, and read-modify-write.
func (d *Device) tagService(service byte, segments []segment, data []byte, size int) ([]byte, failure) {
	p, f := d.place(segments)
	if f.general != 0 {
		return nil, f
	}
	head := d.head(p.typ)
	width := d.sizeOf(p.typ)
	switch service {
	case 0x4C, 0x52:
		if len(data) < 2 || service == 0x52 && len(data) != 6 {
			return nil, failure{general: 0x13}
		}
		n, offset := int(binary.LittleEndian.Uint16(data)), 0
		if service == 0x52 {
			offset = int(binary.LittleEndian.Uint32(data[2:]))
		}
		if n < 1 || n > p.count || offset > n*width {
			return nil, failure{0xFF, []uint16{0x2105}}
		}
		if p.typ == BOOL {
			return append(head, p.tag.data[p.offset]>>p.bit&1), failure{}
		}
		value := p.tag.data[p.offset+offset : p.offset+n*width]
		if room := max(0, size-len(head)); len(value) > room {
			return append(head, value[:room/width*width]...), failure{general: 0x06}
		}
		return append(head, value...), failure{}
	case 0x4D, 0x53:
		if p.tag.access == ReadOnly {
			return nil, failure{general: 0x0F}
		}
		if !bytes.HasPrefix(data, head) {
			return nil, failure{0xFF, []uint16{0x2107}}
		}
		data = data[len(head):]
		if len(data) < 2 || service == 0x53 && len(data) < 6 {
			return nil, failure{general: 0x13}
		}
		n, offset := int(binary.LittleEndian.Uint16(data)), 0
		data = data[2:]
		if service == 0x53 {
			offset = int(binary.LittleEndian.Uint32(data))
			data = data[4:]
		}
		if n < 1 || n > p.count || offset+len(data) > n*width || service == 0x4D && len(data) != n*width {
			return nil, failure{0xFF, []uint16{0x2105}}
		}
		if p.typ == BOOL {
			p.tag.data[p.offset] &^= 1 << p.bit
			if data[0] != 0 {
				p.tag.data[p.offset] |= 1 << p.bit
			}
			return nil, failure{}
		}
		copy(p.tag.data[p.offset+offset:], data)
		return nil, failure{}
	case 0x4E:
		if p.tag.access == ReadOnly {
			return nil, failure{general: 0x0F}
		}
		if len(data) < 2 || int(binary.LittleEndian.Uint16(data)) != width || len(data) != 2+2*width {
			return nil, failure{general: 0x03}
		}
		for i := range width {
			b := &p.tag.data[p.offset+i]
			*b = (*b | data[2+i]) & data[2+width+i]
		}
		return nil, failure{}
	default:
		return nil, failure{general: 0x08}
	}
}
