package discovery

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// owners knows which machine of a namespace has which serial, MAC and UUID: a machine whose UUID changed would otherwise
// become a second one without anybody noticing (T-09).
type owners struct {
	serials, macs map[string][]string
	names         map[string]bool
}

// shared is another machine that has a part of an identity.
type shared struct {
	name, what string
}

func newOwners() *owners {
	return &owners{serials: make(map[string][]string), macs: make(map[string][]string), names: make(map[string]bool)}
}

func (o *owners) add(name string, id v1alpha1.MachineIdentity) {
	if o.names[name] {
		return // identities never change
	}

	o.names[name] = true

	if id.Serial != "" {
		o.serials[id.Serial] = append(o.serials[id.Serial], name)
	}

	for _, mac := range id.MACAddresses {
		o.macs[mac] = append(o.macs[mac], name)
	}
}

// of lists the other machines that have a part of the identity, in the order of their names.
func (o *owners) of(name string, id identity.Identity) []shared {
	what := make(map[string]string)

	if swapped := identity.SwappedUUID(id.UUID); swapped != id.UUID && o.names[swapped] {
		what[swapped] = "has, with its first three fields in the other byte order, the UUID"
	}

	for _, mac := range id.MACs {
		for _, other := range o.macs[mac] {
			what[other] = fmt.Sprintf("has the MAC address %s", mac)
		}
	}

	for _, other := range o.serials[id.Serial] {
		what[other] = fmt.Sprintf("has the serial number %q", id.Serial)
	}

	delete(what, name)

	out := make([]shared, 0, len(what))
	for other, text := range what {
		out = append(out, shared{name: other, what: text})
	}

	slices.SortFunc(out, func(a, b shared) int { return cmp.Compare(a.name, b.name) })

	return out
}
