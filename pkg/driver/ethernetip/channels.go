package ethernetip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/danomagnum/gologix"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// maxDiscovery is how long a discovery may take.
	maxDiscovery = 60 * time.Second
	// maxDepth is how deep structures may lie in one another; controllers allow fewer.
	maxDepth = 16
	// maxSteps bounds the walk through structures that have nothing to list.
	maxSteps = 50 * driver.MaxChannels
	// maxSymbols bounds the symbols of one scope, hidden ones included.
	maxSymbols = 1 << 18
	// maxDefinition bounds a structure's definition.
	maxDefinition = 1 << 19
	// maxDefinitions bounds all definitions of a walk together: they are kept until it ends, and take several times as much
	// in memory. A controller's own have less than 1 MiB.
	maxDefinitions = 8 << 20
)

// The attributes of symbols (1756-PM020, "Symbol object").
const (
	symbolName       = 1
	symbolType       = 2
	symbolDimensions = 8
	symbolAccess     = 10
)

// The bits of a symbol's or member's type.
const (
	typeStructure = 0x8000
	typeSystem    = 0x1000
	typeArray     = 0x6000
	typeTemplate  = 0x0FFF
	typeCode      = 0x00FF
)

// externalAccess maps a symbol's attribute 10; a symbol with any other cannot be read at all.
var externalAccess = map[byte]driver.Access{0: driver.AccessReadWrite, 2: driver.AccessRead}

// errEnough ends a walk that has found as many channels as it may.
var errEnough = errors.New("enough channels")

// Channels implements driver.Device: the declared channels first, then the tags of the controller and of its programs,
// structures taken apart into their members. A device without tags has the declared ones alone.
func (d *device) Channels(ctx context.Context, limit int) (driver.ChannelList, error) {
	ctx, cancel := context.WithTimeout(ctx, maxDiscovery)
	defer cancel()
	if limit <= 0 || limit > driver.MaxChannels {
		limit = driver.MaxChannels
	}
	w := &walk{device: d, ctx: ctx, limit: limit, declared: map[string]int{}, unsure: map[int]bool{}, templates: map[uint16]*template{}}
	for _, c := range d.declared {
		if len(w.list.Items) == limit {
			w.list.Truncated = true
			break
		}
		w.declared[strings.ToLower(c.Address)] = len(w.list.Items)
		w.unsure[len(w.list.Items)] = true
		w.list.Items = append(w.list.Items, driver.ChannelInfo{Name: c.Name, Address: c.Address, DataType: c.DataType, Declared: true})
	}
	if d.identityOnly {
		for i := range w.list.Items {
			w.list.Items[i].Problem, w.list.Items[i].Message = driver.ReasonNotSupported, identityAlone().Err.Error()
		}
		return w.list, nil
	}
	err := w.discover()
	if errors.Is(err, errEnough) {
		w.list.Truncated, err = true, nil
	}
	if err == nil {
		err = w.verify()
	}
	if err != nil {
		return driver.ChannelList{}, err
	}
	return w.list, nil
}

// walk is one discovery.
type walk struct {
	device *device
	ctx    context.Context
	limit  int
	list   driver.ChannelList
	// declared finds the declared channels by their address in lower case.
	declared map[string]int
	// unsure are the declared channels that must be read to tell whether the device has them as they are declared.
	unsure    map[int]bool
	templates map[uint16]*template
	// defined is how many bytes of definitions were read.
	defined int
	steps   int
}

// answered tells whether an error is the device's answer to what was asked.
func answered(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && e.Answered
}

// discover lists the controller's tags, then those of its programs.
func (w *walk) discover() error {
	symbols, err := w.symbols("")
	if answered(err) {
		// Drives and I/O adapters have no symbols.
		return nil
	}
	if err != nil {
		return err
	}
	var programs []string
	for _, s := range symbols {
		if name, ok := strings.CutPrefix(s.name, programPrefix); ok {
			if isName(name) && !strings.Contains(name, ":") {
				programs = append(programs, s.name)
			}
			continue
		}
		if err := w.tag(s.name, s); err != nil {
			return err
		}
	}
	for _, program := range programs {
		symbols, err := w.symbols(program)
		if answered(err) {
			w.list.Truncated = true
			continue
		}
		if err != nil {
			return err
		}
		for _, s := range symbols {
			if err := w.tag(program+"."+s.name, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify reads the declared channels that the device did not list, or lists with another type.
func (w *walk) verify() error {
	for i := range w.list.Items {
		c := &w.list.Items[i]
		if !w.unsure[i] {
			continue
		}
		address, err := parseAddress(c.Address)
		if err != nil {
			return err
		}
		r, err := w.device.read(w.ctx, address)
		if err == nil {
			if c.DeviceType == "" {
				c.DeviceType, c.Count = address.typeName(r), 1
			}
			_, err = address.value(r, c.DataType)
		}
		if e, ok := errors.AsType[*driver.Error](err); ok && e.Answered {
			c.Problem, c.Message = e.Reason, e.Err.Error()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// symbolInfo is one symbol as the device lists it.
type symbolInfo struct {
	name       string
	typ        uint16
	dimensions []uint32
	access     driver.Access
}

// hidden tells symbols that are none of the user's tags: the system's own, and those of modules, tasks and routines,
// whose names have colons. Names that nobody could write are hidden too: they would end up on terminals.
func (s symbolInfo) hidden() bool {
	if strings.HasPrefix(s.name, programPrefix) {
		return false
	}
	return s.typ&typeSystem != 0 || s.access == "" || hiddenName(s.name)
}

// hiddenName tells names of members and tags that are not the user's: the compiler's, and those of the bytes that hold
// a structure's BOOLs.
func hiddenName(name string) bool {
	return !isName(name) || len(name) > maxName || strings.HasPrefix(name, "__") || strings.HasPrefix(name, "ZZZZZZZZZZ") || strings.Contains(name, ":")
}

// symbols lists the symbols of a program, or of the controller, that are not hidden.
func (w *walk) symbols(program string) ([]symbolInfo, error) {
	attributes := []uint16{symbolName, symbolType, symbolDimensions, symbolAccess}
	symbols, err := w.symbolsWith(program, attributes)
	if answered(err) {
		// Controllers before version 18 know no external access.
		symbols, err = w.symbolsWith(program, attributes[:3])
	}
	return symbols, err
}

// symbolsWith lists symbols page by page. Every page must advance, or the listing would go on for ever.
func (w *walk) symbolsWith(program string, attributes []uint16) ([]symbolInfo, error) {
	var scope []byte
	if program != "" {
		scope = symbol(nil, program)
	}
	withAccess := len(attributes) == 4
	var symbols []symbolInfo
	seen := 0
	for next := uint32(0); ; {
		more := false
		err := w.device.endpoint.request(w.ctx, w.device, request{
			service: serviceListInstances,
			path:    append(scope[:len(scope):len(scope)], object(classSymbol, next)...),
			data:    uint16s(attributes...),
			parse: func(data []byte, partial bool) error {
				page, last, err := parseSymbols(data, withAccess)
				if err != nil {
					return err
				}
				if seen += len(page); seen > maxSymbols {
					return fmt.Errorf("%w: more than %d symbols", errMalformedReply, maxSymbols)
				}
				if more = partial; more && (len(page) == 0 || last < next || last == math.MaxUint32) {
					return fmt.Errorf("%w: a list of symbols that does not advance", errMalformedReply)
				}
				next = last + 1
				for _, s := range page {
					if !s.hidden() {
						symbols = append(symbols, s)
					}
				}
				return nil
			},
		})
		if err != nil || !more {
			return symbols, err
		}
	}
}

// parseSymbols reads one page of symbols: instance, name, type, three dimensions and, if asked for, external access.
// last is the highest instance.
func parseSymbols(data []byte, withAccess bool) (symbols []symbolInfo, last uint32, err error) {
	short := fmt.Errorf("%w: it ends within a symbol", errMalformedReply)
	tail := 14
	if withAccess {
		tail++
	}
	for len(data) > 0 {
		if len(data) < 6 {
			return nil, 0, short
		}
		last = max(last, binary.LittleEndian.Uint32(data))
		n := int(binary.LittleEndian.Uint16(data[4:]))
		if data = data[6:]; len(data) < n+tail {
			return nil, 0, short
		}
		s := symbolInfo{name: string(data[:n]), access: driver.AccessReadWrite}
		data = data[n:]
		s.typ = binary.LittleEndian.Uint16(data)
		for i := range int(s.typ&typeArray) >> 13 {
			s.dimensions = append(s.dimensions, binary.LittleEndian.Uint32(data[2+4*i:]))
		}
		if withAccess {
			s.access = externalAccess[data[14]]
		}
		symbols = append(symbols, s)
		data = data[tail:]
	}
	return symbols, last, nil
}

// tag lists a tag.
func (w *walk) tag(address string, s symbolInfo) error {
	return w.channel(address, s.typ, s.dimensions, s.access, 0)
}

// channel lists what lies at an address: one channel for a number, a text or an array of them, and one for each member
// of a structure.
func (w *walk) channel(address string, typ uint16, dimensions []uint32, access driver.Access, depth int) error {
	if w.steps++; w.steps > maxSteps {
		return errEnough
	}
	if w.ctx.Err() != nil {
		return driver.LinkError(w.ctx.Err(), "discovering the channels of %s", w.device.endpoint.address)
	}
	info := driver.ChannelInfo{Name: address, Address: address, Count: 1, Access: access}
	count := uint64(1)
	for _, n := range dimensions {
		count = min(count*uint64(n), math.MaxInt32)
	}
	if count == 0 || len(address) > maxPath {
		return nil
	}
	if len(dimensions) > 0 {
		info.Count, info.Address = int(count), address+index(dimensions, 0)
	}
	if typ&typeStructure == 0 {
		e, ok := elementaryOf(typ & typeCode)
		info.DataType, info.DeviceType = e.dataType, e.name
		if !ok {
			info.DeviceType = fmt.Sprintf("type 0x%02x", typ&typeCode)
		}
		return w.add(info)
	}

	t, err := w.template(typ & typeTemplate)
	if err != nil {
		return err
	}
	switch {
	case t == nil || depth >= maxDepth:
		info.DeviceType = fmt.Sprintf("structure %d", typ&typeTemplate)
		return w.add(info)
	case t.text:
		info.DataType, info.DeviceType = driver.String, t.name
		return w.add(info)
	case t.open:
		// A structure within itself has no end, and no device has one.
		return nil
	}
	t.open = true
	defer func() { t.open = false }()
	for i := range count {
		before := len(w.list.Items)
		element := address
		if len(dimensions) > 0 {
			element += index(dimensions, i)
		}
		for _, m := range t.members {
			if err := w.channel(element+"."+m.name, m.typ, m.dimensions, access, depth+1); err != nil {
				return err
			}
		}
		if len(w.list.Items) == before {
			// The other elements have nothing to list either.
			break
		}
	}
	return nil
}

// add lists a channel, or completes the declared one of the same address.
func (w *walk) add(c driver.ChannelInfo) error {
	for _, address := range []string{c.Address, c.Name} {
		if i, ok := w.declared[strings.ToLower(address)]; ok {
			declared := &w.list.Items[i]
			if declared.DeviceType == "" {
				declared.DeviceType, declared.Count, declared.Access = c.DeviceType, c.Count, c.Access
				if declared.DataType == "" {
					declared.DataType = c.DataType
				}
				w.unsure[i] = declared.DataType != c.DataType || c.DataType == ""
			}
			return nil
		}
	}
	if len(w.list.Items) >= w.limit {
		return errEnough
	}
	w.list.Items = append(w.list.Items, c)
	return nil
}

// index is the i-th element's index in brackets. No dimension is 0.
func index(dimensions []uint32, i uint64) string {
	text := "]"
	for d := len(dimensions) - 1; d >= 0; d-- {
		n := uint64(dimensions[d])
		text = strconv.FormatUint(i%n, 10) + text
		if i /= n; d > 0 {
			text = "," + text
		}
	}
	return "[" + text
}

// template is a structure's definition (1756-PM020, "Template object").
type template struct {
	name    string
	members []memberInfo
	// text: it is laid out as a STRING.
	text bool
	// open: the walk is inside of it.
	open bool
}

// memberInfo is one member that is not hidden.
type memberInfo struct {
	name       string
	typ        uint16
	dimensions []uint32
}

// template reads a structure's definition, once in a walk; nil when the device does not tell it.
func (w *walk) template(id uint16) (*template, error) {
	if t, ok := w.templates[id]; ok {
		return t, nil
	}
	t, err := w.readTemplate(id)
	if answered(err) {
		t, err = nil, nil
	}
	if err == nil {
		w.templates[id] = t
	}
	return t, err
}

// templateSize is what the attributes of a template say: how long its definition is, and how many members it has.
type templateSize struct {
	bytes   int
	members int
}

func (w *walk) readTemplate(id uint16) (*template, error) {
	path := object(classTemplate, uint32(id))
	var size templateSize
	err := w.device.endpoint.request(w.ctx, w.device, request{
		service: serviceGetAttributeList,
		path:    path,
		data:    uint16s(templateWords, templateMembers),
		parse: func(data []byte, _ bool) (err error) {
			size, err = parseTemplateSize(data)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	if w.defined += size.bytes; w.defined > maxDefinitions {
		w.list.Truncated = true
		return nil, nil
	}
	var definition []byte
	for more := true; more; {
		part := binary.LittleEndian.AppendUint32(nil, uint32(len(definition)))
		part = binary.LittleEndian.AppendUint16(part, uint16(min(size.bytes-len(definition), math.MaxUint16)))
		err := w.device.endpoint.request(w.ctx, w.device, request{
			service: serviceReadTemplate,
			path:    path,
			data:    part,
			parse: func(data []byte, partial bool) error {
				if len(data) == 0 || len(definition)+len(data) > size.bytes {
					return fmt.Errorf("%w: a part of a definition with %d bytes", errMalformedReply, len(data))
				}
				definition = append(definition, data...)
				more = len(definition) < size.bytes
				// Devices that do not say that there is more have no more.
				more = more && (partial || size.bytes > math.MaxUint16)
				return nil
			},
		})
		if err != nil {
			return nil, err
		}
	}
	t, err := parseTemplate(definition, size.members)
	if err != nil {
		return nil, &driver.Error{Reason: driver.ReasonProtocolError, Err: err}
	}
	return t, nil
}

// The attributes of templates.
const (
	templateMembers = 2
	templateWords   = 4
)

// parseTemplateSize reads the attributes templateWords and templateMembers.
func parseTemplateSize(data []byte) (templateSize, error) {
	// A count, then number, status and value of each.
	if len(data) < 16 || binary.LittleEndian.Uint16(data) != 2 ||
		binary.LittleEndian.Uint16(data[2:]) != templateWords || binary.LittleEndian.Uint16(data[10:]) != templateMembers ||
		binary.LittleEndian.Uint16(data[4:]) != 0 || binary.LittleEndian.Uint16(data[12:]) != 0 {
		return templateSize{}, fmt.Errorf("%w: no attributes of a structure", errMalformedReply)
	}
	// The definition is told in words of four bytes, 23 bytes too long.
	words := uint64(binary.LittleEndian.Uint32(data[6:]))
	members := int(binary.LittleEndian.Uint16(data[14:]))
	if 4*words > maxDefinition || 4*words < 23+8*uint64(members)+1 {
		return templateSize{}, fmt.Errorf("%w: a structure of %d words with %d members", errMalformedReply, words, members)
	}
	return templateSize{bytes: int(4*words) - 23, members: members}, nil
}

// parseTemplate reads a definition: for each member an information, a type and an offset, then the structure's name and
// the members', each ended by a zero byte.
func parseTemplate(data []byte, members int) (*template, error) {
	if len(data) < 8*members {
		return nil, fmt.Errorf("%w: it ends within a structure", errMalformedReply)
	}
	names := strings.Split(string(data[8*members:]), "\x00")
	if len(names) < members+1 {
		return nil, fmt.Errorf("%w: a structure with too few names", errMalformedReply)
	}
	// Behind the structure's name come hints for the programming tool.
	name, _, _ := strings.Cut(names[0], ";")
	t := &template{name: printable([]byte(name), maxNameplate)}
	for i := range members {
		m := memberInfo{name: names[i+1], typ: binary.LittleEndian.Uint16(data[8*i+2:])}
		if hiddenName(m.name) {
			continue
		}
		if n := uint32(binary.LittleEndian.Uint16(data[8*i:])); m.typ&typeArray != 0 {
			m.dimensions = []uint32{n}
		}
		t.members = append(t.members, m)
	}
	t.text = members == 2 && len(t.members) == 2 && t.members[0].name == "LEN" && t.members[1].name == "DATA" &&
		t.members[0].typ == uint16(gologix.CIPTypeDINT) && t.members[1].typ == uint16(gologix.CIPTypeSINT)|0x2000
	return t, nil
}
