package modbus

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// Req: P-13 (a silent unit costs its neighbours only its timeout)
func TestLineServesHealthyUnitsFirstAndSuspectOnesInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		if err := l.acquire(t.Context(), healthy); err != nil {
			t.Fatal(err)
		}
		var order []int
		join := func(class int) {
			go func() {
				if err := l.acquire(t.Context(), class); err != nil {
					t.Error(err)
				}
				order = append(order, class)
				l.release()
			}()
			synctest.Wait()
		}
		join(suspect)
		for range maxOvertakes + 2 {
			join(healthy)
		}
		l.release()
		synctest.Wait()

		want := append(slices.Repeat([]int{healthy}, maxOvertakes), suspect, healthy, healthy)
		if !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
		if l.contended() {
			t.Error("the line is contended by nobody")
		}
	})
}

func TestLineIsNotLostWithAWaiterThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line
		if err := l.acquire(t.Context(), healthy); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() { failed <- l.acquire(ctx, healthy) }()
		synctest.Wait()
		cancel()
		if err := <-failed; err == nil {
			t.Error("a cancelled waiter got the line")
		}
		l.release()
		if err := l.acquire(t.Context(), suspect); err != nil {
			t.Error(err)
		}
		l.release()
	})
}
