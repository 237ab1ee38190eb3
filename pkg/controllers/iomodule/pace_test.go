package iomodule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// Req: P-06, P-12, P-16
func TestADeviceThatChangesItsStoryIsWrittenSeldom(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	p := newPaces(c)
	key := nn(ns, "flow")
	status := func(state v1alpha1.ModuleState, generation int64) *v1alpha1.IOModuleStatus {
		return &v1alpha1.IOModuleStatus{State: state, ObservedGeneration: generation}
	}
	// through is how many of an hour's writes get through, one each 100 ms.
	through := func(before, after *v1alpha1.IOModuleStatus) int {
		n := 0
		for range 36_000 {
			if wait := p.wait(key, before, after); wait == 0 {
				n++
			} else if wait > chatterInterval {
				t.Fatalf("it waits %s", wait)
			}
			c.Step(100 * time.Millisecond)
		}
		return n
	}
	online, fault, unknown := status(v1alpha1.ModuleOnline, 1), status(v1alpha1.ModuleFault, 1), status(v1alpha1.ModuleUnknown, 1)
	for name, same := range map[string]*v1alpha1.IOModuleStatus{"Online": online, "Fault": fault} {
		if n := through(same, same); n < 360 || n > 360+chatterBurst {
			t.Errorf("%d writes in an hour of a module that stays %s", n, name)
		}
		c.Step(time.Hour)
	}
	if n := through(fault, online); n < 3600 || n > 3600+returnBurst {
		t.Errorf("%d writes in an hour of a module that comes back and back", n)
	}
	for name, never := range map[string][2]*v1alpha1.IOModuleStatus{
		"fault":                {online, fault},
		"fault of the unknown": {unknown, fault},
		"unknown":              {online, unknown},
		"still unknown":        {unknown, unknown},
		"another generation":   {online, status(v1alpha1.ModuleOnline, 2)},
	} {
		if n := through(never[0], never[1]); n != 36_000 {
			t.Errorf("%s: %d writes got through", name, n)
		}
	}
	p.forget(key)
	if len(p.modules) != 0 {
		t.Error("a module that is gone is remembered")
	}
}

// Req: P-06, P-16
func TestWhatWasHeldBackIsWrittenInTheEnd(t *testing.T) {
	c := clocktesting.NewFakeClock(begin())
	s := newSite(t, c, []runtime.Object{listing(`{"name":"flow"}`), running("p1")}, []runtime.Object{modbus("flow")})
	s.eventually("it is followed", func() bool { return s.probe.opened.Load() > 0 })
	tell := func(connected bool, message string) {
		m := says("flow", true, connected, "ProtocolError")
		m.Message = message
		s.probe.say(m)
	}
	tell(true, "0")
	s.await("flow", v1alpha1.ModuleOnline, "ProtocolError")
	var last string
	for i := range 200 {
		last = fmt.Sprint("story ", i)
		tell(true, last)
	}
	s.eventually("it waits", func() bool { return c.HasWaiters() })
	if n := s.writes.Load(); n > chatterBurst+8 {
		t.Errorf("%d writes", n)
	}
	s.eventually("the last story is written", func() bool {
		c.Step(time.Second)
		s.probe.say()
		return s.module("flow").Status.Message == last
	})
	for range 20 {
		tell(true, "another")
	}
	// A fault does not wait behind them.
	tell(false, "gone")
	s.await("flow", v1alpha1.ModuleFault, "ProtocolError")
}

// Req: P-07, P-09
func TestAModuleTooLargeForAProbeSaysSo(t *testing.T) {
	m := modbus("flow")
	for i := range 4096 {
		m.Spec.Channels = append(m.Spec.Channels, v1alpha1.Channel{Name: fmt.Sprintf("%0240d", i), Address: "holding:1"})
	}
	s := newSite(t, clocktesting.NewFakeClock(begin()), nil, []runtime.Object{m})
	s.await("flow", v1alpha1.ModuleUnknown, "ConfigurationError")
	if text := s.module("flow").Status.Message; !strings.Contains(text, "bytes of a probe's configuration") {
		t.Errorf("message %q", text)
	}
}
