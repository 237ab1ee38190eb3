// Package hardware brings what a machine says of itself in maintenance mode into the form in which it is stored.
package hardware

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

// The bounds of the stored form; a peer that exceeds them must not make its object invalid.
const (
	maxUUID = 128
	maxMACs = 64
	maxList = 64
)

// Identity is the classified identity of what was read. Of more MACs than can be stored the first in order count, here
// and in every comparison.
func Identity(read maintenance.Hardware) identity.Identity {
	id := read.Identity()
	id.MACs = id.MACs[:min(len(id.MACs), maxMACs)]

	return id
}

// Stored is an identity in the form of the API.
func Stored(id identity.Identity) v1alpha1.MachineIdentity {
	return v1alpha1.MachineIdentity{UUID: id.UUID, Serial: id.Serial, MACAddresses: slices.Clone(id.MACs)}
}

// AsRead is what was read, placeholders and malformed values included, within the bounds of the stored form (T-04).
func AsRead(read maintenance.Hardware) v1alpha1.MachineIdentity {
	return v1alpha1.MachineIdentity{
		UUID:         strings.ToValidUTF8(read.UUID[:min(len(read.UUID), maxUUID)], ""),
		Serial:       read.Serial,
		MACAddresses: Identity(read).MACs,
	}
}

// FromStored is the identity that an object has.
func FromStored(stored v1alpha1.MachineIdentity) identity.Identity {
	macs := slices.Clone(stored.MACAddresses)
	slices.Sort(macs)

	return identity.Identity{UUID: stored.UUID, Serial: stored.Serial, MACs: macs}
}

// Equal tells whether the machine that answered is the one that an object describes: UUID, serial and set of MACs are
// equal. Unlike identity.Same it also holds for a machine without a serial that somebody registered by hand, with
// exactly that identity; a UUID and one more part are always needed (T-06, T-18).
func Equal(stored v1alpha1.MachineIdentity, read identity.Identity) bool {
	have := FromStored(stored)

	return identity.ValidUUID(read.UUID) && len(read.Missing()) <= 1 &&
		identity.Compare(have, read) == identity.Match{UUID: true, Serial: true, MACs: identity.MACsEqual}
}

// Describe is what an approver needs to see of a machine, in a fixed order, so that equal hardware is stored once.
func Describe(read maintenance.Hardware) *v1alpha1.MachineHardware {
	out := &v1alpha1.MachineHardware{
		Manufacturer: read.Manufacturer,
		Product:      read.Product,
		Fingerprint:  read.Fingerprint,
	}

	disks := Disks(read)
	out.Disks = disks[:min(len(disks), maxList)]

	for _, link := range read.Links {
		if !link.Physical {
			continue
		}

		out.Links = append(out.Links, v1alpha1.MachineLink{
			Name:         link.Name,
			PermanentMAC: link.PermanentAddr,
			Driver:       link.Driver,
			Up:           link.Up,
		})
	}

	slices.SortStableFunc(out.Links, func(a, b v1alpha1.MachineLink) int { return cmp.Compare(a.Name, b.Name) })

	out.Links = out.Links[:min(len(out.Links), maxList)]

	return out
}

// Disks are all disks that something can be installed on, by their paths. An object lists the first of them only.
func Disks(read maintenance.Hardware) []v1alpha1.MachineDisk {
	var out []v1alpha1.MachineDisk

	for _, disk := range read.Disks {
		// Nothing can be installed on one.
		if disk.CDROM {
			continue
		}

		out = append(out, v1alpha1.MachineDisk{
			Path:       disk.DevPath,
			SizeBytes:  int64(min(disk.SizeBytes, math.MaxInt64)),
			Model:      disk.Model,
			Serial:     disk.Serial,
			WWID:       disk.WWID,
			Transport:  disk.Transport,
			Rotational: disk.Rotational,
			BusPath:    disk.BusPath,
		})
	}

	slices.SortStableFunc(out, func(a, b v1alpha1.MachineDisk) int { return cmp.Compare(a.Path, b.Path) })

	return out
}

// Target is an address together with the only port that is ever dialed (T-02).
func Target(addr netip.Addr) string {
	return netip.AddrPortFrom(addr, ranges.Port).String()
}
