package hardware

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// ConditionSharesHardware is True on a machine that has a part of the hardware of another one of its namespace, which
// was registered before it: most likely one machine whose UUID changed. It stands only as long as that is so.
const ConditionSharesHardware = "SharesHardware"

// Sharing is what a machine has in common with another one that has a UUID of its own.
type Sharing struct {
	// Machine is the name of the other one.
	Machine string
	// Serial is the serial number of both, "" where theirs differ or are none.
	Serial string
	// MACs are the MAC addresses of both, sorted.
	MACs []string
	// Swapped tells that the UUIDs are one in the two byte orders in which SMBIOS is printed.
	Swapped bool
}

// EarlierSharers lists those of a namespace's machines that were registered before a machine and share its serial
// number, a MAC address or, in the other byte order, its UUID; the earliest first. Of two machines that share hardware
// it is thus always one that is told, the later one: by creationTimestamp and, within its second, by name.
func EarlierSharers(machine *v1alpha1.TalosMachine, namespace []*v1alpha1.TalosMachine) []Sharing {
	var earlier []*v1alpha1.TalosMachine

	for _, other := range namespace {
		if other.Namespace == machine.Namespace && Earlier(other, machine) {
			earlier = append(earlier, other)
		}
	}

	slices.SortFunc(earlier, registered)

	var out []Sharing

	for _, other := range earlier {
		if sharing := share(machine.Spec.Identity, other.Spec.Identity); sharing.any() {
			sharing.Machine = other.Name
			out = append(out, sharing)
		}
	}

	return out
}

// Earlier tells whether a machine was registered before another one.
func Earlier(a, b *v1alpha1.TalosMachine) bool { return registered(a, b) < 0 }

func registered(a, b *v1alpha1.TalosMachine) int {
	return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// SharedParts are the parts of a machine's identity that another machine must not have, as keys of an index: machines of
// a namespace share hardware when they have a key in common, and only then.
func SharedParts(machine *v1alpha1.TalosMachine) []string {
	id := machine.Spec.Identity

	var keys []string

	if swapped := identity.SwappedUUID(id.UUID); swapped != "" {
		keys = append(keys, "uuid "+min(id.UUID, swapped))
	}

	if serial := identity.Serial(id.Serial); serial != "" {
		keys = append(keys, "serial "+serial)
	}

	for _, mac := range id.MACAddresses {
		keys = append(keys, "mac "+strings.ToLower(mac))
	}

	return keys
}

func share(a, b v1alpha1.MachineIdentity) Sharing {
	var out Sharing

	// Somebody may have registered a placeholder by hand: half a plant may have it.
	if serial := identity.Serial(a.Serial); serial == identity.Serial(b.Serial) {
		out.Serial = serial
	}

	theirs := make(map[string]bool, len(b.MACAddresses))
	for _, mac := range b.MACAddresses {
		theirs[strings.ToLower(mac)] = true
	}

	for _, mac := range a.MACAddresses {
		if mac = strings.ToLower(mac); theirs[mac] {
			out.MACs = append(out.MACs, mac)
		}
	}

	slices.Sort(out.MACs)
	out.MACs = slices.Compact(out.MACs)

	out.Swapped = a.UUID != b.UUID && identity.SwappedUUID(a.UUID) == b.UUID && b.UUID != ""

	return out
}

func (s Sharing) any() bool { return s.Serial != "" || len(s.MACs) > 0 || s.Swapped }

// String reads as what a machine has, as in `the serial number "S" of machine M`.
func (s Sharing) String() string {
	var parts []string

	if s.Serial != "" {
		parts = append(parts, fmt.Sprintf("the serial number %q", s.Serial))
	}

	switch n := len(s.MACs); {
	case n == 1:
		parts = append(parts, "the MAC address "+s.MACs[0])
	case n > 1 && n <= 4:
		parts = append(parts, "the MAC addresses "+strings.Join(s.MACs, ", "))
	case n > 4:
		parts = append(parts, fmt.Sprintf("%d MAC addresses, such as %s,", n, s.MACs[0]))
	}

	if s.Swapped {
		parts = append(parts, "the UUID, with its first three fields in the other byte order,")
	}

	return strings.Join(parts, " and ") + " of machine " + s.Machine
}

// ExplainSharing says of what machines a machine has a part, for conditions and Events; it names each of them up to a
// number that nobody would compare.
func ExplainSharing(with []Sharing) string {
	const named = 8

	texts := make([]string, 0, named+1)
	for _, one := range with[:min(len(with), named)] {
		texts = append(texts, one.String())
	}

	if len(with) > named {
		texts = append(texts, "and parts of others")
	}

	return "it has " + strings.Join(texts, "; ")
}
