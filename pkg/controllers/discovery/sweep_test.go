package discovery

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// everyCandidate declares as much as may be declared: 1088 addresses.
func everyCandidate() v1alpha1.TalosDiscovery {
	d := v1alpha1.TalosDiscovery{Cidrs: []string{"198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24", "198.18.0.0/24"}}
	for n := range 64 {
		d.Addresses = append(d.Addresses, fmt.Sprintf("198.18.1.%d", n))
	}

	return d
}

func lasted(t *testing.T, found v1alpha1.DiscoveryStatus) time.Duration {
	t.Helper()

	if found.StartedAt == nil || found.CompletedAt == nil {
		t.Fatalf("no sweep ended: %+v", found)
	}

	return found.CompletedAt.Sub(found.StartedAt.Time)
}

// Req: T-02, T-08
func TestTheWorstSweepIsBounded(t *testing.T) {
	for _, c := range []struct {
		name     string
		node     *node
		least    time.Duration
		longest  time.Duration
		answered int32
	}{
		{"nothing answers", nil, 16 * time.Second, 18 * time.Second, 0},
		{"every candidate accepts and is silent", &node{silent: true}, 67 * time.Second, 69 * time.Second, 0},
		{"every candidate dials for ever", &node{dialTakes: time.Hour}, 67 * time.Second, 69 * time.Second, 0},
		{"every candidate has no serial", &node{hardware: maintenance.Hardware{UUID: uuidA}}, 0, time.Second, 1088},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				d := everyCandidate()

				for n := range 256 {
					for _, net := range []string{"198.51.100.", "203.0.113.", "192.0.2.", "198.18.0.", "198.18.1."} {
						p.put(net+fmt.Sprint(n), c.node)
					}
				}

				w := start(t, p, clusterOf("c", d))
				w.pass(72 * time.Second) // the first sweep alone

				found := w.found("c")
				if took := lasted(t, found); took < c.least || took > c.longest {
					t.Errorf("took %s", took)
				}

				if found.Candidates != 1088 || found.Answered != c.answered {
					t.Errorf("discovery: %d candidates, %d answered", found.Candidates, found.Answered)
				}

				most := max(p.mostCall, p.mostOpen)
				if most > Concurrency || c.answered == 0 && most != Concurrency {
					t.Errorf("%d calls and %d sessions at once", p.mostCall, p.mostOpen)
				}
			})
		})
	}
}

// Req: T-08
func TestAnAddressThatAnsweredBeforeGetsTheFullTime(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine *v1alpha1.TalosMachine
	}{
		{"by this process", nil},
		{"by what a machine's status says", &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuidA},
			Status:     v1alpha1.TalosMachineStatus{ObservedEndpoint: "192.0.2.7"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

				var w *world
				if c.machine != nil {
					w = start(t, p, clusterOf("c", addresses("192.0.2.7")), c.machine)
				} else {
					w = start(t, p, clusterOf("c", addresses("192.0.2.7")))
				}

				w.settle()

				first := p.predials["192.0.2.7"]
				if want := map[bool]int{true: 1, false: 0}[c.machine == nil]; first != want {
					t.Errorf("pre-dialed %d times, want %d", first, want)
				}

				w.pass(3 * Interval)

				if p.predials["192.0.2.7"] != first || p.dialed("192.0.2.7") != 4 {
					t.Errorf("pre-dialed %d times, dialed %d times", p.predials["192.0.2.7"], p.dialed("192.0.2.7"))
				}
			})
		})
	}
}

// latency makes each API call take so long, honouring its context as the real client does.
func latency(before, after time.Duration) (func(context.Context, fakeapi.Call) error, func(context.Context, fakeapi.Call) error) {
	sleep := func(d time.Duration) func(context.Context, fakeapi.Call) error {
		return func(ctx context.Context, call fakeapi.Call) error {
			if call.Resource == "talosclusters" {
				return nil
			}

			return wait(ctx, d)
		}
	}

	return sleep(before), sleep(after)
}

// Req: T-08
func TestOrdinaryAPILatencyLosesNothing(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after time.Duration
		node          node
	}{
		{"a second before each call", time.Second, 0, node{}},
		{"a second behind each call", 0, time.Second, node{}},
		{"half a second on both sides", 500 * time.Millisecond, 500 * time.Millisecond, node{}},
		{"a second, and machines that take one too", time.Second, 0, node{readTakes: time.Second}},
		{"a second, and machines that take nearly all the time", 0, time.Second, node{dialTakes: time.Second, readTakes: 900 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const machines = 128 // four times what is asked at once

				p := newPlant()

				for n := range machines {
					one := c.node
					one.hardware = box(uuidOf(n), n)
					p.put(fmt.Sprintf("192.0.2.%d", n), &one)
				}

				w := start(t, p, clusterOf("c", v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/25"}}))

				before, after := latency(c.before, c.after)
				w.api.Before(before)
				w.api.After(after)

				w.pass(50 * time.Second) // the first sweep alone

				found := w.found("c")
				if found.CompletedAt == nil || found.Answered != machines || found.Registered != machines || len(found.Weak)+len(found.Collisions) != 0 {
					t.Errorf("discovery: %+v", found)
				}

				if !meta.IsStatusConditionTrue(w.cluster("c").Status.Conditions, ConditionDiscoveryReady) {
					t.Errorf("conditions: %+v", w.cluster("c").Status.Conditions)
				}

				complete := 0

				for _, machine := range w.machines() {
					if machine.Status.ObservedEndpoint == machine.Spec.Endpoint && machine.Status.Hardware != nil {
						complete++
					}
				}

				if complete != machines || len(w.machines()) != machines {
					t.Errorf("%d machines, %d of them complete, want %d", len(w.machines()), complete, machines)
				}

				for n := range machines {
					if got := p.dialed(fmt.Sprintf("192.0.2.%d", n)); got != 1 {
						t.Fatalf("machine %d was asked %d times", n, got)
					}
				}
			})
		})
	}
}

// Req: T-08, T-09
func TestAMachineThatTheAPIServerRefusesIsShownAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")))
		w.api.Before(func(_ context.Context, call fakeapi.Call) error {
			if call.Verb == "create" {
				return apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), call.Name, fmt.Errorf("quota"))
			}

			return nil
		})
		w.settle()

		condition := meta.FindStatusCondition(w.cluster("c").Status.Conditions, ConditionDiscoveryReady)
		if condition == nil || condition.Reason != "RegistrationFailed" || !strings.Contains(condition.Message, "quota") {
			t.Errorf("condition %+v", condition)
		}

		w.api.Before(nil)
		w.pass(Interval)
		w.machine(uuidA)

		if !meta.IsStatusConditionTrue(w.cluster("c").Status.Conditions, ConditionDiscoveryReady) {
			t.Error("the condition stays")
		}
	})
}

// Two machines with one UUID race in one sweep. Each step of each takes one of three times, so that every order of the
// steps happens.
// Req: T-05, T-07
func TestTwoMachinesWithOneUUIDGiveOneObjectAndOneCollisionInEveryOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of orders")
	}

	steps := []time.Duration{0, 3 * time.Millisecond, 7 * time.Millisecond}

	winners := make(map[string]int)

	for order := range 729 {
		var delay [6]time.Duration

		for i, rest := 0, order; i < len(delay); i, rest = i+1, rest/len(steps) {
			delay[i] = steps[rest%len(steps)]
		}

		synctest.Test(t, func(t *testing.T) {
			p := newPlant()
			p.put("192.0.2.1", &node{hardware: box(uuidA, 1), readTakes: delay[0]})
			p.put("192.0.2.2", &node{hardware: box(uuidA, 2), readTakes: delay[1]})

			w := start(t, p, clusterOf("c", addresses("192.0.2.1", "192.0.2.2")))

			hook := func(at int) func(context.Context, fakeapi.Call) error {
				return func(ctx context.Context, call fakeapi.Call) error {
					switch call.Endpoint {
					case "192.0.2.1":
						return wait(ctx, delay[at])
					case "192.0.2.2":
						return wait(ctx, delay[at+1])
					}

					return nil
				}
			}
			w.api.Before(hook(2))
			w.api.After(hook(4))
			w.settle()

			machines := w.machines()
			if len(machines) != 1 {
				t.Fatalf("order %v: %d machines", delay, len(machines))
			}

			winner := machines[0].Spec.Endpoint
			winners[winner]++

			if machines[0].Status.ObservedEndpoint != winner || (winner == "192.0.2.1") != (machines[0].Spec.Identity.Serial == "SN-0001-X") {
				t.Errorf("order %v: a mixture of both: %+v", delay, machines[0])
			}

			for range 2 {
				found := w.found("c")
				if len(found.Collisions) != 1 || found.Collisions[0].Address == winner || len(w.events.all()) != 1 {
					t.Errorf("order %v: collisions %+v, events %v", delay, found.Collisions, w.events.all())
				}

				w.pass(Interval)
			}

			if machine := w.machine(uuidA); !equality.Semantic.DeepEqual(machine.Spec, machines[0].Spec) || machine.Status.ObservedEndpoint != winner {
				t.Errorf("order %v: the first one was displaced: %+v", delay, machine)
			}
		})
	}

	if len(winners) != 2 {
		t.Errorf("only %v ever won: the orders are not all orders", winners)
	}
}

// Req: T-10
func TestASweepComesAtOnceOnAChangeAndThenEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{readErr: &maintenance.Error{Class: maintenance.ClassNodeError}, readTakes: time.Second})
		p.put("192.0.2.8", &node{readErr: &maintenance.Error{Class: maintenance.ClassNodeError}})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")))

		dialed := func(addr string, want int) {
			t.Helper()

			if got := p.dialed(addr); got != want {
				t.Errorf("at %s %s was dialed %d times, want %d", time.Now().Format("04:05.0"), addr, got, want)
			}
		}

		w.settle()
		dialed("192.0.2.7", 1)

		w.pass(60 * time.Second) // a second of reading, then the interval, is 61
		dialed("192.0.2.7", 1)
		w.pass(time.Second)
		dialed("192.0.2.7", 2)

		// A change in the middle of the interval.
		w.pass(30 * time.Second)
		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = addresses("192.0.2.8") })
		w.settle()
		dialed("192.0.2.8", 1)
		w.pass(59 * time.Second)
		dialed("192.0.2.8", 1)
		w.pass(time.Second)
		dialed("192.0.2.8", 2)
		dialed("192.0.2.7", 2)

		// Something else changes: no sweep.
		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.KubernetesVersion = "v1.36.2" })
		w.settle()
		dialed("192.0.2.8", 2)

		// Asked for by a user.
		w.ask("c")
		w.settle()
		dialed("192.0.2.8", 3)

		if found := w.found("c"); found.RequestedAt == nil || found.CompletedAt == nil || found.CompletedAt.Before(found.RequestedAt) {
			t.Errorf("discovery %+v", found)
		}

		// Paused, and no longer paused.
		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true })
		w.pass(10 * time.Minute)
		dialed("192.0.2.8", 3)
		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })
		w.settle()
		dialed("192.0.2.8", 4)

		// Deleted.
		if err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).Delete(context.Background(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		w.pass(10 * time.Minute)
		dialed("192.0.2.8", 4)
	})
}

// Req: T-10
func TestAChangedRangeEndsTheRunningSweep(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.TalosCluster){
		"other ranges": func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = addresses("198.51.100.1") },
		"no ranges":    func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = v1alpha1.TalosDiscovery{} },
		"paused":       func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, newPlant(), clusterOf("c", v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/24"}}))
				w.pass(2 * time.Second)
				w.change("c", change)
				w.settle()

				ofOldRange := func() (n int) {
					for addr := range w.plant.predials {
						if strings.HasPrefix(addr, "192.0.2.") {
							n++
						}
					}

					return n
				}

				asked := ofOldRange()
				if asked == 0 || asked >= 256 {
					t.Fatalf("%d were asked before the change", asked)
				}

				if name == "other ranges" && w.plant.predials["198.51.100.1"] != 1 {
					t.Error("the new range was not asked at once")
				}

				w.pass(50 * time.Second)

				if later := ofOldRange(); later != asked {
					t.Errorf("%d more addresses of the old range were asked", later-asked)
				}
			})
		})
	}
}

// Req: T-10, A-06
func TestClustersAreSweptOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()

		w := start(t, p,
			clusterOf("a", v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/24"}}),
			clusterOf("b", v1alpha1.TalosDiscovery{Cidrs: []string{"198.51.100.0/24"}}),
			clusterOf("d", v1alpha1.TalosDiscovery{Cidrs: []string{"203.0.113.0/24"}}),
		)
		w.pass(5 * time.Minute)

		type span struct{ from, to time.Time }

		var spans []span

		for _, name := range []string{"a", "b", "d"} {
			found := w.found(name)
			if found.CompletedAt == nil {
				t.Fatalf("cluster %s: %+v", name, found)
			}

			spans = append(spans, span{found.StartedAt.Time, found.CompletedAt.Time})
		}

		slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })

		for i := 1; i < len(spans); i++ {
			if spans[i].from.Before(spans[i-1].to) {
				t.Errorf("two sweeps at once: %v", spans)
			}
		}

		if p.mostCall != Concurrency {
			t.Errorf("%d candidates at once", p.mostCall)
		}
	})
}

// Req: T-10
func TestTheStatusIsWrittenOncePerPeriodicSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7", "192.0.2.8")))
		w.pass(5 * time.Second)

		before := len(w.api.Writes())
		first := w.found("c")

		w.pass(10*Interval + 20*time.Second)

		if n := len(w.api.Writes()) - before; n != 10 {
			t.Errorf("%d writes in ten sweeps", n)
		}

		if last := w.found("c"); !last.CompletedAt.After(first.CompletedAt.Time) || last.Registered != 0 || last.Answered != 1 {
			t.Errorf("discovery %+v", last)
		}
	})
}

// What others write into the status meanwhile stays.
// Req: T-10
func TestConcurrentWritesOfTheStatusAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")))

		var cluster, machine sync.Once

		w.api.Before(func(ctx context.Context, call fakeapi.Call) error {
			if call.Verb != "updatestatus" {
				return nil
			}

			talos := w.api.Fake.TalosV1alpha1()

			if call.Resource == "talosclusters" {
				cluster.Do(func() {
					c, _ := talos.TalosClusters(namespace).Get(ctx, "c", metav1.GetOptions{})
					c.Status.Machines.Total = 7
					_, _ = talos.TalosClusters(namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
				})

				return nil
			}

			machine.Do(func() {
				m, _ := talos.TalosMachines(namespace).Get(ctx, uuidA, metav1.GetOptions{})
				m.Status.Phase = v1alpha1.MachineConfiguring
				_, _ = talos.TalosMachines(namespace).UpdateStatus(ctx, m, metav1.UpdateOptions{})
			})

			return nil
		})
		w.pass(time.Second)

		if got := w.cluster("c").Status; got.Machines.Total != 7 || got.Discovery == nil || got.Discovery.CompletedAt == nil {
			t.Errorf("cluster %+v", got)
		}

		if got := w.machine(uuidA).Status; got.Phase != v1alpha1.MachineConfiguring || got.ObservedEndpoint != "192.0.2.7" {
			t.Errorf("machine %+v", got)
		}
	})
}

// Each ask leaves a line in the log of a configured node.
// Req: T-10
func TestAConfiguredNodeIsAskedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{readErr: &maintenance.Error{Class: maintenance.ClassNotInMaintenance}})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")))
		w.pass(time.Hour)

		if got := p.dialed("192.0.2.7"); got < 11 || got > 20 {
			t.Errorf("asked %d times in an hour", got)
		}

		// Wiped: it is found in five minutes at most.
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})
		w.pass(maxSkip + Interval)
		w.machine(uuidA)

		// A change of the ranges asks everything.
		p.put("192.0.2.7", &node{readErr: &maintenance.Error{Class: maintenance.ClassNotInMaintenance}})
		w.pass(time.Hour)

		before := p.dialed("192.0.2.7")

		w.change("c", func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = addresses("192.0.2.7", "192.0.2.9") })
		w.settle()

		if got := p.dialed("192.0.2.7"); got != before+1 {
			t.Errorf("asked %d times after a change", got-before)
		}
	})
}

// Req: A-06
func TestStoppingEndsASweepAndRunWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), clusterOf("c", everyCandidate()))
		w.pass(2 * time.Second)

		before := time.Now()

		w.stop() // waits for Run; synctest fails the test when a goroutine is left

		if took := time.Since(before); took > 0 {
			t.Errorf("stopping took %s", took)
		}

		asked := len(w.plant.predials)

		w.pass(10 * time.Minute)

		if len(w.plant.predials) != asked {
			t.Error("asked after the stop")
		}
	})
}

// Discovery cannot read a bundle: nothing that could is imported.
// Req: T-03
func TestDiscoveryImportsNothingThatReadsSecretsOrRenders(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}

		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}

		for _, imported := range parsed.Imports {
			for _, forbidden := range []string{"client-go/kubernetes", "pkg/talos/render", "generate/secrets", "pkg/talos/machine\""} {
				if strings.Contains(imported.Path.Value, forbidden) {
					t.Errorf("%s imports %s", file.Name(), imported.Path.Value)
				}
			}
		}
	}
}
