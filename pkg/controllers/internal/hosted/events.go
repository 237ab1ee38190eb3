package hosted

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

const (
	// RepeatEventAfter is how often a lasting problem is told.
	RepeatEventAfter = time.Hour
	// maxRememberedEvents bounds the memory of what was told; past it everything may be told once more.
	maxRememberedEvents = 4096
)

// Events tells each problem once, and again hourly while it lasts: a reconcile comes far more often than news.
type Events struct {
	recorder record.EventRecorder
	clock    clock.PassiveClock

	mu   sync.Mutex
	told map[eventKey]time.Time
}

type eventKey struct {
	uid             types.UID
	reason, message string
}

// NewEvents returns one that has told nothing.
func NewEvents(recorder record.EventRecorder, c clock.PassiveClock) *Events {
	return &Events{recorder: recorder, clock: c, told: map[eventKey]time.Time{}}
}

// Warn tells of a problem of an object.
func (e *Events) Warn(about *corev1.ObjectReference, reason, message string) {
	if e.isNews(eventKey{about.UID, reason, message}) {
		e.recorder.Event(about, corev1.EventTypeWarning, reason, message)
	}
}

func (e *Events) isNews(key eventKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if at, ok := e.told[key]; ok && now.Sub(at) < RepeatEventAfter {
		return false
	}
	if len(e.told) >= maxRememberedEvents {
		clear(e.told)
	}
	e.told[key] = now
	return true
}

// Reference names an object for an event. Objects from informers carry no kind, and a recorder need not know our types.
func Reference(apiVersion, kind string, object metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(),
	}
}
