package machinestate

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

	_, section, _ := strings.Cut(string(manual), "### A configured TalosMachine\n")
	section, _, _ = strings.Cut(section, "\n##")

	for r := range meanings() {
		if !strings.Contains(section, "`"+string(r)+"`") {
			t.Errorf("%s is not there", r)
		}
	}
}
