package addresses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// Req: T-06
func TestAMachineIsLookedForAtItsEndpointFirst(t *testing.T) {
	for _, test := range []struct {
		name, endpoint string
		links          []string
		want           string
	}{
		{"no address at all", "", nil, ""},
		{"the endpoint alone", "192.0.2.1", nil, "192.0.2.1"},
		{"an endpoint that is none", "node.example", []string{"192.0.2.2/24"}, "192.0.2.2"},
		{"an endpoint that is not IPv4", "2001:db8::1", nil, ""},
		{"its own IPv4 addresses after it", "192.0.2.1", []string{"2001:db8::2/64", "192.0.2.2/24"}, "192.0.2.1 192.0.2.2"},
		{"each once", "192.0.2.1", []string{"192.0.2.1/24", "192.0.2.1/32"}, "192.0.2.1"},
		{"nothing that is no prefix", "192.0.2.1", []string{"192.0.2.2", "x/24"}, "192.0.2.1"},
		{"no more than are tried", "192.0.2.1", []string{"192.0.2.2/24", "192.0.2.3/24", "192.0.2.4/24", "192.0.2.5/24"}, "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Endpoint: test.endpoint}}
			if test.links != nil {
				machine.Spec.Network = &v1alpha1.MachineNetwork{Links: []v1alpha1.MachineLinkConfig{{Addresses: test.links}}}
			}

			if have := strings.Trim(fmt.Sprint(Of(machine)), "[]"); have != test.want {
				t.Errorf("have %s, want %s", have, test.want)
			}
		})
	}
}
