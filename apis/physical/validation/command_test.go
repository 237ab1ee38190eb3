package validation

import (
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Req: A-04, P-16c
func TestCommandsAreCheckedAndErrorsAreShort(t *testing.T) {
	long := func(n int) string { return strings.Repeat("ü", n) }
	for name, test := range map[string]struct {
		spec  physical.UnitCommandSpec
		field string
		text  string
	}{
		"a command":                        {spec: physical.UnitCommandSpec{Command: physical.CommandHold}},
		"with all that it may have":        {spec: physical.UnitCommandSpec{Command: physical.CommandRestart, ID: long(128), Reason: long(1024), Override: true}},
		"override of START":                {spec: physical.UnitCommandSpec{Command: physical.CommandStart, Reason: "r", Override: true}},
		"override of RESUME":               {spec: physical.UnitCommandSpec{Command: physical.CommandResume, Reason: "r", Override: true}},
		"a mode":                           {spec: physical.UnitCommandSpec{Command: physical.CommandManual}},
		"letters of any script":            {spec: physical.UnitCommandSpec{Command: physical.CommandHold, Reason: "Störung an Мешалка 3 — 泵"}},
		"none":                             {physical.UnitCommandSpec{}, "spec.command", "Required"},
		"an unknown one":                   {physical.UnitCommandSpec{Command: "EXPLODE"}, "spec.command", `supported values: "START"`},
		"in small letters":                 {physical.UnitCommandSpec{Command: "hold"}, "spec.command", "HOLD"},
		"a command of a megabyte":          {physical.UnitCommandSpec{Command: physical.UnitCommandName(long(1 << 19))}, "spec.command", "…"},
		"an id of a megabyte":              {physical.UnitCommandSpec{Command: physical.CommandHold, ID: long(1 << 19)}, "spec.id", "may not be more than 128"},
		"an id that is one too long":       {physical.UnitCommandSpec{Command: physical.CommandHold, ID: long(129)}, "spec.id", "128"},
		"a reason that is one too long":    {physical.UnitCommandSpec{Command: physical.CommandHold, Reason: long(1025)}, "spec.reason", "1024"},
		"a reason that clears a terminal":  {physical.UnitCommandSpec{Command: physical.CommandHold, Reason: "\x1b[2J"}, "spec.reason", "printable"},
		"a reason that turns text around":  {physical.UnitCommandSpec{Command: physical.CommandHold, Reason: "a\u202eb"}, "spec.reason", `\\u202e`},
		"a reason of two lines":            {physical.UnitCommandSpec{Command: physical.CommandHold, Reason: "a\nb"}, "spec.reason", "printable"},
		"an id that is not UTF-8":          {physical.UnitCommandSpec{Command: physical.CommandHold, ID: "a\xff"}, "spec.id", "UTF-8"},
		"an id with a zero":                {physical.UnitCommandSpec{Command: physical.CommandHold, ID: "a\x00"}, "spec.id", "printable"},
		"override without a reason":        {physical.UnitCommandSpec{Command: physical.CommandStart, Override: true}, "spec.reason", "say why"},
		"override of what asks no modules": {physical.UnitCommandSpec{Command: physical.CommandHold, Override: true, Reason: "r"}, "spec.override", "nothing to override"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := ValidateUnitCommand(&physical.UnitCommand{Spec: test.spec})
			if test.field == "" {
				if len(errs) > 0 {
					t.Error(errs)
				}
				return
			}
			if len(errs) != 1 || errs[0].Field != test.field || !strings.Contains(errs[0].Error(), test.text) {
				t.Fatalf("have %v", errs)
			}
			if len(errs[0].Error()) > 700 {
				t.Errorf("the error has %d bytes", len(errs[0].Error()))
			}
		})
	}
}
