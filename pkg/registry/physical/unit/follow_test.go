package unit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// floods is a runtime that says what it is given.
type floods struct {
	Runtimes
	say chan api.TagEvent
}

func (f floods) FollowTags(ctx context.Context, _ *physical.Unit, handle func(api.TagEvent)) error {
	for {
		select {
		case event := <-f.say:
			handle(event)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Req: P-12, P-15
func TestAWatchThatNobodyReadsKeepsSoMuchAndNoMore(t *testing.T) {
	for name, test := range map[string]struct {
		event func(i int) api.TagEvent
		count int
		ends  bool
	}{
		"ever other tags": {func(i int) api.TagEvent {
			return api.TagEvent{Type: api.TagChange, Tags: []api.TagValue{{ControlModule: "c", Name: fmt.Sprint(i), Message: strings.Repeat("m", 1000)}}}
		}, 60_000, true},
		"ever other tags that are no more": {func(i int) api.TagEvent {
			return api.TagEvent{Type: api.TagChange, Removed: []api.TagKey{{ControlModule: strings.Repeat("c", 1000), Name: fmt.Sprint(i)}}}
		}, 60_000, true},
		"one tag of an endless text": {func(int) api.TagEvent {
			return api.TagEvent{Type: api.TagChange, Tags: []api.TagValue{{ControlModule: "c", Name: "n", Message: strings.Repeat("m", 40<<20)}}}
		}, 1, true},
		"the same tags again and again": {func(i int) api.TagEvent {
			return api.TagEvent{Type: api.TagChange, Tags: []api.TagValue{{ControlModule: "c", Name: fmt.Sprint(i % 20_000), Message: strings.Repeat("m", 500)}}}
		}, 200_000, false},
		"tags that come and go": {func(i int) api.TagEvent {
			key := api.TagKey{ControlModule: "c", Name: fmt.Sprint(i / 2 % 20_000)}
			if i%2 == 0 {
				return api.TagEvent{Type: api.TagChange, Tags: []api.TagValue{{ControlModule: key.ControlModule, Name: key.Name, Message: strings.Repeat("m", 500)}}}
			}
			return api.TagEvent{Type: api.TagChange, Removed: []api.TagKey{key}}
		}, 200_000, false},
		"all of them anew": {func(int) api.TagEvent {
			return api.TagEvent{Type: api.TagSnapshot, Tags: []api.TagValue{{ControlModule: "c", Name: "n", Message: strings.Repeat("m", 1<<20)}}}
		}, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				runtime := floods{say: make(chan api.TagEvent, 1)}
				runtime.say <- api.TagEvent{Type: api.TagSnapshot}
				w, err := follow(ctx, runtime, &physical.Unit{ObjectMeta: metav1.ObjectMeta{Name: "mixer"}}, false, clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for i := range test.count {
					runtime.say <- test.event(i)
				}
				synctest.Wait()
				f := w.(*following)
				f.mu.Lock()
				size, exact := f.size, 0
				for _, v := range f.untold {
					exact += sizeOf(&v)
				}
				for key := range f.removed {
					exact += len(key.ControlModule) + len(key.Name) + overhead
				}
				f.mu.Unlock()
				if size != exact || size > maxUntold {
					t.Errorf("%d bytes are kept, counted are %d", exact, size)
				}
				ended := false
				for !ended {
					select {
					case event, open := <-w.ResultChan():
						if ended = !open || event.Type == watch.Error; !ended {
							continue
						}
					case <-time.After(time.Second):
					}
					break
				}
				if ended != test.ends {
					t.Errorf("ended: %t", ended)
				}
				w.Stop()
				cancel()
				for open := true; open; {
					_, open = <-w.ResultChan()
				}
			})
		})
	}
}
