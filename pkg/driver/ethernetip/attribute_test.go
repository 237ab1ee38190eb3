package ethernetip

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
)

func TestWhatIsAnAttributesAddress(t *testing.T) {
	for text, want := range map[string]tagAddress{
		"4/100/3":        {path: []byte{0x20, 4, 0x24, 100, 0x30, 3}, bit: noBit, attribute: true, offset: wholeAttribute},
		"0x04/0x64/0x3":  {path: []byte{0x20, 4, 0x24, 100, 0x30, 3}, bit: noBit, attribute: true, offset: wholeAttribute},
		"4/100/3[6]":     {path: []byte{0x20, 4, 0x24, 100, 0x30, 3}, bit: noBit, attribute: true, offset: 6},
		"4/100/3[6].2":   {path: []byte{0x20, 4, 0x24, 100, 0x30, 3}, bit: 2, attribute: true, offset: 6},
		"0x300/1/1.9":    {path: []byte{0x21, 0, 0, 3, 0x24, 1, 0x30, 1}, bit: 9, attribute: true, offset: wholeAttribute},
		"1/1":            {},
		"1/1/1/1":        {},
		"a/1/1":          {},
		"1/1/":           {},
		"1/1/1[":         {},
		"1/1/1[x]":       {},
		"1/1/1[99999]":   {},
		"1/1/1.64":       {},
		"1/1/1.x":        {},
		"1/1/0x10000":    {},
		"-1/1/1":         {},
		"Program:Main/1": {},
	} {
		got, err := parseAddress(text)
		if want.path == nil {
			if driver.ReasonOf(err) != driver.ReasonConfigurationError || err == nil {
				t.Errorf("%s became %+v, %v", text, got, err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got.path, want.path) || got.bit != want.bit || !got.attribute || got.offset != want.offset {
			t.Errorf("%s became %+v, %v", text, got, err)
		}
	}
}

// assembly starts an I/O device: no symbols, an assembly and some parameters.
func assembly(t *testing.T) *ethernetiptest.Device {
	t.Helper()
	d := ethernetiptest.New("127.0.0.1:0").NoSymbols(true)
	d.SetAttribute(4, 100, 3, []byte{1, 0, 0xFE, 0xFF, 0, 0, 0xCC, 0x41, 8}).
		SetAttribute(0x300, 1, 1, []byte{0x2A, 0}).SetAttribute(0x300, 1, 2, []byte{0xFD}).SetAttribute(0x300, 1, 3, append([]byte{5}, "hello"...))
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Req: P-06, P-13 (devices that are no Logix controllers: declared attributes)
func TestAttributesAreReadAndWritten(t *testing.T) {
	dev := assembly(t)
	cases := []struct {
		address string
		as      driver.DataType
		value   any
		says    string
	}{
		{"4/100/3[2]", driver.Int16, int16(-2), ""},
		{"4/100/3[4]", driver.Float32, float32(25.5), ""},
		{"4/100/3[0].0", "", true, ""},
		{"4/100/3[8].3", driver.Bool, true, ""},
		{"4/100/3.67", driver.Bool, nil, "write class/instance/attribute"},
		{"4/100/3.8", driver.Bool, false, ""},
		{"4/100/3[8].8", driver.Bool, nil, "no bit 8"},
		{"0x300/1/1", driver.Uint16, uint16(42), ""},
		{"0x300/1/2", driver.Int16, int16(-3), ""},
		{"0x300/1/2", driver.Uint16, uint16(0xFD), ""},
		{"0x300/1/3", driver.String, "hello", ""},
		{"1/1/7", driver.String, "1756-L83E/B", ""},
		{"0x300/1/1", driver.Int32, nil, "has 2 bytes, and a int32 has 4"},
		{"4/100/3", driver.Int16, nil, "write [n]"},
		{"4/100/3[8]", driver.Int16, nil, "too few"},
		{"4/100/3[99]", driver.Int16, nil, "none at 99"},
		{"4/100/3[6]", driver.String, nil, "no text"},
		{"4/100/3", "", nil, "must be declared"},
		{"4/101/3", driver.Int16, nil, "CIP status"},
	}
	var channels []driver.Channel
	for _, c := range cases {
		channels = append(channels, driver.Channel{Name: c.address, Address: c.address, DataType: c.as})
	}
	d := open(t, newDriver(), Config{Endpoint: dev.Endpoint(), Path: "none", Channels: []driver.Channel{
		{Name: "speed", Address: "4/100/3[2]", DataType: driver.Int16}, {Name: "gone", Address: "4/101/3", DataType: driver.Int16},
	}})
	mustCheck(t, d)
	dev.Services()
	for i, s := range mustRead(t, d, channels) {
		c := cases[i]
		if s.Value != c.value || (s.Err == nil) != (c.says == "") {
			t.Errorf("%s as %q: %+v", c.address, c.as, s)
		}
		if s.Err != nil && !strings.Contains(s.Err.Error(), c.says) {
			t.Errorf("%s as %q: %v, want %q", c.address, c.as, s.Err, c.says)
		}
	}
	if got := dev.Services(); !bytes.Equal(got, []byte{multiple}) {
		t.Errorf("services %x, want one packet", got)
	}

	list, err := d.Channels(t.Context(), 0)
	if err != nil || len(list.Items) != 2 || list.Items[0].Problem != "" || list.Items[0].DeviceType != "9 bytes" || list.Items[1].Problem == "" {
		t.Errorf("channels %+v, %v", list, err)
	}

	for _, c := range []struct {
		address string
		as      driver.DataType
		value   any
		reason  driver.Reason
	}{
		{"0x300/1/1", driver.Uint16, 43, ""},
		{"0x300/1/2", driver.Int16, -4, ""},
		{"0x300/1/2", driver.Int16, 200, driver.ReasonConfigurationError},
		{"0x300/1/1", driver.Int32, 1, driver.ReasonConfigurationError},
		{"4/100/3[2]", driver.Int16, 1, driver.ReasonNotSupported},
		{"4/100/3.1", driver.Bool, true, driver.ReasonNotSupported},
	} {
		err := d.Write(t.Context(), driver.Channel{Name: c.address, Address: c.address, DataType: c.as}, c.value)
		if c.reason == "" && err != nil || c.reason != "" && driver.ReasonOf(err) != c.reason {
			t.Errorf("%s: %v, want %q", c.address, err, c.reason)
		}
	}
	if one, two := dev.Attribute(0x300, 1, 1), dev.Attribute(0x300, 1, 2); !bytes.Equal(one, []byte{43, 0}) || !bytes.Equal(two, []byte{0xFC}) {
		t.Errorf("the attributes hold %x and %x", one, two)
	}
}
