package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Req: T-01
func TestNoConnectionIsOpenedWhereNothingIsDeclared(t *testing.T) {
	for name, cluster := range map[string]*v1alpha1.TalosCluster{
		"no ranges":  clusterOf("c", v1alpha1.TalosDiscovery{}),
		"bad ranges": clusterOf("c", v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/23"}}),
		"paused": func() *v1alpha1.TalosCluster {
			c := clusterOf("c", addresses("192.0.2.1"))
			c.Spec.Paused = true

			return c
		}(),
		"being deleted": func() *v1alpha1.TalosCluster {
			c := clusterOf("c", addresses("192.0.2.1"))
			c.DeletionTimestamp = &metav1.Time{Time: time.Now()}

			return c
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, newPlant(), cluster)
				w.pass(10 * time.Minute)

				if n := w.plant.touched(); n != 0 {
					t.Errorf("%d connections", n)
				}

				if n := len(w.api.Writes()); n > 1 {
					t.Errorf("%d writes, want at most the condition", n)
				}
			})
		})
	}
}

// Req: T-02
func TestOnlyDeclaredAddressesAreAskedOnceEachOnTheApidPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newPlant(), clusterOf("c", v1alpha1.TalosDiscovery{
			Addresses: []string{"198.51.100.7", "192.0.2.1"},
			Cidrs:     []string{"192.0.2.0/30"},
		}))
		w.pass(5 * time.Second)

		want := map[string]int{"198.51.100.7": 1, "192.0.2.0": 1, "192.0.2.1": 1, "192.0.2.2": 1, "192.0.2.3": 1}
		if !equality.Semantic.DeepEqual(w.plant.predials, want) || len(w.plant.dials)+len(w.plant.odd) != 0 {
			t.Errorf("pre-dialed %v, dialed %v, odd %v", w.plant.predials, w.plant.dials, w.plant.odd)
		}

		if got := w.found("c").Candidates; got != 5 {
			t.Errorf("candidates %d", got)
		}
	})
}

// Req: T-03, T-05, T-19
func TestAStrongUnseenMachineIsRegisteredPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		read := box(strings.ToUpper(uuidA), 1)
		p.put("192.0.2.7", &node{hardware: read})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")))
		w.settle()

		machine := w.machine(uuidA)

		wantSpec := v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "c"},
			Identity: v1alpha1.MachineIdentity{
				UUID: uuidA, Serial: "SN-0001-X", MACAddresses: []string{"b4:45:06:00:01:01", "b4:45:06:00:01:02"},
			},
			Endpoint: "192.0.2.7",
		}
		if !equality.Semantic.DeepEqual(machine.Spec, wantSpec) {
			t.Errorf("spec %+v", machine.Spec)
		}

		wantStatus := v1alpha1.TalosMachineStatus{
			Phase:            v1alpha1.MachinePending,
			ObservedEndpoint: "192.0.2.7",
			TalosVersion:     "v1.13.9",
			Hardware: &v1alpha1.MachineHardware{
				Manufacturer: "Example Inc.", Product: "Box 9", Fingerprint: "FINGERPRINT",
				Disks: []v1alpha1.MachineDisk{
					{Path: "/dev/nvme0n1", SizeBytes: 1 << 39, Transport: "nvme"},
					{Path: "/dev/sda", SizeBytes: 1 << 40, Model: "Disk", Serial: "D1", WWID: "w1", Transport: "sata", Rotational: true},
				},
				Links: []v1alpha1.MachineLink{
					{Name: "eth0", PermanentMAC: "b4:45:06:00:01:01", Driver: "igb", Up: true},
					{Name: "eth1", PermanentMAC: "b4:45:06:00:01:02", Driver: "igb"},
				},
			},
		}
		if !equality.Semantic.DeepEqual(machine.Status, wantStatus) {
			t.Errorf("status %+v", machine.Status)
		}

		found := w.found("c")
		if found.Candidates != 1 || found.Answered != 1 || found.Registered != 1 || len(found.Weak)+len(found.Collisions) != 0 {
			t.Errorf("discovery %+v", found)
		}

		if len(w.events.all()) != 0 {
			t.Errorf("events %v", w.events.all())
		}

		if p.open != 0 {
			t.Errorf("%d sessions left open", p.open)
		}
	})
}

// Req: T-04, T-09
func TestAWeakIdentityIsToldAndNotRegistered(t *testing.T) {
	without := func(edit func(*maintenance.Hardware)) maintenance.Hardware {
		read := box(uuidA, 1)
		edit(&read)

		return read
	}

	for _, c := range []struct {
		name    string
		read    maintenance.Hardware
		missing []string
		shows   string
	}{
		{"no UUID", without(func(h *maintenance.Hardware) { h.UUID = "" }), []string{"uuid"}, `serial "SN-0001-X"`},
		{"a UUID that is none", without(func(h *maintenance.Hardware) { h.UUID = "rack 7 / left" }), []string{"uuid"}, `uuid "rack 7 / left"`},
		{"a UUID that is a path", without(func(h *maintenance.Hardware) { h.UUID = "../../secrets" }), []string{"uuid"}, `uuid "../../secrets"`},
		{"an overlong UUID", without(func(h *maintenance.Hardware) { h.UUID = strings.Repeat("ü", 127) }), []string{"uuid"}, `uuid "ü`},
		{"a vendor's placeholder UUID", without(func(h *maintenance.Hardware) { h.UUID = "03000200-0400-0500-0006-000700080009" }), []string{"uuid"}, "03000200"},
		{"no serial", without(func(h *maintenance.Hardware) { h.Serial = "" }), []string{"serial"}, uuidA},
		{"a placeholder serial", without(func(h *maintenance.Hardware) { h.Serial = "Default string" }), []string{"serial"}, `"Default string"`},
		{"no permanent MAC", without(func(h *maintenance.Hardware) { h.Links = nil }), []string{"macAddresses"}, "MAC addresses none"},
		{"nothing", maintenance.Hardware{}, []string{"uuid", "serial", "macAddresses"}, "uuid, serial, macAddresses"},
		{"QEMU", without(func(h *maintenance.Hardware) { h.Serial, h.Manufacturer = "", "QEMU" }), []string{"serial"}, "qm set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.7", &node{hardware: c.read})

				w := start(t, p, clusterOf("c", addresses("192.0.2.7")))
				w.settle()

				if n := len(w.machines()); n != 0 {
					t.Errorf("%d machines registered", n)
				}

				told := w.events.all()
				if len(told) != 1 || !strings.HasPrefix(told[0], "TalosCluster site-a/c Warning WeakIdentity: 192.0.2.7: ") ||
					!strings.Contains(told[0], c.shows) || !strings.Contains(told[0], strings.Join(c.missing, ", ")) {
					t.Errorf("events %q", told)
				}

				weak := w.found("c").Weak
				if len(weak) != 1 || weak[0].Address != "192.0.2.7" || !slices.Equal(weak[0].Missing, c.missing) ||
					weak[0].Hint == "" || weak[0].SeenAt == nil || len(weak[0].Identity.UUID) > 128 {
					t.Errorf("weak %+v", weak)
				}
			})
		})
	}
}

// A machine has no system information in its first moments, and for ever when it has no SMBIOS.
// Req: T-03, T-04
func TestAMachineWithoutSystemInformationIsWeakOnlyAtTheSecondSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{readErr: &maintenance.Error{Class: maintenance.ClassIdentityAbsent}})
		p.put("192.0.2.8", &node{readErr: &maintenance.Error{Class: maintenance.ClassIdentityAbsent}})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7", "192.0.2.8")))
		w.settle()

		if told := w.events.all(); len(told) != 0 {
			t.Errorf("told at once: %v", told)
		}

		p.put("192.0.2.8", &node{hardware: box(uuidB, 8)})
		w.pass(Interval)

		if told := w.events.of(ReasonWeakIdentity); len(told) != 1 || !strings.Contains(told[0], "192.0.2.7") {
			t.Errorf("events %v", told)
		}

		w.machine(uuidB)
	})
}

// Req: T-06
func TestAKnownMachineAtAnotherAddressChangesItsStatusAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7", "192.0.2.9")))
		w.settle()

		before := w.machine(uuidA)

		// Same machine, other order of links.
		moved := box(uuidA, 1)
		slices.Reverse(moved.Links)

		p.put("192.0.2.7", nil)
		p.put("192.0.2.9", &node{hardware: moved})
		w.pass(Interval + 5*time.Second)

		after := w.machine(uuidA)
		if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
			t.Errorf("spec changed: %+v", after.Spec)
		}

		if after.Status.ObservedEndpoint != "192.0.2.9" {
			t.Errorf("observedEndpoint %q", after.Status.ObservedEndpoint)
		}

		if n := len(w.machines()); n != 1 {
			t.Errorf("%d machines", n)
		}

		if told := w.events.all(); len(told) != 0 {
			t.Errorf("events %v", told)
		}
	})
}

// Req: T-06
func TestAKnownMachineThatDidNotChangeIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		// One machine with two addresses in the range.
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})
		p.put("192.0.2.9", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.9", "192.0.2.7")))
		w.pass(2 * Interval)

		before := w.machine(uuidA)

		w.pass(time.Hour)

		if after := w.machine(uuidA); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("written again and again: %+v", after.Status)
		}

		if found := w.found("c"); found.Answered != 2 || found.Registered != 0 || len(w.events.all()) != 0 {
			t.Errorf("discovery %+v, events %v", found, w.events.all())
		}
	})
}

// Req: T-07, T-09
func TestAnotherMachineWithAKnownUUIDIsACollision(t *testing.T) {
	other := func(edit func(*maintenance.Hardware)) maintenance.Hardware {
		read := box(uuidA, 1)
		edit(&read)

		return read
	}

	for _, c := range []struct {
		name  string
		read  maintenance.Hardware
		shows string
	}{
		{"another serial", other(func(h *maintenance.Hardware) { h.Serial = "SN-7777" }), "serial number differs"},
		{"a network card less", other(func(h *maintenance.Hardware) { h.Links = h.Links[:1] }), "changed network cards"},
		{"all other MACs", other(func(h *maintenance.Hardware) { h.Links = box(uuidA, 2).Links }), "no MAC address is"},
		{"everything else differs", box(uuidA, 2), "neither the serial number nor any MAC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

				w := start(t, p, clusterOf("c", addresses("192.0.2.7", "192.0.2.8")))
				w.pass(Interval)

				before := w.machine(uuidA)

				p.put("192.0.2.8", &node{hardware: c.read})
				w.pass(2 * Interval)

				if after := w.machine(uuidA); after.ResourceVersion != before.ResourceVersion || len(w.machines()) != 1 {
					t.Errorf("the machine was touched: %+v", after)
				}

				told := w.events.all()
				if len(told) != 1 || !strings.HasPrefix(told[0], "TalosCluster site-a/c Warning IdentityCollision: 192.0.2.8 ") || !strings.Contains(told[0], c.shows) {
					t.Errorf("events %q", told)
				}

				collisions := w.found("c").Collisions
				if len(collisions) != 1 || collisions[0].Address != "192.0.2.8" || collisions[0].MachineName != uuidA ||
					collisions[0].Identity.Serial != c.read.Serial || collisions[0].SeenAt == nil {
					t.Errorf("collisions %+v", collisions)
				}
			})
		})
	}
}

// Req: T-05, T-07
func TestAMachineOfAnotherClusterIsNeverTaken(t *testing.T) {
	owned := func() *v1alpha1.TalosMachine {
		return &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuidA},
			Spec: v1alpha1.TalosMachineSpec{
				ClusterRef: v1alpha1.ClusterReference{Name: "other"},
				Endpoint:   "198.51.100.1",
				Approved:   ptr.To(true),
				Identity: v1alpha1.MachineIdentity{
					UUID: uuidA, Serial: "SN-0001-X", MACAddresses: []string{"b4:45:06:00:01:02", "b4:45:06:00:01:01"},
				},
			},
		}
	}

	for _, c := range []struct {
		name       string
		read       maintenance.Hardware
		collisions int
	}{
		{"the same machine is known", box(uuidA, 1), 0},
		{"a different one collides", box(uuidA, 2), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.7", &node{hardware: c.read})

				w := start(t, p, clusterOf("c", addresses("192.0.2.7")), owned())
				w.settle()

				if got := w.machine(uuidA).Spec; !equality.Semantic.DeepEqual(got, owned().Spec) {
					t.Errorf("spec %+v", got)
				}

				if got := len(w.found("c").Collisions); got != c.collisions {
					t.Errorf("%d collisions", got)
				}
			})
		})
	}
}

// Req: T-04, T-06
func TestAWeakMachineThatWasRegisteredByHandIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := box(uuidA, 1)
		read.Serial = "none"

		p := newPlant()
		p.put("192.0.2.7", &node{hardware: read})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")), &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuidA},
			Spec: v1alpha1.TalosMachineSpec{Identity: v1alpha1.MachineIdentity{
				UUID: uuidA, MACAddresses: []string{"b4:45:06:00:01:01", "b4:45:06:00:01:02"},
			}},
		})
		w.settle()

		if got := w.machine(uuidA).Status; got.ObservedEndpoint != "192.0.2.7" || got.Hardware == nil {
			t.Errorf("status %+v", got)
		}

		if told := w.events.all(); len(told) != 0 {
			t.Errorf("events %v", told)
		}
	})
}

// Req: T-09
func TestAnUnreachableCandidateLeavesNothing(t *testing.T) {
	for name, n := range map[string]*node{
		"nothing there":       nil,
		"silent after TCP":    {silent: true},
		"no Talos":            {dialErr: &maintenance.Error{Class: maintenance.ClassNotTalos}},
		"a configured node":   {readErr: &maintenance.Error{Class: maintenance.ClassNotInMaintenance}},
		"a node that fails":   {readErr: &maintenance.Error{Class: maintenance.ClassNodeError}},
		"an unexpected error": {dialErr: fmt.Errorf("boom")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant()
				p.put("192.0.2.77", n)

				w := start(t, p, clusterOf("c", addresses("192.0.2.77")))
				w.pass(10 * time.Minute)

				if told := w.events.all(); len(told) != 0 || len(w.machines()) != 0 {
					t.Errorf("events %v, machines %v", told, w.machines())
				}

				if found := w.found("c"); found.Answered != 0 || len(found.Weak)+len(found.Collisions) != 0 {
					t.Errorf("discovery %+v", found)
				}

				w.mu.Lock()
				defer w.mu.Unlock()

				for _, line := range w.logs {
					if strings.Contains(line, "192.0.2.77") || strings.Contains(line, "boom") {
						t.Errorf("logged: %s", line)
					}
				}
			})
		})
	}
}

// Req: T-09
func TestAFindingIsToldOnceAnHourAndListedNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()

		weak := func(n int) *node {
			read := box(uuidOf(n), n)
			read.Serial = ""

			return &node{hardware: read}
		}

		for n := 1; n <= 40; n++ {
			p.put(fmt.Sprintf("192.0.2.%d", n), weak(n))
		}

		w := start(t, p, clusterOf("c", v1alpha1.TalosDiscovery{Cidrs: []string{"192.0.2.0/24"}}))
		w.pass(10 * time.Minute)

		if n := len(w.events.all()); n != 40 {
			t.Fatalf("%d events in ten minutes, want 40", n)
		}

		p.put("192.0.2.200", weak(200))
		w.pass(2 * time.Minute)

		list := w.found("c").Weak
		if len(list) != 32 || list[0].Address != "192.0.2.200" || list[1].Address != "192.0.2.1" || list[1].SeenAt.After(list[0].SeenAt.Time) {
			t.Errorf("%d weak, first %+v", len(list), list[:min(len(list), 2)])
		}

		// The server starts again: what the status shows was told.
		w.stop()
		w.run()

		before := len(w.events.of("WeakIdentity"))
		w.pass(30 * time.Minute)

		if again := len(w.events.of("WeakIdentity")) - before; again > 9 { // only those that the bounded list left out
			t.Errorf("%d events repeated after a restart", again)
		}

		w.pass(3 * time.Hour)

		last := make(map[string]time.Time)

		for i, line := range w.events.lines {
			addr, _, _ := strings.Cut(line[strings.Index(line, "192.0.2."):], ":")
			if at, ok := last[addr]; ok && w.events.times[i].Sub(at) < time.Hour && i < before {
				t.Errorf("%s was told %s after the last time", addr, w.events.times[i].Sub(at))
			}

			last[addr] = w.events.times[i]
		}

		if n := len(w.events.all()); n < 41*4 {
			t.Errorf("%d events in four hours: findings that stay are told again", n)
		}
	})
}

// Req: T-18
func TestAConfiguredMachineThatIsBackInMaintenanceIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")), &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uuidA},
			Spec: v1alpha1.TalosMachineSpec{
				Approved: ptr.To(true),
				Identity: v1alpha1.MachineIdentity{UUID: uuidA, Serial: "SN-0001-X", MACAddresses: []string{"b4:45:06:00:01:01", "b4:45:06:00:01:02"}},
			},
			Status: v1alpha1.TalosMachineStatus{
				Phase:         v1alpha1.MachineInstalling,
				Configuration: &v1alpha1.MachineConfiguration{AppliedAt: &metav1.Time{Time: time.Now()}},
			},
		})
		w.settle()

		if meta.IsStatusConditionTrue(w.machine(uuidA).Status.Conditions, ConditionBackInMaintenance) {
			t.Error("it has had no time to leave maintenance mode")
		}

		w.pass(3 * Interval)

		machine := w.machine(uuidA)
		if !meta.IsStatusConditionTrue(machine.Status.Conditions, ConditionBackInMaintenance) || machine.Status.Phase != v1alpha1.MachineInstalling {
			t.Errorf("status %+v", machine.Status)
		}
	})
}

// Whoever sits in a declared range can read an identity off a label and say it; a forged BackInMaintenance would have
// somebody renew the approval of a machine that runs.
// Req: T-06, T-18
func TestWhoeverShowsTheIdentityOfAMachineThatRunsElsewhereChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.8", &node{hardware: box(uuidA, 1)})

		machine := byHand(box(uuidA, 1))
		machine.Spec.Approved, machine.Spec.Endpoint = ptr.To(true), "192.0.2.7"
		machine.Status.Phase = v1alpha1.MachineRunning
		machine.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: &metav1.Time{Time: time.Now()}}
		machine.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"}}

		w := start(t, p, clusterOf("c", addresses("192.0.2.8")), machine)
		w.pass(time.Hour)

		if have := w.machine(uuidA); !equality.Semantic.DeepEqual(have.Status, machine.Status) {
			t.Errorf("status %+v", have.Status)
		}

		collisions := w.cluster("c").Status.Discovery.Collisions
		if len(collisions) != 1 || collisions[0].Address != "192.0.2.8" || collisions[0].MachineName != uuidA || collisions[0].Reason != v1alpha1.FindingIdentityCollision {
			t.Errorf("collisions %+v", collisions)
		}

		// It is heard no more: it may well be the one that answers.
		gone := w.machine(uuidA)
		gone.Status.Conditions[0].Status, gone.Status.Conditions[0].Reason = metav1.ConditionUnknown, "Unreachable"

		if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(t.Context(), gone, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		w.pass(maxSkip + Interval)

		if !meta.IsStatusConditionTrue(w.machine(uuidA).Status.Conditions, ConditionBackInMaintenance) {
			t.Error("it was wiped, and nobody is told")
		}
	})
}

// Req: T-09
func TestOfEverNewFindingsTheLatestAreRemembered(t *testing.T) {
	f, cluster, now := newFindings(), clusterOf("c", addresses("192.0.2.7")), time.Unix(1000, 0)

	for n := range maxStanding + 100 {
		if !f.due(cluster, findingKey{addr: "192.0.2.7", read: fmt.Sprint(n)}, now.Add(time.Duration(n)*time.Second)) {
			t.Fatalf("finding %d is not told", n)
		}
	}

	known := f.clusters[cluster.UID]
	if len(known) != maxStanding || known[findingKey{addr: "192.0.2.7", read: "99"}] != nil || known[findingKey{addr: "192.0.2.7", read: "100"}] == nil {
		t.Errorf("%d are remembered", len(known))
	}
}

// One peer that shows ever new identities must not fill the store.
// Req: T-05, T-09
func TestNoMachineIsRegisteredWhereTooManyWaitAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		objects := []runtime.Object{clusterOf("c", addresses("192.0.2.7"))}
		for n := range maxWaiting {
			other := box(fmt.Sprintf("6f7a1c52-3b1e-4d8f-9a60-0cc4%08x", n), 2)
			other.Serial, other.Links = fmt.Sprint(n), nil
			objects = append(objects, byHand(other))
		}

		w := start(t, p, objects...)
		w.pass(Interval)

		if n := len(w.machines()); n != maxWaiting {
			t.Fatalf("%d machines", n)
		}

		ready := meta.FindStatusCondition(w.cluster("c").Status.Conditions, ConditionDiscoveryReady)
		if ready == nil || ready.Reason != reasonRegistrationFailed || !strings.Contains(ready.Message, "192.0.2.7") || !strings.Contains(ready.Message, "delete") {
			t.Errorf("%+v", ready)
		}

		w.remove(objects[1].(*v1alpha1.TalosMachine).Name) //nolint:forcetypeassert // as made above
		w.pass(2 * Interval)

		if w.machine(uuidA) == nil {
			t.Error("there is room for it")
		}
	})
}

// The approval was renewed, as the server does it: what was sent is forgotten.
// Req: T-18
func TestAMachineIsBackInMaintenanceUntilItsApprovalIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant()
		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})

		w := start(t, p, clusterOf("c", addresses("192.0.2.7")))
		w.settle()

		update := func(edit func(*v1alpha1.TalosMachine)) {
			t.Helper()

			machine := w.machine(uuidA)
			edit(machine)

			if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).UpdateStatus(t.Context(), machine, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		back := func() bool {
			return meta.IsStatusConditionTrue(w.machine(uuidA).Status.Conditions, ConditionBackInMaintenance)
		}
		configure := func() {
			t.Helper()
			update(func(m *v1alpha1.TalosMachine) {
				m.Status.Phase = v1alpha1.MachineInstalling
				m.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: &metav1.Time{Time: time.Now()}}
			})
			p.put("192.0.2.7", &node{readErr: &maintenance.Error{Class: maintenance.ClassNotInMaintenance}})
		}

		configure()
		w.pass(time.Hour)

		if back() {
			t.Error("it runs")
		}

		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})
		w.pass(maxSkip + Interval)

		if !back() {
			t.Fatal("it was wiped, and nobody is told")
		}

		// Approved again: it is configured soon, and not back before it is wiped once more.
		update(func(m *v1alpha1.TalosMachine) {
			m.Status.Phase, m.Status.Configuration = v1alpha1.MachineApproved, nil
			meta.RemoveStatusCondition(&m.Status.Conditions, ConditionBackInMaintenance)
		})
		w.pass(10 * Interval)

		if back() {
			t.Error("it waits for its configuration")
		}

		configure()
		w.pass(time.Hour)

		if back() {
			t.Error("it runs again")
		}

		p.put("192.0.2.7", &node{hardware: box(uuidA, 1)})
		w.pass(maxSkip + Interval)

		if !back() {
			t.Error("it was wiped again, and nobody is told")
		}
	})
}

// What a machine told before it was configured may be written down long after.
// Req: T-18
func TestAnAnswerFromBeforeTheConfigurationDoesNotMeanBackInMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: fakeapi.New(), plant: newPlant(), events: &events{}}
		s := w.unstarted().newSweep(clusterOf("c", addresses("192.0.2.7")), nil, false)

		machine := byHand(box(uuidA, 1))
		machine.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: &metav1.Time{Time: time.Now()}}

		for after, want := range map[time.Duration]bool{-time.Minute: false, 0: false, leaving: false, leaving + time.Second: true} {
			a := answer{addr: netip.MustParseAddr("192.0.2.7"), at: time.Now().Add(after), read: box(uuidA, 1)}

			observed := s.observed(machine, a)
			if got := meta.IsStatusConditionTrue(observed.Status.Conditions, ConditionBackInMaintenance); got != want {
				t.Errorf("read %s after it was configured: %t", after, got)
			}
		}
	})
}
