package work

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Req: A-06
func TestAKeyIsLookedAtAgainWhenItsReconcileSays(t *testing.T) {
	for _, test := range []struct {
		name  string
		again Again
		err   error
		// reconciles is how many there are in a minute.
		least, most int
	}{
		{name: "when something changes", least: 1, most: 1},
		{name: "after a while", again: After(20 * time.Second), least: 3, most: 4},
		{name: "soon, and ever less often", again: Backoff(), least: 5, most: 9},
		{name: "after an error", err: errors.New("no"), least: 5, most: 9},
		{name: "after a conflict", err: apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed")), least: 5, most: 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				q := NewQueue(test.name, time.Second, 10*time.Second, clock.RealClock{})
				count := 0
				done := make(chan struct{})

				go func() {
					defer close(done)

					Workers{
						Kind: "thing", Count: 1, Timeout: time.Second,
						Reconcile: func(ctx context.Context, key types.NamespacedName) (Again, error) {
							if _, bounded := ctx.Deadline(); !bounded || key.Name != "a" {
								t.Errorf("%v, bounded %v", key, bounded)
							}

							count++

							return test.again, test.err
						},
					}.Run(ctx, q)
				}()

				q.Add(types.NamespacedName{Name: "a"})
				time.Sleep(time.Minute)
				cancel()
				<-done

				if count < test.least || count > test.most {
					t.Errorf("%d reconciles in a minute, want %d to %d", count, test.least, test.most)
				}
			})
		})
	}
}

// Req: A-06
func TestWhenRunReturnsNothingRunsAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := NewQueue("stopping", time.Second, time.Second, clock.RealClock{})
		started, ended := 0, 0

		for _, name := range []string{"a", "b", "c"} {
			q.Add(types.NamespacedName{Name: name})
		}

		go func() {
			time.Sleep(time.Second)
			cancel()
		}()

		Workers{
			Kind: "thing", Count: 1, Timeout: time.Hour,
			Reconcile: func(ctx context.Context, _ types.NamespacedName) (Again, error) {
				started++
				<-ctx.Done()
				time.Sleep(time.Second)
				ended++

				return Again{}, ctx.Err()
			},
		}.Run(ctx, q)

		if started != 1 || ended != 1 {
			t.Errorf("%d started, %d ended", started, ended)
		}
	})
}
