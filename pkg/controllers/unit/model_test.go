package unit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// This is a model of everything that takes part in holding a Unit: the store, the caches of the controllers, one reconcile with a
// step for each of its reads and writes, a former leader whose last write is still on its way, users, modules that change as they
// like, and the runtime. What decides in it is the real decide, and what tells the runtime the real orderOf. All orders in which
// the steps can happen are tried, breadth first, from every stored state that there may be.
//
// Proved of every state that can be reached, where "the controllers' steps" are the delivery of events to the caches and the steps of
// the reconcile:
//
//  1. Wherever one stops, the controllers' steps alone come to an end, and in that end no Unit is in a Holdable state while a module
//     that it requires is stored in a state that holds, or its runtime has reported a latch; modules that an override passed over are
//     exempt while they are what they were then.
//  2. Running and Restarting are entered by START, RESUME and RESTART that a user sent, each of which is used once; and on nothing but
//     modules that were read after the command, Online and measured, or passed over by its override.
//     A module is passed over by such a command alone.
//  3. A hold has one episode from its begin to its end, and begins in a Holdable state.
//  4. Every change of state is one of the table of package isa88.
//  5. The runtime is told that its latch is stored only when that is so.
//
// Left out are conditions and Events, which decide nothing, times other than "too long" and "too late", and the edits that P-16a refuses.

// mostModules is how many modules a model may have.
const mostModules = 2

// The states of a module in the model.
const (
	moduleMissing = iota
	moduleOnline
	moduleFault
	moduleUnknown
	// moduleUnknownLong is Unknown for longer than unknownHoldAfter.
	moduleUnknownLong
)

func everyState() []uint8 {
	return []uint8{moduleMissing, moduleOnline, moduleFault, moduleUnknown, moduleUnknownLong}
}

// modelModule is a module as it is stored, cached or read.
type modelModule struct {
	state uint8
	// since tells one stay in a state from another.
	since uint8
}

// modelUnit is a Unit as it is stored, cached, read or about to be written.
type modelUnit struct {
	state uint8 // an index of isa88.States()
	// command waits to be carried out; 0 is none, otherwise one more than an index of isa88.Commands().
	command       uint8
	override, old bool
	// episode is that of the hold, 0 if there is none; listed: the runtime's latch is among its causes.
	episode    uint8
	listed     bool
	overridden [mostModules]struct {
		is     bool
		module modelModule
	}
	version uint8
}

// The steps of a reconcile.
const (
	idle = iota
	// reading: the store is being read, and how much of it is read.
	reading
	// writing: a decision is about to be written.
	writing
	// telling: it is written, and the runtime has yet to be told.
	telling
)

// decided is a decision on its way to the store.
type decided struct {
	next modelUnit
	// base is the version that it was made on.
	base uint8
	// fit: every module was read from the store, and may be run with; late: the command that waited was too old.
	fit, late bool
}

// world is a state of the model.
type world struct {
	unit    modelUnit
	modules [mostModules]modelModule
	// confirmed: the module's state is by evidence of this leadership.
	confirmed [mostModules]bool

	// The controllers' caches, and whether there is news for them.
	cachedUnit    modelUnit
	cachedModules [mostModules]modelModule
	unitNews      bool
	moduleNews    [mostModules]bool
	// queued: the Unit waits for a reconcile.
	queued bool

	step uint8
	// read is how much is read: the Unit, then the modules.
	read        uint8
	readUnit    modelUnit
	readModules [mostModules]modelModule
	decided     decided

	// former is the decision of a former leader that may be written yet.
	former    decided
	hasFormer bool

	// The runtime: whether it is heard, what it was told and what it has done last, and its latch, as it is and as it was heard.
	contact              bool
	toldState, doneState uint8
	toldVersion          uint8
	doneVersion          uint8
	told, done, applied  bool
	acknowledged         bool
	latched, heardLatch  bool

	// left is how many things may yet happen that are not the controllers' steps.
	left uint8
}

// model is what is explored.
type model struct {
	modules int
	// decide and order are the real ones, or broken ones that must be found out.
	decide func(facts) decision
	order  func(*v1alpha1.Unit, runtime) api.Order
	// states are those that a module may be in; alone: there is no runtime.
	states []uint8
	alone  bool
	// careless: writes are not checked against the version; deaf: changes of modules wake nobody.
	careless, deaf bool

	known map[question]answer
	// violation is the first one that was found.
	violation string
	reached   int
	longest   int
}

// question is everything that the real decide is asked about, answer what it says.
type question struct {
	unit      modelUnit
	modules   [mostModules]modelModule
	confirmed [mostModules]bool
	live      bool
	contact   bool
	hasOrder  bool
	order     uint8
	current   bool // the order is of the version asked about
	applied   bool
	latch     bool
}

type answer struct {
	next     modelUnit
	readLive bool
}

func (m *model) fail(w world, format string, args ...any) {
	if m.violation == "" {
		m.violation = fmt.Sprintf(format, args...) + fmt.Sprintf("\nin %+v", w)
	}
}

func stateIndex(s isa88.State) uint8 { return uint8(slices.Index(isa88.States(), s)) }

func moduleName(i int) string { return "m" + strconv.Itoa(i) }

var (
	modelStates   = isa88.States()
	modelCommands = isa88.Commands()
)

func (u modelUnit) isa() isa88.State { return modelStates[u.state] }

func (m modelModule) stored() v1alpha1.ModuleState {
	switch m.state {
	case moduleOnline:
		return v1alpha1.ModuleOnline
	case moduleFault:
		return v1alpha1.ModuleFault
	case moduleMissing:
		return ""
	default:
		return v1alpha1.ModuleUnknown
	}
}

func (m modelModule) time() *metav1.Time {
	if m.state == moduleMissing {
		return nil
	}
	// Neither of the times is far from the model's now.
	return at(time.Duration(m.since) * time.Second)
}

func (m modelModule) uid(i int) types.UID {
	if m.state == moduleMissing {
		return ""
	}
	return types.UID("uid-of-" + moduleName(i))
}

// object makes a Unit of the model a real one.
func (m *model) object(u modelUnit) *v1alpha1.Unit {
	unit := unitIn(modelStates[u.state])
	unit.Status.Hold = nil
	unit.ResourceVersion = strconv.Itoa(int(u.version) + 1)
	if u.command != 0 {
		unit.Status.LastCommand = command(v1alpha1.UnitCommandName(modelCommands[u.command-1]))
		unit.Status.LastCommand.Override = u.override
		if u.old {
			unit.Status.LastCommand.Time = at(-time.Minute)
		}
	}
	if u.episode != 0 {
		unit.Status.Hold = &v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseOperator, Episode: strconv.Itoa(int(u.episode))}
		if u.listed {
			unit.Status.Hold.Causes = latchCauses(modelLatch())
		}
	}
	for i, o := range u.overridden {
		if o.is {
			unit.Status.Overridden = append(unit.Status.Overridden, v1alpha1.OverriddenModule{
				Module: moduleName(i), UID: o.module.uid(i), State: o.module.stored(), Since: o.module.time(),
			})
		}
	}
	return unit
}

func modelLatch() *api.Latch { return &api.Latch{ID: "latch", At: begin(), Modules: []string{"m0"}} }

// abstract takes from a real status what the model keeps of it.
func (m *model) abstract(status v1alpha1.UnitStatus, was modelUnit) modelUnit {
	is := modelUnit{state: stateIndex(isa88.State(status.State)), version: was.version}
	if c := status.LastCommand; c != nil && c.Outcome == v1alpha1.CommandAccepted {
		is.command, is.override, is.old = was.command, was.override, was.old
	}
	if status.Hold != nil {
		episode, _ := strconv.Atoi(status.Hold.Episode)
		is.episode = uint8(episode)
		is.listed = lists(status.Hold, modelLatch())
	}
	for _, o := range status.Overridden {
		i, _ := strconv.Atoi(strings.TrimPrefix(o.Module, "m"))
		kept := modelModule{state: moduleMissing}
		if o.Since != nil {
			kept.since = uint8(o.Since.Sub(begin()) / time.Second)
			switch o.State {
			case v1alpha1.ModuleOnline:
				kept.state = moduleOnline
			case v1alpha1.ModuleFault:
				kept.state = moduleFault
			default:
				kept.state = moduleUnknown
			}
		}
		is.overridden[i].is, is.overridden[i].module = true, kept
	}
	return is
}

// report is what the controllers hear of the runtime now.
func (w *world) report(m *model, unit modelUnit) runtime {
	r := runtime{inContact: w.contact, pod: pod}
	r.report.Runtime.UID = "uid-of-reactor"
	if w.done {
		r.report.Order = &api.Order{UID: "uid-of-reactor", State: modelStates[w.doneState], Revision: -1}
		if w.doneVersion == unit.version {
			r.report.Order.Revision = int64(unit.version) + 1
		}
		r.report.Applied = w.applied
	}
	if w.heardLatch {
		r.report.Latch = modelLatch()
	}
	return r
}

// ask has the real decide answer.
func (m *model) ask(w *world, unit modelUnit, modules [mostModules]modelModule, live bool) answer {
	q := question{unit: unit, modules: modules, live: live, contact: w.contact, latch: w.heardLatch}
	q.unit.version = 0
	if live {
		q.confirmed = w.confirmed
	}
	if w.done {
		q.hasOrder, q.order, q.current, q.applied = true, w.doneState, w.doneVersion == unit.version, w.applied
	}
	if known, ok := m.known[q]; ok {
		known.next.version = unit.version
		return known
	}
	f := facts{unit: m.object(unit), live: live, now: *at(0), inState: time.Second, runtime: w.report(m, unit),
		newEpisode: func() string { return strconv.Itoa(int(unit.episode) + 1) }}
	for i := range m.modules {
		is := module{name: moduleName(i)}
		if s := modules[i]; s.state != moduleMissing {
			is = module{name: moduleName(i), found: true, uid: s.uid(i), state: s.stored(), since: s.time(), confirmed: q.confirmed[i] && s.state == moduleOnline}
			if s.state == moduleUnknownLong {
				is.unknownFor = time.Hour
			}
		}
		f.modules = append(f.modules, is)
	}
	d := m.decide(f)
	a := answer{next: m.abstract(d.status, unit), readLive: d.readLive}
	m.known[q] = a
	return a
}

// passed tells whether an override passed over a module as it is.
func (u modelUnit) passed(i int, m modelModule) bool {
	o := u.overridden[i]
	return o.is && o.module.stored() == m.stored() && (m.state == moduleMissing || o.module.since == m.since)
}

// endangered says what should hold the Unit by what is stored; "" if nothing does.
func (m *model) endangered(w *world) string {
	if !isa88.Holdable(w.unit.isa()) {
		return ""
	}
	for i := range m.modules {
		if s := w.modules[i].state; s != moduleOnline && s != moduleUnknown && !w.unit.passed(i, w.modules[i]) {
			return moduleName(i)
		}
	}
	if w.heardLatch {
		return "the latch"
	}
	return ""
}

// write writes a decision, and checks what no write may do; false is a conflict.
func (m *model) write(w *world, d decided) bool {
	if d.base != w.unit.version && !m.careless {
		return false
	}
	from, to := w.unit.isa(), d.next.isa()
	sent := isa88.Command("")
	if w.unit.command != 0 {
		sent = modelCommands[w.unit.command-1]
	}
	if from != to {
		ordered, _ := isa88.Next(from, sent)
		completed, _ := isa88.Completed(from)
		if to != ordered && !(to == completed && isa88.Transient(from)) && !(to == isa88.Holding && isa88.Holdable(from)) {
			m.fail(*w, "%s from %s without a command, %q waits: it is not in the table", to, from, sent)
		}
		switch {
		case to == isa88.Running && from == isa88.Idle && sent == isa88.Start,
			to == isa88.Running && from == isa88.Paused && sent == isa88.Resume,
			to == isa88.Restarting && from == isa88.Held && sent == isa88.Restart:
			if d.next.command != 0 {
				m.fail(*w, "%s is used, and waits still", sent)
			}
			if d.late {
				m.fail(*w, "%s is carried out too late", sent)
			}
			if !d.fit && !w.unit.override {
				m.fail(*w, "%s leads from %s to %s on modules that were not read, or not fit", sent, from, to)
			}
		case to == isa88.Running && from == isa88.Restarting:
			if !d.fit {
				m.fail(*w, "%s from %s on modules that were not read, or not fit", to, from)
			}
		case to == isa88.Running || to == isa88.Restarting:
			m.fail(*w, "%s from %s without a command; %q waits", to, from, sent)
		}
	}
	if now := d.next.episode; now != w.unit.episode {
		switch {
		case now == 0 && (to == isa88.Running || to == isa88.Idle):
		case now != 0 && to == isa88.Holding && isa88.Holdable(from):
		default:
			m.fail(*w, "episode %d becomes %d from %s to %s", w.unit.episode, now, from, to)
		}
	}
	if to == isa88.Holding && d.next.episode == 0 {
		m.fail(*w, "a hold without an episode")
	}
	for i := range m.modules {
		if o := d.next.overridden[i]; o.is && o != w.unit.overridden[i] && !(w.unit.override && d.next.command == 0 && to != from) {
			m.fail(*w, "%s is passed over, and no override did so", moduleName(i))
		}
	}
	w.unit = d.next
	w.unit.version = w.highest() + 1
	w.unitNews = true
	return true
}

// highest is the highest version anywhere.
func (w *world) highest() uint8 {
	return max(w.unit.version, w.cachedUnit.version, w.readUnit.version, w.decided.base, w.former.base, w.toldVersion, w.doneVersion)
}

// conclude takes what decide says on what was read.
func (m *model) conclude(w *world, unit modelUnit, modules [mostModules]modelModule, live bool) {
	a := m.ask(w, unit, modules, live)
	if a.readLive {
		if live {
			m.fail(*w, "what was read live is to be read live")
		}
		w.step, w.read, w.readUnit, w.readModules = reading, 0, modelUnit{}, [mostModules]modelModule{}
		return
	}
	if a.next == unit {
		m.tell(w, unit)
		return
	}
	fit := live
	for i := range m.modules {
		ready := modules[i].state == moduleOnline && w.confirmed[i]
		fit = fit && (ready || a.next.passed(i, modules[i]))
	}
	w.step, w.read, w.readUnit, w.readModules = writing, 0, modelUnit{}, [mostModules]modelModule{}
	w.decided = decided{a.next, unit.version, fit, unit.old}
}

// tell ends a reconcile: the runtime is told of the Unit.
func (m *model) tell(w *world, unit modelUnit) {
	w.step, w.read, w.readUnit, w.readModules, w.decided = idle, 0, modelUnit{}, [mostModules]modelModule{}, decided{}
	if w.told && unit.version < w.toldVersion {
		return
	}
	order := m.order(m.object(unit), w.report(m, unit))
	w.told, w.toldVersion, w.toldState = true, unit.version, stateIndex(order.State)
	w.acknowledged = order.LatchAcknowledged != ""
	if w.acknowledged && unit.version == w.unit.version && (isa88.Holdable(unit.isa()) || (unit.isa() == isa88.Holding || unit.isa() == isa88.Held) && !unit.listed) {
		m.fail(*w, "a latch is acknowledged in %s and is not stored", unit.isa())
	}
}

// controllerSteps are the worlds to which the controllers' steps lead.
func (m *model) controllerSteps(w world, add func(world)) {
	if w.unitNews {
		n := w
		n.unitNews, n.queued, n.cachedUnit = false, true, w.unit
		add(n)
	}
	for i := range m.modules {
		if w.moduleNews[i] {
			n := w
			n.moduleNews[i], n.cachedModules[i] = false, w.modules[i]
			n.queued = w.queued || !m.deaf
			add(n)
		}
	}
	switch n := w; {
	case w.step == idle && w.queued:
		n.queued = false
		m.conclude(&n, w.cachedUnit, w.cachedModules, false)
		add(n)
	case w.step == reading && w.read == 0:
		n.readUnit, n.cachedUnit, n.read = w.unit, w.unit, 1
		add(n)
	case w.step == reading:
		i := int(w.read) - 1
		n.readModules[i], n.read = w.modules[i], w.read+1
		if w.modules[i].state != moduleMissing && w.cachedModules[i].state != moduleMissing {
			n.cachedModules[i] = w.modules[i]
		}
		if int(n.read) > m.modules {
			m.conclude(&n, n.readUnit, n.readModules, true)
		}
		add(n)
	case w.step == writing:
		if m.write(&n, w.decided) {
			n.step, n.decided, n.cachedUnit = telling, decided{}, n.unit
		} else {
			n.step, n.decided = reading, decided{}
		}
		add(n)
	case w.step == telling:
		m.tell(&n, w.cachedUnit)
		add(n)
	}
}

// otherSteps are the worlds to which everything else leads: users, devices, probes, the runtime, crashes.
func (m *model) otherSteps(w world, add func(world)) {
	// The runtime and the probes do what they should, or nothing; neither is counted.
	if w.contact && w.told && (!w.done || w.doneVersion != w.toldVersion || !w.applied) {
		n := w
		n.done, n.doneState, n.doneVersion, n.applied = true, w.toldState, w.toldVersion, true
		if w.acknowledged && !isa88.Holdable(modelStates[w.toldState]) {
			n.latched, n.heardLatch, n.acknowledged = false, false, false
		}
		n.queued = true
		add(n)
	}
	for i := range m.modules {
		if w.modules[i].state == moduleOnline && !w.confirmed[i] {
			n := w
			n.confirmed[i], n.queued = true, true
			add(n)
		}
	}
	if w.hasFormer {
		n := w
		m.write(&n, w.former)
		n.hasFormer, n.former = false, decided{}
		add(n)
	}
	if w.left == 0 {
		return
	}
	w.left--
	for c := range modelCommands {
		if _, ok := isa88.Next(w.unit.isa(), modelCommands[c]); !ok {
			continue
		}
		rank := func(c isa88.Command) int {
			return slices.Index([]isa88.Command{isa88.Hold, isa88.Stop, isa88.Abort}, c)
		}
		if w.unit.command != 0 && rank(modelCommands[c]) <= rank(modelCommands[w.unit.command-1]) {
			continue
		}
		for _, override := range []bool{false, true} {
			if override && !runs(v1alpha1.UnitCommandName(modelCommands[c])) {
				continue
			}
			n := w
			n.unit.command, n.unit.override, n.unit.old = uint8(c+1), override, false
			n.unit.version = w.highest() + 1
			n.unitNews = true
			add(n)
		}
	}
	for i := range m.modules {
		for _, state := range m.states {
			is := w.modules[i]
			// Unknown becomes Unknown for long by time alone.
			if state == is.state || (state == moduleUnknownLong) != (is.state == moduleUnknown && state == moduleUnknownLong) {
				continue
			}
			n := w
			n.modules[i].state = state
			if state != moduleUnknownLong {
				n.modules[i].since = m.since(&w, i)
			}
			if state == moduleMissing {
				n.modules[i].since = 0
			}
			n.moduleNews[i] = true
			n.confirmed[i] = false
			add(n)
		}
	}
	// A crash, or a change of the leader: the caches are filled anew, what was on its way is lost, or is written later by the former
	// leader; and it may take so long that a command is too old.
	crashed := w
	crashed.step, crashed.read, crashed.readUnit, crashed.readModules, crashed.decided = idle, 0, modelUnit{}, [mostModules]modelModule{}, decided{}
	crashed.cachedUnit, crashed.cachedModules, crashed.unitNews, crashed.moduleNews = w.unit, w.modules, false, [mostModules]bool{}
	crashed.confirmed, crashed.queued = [mostModules]bool{}, true
	crashed.contact, crashed.told, crashed.toldState, crashed.toldVersion, crashed.acknowledged = false, false, 0, 0, false
	crashed.done, crashed.doneState, crashed.doneVersion, crashed.applied, crashed.heardLatch = false, 0, 0, false, false
	add(crashed)
	if w.step == writing && !w.hasFormer {
		n := crashed
		n.former, n.hasFormer = w.decided, true
		add(n)
	}
	if w.unit.command != 0 && !w.unit.old {
		n := crashed
		n.unit.old = true
		n.cachedUnit = n.unit
		add(n)
	}
	if m.alone {
		return
	}
	// Contact with the runtime comes and goes; without it the runtime may hold by itself.
	n := w
	n.contact, n.queued = !w.contact, true
	if n.contact {
		n.heardLatch = w.latched
	}
	add(n)
	if !w.contact && !w.latched {
		n := w
		n.latched = true
		add(n)
	}
}

// since is a stay in a state that was not seen before.
func (m *model) since(w *world, i int) uint8 {
	highest := max(w.modules[i].since, w.cachedModules[i].since, w.readModules[i].since)
	for _, u := range []modelUnit{w.unit, w.cachedUnit, w.readUnit, w.decided.next, w.former.next} {
		highest = max(highest, u.overridden[i].module.since)
	}
	return highest + 1
}

// canonical numbers versions, episodes and stays anew, keeping what is equal equal and versions in their order: worlds that differ in
// nothing else are the same.
func (m *model) canonical(w world) world {
	versions := []*uint8{&w.unit.version, &w.cachedUnit.version, &w.readUnit.version, &w.decided.base, &w.former.base, &w.toldVersion, &w.doneVersion}
	w.decided.next.version, w.former.next.version = 0, 0
	var used [256]bool
	var rank [256]uint8
	for _, v := range versions {
		used[*v] = true
	}
	next := uint8(0)
	for v := range used {
		if used[v] {
			rank[v] = next
			next++
		}
	}
	for _, v := range versions {
		*v = rank[*v]
	}
	units := []*modelUnit{&w.unit, &w.cachedUnit, &w.readUnit, &w.decided.next, &w.former.next}
	renumber := func(values ...*uint8) {
		var names [256]uint8
		next := uint8(1)
		for _, v := range values {
			if *v == 0 {
				continue
			}
			if names[*v] == 0 {
				names[*v] = next
				next++
			}
			*v = names[*v]
		}
	}
	var episodes []*uint8
	for _, u := range units {
		episodes = append(episodes, &u.episode)
	}
	renumber(episodes...)
	for i := range m.modules {
		stays := []*uint8{&w.modules[i].since, &w.cachedModules[i].since, &w.readModules[i].since}
		for _, u := range units {
			stays = append(stays, &u.overridden[i].module.since)
		}
		renumber(stays...)
	}
	return w
}

// begins are all states that a store may be in when the controllers start, with the runtime in contact or not, and holding by itself or not.
func (m *model) begins(left uint8, add func(world)) {
	var modules func(i int, w world)
	modules = func(i int, w world) {
		if i == m.modules {
			w.cachedUnit, w.cachedModules, w.queued = w.unit, w.modules, true
			add(w)
			return
		}
		for _, state := range m.states {
			n := w
			n.modules[i] = modelModule{state: state, since: 1}
			if state == moduleMissing {
				n.modules[i].since = 0
			}
			modules(i+1, n)
			if isa88.Holdable(w.unit.isa()) {
				n.unit.overridden[i].is, n.unit.overridden[i].module = true, n.modules[i]
				if state == moduleUnknownLong {
					n.unit.overridden[i].module.state = moduleUnknown
				}
				modules(i+1, n)
			}
		}
	}
	for s, state := range modelStates {
		w := world{left: left, unit: modelUnit{state: uint8(s)}}
		if state == isa88.Holding || state == isa88.Held || state == isa88.Restarting {
			w.unit.episode = 1
		}
		units := []modelUnit{w.unit}
		for c, command := range modelCommands {
			if _, ok := isa88.Next(state, command); !ok {
				continue
			}
			u := w.unit
			u.command = uint8(c + 1)
			units = append(units, u)
			if runs(v1alpha1.UnitCommandName(command)) {
				u.override = true
				units = append(units, u)
				u.old = true
				units = append(units, u)
			}
		}
		for _, u := range units {
			for _, contact := range []bool{false, true} {
				for _, latched := range []bool{false, true} {
					if m.alone && (contact || latched) {
						continue
					}
					n := w
					n.unit, n.contact, n.latched, n.heardLatch = u, contact, latched, latched && contact
					modules(0, n)
				}
			}
		}
	}
}

// explore tries everything, and stops at the first violation.
func (m *model) explore(left uint8) {
	m.known = map[question]answer{}
	seen := map[world]struct{}{}
	var line []world
	push := func(w world) {
		w = m.canonical(w)
		if _, ok := seen[w]; !ok {
			seen[w] = struct{}{}
			line = append(line, w)
		}
	}
	m.begins(left, push)
	for i := 0; i < len(line) && m.violation == ""; i++ {
		w := line[i]
		moves := false
		m.controllerSteps(w, func(n world) { moves = true; push(n) })
		if !moves {
			if by := m.endangered(&w); by != "" {
				m.fail(w, "the controllers are done, and the Unit is %s in spite of %s", w.unit.isa(), by)
			}
		}
		m.otherSteps(w, push)
	}
	m.reached = len(seen)
	if m.violation == "" {
		m.checkEnds(line)
	}
}

// checkEnds proves that the controllers' steps alone come to an end wherever one stops: their graph has no cycle. It notes the longest way.
func (m *model) checkEnds(all []world) {
	type frame struct {
		w    world
		next []world
		way  int
	}
	const onTheWay = -1
	length := make(map[world]int, len(all))
	steps := func(w world) []world {
		var next []world
		m.controllerSteps(w, func(n world) {
			n = m.canonical(n)
			n.left = 0
			next = append(next, n)
		})
		return next
	}
	for _, start := range all {
		start.left = 0
		if _, ok := length[start]; ok {
			continue
		}
		stack := []frame{{start, steps(start), 0}}
		length[start] = onTheWay
		for len(stack) > 0 && m.violation == "" {
			top := &stack[len(stack)-1]
			if len(top.next) == 0 {
				length[top.w] = top.way
				m.longest = max(m.longest, top.way)
				way := top.way + 1
				stack = stack[:len(stack)-1]
				if len(stack) > 0 {
					below := &stack[len(stack)-1]
					below.way = max(below.way, way)
				}
				continue
			}
			n := top.next[len(top.next)-1]
			top.next = top.next[:len(top.next)-1]
			switch known, ok := length[n]; {
			case ok && known == onTheWay:
				m.fail(n, "the controllers go round in a circle")
			case ok:
				top.way = max(top.way, known+1)
			default:
				length[n] = onTheWay
				stack = append(stack, frame{n, steps(n), 0})
			}
		}
	}
}

// Req: P-16, P-16b, P-16c
func TestNoPathLeavesAUnitRunningOnAFaultOrStartsItUnasked(t *testing.T) {
	for _, tc := range []struct {
		name    string
		modules int
		events  uint8
		states  []uint8
		alone   bool
	}{
		{"one module and the runtime", 1, 2, everyState(), false},
		{"two modules", 2, 1, []uint8{moduleOnline, moduleFault, moduleUnknown}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &model{modules: tc.modules, states: tc.states, alone: tc.alone, decide: decide, order: orderOf}
			begun := time.Now()
			if testing.Short() {
				tc.events = 1
			}
			m.explore(tc.events)
			if m.violation != "" {
				t.Fatal(m.violation)
			}
			t.Logf("%d states, %d different decisions, at most %d steps of the controllers, %s", m.reached, len(m.known), m.longest, time.Since(begun).Round(time.Millisecond))
		})
	}
}

// A check that finds nothing wrong with a broken controller proves nothing: each of these breaks one rule, and is found out.
//
// Req: P-16, P-16b, P-16c
func TestABrokenDecisionIsFoundOut(t *testing.T) {
	for _, tc := range []struct {
		name   string
		decide func(facts) decision
		order  func(*v1alpha1.Unit, runtime) api.Order
		breaks func(*model)
		want   string
	}{
		{name: "in Paused nothing is held", want: "in spite of m0", decide: func(f facts) decision {
			d := decide(f)
			if f.unit.Status.State == v1alpha1.UnitPaused && d.status.State == v1alpha1.UnitHolding {
				return decision{status: f.unit.Status}
			}
			return d
		}},
		{name: "a fault counts only while it is new", want: "in spite of m0", decide: func(f facts) decision {
			for i, m := range f.modules {
				if m.since != nil && m.since.Sub(begin()) <= time.Second {
					f.modules[i].state = v1alpha1.ModuleOnline
				}
			}
			return decide(f)
		}},
		{name: "a missing module is none", want: "in spite of m0", decide: func(f facts) decision {
			f.modules = slices.DeleteFunc(slices.Clone(f.modules), func(m module) bool { return !m.found })
			return decide(f)
		}},
		{name: "Unknown never holds", want: "in spite of m0", decide: func(f facts) decision {
			for i := range f.modules {
				f.modules[i].unknownFor = 0
			}
			return decide(f)
		}},
		{name: "the latch is not heard", want: "in spite of the latch", decide: func(f facts) decision {
			f.runtime.report.Latch = nil
			return decide(f)
		}},
		{name: "what was passed over once is passed over for ever", want: "no override did so", decide: func(f facts) decision {
			for i := range f.unit.Status.Overridden {
				o := &f.unit.Status.Overridden[i]
				for _, m := range f.modules {
					if m.name == o.Module {
						o.UID, o.State, o.Since = m.uid, m.state, m.since
					}
				}
			}
			return decide(f)
		}},
		{name: "a command that waits keeps the Unit from being held", want: "in spite of m0", decide: func(f facts) decision {
			d := decide(f)
			if f.unit.Status.LastCommand != nil && d.status.State == v1alpha1.UnitHolding {
				return decision{status: f.unit.Status}
			}
			return d
		}},
		{name: "a module that recovers restarts the Unit", want: "without a command", decide: func(f facts) decision {
			d := decide(f)
			if f.live && d.status.State == v1alpha1.UnitHeld && f.unit.Status.State == v1alpha1.UnitHeld && f.modules[0].state == v1alpha1.ModuleOnline {
				d.status.State = v1alpha1.UnitRestarting
			}
			if !f.live && d.status.State == v1alpha1.UnitHeld {
				d.readLive = true
			}
			return d
		}},
		{name: "a module that recovers resumes the Unit", want: "without a command", decide: func(f facts) decision {
			d := decide(f)
			if d.status.State == v1alpha1.UnitPaused && f.modules[0].state == v1alpha1.ModuleOnline && f.unit.Status.LastCommand == nil {
				d.status.State = v1alpha1.UnitRunning
			}
			return d
		}},
		{name: "a command is carried out and waits still", want: "waits still", decide: func(f facts) decision {
			d := decide(f)
			if d.status.State == v1alpha1.UnitRunning && d.status.LastCommand != nil {
				d.status.LastCommand.Outcome = v1alpha1.CommandAccepted
			}
			return d
		}},
		{name: "a command is carried out however late", want: "too late", decide: func(f facts) decision {
			if c := f.unit.Status.LastCommand; c != nil {
				c.Time = at(0)
			}
			return decide(f)
		}},
		{name: "a cache is enough", want: "not fit", decide: func(f facts) decision {
			if !f.live {
				f.live = true
				for i := range f.modules {
					f.modules[i].confirmed = f.modules[i].state == v1alpha1.ModuleOnline
				}
			}
			return decide(f)
		}},
		{name: "what a former leader measured is enough", want: "not fit", decide: func(f facts) decision {
			for i := range f.modules {
				f.modules[i].confirmed = true
			}
			return decide(f)
		}},
		{name: "Unknown is good enough to start", want: "not fit", decide: func(f facts) decision {
			for i := range f.modules {
				if f.live && f.modules[i].state == v1alpha1.ModuleUnknown && f.modules[i].unknownFor == 0 {
					f.modules[i].state, f.modules[i].confirmed = v1alpha1.ModuleOnline, true
				}
			}
			return decide(f)
		}},
		{name: "every cause begins another hold", want: "episode", decide: func(f facts) decision {
			d := decide(f)
			if len(d.events) > 0 && d.events[0].reason == ReasonHoldCauseAdded {
				d.status.Hold.Episode = f.newEpisode()
			}
			return d
		}},
		{name: "a hold is forgotten when the Unit is Held", want: "episode", decide: func(f facts) decision {
			d := decide(f)
			if d.status.State == v1alpha1.UnitHeld {
				d.status.Hold = nil
			}
			return d
		}},
		{name: "a decision that leads to another one", want: "not in the table", decide: func(f facts) decision {
			d := decide(f)
			if d.status.State == v1alpha1.UnitStopped || d.status.State == v1alpha1.UnitAborted {
				d.status.State = map[v1alpha1.UnitState]v1alpha1.UnitState{v1alpha1.UnitStopped: v1alpha1.UnitAborted, v1alpha1.UnitAborted: v1alpha1.UnitStopped}[d.status.State]
			}
			return d
		}},
		{name: "a decision that never comes to rest", want: "circle", decide: func(f facts) decision {
			d := decide(f)
			if d.status.State == v1alpha1.UnitHeld && d.status.Hold != nil {
				d.status.Hold.Causes = nil
				if f.unit.Status.Hold != nil && len(f.unit.Status.Hold.Causes) == 0 {
					d.status.Hold.Causes = latchCauses(modelLatch())
				}
			}
			return d
		}},
		{name: "a latch is acknowledged before it is stored", want: "acknowledged", order: func(unit *v1alpha1.Unit, r runtime) api.Order {
			order := orderOf(unit, r)
			if r.report.Latch != nil {
				order.LatchAcknowledged = r.report.Latch.ID
			}
			return order
		}},
		{name: "writes are not checked against what was read", want: "not in the table", breaks: func(m *model) { m.careless = true }},
		{name: "changes of modules wake nobody", want: "in spite of m0", breaks: func(m *model) { m.deaf = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &model{modules: 1, states: everyState(), decide: decide, order: orderOf}
			if tc.decide != nil {
				m.decide = tc.decide
			}
			if tc.order != nil {
				m.order = tc.order
			}
			if tc.breaks != nil {
				tc.breaks(m)
			}
			m.explore(1)
			if !strings.Contains(m.violation, tc.want) {
				t.Errorf("after %d states found %q, want %q", m.reached, m.violation, tc.want)
			}
		})
	}
}
