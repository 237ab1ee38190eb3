package server

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/informers"
)

// Req. Writes go through the aggregator, as a user's do.
func TestEveryAcknowledgedWriteIsThereAfterAKillAndAnInformerMissesNone(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	client := env.Admin(t)
	var loads []*load

	// Informers live through every kill, as those of a user's controller would.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Physical().V1alpha1().ControlModules().Informer()
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}

	// The kill comes when so many writes were acknowledged: among the first ones, and then later and later.
	for round, kill := range []int64{20, 400, 1200} {
		t.Run(fmt.Sprintf("killed after %d writes", kill), func(t *testing.T) {
			running(t)
			written := newLoad(namespace, fmt.Sprintf("round-%d", round))
			loads = append(loads, written)
			ctx, stop := context.WithCancel(t.Context())
			var writers sync.WaitGroup
			writers.Go(func() { written.run(ctx, client, 32) })
			eventually(t, time.Minute, func() error {
				if done := written.acknowledged.Load(); done < kill {
					return fmt.Errorf("%d writes were acknowledged, want %d", done, kill)
				}
				return nil
			})
			// The writers go on, and so meet a server that is away and one that is just coming.
			env.Installation.Kill()
			running(t)
			stop()
			writers.Wait()
			// What survived one kill survives the next.
			for _, load := range loads {
				load.verify(t, client)
			}
		})
	}
	t.Run("the informer holds what the store holds", func(t *testing.T) {
		eventually(t, 45*time.Second, func() error { return sameObjects(t, client, informer.GetStore(), namespace) })
	})
}

// sameObjects compares an informer's store with a list, by name and version.
func sameObjects(t *testing.T, client versioned.Interface, store cache.Store, namespace string) error {
	list, err := client.PhysicalV1alpha1().ControlModules(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	want, got := map[string]string{}, map[string]string{}
	for _, item := range list.Items {
		want[item.Name] = item.ResourceVersion
	}
	for _, item := range store.List() {
		module := item.(*physicalv1alpha1.ControlModule)
		got[module.Name] = module.ResourceVersion
	}
	if !maps.Equal(want, got) {
		return fmt.Errorf("the informer holds %d objects, the store %d, or other versions of them", len(got), len(want))
	}
	return nil
}

// Req: A-02. A watch continues from the version that it has come to; if the server no longer knows what came next it says so with
// 410 and never leaves anything out.
func TestAWatchContinuesFromItsVersionAfterAKill(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	client := env.Admin(t)
	modules := client.PhysicalV1alpha1().ControlModules(namespace)
	create := func(name string) string {
		t.Helper()
		object, err := modules.Create(t.Context(), controlModule(metav1.ObjectMeta{Name: name}), metav1.CreateOptions{})
		must(t, err)
		return object.ResourceVersion
	}
	start := create("first")
	watcher, err := watchtools.NewRetryWatcherWithContext(t.Context(), start, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return modules.Watch(ctx, options)
		},
	})
	must(t, err)
	defer watcher.Stop()

	want := map[string]string{}
	for kill := range 3 {
		for i := range 5 {
			name := fmt.Sprintf("before-%d-%d", kill, i)
			want[name] = create(name)
		}
		// Seen before the kill: a server that starts knows only what came after, and this is what the watch has come to.
		seen(t, watcher, want)
		env.Installation.Kill()
		running(t)
		for i := range 5 {
			name := fmt.Sprintf("after-%d-%d", kill, i)
			want[name] = create(name)
		}
		seen(t, watcher, want)
	}

	t.Run("and is told with 410 when what came next is no longer known", func(t *testing.T) {
		for _, tc := range []struct {
			name   string
			client versioned.Interface
		}{
			{"through the aggregator", client},
			{"directly", direct(t, env.Installation.Address())},
		} {
			t.Run(tc.name, func(t *testing.T) {
				watching, err := tc.client.PhysicalV1alpha1().ControlModules(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: start})
				if err == nil {
					defer watching.Stop()
					event := <-watching.ResultChan()
					if event.Type != watch.Error {
						t.Fatalf("the first event is %s of %v", event.Type, event.Object)
					}
					err = apierrors.FromObject(event.Object)
				}
				if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
					t.Errorf("got %v, want 410", err)
				}
			})
		}
	})
}

// seen reads events until each wanted object was added, in its version, and forgets it; nothing else may come.
func seen(t *testing.T, watcher watch.Interface, want map[string]string) {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	for len(want) > 0 {
		select {
		case event, open := <-watcher.ResultChan():
			if !open {
				t.Fatalf("the watch has ended; not seen: %v", slices.Sorted(maps.Keys(want)))
			}
			// What a controller makes of an object that was added is not what is waited for.
			if event.Type == watch.Bookmark || event.Type == watch.Modified {
				continue
			}
			module, ok := event.Object.(*physicalv1alpha1.ControlModule)
			if !ok || event.Type != watch.Added || want[module.Name] != module.ResourceVersion {
				t.Fatalf("%s of %v; not seen: %v", event.Type, event.Object, slices.Sorted(maps.Keys(want)))
			}
			delete(want, module.Name)
		case <-timer.C:
			t.Fatalf("not seen: %v", slices.Sorted(maps.Keys(want)))
		}
	}
}

// Req
func TestASecondServerOnTheSameDataDirectoryIsRefusedAndTheFirstIsUnharmed(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	first := env.Installation.Server()

	second := startServer(t, freePort(t))
	within(t, 20*time.Second, second.Done(), "the second server's end")
	if code := second.ExitCode(); code != 1 {
		t.Errorf("the second server ended with code %d, want 1", code)
	}
	for _, want := range []string{"--data-dir", env.Installation.DataDir(), fmt.Sprintf("pid %d on host ", first.Pid())} {
		if !strings.Contains(second.log(), want) {
			t.Errorf("the second server does not name %q:\n%s", want, second.log())
		}
	}

	select {
	case <-first.Done():
		t.Fatalf("the first server has ended: %v", first.Err())
	default:
	}
	// New connections, to the server and to its store, whose socket a second etcd would have taken away.
	must(t, isOK(probeClient(t).get(t.Context(), env.Installation.Address(), "/readyz")))
	for i, client := range []versioned.Interface{env.Admin(t), direct(t, env.Installation.Address())} {
		object, err := client.PhysicalV1alpha1().ControlModules(namespace).Create(t.Context(), controlModule(metav1.ObjectMeta{Name: fmt.Sprintf("module-%d", i)}), metav1.CreateOptions{})
		must(t, err)
		key := "/fieldplane/physical.fieldplane.dev/controlmodules/" + namespace + "/" + object.Name
		if len(storedValues(t, env.Installation.DataDir(), key)[key]) == 0 {
			t.Errorf("%s is not in the store", key)
		}
	}

	t.Run("by whatever name the directory is called", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "store")
		must(t, os.Symlink(env.Installation.DataDir(), link))
		second := startServer(t, freePort(t), "--data-dir="+link)
		within(t, 20*time.Second, second.Done(), "the second server's end")
		if second.ExitCode() != 1 || !strings.Contains(second.log(), "is in use by") {
			t.Errorf("ended with code %d:\n%s", second.ExitCode(), second.log())
		}
	})
}
