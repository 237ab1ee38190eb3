package plainyaml

import (
	"fmt"
	"strings"
	"testing"
)

func keys(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "  k%d: v\n", i)
	}

	return text.String()
}

// Req: T-15
func TestYAMLThatTakesTooLongToReadIsRefused(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"several documents", "a: 1\n---\na: 2\n", ""},
		{"as many keys as there may be", "m:\n" + keys(1024), ""},
		{"a key more", "m:\n" + keys(1025), "must have at most 1024 keys in one mapping, and has 1025 in the one at line 2"},
		{"a key twice", "m:\n  secret: 1\n  secret: 2\n", "must have each key once in a mapping, and has one twice at line 3"},
		{"a key twice in a list in the second document", "a: 1\n---\nl: [{b: 1, b: 2}]\n", "must have each key once in a mapping, and has one twice at line 3"},
		{"a mapping for a key", "{a: 1}: 2\n", "must have text for keys, and has something else at line 1"},
		{"what is no YAML", "{secret", "must be YAML"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			have := ""
			if err := CheckDocuments([]byte(tc.text)); err != nil {
				have = err.Error()
			}

			if have != tc.want {
				t.Errorf("have %q, want %q", have, tc.want)
			}
		})
	}
}
