package app

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
)

// TestDocumentedFlagsExist looks up every flag that docs/operations.md names as the server's.
func TestDocumentedFlagsExist(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	components, err := apiserver.NewComponentGlobals()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, set := range NewOptions(components).Flags().FlagSets {
		flags["-v"] = flags["-v"] || set.ShorthandLookup("v") != nil
		for _, match := range regexp.MustCompile("--[a-z0-9-]+").FindAllString(set.FlagUsages(), -1) {
			flags[match] = true
		}
	}
	_, section, _ := strings.Cut(string(manual), "\n## Flags worth knowing\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := regexp.MustCompile("`(--?[a-z0-9-]+)`").FindAllStringSubmatch(section, -1)
	if len(named) < 5 {
		t.Fatalf("only %d flags found", len(named))
	}
	for _, match := range named {
		if !flags[match[1]] {
			t.Errorf("the server has no flag %s", match[1])
		}
	}
}
