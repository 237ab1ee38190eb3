// Package addresses tells where a configured machine may answer.
package addresses

import (
	"net/netip"
	"slices"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// Max is how many addresses of a machine are tried at most: each that is silent costs time.
const Max = 4

// Of lists spec.endpoint first, then the IPv4 addresses that the machine's approved network gives it, which may be others than
// the one at which it waited in maintenance mode. Reading a machine there is safe, since it has to prove who it is; what is
// sent goes to spec.endpoint alone (T-06).
func Of(machine *v1alpha1.TalosMachine) []netip.Addr {
	var out []netip.Addr

	add := func(addr netip.Addr, err error) {
		if err == nil && addr.Is4() && len(out) < Max && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}

	add(netip.ParseAddr(machine.Spec.Endpoint))

	if machine.Spec.Network == nil {
		return out
	}

	for _, link := range machine.Spec.Network.Links {
		for _, address := range link.Addresses {
			prefix, err := netip.ParsePrefix(address)
			add(prefix.Addr(), err)
		}
	}

	return out
}
