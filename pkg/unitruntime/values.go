package unitruntime

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// values holds the last value of every tag, and what is known of the devices that they come from. Its lock is held for no
// longer than a copy takes, so that no device, and no reader, makes another wait.
type values struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// cells are in the order of the config's tags.
	cells   []*cell
	byKey   map[api.TagKey]*cell
	devices map[string]*deviceState
	// version grows with every change.
	version   uint64
	followers map[chan struct{}]struct{}
}

// cell is one tag and its last value.
type cell struct {
	tag    *Tag
	device *deviceState

	value      value
	rawType    driver.DataType
	sourceTime time.Time
	sampled    bool
	status     driver.StatusCode
	message    string
	// answeredAt and valueAt are when the question was sent that brought the last answer, and the value.
	answeredAt, valueAt time.Time

	version uint64
}

// deviceState is what a device's tags share.
type deviceState struct {
	// problem: the module is not there, or cannot be used.
	problem string
	down    bool
	cause   string
}

func newValues(c clock.PassiveClock) *values {
	return &values{clock: c, byKey: map[api.TagKey]*cell{}, devices: map[string]*deviceState{}, followers: map[chan struct{}]struct{}{}}
}

// apply takes the tags of a new config. A tag that is read as before keeps its value, unless its module is another device now.
// problems are the modules that cannot be used.
func (v *values) apply(tags []*Tag, replaced map[string]bool, problems map[string]*driver.Error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	devices := map[string]*deviceState{}
	cells, byKey := make([]*cell, 0, len(tags)), make(map[api.TagKey]*cell, len(tags))
	for _, t := range tags {
		d := devices[t.IOModule]
		if d == nil {
			d = v.devices[t.IOModule].successor(replaced[t.IOModule], problems[t.IOModule])
			devices[t.IOModule] = d
		}
		c := v.byKey[t.TagKey]
		if c == nil || !c.tag.sameValue(t) || replaced[t.IOModule] {
			c = &cell{}
		}
		if c.device != d || !equalConfigured(c.tag, t) {
			v.changed(c)
		}
		c.tag, c.device = t, d
		cells, byKey[t.TagKey] = append(cells, c), c
	}
	v.cells, v.byKey, v.devices = cells, byKey, devices
	v.notify()
}

// successor is what is known of a device under a new config; d may be nil.
func (d *deviceState) successor(replaced bool, problem *driver.Error) *deviceState {
	next := deviceState{}
	switch {
	case problem != nil && problem.Reason == driver.ReasonProbeUnavailable:
		next.down, next.cause = true, problem.Error()
	case problem != nil:
		next.problem = problem.Error()
	case d != nil && !replaced && d.problem == "":
		return d
	}
	return &next
}

// setDown notes that the last exchange with a device failed, or went well.
func (v *values) setDown(module string, down bool, cause string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.devices[module]
	if d == nil || d.down == down && d.cause == cause {
		return
	}
	d.down, d.cause = down, cause
	for _, c := range v.cells {
		if c.device == d {
			v.changed(c)
		}
	}
	v.notify()
}

// settle takes what came of reading tags; startedAt is when the question was sent. Tags that a newer config has changed are left
// out: their question was another one.
func (v *values) settle(tags []*Tag, samples []driver.Sample, startedAt time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	news := false
	for i, t := range tags {
		c := v.byKey[t.TagKey]
		if c == nil || c.tag != t && !c.tag.sameValue(t) {
			continue
		}
		value, sourceTime, sampled, status, message := c.value, c.sourceTime, c.sampled, c.status, c.message
		c.take(samples[i], startedAt)
		if !sampled || value != c.value || status != c.status || message != c.message || !sourceTime.Equal(c.sourceTime) {
			v.changed(c)
			news = true
		}
	}
	if news {
		v.notify()
	}
}

// take is one sample.
func (c *cell) take(s driver.Sample, startedAt time.Time) {
	c.sampled, c.answeredAt, c.status, c.message = true, startedAt, s.Status, ""
	if s.Err != nil {
		c.message = causeOf(s.Err)
		if s.Status.Good() {
			c.status = driver.StatusOf(s.Err)
		}
	}
	if c.status.Bad() {
		// What a device says beside a Bad status is not to be used.
		return
	}
	if s.Value == nil {
		if c.status.Good() {
			c.status, c.message = driver.StatusBadNoCommunication, "the device gave no value"
		}
		return
	}
	value, why := c.tag.scaling.valueOf(s.Value)
	if why != nil {
		c.status, c.message = why.status, why.message
		return
	}
	c.value, c.rawType, c.valueAt, c.sourceTime = value, typeOf(s.Value), startedAt, s.SourceTime
	if c.sourceTime.IsZero() {
		c.sourceTime = startedAt
	}
}

// rawType is the data type that the device has for a tag; "" before its first value.
func (v *values) rawType(key api.TagKey) driver.DataType {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.byKey[key]; c != nil {
		return c.rawType
	}
	return ""
}

func (v *values) changed(c *cell) {
	v.version++
	c.version = v.version
}

func (v *values) notify() {
	for f := range v.followers {
		select {
		case f <- struct{}{}:
		default:
		}
	}
}

// follow returns a channel that holds a token whenever something changed since it was taken.
func (v *values) follow() chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := make(chan struct{}, 1)
	v.followers[f] = struct{}{}
	return f
}

func (v *values) unfollow(f chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.followers, f)
}

// judge is the cell's quality now.
func (c *cell) judge(now time.Time) (driver.StatusCode, string) {
	s := situation{
		problem: c.tag.Problem, writeOnly: !c.tag.readable(), down: c.device.down, cause: c.device.cause,
		sampled: c.sampled, status: c.status, message: c.message, hasValue: c.value.kind != nothing, period: c.tag.Period,
	}
	if s.problem == "" {
		s.problem = c.device.problem
	}
	if c.sampled {
		s.answerAge = now.Sub(c.answeredAt)
	}
	if s.hasValue {
		s.valueAge = now.Sub(c.valueAt)
	}
	return judge(s)
}

func (c *cell) told(status driver.StatusCode, message string) api.TagValue {
	t := api.TagValue{
		ControlModule: c.tag.ControlModule, Name: c.tag.Name, IOModule: c.tag.IOModule, Address: c.tag.Address,
		Access: string(c.tag.Access), Unit: c.tag.Unit, Status: status, SourceTime: c.sourceTime, Message: message,
	}
	if c.value.kind != nothing {
		text := c.value.text()
		t.Value = &text
	}
	return t
}

// list is every tag as it is now.
func (v *values) list() []api.TagValue {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.clock.Now()
	out := make([]api.TagValue, 0, len(v.cells))
	for _, c := range v.cells {
		out = append(out, c.told(c.judge(now)))
	}
	return out
}

// count is the number of tags by quality.
func (v *values) count() (good, uncertain, bad int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.clock.Now()
	for _, c := range v.cells {
		switch status, _ := c.judge(now); {
		case status.Good():
			good++
		case status.Uncertain():
			uncertain++
		default:
			bad++
		}
	}
	return good, uncertain, bad
}

// told is what a follower was told of the tags.
type told map[api.TagKey]struct {
	version uint64
	status  driver.StatusCode
}

// news is every tag of which another version or quality was told last, and those that are no more.
func (v *values) news(t told) (changed []api.TagValue, removed []api.TagKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.clock.Now()
	for _, c := range v.cells {
		status, message := c.judge(now)
		last, known := t[c.tag.TagKey]
		if known && last.version == c.version && last.status == status {
			continue
		}
		last.version, last.status = c.version, status
		t[c.tag.TagKey] = last
		changed = append(changed, c.told(status, message))
	}
	if len(t) > len(v.cells) {
		for key := range t {
			if v.byKey[key] == nil {
				removed = append(removed, key)
				delete(t, key)
			}
		}
	}
	return changed, removed
}
