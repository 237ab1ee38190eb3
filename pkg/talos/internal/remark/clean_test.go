package remark

import (
	"strings"
	"testing"
)

func TestTextsFromTheNetworkAreCleaned(t *testing.T) {
	for in, want := range map[string]string{
		"  PowerEdge R650 \x00":           "PowerEdge R650",
		"a\x1b[31mred\nline":              "a[31mredline",
		"ARK\u202e3534\u200b\u2028\ufeff": "ARK3534",
		"caf\xe9":                         "caf",
		"Größe":                           "Größe",
		strings.Repeat("x", 1000):         strings.Repeat("x", MaxText),
		strings.Repeat("x", 255) + "ö":    strings.Repeat("x", 255),
	} {
		if have := Clean(in); have != want {
			t.Errorf("Clean(%q) is %q", in, have)
		}
	}
}
