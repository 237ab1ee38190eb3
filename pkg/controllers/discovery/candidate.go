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
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
)

// ConditionBackInMaintenance is True on a machine that was configured and answers in maintenance mode again: it was
// wiped, or replaced its disk. It is not configured again by itself (T-18).
const ConditionBackInMaintenance = "BackInMaintenance"

// leaving is how long after its configuration a machine may still answer in maintenance mode.
const leaving = time.Minute

// classify decides what an answer is (T-04 to T-07). Its errors are those of API calls.
func (s *sweep) classify(ctx context.Context, a answer) error {
	id := hardware.Identity(a.read)

	machine, unsure := s.lookUp(id.UUID)
	if unsure {
		var err error
		if machine, err = s.get(ctx, id.UUID); err != nil {
			return err
		}
	}

	if !id.Strong() {
		// Somebody may have registered it by hand, with exactly what it has.
		if machine != nil && hardware.Equal(machine.Spec.Identity, id) {
			return s.observe(ctx, machine, a)
		}

		s.report(weakFinding(a, id))

		return nil
	}

	if machine == nil {
		elsewhere, err := s.heldElsewhere(ctx, id.UUID)

		switch {
		case err != nil:
			return err
		case elsewhere:
			s.report(claimedFinding(a, id))

			return nil
		case s.creations.mayComeTrue(id.UUID, s.cluster.Namespace, s.clock.Now()):
			return nil // who has it is known at a later sweep
		}

		if machine, err = s.register(ctx, a.addr, id); err != nil {
			return err
		}
	}

	s.countLate(machine, a.addr)

	// The first one keeps the name: the object is never changed to fit another machine.
	if !hardware.Equal(machine.Spec.Identity, id) {
		s.report(collisionFinding(a, id, machine))

		return nil
	}

	return s.observe(ctx, machine, a)
}

// maxWaiting is how many machines of a cluster may be there that nobody approved, before no other is registered: twice as
// many as it can declare addresses. One peer that shows another identity in every sweep would else fill the store, and then
// nothing of any plant could be written.
const maxWaiting = 2 * ranges.MaxCandidates

// tooManyError is the error for a machine that is one too many to be registered.
type tooManyError struct {
	waiting int
	addr    netip.Addr
}

func (e *tooManyError) Error() string {
	return fmt.Sprintf("%d machines of this cluster are not approved, so the one at %s is not registered: approve those that are meant, and delete the others; an address at which ever new ones answer is no machine",
		e.waiting, e.addr)
}

// waiting counts the cluster's machines that nobody approved.
func (s *sweep) waiting() int {
	machines, err := s.machines.TalosMachines(s.cluster.Namespace).List(labels.Everything())
	if err != nil {
		return 0 // a lister of a cache does not fail
	}

	waiting := 0

	for _, machine := range machines {
		if machine.Spec.ClusterRef.Name == s.cluster.Name && !ptr.Deref(machine.Spec.Approved, false) {
			waiting++
		}
	}

	return waiting
}

// register creates the machine, or returns the one that took the name first: two machines with one UUID in one sweep
// race here, and the API server decides.
func (s *sweep) register(ctx context.Context, addr netip.Addr, id identity.Identity) (*v1alpha1.TalosMachine, error) {
	if waiting := s.waiting(); waiting >= maxWaiting {
		return nil, &tooManyError{waiting: waiting, addr: addr}
	}

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
		s.mu.Lock()
		s.wroteLocked(created)
		s.registered++
		delete(s.creating, created.Name)
		s.mu.Unlock()

		return created, nil
	case apierrors.IsAlreadyExists(err):
		existing, err := s.get(ctx, id.UUID)
		if err == nil && existing == nil {
			err = fmt.Errorf("machine %s at %s: deleted again at once", id.UUID, addr)
		}

		return existing, err
	default:
		s.mu.Lock()
		s.creating[id.UUID] = addr
		s.mu.Unlock()

		if worthAnotherAttempt(err) {
			s.creations.lost(id.UUID, s.cluster.Namespace, s.clock.Now())
		}

		return nil, fmt.Errorf("machine %s at %s: %w", id.UUID, addr, err)
	}
}

// countLate counts a machine whose creation succeeded although its answer came too late.
func (s *sweep) countLate(machine *v1alpha1.TalosMachine, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.creating[machine.Name] == addr && machine.Spec.Endpoint == addr.String() {
		delete(s.creating, machine.Name)
		s.registered++
	}
}

// observe records where a known machine answered and what hardware it has, in its status alone, and only what changed
// (T-06).
func (s *sweep) observe(ctx context.Context, machine *v1alpha1.TalosMachine, a answer) error {
	// Who waits in maintenance mode can say anything; the machine that is meant has shown a certificate of its cluster.
	if proved(machine) && a.addr.String() != machine.Spec.Endpoint {
		s.report(replayedFinding(a, machine))

		return nil
	}

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

		machine, err = s.get(ctx, machine.Name)

		switch {
		case err != nil:
			return err
		case machine == nil, !hardware.Equal(machine.Spec.Identity, hardware.Identity(a.read)):
			return nil // deleted, or made anew for another machine
		}
	}
}

// proved tells whether a machine with a configuration was heard as such when it was last looked at, at most a minute ago:
// over mutual TLS, under its UUID. These are the reasons of its condition Ready for which that is so.
func proved(machine *v1alpha1.TalosMachine) bool {
	applied, ready := machine.Status.Configuration, meta.FindStatusCondition(machine.Status.Conditions, "Ready")
	if applied == nil || applied.AppliedAt == nil || ready == nil {
		return false
	}

	switch ready.Reason {
	case "Ready", "NotReady", "NotRunning", "AwaitingBootstrap":
		return true
	}

	return false
}

// get reads a machine, nil when there is none. Until that works, nothing else is tried.
func (s *sweep) get(ctx context.Context, uuid string) (*v1alpha1.TalosMachine, error) {
	machine, err := s.client.TalosV1alpha1().TalosMachines(s.cluster.Namespace).Get(ctx, uuid, metav1.GetOptions{})

	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case err == nil:
		s.wroteLocked(machine)

		return machine, nil
	case apierrors.IsNotFound(err):
		delete(s.unsure, uuid)
		delete(s.written, uuid)

		return nil, nil
	default:
		s.unsure[uuid] = true

		return nil, fmt.Errorf("machine %s: %w", uuid, err)
	}
}

// observed is the machine with what was seen of it in its status.
func (s *sweep) observed(machine *v1alpha1.TalosMachine, a answer) *v1alpha1.TalosMachine {
	out := machine.DeepCopy()
	status := &out.Status

	status.ObservedEndpoint = a.addr.String()
	status.Hardware = hardware.Describe(a.read)
	s.setSharing(out, s.sharing(machine))

	if status.Phase == "" && !ptr.Deref(machine.Spec.Approved, false) {
		status.Phase = v1alpha1.MachinePending
	}

	if applied := status.Configuration; applied == nil || applied.AppliedAt == nil {
		status.TalosVersion = a.read.TalosVersion
	} else if a.at.Sub(applied.AppliedAt.Time) > leaving {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               ConditionBackInMaintenance,
			Status:             metav1.ConditionTrue,
			Reason:             "AnswersInMaintenance",
			Message:            "the machine was configured and answers in maintenance mode again: it was wiped or reinstalled; it is not configured again by itself",
			LastTransitionTime: metav1.NewTime(s.clock.Now()),
			ObservedGeneration: machine.Generation,
		})
	}

	return out
}

func (s *sweep) wrote(machine *v1alpha1.TalosMachine) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.wroteLocked(machine)
}

func (s *sweep) wroteLocked(machine *v1alpha1.TalosMachine) {
	delete(s.unsure, machine.Name)

	if s.written[machine.Name] == nil {
		for _, key := range parts(machine) {
			s.byPart[key] = append(s.byPart[key], machine.Name)
		}
	}

	s.written[machine.Name] = machine
}

func (s *sweep) sawAt(name string, addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.seen[name] = append(s.seen[name], addr)
}

// lookUp returns the machine as far as it is known, and whether that is too little.
func (s *sweep) lookUp(uuid string) (machine *v1alpha1.TalosMachine, unsure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.lookUpLocked(uuid), s.unsure[uuid]
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
