package apiserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDuty runs until it is told to stop, or until it fails.
type fakeDuty struct {
	run func(context.Context) error
}

func (d fakeDuty) Run(ctx context.Context) error { return d.run(ctx) }

// ledger counts which duties run now and how often each was started.
type ledger struct {
	mu      sync.Mutex
	running map[string]int
	started map[string]int
}

func newLedger() *ledger { return &ledger{running: map[string]int{}, started: map[string]int{}} }

func (l *ledger) duty(name string, run func(context.Context) error) duty {
	return fakeDuty{func(ctx context.Context) error {
		l.mu.Lock()
		l.running[name]++
		l.started[name]++
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.running[name]--
		}()
		return run(ctx)
	}}
}

func (l *ledger) counts() (running, started map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.running), maps.Clone(l.started)
}

func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Req: A-06. Controllers share what they keep in memory, so none goes on without the others.
func TestAllControllersAreMadeAnewWhenOneEnds(t *testing.T) {
	for name, end := range map[string]error{"fails": errors.New("broken"), "returns": nil} {
		t.Run("one "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book, made := newLedger(), 0
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					runDuties(ctx, func() map[string]duty {
						made++
						first := made == 1
						return map[string]duty{
							"a": book.duty("a", func(ctx context.Context) error {
								<-ctx.Done()
								time.Sleep(10 * time.Second) // it is waited for
								return ctx.Err()
							}),
							"b": book.duty("b", func(ctx context.Context) error {
								if first {
									time.Sleep(time.Second)
									return end
								}
								return untilStopped(ctx)
							}),
						}
					})
				}()
				pass(10 * time.Second)
				if running, _ := book.counts(); running["a"] != 1 || running["b"] != 0 {
					t.Errorf("running %v: a is still stopping", running)
				}
				pass(time.Minute)
				if running, started := book.counts(); running["a"] != 1 || running["b"] != 1 || started["a"] != 2 || started["b"] != 2 {
					t.Errorf("running %v, started %v, want both, for the second time", running, started)
				}
				stop()
				<-ended
				if running, started := book.counts(); running["a"]+running["b"] != 0 || started["a"] != 2 {
					t.Errorf("after the end running %v, started %v", running, started)
				}
			})
		})
	}
}

// Req: A-06
func TestStoppingTheControllersWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []string
		running := controllerRun{stop: make(chan struct{})}
		// The hook's context goes on: requests are drained after the controllers have stopped.
		running.start(t.Context(), func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			steps = append(steps, "controllers stopped")
		})
		pass(time.Hour)
		running.stopAndWait()
		steps = append(steps, "stop returned")
		if !slices.Equal(steps, []string{"controllers stopped", "stop returned"}) {
			t.Errorf("steps %v", steps)
		}
	})
}
