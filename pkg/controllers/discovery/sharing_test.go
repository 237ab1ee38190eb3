package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

func sharesHardware(machine *v1alpha1.TalosMachine) string {
	if condition := meta.FindStatusCondition(machine.Status.Conditions, hardware.ConditionSharesHardware); condition != nil {
		return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
	}

	return ""
}

const swappedA = "521c7a6f-1e3b-8f4d-9a60-0cc47ab01056" // uuidA in the other byte order

// boxLike is another box with a part of the first one.
func boxLike(uuid string, edit func(*maintenance.Hardware)) maintenance.Hardware {
	read := box(uuid, 2)
	edit(&read)

	return read
}

// Req: T-05, T-09
func TestAMachineThatSharesHardwareWithAnotherIsRegisteredAndTold(t *testing.T) {
	first := box(uuidA, 1)

	for _, c := range []struct {
		name  string
		read  maintenance.Hardware
		shows string
	}{
		{"its serial", boxLike(uuidB, func(h *maintenance.Hardware) { h.Serial = first.Serial }), `it has the serial number "SN-0001-X" of machine ` + uuidA},
		{"a MAC", boxLike(uuidB, func(h *maintenance.Hardware) { h.Links = first.Links[:1] }), "it has the MAC address b4:45:06:00:01:02 of machine " + uuidA},
		{"all but the UUID", boxLike(uuidB, func(h *maintenance.Hardware) { *h = first; h.UUID = uuidB }), "and the MAC addresses"},
		{"its UUID in the other byte order", box(swappedA, 2), "other byte order, of machine " + uuidA},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.7", &node{hardware: first})

				w := start(t, p, clusterOf("c", addresses("192.0.2.7", "192.0.2.8")))
				w.pass(Interval / 2)
				p.put("192.0.2.8", &node{hardware: c.read})

				// What is stored first of the machine's status has the condition.
				var once sync.Once

				earliest := ""
				w.api.After(func(_ context.Context, call fakeapi.Call) error {
					if call.Verb == "updatestatus" && call.Name == c.read.UUID {
						once.Do(func() { earliest = sharesHardware(w.machine(call.Name)) })
					}

					return nil
				})
				w.pass(5 * Interval)

				machine := w.machine(c.read.UUID)
				if machine.Spec.Approved != nil || machine.Status.Phase != v1alpha1.MachinePending || machine.Spec.Endpoint != "192.0.2.8" {
					t.Errorf("machine %+v %+v", machine.Spec, machine.Status)
				}

				have := sharesHardware(machine)
				if !strings.HasPrefix(have, "True SharesHardware: it has ") || !strings.Contains(have, c.shows) || earliest != have {
					t.Errorf("condition %q, at first %q", have, earliest)
				}

				if have := sharesHardware(w.machine(uuidA)); have != "" {
					t.Errorf("the earlier machine has the condition too: %s", have)
				}

				told := w.events.all()
				if len(told) != 1 || !strings.HasPrefix(told[0], "TalosCluster site-a/c Warning SharesHardware: machine "+c.read.UUID) || !strings.Contains(told[0], c.shows) {
					t.Errorf("events %q", told)
				}

				list := w.found("c").Collisions
				if len(list) != 1 || list[0].Reason != v1alpha1.FindingSharesHardware || list[0].Address != "192.0.2.8" ||
					list[0].MachineName != uuidA || list[0].Identity.UUID != c.read.UUID || list[0].SeenAt == nil {
					t.Errorf("collisions %+v", list)
				}

				// It is told again in an hour, and by no restart.
				w.stop()
				w.run()
				w.pass(30 * time.Minute)

				if told := w.events.all(); len(told) != 1 {
					t.Errorf("events after a restart %q", told)
				}

				w.pass(time.Hour)

				if told := w.events.all(); len(told) != 2 {
					t.Errorf("events after an hour %q", told)
				}

				// The other one goes: nothing is shared any more.
				p.put("192.0.2.7", nil)
				w.remove(uuidA)
				w.settle()

				if have := sharesHardware(w.machine(c.read.UUID)); have != "" {
					t.Errorf("the condition stays: %s", have)
				}

				w.pass(Interval)

				if list := w.found("c").Collisions; len(list) != 0 {
					t.Errorf("the entry stays: %+v", list)
				}
			})
		})
	}
}

// Two machines that share hardware come in one sweep: the later one has the condition, whoever was written down first.
// Req: T-05, T-09
func TestOfTwoNewMachinesThatShareHardwareOneIsTold(t *testing.T) {
	for _, first := range []string{"192.0.2.1", "192.0.2.2"} {
		for _, apart := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, the other one after %s", first, apart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					shared := func(uuid string, n int) maintenance.Hardware {
						read := box(uuid, n)
						read.Serial = "SN-SAME"

						return read
					}

					nodes := map[string]*node{
						"192.0.2.1": {hardware: shared(uuidA, 1), readTakes: apart},
						"192.0.2.2": {hardware: shared(uuidB, 2), readTakes: apart},
					}
					nodes[first].readTakes = 0

					p := newPlant()
					for addr, n := range nodes {
						p.put(addr, n)
					}

					w := start(t, p, clusterOf("c", addresses("192.0.2.1", "192.0.2.2")))
					w.pass(Interval / 2)

					a, b := w.machine(uuidA), w.machine(uuidB)
					later, earlier := a, b // in one second the name decides

					if a.CreationTimestamp.Before(&b.CreationTimestamp) {
						later, earlier = b, a
					}

					if !strings.Contains(sharesHardware(later), "of machine "+earlier.Name) || sharesHardware(earlier) != "" {
						t.Errorf("later %s: %q, earlier %s: %q", later.Name, sharesHardware(later), earlier.Name, sharesHardware(earlier))
					}

					list := w.found("c").Collisions
					if len(list) != 1 || list[0].Identity.UUID != later.Name || list[0].MachineName != earlier.Name || len(w.events.all()) != 1 {
						t.Errorf("collisions %+v, events %q", list, w.events.all())
					}

					writes := len(w.api.Writes())
					w.pass(10 * time.Second)

					if n := len(w.api.Writes()) - writes; n != 0 {
						t.Errorf("%d more writes", n)
					}
				})
			})
		}
	}
}

// Req: T-09
func TestTheConditionIsKeptRightForMachinesThatAreRegisteredByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		same := func(h *maintenance.Hardware) { h.Serial = "SN-0001-X" }

		// Nothing is asked at all.
		w := start(t, newPlant(), clusterOf("c", v1alpha1.TalosDiscovery{}), byHand(box(uuidA, 1)))
		w.settle()

		w.register(byHand(boxLike(uuidB, same)))
		w.settle()

		if have := sharesHardware(w.machine(uuidB)); !strings.Contains(have, `serial number "SN-0001-X" of machine `+uuidA) {
			t.Errorf("condition %q", have)
		}

		if told := w.events.of(ReasonSharesHardware); len(told) != 1 || !strings.HasPrefix(told[0], "TalosCluster site-a/c Warning SharesHardware: machine "+uuidB) {
			t.Errorf("events %q", told)
		}

		// A third one, whose elders are two.
		third := boxLike(uuidOf(3), same)
		third.Links = box("", 2).Links
		time.Sleep(time.Second)
		w.register(byHand(third))
		w.settle()

		if have := sharesHardware(w.machine(uuidOf(3))); !strings.Contains(have, "of machine "+uuidA) || !strings.Contains(have, "of machine "+uuidB) {
			t.Errorf("condition %q", have)
		}

		// Somebody takes it away, or says that it is over: it comes back.
		machine := w.machine(uuidB)
		machine.Status.Conditions = nil

		if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(context.Background(), machine, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		w.settle()

		if have := sharesHardware(w.machine(uuidB)); have == "" {
			t.Error("the condition is gone")
		}

		// The first goes: the second is the first now.
		w.remove(uuidA)
		w.settle()

		if have := sharesHardware(w.machine(uuidB)); have != "" {
			t.Errorf("condition %q", have)
		}

		if have := sharesHardware(w.machine(uuidOf(3))); !strings.Contains(have, "of machine "+uuidB) || strings.Contains(have, uuidA) {
			t.Errorf("condition %q", have)
		}

		if told := w.events.all(); len(told) > 3 {
			t.Errorf("events %q", told)
		}
	})
}

// Req: T-09
func TestAConditionThatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), clusterOf("c", v1alpha1.TalosDiscovery{}), byHand(box(uuidA, 1)))
		w.settle()

		w.api.Before(func(_ context.Context, call fakeapi.Call) error {
			if call.Resource == "talosmachines" {
				return fmt.Errorf("the store is away")
			}

			return nil
		})
		w.register(byHand(boxLike(uuidB, func(h *maintenance.Hardware) { h.Serial = "SN-0001-X" })))
		w.pass(10 * time.Second)
		w.api.Before(nil)
		w.pass(time.Minute)

		if sharesHardware(w.machine(uuidB)) == "" || len(w.events.all()) != 1 {
			t.Errorf("condition %q, events %q", sharesHardware(w.machine(uuidB)), w.events.all())
		}
	})
}

func in(ns string, cluster *v1alpha1.TalosCluster) *v1alpha1.TalosCluster {
	cluster.Namespace = ns

	return cluster
}

// Req: P-12, T-05
func TestAUUIDThatAMachineOfAnotherNamespaceHasIsNotTaken(t *testing.T) {
	for name, read := range map[string]maintenance.Hardware{"the same machine": box(uuidA, 1), "another one": box(uuidA, 2)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.7", &node{hardware: read})

				holder := byHand(box(uuidA, 1))
				holder.Namespace = "site-of-somebody-else"
				holder.Spec.Endpoint = "198.51.100.9"

				w := start(t, p, clusterOf("c", addresses("192.0.2.7")), holder)
				w.pass(5 * Interval)

				if machines := w.machines(); len(machines) != 1 || len(machines[0].Status.Conditions) != 0 || machines[0].Status.ObservedEndpoint != "" {
					t.Errorf("machines %+v", machines)
				}

				list := w.found("c").Collisions
				if len(list) != 1 || list[0].Reason != v1alpha1.FindingIdentityClaimed || list[0].Address != "192.0.2.7" || list[0].Identity.UUID != uuidA {
					t.Errorf("collisions %+v", list)
				}

				told := w.events.all()
				if len(told) != 1 || !strings.HasPrefix(told[0], "TalosCluster site-a/c Warning IdentityClaimed: 192.0.2.7 ") {
					t.Errorf("events %q", told)
				}

				for _, text := range append(told, fmt.Sprintf("%+v", w.cluster("c"))) {
					if strings.Contains(text, holder.Namespace) || strings.Contains(text, holder.Spec.Endpoint) {
						t.Errorf("it tells of the other namespace: %s", text)
					}

					if name == "another one" && strings.Contains(text, holder.Spec.Identity.Serial) {
						t.Errorf("it tells the serial number of the other namespace's machine: %s", text)
					}
				}

				// Who owned it gives it up.
				if err := w.api.Fake.TalosV1alpha1().TalosMachines(holder.Namespace).Delete(context.Background(), uuidA, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}

				w.pass(Interval)
				w.machine(uuidA)
			})
		})
	}
}

// The ranges of two namespaces overlap.
// Req: P-12, T-05
func TestAMachineThatTwoNamespacesDeclareIsRegisteredOnce(t *testing.T) {
	for _, delay := range []time.Duration{0, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlant()
			for n := range 40 {
				p.put(fmt.Sprintf("192.0.2.%d", n), &node{hardware: box(uuidOf(n), n), readTakes: delay})
			}

			ranges := v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/26"}}
			w := start(t, p, clusterOf("c", ranges), in("site-b", clusterOf("c", ranges)), in("site-d", clusterOf("c", ranges)))
			w.api.Before(func(ctx context.Context, _ fakeapi.Call) error { return wait(ctx, delay) })
			w.pass(5 * Interval)

			machines := w.machines()

			var names []string
			for _, machine := range machines {
				names = append(names, machine.Name)
			}

			slices.Sort(names)

			if unique := len(slices.Compact(names)); unique != 40 || len(machines) != 40 {
				t.Errorf("%d machines with %d names", len(machines), unique)
			}
		})
	}
}

// What discovery itself wrote a moment ago is not in its informer yet; here it never comes.
// Req: P-12, T-05
func TestAMachineIsRegisteredOnceAlthoughTheInformerLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})
		p.put("192.0.2.8", &node{hardware: box(uuidB, 2)})

		w := &world{t: t, api: fakeapi.New(), plant: p, events: &events{}}
		controller := w.unstarted()

		own := clusterOf("c", addresses("192.0.2.7"))
		result := controller.DiscoverAll(t.Context(), own, candidatesOf(own), false)

		if result.Registered != 1 {
			t.Fatalf("%+v", result)
		}

		other := in("site-b", clusterOf("c", addresses("192.0.2.7", "192.0.2.8")))
		result = controller.DiscoverAll(t.Context(), other, candidatesOf(other), false)

		if len(w.machines()) != 2 || result.Registered != 1 || len(result.Collisions) != 1 || result.Collisions[0].Reason != v1alpha1.FindingIdentityClaimed {
			t.Errorf("machines %+v, result %+v", w.machines(), result)
		}
	})
}

func TestACreationWhoseEndIsUnknownIsLeftAloneForAWhile(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newCreations()
	c.lost("u", "a", now)

	for _, tc := range []struct {
		name, uuid, namespace string
		at                    time.Time
		want                  bool
	}{
		{"another namespace", "u", "b", now.Add(time.Second), true},
		{"the same namespace", "u", "a", now.Add(time.Second), false},
		{"another machine", "v", "b", now, false},
		{"much later", "u", "b", now.Add(lateCreation + 1), false},
	} {
		if got := c.mayComeTrue(tc.uuid, tc.namespace, tc.at); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}

	if c.lost("w", "a", now.Add(time.Hour)); len(c.open) != 1 {
		t.Errorf("%d are remembered for ever", len(c.open))
	}
}
