package ethernetip

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/danomagnum/gologix"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

const (
	// wholeAttribute is the offset of a value that is all of its attribute.
	wholeAttribute = -1
	// maxAttribute is how long an attribute can be: what a reply over a large connection holds.
	maxAttribute = largeSize
)

// parseAttribute reads an attribute's address: class/instance/attribute, in decimal or with 0x, then [n] for a value that begins at
// byte n, and .b for a bit. Devices that are no Logix controllers have their values there, an assembly's bytes in 4/INSTANCE/3.
func parseAttribute(text string) (tagAddress, error) {
	wrong := driver.ConfigurationError("address %q: write class/instance/attribute, for example 4/100/3, then [6] for a value that begins at byte 6, and .2 for bit 2", text)
	address := tagAddress{bit: noBit, attribute: true, offset: wholeAttribute}
	rest := text
	if before, bit, ok := strings.Cut(rest, "."); ok {
		n, err := strconv.ParseUint(bit, 10, 8)
		if err != nil || n > 63 {
			return tagAddress{}, wrong
		}
		rest, address.bit = before, int(n)
	}
	if before, offset, ok := strings.Cut(rest, "["); ok {
		offset, closed := strings.CutSuffix(offset, "]")
		n, err := strconv.ParseUint(offset, 10, 16)
		if err != nil || !closed || n >= maxAttribute {
			return tagAddress{}, wrong
		}
		rest, address.offset = before, int(n)
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return tagAddress{}, wrong
	}
	for i, segment := range [...]byte{segmentClass, segmentInstance, segmentAttribute} {
		digits, base := parts[i], 10
		if after, ok := strings.CutPrefix(digits, "0x"); ok {
			digits, base = after, 16
		}
		n, err := strconv.ParseUint(digits, base, 16)
		if err != nil {
			return tagAddress{}, wrong
		}
		address.path = logical(address.path, segment, uint32(n))
	}
	return address, nil
}

// attributeTypes are the types as which an attribute's bytes are read, for the device does not tell.
var attributeTypes = map[driver.DataType]gologix.CIPType{
	driver.Bool: gologix.CIPTypeBOOL, driver.Int16: gologix.CIPTypeINT, driver.Uint16: gologix.CIPTypeUINT,
	driver.Int32: gologix.CIPTypeDINT, driver.Uint32: gologix.CIPTypeUDINT, driver.Int64: gologix.CIPTypeLINT, driver.Uint64: gologix.CIPTypeULINT,
	driver.Float32: gologix.CIPTypeREAL, driver.Float64: gologix.CIPTypeLREAL, driver.String: codeShortString,
}

// narrowTypes are those of one byte, which are ours of two.
var narrowTypes = map[driver.DataType]gologix.CIPType{driver.Int16: gologix.CIPTypeSINT, driver.Uint16: gologix.CIPTypeUSINT}

// value is what the address names in what was read there.
func (a tagAddress) value(r reading, t driver.DataType) (any, error) {
	if !a.attribute || r.code != 0 {
		return r.value(t, a.bit)
	}
	r, err := a.within(r, t)
	if err != nil {
		return nil, err
	}
	if a.bit != noBit {
		return r.value(t, a.bit%8)
	}
	return r.value(t, noBit)
}

// typeName is the device's word for the type; of an attribute it has none.
func (a tagAddress) typeName(r reading) string {
	if a.attribute {
		return fmt.Sprintf("%d bytes", len(r.data))
	}
	return r.typeName()
}

// within is the value of a type in an attribute's bytes, as if a tag had been read.
func (a tagAddress) within(r reading, t driver.DataType) (reading, error) {
	if !a.attribute {
		return r, nil
	}
	refuse := func(format string, args ...any) (reading, error) {
		return reading{}, &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: fmt.Errorf(format, args...)}
	}
	offset := max(a.offset, 0)
	if a.bit != noBit {
		if offset += a.bit / 8; offset >= len(r.data) {
			return refuse("the attribute has %d bytes, and no bit %d", len(r.data), a.bit)
		}
		return reading{code: uint16(gologix.CIPTypeBYTE), data: r.data[offset : offset+1]}, nil
	}
	code, ok := attributeTypes[t]
	if !ok {
		return refuse("a device does not tell what type an attribute has: it must be declared")
	}
	if a.offset == wholeAttribute && len(r.data) == 1 && narrowTypes[t] != 0 {
		code = narrowTypes[t]
	}
	if offset > len(r.data) {
		return refuse("the attribute has %d bytes, and none at %d", len(r.data), offset)
	}
	data := r.data[offset:]
	if t == driver.String {
		if len(data) == 0 || len(data) < 1+int(data[0]) {
			return refuse("the attribute holds no text with its length before it")
		}
		return reading{code: uint16(code), data: data[:1+int(data[0])]}, nil
	}
	e, _ := elementaryOf(uint16(code))
	switch {
	case a.offset == wholeAttribute && len(data) != e.size:
		return refuse("the attribute has %d bytes, and a %s has %d; write %s where it begins", len(r.data), t, e.size, "[n]")
	case len(data) < e.size:
		return refuse("the attribute has %d bytes, too few for a %s at %d", len(r.data), t, offset)
	}
	return reading{code: uint16(code), data: data[:e.size]}, nil
}
