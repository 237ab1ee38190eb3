package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// ConditionBackInMaintenance is True on a machine that was configured and answers in maintenance mode again: it was
// wiped, or replaced its disk. It is not configured again by itself (T-18).
const ConditionBackInMaintenance = "BackInMaintenance"

// leaving is how long after its configuration a machine may still answer in maintenance mode.
const leaving = time.Minute

var everything = labels.Everything()

// classify decides what an answer is (T-04 to T-07). Its errors are those of API calls.
func (s *sweep) classify(ctx context.Context, a answer) error {
	id := hardware.Identity(a.read)
	machine := s.lookUp(id.UUID)

	if !id.Strong() {
		// Somebody may have registered it by hand, with exactly what it has.
		if machine != nil && hardware.Equal(machine.Spec.Identity, id) {
			return s.observe(ctx, machine, a)
		}

		s.report(weakFinding(a, id))

		return nil
	}

	if machine == nil {
		var err error
		if machine, err = s.register(ctx, a.addr, id); err != nil {
			return err
		}
	}

	// The first one keeps the name: the object is never changed to fit another machine.
	if !hardware.Equal(machine.Spec.Identity, id) {
		s.report(collisionFinding(a, id, machine))

		return nil
	}

	for _, other := range s.sharedWith(machine.Name, id) {
		s.report(conflictFinding(a, id, other))
	}

	return s.observe(ctx, machine, a)
}

// register creates the machine, or returns the one that took the name first: two machines with one UUID in one sweep
// race here, and the API server decides.
func (s *sweep) register(ctx context.Context, addr netip.Addr, id identity.Identity) (*v1alpha1.TalosMachine, error) {
	machines := s.client.TalosV1alpha1().TalosMachines(s.cluster.Namespace)

	created, err := machines.Create(ctx, &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.cluster.Namespace, Name: id.UUID},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: s.cluster.Name},
			Identity:   hardware.Stored(id),
			Endpoint:   addr.String(),
			// Neither approved nor role: both are for people to set (T-03, T-05).
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})

	switch {
	case err == nil:
		s.wrote(created)
		s.count(&s.registered)

		return created, nil
	case apierrors.IsAlreadyExists(err):
		existing, err := machines.Get(ctx, id.UUID, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("machine %s at %s: %w", id.UUID, addr, err)
		}

		s.wrote(existing)

		return existing, nil
	default:
		return nil, fmt.Errorf("machine %s at %s: %w", id.UUID, addr, err)
	}
}

// observe records where a known machine answered and what hardware it has, in its status alone, and only what changed
// (T-06).
func (s *sweep) observe(ctx context.Context, machine *v1alpha1.TalosMachine, a answer) error {
	s.sawAt(machine.Name, a.addr)

	if known := machine.Status.ObservedEndpoint; known != "" && known != a.addr.String() && !a.moved {
		// Whether it moved or has several addresses is known only when every candidate was asked.
		s.mu.Lock()
		s.elsewhere = append(s.elsewhere, a)
		s.mu.Unlock()

		return nil
	}

	machines := s.client.TalosV1alpha1().TalosMachines(s.cluster.Namespace)

	for {
		desired := s.observed(machine, a)
		if equality.Semantic.DeepEqual(machine.Status, desired.Status) {
			return nil
		}

		updated, err := machines.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

		switch {
		case err == nil:
			s.wrote(updated)

			return nil
		case apierrors.IsNotFound(err):
			return nil // deleted meanwhile: the next sweep finds it unseen
		case !apierrors.IsConflict(err):
			return fmt.Errorf("status of machine %s at %s: %w", machine.Name, a.addr, err)
		}

		machine, err = machines.Get(ctx, machine.Name, metav1.GetOptions{})

		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("status of machine %s at %s: %w", desired.Name, a.addr, err)
		case !hardware.Equal(machine.Spec.Identity, hardware.Identity(a.read)):
			return nil // made anew, for another machine
		}

		s.wrote(machine)
	}
}

// observed is the machine with what was seen of it in its status.
func (s *sweep) observed(machine *v1alpha1.TalosMachine, a answer) *v1alpha1.TalosMachine {
	out := machine.DeepCopy()
	status := &out.Status

	status.ObservedEndpoint = a.addr.String()
	status.Hardware = hardware.Describe(a.read)

	if status.Phase == "" && !ptr.Deref(machine.Spec.Approved, false) {
		status.Phase = v1alpha1.MachinePending
	}

	if applied := status.Configuration; applied == nil || applied.AppliedAt == nil {
		status.TalosVersion = a.read.TalosVersion
	} else if now := s.clock.Now(); now.Sub(applied.AppliedAt.Time) > leaving {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               ConditionBackInMaintenance,
			Status:             metav1.ConditionTrue,
			Reason:             "AnswersInMaintenance",
			Message:            "the machine was configured and answers in maintenance mode again: it was wiped or reinstalled; it is not configured again by itself",
			LastTransitionTime: metav1.NewTime(now),
			ObservedGeneration: machine.Generation,
		})
	}

	return out
}

func (s *sweep) wrote(machine *v1alpha1.TalosMachine) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.written[machine.Name] = machine
	s.owners.add(machine.Name, machine.Spec.Identity)
}

func (s *sweep) sawAt(name string, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.seen[name] = append(s.seen[name], addr)
}

func (s *sweep) lookUp(uuid string) *v1alpha1.TalosMachine {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.lookUpLocked(uuid)
}

// lookUpLocked returns the machine of the cluster's namespace that has the name, of whichever cluster it is.
func (s *sweep) lookUpLocked(uuid string) *v1alpha1.TalosMachine {
	if uuid == "" {
		return nil
	}

	if machine := s.written[uuid]; machine != nil {
		return machine
	}

	machine, err := s.machines.TalosMachines(s.cluster.Namespace).Get(uuid)
	if err != nil {
		return nil
	}

	return machine
}

func (s *sweep) sharedWith(name string, id identity.Identity) []shared {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.owners.of(name, id)
}
