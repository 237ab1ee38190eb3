package iomodule

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// hearts remember when each status.lastAlive was seen first. A beat is never younger than that: one that is stamped in the
// future, by whoever's clock is ahead, would otherwise keep a dead Controller alive until then (P-05).
type hearts struct {
	clock clock.PassiveClock

	mu          sync.Mutex
	controllers map[types.NamespacedName]heart
}

type heart struct {
	uid types.UID
	// beat is the lastAlive that was seen last, the zero time for none.
	beat time.Time
	// seen is when it was seen first.
	seen time.Time
	// heard: it came while this process listened, and was not just found.
	heard bool
}

func newHearts(c clock.PassiveClock) *hearts {
	return &hearts{clock: c, controllers: map[types.NamespacedName]heart{}}
}

// observe takes an informer's event; either side may be nil.
func (h *hearts) observe(before, after *v1alpha1.Controller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case after != nil:
		h.see(after)
	case before != nil:
		delete(h.controllers, types.NamespacedName{Namespace: before.Namespace, Name: before.Name})
	}
}

// age is how old a Controller's last beat is, by its own stamp or since it was heard, whichever is more. It is not known of
// a beat in the future that was found at the start: it may be a dead one's.
func (h *hearts) age(controller *v1alpha1.Controller) (age time.Duration, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := h.see(controller)
	if is.beat.After(is.seen) {
		return h.clock.Since(is.seen), is.heard
	}
	return h.clock.Since(is.beat), true
}

// heard tells whether a Controller's last beat came while this process listened.
func (h *hearts) heard(controller *v1alpha1.Controller) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.see(controller).heard
}

// see remembers the Controller's beat, if it is another than the last one.
func (h *hearts) see(controller *v1alpha1.Controller) heart {
	key := types.NamespacedName{Namespace: controller.Namespace, Name: controller.Name}
	var beat time.Time
	if controller.Status.LastAlive != nil {
		beat = controller.Status.LastAlive.Time
	}
	was, known := h.controllers[key]
	if known && was.uid == controller.UID && was.beat.Equal(beat) {
		return was
	}
	is := heart{uid: controller.UID, beat: beat, seen: h.clock.Now(), heard: known && was.uid == controller.UID}
	h.controllers[key] = is
	return is
}
