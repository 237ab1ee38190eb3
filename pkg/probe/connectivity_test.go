package probe

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-06, P-16b
func TestARuntimesVerdictIsTheProbes(t *testing.T) {
	lost, noTurn := &driver.Error{Reason: driver.ReasonTimeout}, &driver.Error{Reason: driver.ReasonNotMeasured}
	c := NewConnectivity(&v1alpha1.ProbeSettings{FailureThreshold: ptr.To[int32](3), SuccessThreshold: ptr.To[int32](2)})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		err              error
		known, connected bool
		changed          bool
	}{
		{err: nil},
		{err: noTurn},
		{err: nil, known: true, connected: true, changed: true},
		{err: lost, known: true, connected: true},
		{err: lost, known: true, connected: true},
		{err: noTurn, known: true, connected: true},
		{err: lost, known: true, changed: true},
		{err: nil, known: true},
		{err: nil, known: true},
		{err: nil, known: true},
		{err: nil, known: true},
		{err: nil, known: true},
		{err: nil, known: true, connected: true, changed: true},
	} {
		now = now.Add(time.Second)
		if changed := c.Observe(now, step.err); changed != step.changed || c.Known() != step.known || c.Connected() != step.connected {
			t.Fatalf("step %d: changed %v, known %v, connected %v; want %+v", i, changed, c.Known(), c.Connected(), step)
		}
	}
	stricter := NewConnectivity(&v1alpha1.ProbeSettings{FailureThreshold: ptr.To[int32](1), SuccessThreshold: ptr.To[int32](1)})
	stricter.Inherit(c)
	if !stricter.Connected() {
		t.Error("a verdict was not inherited")
	}
	if stricter.Observe(now, lost); stricter.Connected() {
		t.Error("the thresholds were inherited")
	}
}
