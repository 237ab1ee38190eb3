package unit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/units.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryReasonIsDocumented: whoever reads a condition or an Event finds in docs/units.md what it means.
func TestEveryReasonIsDocumented(t *testing.T) {
	_, section, _ := strings.Cut(manual(t), "\n## Conditions and Events of a Unit\n")
	section, _, _ = strings.Cut(section, "\n## ")
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, declaration := range file.Decls {
		constants, ok := declaration.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			continue
		}
		for _, spec := range constants.Specs {
			constant := spec.(*ast.ValueSpec)
			value, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			written := "`" + value + "`"
			if strings.HasPrefix(constant.Names[0].Name, "Condition") {
				written = "| " + value
			}
			count++
			if !strings.Contains(section, written) {
				t.Errorf("%s is not there", value)
			}
		}
	}
	if count < 25 {
		t.Errorf("only %d constants were found", count)
	}
}

// Req: P-16
func TestTheTableOfStatesInTheManualIsTheMachine(t *testing.T) {
	text := manual(t)
	for _, state := range isa88.States() {
		row := []string{string(state)}
		for _, command := range isa88.Commands() {
			next, ok := isa88.Next(state, command)
			switch {
			case !ok:
				row = append(row, "–")
			case next == state:
				row = append(row, "stays")
			default:
				row = append(row, string(next))
			}
		}
		done := "|"
		// Nothing completes Running yet.
		if next, ok := isa88.Completed(state); ok && state != isa88.Running {
			done = string(next) + " |"
		}
		if line := "| " + strings.Join(row, " | ") + " | " + done; !strings.Contains(text, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

// Req: P-16
func TestEveryCauseAndOutcomeIsDocumented(t *testing.T) {
	text := manual(t)
	for _, cause := range []v1alpha1.HoldCause{
		v1alpha1.HoldCauseIOModuleFault, v1alpha1.HoldCauseIOModuleMissing, v1alpha1.HoldCauseIOModuleUnknown,
		v1alpha1.HoldCauseOperator, v1alpha1.HoldCauseRuntime, v1alpha1.HoldCauseRestored,
	} {
		if !strings.Contains(text, "| `"+string(cause)+"` |") {
			t.Errorf("cause %s is not there", cause)
		}
	}
	for _, outcome := range []v1alpha1.CommandOutcome{
		v1alpha1.CommandAccepted, v1alpha1.CommandDone, v1alpha1.CommandRefused, v1alpha1.CommandSuperseded, v1alpha1.CommandExpired,
	} {
		if !strings.Contains(text, "| "+string(outcome)+" |") {
			t.Errorf("outcome %s is not there", outcome)
		}
	}
}
