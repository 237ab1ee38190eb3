package ethernetip

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// replyBit in a service's code tells a reply from a request.
const replyBit = 0x80

// The services of CIP and of Logix controllers (1756-PM020) that the driver uses.
const (
	serviceGetAttributesAll   = 0x01
	serviceGetAttributeList   = 0x03
	serviceMultiple           = 0x0A
	serviceGetAttributeSingle = 0x0E
	serviceSetAttributeSingle = 0x10
	serviceReadTag            = 0x4C
	serviceReadTemplate       = 0x4C
	serviceWriteTag           = 0x4D
	serviceReadModifyWrite    = 0x4E
	serviceForwardClose       = 0x4E
	serviceForwardOpen        = 0x54
	serviceListInstances      = 0x55
	serviceLargeForwardOpen   = 0x5B
)

// The objects, by class.
const (
	classIdentity          = 0x01
	classMessageRouter     = 0x02
	classConnectionManager = 0x06
	classSymbol            = 0x6B
	classTemplate          = 0x6C
)

// The segments of an EPATH (CIP volume 1, appendix C).
const (
	segmentClass     = 0x20
	segmentInstance  = 0x24
	segmentElement   = 0x28
	segmentAttribute = 0x30
	segmentSymbol    = 0x91

	// width16 and width32 added to a logical segment say that its number has 16 or 32 bits, after a pad byte.
	width16 = 0x01
	width32 = 0x02
)

// messageRouter is the path of what every connection leads to.
const messageRouter = "\x20\x02\x24\x01"

// request is one CIP request.
type request struct {
	service byte
	path    []byte
	data    []byte
	// parse takes the reply's data, and whether there is more; its error, unless it is a *driver.Error, closes the
	// connection as any other malformed reply does.
	parse func(data []byte, partial bool) error
	// writes: it must not be sent twice.
	writes bool
}

// encode is the request as it is sent. The path has at most 255 words.
func (r request) encode() []byte {
	b := append([]byte{r.service, byte(len(r.path) / 2)}, r.path...)
	return append(b, r.data...)
}

// logical appends a logical segment.
func logical(path []byte, segment byte, n uint32) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(path, segment, byte(n))
	case n <= math.MaxUint16:
		return binary.LittleEndian.AppendUint16(append(path, segment|width16, 0), uint16(n))
	default:
		return binary.LittleEndian.AppendUint32(append(path, segment|width32, 0), n)
	}
}

// object is the path of an instance.
func object(class, instance uint32) []byte {
	return logical(logical(nil, segmentClass, class), segmentInstance, instance)
}

// symbol appends an extended symbol segment. The name has 1 to 255 bytes.
func symbol(path []byte, name string) []byte {
	path = append(append(path, segmentSymbol, byte(len(name))), name...)
	if len(name)%2 != 0 {
		path = append(path, 0)
	}
	return path
}

// uint16s is a list of numbers as requests carry it, with its length before it.
func uint16s(numbers ...uint16) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(numbers)))
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	return b
}

// noBit is the bit of an address that names no bit.
const noBit = -1

// tagAddress is a place in a Logix controller, or in an attribute of whatever object.
type tagAddress struct {
	path []byte
	// bit of the number at path, or noBit.
	bit int
	// attribute: it is an attribute's, whose value begins at offset; wholeAttribute is the offset of one that is all of it.
	attribute bool
	offset    int
}

const (
	// maxName is how long a part of an address may be; Logix allows 40 characters, and a program has its prefix.
	maxName = 128
	// maxDimensions is how many indices an array has at most.
	maxDimensions = 3
	// maxPath is how many bytes a request's path may have.
	maxPath = 2 * math.MaxUint8
)

// programPrefix begins the names of programs.
const programPrefix = "Program:"

// parseAddress reads a tag's address: Program:Main.Tag[2].Member, Local:1:I.Data.0, matrix[1,2,3]; or an attribute's: 4/100/3[6].
func parseAddress(text string) (tagAddress, error) {
	if strings.Contains(text, "/") {
		return parseAttribute(text)
	}
	address := tagAddress{bit: noBit}
	parts := strings.Split(text, ".")
	for i, part := range parts {
		if bit, err := strconv.ParseUint(part, 10, 8); err == nil && i > 0 && i == len(parts)-1 {
			if bit > 63 {
				return tagAddress{}, driver.ConfigurationError("address %q: no number has a bit %d", text, bit)
			}
			address.bit = int(bit)
			break
		}
		name, indices, array := strings.Cut(part, "[")
		if !isName(name) || len(name) > maxName {
			return tagAddress{}, driver.ConfigurationError("address %q: %q is no name of a tag or member; write, for example, Program:Main.Tag[2].Member", text, name)
		}
		address.path = symbol(address.path, name)
		if !array {
			continue
		}
		indices, closed := strings.CutSuffix(indices, "]")
		numbers := strings.Split(indices, ",")
		if !closed || len(numbers) > maxDimensions {
			return tagAddress{}, driver.ConfigurationError("address %q: an index is one to three numbers in brackets, for example [2] or [1,2]", text)
		}
		for _, number := range numbers {
			n, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				return tagAddress{}, driver.ConfigurationError("address %q: %q is no index", text, number)
			}
			address.path = logical(address.path, segmentElement, uint32(n))
		}
	}
	if len(address.path) > maxPath {
		return tagAddress{}, driver.ConfigurationError("address %q is too long", text)
	}
	return address, nil
}

// isName tells whether a text can be the name of a tag, member or program; names with colons are those of modules and
// programs.
func isName(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c == '_', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		case i > 0 && (c == ':' || c >= '0' && c <= '9'):
		default:
			return false
		}
	}
	return name != ""
}
