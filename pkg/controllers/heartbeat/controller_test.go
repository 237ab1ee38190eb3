package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	informers "github.com/fieldplane/fieldplane/generated/informers"
)

const ns = "site-north"

// syncPoll is how often a cache is asked whether it is filled.
const syncPoll = 100 * time.Millisecond

func simulated(name string, mode v1alpha1.HeartbeatMode, lastAlive time.Time) *v1alpha1.Controller {
	c := &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       v1alpha1.ControllerSpec{Simulation: true, Heartbeat: mode},
	}
	if !lastAlive.IsZero() {
		c.Status.LastAlive = &metav1.Time{Time: lastAlive}
	}
	return c
}

// ward is Controllers with somebody who beats for them.
type ward struct {
	t      *testing.T
	client *fake.Clientset
	mu     sync.Mutex
	beats  map[string][]time.Time
	// refuse is how many of the next writes are refused, taken although they seem to be if lost is set.
	refuse int
	lost   bool
}

// run runs the controller until the test ends, in a bubble.
func run(t *testing.T, controllers ...*v1alpha1.Controller) *ward {
	w := &ward{t: t, beats: map[string][]time.Time{}}
	var objects []runtime.Object
	for _, c := range controllers {
		objects = append(objects, c)
	}
	w.client = fake.NewSimpleClientset(objects...)
	w.client.PrependReactor("update", "controllers", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update := action.(clienttesting.UpdateAction)
		if update.GetSubresource() != "status" {
			return false, nil, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		refused := w.refuse > 0
		if refused {
			w.refuse--
			if !w.lost {
				return true, nil, errors.New("refused")
			}
		}
		is := update.GetObject().(*v1alpha1.Controller)
		if !is.Status.LastAlive.Time.Equal(time.Now()) {
			t.Errorf("at %s a beat of %s is written", time.Now(), is.Status.LastAlive)
		}
		w.beats[is.Name] = append(w.beats[is.Name], time.Now())
		if refused {
			if err := w.client.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("controllers"), is, ns); err != nil {
				t.Error(err)
			}
			return true, nil, errors.New("the answer was lost")
		}
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(w.client, 0)
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	c := New(Config{
		Client: w.client.PhysicalV1alpha1(), Controllers: factory.Physical().V1alpha1().Controllers(), Clock: clock.RealClock{},
		Random: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Float64()
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
		if len(c.due) > len(controllers)+1 {
			t.Errorf("%d are remembered", len(c.due))
		}
	})
	return w
}

func (w *ward) of(name string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.beats[name]
}

func (w *ward) change(name string, change func(*v1alpha1.Controller)) {
	w.t.Helper()
	client := w.client.PhysicalV1alpha1().Controllers(ns)
	c, err := client.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	change(c)
	if _, err := client.Update(context.Background(), c, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// Req: P-05
func TestAManagedHeartBeatsAtMostOnceIn10sAndNeverSoRarelyThatItLooksDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		dying := simulated("dying", v1alpha1.HeartbeatManaged, time.Time{})
		w := run(t, simulated("new", v1alpha1.HeartbeatManaged, time.Time{}), dying)
		time.Sleep(10 * time.Minute)
		beats := w.of("new")
		if len(beats) == 0 || beats[0].Sub(began) > syncPoll {
			t.Fatalf("the first of %d beats is not at once", len(beats))
		}
		different := map[time.Duration]bool{}
		for i := 1; i < len(beats); i++ {
			pause := beats[i].Sub(beats[i-1])
			if pause < interval || pause > interval+jitter {
				t.Errorf("a pause of %s", pause)
			}
			different[pause] = true
		}
		if len(different) < 10 {
			t.Errorf("%d beats with %d different pauses", len(beats), len(different))
		}
		if err := w.client.PhysicalV1alpha1().Controllers(ns).Delete(context.Background(), "dying", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		before := len(w.of("dying"))
		time.Sleep(time.Minute)
		if after := len(w.of("dying")); after != before {
			t.Errorf("%d beats of one that is gone", after-before)
		}
	})
}

// Req: P-05
func TestNobodyElsesHeartIsTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &v1alpha1.Controller{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "node"}, Spec: v1alpha1.ControllerSpec{NodeName: "n"}}
		w := run(t, simulated("external", v1alpha1.HeartbeatExternal, time.Time{}), simulated("suspended", v1alpha1.HeartbeatSuspended, time.Time{}), node)
		time.Sleep(10 * time.Minute)
		if len(w.beats) != 0 {
			t.Errorf("beats: %v", w.beats)
		}
		w.change("suspended", func(c *v1alpha1.Controller) { c.Spec.Heartbeat = v1alpha1.HeartbeatManaged })
		time.Sleep(time.Second)
		if n := len(w.of("suspended")); n != 1 {
			t.Errorf("%d beats when the drill is over", n)
		}
		w.change("suspended", func(c *v1alpha1.Controller) { c.Spec.Heartbeat = v1alpha1.HeartbeatSuspended })
		time.Sleep(time.Second)
		w.change("suspended", func(c *v1alpha1.Controller) { c.Spec.Heartbeat = v1alpha1.HeartbeatManaged })
		time.Sleep(5 * time.Second)
		if n := len(w.of("suspended")); n != 1 {
			t.Errorf("%d beats within 10 s, by going back and forth", n)
		}
		time.Sleep(15 * time.Second)
		if n := len(w.of("suspended")); n != 2 {
			t.Errorf("%d beats", n)
		}
	})
}

// Req: P-05
func TestWhoeverTakesOverGoesByTheLastBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var all []*v1alpha1.Controller
		for i := range 200 {
			all = append(all, simulated(fmt.Sprintf("overdue-%d", i), v1alpha1.HeartbeatManaged, began.Add(-time.Hour)))
		}
		w := run(t, append(all,
			simulated("recent", v1alpha1.HeartbeatManaged, began.Add(-9*time.Second)),
			simulated("ahead", v1alpha1.HeartbeatManaged, began.Add(time.Hour)),
		)...)
		time.Sleep(time.Minute)
		for name, earliest := range map[string]time.Duration{"recent": 2 * time.Second, "ahead": interval} {
			if first := w.of(name)[0].Sub(began); first < earliest || first > earliest+jitter+syncPoll {
				t.Errorf("%s: the first beat is after %s", name, first)
			}
		}
		firsts := map[time.Time]bool{}
		for _, c := range all {
			first := w.of(c.Name)[0]
			if first.Sub(began) > jitter+syncPoll {
				t.Errorf("%s: the first beat is after %s", c.Name, first.Sub(began))
			}
			firsts[first] = true
		}
		if len(firsts) < 100 {
			t.Errorf("%d beat at %d different times", len(all), len(firsts))
		}
	})
}

// Req: P-05
func TestABeatThatIsNotWrittenIsTriedAgainInTime(t *testing.T) {
	for name, lost := range map[string]bool{"refused": false, "the answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := run(t, simulated("sim", v1alpha1.HeartbeatManaged, time.Time{}))
				time.Sleep(time.Second)
				w.mu.Lock()
				w.refuse, w.lost = 1, lost
				w.mu.Unlock()
				time.Sleep(2 * time.Minute)
				beats := w.of("sim")
				for i := 1; i < len(beats); i++ {
					if pause := beats[i].Sub(beats[i-1]); pause < 10*time.Second || pause > 20*time.Second {
						t.Errorf("a pause of %s", pause)
					}
				}
				if len(beats) < 8 {
					t.Errorf("%d beats", len(beats))
				}
			})
		})
	}
}
