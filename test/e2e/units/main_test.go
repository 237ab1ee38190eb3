// Package units proves the safety chain from end to end: from a device that is cut, over its probe, the module's Fault and the
// Unit's hold, to the hold values in the devices, with real processes and through the real API; and what becomes of it
// while the server, the probe or the leader is away.
//
// Tests keep apart by namespace and device, and run at the same time where they can. Those that stop the server come first, alone.
package units

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/fieldplane/fieldplane/test/harness"
)

// env is the one cluster of this package.
var env *harness.Env

// atOnce is how many tests wait at the same time: they cost little else.
const atOnce = "24"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(harness.Run(m, harness.Options{ServerArgs: []string{"--v=1"}}, func(started *harness.Env) { env = started }))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watcher is the Watch of a typed client.
type watcher func(context.Context, metav1.ListOptions) (watch.Interface, error)

// object is what the generated and the host's clients return.
type object interface {
	metav1.Object
	runtime.Object
}

// moment is a version of an object, and when it was seen.
type moment[T object] struct {
	at time.Time
	of T
}

// film is every version that was seen of one object, or of those that a watch shows, in the order in which they came.
type film[T object] struct {
	mu      sync.Mutex
	moments []moment[T]
	grown   chan struct{}
}

// shoot films an object from now on, until the test ends. It returns when the first version was seen.
func shoot[T object](t *testing.T, name string, start watcher) *film[T] {
	t.Helper()
	f := shootAll[T](t, func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		return start(ctx, options)
	})
	f.first(t, contactLimit, "the object", func(T) bool { return true })
	return f
}

// shootAll films all objects that a watch shows.
func shootAll[T object](t *testing.T, start watcher) *film[T] {
	t.Helper()
	f := &film[T]{grown: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Without a resourceVersion the watch begins with the objects as they are.
			if stream, err := start(ctx, metav1.ListOptions{}); err == nil {
				f.take(ctx, stream)
				stream.Stop()
			}
			// The server may be away for a moment.
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return f
}

func (f *film[T]) take(ctx context.Context, stream watch.Interface) {
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-stream.ResultChan():
			if !ok {
				return
			}
			if seen, ok := event.Object.(T); ok {
				f.mu.Lock()
				f.moments = append(f.moments, moment[T]{time.Now(), seen})
				close(f.grown)
				f.grown = make(chan struct{})
				f.mu.Unlock()
			}
		}
	}
}

// all is the film so far.
func (f *film[T]) all() []moment[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.moments)
}

// since is what came after a moment.
func (f *film[T]) since(at time.Time) []moment[T] {
	return slices.DeleteFunc(f.all(), func(m moment[T]) bool { return m.at.Before(at) })
}

// first waits for the first version that is so.
func (f *film[T]) first(t *testing.T, limit time.Duration, what string, so func(T) bool) moment[T] {
	t.Helper()
	return f.firstSince(t, time.Time{}, limit, what, so)
}

// firstSince waits for the first version, of those that come after a moment, that is so.
func (f *film[T]) firstSince(t *testing.T, since time.Time, limit time.Duration, what string, so func(T) bool) moment[T] {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		moments, grown := f.moments, f.grown
		f.mu.Unlock()
		for _, m := range moments {
			if !m.at.Before(since) && so(m.of) {
				return m
			}
		}
		select {
		case <-grown:
		case <-deadline.C:
			text := "nothing was seen"
			if len(moments) > 0 {
				last := moments[len(moments)-1].of.DeepCopyObject().(T)
				last.SetManagedFields(nil)
				data, _ := yaml.Marshal(last)
				text = string(data)
			}
			t.Fatalf("%s: not within %s\n%s", what, limit, text)
		case <-t.Context().Done():
			t.Fatalf("%s: the test ended", what)
		}
	}
}

// until waits until missing returns "" for an object, and returns that version of it.
func until[T object](t *testing.T, limit time.Duration, name string, get func(context.Context, string, metav1.GetOptions) (T, error), missing func(T) string) T {
	t.Helper()
	var last T
	harness.Eventually(t, limit, func() string {
		seen, err := get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return name + ": " + err.Error()
		}
		last = seen
		if why := missing(seen); why != "" {
			bare := seen.DeepCopyObject().(T)
			bare.SetManagedFields(nil)
			text, _ := yaml.Marshal(bare)
			return fmt.Sprintf("%s %s\n%s", name, why, text)
		}
		return ""
	})
	return last
}

// condition is "True Reason" of a condition, "" when there is none of that type.
func condition(conditions []metav1.Condition, kind string) string {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil {
		return ""
	}
	return string(found.Status) + " " + found.Reason
}

// eventsOn are the Events about an object, as "Type Reason: message", each as often as it was told.
func eventsOn(t *testing.T, namespace, kind, name string) []string {
	t.Helper()
	list, err := env.Host().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var lines []string
	for _, event := range list.Items {
		if event.InvolvedObject.Kind != kind || event.InvolvedObject.Name != name {
			continue
		}
		for range max(1, event.Count) {
			lines = append(lines, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message))
		}
	}
	return lines
}

// withReason are the lines of eventsOn of one type and reason.
func withReason(lines []string, kind, reason string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, kind+" "+reason+":") })
}

// told waits until there are Events of a type and reason about a Unit, and returns them.
func told(t *testing.T, namespace, unit, kind, reason string) []string {
	t.Helper()
	var lines []string
	harness.Eventually(t, settleLimit, func() string {
		all := eventsOn(t, namespace, "Unit", unit)
		if lines = withReason(all, kind, reason); len(lines) == 0 {
			return fmt.Sprintf("no Event %s on Unit %s: %q", reason, unit, all)
		}
		return ""
	})
	return lines
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }

// refused fails the test unless a request was answered with 409 and these words.
func refused(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !apierrors.IsConflict(err) {
		t.Errorf("%s: %v, want a conflict", what, errors.Join(err))
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v does not say %q", what, err, word)
		}
	}
}
