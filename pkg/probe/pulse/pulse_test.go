package pulse

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// Req: P-07
func TestAStallIsAsLongAsNothingRan(t *testing.T) {
	start := time.Unix(1000, 0)
	fake := clocktesting.NewFakeClock(start)
	p := New(fake)
	after := func(d time.Duration) time.Time { fake.Step(d); return fake.Now() }
	longest := func(since time.Time, want time.Duration) {
		t.Helper()
		if got := p.Longest(since); got != want {
			t.Errorf("longest %s, want %s", got, want)
		}
	}
	longest(start, 0)
	fake.Step(time.Hour)
	longest(start, 0) // it did not beat yet
	p.beat(after(0))
	for range 100 {
		p.beat(after(interval + minStall - time.Millisecond))
	}
	calm := fake.Now()
	longest(start, 0)

	p.beat(after(interval + 2*time.Second))
	stalled := fake.Now()
	longest(calm, 2*time.Second)
	longest(stalled.Add(-time.Second), time.Second)
	longest(stalled, 0)
	p.beat(after(interval + time.Second))
	longest(calm, 2*time.Second)
	longest(stalled, time.Second)

	// Asked before it beats again.
	asked := after(0)
	fake.Step(interval + 300*time.Millisecond)
	longest(asked, 300*time.Millisecond)
	p.beat(after(0))
	for range remembered {
		p.beat(after(interval + minStall))
	}
	longest(calm, minStall)
}

func TestItBeatsWhileItRuns(t *testing.T) {
	p := New(clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		beats := !p.last.IsZero()
		p.mu.Unlock()
		if beats {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not beat")
		}
	}
	cancel()
	<-ended
	time.Sleep(interval + 2*minStall)
	if d := p.Longest(time.Now()); d != 0 {
		t.Errorf("a stall of %s after its end", d)
	}
}
