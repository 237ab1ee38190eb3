package app

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryDocumentedCommandWorks runs what the documentation and the help texts tell users to type.
func TestEveryDocumentedCommandWorks(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/approving.md")
	if err != nil {
		t.Fatal(err)
	}
	root := newCommand(plugin{})
	texts := map[string]string{"docs/approving.md": string(manual), "help": root.Example}
	for _, cmd := range root.Commands() {
		texts["help of "+cmd.Name()] = cmd.Example
	}
	for source, text := range texts {
		lines := regexp.MustCompile(`(?m)^ *kubectl fieldplane (.*)$`).FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1)
		if len(lines) == 0 {
			t.Errorf("%s: no command found", source)
		}
		for _, line := range lines {
			t.Run(source+": "+line[1], func(t *testing.T) {
				s := newSession(site()...)
				s.input = "y\n"
				args := strings.Fields(strings.ReplaceAll(line[1], "'", ""))
				s.run(t, args...).wantOK(t)
			})
		}
	}
}
