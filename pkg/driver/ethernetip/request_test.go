package ethernetip

import (
	"bytes"
	"strings"
	"testing"
)

// Req: P-13 (1756-PM020: symbolic segments)
func TestParseAddress(t *testing.T) {
	for _, c := range []struct {
		name, text string
		path       []byte
		bit        int
		wrong      bool
	}{
		{"a tag", "Level", []byte("\x91\x05Level\x00"), noBit, false},
		{"a tag with an even name", "Temp", []byte("\x91\x04Temp"), noBit, false},
		{"a program's tag", "Program:Main.Step", []byte("\x91\x0cProgram:Main\x91\x04Step"), noBit, false},
		{"an element's member", "A[2].B", []byte("\x91\x01A\x00\x28\x02\x91\x01B\x00"), noBit, false},
		{"three dimensions", "A[1,256,65536]", []byte("\x91\x01A\x00\x28\x01\x29\x00\x00\x01\x2a\x00\x00\x00\x01\x00"), noBit, false},
		{"a bit", "Word.5", []byte("\x91\x04Word"), 5, false},
		{"a bit of an element", "W[3].63", []byte("\x91\x01W\x00\x28\x03"), 63, false},
		{"a module's data", "Local:1:I.Data.0", []byte("\x91\x09Local:1:I\x00\x91\x04Data"), 0, false},
		{"a member that begins with an underscore", "_a._b", []byte("\x91\x02_a\x91\x02_b"), noBit, false},
		{"nothing", "", nil, 0, true},
		{"a number", "5", nil, 0, true},
		{"a bit beyond 63", "Word.64", nil, 0, true},
		{"a bit in the middle", "Word.5.x", nil, 0, true},
		{"four dimensions", "A[1,2,3,4]", nil, 0, true},
		{"an open bracket", "A[1", nil, 0, true},
		{"no index", "A[]", nil, 0, true},
		{"a negative index", "A[-1]", nil, 0, true},
		{"an index beyond 32 bits", "A[4294967296]", nil, 0, true},
		{"an empty part", "A..B", nil, 0, true},
		{"an escape sequence", "A\x1b[2J", nil, 0, true},
		{"a name that is too long", strings.Repeat("a", 129), nil, 0, true},
		{"a path that is too long", strings.Repeat("abcdefgh.", 60) + "x", nil, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseAddress(c.text)
			if (err != nil) != c.wrong {
				t.Fatalf("parseAddress(%q): %v", c.text, err)
			}
			if err == nil && (!bytes.Equal(got.path, c.path) || got.bit != c.bit) {
				t.Errorf("parseAddress(%q) = % x bit %d, want % x bit %d", c.text, got.path, got.bit, c.path, c.bit)
			}
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"a", "Program:Main.Tag[2].Member.3", "x[1,2,3]", "a.b[", "[1]", "4/100/3[6].2", "0x01/1/7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err == nil && (len(a.path) == 0 || len(a.path)%2 != 0 || len(a.path) > maxPath) {
			t.Errorf("parseAddress(%q) has a path of %d bytes", text, len(a.path))
		}
	})
}
