package driver

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Req: P-13 (at most 20 connects at once)
func TestSuspectPeersNeverTakeEveryPlace(t *testing.T) {
	limit := NewConnectLimit(20)
	acquire := func(suspect bool) (*Place, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return limit.Acquire(ctx, suspect, &Turn{})
	}
	var places []*Place
	take := func(n int, suspect bool) {
		t.Helper()
		for range n {
			place, err := acquire(suspect)
			if err != nil {
				t.Fatal(err)
			}
			places = append(places, place)
		}
	}
	take(14, true)
	if _, err := acquire(true); err == nil {
		t.Fatal("a fifteenth suspect peer got a place")
	}
	take(6, false)
	if _, err := acquire(false); err == nil {
		t.Fatal("a twenty-first connection got a place")
	}
	if n := limit.InUse(); n != 20 {
		t.Errorf("%d places in use, want 20", n)
	}
	for _, place := range places {
		place.Release()
		place.Release()
	}
	if n := limit.InUse(); n != 0 || limit.suspectInUse != 0 || len(limit.waiting) != 0 {
		t.Errorf("%d places in use, %d of them by suspects, %d waiting after all were released", n, limit.suspectInUse, len(limit.waiting))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := limit.Acquire(ended, false, &Turn{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a place for one that has given up: %v", err)
	}
}

// Req: P-16
func TestWhoHadNoPlaceForLongestGoesFirstAndHealthyPeersBeforeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := NewConnectLimit(1)
		turns := make([]Turn, 3)
		for i := range turns {
			place, err := limit.Acquire(t.Context(), true, &turns[i])
			if err != nil {
				t.Fatal(err)
			}
			place.Release()
		}
		holder, err := limit.Acquire(t.Context(), false, &Turn{})
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 9)
		wait := func(name string, suspect bool, turn *Turn) {
			go func() {
				place, err := limit.Acquire(t.Context(), suspect, turn)
				if err != nil {
					t.Error(err)
					return
				}
				order <- name
				place.Release()
			}()
			synctest.Wait()
		}
		wait("third", true, &turns[2])
		wait("first", true, &turns[0])
		wait("second", true, &turns[1])
		wait("never", true, &Turn{})
		wait("healthy", false, &turns[2])
		holder.Release()
		for _, want := range []string{"healthy", "never", "first", "second", "third"} {
			if got := <-order; got != want {
				t.Errorf("%s came, want %s", got, want)
			}
		}
	})
}

// Req: P-16
func TestAPeerThatDoesNotAcceptLosesItsPlaceAndNotItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := NewConnectLimit(1)
		slow := func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-time.After(500 * time.Millisecond):
				ours, _ := net.Pipe()
				return ours, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		place, err := limit.Acquire(t.Context(), true, &Turn{})
		if err != nil {
			t.Fatal(err)
		}
		dialled := make(chan error)
		go func() {
			conn, err := place.Dial(t.Context(), slow, "tcp", "a")
			if err == nil {
				_ = conn.Close()
			}
			dialled <- err
		}()
		began := time.Now()
		other, err := limit.Acquire(t.Context(), true, &Turn{})
		if took := time.Since(began); err != nil || took != patience {
			t.Errorf("another got its place after %s, %v", took, err)
		}
		if err := <-dialled; err != nil {
			t.Errorf("the slow one: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := place.Again(short); err == nil {
			t.Error("the slow one got a place that another has")
		}
		other.Release()
		if err := place.Again(t.Context()); err != nil || limit.InUse() != 1 {
			t.Errorf("the slow one's own place: %v, %d in use", err, limit.InUse())
		}
		if err := place.Again(t.Context()); err != nil || limit.InUse() != 1 {
			t.Errorf("once more: %v, %d in use", err, limit.InUse())
		}
		place.Release()
		if err := place.Again(t.Context()); err != nil || limit.InUse() != 0 {
			t.Errorf("after its release: %v, %d in use", err, limit.InUse())
		}
	})
}
