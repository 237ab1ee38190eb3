package iomodule

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// The bounds of what one module's status may cost: so many writes at once, and then one in each interval. A device that fails
// in another way with every check, or calls itself by another name, would else have its status written every second, and a
// probe in the wrong hands as fast as this server can, to the harm of all namespaces (P-12). A first change is told at once.
const (
	chatterBurst    = 5
	chatterInterval = 10 * time.Second
	returnBurst     = 10
	returnInterval  = time.Second
)

// paces hold back the writes of modules that have too much to say.
type paces struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	modules map[types.NamespacedName]*pace
}

// pace is what a module may still write.
type pace struct{ chatter, returns bucket }

func newPaces(c clock.PassiveClock) *paces {
	return &paces{clock: c, modules: map[types.NamespacedName]*pace{}}
}

// wait is how long a write of a module's status must wait; zero counts as written. What becomes Fault never waits (P-16), nor
// does what a user has changed, nor what this server has determined itself.
func (p *paces) wait(key types.NamespacedName, before, after *v1alpha1.IOModuleStatus) time.Duration {
	said := after.State == v1alpha1.ModuleOnline || after.State == v1alpha1.ModuleFault
	if !said || before.ObservedGeneration != after.ObservedGeneration || before.State != after.State && after.State == v1alpha1.ModuleFault {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.modules[key]
	if of == nil {
		of = &pace{bucket{burst: chatterBurst, interval: chatterInterval}, bucket{burst: returnBurst, interval: returnInterval}}
		p.modules[key] = of
	}
	if before.State == after.State {
		return of.chatter.take(p.clock.Now())
	}
	return of.returns.take(p.clock.Now())
}

// forget drops a module that is gone.
func (p *paces) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.modules, key)
}

// bucket gives so many at once, and then one in each interval.
type bucket struct {
	burst    int
	interval time.Duration
	// full is when it is full again.
	full time.Time
}

// take takes one, or says how long there will be none.
func (b *bucket) take(now time.Time) time.Duration {
	if b.full.Before(now) {
		b.full = now
	}
	after := b.full.Add(b.interval)
	if wait := after.Sub(now) - time.Duration(b.burst)*b.interval; wait > 0 {
		return wait
	}
	b.full = after
	return 0
}
