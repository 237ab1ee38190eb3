package iomodule

import (
	"os"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// TestEveryReasonIsDocumented: whoever reads a reason finds in docs/operations.md what to do about it.
func TestEveryReasonIsDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(manual), "### Reasons of an IOModule\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, c := range consequences {
		// Online is no trouble, and NotConnected stands only where a probe gives no reason.
		if c.reason == "" || c.state == v1alpha1.ModuleOnline || c.reason == ReasonNotConnected {
			continue
		}
		found := false
		for line := range strings.Lines(section) {
			found = found || strings.HasPrefix(line, "| "+string(c.state)+" ") && strings.Contains(line, "`"+c.reason+"`")
		}
		if !found {
			t.Errorf("%s %s is not explained", c.state, c.reason)
		}
	}
}
