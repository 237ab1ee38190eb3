package discovery

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
)

// The indexes of the informer of machines.
const (
	// byName finds the machines of a name, which is a UUID, in all namespaces.
	byName = "discovery-name"
	// byPart finds the machines of a namespace with one part of an identity.
	byPart = "discovery-part"
)

// addIndexes adds what is not there from an earlier controller of the process.
func addIndexes(informer cache.SharedIndexInformer) error {
	missing := cache.Indexers{
		byName: func(obj any) ([]string, error) {
			if machine, ok := obj.(*v1alpha1.TalosMachine); ok {
				return []string{machine.Name}, nil
			}

			return nil, nil
		},
		byPart: func(obj any) ([]string, error) {
			machine, ok := obj.(*v1alpha1.TalosMachine)
			if !ok {
				return nil, nil
			}

			return parts(machine), nil
		},
	}

	for name := range informer.GetIndexer().GetIndexers() {
		delete(missing, name)
	}

	if len(missing) == 0 {
		return nil
	}

	return informer.AddIndexers(missing)
}

func parts(machine *v1alpha1.TalosMachine) []string {
	keys := hardware.SharedParts(machine)
	for i := range keys {
		keys[i] = machine.Namespace + "/" + keys[i]
	}

	return keys
}

// with lists the machines that have one part of an identity, as far as they are known.
func (c *Controller) with(part string) []*v1alpha1.TalosMachine {
	objects, err := c.machineInformer.GetIndexer().ByIndex(byPart, part)
	if err != nil {
		return nil // Run has said so
	}

	machines := make([]*v1alpha1.TalosMachine, 0, len(objects))

	for _, object := range objects {
		if machine, ok := object.(*v1alpha1.TalosMachine); ok {
			machines = append(machines, machine)
		}
	}

	return machines
}

// enough is how many machines that share hardware with one are looked for; whoever has as many, hundreds perhaps with one
// and the same serial number, is flagged as it is, and no more of them are named.
const enough = 16

// sharers are earlier machines with a part of a machine, of those that with finds.
func sharers(machine *v1alpha1.TalosMachine, with func(part string) []*v1alpha1.TalosMachine) []hardware.Sharing {
	found := make(map[string]*v1alpha1.TalosMachine)

	for _, part := range parts(machine) {
		for _, other := range with(part) {
			if hardware.Earlier(other, machine) {
				found[other.Name] = other
			}
		}

		if len(found) >= enough {
			break
		}
	}

	earliest := slices.SortedFunc(maps.Values(found), func(a, b *v1alpha1.TalosMachine) int {
		if hardware.Earlier(a, b) {
			return -1
		}

		return 1
	})

	return hardware.EarlierSharers(machine, earliest[:min(len(earliest), enough)])
}

// tellSharing keeps a machine's condition SharesHardware right when it is not this sweep that finds it: the machine, or
// the other one, was registered by hand or deleted.
func (c *Controller) tellSharing(ctx context.Context, key types.NamespacedName) error {
	machine, err := c.machines.TalosMachines(key.Namespace).Get(key.Name)
	if err != nil {
		return nil //nolint:nilerr // gone
	}

	sharing := sharers(machine, c.with)

	desired := machine.DeepCopy()
	c.setSharing(desired, sharing)

	if equality.Semantic.DeepEqual(machine.Status, desired.Status) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()

	_, err = c.client.TalosV1alpha1().TalosMachines(key.Namespace).UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}

		return fmt.Errorf("status of machine %s: %w", key, err)
	}

	if len(sharing) == 0 {
		return nil
	}

	// The Event stands with the cluster's other findings. Without a cluster there is nobody to tell.
	if cluster, err := c.clusters.TalosClusters(key.Namespace).Get(machine.Spec.ClusterRef.Name); err == nil {
		c.findings.remember(cluster, c.clock.Now())
		c.tell(cluster, sharingFinding(machine, sharing))
	}

	return nil
}

// sharing is what a machine shares with earlier ones, as this sweep knows them: the informer may not have yet what it
// has written itself.
func (s *sweep) sharing(machine *v1alpha1.TalosMachine) []hardware.Sharing {
	return sharers(machine, func(part string) []*v1alpha1.TalosMachine {
		known := s.with(part)

		s.mu.Lock()
		defer s.mu.Unlock()

		for _, name := range s.byPart[part] {
			if written := s.written[name]; written != nil {
				known = append(known, written)
			}
		}

		return known
	})
}

// reportSharing tells of the machines that answered and share hardware with an earlier one. It comes last: of two that
// were registered in one second either may be the later one.
func (s *sweep) reportSharing() {
	s.mu.Lock()
	at := make(map[*v1alpha1.TalosMachine]netip.Addr, len(s.seen))

	for name, addrs := range s.seen {
		if machine := s.lookUpLocked(name); machine != nil {
			at[machine] = slices.MinFunc(addrs, netip.Addr.Compare)
		}
	}
	s.mu.Unlock()

	for machine, addr := range at {
		if sharing := s.sharing(machine); len(sharing) > 0 {
			s.report(sharingFindingAt(addr, machine, sharing))
		}
	}
}

// setSharing sets the condition, or takes it away.
func (c *Controller) setSharing(machine *v1alpha1.TalosMachine, sharing []hardware.Sharing) {
	if len(sharing) == 0 {
		meta.RemoveStatusCondition(&machine.Status.Conditions, hardware.ConditionSharesHardware)

		return
	}

	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type:   hardware.ConditionSharesHardware,
		Status: metav1.ConditionTrue,
		Reason: ReasonSharesHardware,
		// It does not speak of a generation: what the machine is never changes.
		Message:            notice.Bounded(explainSharing(sharing)),
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
}
