package networkprobe

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

const (
	// repeatEventAfter is how often a lasting problem is told.
	repeatEventAfter = time.Hour
	// maxRememberedEvents bounds the memory of what was told; past it everything may be told once more.
	maxRememberedEvents = 4096
)

// events tells each problem once, and again hourly while it lasts: a reconcile comes far more often than news.
type events struct {
	recorder record.EventRecorder
	clock    clock.PassiveClock

	mu   sync.Mutex
	told map[eventKey]time.Time
}

type eventKey struct {
	uid             types.UID
	reason, message string
}

func newEvents(recorder record.EventRecorder, c clock.PassiveClock) *events {
	return &events{recorder: recorder, clock: c, told: map[eventKey]time.Time{}}
}

func (e *events) warn(about *corev1.ObjectReference, reason, message string) {
	if e.isNews(eventKey{about.UID, reason, message}) {
		e.recorder.Event(about, corev1.EventTypeWarning, reason, message)
	}
}

func (e *events) isNews(key eventKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if at, ok := e.told[key]; ok && now.Sub(at) < repeatEventAfter {
		return false
	}
	if len(e.told) >= maxRememberedEvents {
		clear(e.told)
	}
	e.told[key] = now
	return true
}

// reference names an object for an event. Objects from informers carry no kind, and a recorder need not know our types.
func reference(apiVersion, kind string, object metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(),
	}
}

func moduleReference(module *v1alpha1.IOModule) *corev1.ObjectReference {
	return reference(v1alpha1.SchemeGroupVersion.String(), "IOModule", module)
}
