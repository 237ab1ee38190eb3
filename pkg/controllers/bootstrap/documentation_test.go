package bootstrap

import (
	"os"
	"strings"
	"testing"
)

// TestEveryReasonIsDocumented: whoever reads a reason finds in docs/operations.md what to do about it.
func TestEveryReasonIsDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}

	_, section, _ := strings.Cut(string(manual), "### Bootstrap of a TalosCluster\n")

	for r, o := range outcomes() {
		found := false

		for line := range strings.Lines(section) {
			cells := strings.Split(line, "|")
			found = found || len(cells) > 2 && strings.Contains(cells[1], "`"+string(r)+"`") && strings.Contains(cells[1], string(o.status))
		}

		if !found {
			t.Errorf("%s `%s` has no row", o.status, r)
		}
	}
}
