package unitruntime

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Options are what a Runtime needs from outside.
type Options struct {
	// Open makes the device of a module without connecting; what it returns is an *driver.Error.
	Open  func(Module) (driver.Device, error)
	Clock clock.WithTicker
	// Seed of the jitter.
	Seed uint64
	// BootID is unlike that of any earlier start, and NewID unlike any other.
	BootID   string
	NewID    func() string
	State    *StateFile
	Log      logr.Logger
	Registry *prometheus.Registry
}

// Runtime reads, writes and holds for the Unit of the config in force.
type Runtime struct {
	options Options
	clock   clock.WithTicker
	log     logr.Logger
	values  *values
	metrics *metrics

	// applying serialises Apply and Stop.
	applying sync.Mutex
	started  uint64
	// turns are those of the modules, which outlive their links.
	turns map[string]*turn

	// ordering serialises what changes the order and the latch, through what is stored of them.
	ordering sync.Mutex

	// mu is the one lock that puts orders and writes into a sequence: what may be written is decided under it, immediately
	// before it is given to the driver. It is never held while a device or the disk is waited for.
	mu sync.Mutex
	// config in force; nil before the first good one.
	config      *Config
	configError string
	links       map[string]*link
	broken      map[string]Module
	tags        map[api.TagKey]*Tag
	// order in force and latch; fresh tells that the order came since the program started, at contact.
	order   *api.Order
	latch   *api.Latch
	fresh   bool
	contact time.Time
	// regime and its number, and whether the state file has what it follows from.
	regime regime
	epoch  uint64
	// running is the revision of the order by which users may write in this epoch.
	running int64
	stored  bool
	// inFlight are the writes that a driver has and that have not ended.
	inFlight map[*flight]struct{}
	// holds are the hold values by module, in the order of the tags; required are the modules that a tag names.
	holds     map[string][]*hold
	required  map[string]bool
	followers map[chan struct{}]struct{}
}

// New returns a runtime of no Unit, with what the state file knows of its order and latch.
func New(o Options) *Runtime {
	r := &Runtime{
		options:   o,
		clock:     o.Clock,
		log:       o.Log,
		values:    newValues(o.Clock),
		turns:     map[string]*turn{},
		links:     map[string]*link{},
		broken:    map[string]Module{},
		tags:      map[api.TagKey]*Tag{},
		inFlight:  map[*flight]struct{}{},
		holds:     map[string][]*hold{},
		followers: map[chan struct{}]struct{}{},
		// Before the first order the server counts as heard of just now: a runtime that starts must not hold for that.
		contact: o.Clock.Now(),
		stored:  true,
	}
	r.metrics = newMetrics(o.Registry, r)
	state, err := o.State.Load()
	if err != nil {
		r.metrics.stateErrors.Inc()
		r.log.Error(err, "The state file is of no use; what was ordered before is not known")
	}
	r.order, r.latch = state.Order, state.Latch
	if r.order != nil {
		r.log.Info("What was ordered before the start", "state", r.order.State, "revision", r.order.Revision, "latched", r.latch != nil)
	}
	r.regime = regimeOf(r.order, r.latch, false)
	return r
}

// Run watches over the contact with the server until ctx ends: see latch.go.
func (r *Runtime) Run(ctx context.Context) {
	ticker := r.clock.NewTicker(watchPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			r.latchIfDue()
		}
	}
}

// Apply makes c the config in force. What is the same in it is not touched: a module whose entry is the same keeps its
// connection, and a tag that is read as before keeps its value and its time. A module whose entry changed gets its new device before it
// loses the old one, so that the two share the connection if the endpoint is the same. A module that hangs is left behind after endWait.
func (r *Runtime) Apply(c *Config) {
	r.applying.Lock()
	defer r.applying.Unlock()

	r.forgetOtherUnit(c.Unit.UID)

	r.mu.Lock()
	former := maps.Clone(r.links)
	var entries map[string]Module
	if r.config != nil {
		entries = r.config.Modules
	}
	r.mu.Unlock()
	links, broken, replaced := map[string]*link{}, map[string]Module{}, map[string]bool{}
	problems := map[string]*driver.Error{}
	var ending, starting []*link
	for name, m := range c.Modules {
		old := former[name]
		if old != nil && m.Err == nil && old.module.same(m) {
			links[name] = old
			continue
		}
		if entry, known := entries[name]; !known || !entry.SameDevice(m.Module) {
			replaced[name] = true
		}
		device, err := r.open(m)
		if old != nil {
			ending = append(ending, old)
		}
		if err != nil {
			m.Err = asDriverError(err)
			broken[name], problems[name] = m, m.Err
			r.log.Info("Module cannot be used", "module", name, "reason", m.Err.Reason, "message", causeOf(m.Err))
			continue
		}
		l := r.newLink(m, device)
		links[name], starting = l, append(starting, l)
	}
	for name := range r.turns {
		if _, kept := c.Modules[name]; !kept && len(r.turns[name].token) == 0 {
			delete(r.turns, name)
		}
	}
	for name, old := range former {
		if _, kept := c.Modules[name]; !kept {
			ending = append(ending, old)
			replaced[name] = true
		}
	}
	byModule := map[string][]*Tag{}
	for _, t := range c.Tags {
		byModule[t.IOModule] = append(byModule[t.IOModule], t)
		if _, known := c.Modules[t.IOModule]; !known {
			problems[t.IOModule] = driver.ConfigurationError("the Unit's runtime knows of no module %q", t.IOModule)
		}
	}

	// From here on nothing is sent to a device that is about to go.
	r.install(c, links, broken, replaced)
	end(ending)
	r.values.apply(c.Tags, replaced, problems)
	for _, l := range starting {
		if old := former[l.module.Name]; old != nil && !replaced[l.module.Name] {
			l.inherit(old)
		}
	}
	for name, l := range links {
		if tags := byModule[name]; former[name] != l || !sameTags(l, tags) {
			l.setTags(tags)
			l.asked = tags
		}
	}
	for _, l := range starting {
		l.start(func(ctx context.Context) { r.writeHoldValues(ctx, l) })
	}
	r.kickHolds()
	r.notify()
}

// sameTags tells whether a link reads these tags already.
func sameTags(l *link, tags []*Tag) bool {
	return slices.EqualFunc(l.asked, tags, equalConfigured)
}

// install makes the config's parts those in force.
func (r *Runtime) install(c *Config, links map[string]*link, broken map[string]Module, replaced map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config, r.links, r.broken, r.configError = c, links, broken, ""
	if c.Unnamed > 0 {
		r.configError = fmt.Sprintf("config file: %d entries have no name and are left out", c.Unnamed)
	}
	r.tags, r.required = make(map[api.TagKey]*Tag, len(c.Tags)), map[string]bool{}
	former := r.holds
	r.holds = map[string][]*hold{}
	for _, t := range c.Tags {
		r.tags[t.TagKey], r.required[t.IOModule] = t, true
		if t.HoldValue == nil {
			continue
		}
		h := &hold{tag: t}
		if old := find(former[t.IOModule], t.TagKey); old != nil && old.tag.sameHold(t) && !replaced[t.IOModule] {
			h.taken, h.reason, h.message, h.notBefore = old.taken, old.reason, old.message, old.notBefore
		}
		r.holds[t.IOModule] = append(r.holds[t.IOModule], h)
	}
}

// newLink is a link that has yet to be started. It writes in the turn of its module.
func (r *Runtime) newLink(m Module, device driver.Device) *link {
	if r.turns[m.Name] == nil {
		r.turns[m.Name] = newTurn()
	}
	r.started++
	l := &link{
		module: m, device: device, clock: r.clock, rand: rand.New(rand.NewPCG(r.options.Seed, r.started)), log: r.log,
		values: r.values, metrics: r.metrics, changed: r.notify,
		turn: r.turns[m.Name], kick: make(chan struct{}, 1), holdKick: make(chan struct{}, 1),
		connectivity: probe.NewConnectivity(m.Spec.Probe),
		state:        linkState{reason: "Measuring", message: "no full threshold of exchanges has given a verdict yet"},
	}
	l.returned = func() { r.deviceReturned(l) }
	return l
}

// open makes a module's device; a driver that panics over what a specification says is an error of that module.
func (r *Runtime) open(m Module) (device driver.Device, err error) {
	if m.Err != nil {
		return nil, m.Err
	}
	defer (&link{module: m, log: r.log}).recover(&err)
	return r.options.Open(m)
}

// end stops links, all at once.
func end(links []*link) {
	var ended sync.WaitGroup
	for _, l := range links {
		ended.Go(l.stop)
	}
	ended.Wait()
}

// Stop ends all reading and writing and closes the connections. The values stay as they were.
func (r *Runtime) Stop() {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.mu.Lock()
	links := slices.Collect(maps.Values(r.links))
	r.links = map[string]*link{}
	r.setRegime(regime{})
	r.mu.Unlock()
	end(links)
}

// Refuse keeps the config in force and tells what is wrong with the newer one.
func (r *Runtime) Refuse(err error) {
	r.metrics.configErrors.Inc()
	r.log.Error(err, "The config file is refused; the former config stays in force")
	r.mu.Lock()
	r.configError = err.Error()
	r.mu.Unlock()
	r.notify()
}

// notify tells the followers of the report that something changed.
func (r *Runtime) notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notifyLocked()
}

func (r *Runtime) notifyLocked() {
	for f := range r.followers {
		wake(f)
	}
}

// asDriverError is err itself, or what it is to a module.
func asDriverError(err error) *driver.Error {
	if e, ok := err.(*driver.Error); ok {
		return e
	}
	return driver.ConfigurationError("%w", err)
}
