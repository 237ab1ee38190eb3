package unitruntime

import (
	"maps"
	"slices"

	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Info is what the runtime says of itself.
func (r *Runtime) Info() api.RuntimeInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.infoLocked()
}

func (r *Runtime) infoLocked() api.RuntimeInfo {
	i := api.RuntimeInfo{BootID: r.options.BootID, ConfigError: r.configError, Time: r.clock.Now()}
	if r.config != nil {
		i.Unit, i.UID, i.ConfigHash = r.config.Unit.Name, r.config.Unit.UID, r.config.Hash
	}
	return i
}

// Report is where the runtime stands.
func (r *Runtime) Report() api.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := api.Report{Runtime: r.infoLocked(), Outstanding: r.outstanding(), Modules: r.modules()}
	if r.order != nil {
		order := *r.order
		report.Order = &order
	}
	if r.latch != nil {
		latch := *r.latch
		latch.Modules = slices.Clone(latch.Modules)
		report.Latch = &latch
	}
	report.Applied = r.applied(report.Outstanding)
	return report
}

// applied tells whether all that the order asks for is done: it came since the start, it is stored, nothing that it forbids is with a
// driver, and every hold value was taken by its device, or waits for one that is lost.
func (r *Runtime) applied(outstanding []api.HoldWrite) bool {
	if r.order == nil || !r.fresh || !r.stored || !r.drainedLocked() {
		return false
	}
	if _, holds := holdClass(r.order.State); !holds && r.latch != nil {
		return false
	}
	return !slices.ContainsFunc(outstanding, func(w api.HoldWrite) bool { return !w.Unreachable })
}

// modules are the devices as the runtime reaches them, sorted by name.
func (r *Runtime) modules() []api.ModuleLink {
	if r.config == nil {
		return nil
	}
	out := make([]api.ModuleLink, 0, len(r.config.Modules))
	for _, name := range slices.Sorted(maps.Keys(r.config.Modules)) {
		if l := r.links[name]; l != nil {
			out = append(out, l.told())
			continue
		}
		m := r.broken[name]
		link := api.ModuleLink{Name: name, UID: m.UID}
		if m.Err != nil {
			link.Reason, link.Message = string(m.Err.Reason), causeOf(m.Err)
		}
		out = append(out, link)
	}
	return out
}

// follow returns a channel that holds a token whenever the report changed since it was taken.
func (r *Runtime) follow() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := make(chan struct{}, 1)
	r.followers[f] = struct{}{}
	return f
}

func (r *Runtime) unfollow(f chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, f)
}
