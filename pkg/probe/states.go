package probe

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// states holds what is known of every module, and tells followers what changed. A follower that is slow gets the
// latest state of each module and misses what lay between; it never makes a supervisor wait.
type states struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	modules   map[string]moduleState
	followers map[*follower]struct{}
}

type moduleState struct {
	api.ModuleState
	staleAfter time.Duration
}

// follower collects the names of modules that changed or went, until it takes them.
type follower struct {
	dirty map[string]struct{}
	// ready holds a token while dirty is not empty.
	ready chan struct{}
}

func newStates(c clock.PassiveClock) *states {
	return &states{clock: c, modules: map[string]moduleState{}, followers: map[*follower]struct{}{}}
}

// set stores a module's state; followers are told unless only the time of the measurement is new.
func (s *states) set(state api.ModuleState, staleAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.modules[state.Name]
	s.modules[state.Name] = moduleState{state, staleAfter}
	before.MeasuredAt = state.MeasuredAt
	if !known || !before.Equal(state) {
		s.tell(state.Name)
	}
}

// setGeneration notes that a newer generation of a module is measured in the same way.
func (s *states) setGeneration(name string, generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.modules[name]
	if !ok || m.Generation == generation {
		return
	}
	m.Generation = generation
	s.modules[name] = m
	s.tell(name)
}

// remove forgets a module.
func (s *states) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.modules, name)
	s.tell(name)
}

func (s *states) tell(name string) {
	for f := range s.followers {
		f.dirty[name] = struct{}{}
		select {
		case f.ready <- struct{}{}:
		default:
		}
	}
}

// list is every module, sorted by name.
func (s *states) list() []api.ModuleState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked()
}

// find is the module of a uid, or of a name if no module has it as its uid.
func (s *states) find(module string) (api.ModuleState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.modules {
		if m.UID == module && module != "" {
			return m.at(s.clock.Now()), true
		}
	}
	m, ok := s.modules[module]
	return m.at(s.clock.Now()), ok
}

func (s *states) listLocked() []api.ModuleState {
	now := s.clock.Now()
	list := make([]api.ModuleState, 0, len(s.modules))
	for _, m := range s.modules {
		list = append(list, m.at(now))
	}
	slices.SortFunc(list, func(a, b api.ModuleState) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// at is the state with Stale as of now. A module without a verdict is never stale: it claims nothing.
func (m moduleState) at(now time.Time) api.ModuleState {
	state := m.ModuleState
	state.Stale = state.Found && now.Sub(state.MeasuredAt) > m.staleAfter
	return state
}

// stale is the names of the modules whose measurement is too old, sorted.
func (s *states) stale() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var names []string
	for name, m := range s.modules {
		if m.at(now).Stale {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// follow returns every module and a follower of what changes from then on.
func (s *states) follow() ([]api.ModuleState, *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &follower{dirty: map[string]struct{}{}, ready: make(chan struct{}, 1)}
	s.followers[f] = struct{}{}
	return s.listLocked(), f
}

// unfollow ends a follower.
func (s *states) unfollow(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followers, f)
}

// take returns what changed and what went since the last time.
func (s *states) take(f *follower) (changed []api.ModuleState, removed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for name := range f.dirty {
		if m, ok := s.modules[name]; ok {
			changed = append(changed, m.at(now))
		} else {
			removed = append(removed, name)
		}
	}
	clear(f.dirty)
	slices.SortFunc(changed, func(a, b api.ModuleState) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(removed)
	return changed, removed
}
