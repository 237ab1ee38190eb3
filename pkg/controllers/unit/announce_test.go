package unit

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// Req: P-16 (a thousand Holding in time)
func TestEventsWaitUntilNothingUrgentDoes(t *testing.T) {
	told := record.NewFakeRecorder(2 * maxAnnouncements)
	u := newUrgency()
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: u})
	a := &announcements{recorder: told, urgent: u.urgentWaits}
	say := func(words ...string) {
		for _, word := range words {
			a.add(unitIn(isa88.Holding), []event{{"Warning", "Held", word}})
			a.tellUnlessUrgent()
		}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		var got []string
		for len(told.Events) > 0 {
			got = append(got, (<-told.Events)[len("Warning Held "):])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: told %v, want %v", what, got, want)
		}
	}
	take := func() {
		key, _ := q.Get()
		q.Done(key)
		a.tellUnlessUrgent()
	}

	q.Add(nn("calm"))
	say("a")
	expect("what waits is not urgent", "a")
	u.mark(nn("x"))
	q.Add(nn("x"))
	u.mark(nn("y"))
	q.Add(nn("y"))
	say("b", "c")
	expect("two are urgent")
	take()
	expect("one is urgent")
	take()
	expect("none is urgent", "b", "c")

	u.mark(nn("x"))
	q.Add(nn("x"))
	say("d")
	a.tellAll()
	expect("the controller ends", "d")

	for i := range maxAnnouncements {
		say(fmt.Sprint(i))
	}
	if n := len(told.Events); n != maxAnnouncements {
		t.Errorf("%d told of as many as may wait", n)
	}
}
