package integration

import (
	"strings"
	"testing"
)

// Req
func TestKubectlListsBothGroupsWithTheirShortNames(t *testing.T) {
	output := env.MustKubectl(t, "", "api-resources", "--categories=fieldplane", "--no-headers")
	for _, want := range []string{"iom ", "ctlr ", "cmod ", "un ", "tc ", "tm "} {
		if !strings.Contains(output, " "+want) {
			t.Errorf("short name %q is missing from:\n%s", want, output)
		}
	}
}
