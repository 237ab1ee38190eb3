package server

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
)

// load, of a name of its own, writes ControlModules with several writers at once and remembers what was acknowledged. Each writer makes objects of its
// own, one after the other: it creates one, changes it, and deletes every third.
type load struct {
	namespace, name string
	// attempted and acknowledged count writes.
	attempted, acknowledged atomic.Int64

	mu sync.Mutex
	// acked is, by object, what the last acknowledged write of it left.
	acked map[string]ackedState
	// unsettled are objects of which a write was neither acknowledged nor refused: either outcome is right.
	unsettled map[string]string
	versions  map[int64]string
	failures  []string
}

// ackedState is an object after an acknowledged write.
type ackedState struct {
	version int64
	deleted bool
	// step is the value that the write left in the object.
	step string
}

func newLoad(namespace, name string) *load {
	return &load{namespace: namespace, name: name, acked: map[string]ackedState{}, unsettled: map[string]string{}, versions: map[int64]string{}}
}

// pause is what a writer rests after a failure, as every client does.
const pause = 20 * time.Millisecond

// run writes until the context ends. A write fails only while the server is away; its writer rests and goes on with the next object.
func (l *load) run(ctx context.Context, client versioned.Interface, writers int) {
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if !l.one(ctx, client, fmt.Sprintf("%s-%d-%d", l.name, writer, i), i%3 == 2) {
					select {
					case <-ctx.Done():
					case <-time.After(pause):
					}
				}
			}
		})
	}
	group.Wait()
}

func (l *load) one(ctx context.Context, client versioned.Interface, name string, remove bool) bool {
	modules := client.PhysicalV1alpha1().ControlModules(l.namespace)
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"load": l.name}, Annotations: map[string]string{"step": "created"}}

	if !l.write(name, "created", func() (string, error) {
		object, err := modules.Create(ctx, controlModule(meta), metav1.CreateOptions{})
		return object.GetResourceVersion(), err
	}) {
		return false
	}
	if !l.write(name, "changed", func() (string, error) {
		object, err := modules.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"step":"changed"}}}`), metav1.PatchOptions{})
		return object.GetResourceVersion(), err
	}) {
		return false
	}
	return !remove || l.write(name, "deleted", func() (string, error) {
		return "", modules.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// write does one write and remembers its outcome; it tells whether the write was acknowledged.
func (l *load) write(name, step string, do func() (string, error)) bool {
	l.attempted.Add(1)
	version, err := do()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unsettled[name] = step
		// What a server says that goes away or comes is all right. That the object is wrong or not there is not, nor that the writer,
		// who may do everything, may not.
		if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) ||
			apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			l.failures = append(l.failures, fmt.Sprintf("%s of %s: %v", step, name, err))
		}
		return false
	}
	l.acknowledged.Add(1)
	state := ackedState{step: step, deleted: step == "deleted"}
	if !state.deleted {
		state.version, err = strconv.ParseInt(version, 10, 64)
		if err != nil {
			l.failures = append(l.failures, fmt.Sprintf("%s of %s: resourceVersion %q", step, name, version))
		}
		l.versions[state.version] = name
	}
	l.acked[name] = state
	return true
}

// verify fails the test if anything acknowledged is not in the store: each object with its acknowledged version, or a newer one
// that a write made which was never answered, or a controller, which leaves the step as it is.
func (l *load) verify(t *testing.T, client versioned.Interface) {
	t.Helper()
	list, err := client.PhysicalV1alpha1().ControlModules(l.namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	type stored struct {
		version int64
		step    string
	}
	present := map[string]stored{}
	for _, item := range list.Items {
		if item.Labels["load"] != l.name {
			continue
		}
		version, err := strconv.ParseInt(item.ResourceVersion, 10, 64)
		must(t, err)
		present[item.Name] = stored{version, item.Annotations["step"]}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for i, failure := range l.failures {
		if i == 10 {
			t.Errorf("and %d more", len(l.failures)-i)
			break
		}
		t.Error(failure)
	}
	lost := 0
	for name, want := range l.acked {
		got, there := present[name]
		pending := l.unsettled[name]
		switch {
		case want.deleted && there:
			lost++
			t.Errorf("%s: its deletion was acknowledged, and it is there", name)
		case !want.deleted && !there && pending != "deleted":
			lost++
			t.Errorf("%s: acknowledged with version %d, and it is gone", name, want.version)
		case !want.deleted && there && got.version < want.version:
			lost++
			t.Errorf("%s: acknowledged with version %d, stored with %d", name, want.version, got.version)
		case !want.deleted && there && got.version == want.version && got.step != want.step:
			lost++
			t.Errorf("%s: acknowledged as %s, stored as %s", name, want.step, got.step)
		case !want.deleted && there && got.version > want.version && got.step != want.step && pending != "changed":
			lost++
			t.Errorf("%s: acknowledged as %s with version %d, stored as %s with %d, and nobody wrote it", name, want.step, want.version, got.step, got.version)
		}
		if lost > 10 {
			t.Fatal("and more")
		}
	}
	for name := range maps.Keys(present) {
		if _, acked := l.acked[name]; !acked && l.unsettled[name] == "" {
			t.Errorf("%s: nobody wrote it", name)
		}
	}
}
