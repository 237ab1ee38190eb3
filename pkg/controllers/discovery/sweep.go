package discovery

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// maxAttempts is how often a sweep tries to write down what a machine answered, each time within CandidateTimeout. An
// attempt that ends early has at least one call behind it that the next one need not make; the longest way, with the
// answers of both writes lost, has seven. The next sweep tries again.
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

// answer is what one candidate told, and when.
type answer struct {
	addr netip.Addr
	at   time.Time
	read maintenance.Hardware
	// moved tells that the machine was nowhere to be found at the address at which it is known.
	moved bool
}

// sweep is one pass over one cluster's candidates.
type sweep struct {
	*Controller

	cluster *v1alpha1.TalosCluster
	// urgent sweeps leave no address out.
	urgent bool
	// started is when it began, as it is told; candidates is how many it has, asked how many had their turn.
	started    time.Time
	candidates int
	asked      atomic.Int32
	// left are the candidates that had no turn yet, again the answers that are to be written down again, attempts how
	// often that was tried.
	left     []netip.Addr
	again    []answer
	attempts int
	before   map[netip.Addr]bool
	roster   *roster

	mu sync.Mutex
	// written are the machines as this sweep wrote them, and byPart the names of those with one part of an identity: the
	// informer may not have them yet.
	written map[string]*v1alpha1.TalosMachine
	byPart  map[string][]string
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
	s := c.newSweep(cluster, candidates, asked)
	s.run(ctx, nil)

	return s.result()
}

func (c *Controller) newSweep(cluster *v1alpha1.TalosCluster, candidates []netip.Addr, urgent bool) *sweep {
	s := &sweep{
		Controller: c,
		cluster:    cluster,
		urgent:     urgent,
		started:    startOf(cluster, c.clock.Now()),
		candidates: len(candidates),
		left:       candidates,
		before:     make(map[netip.Addr]bool),
		written:    make(map[string]*v1alpha1.TalosMachine),
		byPart:     make(map[string][]string),
		unsure:     make(map[string]bool),
		creating:   make(map[string]netip.Addr),
		seen:       make(map[string][]netip.Addr),
		found:      make(map[findingKey]finding),
	}

	s.recall()

	return s
}

// run goes on with the sweep until it is done, or the context is over, or suspend is closed: what is in flight then ends,
// and nothing more begins. It returns whether the sweep is done.
func (s *sweep) run(ctx context.Context, suspend <-chan struct{}) (done bool) {
	// What another sweep did meanwhile is perhaps not in the informer yet.
	s.roster = newRoster()

	s.left = forEach(ctx, suspend, s.left, func(ctx context.Context, addr netip.Addr) {
		s.ask(ctx, addr)
		s.asked.Add(1)
	})

	for len(s.left) == 0 && ctx.Err() == nil {
		if len(s.again) == 0 {
			if s.attempts == maxAttempts-1 {
				break
			}

			s.attempts++
			s.again = s.leftovers()
		}

		if len(s.again) == 0 {
			break
		}

		if s.again = forEach(ctx, suspend, s.again, s.settle); len(s.again) > 0 {
			return false
		}
	}

	if len(s.left) > 0 || ctx.Err() != nil {
		return false
	}

	s.reportSharing()

	return true
}

// forEach calls a function for every item, Concurrency at a time, each call within CandidateTimeout; it returns when all
// calls have. Once the context is over or suspend is closed nothing new begins, and what did not is returned.
func forEach[T any](ctx context.Context, suspend <-chan struct{}, items []T, call func(context.Context, T)) (left []T) {
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

	begun := 0

	for over := false; begun < len(items) && !over; {
		// Of several channels that are ready select takes any.
		select {
		case <-ctx.Done():
			over = true
		case <-suspend:
			over = true
		default:
			select {
			case queue <- items[begun]:
				begun++
			case <-ctx.Done():
			case <-suspend:
			}
		}
	}

	close(queue)
	workers.Wait()

	return items[begun:]
}

// recall gathers at which addresses the machines of the namespace are known.
func (s *sweep) recall() {
	machines, err := s.machines.TalosMachines(s.cluster.Namespace).List(labels.Everything())
	if err != nil {
		return // a lister of a cache does not fail
	}

	for _, machine := range machines {
		for _, text := range []string{machine.Spec.Endpoint, machine.Status.ObservedEndpoint} {
			if addr, err := netip.ParseAddr(text); err == nil {
				s.before[addr] = true
			}
		}
	}
}

// ask is one candidate's turn: pre-dial, dial, identity, and what follows from it.
func (s *sweep) ask(ctx context.Context, addr netip.Addr) {
	if !s.urgent && s.addresses.skip(addr, s.clock.Now()) {
		return
	}

	read, class := s.read(ctx, addr)
	now := s.clock.Now()
	absent := s.addresses.note(addr, class, now)

	switch {
	case class == maintenance.ClassIdentityAbsent && absent < 2:
		// It may be booting: it is asked again at the next sweep. Not before: T-10 fixes when sweeps are, and T-08 what
		// one address may cost in each.
		s.count(&s.answered)
	case class == "" || class == maintenance.ClassIdentityAbsent:
		s.count(&s.answered)
		s.settle(ctx, answer{addr: addr, at: now, read: read})
	}
}

// read returns the class of what went wrong, "" when nothing did. The connection is closed before any API call.
func (s *sweep) read(ctx context.Context, addr netip.Addr) (maintenance.Hardware, maintenance.Class) {
	target := hardware.Target(addr)
	listens := false

	if !s.before[addr] && !s.addresses.answeredBefore(addr) {
		if err := s.predial(ctx, target); err != nil {
			return maintenance.Hardware{}, maintenance.ClassUnreachable
		}

		listens = true
	}

	read, err := s.identity(ctx, target)
	class := classOf(err)

	// All of the time went by, although somebody listens.
	if class == maintenance.ClassUnreachable && listens && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		class = classSilent
	}

	return read, class
}

func (s *sweep) identity(ctx context.Context, target string) (maintenance.Hardware, error) {
	client, err := s.dial(ctx, target)
	if err != nil {
		return maintenance.Hardware{}, err
	}

	defer client.Close() //nolint:errcheck // nothing hangs on how an answered session ends

	return client.Identity(ctx)
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
	var tooMany *tooManyError

	switch {
	case errors.As(err, &tooMany):
		return false
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

// counts is how many answered, and were registered, so far.
func (s *sweep) counts() Result {
	s.mu.Lock()
	defer s.mu.Unlock()

	return Result{Answered: s.answered, Registered: s.registered}
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
