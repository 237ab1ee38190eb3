package unitruntime

import (
	"slices"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// group is the tags of one device that are read together: those of one period.
type group struct {
	period   time.Duration
	tags     []*Tag
	channels []driver.Channel
	// due is when the group is read next.
	due time.Time
}

// schedule is when the groups of a device are read. It is not safe for concurrent use.
type schedule struct {
	groups []*group
	// phase spreads devices of the same period over it.
	phase time.Duration
}

// set takes the device's tags. A group of a period that was there keeps its time; a new one is due at once, but for the phase.
func (s *schedule) set(tags []*Tag, now time.Time) {
	former := map[time.Duration]time.Time{}
	for _, g := range s.groups {
		former[g.period] = g.due
	}
	byPeriod := map[time.Duration]*group{}
	s.groups = nil
	for _, t := range tags {
		if !t.readable() {
			continue
		}
		g := byPeriod[t.Period]
		if g == nil {
			g = &group{period: t.Period, due: now.Add(min(s.phase, t.Period))}
			if due, ok := former[t.Period]; ok {
				g.due = due
			}
			byPeriod[t.Period] = g
			s.groups = append(s.groups, g)
		}
		g.tags, g.channels = append(g.tags, t), append(g.channels, t.Channel)
	}
	slices.SortFunc(s.groups, func(a, b *group) int { return int(a.period - b.period) })
}

// next is when the first group is due; false without any.
func (s *schedule) next() (time.Time, bool) {
	var first time.Time
	for _, g := range s.groups {
		if first.IsZero() || g.due.Before(first) {
			first = g.due
		}
	}
	return first, !first.IsZero()
}

// take is the groups that are due, the shortest period first, and moves them on: reads that were missed are left out.
func (s *schedule) take(now time.Time) []*group {
	var due []*group
	for _, g := range s.groups {
		if g.due.After(now) {
			continue
		}
		due = append(due, g)
		g.due = g.due.Add(g.period * (1 + now.Sub(g.due)/g.period))
	}
	return due
}

// retry makes groups due at a time, unless they are due before.
func (s *schedule) retry(groups []*group, at time.Time) {
	for _, g := range groups {
		if at.Before(g.due) {
			g.due = at
		}
	}
}

// hurry makes every group due: the device is back.
func (s *schedule) hurry(now time.Time) {
	for _, g := range s.groups {
		g.due = now
	}
}
