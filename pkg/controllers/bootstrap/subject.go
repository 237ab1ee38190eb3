package bootstrap

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/addresses"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// subject is a machine of the cluster, as far as it matters for etcd. Subjects are compared as a whole, so it holds
// nothing that changes by itself.
type subject struct {
	name string
	uid  types.UID
	uuid string
	// addresses are where it may be, the likeliest first.
	addresses []netip.Addr
	// approved control planes are the ones that etcd is for.
	approved bool
	// configured tells that it has its configuration: only such a machine can be bootstrapped.
	configured bool
	// required machines may have an etcd, and nothing is sent before they say that they have none.
	required bool
	// stranger machines are asked once, before the first intent: a store that was restored may have forgotten that they
	// were approved and configured.
	stranger bool
	// recorded is the machine of status.bootstrap, released when it is no longer for us to wait for: it was un-approved or
	// deleted.
	recorded, released bool
	// installing tells that it is not expected to answer yet.
	installing bool
	appliedAt  time.Time
	bundleHash string
}

// eligible tells whether a machine may be bootstrapped.
func (s subject) eligible() bool { return s.approved && s.configured }

// subjects are the machines of a cluster that may have an etcd, or may get the first one, by name.
func subjects(cluster *v1alpha1.TalosCluster, machines []*v1alpha1.TalosMachine) []subject {
	var (
		out      []subject
		recorded = cluster.Status.Bootstrap
		found    bool
	)

	for _, m := range machines {
		if m.Spec.ClusterRef.Name != cluster.Name {
			continue
		}

		s, concerned := subjectOf(m)

		if recorded != nil && recorded.MachineName == m.Name {
			found, concerned = true, true
			s.recorded, s.stranger = true, false
			s.released = !approved(m)
			s.required = !s.released
			s.addresses = appendAddress(s.addresses, recorded.Endpoint)
		}

		if concerned {
			out = append(out, s)
		}
	}

	// Whoever deleted it may have left it running.
	if recorded != nil && recorded.MachineName != "" && !found && identity.ValidUUID(recorded.MachineName) {
		out = append(out, subject{
			name: recorded.MachineName, uuid: recorded.MachineName, addresses: appendAddress(nil, recorded.Endpoint),
			recorded: true, released: true,
		})
	}

	slices.SortFunc(out, func(a, b subject) int { return cmp.Compare(a.name, b.name) })

	return out
}

// subjectOf tells what a machine is here, and whether it is of interest at all.
func subjectOf(m *v1alpha1.TalosMachine) (subject, bool) {
	configuration := ptr.Deref(m.Status.Configuration, v1alpha1.MachineConfiguration{})
	perhapsConfigured := configuration.IntendedAt != nil || configuration.AppliedAt != nil
	controlPlane := m.Spec.Role == v1alpha1.RoleControlPlane

	s := subject{
		name:       m.Name,
		uid:        m.UID,
		uuid:       strings.ToLower(m.Spec.Identity.UUID),
		addresses:  addresses.Of(m),
		approved:   approved(m) && controlPlane,
		configured: configuration.AppliedAt != nil,
		installing: m.Status.Phase == v1alpha1.MachineInstalling || m.Status.Phase == v1alpha1.MachineConfiguring,
		bundleHash: configuration.BundleHash,
	}

	if configuration.AppliedAt != nil {
		s.appliedAt = configuration.AppliedAt.Time
	}

	switch {
	case controlPlane && perhapsConfigured:
		s.required = approved(m)
	case approved(m) && !controlPlane:
		return s, false // a worker has no etcd
	default:
		s.stranger = true
	}

	return s, true
}

func approved(m *v1alpha1.TalosMachine) bool {
	return ptr.Deref(m.Spec.Approved, false) && m.Spec.Rejected == nil && m.DeletionTimestamp.IsZero()
}

func appendAddress(known []netip.Addr, text string) []netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil || len(known) == addresses.Max || slices.Contains(known, addr) {
		return known
	}

	return append(known, addr)
}
