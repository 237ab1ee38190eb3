package opcua

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/gopcua/opcua/ua"
)

// errMalformed is the error of every reply that is not what OPC 10000-6 says it should be.
var errMalformed = errors.New("malformed reply")

// maxDepth bounds how deep variants, diagnostics and the like may be nested in one another: a stack that overflows
// ends the process, and no recover helps.
const maxDepth = 16

// maxElements bounds how many elements of arrays are kept of one message: an element of a byte takes 16 in memory, and no
// array that we look at is long. The others are read, since what follows them counts, and dropped.
const maxElements = 1 << 14

// decoder reads the binary encoding. Every length is checked against what is left before anything is allocated; after
// the first error all reads return zero values.
type decoder struct {
	b   []byte
	err error
	// elements is how many are kept.
	elements int
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errMalformed
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	raw := d.b[:n]
	d.b = d.b[n:]
	return raw
}

func (d *decoder) u8() byte {
	if raw := d.take(1); raw != nil {
		return raw[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if raw := d.take(2); raw != nil {
		return binary.LittleEndian.Uint16(raw)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if raw := d.take(4); raw != nil {
		return binary.LittleEndian.Uint32(raw)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if raw := d.take(8); raw != nil {
		return binary.LittleEndian.Uint64(raw)
	}
	return 0
}

func (d *decoder) f64() float64 { return math.Float64frombits(d.u64()) }

// bytes is a ByteString; null and empty are both nil. It aliases the message.
func (d *decoder) bytes() []byte {
	n := int32(d.u32())
	if n <= 0 {
		if n < -1 {
			d.fail()
		}
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.bytes()) }

// count is the length of an array whose elements take at least size bytes each.
func (d *decoder) count(size int) int {
	n := int32(d.u32())
	if n < -1 || int64(n)*int64(size) > int64(len(d.b)) {
		d.fail()
		return 0
	}
	return max(0, int(n))
}

// epoch is where DateTime begins, in 100 ns before 1970.
const epoch = 116444736000000000

func (d *decoder) time() time.Time {
	ticks := int64(d.u64())
	if ticks <= 0 || ticks == math.MaxInt64 {
		return time.Time{}
	}
	ticks -= epoch
	return time.Unix(ticks/1e7, ticks%1e7*100).UTC()
}

func (d *decoder) status() ua.StatusCode { return ua.StatusCode(d.u32()) }

// nodeID reads a NodeId; the flags are those of an ExpandedNodeId.
func (d *decoder) nodeID() (id nodeID, flags byte) {
	encoding := d.u8()
	id.kind = 'i'
	switch encoding & 0x3F {
	case 0:
		id.number = uint32(d.u8())
	case 1:
		id.namespace = uint16(d.u8())
		id.number = uint32(d.u16())
	case 2:
		id.namespace = d.u16()
		id.number = d.u32()
	case 3:
		id.kind = 's'
		id.namespace = d.u16()
		id.text = d.string()
	case 4:
		id.kind = 'g'
		id.namespace = d.u16()
		id.text = d.guid()
	case 5:
		id.kind = 'b'
		id.namespace = d.u16()
		id.text = d.string()
	default:
		d.fail()
	}
	return id, encoding & 0xC0
}

func (d *decoder) guid() string {
	raw := d.take(16)
	if raw == nil {
		return ""
	}
	ordered := []byte{raw[3], raw[2], raw[1], raw[0], raw[5], raw[4], raw[7], raw[6]}
	return guid(append(ordered, raw[8:]...))
}

// expandedNodeID reads an ExpandedNodeId; a node of another server, or one of a namespace given by URI, is not local.
func (d *decoder) expandedNodeID() (id nodeID, uri string, server uint32) {
	id, flags := d.nodeID()
	if flags&0x80 != 0 {
		uri = d.string()
	}
	if flags&0x40 != 0 {
		server = d.u32()
	}
	return id, uri, server
}

func (d *decoder) qualifiedName() (namespace uint16, name string) {
	namespace = d.u16()
	return namespace, d.string()
}

func (d *decoder) localizedText() string {
	mask := d.u8()
	if mask&1 != 0 {
		d.bytes()
	}
	if mask&2 != 0 {
		return d.string()
	}
	return ""
}

// extensionObject is a structure that is still encoded.
type extensionObject struct {
	encoding nodeID
	body     []byte
}

func (d *decoder) extensionObject() (x extensionObject) {
	x.encoding, _ = d.nodeID()
	if mask := d.u8(); mask != 0 {
		x.body = d.bytes()
	}
	return x
}

func (d *decoder) diagnosticInfo(depth int) {
	if depth > maxDepth {
		d.fail()
		return
	}
	mask := d.u8()
	for _, bit := range [...]byte{0x01, 0x02, 0x08, 0x04} {
		if mask&bit != 0 {
			d.u32()
		}
	}
	if mask&0x10 != 0 {
		d.bytes()
	}
	if mask&0x20 != 0 {
		d.u32()
	}
	if mask&0x40 != 0 {
		d.diagnosticInfo(depth + 1)
	}
}

// variant is a value with its built-in type; that of an array is a []any.
type variant struct {
	typeID ua.TypeID
	array  bool
	value  any
}

// builtinSizes is the least size of each built-in type's encoding.
var builtinSizes = [...]int{
	ua.TypeIDBoolean: 1, ua.TypeIDSByte: 1, ua.TypeIDByte: 1, ua.TypeIDInt16: 2, ua.TypeIDUint16: 2, ua.TypeIDInt32: 4, ua.TypeIDUint32: 4,
	ua.TypeIDInt64: 8, ua.TypeIDUint64: 8, ua.TypeIDFloat: 4, ua.TypeIDDouble: 8, ua.TypeIDString: 4, ua.TypeIDDateTime: 8,
	ua.TypeIDGUID: 16, ua.TypeIDByteString: 4, ua.TypeIDXMLElement: 4, ua.TypeIDNodeID: 2, ua.TypeIDExpandedNodeID: 2, ua.TypeIDStatusCode: 4,
	ua.TypeIDQualifiedName: 6, ua.TypeIDLocalizedText: 1, ua.TypeIDExtensionObject: 3, ua.TypeIDDataValue: 1, ua.TypeIDVariant: 1,
	ua.TypeIDDiagnosticInfo: 1,
}

func (d *decoder) variant(depth int) (v variant) {
	mask := d.u8()
	v.typeID = ua.TypeID(mask & 0x3F)
	if v.typeID == 0 || d.err != nil {
		return v
	}
	if int(v.typeID) >= len(builtinSizes) || depth > maxDepth {
		d.fail()
		return v
	}
	if mask&0x80 == 0 {
		v.value = d.builtin(v.typeID, depth)
		return v
	}
	v.array = true
	n := d.count(builtinSizes[v.typeID])
	// Grown as it is read: arrays nested in one another may each claim all that is left of the message.
	elements := make([]any, 0, min(n, 256))
	for range n {
		element := d.builtin(v.typeID, depth)
		if d.err != nil {
			return v
		}
		if d.elements++; d.elements <= maxElements {
			elements = append(elements, element)
		}
	}
	if mask&0x40 != 0 {
		for range d.count(4) {
			d.u32()
		}
	}
	v.value = elements
	return v
}

func (d *decoder) builtin(t ua.TypeID, depth int) any {
	switch t {
	case ua.TypeIDBoolean:
		return d.u8() != 0
	case ua.TypeIDSByte:
		return int8(d.u8())
	case ua.TypeIDByte:
		return d.u8()
	case ua.TypeIDInt16:
		return int16(d.u16())
	case ua.TypeIDUint16:
		return d.u16()
	case ua.TypeIDInt32:
		return int32(d.u32())
	case ua.TypeIDUint32:
		return d.u32()
	case ua.TypeIDInt64:
		return int64(d.u64())
	case ua.TypeIDUint64:
		return d.u64()
	case ua.TypeIDFloat:
		return math.Float32frombits(d.u32())
	case ua.TypeIDDouble:
		return d.f64()
	case ua.TypeIDString, ua.TypeIDXMLElement:
		return d.string()
	case ua.TypeIDDateTime:
		return d.time()
	case ua.TypeIDGUID:
		return d.guid()
	case ua.TypeIDByteString:
		return d.bytes()
	case ua.TypeIDNodeID:
		id, _ := d.nodeID()
		return id
	case ua.TypeIDExpandedNodeID:
		id, _, _ := d.expandedNodeID()
		return id
	case ua.TypeIDStatusCode:
		return d.status()
	case ua.TypeIDQualifiedName:
		_, name := d.qualifiedName()
		return name
	case ua.TypeIDLocalizedText:
		return d.localizedText()
	case ua.TypeIDExtensionObject:
		return d.extensionObject()
	case ua.TypeIDDataValue:
		return d.dataValue(depth + 1)
	case ua.TypeIDVariant:
		return d.variant(depth + 1)
	case ua.TypeIDDiagnosticInfo:
		d.diagnosticInfo(depth + 1)
	}
	return nil
}

// sample is a DataValue: a value with its quality and the time at its source.
type sample struct {
	variant
	status ua.StatusCode
	source time.Time
}

// severity is the quality: 0 Good, 1 Uncertain, 2 and 3 Bad. A code compared with Good would make Good-clamped bad.
func (s sample) severity() uint32 { return uint32(s.status) >> 30 }

func (s sample) bad() bool { return s.severity() >= 2 }

func (d *decoder) dataValue(depth int) (s sample) {
	if depth > maxDepth {
		d.fail()
		return s
	}
	mask := d.u8()
	if mask&0x01 != 0 {
		s.variant = d.variant(depth + 1)
	}
	if mask&0x02 != 0 {
		s.status = d.status()
	}
	if mask&0x04 != 0 {
		s.source = d.time()
	}
	if mask&0x10 != 0 {
		d.u16()
	}
	if mask&0x08 != 0 {
		d.time()
	}
	if mask&0x20 != 0 {
		d.u16()
	}
	return s
}

// response reads the type and header of a reply of type want. What the server answers instead is its status.
func (d *decoder) response(want uint32) error {
	id, _ := d.nodeID()
	d.time()
	d.u32()
	status := d.status()
	d.diagnosticInfo(0)
	for range d.count(4) {
		d.bytes()
	}
	d.extensionObject()
	switch {
	case d.err != nil:
		return d.err
	case uint32(status)>>30 >= 2:
		return status
	case id != numeric(want):
		return errMalformed
	}
	return nil
}
