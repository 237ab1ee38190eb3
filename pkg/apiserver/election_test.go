package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// replica is one server that takes part in the election. It leads until it is told to stop, and needs some time for that.
type replica struct {
	name string
	// cut says that nothing of this replica reaches the host cluster, late that its renewals do not.
	cut, late atomic.Bool
	stop      context.CancelFunc
	// gone is closed when the election of this replica has ended.
	gone chan struct{}
}

// cluster is the host cluster with its replicas, and the record of who led.
type cluster struct {
	tracker clienttesting.ObjectTracker
	client  *fake.Clientset

	mu      sync.Mutex
	leaders []string
	history []string
}

func newCluster() *cluster {
	client := fake.NewClientset()
	return &cluster{tracker: client.Tracker(), client: client}
}

// join starts a replica whose controllers take dying to stop.
func (c *cluster) join(t *testing.T, name string, dying time.Duration) *replica {
	t.Helper()
	r := &replica{name: name, gone: make(chan struct{})}
	client := fake.NewClientset()
	client.ReactionChain = nil
	client.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if r.cut.Load() {
			return true, nil, errors.New("no route to host")
		}
		if update, ok := action.(clienttesting.UpdateAction); ok && r.late.Load() &&
			ptr.Deref(update.GetObject().(*coordinationv1.Lease).Spec.HolderIdentity, "") == name {
			return true, nil, errors.New("too slow")
		}
		return false, nil, nil
	})
	client.AddReactor("*", "*", clienttesting.ObjectReaction(c.tracker))
	election, err := newElection(client, "fieldplane-system", name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		defer close(r.gone)
		election.run(ctx, func(ctx context.Context) {
			c.began(t, name)
			<-ctx.Done()
			time.Sleep(dying)
			c.ended(name)
		})
	}()
	return r
}

func (c *cluster) began(t *testing.T, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.leaders) > 0 {
		t.Errorf("%s leads while %v still does", name, c.leaders)
	}
	c.leaders = append(c.leaders, name)
	c.history = append(c.history, name)
}

func (c *cluster) ended(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders = slices.DeleteFunc(c.leaders, func(leader string) bool { return leader == name })
}

func (c *cluster) led() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.history)
}

func (c *cluster) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := c.client.CoordinationV1().Leases("fieldplane-system").Get(t.Context(), LeaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// pass lets time pass, and then everything that is due come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Req: A-06
func TestExactlyOneReplicaLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newCluster()
		a, b := host.join(t, "a", 0), host.join(t, "b", 0)
		pass(5 * time.Minute)
		first := host.led()
		if first != "[a]" && first != "[b]" {
			t.Errorf("led %s, want one replica throughout", first)
		}
		a.stop()
		b.stop()
		<-a.gone
		<-b.gone
	})
}

// Req: A-06
func TestALeaderThatStopsHandsOverWhenItsControllersHaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newCluster()
		a := host.join(t, "a", 15*time.Second) // longer than the Lease lives
		pass(time.Second)
		b := host.join(t, "b", 0)
		pass(time.Minute)
		a.stop()
		pass(14 * time.Second)
		if got := host.led(); got != "[a]" {
			t.Fatalf("led %s while a was stopping, want a alone", got)
		}
		if holder := ptr.Deref(host.lease(t).Spec.HolderIdentity, ""); holder != "a" {
			t.Fatalf("the Lease is held by %q while a is stopping", holder)
		}
		<-a.gone
		// Another tries every retryPeriod, stretched by jitter.
		pass(2*retryPeriod + time.Second)
		if got := host.led(); got != "[a b]" {
			t.Errorf("led %s, want b soon after a", got)
		}
		b.stop()
		<-b.gone
		if holder := ptr.Deref(host.lease(t).Spec.HolderIdentity, ""); holder != "" {
			t.Errorf("the Lease is still held by %q", holder)
		}
	})
}

// Req: A-06, P-16. The library would release a Lease that it failed to renew before the controllers are told to stop.
func TestALeaderThatIsCutOffStopsBeforeAnotherBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newCluster()
		a := host.join(t, "a", 2*time.Second)
		pass(time.Second)
		b := host.join(t, "b", 0)
		pass(time.Minute)
		a.cut.Store(true)
		cutAt := time.Now()
		for host.led() == "[a]" && time.Since(cutAt) < time.Minute {
			pass(100 * time.Millisecond)
		}
		if took := time.Since(cutAt); host.led() != "[a b]" || took > 15*time.Second {
			t.Errorf("led %s after %v, want b within 15 s", host.led(), took)
		}
		a.cut.Store(false)
		pass(time.Minute)
		if got := host.led(); got != "[a b]" {
			t.Errorf("led %s after a came back, want b still", got)
		}
		b.stop()
		<-b.gone
		pass(time.Minute)
		if got := host.led(); got != "[a b a]" {
			t.Errorf("led %s, want a to stand again once b is gone", got)
		}
		a.stop()
		<-a.gone
	})
}

// Req: A-06. A host cluster that is too slow for renewals may well take the release that the library sends after them,
// and which would let another lead before this one is told to stop.
func TestALeaseThatWasLostIsLeftToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newCluster()
		a := host.join(t, "a", 2*time.Second)
		pass(time.Second)
		// Each looks at its own moments, and one of them soon after a release.
		replicas := []*replica{a}
		for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
			replicas = append(replicas, host.join(t, name, 0))
		}
		pass(time.Minute)
		a.late.Store(true)
		pass(time.Minute)
		host.mu.Lock()
		if len(host.history) != 2 || host.history[0] != "a" || host.history[1] == "a" {
			t.Errorf("led %v, want another after a", host.history)
		}
		host.mu.Unlock()
		for _, r := range replicas {
			r.stop()
		}
		for _, r := range replicas {
			<-r.gone
		}
	})
}

func TestAReplicaThatNeverLedStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newCluster()
		a := host.join(t, "a", 0)
		pass(time.Second)
		b := host.join(t, "b", 0)
		pass(10 * time.Second)
		before := time.Now()
		b.stop()
		<-b.gone
		if took := time.Since(before); took > time.Second {
			t.Errorf("took %v", took)
		}
		if holder := ptr.Deref(host.lease(t).Spec.HolderIdentity, ""); holder != "a" {
			t.Errorf("b released the Lease of a: held by %q", holder)
		}
		a.stop()
		<-a.gone
	})
}

func TestALeaderThatIsKilledIsReplacedInTime(t *testing.T) {
	// Req: P-16. Through a loss of the leader a fault takes at most 20 s to a HOLD.
	if worst := leaseDuration + 2*retryPeriod; worst > 15*time.Second {
		t.Errorf("another leads after up to %v, which leaves too little of 20 s", worst)
	}
	if left := leaseDuration - renewDeadline - retryPeriod; left < 2*time.Second {
		t.Errorf("a leader that cannot renew has %v to stop before another can lead", left)
	}
}
