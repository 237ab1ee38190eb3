package clusterstatus

import (
	"os"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
)

// TestEveryReasonIsDocumented: whoever reads a reason finds in docs/operations.md what to do about it.
func TestEveryReasonIsDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}

	_, section, _ := strings.Cut(string(manual), "### Conditions of a TalosCluster\n")

	for reason, status := range map[string]string{
		ReasonBundleFound: "True", ReasonBundleRotated: "True", ReasonBundleUnreadable: "Unknown",
		string(bundle.NotFound): "False", string(bundle.Invalid): "False", string(bundle.NotForThisCluster): "False",
	} {
		if !strings.Contains(section, "\n| "+status+" `"+reason+"` |") {
			t.Errorf("%s `%s` has no row", status, reason)
		}
	}
}
