package unit

import (
	"sync"

	"k8s.io/client-go/tools/record"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// maxAnnouncements wait at most.
const maxAnnouncements = 4096

// announcements are Events that wait for what is urgent: each is a write to the host cluster, which often has the same processors
// and the same disk as the hold that is still to be stored.
type announcements struct {
	recorder record.EventRecorder
	// urgent tells whether something is.
	urgent func() bool

	mu      sync.Mutex
	waiting []announcement
}

// announcement is an Event about a Unit as it was stored.
type announcement struct {
	unit *v1alpha1.Unit
	event
}

// add takes what is to be told of a Unit.
func (a *announcements) add(unit *v1alpha1.Unit, events []event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range events {
		a.waiting = append(a.waiting, announcement{unit, e})
	}
}

// tellUnlessUrgent tells all, in their order, unless something is urgent: whoever does that calls it again.
func (a *announcements) tellUnlessUrgent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) > 0 && (len(a.waiting) >= maxAnnouncements || !a.urgent()) {
		a.tell()
	}
}

// tellAll tells all that waits: nobody comes who would.
func (a *announcements) tellAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell()
}

func (a *announcements) tell() {
	for _, e := range a.waiting {
		a.recorder.Event(e.unit, e.eventType, e.reason, e.message)
	}
	a.waiting = nil
}
