package ethernetip

import (
	"bytes"
	"math"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// text is a STRING's value as a controller sends it.
func text(s string) []byte {
	return append([]byte{0xA0, 0x02, 0xCE, 0x0F, byte(len(s)), 0, 0, 0}, append([]byte(s), make([]byte, 84-len(s))...)...)
}

// Req: P-13
func TestValueKeepsTheNumberOrRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  []byte
		as   driver.DataType
		bit  int
		want any
	}{
		{"BOOL", []byte{0xC1, 0, 1}, "", noBit, true},
		{"BOOL of all ones", []byte{0xC1, 0, 0xFF}, driver.Bool, noBit, true},
		{"SINT", []byte{0xC2, 0, 0xFE}, "", noBit, int16(-2)},
		{"SINT as int32", []byte{0xC2, 0, 0xFE}, driver.Int32, noBit, int32(-2)},
		{"SINT as uint16 would lose the sign", []byte{0xC2, 0, 0xFE}, driver.Uint16, noBit, nil},
		{"INT", []byte{0xC3, 0, 0x2E, 0xFB}, "", noBit, int16(-1234)},
		{"INT as uint16 has the same width", []byte{0xC3, 0, 0xFF, 0xFF}, driver.Uint16, noBit, uint16(65535)},
		{"DINT", []byte{0xC4, 0, 1, 0, 0, 0x80}, "", noBit, int32(-2147483647)},
		{"DINT as int64", []byte{0xC4, 0, 1, 0, 0, 0x80}, driver.Int64, noBit, int64(-2147483647)},
		{"DINT as int16 may not fit", []byte{0xC4, 0, 1, 0, 0, 0}, driver.Int16, noBit, nil},
		{"DINT as float32 is another thing", []byte{0xC4, 0, 1, 0, 0, 0}, driver.Float32, noBit, nil},
		{"DINT as bool", []byte{0xC4, 0, 0, 0, 1, 0}, driver.Bool, noBit, true},
		{"LINT", []byte{0xC5, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, "", noBit, int64(-1)},
		{"USINT", []byte{0xC6, 0, 0xFE}, "", noBit, uint16(254)},
		{"USINT as int16", []byte{0xC6, 0, 0xFE}, driver.Int16, noBit, int16(254)},
		{"UINT as int32", []byte{0xC7, 0, 0xFF, 0xFF}, driver.Int32, noBit, int32(65535)},
		{"UDINT", []byte{0xC8, 0, 0xFF, 0xFF, 0xFF, 0xFF}, "", noBit, uint32(math.MaxUint32)},
		{"ULINT", []byte{0xC9, 0, 1, 0, 0, 0, 0, 0, 0, 0x80}, "", noBit, uint64(1<<63 + 1)},
		{"REAL", []byte{0xCA, 0, 0, 0, 0xCC, 0x41}, "", noBit, float32(25.5)},
		{"REAL as float64", []byte{0xCA, 0, 0, 0, 0xCC, 0x41}, driver.Float64, noBit, float64(25.5)},
		{"REAL as bool", []byte{0xCA, 0, 0, 0, 0xCC, 0x41}, driver.Bool, noBit, nil},
		{"LREAL", []byte{0xCB, 0, 0, 0, 0, 0, 0, 0x80, 0x39, 0x40}, "", noBit, float64(25.5)},
		{"LREAL as float32 may not fit", []byte{0xCB, 0, 0, 0, 0, 0, 0, 0x80, 0x39, 0x40}, driver.Float32, noBit, nil},
		{"DWORD", []byte{0xD3, 0, 0, 0, 0, 0x80}, "", noBit, uint32(1 << 31)},
		{"bit 31 of a DWORD", []byte{0xD3, 0, 0, 0, 0, 0x80}, "", 31, true},
		{"bit 5 of a SINT", []byte{0xC2, 0, 0x20}, driver.Bool, 5, true},
		{"bit 8 of a SINT", []byte{0xC2, 0, 0x20}, driver.Bool, 8, nil},
		{"a bit as a number", []byte{0xC2, 0, 0x20}, driver.Int16, 5, nil},
		{"a bit of a REAL", []byte{0xCA, 0, 0, 0, 0xCC, 0x41}, "", 0, nil},
		{"STRING", text("hello"), "", noBit, "hello"},
		{"STRING as a text", text(""), driver.String, noBit, ""},
		{"STRING as a number", text("12"), driver.Int32, noBit, nil},
		{"a number as a text", []byte{0xC4, 0, 1, 0, 0, 0}, driver.String, noBit, nil},
		{"SHORT_STRING", []byte{0xDA, 0, 2, 'h', 'i'}, "", noBit, "hi"},
		{"CIP STRING without what terminals obey", []byte{0xD0, 0, 3, 0, 'h', 0x1B, 'i'}, "", noBit, "hi"},
		{"a structure", []byte{0xA0, 2, 1, 2, 0, 0, 0, 0}, "", noBit, nil},
		{"a user's own string type, declared", []byte{0xA0, 2, 1, 2, 1, 0, 0, 0, 'x', 0, 0, 0}, driver.String, noBit, "x"},
		{"a structure that is no text, declared as one", []byte{0xA0, 2, 1, 2, 9, 0, 0, 0, 'x', 0, 0, 0}, driver.String, noBit, nil},
		{"a type that nobody knows", []byte{0xE7, 0, 1}, "", noBit, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := parseReading(c.raw)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.value(c.as, c.bit)
			if c.want == nil {
				if e, ok := err.(*driver.Error); !ok || e.Reason != driver.ReasonConfigurationError || !e.Answered {
					t.Errorf("value %v, %v, want a ConfigurationError of this channel", got, err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("value %T %v, %v, want %T %v", got, got, err, c.want, c.want)
			}
		})
	}
}

func TestParseReadingRefusesWhatIsCutShort(t *testing.T) {
	for name, raw := range map[string][]byte{
		"nothing":                       nil,
		"half a type":                   {0xC4},
		"a DINT of three bytes":         {0xC4, 0, 1, 2, 3},
		"a DINT of five bytes":          {0xC4, 0, 1, 2, 3, 4, 5},
		"no handle":                     {0xA0, 2, 1},
		"a STRING without its length":   {0xA0, 2, 0xCE, 0x0F, 1, 0},
		"a STRING beyond its value":     {0xA0, 2, 0xCE, 0x0F, 200, 0, 0, 0, 'x'},
		"a STRING of negative length":   {0xA0, 2, 0xCE, 0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 'x'},
		"a SHORT_STRING beyond the end": {0xDA, 0, 3, 'x'},
	} {
		if r, err := parseReading(raw); err == nil {
			t.Errorf("%s: %+v, want an error", name, r)
		}
	}
}

// Req: P-13
func TestEncodeKeepsTheNumberOrRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  uint16
		value any
		want  []byte
	}{
		{"BOOL", 0xC1, true, []byte{1}},
		{"a number into a BOOL", 0xC1, int16(1), nil},
		{"SINT", 0xC2, int16(-128), []byte{0x80}},
		{"what a SINT cannot hold", 0xC2, int16(-129), nil},
		{"what a SINT cannot hold, unsigned", 0xC2, uint16(128), nil},
		{"a bool into a DINT", 0xC4, true, []byte{1, 0, 0, 0}},
		{"USINT", 0xC6, uint16(255), []byte{255}},
		{"a negative number into a USINT", 0xC6, int16(-1), nil},
		{"DINT", 0xC4, int32(math.MinInt32), []byte{0, 0, 0, 0x80}},
		{"LINT", 0xC5, int64(math.MinInt64), []byte{0, 0, 0, 0, 0, 0, 0, 0x80}},
		{"what a LINT cannot hold", 0xC5, uint64(math.MaxUint64), nil},
		{"ULINT", 0xC9, uint64(math.MaxUint64), []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		{"REAL", 0xCA, float32(25.5), []byte{0, 0, 0xCC, 0x41}},
		{"REAL from a wider one", 0xCA, float64(25.5), []byte{0, 0, 0xCC, 0x41}},
		{"what a REAL cannot hold", 0xCA, float64(1e300), nil},
		{"LREAL", 0xCB, float64(25.5), []byte{0, 0, 0, 0, 0, 0x80, 0x39, 0x40}},
		{"an integer into a REAL", 0xCA, int32(1), nil},
		{"a fraction into a DINT", 0xC4, float64(1), nil},
		{"a text into a DINT", 0xC4, "1", nil},
		{"nothing into a DINT", 0xC4, nil, nil},
		{"SHORT_STRING", 0xDA, "hi", []byte{2, 'h', 'i'}},
		{"a number into a SHORT_STRING", 0xDA, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := reading{code: c.code}.encode(c.value)
			if !bytes.Equal(got, c.want) || (err == nil) != (c.want != nil) {
				t.Errorf("% x, %v, want % x", got, err, c.want)
			}
		})
	}
}

// FuzzParsers gives everything that parses a device's bytes the same bytes: none may panic.
func FuzzParsers(f *testing.F) {
	f.Add([]byte{0xC4, 0, 1, 0, 0, 0})
	f.Add(text("hello"))
	f.Add([]byte{2, 0, 0xA1, 0, 4, 0, 1, 2, 3, 4, 0xB1, 0, 2, 0, 1, 0})
	f.Add(frame{command: commandListIdentity, data: []byte{1, 0, 0x0C, 0, 0, 0}}.encode())
	f.Add([]byte{2, 0, 4, 0, 0, 0, 31, 0, 0, 0, 2, 0, 0, 0, 5, 0})
	f.Add([]byte{3, 0, 0, 0, 5, 0, 'L', 'e', 'v', 'e', 'l', 0xCA, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parseReading(data); err == nil {
			for _, as := range []driver.DataType{"", driver.Bool, driver.Int16, driver.Uint64, driver.Float64, driver.String} {
				for _, bit := range []int{noBit, 0, 31, 63} {
					_, _ = r.value(as, bit)
				}
			}
			for _, v := range []any{true, int16(-1), uint64(1), float64(1), "text", nil} {
				_, _ = r.encode(v)
			}
			r.head()
		}
		if fr, _, err := readFrame(bytes.NewReader(data)); err == nil {
			_, _ = parseItems(fr.data)
			_, _ = parseListIdentity(fr.data)
			_, _, _ = parsePacket(fr.data, itemConnection, itemConnected)
		}
		_, _ = parseItems(data)
		_, _ = parseIdentity(data)
		_, _ = parseReply(serviceReadTag, data)
		for _, access := range []bool{false, true} {
			_, _, _ = parseSymbols(data, access)
		}
		if size, err := parseTemplateSize(data); err == nil && (size.bytes <= 8*size.members || size.bytes > maxDefinition) {
			t.Errorf("a structure of %d bytes with %d members", size.bytes, size.members)
		}
		for _, members := range []int{0, 1, 3} {
			_, _ = parseTemplate(data, members)
		}
	})
}
