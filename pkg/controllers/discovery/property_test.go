package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// chance draws what happens in one run of the property test.
type chance struct{ *rand.Rand }

func one[T any](c chance, of ...T) T { return of[c.IntN(len(of))] }

// hardware draws a machine from few parts, so that much is shared, missing or a placeholder.
func (c chance) hardware() maintenance.Hardware {
	read := maintenance.Hardware{
		UUID: one(c, uuidOf(1), uuidOf(2), uuidOf(3), uuidOf(4), swappedA, uuidA, strings.ToUpper(uuidOf(5)), "", "rack 7",
			"03000200-0400-0500-0006-000700080009"),
		Serial:       one(c, "SN-1", "SN-2", "SN-3", "SN-4", "SN-5", "SN-6", "", "Default string"),
		Manufacturer: one(c, "QEMU", "Example Inc."),
	}

	for range c.IntN(4) {
		read.Links = append(read.Links, maintenance.Link{Physical: true, Driver: one(c, "igb", "igb", "cdc_ether"),
			PermanentAddr: fmt.Sprintf("b4:45:06:00:00:%02x", c.IntN(8))})
	}

	return read
}

func (c chance) node() *node {
	switch c.IntN(12) {
	case 0:
		return nil
	case 1:
		return &node{silent: true}
	case 2:
		return &node{readErr: &maintenance.Error{Class: one(c, maintenance.ClassIdentityAbsent, maintenance.ClassNotInMaintenance, maintenance.ClassNodeError)}}
	default:
		return &node{hardware: c.hardware(), dialTakes: c.upTo(700 * time.Millisecond), readTakes: c.upTo(time.Second)}
	}
}

func (c chance) upTo(d time.Duration) time.Duration {
	if c.IntN(2) == 0 {
		return 0
	}

	return time.Duration(c.Int64N(int64(d)))
}

// trouble is what becomes of an API call: mostly nothing, else it takes long, fails, or its answer is lost.
func (c chance) trouble(ctx context.Context) error {
	switch c.IntN(30) {
	case 0, 1, 2:
		return wait(ctx, c.upTo(3*time.Second))
	case 3:
		return errors.New("connection reset")
	case 4:
		return apierrors.NewServiceUnavailable("busy")
	}

	return nil
}

// Machines come, go, move and are exchanged, users register, delete and ask, the API is slow and loses answers, in
// whatever order; then all is quiet for a while.
// Req: T-04, T-05, T-06, T-07, T-09, P-12
func TestWhateverHappensTheClassificationHolds(t *testing.T) {
	runs := uint64(150)
	if testing.Short() {
		runs = 20
	}

	seen := make(map[string]int)

	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := chance{rand.New(rand.NewPCG(run, 7))}
				w := live(t, c)

				for what, n := range w.check(t) {
					seen[what] += n
				}
			})
		})
	}

	for _, what := range []string{"weak", "shared", ReasonIdentityClaimed, ReasonIdentityCollision, ReasonSharesHardware} {
		if seen[what] == 0 {
			t.Errorf("%v: the runs do not show what they are for", seen)
		}
	}
}

// life is one run, with what it was to leave alone.
type life struct {
	*world

	// byHand are those that users made.
	byHand map[string]v1alpha1.TalosMachineSpec
	// told are the identities that were ever read at an address.
	told map[string]map[string]bool
}

const others = "site-b"

// put has a machine, or something else, or nothing, at an address from now on.
func (w *life) put(addr string, n *node) {
	w.plant.put(addr, n)

	if n == nil {
		return
	}

	if w.told[addr] == nil {
		w.told[addr] = make(map[string]bool)
	}

	w.told[addr][fmt.Sprint(hardware.Identity(n.hardware))] = true
}

func live(t *testing.T, c chance) *life {
	t.Helper()

	addrs := make([]string, 12)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("192.0.2.%d", i+1)
	}

	p := newPlant()
	w := &life{byHand: make(map[string]v1alpha1.TalosMachineSpec), told: make(map[string]map[string]bool)}
	w.world = &world{plant: p}

	for _, addr := range addrs {
		w.put(addr, c.node())
	}

	clusters := []runtime.Object{
		clusterOf("c", v1alpha1.TalosDiscovery{Addresses: addrs[:8]}),
		clusterOf("d", v1alpha1.TalosDiscovery{Addresses: addrs[4:]}),
		in(others, clusterOf("e", v1alpha1.TalosDiscovery{Addresses: addrs[c.IntN(12):]})),
	}

	w.world = start(t, p, clusters...)

	var mu sync.Mutex // the hooks are called by many

	seeds := rand.New(rand.NewPCG(c.Uint64(), 0))
	trouble := func(ctx context.Context, _ fakeapi.Call) error {
		mu.Lock()
		own := chance{rand.New(rand.NewPCG(seeds.Uint64(), 0))}
		mu.Unlock()

		return own.trouble(ctx)
	}

	w.api.Before(func(ctx context.Context, call fakeapi.Call) error {
		if call.Resource == "talosmachines" && call.Verb == "update" {
			t.Errorf("discovery updated the specification of %s", call.Name)
		}

		return trouble(ctx, call)
	})
	w.api.After(trouble)

	hands := w.api.Fake.TalosV1alpha1()

	for range 40 {
		switch c.IntN(10) {
		case 0, 1, 2, 3:
			w.put(one(c, addrs...), c.node())
		case 4: // two machines exchange their addresses
			a, b := one(c, addrs...), one(c, addrs...)

			p.mu.Lock()
			na, nb := p.nodes[a], p.nodes[b]
			p.mu.Unlock()

			w.put(a, nb)
			w.put(b, na)
		case 5: // somebody registers a machine by hand
			machine := byHand(c.hardware())
			machine.Namespace = one(c, namespace, namespace, others)

			if machine.Name = machine.Spec.Identity.UUID; machine.Name != "" {
				if _, err := hands.TalosMachines(machine.Namespace).Create(t.Context(), machine, metav1.CreateOptions{}); err == nil {
					w.byHand[machine.Namespace+"/"+machine.Name] = machine.Spec
				}
			}
		case 6:
			if machines := w.machines(); len(machines) > 0 {
				gone := one(c, machines...)
				_ = hands.TalosMachines(gone.Namespace).Delete(t.Context(), gone.Name, metav1.DeleteOptions{})
				delete(w.byHand, gone.Namespace+"/"+gone.Name)
			}
		case 7:
			w.ask(one(c, "c", "d"))
		case 8:
			w.change(one(c, "c", "d"), func(cluster *v1alpha1.TalosCluster) {
				from := c.IntN(8)
				cluster.Spec.Discovery = v1alpha1.TalosDiscovery{Addresses: addrs[from : from+1+c.IntN(len(addrs)-from)]}
			})
		case 9:
			time.Sleep(Interval)
		}

		time.Sleep(c.upTo(3 * time.Second))
	}

	// All is quiet, and everything is asked again.
	w.api.Before(nil)
	w.api.After(nil)
	w.change("c", func(cluster *v1alpha1.TalosCluster) {
		cluster.Spec.Discovery = v1alpha1.TalosDiscovery{Addresses: addrs[:8]}
	})
	w.change("d", func(cluster *v1alpha1.TalosCluster) {
		cluster.Spec.Discovery = v1alpha1.TalosDiscovery{Addresses: addrs[4:]}
	})
	w.pass(10 * time.Minute)

	return w
}

// check holds the properties against what there is in the end, and counts what was seen.
func (w *life) check(t *testing.T) map[string]int {
	t.Helper()

	seen := make(map[string]int)
	machines := w.machines()
	byNamespace := make(map[string][]*v1alpha1.TalosMachine)
	found := make(map[string][]string)

	for i := range machines {
		machine := &machines[i]
		byNamespace[machine.Namespace] = append(byNamespace[machine.Namespace], machine)
		key := machine.Namespace + "/" + machine.Name

		// Whatever was seen of it was seen of it.
		if at := machine.Status.ObservedEndpoint; at != "" && !w.told[at][fmt.Sprint(hardware.FromStored(machine.Spec.Identity))] {
			t.Errorf("%s never was at %s", key, at)
		}

		spec, hand := w.byHand[key]

		switch {
		case hand && !equality.Semantic.DeepEqual(spec, machine.Spec):
			t.Errorf("%s was registered by hand and changed:\n%+v\n%+v", key, spec, machine.Spec)
		case hand:
		default:
			found[machine.Name] = append(found[machine.Name], machine.Namespace)

			id := hardware.FromStored(machine.Spec.Identity)
			if !id.Strong() || machine.Spec.Identity.UUID != machine.Name || machine.Spec.Approved != nil || machine.Spec.Role != "" {
				t.Errorf("%s was created as %+v", key, machine.Spec)
			}

			if !w.told[machine.Spec.Endpoint][fmt.Sprint(id)] {
				t.Errorf("%s is a mixture: no machine at %s ever was %+v", key, machine.Spec.Endpoint, id)
			}

			if len(machine.Labels)+len(machine.Annotations)+len(machine.Spec.ConfigPatches) > 0 || machine.Spec.Install != nil {
				t.Errorf("%s was created with more than its identity: %+v", key, machine)
			}
		}
	}

	for name, namespaces := range found {
		if len(namespaces) > 1 {
			t.Errorf("%s was found for %v", name, namespaces)
		}
	}

	// Two in one namespace that have a part in common: the later one is flagged, and nobody else.
	for ns, all := range byNamespace {
		for _, machine := range all {
			var earlier []string

			for _, other := range all {
				before := other.CreationTimestamp.Before(&machine.CreationTimestamp) ||
					other.CreationTimestamp.Equal(&machine.CreationTimestamp) && other.Name < machine.Name
				if before && haveCommonPart(machine.Spec.Identity, other.Spec.Identity) {
					earlier = append(earlier, other.Name)
				}
			}

			condition := sharesHardware(machine)
			if (condition != "") != (len(earlier) > 0) {
				t.Errorf("%s/%s shares hardware with %v, its condition is %q", ns, machine.Name, earlier, condition)
			}

			for _, name := range earlier {
				if !strings.Contains(condition, name) {
					t.Errorf("%s/%s shares hardware with %s, its condition is %q", ns, machine.Name, name, condition)
				}
			}

			if condition != "" {
				seen["shared"]++
			}
		}
	}

	clusters, err := w.api.Fake.TalosV1alpha1().TalosClusters("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, cluster := range clusters.Items {
		if cluster.Status.Discovery == nil || cluster.Status.Discovery.CompletedAt == nil && cluster.Status.Discovery.StartedAt == nil {
			t.Fatalf("%s was not swept: %+v", cluster.Name, cluster.Status)
		}

		for _, one := range cluster.Status.Discovery.Collisions {
			seen[string(one.Reason)]++
		}

		seen["weak"] += len(cluster.Status.Discovery.Weak)
	}

	return seen
}

// haveCommonPart says in its own words what sharing hardware is.
func haveCommonPart(a, b v1alpha1.MachineIdentity) bool {
	real := map[string]bool{}
	for n := range 9 {
		real[fmt.Sprintf("SN-%d", n)] = true
	}

	return real[a.Serial] && a.Serial == b.Serial ||
		slices.ContainsFunc(a.MACAddresses, func(mac string) bool { return slices.Contains(b.MACAddresses, mac) }) ||
		a.UUID == uuidA && b.UUID == swappedA || a.UUID == swappedA && b.UUID == uuidA
}
