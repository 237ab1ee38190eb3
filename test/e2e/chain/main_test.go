// Package chain proves the two chains from end to end, through the real API: from a declared module over the probe's pod on a
// node to a simulated device, and from a declared range over discovery and approval to a simulated Talos node.
//
// Tests keep apart by namespace, device and Talos node, and run at the same time where they can. Those that stop the server come
// first, alone.
package chain

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/localcluster"
	"github.com/fieldplane/fieldplane/test/plant"
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
	os.Exit(harness.Run(m, harness.Options{
		Nodes: []localcluster.Node{
			{Name: "node-a", Labels: map[string]string{"zone": "a"}},
			{Name: "node-b", Labels: map[string]string{"zone": "b"}},
		},
		// A lost node is noticed sooner than by default (50 s), within which nobody could promise what P-11 promises.
		ComponentArgs: map[string][]string{"kube-controller-manager": {"--node-monitor-grace-period=20s"}},
		// What is told at this verbosity must be fit to be told, too.
		ServerArgs: []string{"--v=2"},
	}, func(started *harness.Env) { env = started }))
}

// startPlant runs a plant until the test ends.
func startPlant(t *testing.T, spec plant.Spec) *plant.Plant {
	t.Helper()
	p, err := plant.Start(spec, nil)
	must(t, err)
	t.Cleanup(p.Close)
	return p
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

// follow tells every version of one object that is seen, its last one with gone set, until tell returns true or the context ends.
func follow[T object](ctx context.Context, name string, start watcher, tell func(seen T, gone bool) (enough bool)) error {
	for {
		// Without a resourceVersion the watch begins with the object as it is.
		stream, err := start(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
		if err == nil {
			enough := readStream(ctx, stream, tell)
			stream.Stop()
			if enough {
				return nil
			}
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		// The server may be away for a moment.
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func readStream[T object](ctx context.Context, stream watch.Interface, tell func(T, bool) bool) (enough bool) {
	for {
		select {
		case <-ctx.Done():
			return false
		case event, ok := <-stream.ResultChan():
			if !ok {
				return false
			}
			if seen, ok := event.Object.(T); ok && tell(seen, event.Type == watch.Deleted) {
				return true
			}
		}
	}
}

// until waits until missing returns "" for an object, and returns that version of it.
func until[T object](t *testing.T, limit time.Duration, name string, start watcher, missing func(T) string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var last T
	answer := "never seen"
	err := follow(ctx, name, start, func(seen T, gone bool) bool {
		last, answer = seen, missing(seen)
		if gone {
			answer = "deleted"
		}
		return answer == ""
	})
	if err != nil {
		if answer != "never seen" {
			last.SetManagedFields(nil)
		}
		text, _ := yaml.Marshal(last)
		t.Fatalf("%s: not within %s: %s\n%s", name, limit, answer, text)
	}
	return last
}

// untilGone waits until get answers that there is no such object.
func untilGone(t *testing.T, limit time.Duration, what string, get func() error) {
	t.Helper()
	harness.Eventually(t, limit, func() string {
		err := get()
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%s: is still there (%v)", what, err)
	})
}

// recorded collects a line for every version of an object, until the test ends.
type recorded struct {
	mu    sync.Mutex
	lines []string
}

func record[T object](t *testing.T, name string, start watcher, line func(T) string) *recorded {
	t.Helper()
	r := &recorded{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = follow(ctx, name, start, func(seen T, _ bool) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			if text := line(seen); len(r.lines) == 0 || r.lines[len(r.lines)-1] != text {
				r.lines = append(r.lines, text)
			}
			return false
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func (r *recorded) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// are waits until the last line has come, and fails the test if others came before than want says.
func (r *recorded) are(t *testing.T, want ...string) {
	t.Helper()
	harness.Eventually(t, onlineLimit, func() string {
		if have := r.all(); len(have) == 0 || have[len(have)-1] != want[len(want)-1] {
			return fmt.Sprintf("seen is %q", have)
		}
		return ""
	})
	if have := r.all(); !slices.Equal(have, want) {
		t.Errorf("seen is %q, not %q", have, want)
	}
}

// condition is "True Reason" of a condition, "" when there is none of that type.
func condition(conditions []metav1.Condition, kind string) string {
	found := meta.FindStatusCondition(conditions, kind)
	if found == nil {
		return ""
	}
	return string(found.Status) + " " + found.Reason
}

// eventsOn are the Events about an object, as "Type Reason: message".
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

func serverLog(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(env.Installation.Log())
	must(t, err)
	return string(text)
}

// kubectlPlugin runs kubectl fieldplane as the administrator, as somebody does who has a kubeconfig and our plugin on his path.
func kubectlPlugin(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(env.BinDir, "kubectl"), append([]string{"fieldplane"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+env.Cluster.Kubeconfig(), "PATH="+env.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	return string(output), err
}

// podOf is a probe's pod.
func podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := env.Host().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return pod
}

// lastDevice is the last byte of the address of the device that was made last.
var lastDevice atomic.Int32

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
