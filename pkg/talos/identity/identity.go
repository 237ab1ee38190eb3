// Package identity decides what a Talos node's hardware identity is worth: which of its parts are real, whether they
// make a strong identity, and whether two of them are one machine (T-04 to T-07). It is pure: nothing here dials.
package identity

import (
	"bytes"
	"encoding/hex"
	"net"
	"regexp"
	"slices"
	"strings"
)

// Part names one part of an identity, in the words of events and conditions.
type Part string

// The parts that a strong identity has (T-04).
const (
	PartUUID   Part = "uuid"
	PartSerial Part = "serial"
	PartMAC    Part = "macAddresses"
)

// Link is what one network link says about itself, as read from the node.
type Link struct {
	// Physical is an ether link that is no bond, VLAN, bridge or the like.
	Physical bool
	// PermanentAddr is the address burnt into the device; empty where there is none.
	PermanentAddr net.HardwareAddr
	// Driver is the name of the kernel driver.
	Driver string
}

// Identity is what identifies a machine, with every part that is absent or a vendor's placeholder left empty.
type Identity struct {
	// UUID is the SMBIOS UUID in canonical lower-case form.
	UUID string
	// Serial is the SMBIOS system serial number.
	Serial string
	// MACs are the permanent MAC addresses, in lower case, sorted and without duplicates.
	MACs []string
}

// New classifies what was read: a placeholder counts as absent (T-04).
func New(uuid, serial string, links []Link) Identity {
	return Identity{UUID: UUID(uuid), Serial: Serial(serial), MACs: MACs(links)}
}

// Missing lists the parts that the identity lacks, in a fixed order; an identity that lacks none is strong (T-04).
func (i Identity) Missing() []Part {
	var missing []Part

	if i.UUID == "" {
		missing = append(missing, PartUUID)
	}

	if i.Serial == "" {
		missing = append(missing, PartSerial)
	}

	if len(i.MACs) == 0 {
		missing = append(missing, PartMAC)
	}

	return missing
}

// Strong tells that the identity may name a machine (T-05).
func (i Identity) Strong() bool { return len(i.Missing()) == 0 }

// Same tells whether two identities are one machine: equal UUID, equal serial, equal set of MACs (T-06). A weak
// identity is the same as nothing, itself included.
func Same(a, b Identity) bool {
	return a.Strong() && b.Strong() && Compare(a, b) == Match{UUID: true, Serial: true, MACs: MACsEqual}
}

// MACRelation tells how two sets of MACs lie to each other.
type MACRelation int

// The relations of two sets of MACs.
const (
	// MACsDisjoint have no address in common, as two boxes have.
	MACsDisjoint MACRelation = iota
	// MACsOverlap have some in common, as one box has before and after a change of network cards.
	MACsOverlap
	// MACsEqual are the same set.
	MACsEqual
)

// Match tells which parts of two identities agree, so that a collision's message can say which do not (T-07).
type Match struct {
	UUID   bool
	Serial bool
	MACs   MACRelation
}

// Compare compares two identities part by part.
func Compare(a, b Identity) Match {
	return Match{UUID: a.UUID == b.UUID, Serial: a.Serial == b.Serial, MACs: relate(a.MACs, b.MACs)}
}

// Explain says what a difference most likely means, for the message of an IdentityCollision (T-07); it is empty when
// nothing differs.
func (m Match) Explain() string {
	switch {
	case m.Serial && m.MACs == MACsEqual:
		return ""
	case m.Serial && m.MACs == MACsOverlap:
		return "it looks like changed hardware: the serial number is the same and some MAC addresses are, as after changed network cards"
	case m.Serial:
		return "it looks like another machine, or all network cards were changed: the serial number is the same but no MAC address is"
	case m.MACs == MACsDisjoint:
		return "it looks like another machine with the same UUID: neither the serial number nor any MAC address is the same"
	default:
		return "it looks like another machine, or its firmware was rewritten: the serial number differs although MAC addresses are the same"
	}
}

func relate(a, b []string) MACRelation {
	setA, setB := toSet(a), toSet(b)

	common := 0

	for mac := range setA {
		if _, ok := setB[mac]; ok {
			common++
		}
	}

	switch {
	case common == len(setA) && common == len(setB):
		return MACsEqual
	case common > 0:
		return MACsOverlap
	default:
		return MACsDisjoint
	}
}

func toSet(macs []string) map[string]struct{} {
	set := make(map[string]struct{}, len(macs))
	for _, mac := range macs {
		set[strings.ToLower(mac)] = struct{}{}
	}

	return set
}

// UUID returns the canonical lower-case UUID, or "" when the text is none or a vendor's placeholder. META can override
// a node's UUID with any text at all, so the form is checked before it names an object.
func UUID(text string) string {
	uuid := strings.ToLower(strings.TrimSpace(text))

	if !uuidForm.MatchString(uuid) || placeholderUUID(uuid) {
		return ""
	}

	return uuid
}

// ValidUUID tells whether a text has the only form in which a UUID names a TalosMachine.
func ValidUUID(text string) bool { return uuidForm.MatchString(text) }

// SwappedUUID returns the UUID with its first three fields in the other byte order, as some firmware screens and
// Redfish show it; "" when the text is no UUID.
func SwappedUUID(text string) string {
	uuid := strings.ToLower(strings.TrimSpace(text))
	if !uuidForm.MatchString(uuid) {
		return ""
	}

	raw, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil {
		return ""
	}

	slices.Reverse(raw[0:4])
	slices.Reverse(raw[4:6])
	slices.Reverse(raw[6:8])

	s := hex.EncodeToString(raw)

	return strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")
}

// Serial returns the trimmed serial number, or "" when it is a vendor's placeholder.
func Serial(text string) string {
	serial := strings.TrimSpace(text)

	// Vendors vary in case and blanks, and nothing else.
	if placeholderSerial(strings.ToLower(strings.Join(strings.Fields(serial), " "))) {
		return ""
	}

	return serial
}

// MACs returns the permanent MAC addresses that identify the machine, sorted and without duplicates.
func MACs(links []Link) []string {
	var universal, local []string

	for _, link := range links {
		if !link.Physical || hostInterfaceDriver(link.Driver) || !unicastMAC(link.PermanentAddr) {
			continue
		}

		// The second lowest bit of the first byte marks an address that no vendor has assigned (IEEE 802, clause 8.2).
		// libvirt's 52:54:00 is one and still unique per VM: such addresses count when there are no others.
		if link.PermanentAddr[0]&0x02 != 0 {
			local = append(local, link.PermanentAddr.String())
		} else {
			universal = append(universal, link.PermanentAddr.String())
		}
	}

	macs := universal
	if len(macs) == 0 {
		macs = local
	}

	slices.Sort(macs)

	return slices.Compact(macs)
}

func unicastMAC(mac net.HardwareAddr) bool {
	return len(mac) == 6 && !bytes.Equal(mac, make([]byte, 6)) && mac[0]&0x01 == 0
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
