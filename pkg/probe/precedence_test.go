package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// oneConnection is a device that does one thing at a time, and nothing at all while it is silent.
type oneConnection struct {
	line   chan struct{}
	silent atomic.Bool
	// used counts the requests on the line.
	used atomic.Int32
}

func (o *oneConnection) ask(ctx context.Context) error {
	select {
	case o.line <- struct{}{}:
		defer func() { <-o.line }()
	case <-ctx.Done():
		return driver.LinkError(ctx.Err(), "waiting")
	}
	o.used.Add(1)
	if o.silent.Load() {
		_, err := silent(ctx)
		return err
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}

// Req: P-16, P-14 (silent → Fault ≤ 5 s, however many Units read the device through its probe)
func TestReadersOfASilentDeviceDoNotDelayItsFault(t *testing.T) {
	for _, readers := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(readers, " readers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, o := newSite(t), &oneConnection{line: make(chan struct{}, 1)}
				d := s.device("tcp://a")
				d.set(func(ctx context.Context) (driver.Answer, error) { return driver.Answer{}, o.ask(ctx) })
				d.read = func(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
					if err := o.ask(ctx); err != nil {
						return nil, err
					}
					return make([]driver.Sample, len(channels)), nil
				}
				s.apply(t, entry("a", "tcp://a", 1))
				s.until(t, "a", "online", online)
				var users sync.WaitGroup
				defer users.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var good, told atomic.Int32
				for i := range readers {
					users.Go(func() {
						time.Sleep(time.Duration(i) * 70 * time.Millisecond)
						for ctx.Err() == nil {
							callCtx, end := context.WithTimeout(ctx, 3*time.Second)
							_, err := s.readShared(callCtx, "uid-a", []api.Channel{{Address: "holding:0"}})
							end()
							if err == nil {
								good.Add(1)
							} else if driver.ReasonOf(err) == driver.ReasonTimeout {
								told.Add(1)
							}
							time.Sleep(500 * time.Millisecond)
						}
					})
				}
				for phase := range 10 {
					time.Sleep(time.Minute + time.Duration(phase)*100*time.Millisecond)
					o.silent.Store(true)
					told.Store(0)
					if took := s.until(t, "a", "fault", fault); took > 5*time.Second || took < 2*time.Second {
						t.Errorf("fault after %s, want 2 s to 5 s", took)
					}
					if told.Load() < int32(readers) {
						t.Errorf("%d readers were told of the silence %d times", readers, told.Load())
					}
					// Now the supervisor alone asks.
					time.Sleep(5 * time.Second)
					before := o.used.Load()
					time.Sleep(time.Minute)
					if asked := o.used.Load() - before; asked > 31 {
						t.Errorf("%d requests within a minute of silence", asked)
					}
					o.silent.Store(false)
					good.Store(0)
					if took := s.until(t, "a", "online", online); took > 15*time.Second || took < 5*time.Second {
						t.Errorf("online again after %s, want 5 s to 15 s", took)
					}
					if good.Load() < int32(readers) {
						t.Errorf("with the device back %d readers had %d answers", readers, good.Load())
					}
				}
			})
		})
	}
}

// Req: P-15 (what one Unit asks for in vain costs the values of another no more than the time it takes)
func TestAReadThatIsNeverAnsweredFaultsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.read = func(ctx context.Context, channels []driver.Channel) ([]driver.Sample, error) {
			if channels[0].Address == "holding:666" {
				_, err := silent(ctx)
				return nil, err
			}
			return make([]driver.Sample, len(channels)), nil
		}
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		var users sync.WaitGroup
		defer users.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		users.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.readShared(ctx, "uid-a", []api.Channel{{Address: "holding:666"}})
			}
		})
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			if _, err := s.readShared(ctx, "uid-a", []api.Channel{{Address: "holding:0"}}); err != nil || time.Since(began) > 2*time.Second {
				t.Errorf("the other reader: %v after %s", err, time.Since(began))
			}
			if m := s.state(t, "a"); !online(m) || m.Stale {
				t.Fatalf("the module is %+v", m)
			}
		}
	})
}

// Req: P-16
func TestACheckWaitsForAReaderThatAsksForMuchNoLongerThanItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		d := s.device("tcp://a")
		d.read = func(ctx context.Context, _ []driver.Channel) ([]driver.Sample, error) {
			<-ctx.Done()
			return nil, &driver.Error{Reason: driver.ReasonTimeout, Err: errors.New("much was asked for")}
		}
		s.apply(t, entry("a", "tcp://a", 1))
		s.until(t, "a", "online", online)
		var users sync.WaitGroup
		defer users.Wait()
		users.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = s.readShared(ctx, "uid-a", []api.Channel{{Address: "holding:0"}})
		})
		for range 50 {
			time.Sleep(time.Second)
			if m := s.state(t, "a"); !online(m) || m.Stale {
				t.Fatalf("the module is %+v", m)
			}
		}
	})
}
