package discovery

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// maxAttempts is how often a sweep tries to write down what a machine answered, each time within CandidateTimeout. An
// attempt that ends early has at least one call behind it that the next one need not make; the longest way, with the
// answers of both writes lost, has six. The next sweep tries again.
const maxAttempts = 8

// Result is what one sweep found (T-10).
type Result struct {
	// Answered counts the addresses at which a machine in maintenance mode told its hardware.
	Answered int32
	// Registered counts the machines that were created.
	Registered int32
	// Weak and Collisions are the findings, newest first, bounded.
	Weak       []v1alpha1.WeakCandidate
	Collisions []v1alpha1.IdentityCollision
	// Failure is why something that was found could not be written down; nil when all was.
	Failure error
}

// answer is what one candidate told.
type answer struct {
	addr netip.Addr
	read maintenance.Hardware
	// moved tells that the machine was nowhere to be found at the address at which it is known.
	moved bool
}

// sweep is one pass over one cluster's candidates.
type sweep struct {
	*Controller

	cluster *v1alpha1.TalosCluster
	// asked sweeps leave no address out.
	asked  bool
	before map[netip.Addr]bool
	owners *owners

	mu sync.Mutex
	// written are the machines as this sweep wrote them: the lister may not have them yet.
	written map[string]*v1alpha1.TalosMachine
	// unsure are the machines that must be read before anything else is done about them: a write told that they are not
	// what they were thought to be.
	unsure map[string]bool
	// creating are the machines whose creation was asked for without an answer in time, and from which address.
	creating map[string]netip.Addr
	// seen are the addresses at which each known machine answered.
	seen map[string][]netip.Addr
	// unfinished are answers whose API calls did not end in time, elsewhere those of known machines at another address
	// than the known one.
	unfinished, elsewhere []answer
	found                 map[findingKey]finding
	answered, registered  int32
	// refused is an API call that no other attempt would better, late the last one that did not end in time.
	refused, late error
}

// DiscoverAll asks each candidate once, at most Concurrency at a time and each within CandidateTimeout, and writes
// down what answered. A candidate that does not answer leaves no trace (T-08, T-09).
//
// A machine that answered is not lost to a slow API server: what it told is kept, and the API calls that did not end in
// time are made again, without asking the machine again, each time within another CandidateTimeout.
func (c *Controller) DiscoverAll(ctx context.Context, cluster *v1alpha1.TalosCluster, candidates []netip.Addr, asked bool) Result {
	s := &sweep{
		Controller: c,
		cluster:    cluster,
		asked:      asked,
		before:     make(map[netip.Addr]bool),
		owners:     newOwners(),
		written:    make(map[string]*v1alpha1.TalosMachine),
		unsure:     make(map[string]bool),
		creating:   make(map[string]netip.Addr),
		seen:       make(map[string][]netip.Addr),
		found:      make(map[findingKey]finding),
	}

	s.recall()

	forEach(ctx, candidates, s.ask)

	for range maxAttempts - 1 {
		again := s.leftovers()
		if len(again) == 0 || ctx.Err() != nil {
			break
		}

		forEach(ctx, again, s.settle)
	}

	return s.result()
}

// forEach calls a function for every item, Concurrency at a time, each call within CandidateTimeout; it returns when
// all calls have. Nothing new begins once the context is over.
func forEach[T any](ctx context.Context, items []T, call func(context.Context, T)) {
	queue := make(chan T)

	var workers sync.WaitGroup

	for range min(Concurrency, len(items)) {
		workers.Go(func() {
			for item := range queue {
				func() {
					ctx, cancel := context.WithTimeout(ctx, CandidateTimeout)
					defer cancel()

					call(ctx, item)
				}()
			}
		})
	}

	for _, item := range items {
		if ctx.Err() != nil {
			break
		}

		select {
		case queue <- item:
		case <-ctx.Done():
		}
	}

	close(queue)
	workers.Wait()
}

// recall gathers what is known of the cluster's namespace before the sweep.
func (s *sweep) recall() {
	machines, err := s.machines.TalosMachines(s.cluster.Namespace).List(labels.Everything())
	if err != nil {
		return // a lister of a cache does not fail
	}

	for _, machine := range machines {
		s.owners.add(machine.Name, machine.Spec.Identity)

		for _, text := range []string{machine.Spec.Endpoint, machine.Status.ObservedEndpoint} {
			if addr, err := netip.ParseAddr(text); err == nil {
				s.before[addr] = true
			}
		}
	}
}

// ask is one candidate's turn: pre-dial, dial, identity, and what follows from it.
func (s *sweep) ask(ctx context.Context, addr netip.Addr) {
	if !s.asked && s.addresses.skip(addr, s.clock.Now()) {
		return
	}

	read, class := s.read(ctx, addr)
	absent := s.addresses.note(addr, class, s.clock.Now())

	switch {
	case class == maintenance.ClassIdentityAbsent && absent < 2:
		// It may be booting: it is asked again at the next sweep.
		s.count(&s.answered)
	case class == "" || class == maintenance.ClassIdentityAbsent:
		s.count(&s.answered)
		s.settle(ctx, answer{addr: addr, read: read})
	}
}

// read returns the class of what went wrong, "" when nothing did. The connection is closed before any API call.
func (s *sweep) read(ctx context.Context, addr netip.Addr) (maintenance.Hardware, maintenance.Class) {
	target := hardware.Target(addr)

	if !s.before[addr] && !s.addresses.answeredBefore(addr) {
		if err := s.predial(ctx, target); err != nil {
			return maintenance.Hardware{}, maintenance.ClassUnreachable
		}
	}

	client, err := s.dial(ctx, target)
	if err != nil {
		return maintenance.Hardware{}, classOf(err)
	}

	defer client.Close() //nolint:errcheck // nothing hangs on how an answered session ends

	read, err := client.Identity(ctx)

	return read, classOf(err)
}

func classOf(err error) maintenance.Class {
	if err == nil {
		return ""
	}

	if class := maintenance.ClassOf(err); class != "" {
		return class
	}

	return maintenance.ClassUnreachable
}

// settle writes down what a candidate told, and keeps the answer for another attempt when the API calls do not end in
// time.
func (s *sweep) settle(ctx context.Context, a answer) {
	err := s.classify(ctx, a)
	if err == nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if worthAnotherAttempt(err) {
		s.unfinished = append(s.unfinished, a)
		s.late = err
	} else {
		s.refused = err
	}
}

// worthAnotherAttempt tells an API server that was slow or busy from one that refused.
func worthAnotherAttempt(err error) bool {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsUnauthorized(err):
		return false
	default:
		return true
	}
}

// leftovers takes the answers that need another attempt.
func (s *sweep) leftovers() []answer {
	s.mu.Lock()
	defer s.mu.Unlock()

	again := s.unfinished
	s.unfinished = nil

	elsewhere := s.elsewhere
	s.elsewhere = nil

	// Of several new addresses of one machine the lowest is taken, so that the next sweep takes the same one; none is
	// when the machine also answered at the known one.
	slices.SortFunc(elsewhere, func(a, b answer) int { return a.addr.Compare(b.addr) })

	taken := make(map[string]bool)

	for _, a := range elsewhere {
		uuid := hardware.Identity(a.read).UUID

		machine := s.lookUpLocked(uuid)
		if machine == nil || taken[uuid] {
			continue
		}

		if known, err := netip.ParseAddr(machine.Status.ObservedEndpoint); err == nil && slices.Contains(s.seen[uuid], known) {
			continue
		}

		taken[uuid] = true
		a.moved = true
		again = append(again, a)
	}

	return again
}

func (s *sweep) count(counter *int32) {
	s.mu.Lock()
	*counter++
	s.mu.Unlock()
}

func (s *sweep) result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()

	weak, collisions := s.findings.lists(s.cluster, s.found)

	failure := s.refused
	if failure == nil && len(s.unfinished) > 0 {
		failure = s.late
	}

	return Result{Answered: s.answered, Registered: s.registered, Weak: weak, Collisions: collisions, Failure: failure}
}
