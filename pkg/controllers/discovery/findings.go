package discovery

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

// Reasons of the Warning Events on a TalosCluster.
const (
	// ReasonWeakIdentity: a machine lacks a part of its identity; nothing was created (T-04).
	ReasonWeakIdentity = "WeakIdentity"
	// ReasonIdentityCollision: a machine answers with the UUID of another; nothing was created or changed (T-07).
	ReasonIdentityCollision = string(v1alpha1.FindingIdentityCollision)
	// ReasonIdentityClaimed: a machine answers with the UUID of one in another namespace; nothing was created.
	ReasonIdentityClaimed = string(v1alpha1.FindingIdentityClaimed)
	// ReasonSharesHardware: a machine with a UUID of its own has the serial number or a MAC address of one that was
	// registered before.
	ReasonSharesHardware = string(v1alpha1.FindingSharesHardware)
)

const (
	// maxFindings bounds each list in status.discovery.
	maxFindings = 32
	// repeatEvent is how long a finding that stays is told once (T-09).
	repeatEvent = time.Hour
	// maxStanding bounds the findings of a cluster that are remembered: a peer may show another identity each time.
	maxStanding = 2 * ranges.MaxCandidates
)

// findingKey is what makes two findings one: the same machine, as far as it can be told, at the same address, for the
// same reason.
type findingKey struct {
	addr   string
	read   string
	holder string
}

// finding is something an operator has to see.
type finding struct {
	key     findingKey
	addr    netip.Addr
	reason  string
	message string
	// At most one of the two is set: the line in the status.
	weak      *v1alpha1.WeakCandidate
	collision *v1alpha1.IdentityCollision
}

func keyFor(addr string, read v1alpha1.MachineIdentity, holder string) findingKey {
	return findingKey{
		addr:   addr,
		read:   strings.Join(append([]string{read.UUID, read.Serial}, read.MACAddresses...), "|"),
		holder: holder,
	}
}

func weakFinding(a answer, id identity.Identity) finding {
	read := hardware.AsRead(a.read)

	missing := make([]string, 0, 3)
	for _, part := range id.Missing() {
		missing = append(missing, string(part))
	}

	hint := identity.Hint(a.read.Manufacturer, a.read.Product, id.Missing())

	return finding{
		key:    keyFor(a.addr.String(), read, ""),
		addr:   a.addr,
		reason: ReasonWeakIdentity,
		message: fmt.Sprintf("%s: no usable %s, so nothing was registered; read %s, manufacturer %q, product %q. %s",
			a.addr, strings.Join(missing, ", "), describe(read), a.read.Manufacturer, a.read.Product, hint),
		weak: &v1alpha1.WeakCandidate{
			Address:      a.addr.String(),
			Identity:     read,
			Manufacturer: a.read.Manufacturer,
			Missing:      missing,
			Hint:         hint,
		},
	}
}

func collisionFinding(a answer, id identity.Identity, holder *v1alpha1.TalosMachine) finding {
	message := fmt.Sprintf("%s answers with the UUID of machine %s, which stays as it is; nothing was registered: %s. Read %s; the machine has %s",
		a.addr, holder.Name, identity.Compare(hardware.FromStored(holder.Spec.Identity), id).Explain(),
		describe(hardware.Stored(id)), describe(holder.Spec.Identity))

	return collided(a, id, ReasonIdentityCollision, holder.Name, message)
}

// replayedFinding is of one that shows the identity of a machine that runs somewhere else.
func replayedFinding(a answer, holder *v1alpha1.TalosMachine) finding {
	id := hardware.Identity(a.read)
	message := fmt.Sprintf("%s answers in maintenance mode with the whole identity of machine %s, which is configured and was just heard from itself; that stays as it is: "+
		"find out what answers at %s. Read %s", a.addr, holder.Name, a.addr, describe(hardware.Stored(id)))

	return collided(a, id, ReasonIdentityCollision, holder.Name, message)
}

// claimedFinding says nothing about the other namespace, nor about what it has (P-12).
func claimedFinding(a answer, id identity.Identity) finding {
	message := fmt.Sprintf("%s answers with a UUID that a machine of another namespace has; nothing was registered here. "+
		"One of the two namespaces declares an address that is not its own, or two machines have one UUID. Read %s",
		a.addr, describe(hardware.Stored(id)))

	return collided(a, id, ReasonIdentityClaimed, id.UUID, message)
}

func collided(a answer, id identity.Identity, reason, holder, message string) finding {
	read := hardware.Stored(id)

	return finding{
		key:     keyFor(a.addr.String(), read, holder),
		addr:    a.addr,
		reason:  reason,
		message: message,
		collision: &v1alpha1.IdentityCollision{
			Address:     a.addr.String(),
			Identity:    read,
			MachineName: holder,
			Message:     notice.Bounded(message),
			Reason:      v1alpha1.IdentityFinding(reason),
		},
	}
}

// sharingFinding is one finding wherever the machine answers, if it does, and reads the same whoever comes upon it first: the
// sweep, or the informer that saw what the sweep wrote. The condition is the machine's.
func sharingFinding(machine *v1alpha1.TalosMachine, with []hardware.Sharing) finding {
	return finding{
		key:     sharingKey(machine.Name, with[0].Machine),
		reason:  ReasonSharesHardware,
		message: fmt.Sprintf("machine %s shares hardware: %s", machine.Name, explainSharing(with)),
	}
}

func sharingFindingAt(addr netip.Addr, machine *v1alpha1.TalosMachine, with []hardware.Sharing) finding {
	f := sharingFinding(machine, with)
	f.addr = addr
	f.collision = &v1alpha1.IdentityCollision{
		Address:     addr.String(),
		Identity:    machine.Spec.Identity,
		MachineName: with[0].Machine,
		Message:     notice.Bounded(f.message),
		Reason:      v1alpha1.FindingSharesHardware,
	}

	return f
}

func sharingKey(machine, holder string) findingKey {
	return findingKey{read: machine, holder: holder}
}

func explainSharing(with []hardware.Sharing) string {
	return hardware.ExplainSharing(with) +
		", registered before: most likely one machine whose UUID changed, or a part that moved. Compare them before approving either"
}

func describe(id v1alpha1.MachineIdentity) string {
	const shown = 4

	macs := id.MACAddresses
	more := ""

	if len(macs) > shown {
		more = fmt.Sprintf(" and %d more", len(macs)-shown)
		macs = macs[:shown]
	}

	if len(macs) == 0 {
		more = "none"
	}

	return fmt.Sprintf("uuid %q, serial %q, MAC addresses %s%s", id.UUID, id.Serial, strings.Join(macs, " "), more)
}

// report tells a finding to the operator: an Event now, unless it was told within the last hour, and a line in the
// status when the sweep ends (T-09).
func (s *sweep) report(f finding) {
	s.mu.Lock()
	_, dup := s.found[f.key]
	s.found[f.key] = f
	s.mu.Unlock()

	if !dup {
		s.tell(s.cluster, f)
	}
}

func (c *Controller) tell(cluster *v1alpha1.TalosCluster, f finding) {
	if c.findings.due(cluster, f.key, c.clock.Now()) {
		c.recorder.Event(reference(cluster), corev1.EventTypeWarning, f.reason, notice.Bounded(f.message))
	}
}

// reference names the cluster whatever scheme the recorder has.
func reference(cluster *v1alpha1.TalosCluster) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion:      v1alpha1.SchemeGroupVersion.String(),
		Kind:            "TalosCluster",
		Namespace:       cluster.Namespace,
		Name:            cluster.Name,
		UID:             cluster.UID,
		ResourceVersion: cluster.ResourceVersion,
	}
}

// findings remembers, for each cluster, since when a finding stands and when it was last told.
type findings struct {
	mu       sync.Mutex
	clusters map[types.UID]map[findingKey]*standing
}

type standing struct {
	since, told, seen time.Time
}

func newFindings() *findings {
	return &findings{clusters: make(map[types.UID]map[findingKey]*standing)}
}

// remember takes over what the status of a cluster says, for instance after a restart: it was told then, so that it is
// not told again at once.
func (f *findings) remember(cluster *v1alpha1.TalosCluster, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.clusters[cluster.UID] != nil {
		return
	}

	known := make(map[findingKey]*standing)
	f.clusters[cluster.UID] = known

	discovery := cluster.Status.Discovery
	if discovery == nil {
		return
	}

	take := func(key findingKey, seenAt *metav1.Time) {
		if seenAt != nil {
			known[key] = &standing{since: seenAt.Time, told: now, seen: now}
		}
	}

	for _, w := range discovery.Weak {
		take(keyFor(w.Address, w.Identity, ""), w.SeenAt)
	}

	for _, c := range discovery.Collisions {
		if c.Reason == v1alpha1.FindingSharesHardware {
			take(sharingKey(c.Identity.UUID, c.MachineName), c.SeenAt)
		} else {
			take(keyFor(c.Address, c.Identity, c.MachineName), c.SeenAt)
		}
	}
}

// forget drops what has not been seen for so long that it may be told anew.
func (f *findings) forget(cluster *v1alpha1.TalosCluster, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for key, s := range f.clusters[cluster.UID] {
		if now.Sub(s.seen) >= repeatEvent {
			delete(f.clusters[cluster.UID], key)
		}
	}
}

// drop forgets clusters that are gone.
func (f *findings) drop(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()

	delete(f.clusters, uid)
}

// due tells whether a finding is to be told now, and takes it as told then.
func (f *findings) due(cluster *v1alpha1.TalosCluster, key findingKey, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	known := f.clusters[cluster.UID]
	if known == nil {
		known = make(map[findingKey]*standing)
		f.clusters[cluster.UID] = known
	}

	s := known[key]
	if s == nil {
		if len(known) >= maxStanding {
			dropLongestUnseen(known)
		}

		known[key] = &standing{since: now, told: now, seen: now}

		return true
	}

	s.seen = now

	if now.Sub(s.told) < repeatEvent {
		return false
	}

	s.told = now

	return true
}

func dropLongestUnseen(known map[findingKey]*standing) {
	var (
		longest findingKey
		since   time.Time
	)

	for key, s := range known {
		if since.IsZero() || s.seen.Before(since) {
			longest, since = key, s.seen
		}
	}

	delete(known, longest)
}

// lists are the findings of one sweep in the form of the status: newest first, and among equally old ones in the order
// of addresses.
func (f *findings) lists(cluster *v1alpha1.TalosCluster, found map[findingKey]finding) ([]v1alpha1.WeakCandidate, []v1alpha1.IdentityCollision) {
	f.mu.Lock()
	defer f.mu.Unlock()

	type dated struct {
		finding
		since time.Time
	}

	all := make([]dated, 0, len(found))
	for key, one := range found {
		// Of a cluster that was deleted amidst the sweep nothing is known any more, and nobody will read the lists.
		if standing := f.clusters[cluster.UID][key]; standing != nil {
			all = append(all, dated{finding: one, since: standing.since})
		}
	}

	slices.SortFunc(all, func(a, b dated) int {
		return cmp.Or(b.since.Compare(a.since), a.addr.Compare(b.addr), cmp.Compare(a.key.holder, b.key.holder), cmp.Compare(a.key.read, b.key.read))
	})

	var (
		weak       []v1alpha1.WeakCandidate
		collisions []v1alpha1.IdentityCollision
	)

	for _, one := range all {
		seenAt := metav1.NewTime(one.since)

		switch {
		case one.weak != nil && len(weak) < maxFindings:
			w := *one.weak
			w.SeenAt = &seenAt
			weak = append(weak, w)
		case one.collision != nil && len(collisions) < maxFindings:
			c := *one.collision
			c.SeenAt = &seenAt
			collisions = append(collisions, c)
		}
	}

	return weak, collisions
}
