package chain

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Req: T-02, T-03, T-04, T-05, T-07, T-09, T-10, T-12
func TestADeclaredRangeYieldsPendingMachinesAndTellsWhatIsWeakOrCollides(t *testing.T) {
	t.Parallel()
	p := startPlant(t, plant.ExampleAt(70))
	const unreachable = "127.0.70.7"
	c := newCell(t, v1alpha1.TalosDiscovery{Cidrs: []string{"127.0.70.0/29"}}).withBundle(t, secretsBundle())

	found := c.swept(t).Status.Discovery
	if found.Candidates != 8 || found.Answered != 6 || found.Registered != 4 || found.StartedAt == nil {
		t.Errorf("of the range's 8 addresses 6 answer, and 4 machines are new: %+v", found)
	}
	for _, name := range []string{"control-1", "worker-1", "worker-2"} {
		node := p.Node(name)
		m := c.pending(t, node)
		if m.Spec.ClusterRef.Name != clusterName || m.Spec.Endpoint != host(node) || m.Spec.Role != "" || m.Spec.Approved != nil && *m.Spec.Approved {
			t.Errorf("%s: spec is %+v", name, m.Spec)
		}
		hw := node.Hardware()
		want := v1alpha1.MachineIdentity{UUID: hw.UUID, Serial: hw.Serial, MACAddresses: []string{hw.Links[0].MAC}}
		if m.Name != hw.UUID || fmt.Sprint(m.Spec.Identity) != fmt.Sprint(want) {
			t.Errorf("%s: machine %s with %+v, not %+v", name, m.Name, m.Spec.Identity, want)
		}
		seen := m.Status.Hardware
		if m.Status.ObservedEndpoint != host(node) || seen.Manufacturer != "Advantech" || seen.Fingerprint != node.Fingerprint() || len(seen.Disks) != 2 || len(seen.Links) != 1 {
			t.Errorf("%s: status is %+v", name, m.Status)
		}
		if m.Status.Configuration != nil || len(m.Status.Conditions) > 0 || m.Status.Approval != nil {
			t.Errorf("%s waits for approval, and is not left untouched: %+v", name, m.Status)
		}
	}

	weak := p.Node("weak-1")
	if len(found.Weak) != 1 || found.Weak[0].Address != host(weak) || !slices.Equal(found.Weak[0].Missing, []string{"serial"}) ||
		!strings.Contains(found.Weak[0].Hint, "smbios1") || found.Weak[0].Manufacturer != "QEMU" || found.Weak[0].Identity.UUID != weak.Hardware().UUID {
		t.Errorf("weak is %+v", found.Weak)
	}
	first, second := p.Node("twin-a"), p.Node("twin-b")
	twin, err := c.machines.Get(t.Context(), first.Hardware().UUID, metav1.GetOptions{})
	must(t, err)
	if twin.Spec.Endpoint == host(second) {
		first, second = second, first
	}
	if twin.Spec.Endpoint != host(first) || twin.Spec.Identity.Serial != first.Hardware().Serial {
		t.Errorf("the twin that came first is %+v", twin.Spec)
	}
	if len(found.Collisions) != 1 || found.Collisions[0].Address != host(second) || found.Collisions[0].MachineName != twin.Name ||
		found.Collisions[0].Identity.Serial != second.Hardware().Serial {
		t.Errorf("collisions are %+v", found.Collisions)
	}
	all, err := c.machines.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(all.Items) != 4 {
		t.Errorf("there are %d machines, not 4", len(all.Items))
	}

	// Told once, and not again by the next sweep.
	c.sweepAgain(t)
	told := func() ([]string, []string) {
		events := eventsOn(t, c.namespace, "TalosCluster", clusterName)
		return withReason(events, corev1.EventTypeWarning, "WeakIdentity"), withReason(events, corev1.EventTypeWarning, "IdentityCollision")
	}
	harness.Eventually(t, onlineLimit, func() string {
		if w, c := told(); len(w) == 0 || len(c) == 0 {
			return "not everything is told yet"
		}
		return ""
	})
	c.sweepAgain(t)
	weakEvents, collisionEvents := told()
	if len(weakEvents) != 1 || !containsAll(weakEvents[0], host(weak), "serial", weak.Hardware().UUID) {
		t.Errorf("the weak machine is told as %q", weakEvents)
	}
	if len(collisionEvents) != 1 || !containsAll(collisionEvents[0], host(second), twin.Name) {
		t.Errorf("the collision is told as %q", collisionEvents)
	}
	after, err := c.machines.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for i, m := range after.Items {
		if m.ResourceVersion != all.Items[i].ResourceVersion {
			t.Errorf("a sweep without news wrote machine %s", m.Name)
		}
	}

	// Whoever does not answer leaves nothing anywhere.
	traces := map[string]string{
		"the server's log": serverLog(t),
		"events":           env.MustKubectl(t, "", "get", "events", "-A", "-o", "yaml"),
		"objects":          env.MustKubectl(t, "", "get", "talosclusters,talosmachines", "-n", c.namespace, "-o", "yaml"),
	}
	for where, text := range traces {
		if i := strings.Index(text, unreachable); i >= 0 {
			t.Errorf("an unreachable address is in %s: %q", where, text[max(0, i-200):min(len(text), i+100)])
		}
	}
	if !strings.Contains(traces["objects"], host(weak)) {
		t.Error("this test looks in the wrong place")
	}
	for _, name := range []string{"control-1", "worker-1", "worker-2", "weak-1", "twin-a", "twin-b"} {
		receivedNothing(t, p.Node(name))
	}
}

// door notes who knocks at an address, without ever answering.
type door struct {
	mu     sync.Mutex
	visits []*visit
}

// visit is one connection.
type visit struct{ began, ended time.Time }

// knocks is how many connections there were, those that only found out whether anybody listens included.
func (d *door) knocks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.visits)
}

// atOnce is how many connections were at most open at a time. An end is noticed later than it comes: what is over within the
// allowance counts as over.
func (d *door) atOnce(allowance time.Duration) (most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.visits {
		open := 0
		for _, other := range d.visits {
			if !other.began.After(one.began) && other.ended.Add(-allowance).After(one.began) {
				open++
			}
		}
		most = max(most, open)
	}
	return most
}

// listen counts at the addresses until the test ends.
func (d *door) listen(t *testing.T, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		listener, err := net.Listen("tcp4", net.JoinHostPort(address, "50000"))
		must(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				serving.Go(func() { d.hold(conn) })
			}
		})
		t.Cleanup(func() {
			_ = listener.Close()
			serving.Wait()
		})
	}
}

// hold keeps a connection until the other side gives up.
func (d *door) hold(conn net.Conn) {
	v := &visit{began: time.Now()}
	d.mu.Lock()
	v.ended = v.began.Add(time.Hour)
	d.visits = append(d.visits, v)
	d.mu.Unlock()
	_, _ = io.Copy(io.Discard, conn)
	d.mu.Lock()
	v.ended = time.Now()
	d.mu.Unlock()
	_ = conn.Close()
}

// Req: T-01, T-02, T-10
func TestNothingIsContactedWhereNothingIsDeclared(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 10, "near")
	var off, on door
	off.listen(t, "127.0.72.12")
	on.listen(t, "127.0.72.13")

	never := newCell(t, v1alpha1.TalosDiscovery{})
	until(t, sweepLimit, clusterName, never.clusters.Watch, noRanges)
	c := newCell(t, addresses("127.0.72.12"))
	c.swept(t)
	if off.knocks() == 0 {
		t.Fatal("the declared address was not contacted")
	}
	c.declare(t, v1alpha1.TalosDiscovery{})
	until(t, sweepLimit, clusterName, c.clusters.Watch, noRanges)
	before := off.knocks()

	// Another cluster's next periodic sweep tells when one of the emptied cluster's would have come.
	clock := newCell(t, addresses("127.0.72.13"))
	first := clock.swept(t).Status.Discovery.StartedAt
	until(t, 2*time.Minute, clusterName, clock.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		d := cluster.Status.Discovery
		if d == nil || d.CompletedAt == nil || d.StartedAt.Time.Sub(first.Time) < 50*time.Second {
			return "no periodic sweep has ended"
		}
		return ""
	})
	if total := on.knocks(); total < 2 {
		t.Errorf("two sweeps knocked %d times", total)
	}
	if after := off.knocks(); after != before {
		t.Errorf("an address that is no longer declared was contacted %d times", after-before)
	}
	if n := len(p.Node("near").Identities()); n > 0 {
		t.Errorf("an address that was never declared was contacted %d times", n)
	}
	for _, empty := range []cell{never, c} {
		machines, err := empty.machines.List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if len(machines.Items) > 0 {
			t.Errorf("machines of nowhere: %v", machines.Items)
		}
	}
}

func noRanges(cluster *v1alpha1.TalosCluster) string {
	for _, c := range cluster.Status.Conditions {
		if c.Type == "DiscoveryReady" && c.Reason == "NoRanges" && c.ObservedGeneration == cluster.Generation {
			return ""
		}
	}
	return fmt.Sprintf("conditions are %+v", cluster.Status.Conditions)
}

// Req: T-10
func TestAChangedRangeIsSweptAtOnce(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 20, "first", "second")
	c := newCell(t, addresses(host(p.Node("first"))))
	c.pending(t, p.Node("first"))
	c.swept(t)
	c.declare(t, addresses(host(p.Node("first")), host(p.Node("second"))))
	// Far below the minute between two periodic sweeps, whatever is in line before it.
	until(t, sweepLimit, p.Node("second").Hardware().UUID, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		if m.Status.Phase != v1alpha1.MachinePending {
			return fmt.Sprintf("phase is %q", m.Status.Phase)
		}
		return ""
	})
}

// Req: T-02, T-08
func TestASweepAsksAtMost32AddressesAtATimeAndEndsInTime(t *testing.T) {
	t.Parallel()
	p := boxes(t, 73, 200, "alive")
	// 64 that accept and never say a word cost the whole 2 s each; everybody else of the 1024 refuses at once.
	var silent door
	var list []string
	for addr := netip.MustParseAddr("127.0.73.1"); len(list) < 64; addr = addr.Next() {
		list = append(list, addr.String())
	}
	silent.listen(t, list...)
	c := newCell(t, v1alpha1.TalosDiscovery{Cidrs: []string{"127.0.73.0/24", "127.73.1.0/24", "127.73.2.0/24", "127.73.3.0/24"}})
	// A machine that answers is found in the same sweep.
	cluster := c.swept(t)
	found := cluster.Status.Discovery
	if found.Candidates != 1024 || found.Answered != 1 || found.Registered != 1 {
		t.Errorf("the sweep of 1024 addresses found %+v", found)
	}
	c.pending(t, p.Node("alive"))
	// 64 / 32 × 2 s, the rest of the 1024, and what the machine is busy with beside it.
	if took := found.CompletedAt.Sub(found.StartedAt.Time); took > 20*time.Second {
		t.Errorf("the sweep took %s", took)
	}
	total, most := silent.knocks(), silent.atOnce(200*time.Millisecond)
	if total < 64 || most > 32 {
		t.Errorf("of %d connections %d were open at a time", total, most)
	}
	if most < 8 {
		t.Errorf("at most %d connections were open at a time: nothing runs in parallel", most)
	}
}

// Req: T-06, T-14, T-18
func TestAMachineThatMovedIsRecordedAndConfiguredAtItsDeclaredEndpointAlone(t *testing.T) {
	t.Parallel()
	here := plant.TalosSpec{Name: "here", Address: "127.0.72.30", Hardware: box(30)}
	there := plant.TalosSpec{Name: "there", Address: "127.0.72.31", Hardware: box(30)}
	p := startPlant(t, plant.Spec{Talos: []plant.TalosSpec{here, there}})
	must(t, p.Fault("there", string(talosnode.FaultClosed)))
	c := newCell(t, addresses("127.0.72.30", "127.0.72.31")).withBundle(t, secretsBundle())
	before := c.pending(t, p.Node("here"))
	if before.Spec.Endpoint != "127.0.72.30" {
		t.Fatalf("found at %s", before.Spec.Endpoint)
	}

	must(t, p.Fault("here", string(talosnode.FaultClosed)))
	must(t, p.Heal("there"))
	c.sweepAgain(t)
	moved := until(t, sweepLimit, before.Name, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		if m.Status.ObservedEndpoint != "127.0.72.31" {
			return "observedEndpoint is " + m.Status.ObservedEndpoint
		}
		return ""
	})
	if moved.Spec.Endpoint != "127.0.72.30" || moved.Generation != before.Generation {
		t.Errorf("a sweep changed the spec: %+v", moved.Spec)
	}

	// Nothing is ever sent to where it was only seen.
	c.approve(t, p.Node("there"), v1alpha1.RoleWorker)
	c.configured(t, before.Name, "False Unreachable")
	c.sweepAgain(t)
	receivedNothing(t, p.Node("there"))

	// Somebody with the right to says where it is now.
	env.MustKubectl(t, "", "patch", "talosmachine", before.Name, "-n", c.namespace, "--subresource=endpoint", "--type=merge",
		"-p", `{"spec":{"endpoint":"127.0.72.31"}}`)
	c.applied(t, before.Name)
	receivedOne(t, p.Node("there"), v1alpha1.RoleWorker)
	receivedNothing(t, p.Node("here"))
}

// Req: T-04, T-09
func TestAMachineWithoutSMBIOSIsWeakAndRegisteredOnceItHasAnIdentity(t *testing.T) {
	t.Parallel()
	p := boxes(t, 72, 40, "board")
	node := p.Node("board")
	must(t, p.Fault("board", string(talosnode.FaultNoSMBIOS)))
	c := newCell(t, addresses(host(node)))
	// The first time it may be booting: it is told from the second on.
	if found := c.swept(t).Status.Discovery; len(found.Weak) > 0 || found.Answered != 1 {
		t.Errorf("a machine that may be booting: %+v", found)
	}
	found := c.sweepAgain(t).Status.Discovery
	if len(found.Weak) != 1 || !slices.Contains(found.Weak[0].Missing, "uuid") || !slices.Contains(found.Weak[0].Missing, "serial") {
		t.Errorf("weak is %+v", found.Weak)
	}
	_, err := c.machines.Get(t.Context(), node.Hardware().UUID, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a machine without an identity was registered: %v", err)
	}
	must(t, p.Heal("board"))
	if found := c.sweepAgain(t).Status.Discovery; len(found.Weak) > 0 || found.Registered != 1 {
		t.Errorf("it has an identity now: %+v", found)
	}
	c.pending(t, node)
}
