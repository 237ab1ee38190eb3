package probe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Options are what a Probe needs from outside.
type Options struct {
	Open  Open
	Clock clock.WithTicker
	// Seed of the jitter.
	Seed uint64
	// BootID is unlike that of any earlier start.
	BootID   string
	Log      logr.Logger
	Registry *prometheus.Registry
	// Stalled is how long this process was not run at a stretch since a time; nil is never.
	Stalled func(since time.Time) time.Duration
}

// Probe supervises the modules of the config in force.
type Probe struct {
	options   Options
	states    *states
	catalogue *catalogue
	// discoveries holds one element for each discovery under way.
	discoveries chan struct{}
	metrics     *metrics
	modules     *modulesMetrics
	episodes    atomic.Int64

	// applying serialises Apply and Stop.
	applying    sync.Mutex
	supervisors map[string]*supervisor
	// broken are the modules that cannot be supervised, by name.
	broken  map[string]Module
	started uint64

	mu          sync.Mutex
	configHash  string
	configError string
	// shared are the supervisors whose devices others may use, refused what is wrong with the broken modules, both by uid.
	shared  map[string]*supervisor
	refused map[string]*driver.Error
	// writes is the order of the writes to each module, by name.
	writes map[string]*writeOrder
}

// New returns a probe of nothing.
func New(o Options) *Probe {
	p := &Probe{
		options:     o,
		states:      newStates(o.Clock),
		catalogue:   newCatalogue(o.BootID),
		discoveries: make(chan struct{}, maxDiscoveries),
		modules:     newModulesMetrics(),
		supervisors: map[string]*supervisor{},
		broken:      map[string]Module{},
		shared:      map[string]*supervisor{},
		refused:     map[string]*driver.Error{},
		writes:      map[string]*writeOrder{},
	}
	p.metrics = newMetrics(o.Registry, p)
	return p
}

// Apply makes c the config in force. Modules whose entry is the same are not touched; a module whose entry changed
// gets its new device before it loses the old one, so that the two share the connection if the endpoint is the same. A
// verdict on a device stays as long as the entry names that device: an edit of its channels neither clears a fault nor
// makes a device that answers Unknown.
func (p *Probe) Apply(c *Config) {
	p.applying.Lock()
	defer p.applying.Unlock()

	wanted := map[string]Module{}
	for _, m := range c.Modules {
		wanted[m.Name] = m
	}
	var ending []*supervisor
	for name, s := range p.supervisors {
		if m, ok := wanted[name]; !ok || m.Err != nil {
			ending = append(ending, s)
			delete(p.supervisors, name)
		}
	}
	p.end(ending)
	for _, s := range ending {
		p.forget(s.module.Name)
	}
	for name, m := range p.broken {
		if _, ok := wanted[name]; !ok {
			p.mend(m)
			p.forget(name)
		}
	}
	var exchanges []exchange
	var former []*supervisor
	for _, m := range c.Modules {
		if e, changed := p.prepare(m); changed {
			exchanges = append(exchanges, e)
			if e.old != nil {
				former = append(former, e.old)
			}
		}
	}
	p.end(former)
	for _, e := range exchanges {
		p.begin(e)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.configHash, p.configError = c.Hash, ""
	if c.Unnamed > 0 {
		p.configError = fmt.Sprintf("config file: %d entries have no name and are left out", c.Unnamed)
	}
}

// forget drops everything that is known of a module.
func (p *Probe) forget(name string) {
	p.states.remove(name)
	p.catalogue.remove(name)
	p.modules.remove(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.writes, name)
}

// mend takes a module out of those that cannot be supervised.
func (p *Probe) mend(m Module) {
	delete(p.broken, m.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.refused, m.UID)
}

// exchange is a module that is new, or another than before.
type exchange struct {
	module Module
	// device is the new one; err is why there is none.
	device driver.Device
	err    error
	// old is nil for a module that was not supervised.
	old *supervisor
}

// prepare opens the device of a module, if it is another than before.
func (p *Probe) prepare(m Module) (e exchange, changed bool) {
	e = exchange{module: m, old: p.supervisors[m.Name]}
	if e.old != nil && e.old.module.digest == m.digest && m.Err == nil {
		e.old.generation.Store(m.Generation)
		p.states.setGeneration(m.Name, m.Generation)
		return e, false
	}
	if b, ok := p.broken[m.Name]; ok && b.digest == m.digest {
		p.broken[m.Name] = m
		p.states.setGeneration(m.Name, m.Generation)
		return e, false
	}
	if m.Err != nil {
		e.err = m.Err
	} else {
		e.device, e.err = p.open(m)
	}
	return e, true
}

// begin supervises a module, whose former supervisor has ended.
func (p *Probe) begin(e exchange) {
	m, old := e.module, e.old
	delete(p.supervisors, m.Name)
	if broken, ok := p.broken[m.Name]; ok {
		p.mend(broken)
	}
	if e.err != nil {
		p.report(m, e.err)
		return
	}
	s := &supervisor{
		module:  m,
		device:  e.device,
		clock:   p.options.Clock,
		rand:    rand.New(rand.NewPCG(p.options.Seed, p.started)),
		states:  p.states,
		metrics: p.metrics,
		own:     &moduleMetrics{},
		log:     p.options.Log,
		episode: p.nextEpisode,
		stalled: p.options.Stalled,
		debounce: debounce{
			failureThreshold: int(*m.Spec.Probe.FailureThreshold),
			successThreshold: int(*m.Spec.Probe.SuccessThreshold),
		},
		discovery: discovery{places: p.discoveries, catalogue: p.catalogue, outcomes: make(chan discovered, 1)},
		sharing:   newSharing(),
		turns:     newPrecedence(),
	}
	s.generation.Store(m.Generation)
	s.state = unmeasured(m, p.options.Clock.Now())
	if old != nil && sameDevice(old.module, m) {
		s.inherit(old)
	} else {
		p.catalogue.remove(m.Name)
	}
	p.modules.put(m.Name, s.own)
	p.started++
	p.supervisors[m.Name] = s
	p.mu.Lock()
	if p.writes[m.Name] == nil {
		p.writes[m.Name] = newWriteOrder()
	}
	s.writes = p.writes[m.Name]
	p.shared[m.UID] = s
	p.mu.Unlock()
	s.start()
}

// sameDevice tells whether two entries of a module name the same device, so that what is known of it stays true.
func sameDevice(a, b Module) bool {
	return a.UID == b.UID && a.Spec.Protocol == b.Spec.Protocol && reflect.DeepEqual(a.Spec.Modbus, b.Spec.Modbus) &&
		reflect.DeepEqual(a.Spec.OPCUA, b.Spec.OPCUA) && reflect.DeepEqual(a.Spec.Ethernetip, b.Spec.Ethernetip) &&
		reflect.DeepEqual(a.Spec.Simulation, b.Spec.Simulation)
}

// report tells of a module that cannot be supervised: it is not found, and the reason says why (P-07: Unknown).
func (p *Probe) report(m Module, err error) {
	p.broken[m.Name] = m
	p.catalogue.remove(m.Name)
	p.modules.remove(m.Name)
	state := unmeasured(m, p.options.Clock.Now())
	state.Reason, state.Message = string(driver.ReasonOf(err)), printable(causeOf(err))
	p.states.set(state, 0)
	p.mu.Lock()
	p.refused[m.UID] = &driver.Error{Reason: driver.ReasonOf(err), Err: errors.New(causeOf(err))}
	p.mu.Unlock()
	p.options.Log.Info("Module cannot be supervised", "module", m.Name, "reason", state.Reason, "message", state.Message)
}

// open makes a module's device; a driver that panics over what a specification says is an error of that module.
func (p *Probe) open(m Module) (device driver.Device, err error) {
	defer recoverInto(&err, p.options.Log, m.Name)
	return p.options.Open(m.Spec)
}

// shut closes a module's device.
func (p *Probe) shut(s *supervisor) (err error) {
	defer recoverInto(&err, p.options.Log, s.module.Name)
	return s.device.Close()
}

// nextEpisode names a fault unlike any before it, through restarts too.
func (p *Probe) nextEpisode() string {
	return fmt.Sprintf("%s-%d", p.options.BootID, p.episodes.Add(1))
}

// end stops supervisors, all at once, and closes their devices.
func (p *Probe) end(supervisors []*supervisor) {
	for _, s := range supervisors {
		s.cancel()
	}
	// A device may take a second to be closed, and hundreds of them may be: their successors wait for that.
	var closing sync.WaitGroup
	for _, s := range supervisors {
		p.mu.Lock()
		if p.shared[s.module.UID] == s {
			delete(p.shared, s.module.UID)
		}
		p.mu.Unlock()
		closing.Go(func() {
			s.sharing.end()
			s.stop()
			if err := p.shut(s); err != nil {
				p.options.Log.Error(err, "Closing the device", "module", s.module.Name)
			}
		})
	}
	closing.Wait()
}

// Stop ends all supervisors and closes their connections. The states stay as they were.
func (p *Probe) Stop() {
	p.applying.Lock()
	defer p.applying.Unlock()
	var all []*supervisor
	for name, s := range p.supervisors {
		all = append(all, s)
		delete(p.supervisors, name)
	}
	p.end(all)
}

// Refuse keeps the config in force and tells what is wrong with the newer one.
func (p *Probe) Refuse(err error) {
	p.metrics.configErrors.Inc()
	p.options.Log.Error(err, "The config file is refused; the former config stays in force")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configError = err.Error()
}

// Info is what the probe says of itself.
func (p *Probe) Info() api.ProbeInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return api.ProbeInfo{
		BootID:      p.options.BootID,
		ConfigHash:  p.configHash,
		ConfigError: p.configError,
		Time:        p.options.Clock.Now(),
	}
}

// List is the state of every module.
func (p *Probe) List() api.List {
	return api.List{Probe: p.Info(), Modules: p.states.list()}
}
