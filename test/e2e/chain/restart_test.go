package chain

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// These tests stop the server, so they run before and beside nobody else.

// Req: A-06, T-12, T-15
func TestAServerKilledBetweenIntentAndOutcomeSendsNoSecondConfiguration(t *testing.T) {
	// Slow enough to be caught in the middle, and quick enough to tell who it is within the time that it is given.
	node, err := talosnode.Start(talosnode.Options{
		Name: "control", Address: "127.0.76.2:50000", Hardware: box(76<<8 + 1), Trustd: &talosnode.Trustd{}, Slow: 1500 * time.Millisecond,
	})
	must(t, err)
	t.Cleanup(node.Close)
	line := newLine(t, "127.0.76.1:50000", node.Address())
	c := newCell(t, addresses("127.0.76.1")).withBundle(t, secretsBundle())
	name := c.pending(t, node).Name

	must(t, node.Inject(talosnode.FaultSlow))
	c.approve(t, node, v1alpha1.RoleControlPlane, "--fingerprint", node.Fingerprint())
	until(t, configureLimit, name, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		switch sent := m.Status.Configuration; {
		case sent == nil || sent.IntendedAt == nil:
			return "no intent is recorded"
		case sent.AppliedAt != nil:
			t.Fatal("the window was missed: the outcome is recorded")
		case m.Status.Phase != v1alpha1.MachineConfiguring:
			return fmt.Sprintf("phase is %q", m.Status.Phase)
		}
		return ""
	})
	// The machine takes the configuration, and its answer does not arrive.
	line.holdAnswers()
	harness.Eventually(t, configureLimit, func() string {
		if len(node.Configurations()) == 0 {
			return "nothing was sent"
		}
		return ""
	})
	env.Installation.Kill()
	must(t, node.Heal())
	line.release()
	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))

	m := c.configured(t, name, "True AppliedUnconfirmed")
	if m.Status.Configuration.AppliedAt == nil || m.Status.Phase != v1alpha1.MachineInstalling {
		t.Errorf("status is %+v", m.Status)
	}
	stage(t, node, talosnode.StageRunning)
	receivedOne(t, node, v1alpha1.RoleControlPlane)
}

// Req: A-06
func TestAServerKilledBetweenTheIntentAndTheAnswerBootstrapsEtcdOnce(t *testing.T) {
	// Each of its calls takes so long that the server can be killed in the middle of one.
	node, err := talosnode.Start(talosnode.Options{
		Name: "control", Address: "127.0.77.202:50000", Hardware: box(77<<8 + 202), Slow: 1500 * time.Millisecond, Install: 3 * time.Second,
	})
	must(t, err)
	t.Cleanup(node.Close)
	c := newCell(t, addresses("127.0.77.202")).withBundle(t, secretsBundle())
	c.tellsNothing(t)
	c.approveDirectly(t, c.pending(t, node), func(spec *v1alpha1.TalosMachineSpec) {
		spec.Role, spec.AcceptedFingerprint = v1alpha1.RoleControlPlane, node.Fingerprint()
	})
	// It installs for a moment, so that nothing is bootstrapped yet.
	c.applied(t, node.Hardware().UUID)
	must(t, node.Inject(talosnode.FaultSlow))
	harness.Eventually(t, runningLimit, func() string {
		if node.Calls("Bootstrap") == 0 {
			return "nothing was told to bootstrap"
		}
		return ""
	})
	cluster, err := c.clusters.Get(t.Context(), clusterName, metav1.GetOptions{})
	must(t, err)
	env.Installation.Kill()
	if b := cluster.Status.Bootstrap; b == nil || b.IntendedAt == nil || b.MachineName != node.Hardware().UUID || b.CompletedAt != nil {
		t.Errorf("the window was missed, or no intent recorded: %+v", b)
	}
	// The node goes on with what it was told.
	harness.Eventually(t, onlineLimit, func() string {
		if node.Bootstraps() == 0 {
			return "nothing was bootstrapped"
		}
		return ""
	})
	must(t, node.Heal())
	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))

	f := fleet{cell: c}
	b := f.bootstrapped(t)
	if b.MachineName != node.Hardware().UUID || b.IntendedAt == nil || !b.IntendedAt.Equal(cluster.Status.Bootstrap.IntendedAt) {
		t.Errorf("the bootstrap is recorded as %+v", b)
	}
	until(t, runningLimit, node.Hardware().UUID, c.machines.Watch, func(m *v1alpha1.TalosMachine) string {
		if have := condition(m.Status.Conditions, "Ready"); have != "True Ready" {
			return fmt.Sprintf("Ready is %q", have)
		}
		return ""
	})
	if node.Bootstraps() != 1 || node.Calls("Bootstrap") != 1 {
		t.Errorf("etcd was bootstrapped %d times by %d calls", node.Bootstraps(), node.Calls("Bootstrap"))
	}
	sentOnce(t, node, v1alpha1.RoleControlPlane)
}

// line passes on what two sides say to each other, until it is told to hold the answers back.
type line struct {
	mu   sync.Mutex
	held chan struct{}
}

// newLine answers at an address with what answers at another, until the test ends.
func newLine(t *testing.T, at, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp4", at)
	must(t, err)
	l := &line{held: make(chan struct{})}
	close(l.held)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { l.connect(ctx, near, to) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	})
	return l
}

func (l *line) connect(ctx context.Context, near net.Conn, to string) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp4", to)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})()
	var asking sync.WaitGroup
	asking.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := far.Read(buffer)
		if err != nil {
			break
		}
		l.mu.Lock()
		held := l.held
		l.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
		}
		if _, err := near.Write(buffer[:n]); err != nil {
			break
		}
	}
	_ = near.Close()
	asking.Wait()
}

func (l *line) holdAnswers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = make(chan struct{})
}

func (l *line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held)
}

// Req: P-06, P-07, A-02, A-06
func TestARestartOfTheServerLeavesModulesAsTheyAre(t *testing.T) {
	s, well, dead := newSite(t), newDevice(t, 1), newDevice(t, 1)
	s.add(t, "well", well, 1)
	s.add(t, "dead", dead, 1)
	s.online(t, firstLimit, "well")
	s.online(t, firstLimit, "dead")
	dead.fault(t, "closed")
	s.verdict(t, faultLimit, "dead", physical.ModuleFault, "Refused")
	pod, connections := s.probe(t, probeName), well.Accepted()

	env.Installation.Kill()
	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))
	wellStates, deadStates := s.states(t, "well"), s.states(t, "dead")

	// The server knows of a change that comes after the restart, so it follows the probe again.
	dead.heal(t)
	s.online(t, onlineLimit, "dead")
	well.fault(t, "closed")
	s.verdict(t, faultLimit, "well", physical.ModuleFault, "Refused")
	wellStates.are(t, "Online Connected", "Fault Refused")
	deadStates.are(t, "Fault Refused", "Online Connected")
	if after := podOf(t, s.name, probeName); after.UID != pod.UID || well.Accepted() != connections {
		t.Errorf("the probe was made anew, or connected again: %s, %s", pod.UID, after.UID)
	}
}
