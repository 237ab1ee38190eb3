package ethernetip

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"

	"github.com/danomagnum/gologix"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Codes that stand before a value where gologix's constants differ from the wire.
const (
	// codeStructure stands before a structure's handle.
	codeStructure = 0x02A0
	// handleString is the handle of the STRING that every Logix controller has.
	handleString = 0x0FCE
	// codeString and codeShortString are CIP's own texts, with a length of two bytes and of one.
	codeString      = 0xD0
	codeShortString = 0xDA
)

// kind is how the bits of a number are read.
type kind int

const (
	boolean kind = iota
	signed
	unsigned
	float
)

// elementary is one of CIP's elementary types. Those of eight bits are given in the smallest type of ours that holds them.
type elementary struct {
	name     string
	size     int
	kind     kind
	dataType driver.DataType
}

var elementaries = map[gologix.CIPType]elementary{
	gologix.CIPTypeBOOL:  {"BOOL", 1, boolean, driver.Bool},
	gologix.CIPTypeSINT:  {"SINT", 1, signed, driver.Int16},
	gologix.CIPTypeINT:   {"INT", 2, signed, driver.Int16},
	gologix.CIPTypeDINT:  {"DINT", 4, signed, driver.Int32},
	gologix.CIPTypeLINT:  {"LINT", 8, signed, driver.Int64},
	gologix.CIPTypeUSINT: {"USINT", 1, unsigned, driver.Uint16},
	gologix.CIPTypeUINT:  {"UINT", 2, unsigned, driver.Uint16},
	gologix.CIPTypeUDINT: {"UDINT", 4, unsigned, driver.Uint32},
	gologix.CIPTypeULINT: {"ULINT", 8, unsigned, driver.Uint64},
	gologix.CIPTypeREAL:  {"REAL", 4, float, driver.Float32},
	gologix.CIPTypeLREAL: {"LREAL", 8, float, driver.Float64},
	gologix.CIPTypeBYTE:  {"BYTE", 1, unsigned, driver.Uint16},
	gologix.CIPTypeWORD:  {"WORD", 2, unsigned, driver.Uint16},
	gologix.CIPTypeDWORD: {"DWORD", 4, unsigned, driver.Uint32},
	gologix.CIPTypeLWORD: {"LWORD", 8, unsigned, driver.Uint64},
}

// elementaryOf is the elementary type of a code.
func elementaryOf(code uint16) (elementary, bool) {
	if code > math.MaxUint8 {
		return elementary{}, false
	}
	e, ok := elementaries[gologix.CIPType(code)]
	return e, ok
}

// reading is one value as it came off the wire.
type reading struct {
	code   uint16
	handle uint16
	data   []byte
}

// parseReading reads the reply to Read Tag.
func parseReading(data []byte) (reading, error) {
	if len(data) < 2 {
		return reading{}, fmt.Errorf("%w: no type", errMalformedReply)
	}
	r := reading{code: binary.LittleEndian.Uint16(data), data: data[2:]}
	if r.code == codeStructure {
		if len(r.data) < 2 {
			return reading{}, fmt.Errorf("%w: no structure handle", errMalformedReply)
		}
		r.handle, r.data = binary.LittleEndian.Uint16(r.data), r.data[2:]
	}
	if e, ok := elementaryOf(r.code); ok && len(r.data) != e.size {
		return reading{}, fmt.Errorf("%w: %d bytes where a %s was to come", errMalformedReply, len(r.data), e.name)
	}
	if r.isText() {
		if _, err := r.text(); err != nil {
			return reading{}, err
		}
	}
	return r, nil
}

// head is what stands before the value in a write: the type, and a structure's handle.
func (r reading) head() []byte {
	b := binary.LittleEndian.AppendUint16(nil, r.code)
	if r.code == codeStructure {
		b = binary.LittleEndian.AppendUint16(b, r.handle)
	}
	return b
}

// typeName is the device's word for the type.
func (r reading) typeName() string {
	switch e, ok := elementaryOf(r.code); {
	case ok:
		return e.name
	case r.isText():
		return "STRING"
	case r.code == codeStructure:
		return "structure"
	default:
		return fmt.Sprintf("type 0x%02x", r.code)
	}
}

// isText tells whether it is one of the texts that CIP and Logix know.
func (r reading) isText() bool {
	return r.code == codeString || r.code == codeShortString || r.code == codeStructure && r.handle == handleString
}

// prefix is how many bytes a text's length takes. A structure that is declared a text is one of a user's own
// string types, which are all laid out as STRING is: LEN as a DINT, then DATA.
func (r reading) prefix() int {
	switch r.code {
	case codeShortString:
		return 1
	case codeString:
		return 2
	default:
		return 4
	}
}

// text is the value as text, with everything but printable characters left out.
func (r reading) text() (string, error) {
	prefix := r.prefix()
	if len(r.data) < prefix {
		return "", fmt.Errorf("%w: a text without its length", errMalformedReply)
	}
	var n uint64
	for i := prefix - 1; i >= 0; i-- {
		n = n<<8 | uint64(r.data[i])
	}
	rest := r.data[prefix:]
	if n > uint64(len(rest)) {
		return "", fmt.Errorf("%w: a text longer than its value", errMalformedReply)
	}
	return printable(rest[:n], int(n)), nil
}

// printable is a device's text of at most limit bytes with everything but printable ASCII left out: it is shown on terminals.
func printable(raw []byte, limit int) string {
	text := make([]byte, 0, min(len(raw), limit))
	for _, b := range raw {
		if b >= ' ' && b <= '~' && len(text) < limit {
			text = append(text, b)
		}
	}
	return string(text)
}

// mismatch is the error of a channel whose type the device does not have.
func (r reading) mismatch(t driver.DataType) *driver.Error {
	return &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: fmt.Errorf("the tag is a %s, which is no %s", r.typeName(), t)}
}

// value is the reading as t, or as its own type when t is empty. Only what keeps the value is converted: a number to a
// wider one or to one of the same width, a number to whether it is not zero.
func (r reading) value(t driver.DataType, bit int) (any, error) {
	e, ok := elementaryOf(r.code)
	if bit != noBit {
		if !ok || e.kind != signed && e.kind != unsigned || bit >= 8*e.size {
			return nil, &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: fmt.Errorf("the tag is a %s, which has no bit %d", r.typeName(), bit)}
		}
		if t != "" && t != driver.Bool {
			return nil, &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: fmt.Errorf("a bit is no %s", t)}
		}
		return r.data[bit/8]>>(bit%8)&1 == 1, nil
	}
	if !ok {
		if t == driver.String && r.code == codeStructure || t == driver.String && r.isText() || t == "" && r.isText() {
			text, err := r.text()
			if err != nil {
				return nil, r.mismatch(driver.String)
			}
			return text, nil
		}
		if t == "" {
			return nil, &driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: fmt.Errorf("the tag is a %s; name one of its members", r.typeName())}
		}
		return nil, r.mismatch(t)
	}
	if t == "" {
		t = e.dataType
	}
	bits := r.bits(e)
	switch {
	case t == driver.Bool:
		if e.kind == float {
			return nil, r.mismatch(t)
		}
		return bits != 0, nil
	case e.kind == boolean || t == driver.String:
		return nil, r.mismatch(t)
	case e.kind == float && t == driver.Float64 && e.size == 4:
		return float64(math.Float32frombits(uint32(bits))), nil
	}
	to, ok := numbers[t]
	if !ok || (to.kind == float) != (e.kind == float) || to.size < e.size || to.kind == unsigned && e.kind == signed && to.size > e.size {
		return nil, r.mismatch(t)
	}
	v, _ := driver.FromBits(t, bits)
	return v, nil
}

// numbers says how wide our numbers are.
var numbers = map[driver.DataType]struct {
	size int
	kind kind
}{
	driver.Int16:   {2, signed},
	driver.Uint16:  {2, unsigned},
	driver.Int32:   {4, signed},
	driver.Uint32:  {4, unsigned},
	driver.Int64:   {8, signed},
	driver.Uint64:  {8, unsigned},
	driver.Float32: {4, float},
	driver.Float64: {8, float},
}

// bits is the number, with its sign extended.
func (r reading) bits(e elementary) uint64 {
	var bits uint64
	for i := e.size - 1; i >= 0; i-- {
		bits = bits<<8 | uint64(r.data[i])
	}
	if e.kind == signed {
		shift := 64 - 8*e.size
		bits = uint64(int64(bits<<shift) >> shift)
	}
	return bits
}

// encode is value as the device's type wants it.
func (r reading) encode(value any) ([]byte, error) {
	e, ok := elementaryOf(r.code)
	if !ok {
		text, isString := value.(string)
		if !isString {
			return nil, fmt.Errorf("a %s cannot hold %T", r.typeName(), value)
		}
		return r.encodeText(text)
	}
	v := reflect.ValueOf(value)
	var bits uint64
	fits := true
	width := 8 * e.size
	switch {
	case v.Kind() == reflect.Bool && e.kind != float:
		if v.Bool() {
			bits = 1
		}
	case e.kind == boolean:
		return nil, fmt.Errorf("a BOOL cannot hold %T", value)
	case v.CanFloat() && e.kind == float && e.size == 8:
		bits = math.Float64bits(v.Float())
	case v.CanFloat() && e.kind == float:
		bits = uint64(math.Float32bits(float32(v.Float())))
		fits = math.IsInf(v.Float(), 0) || !math.IsInf(float64(float32(v.Float())), 0)
	case v.CanInt() && e.kind != float:
		n := v.Int()
		bits = uint64(n)
		if e.kind == signed {
			fits = n >= -1<<(width-1) && n <= 1<<(width-1)-1
		} else {
			fits = n >= 0 && (width == 64 || n < 1<<width)
		}
	case v.CanUint() && e.kind != float:
		bits = v.Uint()
		if e.kind == signed {
			fits = bits <= 1<<(width-1)-1
		} else {
			fits = width == 64 || bits < 1<<width
		}
	default:
		return nil, fmt.Errorf("a %s cannot hold %T", e.name, value)
	}
	if !fits {
		return nil, fmt.Errorf("a %s cannot hold %v", e.name, value)
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:e.size], nil
}

// encodeText is a text as the device's type wants it.
func (r reading) encodeText(text string) ([]byte, error) {
	if r.code != codeStructure && !r.isText() {
		return nil, fmt.Errorf("a %s cannot hold a text", r.typeName())
	}
	prefix := r.prefix()
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))[:prefix]
	if r.code != codeStructure {
		if len(text) >= 1<<(8*prefix) || len(text) > maxText {
			return nil, fmt.Errorf("a text of %d characters is too long", len(text))
		}
		return append(length, text...), nil
	}
	// The value read tells how much room there is; a STRING ends in two bytes of padding.
	room := len(r.data) - prefix
	if r.handle == handleString {
		room = min(room, 82)
	}
	if len(text) > room {
		return nil, fmt.Errorf("the tag holds %d characters, and the text has %d", max(0, room), len(text))
	}
	data := make([]byte, len(r.data))
	copy(data, length)
	copy(data[prefix:], text)
	return data, nil
}

// maxText is the longest text that is written to a text without a fixed size.
const maxText = 400
