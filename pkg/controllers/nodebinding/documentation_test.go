package nodebinding

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

	_, section, _ := strings.Cut(string(manual), "### Conditions of a Controller\n")

	for _, word := range []string{
		ReasonSimulation, ReasonNodeNotFound, ReasonMachineNotFound, ReasonMachineHasNoNode, ReasonNodeReady,
		ReasonNodeNotReady, ReasonNodeStatusUnknown, ConditionNodeAmbiguous,
	} {
		if !strings.Contains(section, "`"+word+"`") {
			t.Errorf("%s is not told", word)
		}
	}
}
