package unit

import (
	"strings"
	"testing"

	"k8s.io/client-go/util/workqueue"

	"k8s.io/apimachinery/pkg/types"
)

// Req: P-16
func TestWhatIsUrgentGoesFirst(t *testing.T) {
	u := newUrgency()
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: u})
	add := func(names ...string) {
		for _, name := range names {
			q.Add(nn(name))
		}
	}
	urgent := func(names ...string) {
		for _, name := range names {
			u.mark(nn(name))
			q.Add(nn(name))
		}
	}
	take := func() string {
		key, _ := q.Get()
		q.Done(key)
		return key.Name
	}
	drain := func(what, want string) {
		t.Helper()
		var got []string
		for q.Len() > 0 {
			got = append(got, take())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", what, got, want)
		}
		if len(u.waiting)+len(u.marked) > 0 {
			t.Errorf("%s: something is left: %+v", what, u)
		}
	}
	add("a", "b", "c")
	urgent("d", "e")
	drain("what came later", "d e a b c")

	add("a", "b", "c")
	urgent("b")
	add("b")
	drain("what became urgent while it waited", "b a c")

	urgent("a")
	add("b")
	urgent("a")
	drain("once is enough", "a b")

	add("a")
	urgent("a")
	if got := take(); got != "a" {
		t.Fatal(got)
	}
	add("b", "a")
	drain("what was urgent is so once", "a b")

	// A key that is being worked on comes again when it is done, and first.
	add("a")
	key, _ := q.Get()
	add("b")
	urgent("a")
	if q.Len() != 1 {
		t.Errorf("%d wait", q.Len())
	}
	q.Done(key)
	drain("what became urgent while it was worked on", "a b")
}
