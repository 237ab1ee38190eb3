package machineconfiguration

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
	_, section, _ := strings.Cut(string(manual), "### Conditions of a TalosMachine\n")
	section, _, _ = strings.Cut(section, "\n##")
	for reason, outcome := range outcomes() {
		row := ""
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, "|"); len(cells) > 2 && strings.Contains(cells[1], "`"+string(reason)+"`") {
				row = cells[2]
			}
		}
		want := " – "
		switch outcome.problem {
		case "":
		case string(reason):
			row = strings.Replace(row, "`"+outcome.problem+"`", "same", 1) // of several reasons in a row, it is one's own name
			want = " same "
		default:
			want = " `" + outcome.problem + "` "
		}
		if row != want {
			t.Errorf("%s: the condition besides is %q, want %q", reason, row, want)
		}
	}
}
