package discovery

import (
	"net/netip"
	"sync"
	"time"

	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// classSilent is an address that took a connection and then let all of the time pass; to everybody else it is
// unreachable (T-09).
const classSilent maintenance.Class = "Silent"

// addressBook remembers what addresses answered, so that a sweep need not find it out again. It holds only those that
// answered at all.
type addressBook struct {
	mu      sync.Mutex
	entries map[netip.Addr]*addressEntry
}

type addressEntry struct {
	// answered tells that something spoke TLS here: it is not pre-dialed any more.
	answered bool
	// absent counts the sweeps in a row in which a machine had no system information.
	absent int
	// idle counts the asks in a row that were of no use: a configured node answered, or nothing came although a
	// connection was taken. skipUntil is when to ask again.
	idle      int
	skipUntil time.Time
}

func newAddressBook() *addressBook {
	return &addressBook{entries: make(map[netip.Addr]*addressEntry)}
}

// maxSkip bounds how long an address is not asked because asking was of no use: that long a machine that was wiped may
// stay unseen.
const maxSkip = 5 * time.Minute

// answeredBefore tells whether an address deserves the whole time without a pre-dial (T-08).
func (b *addressBook) answeredBefore(addr netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	entry := b.entries[addr]

	return entry != nil && entry.answered
}

// skip tells that an address is left out of a periodic sweep: each ask leaves a line in the log of a configured node,
// and costs the sweep two seconds where a connection is taken in silence.
func (b *addressBook) skip(addr netip.Addr, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	entry := b.entries[addr]

	return entry != nil && now.Before(entry.skipUntil)
}

// note keeps what came of asking an address, and tells how many times in a row the answer had no system information.
func (b *addressBook) note(addr netip.Addr, class maintenance.Class, now time.Time) (absent int) {
	b.mu.Lock()
	defer b.mu.Unlock()

	entry := b.entries[addr]
	if entry == nil {
		if class == maintenance.ClassUnreachable {
			return 0
		}

		entry = &addressEntry{}
		b.entries[addr] = entry
	}

	entry.skipUntil = time.Time{}

	switch class {
	case maintenance.ClassUnreachable, maintenance.ClassNodeError:
		// It may be booting: what is known of it stays.
		return entry.absent
	case maintenance.ClassIdentityAbsent:
		entry.answered = true
		entry.absent++
		entry.idle = 0
	case maintenance.ClassNotInMaintenance:
		entry.answered = true
		entry.absent = 0
		entry.backOff(now)
	case classSilent:
		entry.backOff(now)
	case maintenance.ClassNotTalos:
		entry.absent, entry.idle = 0, 0
	default: // an identity was read
		entry.answered = true
		entry.absent, entry.idle = 0, 0
	}

	return entry.absent
}

func (e *addressEntry) backOff(now time.Time) {
	e.idle++
	// The first time changes nothing: a sweep comes every Interval.
	e.skipUntil = now.Add(min(time.Duration(e.idle-1)*Interval+Interval/2, maxSkip))
}
