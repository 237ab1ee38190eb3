package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// A script of what happens and who gets the next turn; time stands still but for "+1s". Each "take" ends at "done", or at
// "rest" when the sweep was suspended.
// Req: T-10
func TestWhoseTurnItIs(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"nobody's", "none"},
		{"the one that is due first", "known a; +1s; known b; take a periodic; done; take b periodic"},
		{"in one moment the order of names decides", "known b; known a; take a periodic"},
		{"not before it is due", "later a; none; +60s; take a periodic"},
		{"an urgent one goes first", "known a; +1s; asked b; take b urgent; done; take a periodic"},
		{"urgent ones in their order", "asked b; +1s; changed a; +1s; asked b; take b urgent; done; take a urgent"},
		{"a change ends the cluster's own sweep", "known a; take a periodic; changed a; over; done; take a urgent"},
		{"a change ends an urgent one too", "changed a; take a urgent; changed a; over; done; take a urgent"},
		{"a request ends the cluster's own periodic sweep", "known a; take a periodic; asked a; over; done; take a urgent"},
		{"a request does not end one that was asked for", "asked a; take a urgent; asked a; on; done; take a urgent; done; none"},
		{"an urgent one suspends another's periodic sweep", "known a; take a periodic; asked b; suspended; rest; take b urgent; done; take a rest"},
		{"but no urgent one", "asked a; take a urgent; asked b; on; done; take b urgent"},
		{"what is suspended is not suspended again", "known a; take a periodic; asked b; suspended; rest; take b urgent; done; take a rest; asked d; on; done; take d urgent"},
		{"what is suspended waits for all that are asked for the first time", "known a; take a periodic; asked b; rest; take b urgent; asked d; done; take d urgent; done; take a rest"},
		{"but nobody overtakes it twice", "known a; take a periodic; asked b; rest; take b urgent; asked b; on; done; take a rest; asked b; on; done; take b urgent"},
		{"nor what became due meanwhile", "known b; take b periodic; done; later b; +1s; known a; known d; asked b; take b urgent; asked b; done; take a periodic; asked b; on; done; take d periodic; done; take b urgent"},
		{"a change does away with the rest", "known a; take a periodic; asked b; rest; +1s; changed a; take b urgent; done; take a urgent; done; none"},
		{"a cluster that is dropped has no turn", "known a; drop a; none; known a; take a periodic; drop a; over; done; none"},
		{"nor what is left of its suspended sweep", "known a; take a periodic; asked b; suspended; drop a; rest; take b urgent; done; none"},
		{"what is asked for while the sweep ends comes at once", "known a; take a periodic; asked a; done; later a; take a urgent; done; none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(clock.RealClock{})

				var (
					ctx   context.Context
					taken *turn
				)

				for step := range strings.SplitSeq(c.script, "; ") {
					words := strings.Fields(step)
					have := ""

					switch words[0] {
					case "known":
						s.known(key(words[1]))
					case "later":
						s.after(key(words[1]), Interval)
					case "changed":
						s.changed(key(words[1]))
					case "asked":
						s.asked(key(words[1]))
					case "drop":
						s.drop(key(words[1]))
					case "done":
						s.done(taken, nil)
					case "rest":
						s.done(taken, &sweep{})
					case "take", "none":
						ctx, taken, _ = s.begin(t.Context())
						have = "none"

						if taken != nil {
							kind := map[bool]string{true: "urgent", false: "periodic"}[taken.urgent]
							if taken.rest != nil {
								kind = "rest"
							}

							have = fmt.Sprintf("take %s %s", taken.key.Name, kind)
						}
					case "over", "on", "suspended":
						have = "on"

						select {
						case <-taken.suspend:
							have = "suspended"
						case <-ctx.Done():
							have = "over"
						default:
						}
					default:
						d, err := time.ParseDuration(strings.TrimPrefix(words[0], "+"))
						if err != nil {
							t.Fatal(err)
						}

						time.Sleep(d)
					}

					if have != "" && have != step {
						t.Fatalf("%s, not %s", have, step)
					}
				}
			})
		})
	}
}

// silentNet are 256 addresses at which nobody is: a sweep of them takes 4 s.
func silentNet(name, net string) *v1alpha1.TalosCluster {
	return clusterOf(name, v1alpha1.TalosDiscovery{Cidrs: []string{net + ".0/24"}})
}

func (p *plant) askedIn(net string) (addresses, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for addr, n := range p.predials {
		if strings.HasPrefix(addr, net+".") {
			addresses++
			times += n
		}
	}

	return addresses, times
}

// Req: T-10
func TestASweepThatIsAskedForSuspendsAnothersWhichGoesOnAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		for n := range 256 {
			p.put(fmt.Sprintf("198.51.100.%d", n), &node{dialErr: &maintenance.Error{Class: maintenance.ClassUnreachable}})
		}

		w := start(t, p, silentNet("a", "192.0.2"), clusterOf("b", addresses("198.51.100.1")))
		w.pass(30 * time.Second) // both were swept; a is due again at 64 s, b at 60 s

		_, before := p.askedIn("192.0.2")

		w.pass(36 * time.Second) // two seconds of a's second sweep

		_, during := p.askedIn("192.0.2")
		if during == before || during-before == 256 {
			t.Fatalf("%d were asked: a's sweep does not run", during-before)
		}

		began := p.predialed("198.51.100.1")
		w.change("b", func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = addresses("198.51.100.1", "198.51.100.2") })
		w.pass(maintenance.PredialTimeout)

		if p.predialed("198.51.100.1") != began+1 || p.predialed("198.51.100.2") != 1 {
			t.Errorf("b's changed range was not asked at once")
		}

		w.pass(5 * time.Second)

		addrs, after := p.askedIn("192.0.2")
		if addrs != 256 || after-before != 256 {
			t.Errorf("%d questions to a's 256 addresses in its second sweep, %d in all addresses", after-before, addrs)
		}

		if found := w.found("a"); found.CompletedAt == nil || found.Candidates != 256 || found.Asked != 0 {
			t.Errorf("discovery of a: %+v", found)
		}

		if p.mostCall > Concurrency {
			t.Errorf("%d at once", p.mostCall)
		}
	})
}

// Req: T-10
func TestWhoAsksAllTheTimeStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		w := start(t, p, silentNet("a", "192.0.2"), silentNet("b", "198.51.100"), silentNet("d", "203.0.113"))

		ended := map[string]map[time.Time]bool{"b": {}, "d": {}}

		for n := range 6000 { // ten minutes
			if n%7 == 0 && n > 50 {
				w.ask("a")
			}

			w.pass(100 * time.Millisecond)

			for name, at := range ended {
				if found := w.cluster(name).Status.Discovery; found != nil && found.CompletedAt != nil {
					at[found.CompletedAt.Time] = true
				}
			}
		}

		// Each sweep takes 4 s; with nobody asking each would be swept every 64 s.
		for _, name := range []string{"b", "d"} {
			if n := len(ended[name]); n < 8 {
				t.Errorf("%d sweeps of %s ended", n, name)
			}
		}

		// What the others leave is all a's.
		if addrs, n := p.askedIn("192.0.2"); addrs != 256 || n < 100*256 {
			t.Errorf("%d questions to %d addresses of a", n, addrs)
		}
	})
}

// Whoever asks waits until a sweep has ended that began no earlier than the request; the API tells seconds.
// Req: T-10
func TestASweepThatIsAskedForBeginsNoEarlierThanTheRequest(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second, 4200 * time.Millisecond, 30 * time.Second, 64*time.Second + 800*time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				w := start(t, p, silentNet("c", "192.0.2"))
				w.pass(250*time.Millisecond + after)

				_, before := p.askedIn("192.0.2")
				asked := w.ask("c")
				at := time.Now()

				answered := func() bool {
					found := w.found("c")

					return found.CompletedAt != nil && !found.StartedAt.Time.Before(asked) && !found.CompletedAt.Before(found.StartedAt)
				}

				for !answered() {
					if time.Since(at) > 10*time.Second {
						t.Fatalf("not answered: %+v", w.found("c"))
					}

					w.pass(50 * time.Millisecond)
				}

				// The sweep that answers asked all 256 after the request.
				if _, n := p.askedIn("192.0.2"); n-before < 256 {
					t.Errorf("%d were asked since the request", n-before)
				}

				w.pass(5 * time.Second)

				if _, n := p.askedIn("192.0.2"); n-before > 256 {
					t.Errorf("%d were asked: more than one sweep", n-before)
				}
			})
		})
	}
}

// Req: T-10
func TestWhenASweepIsToldToHaveBegun(t *testing.T) {
	now := time.Unix(1000, 300e6)

	for _, c := range []struct {
		name string
		asks bool
		at   time.Time
		want time.Time
	}{
		{"nobody asked", false, time.Time{}, now},
		{"asked for before", true, time.Unix(999, 0), now},
		{"asked for in this second", true, time.Unix(1001, 0), time.Unix(1001, 0)},
		{"twice in this second", true, time.Unix(1002, 0), time.Unix(1002, 0)},
		{"by a clock that was set back", true, time.Unix(5000, 0), now},
	} {
		cluster := clusterOf("c", addresses("192.0.2.1"))
		if c.asks {
			cluster.Status.Discovery = &v1alpha1.DiscoveryStatus{RequestedAt: &metav1.Time{Time: c.at}}
		}

		if got := startOf(cluster, now); !got.Equal(c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// Req: T-10
func TestARequestFromBeforeARestartIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), silentNet("a", "192.0.2"), silentNet("b", "198.51.100"), silentNet("c", "203.0.113"))
		w.pass(30 * time.Second)
		w.stop()

		asked := w.ask("c")
		w.run()
		w.pass(maintenance.PredialTimeout)

		// Before the others, which are due as well.
		if found := w.found("c"); found.CompletedAt != nil || found.StartedAt.Time.Before(asked) {
			t.Errorf("discovery %+v", found)
		}

		w.pass(5 * time.Second)

		if found := w.found("c"); found.CompletedAt == nil {
			t.Errorf("discovery %+v", found)
		}
	})
}

// Req: T-10
func TestARunningSweepTellsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), clusterOf("c", everyCandidate())) // 17 s
		w.pass(90 * time.Second)                                    // the second sweep is at 13 s
		w.pass(10 * time.Second)

		type told struct {
			at    time.Duration
			asked int32
		}

		began := time.Now()
		w.ask("c")

		var steps []told

		written := len(w.api.Writes())

		for range 400 {
			w.pass(50 * time.Millisecond)

			found := w.found("c")
			if len(steps) == 0 || steps[len(steps)-1].asked != found.Asked {
				steps = append(steps, told{time.Since(began), found.Asked})
			}

			if (found.CompletedAt == nil) != (time.Since(began) < 17*time.Second) || found.StartedAt == nil || found.Candidates != 1088 {
				t.Errorf("after %s: %+v", time.Since(began), found)
			}
		}

		last := steps[len(steps)-1]
		if len(steps) < 8 || last.asked != 0 || steps[len(steps)-2].asked > 1088 {
			t.Errorf("progress %v", steps)
		}

		for i := 1; i < len(steps)-1; i++ {
			if steps[i].asked <= steps[i-1].asked || steps[i].at-steps[i-1].at < progressInterval-100*time.Millisecond {
				t.Errorf("progress %v", steps)
			}
		}

		if n := len(w.api.Writes()) - written; n > 10 {
			t.Errorf("%d writes in one sweep", n)
		}
	})
}

// Req: T-10
func TestTheCountsOfARunningSweepAreItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidOf(1), 1)})

		w := start(t, p, clusterOf("c", everyCandidate())) // 17 s
		w.pass(20 * time.Second)

		if found := w.found("c"); found.CompletedAt == nil || found.Answered != 1 || found.Registered != 1 {
			t.Fatalf("the first sweep: %+v", found)
		}

		w.ask("c")
		w.settle()

		if found := w.found("c"); found.CompletedAt != nil || found.Answered != 0 || found.Registered != 0 {
			t.Errorf("the running sweep tells the counts of the last: %+v", found)
		}

		w.pass(20 * time.Second)

		if found := w.found("c"); found.CompletedAt == nil || found.Answered != 1 || found.Registered != 0 {
			t.Errorf("at its end: %+v", found)
		}
	})
}

// Req: T-10
func TestAPeriodicSweepTellsItsProgressOnlyWhenItTakesLong(t *testing.T) {
	for _, c := range []struct {
		name    string
		cluster *v1alpha1.TalosCluster
		writes  int
	}{
		{"half a second", clusterOf("c", addresses("192.0.2.1")), 1},
		{"three seconds", clusterOf("c", v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/25", "192.0.2.128/26"}}), 2}, // at two, and at the end
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, newPlant(), c.cluster)
				w.pass(30 * time.Second)

				before := len(w.api.Writes())
				w.pass(Interval)

				if n := len(w.api.Writes()) - before; n != c.writes {
					t.Errorf("%d writes", n)
				}
			})
		})
	}
}

// Req: T-10
func TestASweepThatWasEndedIsNotToldAsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), clusterOf("c", everyCandidate()))
		w.pass(5 * time.Second)

		if found := w.found("c"); found.StartedAt == nil || found.Asked == 0 {
			t.Fatalf("discovery %+v", found)
		}

		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true })
		w.settle()

		if found := w.found("c"); found.StartedAt != nil || found.Asked != 0 {
			t.Errorf("discovery %+v", found)
		}

		condition := meta.FindStatusCondition(w.cluster("c").Status.Conditions, ConditionDiscoveryReady)
		if condition == nil || condition.Reason != "Paused" || condition.ObservedGeneration != w.cluster("c").Generation {
			t.Errorf("condition %+v", condition)
		}

		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })
		w.settle()

		if !meta.IsStatusConditionTrue(w.cluster("c").Status.Conditions, ConditionDiscoveryReady) {
			t.Errorf("conditions %+v", w.cluster("c").Status.Conditions)
		}
	})
}

// The end of a sweep and a pause cross.
// Req: T-10
func TestAPauseAmidstTheLastWriteStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), clusterOf("c", addresses("192.0.2.1")))

		paused := false
		w.api.Before(func(_ context.Context, call fakeapi.Call) error {
			if call.Verb == "updatestatus" && !paused {
				paused = true

				w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true })
			}

			return nil
		})
		w.pass(10 * time.Second)

		condition := meta.FindStatusCondition(w.cluster("c").Status.Conditions, ConditionDiscoveryReady)
		if condition == nil || condition.Reason != "Paused" {
			t.Errorf("condition %+v", condition)
		}
	})
}

// Where a connection is taken in silence each candidate costs all of its time.
// Req: T-08, T-10
func TestAnAddressThatTakesConnectionsInSilenceIsAskedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		for n := range 256 {
			p.put(fmt.Sprintf("192.0.2.%d", n), &node{silent: true})
		}

		w := start(t, p, silentNet("c", "192.0.2")) // 16 s
		w.pass(time.Hour)

		if got := p.dialed("192.0.2.7"); got < 10 || got > 16 {
			t.Errorf("asked %d times in an hour", got)
		}

		// Asked for: nobody is left out.
		before := p.dialed("192.0.2.7")

		w.ask("c")
		w.pass(17 * time.Second)

		if got := p.dialed("192.0.2.7"); got != before+1 {
			t.Errorf("asked %d times on request", got-before)
		}

		// It speaks: it is found in five minutes at most.
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})
		w.pass(maxSkip + Interval + 16*time.Second)
		w.machine(uuidA)
	})
}

// Nothing is known against an address that closes at once, or that was cut short by the end of the sweep.
// Req: T-08
func TestOnlySilenceThatCostAllTheTimeIsHeldAgainstAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.1", &node{silent: true})
		p.put("192.0.2.2", &node{dialErr: &maintenance.Error{Class: maintenance.ClassUnreachable, Detail: "EOF"}})

		w := &world{t: t, api: fakeapi.New(), plant: p, events: &events{}}
		c := w.unstarted()
		cluster := clusterOf("c", addresses("192.0.2.1", "192.0.2.2"))

		short, cancel := context.WithCancel(t.Context())
		defer cancel()

		time.AfterFunc(time.Second, cancel)

		c.DiscoverAll(short, cluster, candidatesOf(cluster), false)

		for addr, entry := range c.addresses.entries {
			t.Errorf("after a sweep that was cut short: %s is %+v", addr, entry)
		}

		c.DiscoverAll(t.Context(), cluster, candidatesOf(cluster), false)

		one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		if entry := c.addresses.entries[one]; entry == nil || entry.idle != 1 || entry.answered || c.addresses.entries[two] != nil {
			t.Errorf("entries %+v", c.addresses.entries)
		}
	})
}
