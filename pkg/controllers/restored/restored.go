// Package restored deals with a store that was restored from a snapshot, before any controller acts on what it says.
//
// What a restored store holds was true once. Plant and machines went on since, so nothing that it says may set anything in
// motion: active Units are held, commands and approvals that were not acted on are void, and whoever gave them is told to give
// them again. The mark in the store says that this is still to be done; a process that dies meanwhile leaves it, and the next one
// does all of it again, to the same effect.
package restored

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
)

const (
	// workers is how many objects are changed at once: a hundred thousand must not take the controllers minutes.
	workers = 32
	// page is how many objects are listed at once.
	page = 500
	// requestTimeout bounds each request.
	requestTimeout = 30 * time.Second

	fieldManager = "fieldplane-restored"

	// eventReason is that of the Events on Units and machines.
	eventReason = "Restored"
)

// Mark says that the store was restored.
type Mark struct {
	// ID names this restore and no other.
	ID string
	// RestoredAt is when, by the clock of the host that restored; zero if nobody knows.
	RestoredAt time.Time
	// Revision is higher than the resourceVersion of everything that was restored, and lower than that of all that was written since.
	Revision int64
}

// String is what people are told of the restore.
func (m Mark) String() string {
	if m.RestoredAt.IsZero() {
		return fmt.Sprintf("the store was restored from a snapshot (%s)", m.ID)
	}
	return fmt.Sprintf("the store was restored from a snapshot at %s (%s)", m.RestoredAt.UTC().Format(time.RFC3339), m.ID)
}

// since tells whether something that stands in an object, with a time of its own, came after the restore. If in doubt it did not.
func (m Mark) since(object metav1.Object, at *metav1.Time) bool {
	// The server that wrote the time and the host that restored have clocks of their own; the store has the last word. Times in
	// objects have whole seconds.
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return err == nil && revision > m.Revision && at != nil && !at.Time.Before(m.RestoredAt.Truncate(time.Second))
}

// Marks keeps the mark in the store.
type Marks interface {
	// Read returns the mark, or nil if there is none.
	Read(context.Context) (*Mark, error)
	// Remove removes this very mark.
	Remove(context.Context, Mark) error
}

// Config is what a Processor needs; every member is required.
type Config struct {
	// Client lists live, and writes the status of Units and TalosMachines and the approval of TalosMachines.
	Client versioned.Interface
	Marks  Marks
	// Recorder writes Events into the host cluster.
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
	// NewID makes the names of holds.
	NewID func() string
}

// Processor deals with the mark.
type Processor struct {
	client   versioned.Interface
	marks    Marks
	recorder record.EventRecorder
	clock    clock.PassiveClock
	newID    func() string
}

// New returns a Processor.
func New(cfg Config) *Processor {
	return &Processor{client: cfg.Client, marks: cfg.Marks, recorder: cfg.Recorder, clock: cfg.Clock, newID: cfg.NewID}
}

// Process returns nil once the store counts as any other. On an error nothing may act on it yet, and Process is to be called again.
func (p *Processor) Process(ctx context.Context) error {
	mark, err := p.readMark(ctx)
	if err != nil || mark == nil {
		return err
	}
	logger := klog.FromContext(ctx).WithValues("restore", mark.ID, "restoredAt", mark.RestoredAt)
	logger.Info("The store was restored from a snapshot: active Units are held, and what was not acted on is void, before any controller starts")

	units, unitsErr := p.units(ctx, *mark)
	machines, machinesErr := p.machines(ctx, *mark)
	if err := errors.Join(unitsErr, machinesErr); err != nil {
		return fmt.Errorf("the store was restored, and no controller starts before that is dealt with: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := p.marks.Remove(ctx, *mark); err != nil {
		return err
	}
	logger.Info("What was restored is dealt with", "units", units, "machines", machines)
	return nil
}

func (p *Processor) readMark(ctx context.Context) (*Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return p.marks.Read(ctx)
}

// tell makes an Event of what was done to an object.
func (p *Processor) tell(kind string, object metav1.Object, apiVersion, message string) {
	p.recorder.Event(&corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(),
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}, corev1.EventTypeWarning, eventReason, message)
}

// each does something with every object, and counts those that it has changed.
func each(ctx context.Context, objects []types.NamespacedName, do func(context.Context, types.NamespacedName) (bool, error)) (int, error) {
	var (
		mu      sync.Mutex
		changed int
		failed  []error
		next    = make(chan types.NamespacedName)
		done    sync.WaitGroup
	)
	for range min(workers, len(objects)) {
		done.Go(func() {
			for object := range next {
				ctx, cancel := context.WithTimeout(ctx, requestTimeout)
				did, err := do(ctx, object)
				cancel()
				mu.Lock()
				if did {
					changed++
				}
				if err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, object := range objects {
		next <- object
	}
	close(next)
	done.Wait()
	return changed, errors.Join(failed[:min(len(failed), 10)]...)
}
