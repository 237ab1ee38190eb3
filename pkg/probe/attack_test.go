package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Req: P-07, P-16 (a probe that was frozen, or has no processor, blames no device)
func TestASilenceThatMayBeOurOwnFaultIsNoFault(t *testing.T) {
	for _, c := range []struct {
		stall time.Duration
		fault bool
	}{{0, true}, {400 * time.Millisecond, true}, {600 * time.Millisecond, false}, {time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			var stall atomic.Int64
			s.options.Stalled = func(time.Time) time.Duration { return time.Duration(stall.Load()) }
			d := s.device("tcp://a")
			s.apply(t, entry("a", "tcp://a", 1))
			s.until(t, "a", "online", online)
			stall.Store(int64(c.stall))
			d.set(silent)
			if c.fault {
				if took := s.until(t, "a", "fault", fault); took > 5*time.Second {
					t.Errorf("fault after %s", took)
				}
				return
			}
			if took := s.until(t, "a", "stale", func(m api.ModuleState) bool { return m.Stale }); took > 6*time.Second {
				t.Errorf("stale after %s", took)
			}
			if m := s.state(t, "a"); !online(m) {
				t.Errorf("a stall of %s made it %+v", c.stall, m)
			}
			// What is refused is refused, however late we hear it.
			d.set(refuses)
			s.until(t, "a", "fault", fault)
		})
	}
}

// Req: P-13 (a hostile device)
func TestWhatADeviceHasInAnErrorIsBoundedAndSafeToShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		bad := "\x1b[2J" + strings.Repeat("policy", 20_000)
		d := s.device("tcp://a")
		s.apply(t, entry("a", "tcp://a", 1))
		check := func(is func(api.ModuleState) bool) {
			t.Helper()
			s.until(t, "a", "told", func(m api.ModuleState) bool { return is(m) && m.Message != "" })
			if m := s.state(t, "a"); len(m.Message) > maxText || strings.Contains(m.Message, "\x1b") {
				t.Errorf("a message of %d bytes: %.20q", len(m.Message), m.Message)
			}
		}
		d.set(func(context.Context) (driver.Answer, error) { return driver.Answer{Message: bad}, nil })
		check(online)
		d.set(func(context.Context) (driver.Answer, error) {
			return driver.Answer{}, &driver.Error{Reason: driver.ReasonProtocolError, Err: errors.New(bad)}
		})
		check(fault)
		d.set(func(context.Context) (driver.Answer, error) { panic(bad) })
		check(fault)
	})
}

// Req: P-11 (devices that take their time to be closed keep no new config waiting)
func TestManyDevicesAreClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var entries []string
		for i := range 300 {
			name := fmt.Sprint("m", i)
			s.device("tcp://" + name).slow = time.Second
			entries = append(entries, entry(name, "tcp://"+name, 1))
		}
		s.apply(t, entries...)
		for i, e := range entries {
			entries[i] = strings.Replace(e, `"modbus":{`, `"modbus":{"unitID":7,`, 1)
		}
		began := time.Now()
		s.apply(t, entries...)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("to change them took %s", took)
		}
		began = time.Now()
		s.apply(t)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		s.apply(t, entries...)
		began = time.Now()
		s.Stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}
