package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// sweep is one that began, and ended, so many seconds after now; it runs if it ends at 0.
func sweep(began, ended int) *v1alpha1.DiscoveryStatus {
	at := func(seconds int) *metav1.Time {
		return ptr.To(metav1.NewTime(now().Add(time.Duration(seconds) * time.Second)))
	}
	out := &v1alpha1.DiscoveryStatus{RequestedAt: at(0), StartedAt: at(began), Candidates: 254}
	if ended != 0 {
		out.CompletedAt = at(ended)
	}
	return out
}

func running(asked, answered, registered int32) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) {
		c.Status.Discovery = sweep(1, 0)
		c.Status.Discovery.Asked, c.Status.Discovery.Answered, c.Status.Discovery.Registered = asked, answered, registered
	}
}

func ended(edit func(*v1alpha1.DiscoveryStatus)) func(*v1alpha1.TalosCluster) {
	return func(c *v1alpha1.TalosCluster) {
		c.Status.Discovery = sweep(1, 13)
		edit(c.Status.Discovery)
	}
}

// wantRequests asserts how many sweeps were asked for, and that nothing else was written.
func (s *session) wantRequests(t *testing.T, want int) {
	t.Helper()
	writes := s.writes()
	if len(writes) != want {
		t.Errorf("want %d requests, have %v", want, writes)
	}
	for _, action := range writes {
		if !action.Matches("create", "talosclusters/discover") || action.GetNamespace() != "site-a" || action.(clienttesting.CreateActionImpl).Name != "plant" {
			t.Errorf("want talosclusters/discover of site-a/plant, have %#v", action)
		}
	}
}

// Req: T-04, T-05, T-07, T-10
func TestDiscoverShowsWhatAnswered(t *testing.T) {
	s := newSession(pendingMachine(), plantCluster(), pendingMachine(func(m *v1alpha1.TalosMachine) {
		m.Name, m.Spec.ClusterRef.Name = "7f7f5544-004d-4b10-8056-b4c04f4a3136", "of another cluster"
	}))
	s.then(t, running(0, 0, 0)).then(t, running(127, 2, 1)).then(t, ended(func(d *v1alpha1.DiscoveryStatus) {
		d.Answered, d.Registered = 4, 1
		d.Weak = []v1alpha1.WeakCandidate{{Address: "192.0.2.20", Missing: []string{"uuid", "serial"}, Hint: "qm set ID --smbios1 serial=S"}}
		d.Collisions = []v1alpha1.IdentityCollision{
			{Address: "192.0.2.21", Identity: v1alpha1.MachineIdentity{UUID: uuid, Serial: "OTHER"}, MachineName: uuid, Message: "looks like another box", Reason: v1alpha1.FindingIdentityCollision},
			{Address: "192.0.2.22", Identity: v1alpha1.MachineIdentity{UUID: secondUUID, Serial: "7MK1J33"}, MachineName: uuid, Message: "same serial", Reason: v1alpha1.FindingSharesHardware},
		}
		err := s.client.Tracker().Add(pendingMachine(func(m *v1alpha1.TalosMachine) {
			m.Name, m.Spec.Identity.Serial, m.Spec.Endpoint, m.Status.ObservedEndpoint = secondUUID, "9XK1J44", "192.0.2.22", "192.0.2.22"
			withCondition(conditionSharesHardware, "same serial as "+uuid)(m)
		}))
		if err != nil {
			t.Error(err)
		}
	}))
	s.run(t, "discover", "plant").wantOK(t).wantRequests(t, 1)
	wantText(t, s.out, `TalosCluster site-a/plant: 254 addresses asked in 12s, 4 answered in maintenance mode, 1 registered.

FOUND   UUID                                   ADDRESS      SERIAL    HARDWARE                   DISKS                                                   WAITS FOR
new     5d5d5544-004d-4b10-8056-b4c04f4a3134   192.0.2.22   9XK1J44   Dell Inc. PowerEdge R650   /dev/nvme0n1 960 GB, /dev/sda 4.0 TB, /dev/sdb 4.0 TB   approval; --accept-shared-hardware: same serial as 4c4c4544-004d-4b10-8056-b4c04f4a3133
known   4c4c4544-004d-4b10-8056-b4c04f4a3133   192.0.2.10   7MK1J33   Dell Inc. PowerEdge R650   /dev/nvme0n1 960 GB, /dev/sda 4.0 TB, /dev/sdb 4.0 TB   approval

With an identity that is incomplete or in doubt:
NAMESPACE   CLUSTER   ADDRESS      SERIAL    PROBLEM                                           MACHINE                                SINCE
site-a      plant     192.0.2.20   <none>    missing: uuid, serial                             not registered                         <unknown>
site-a      plant     192.0.2.21   OTHER     has the UUID of another machine                   not registered                         <unknown>
site-a      plant     192.0.2.22   7MK1J33   shares its serial or a MAC with another machine   5d5d5544-004d-4b10-8056-b4c04f4a3134   <unknown>

192.0.2.20: qm set ID --smbios1 serial=S
192.0.2.21: looks like another box
192.0.2.22: same serial
`)
	if want := "waiting for the sweep to begin\n"; s.errOut != want {
		t.Errorf("lines for no terminal: %q, want %q", s.errOut, want)
	}
}

// Req: T-10
func TestDiscoverDrawsABarOnATerminalAndLinesElsewhere(t *testing.T) {
	steps := func(s *session) {
		s.then(t, running(0, 0, 0)).then(t, running(127, 2, 1))
		for range 11 {
			s.steps = append(s.steps, func() {})
		}
		s.then(t, running(254, 3, 1)).then(t, ended(func(*v1alpha1.DiscoveryStatus) {}))
	}
	s := newSession(plantCluster())
	steps(s)
	s.run(t, "discover", "plant").wantOK(t)
	if want := "waiting for the sweep to begin\n127/254 asked, 2 answered, 1 registered\n"; s.errOut != want {
		t.Errorf("have %q, want %q", s.errOut, want)
	}
	if strings.ContainsAny(s.out+s.errOut, "\r\x1b\b") {
		t.Errorf("control characters in a pipe: %q", s.out+s.errOut)
	}

	s = newSession(plantCluster())
	s.draws = true
	steps(s)
	s.run(t, "discover", "plant").wantOK(t)
	wantContains(t, s.errOut,
		"\rwaiting for the sweep to begin\r[........................] 0/254 asked, 0 answered, 0 registered",
		"\r[############............] 127/254 asked, 2 answered, 1 registered",
		"\r[########################] 254/254 asked, 3 answered, 1 registered")
	if lines := strings.Split(s.errOut, "\r"); strings.TrimSpace(lines[len(lines)-2]) != "" || lines[len(lines)-1] != "" {
		t.Errorf("leaves a line behind: %q", s.errOut)
	}
	if strings.ContainsAny(s.out, "\r\x1b\b") {
		t.Errorf("control characters in the result: %q", s.out)
	}
}

// Req: T-10
func TestDiscoverWaitsForASweepThatBeganNoEarlierThanItWasAskedFor(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return ptr.To(metav1.NewTime(now().Add(time.Duration(seconds) * time.Second)))
	}
	for _, test := range []struct {
		name          string
		swept, before *v1alpha1.DiscoveryStatus
		asked         *metav1.Time
		want          bool
	}{
		{"none began", &v1alpha1.DiscoveryStatus{}, nil, at(0), false},
		{"no status at all", nil, nil, at(0), false},
		{"one that began earlier", sweep(-1, 5), nil, at(0), false},
		{"one that began later", sweep(1, 5), sweep(-60, -50), at(0), true},
		{"one that began in the same second, and was not seen before", sweep(0, 5), sweep(-60, -50), at(0), true},
		{"one that ran in the same second already", sweep(0, 5), sweep(0, 0), at(0), false},
		{"one that had ended in the same second already", sweep(0, 1), sweep(0, 1), at(0), false},
		{"another one of the same second", sweep(0, 0), sweep(0, 1), at(0), true},
		{"fractions of a second, which are not stored", sweep(0, 5), nil, ptr.To(metav1.NewTime(now().Add(700 * time.Millisecond))), true},
		{"a server that does not say when it was asked, the old one", sweep(-60, -50), sweep(-60, -50), nil, false},
		{"a server that does not say when it was asked, a new one", sweep(1, 0), sweep(-60, -50), nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if have := answersRequest(test.swept, test.before, test.asked); have != test.want {
				t.Errorf("have %v", have)
			}
		})
	}

	t.Run("whatever ran before is waited out", func(t *testing.T) {
		s := newSession(plantCluster(func(c *v1alpha1.TalosCluster) { c.Status.Discovery = sweep(-10, 0) }))
		s.then(t, func(c *v1alpha1.TalosCluster) { c.Status.Discovery = sweep(-10, 1) })
		s.then(t, func(c *v1alpha1.TalosCluster) { c.Status.Discovery = sweep(2, 3) })
		s.run(t, "discover", "cluster/plant").wantOK(t)
		wantContains(t, s.errOut, "waiting for the sweep that runs already to end\n")
		wantContains(t, s.out, "asked in 1s", "A machine answers once it has started Talos without a configuration")
	})
}

// Req: T-10
func TestDiscoverDoesNotWaitWhenTold(t *testing.T) {
	s := newSession(plantCluster())
	s.run(t, "discover", "plant", "--no-wait").wantOK(t).wantRequests(t, 1)
	wantText(t, s.out, "A sweep of TalosCluster site-a/plant was asked for.\nSee what it finds: kubectl fieldplane -n site-a pending\n")
}

// Req: T-01, T-10
func TestDiscoverRefuses(t *testing.T) {
	for _, test := range []struct {
		name       string
		edit       func(*v1alpha1.TalosCluster)
		args       []string
		what, todo string
	}{
		{name: "no cluster", args: []string{"discover"}, what: "which cluster is not said", todo: "kubectl fieldplane discover CLUSTER"},
		{name: "two clusters", args: []string{"discover", "plant", "filling"}, what: "one cluster at a time", todo: "discover CLUSTER"},
		{name: "a machine", args: []string{"discover", "machine/" + uuid}, what: `discover takes a TalosCluster, and "machine" is none`, todo: "discover CLUSTER"},
		{name: "a cluster of another group", args: []string{"discover", "clusters.cluster.x-k8s.io/plant"}, what: "is none", todo: "discover CLUSTER"},
		{name: "a name that no cluster can have", args: []string{"discover", "../plant"}, what: "is none", todo: "discover CLUSTER"},
		{name: "no time to wait", args: []string{"discover", "plant", "--timeout", "0s"}, what: "--timeout 0s", todo: "--no-wait"},
		{name: "a cluster that does not exist", args: []string{"discover", "filling"}, what: "there is no TalosCluster filling in namespace site-a", todo: "kubectl get talosclusters -A"},
		{name: "a cluster that declares nothing", edit: func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = v1alpha1.TalosDiscovery{} },
			what: "discovery is off: TalosCluster site-a/plant declares no addresses", todo: `kubectl -n site-a patch taloscluster plant --type=merge -p '{"spec":{"discovery"`},
		{name: "a paused cluster", edit: func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }, what: "is paused", todo: `'{"spec":{"paused":false}}'`},
		{name: "a cluster that is being deleted", edit: func(c *v1alpha1.TalosCluster) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.NewTime(now())), []string{"example.com/hold"}
		}, what: "being deleted", todo: "Nothing is looked for"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := plantCluster()
			if test.edit != nil {
				test.edit(cluster)
			}
			args := test.args
			if args == nil {
				args = []string{"discover", "plant"}
			}
			newSession(cluster).run(t, args...).wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: T-10
func TestDiscoverTellsWhatTheServerAnswers(t *testing.T) {
	group := v1alpha1.Resource("talosclusters")
	for _, test := range []struct {
		name       string
		answer     error
		what, todo string
	}{
		{"a missing right", apierrors.NewForbidden(v1alpha1.Resource("talosclusters/discover"), "plant", errors.New(`User "bob" cannot create`)), `User "bob" cannot create`,
			"it is create on talosclusters/discover, which the ClusterRole fieldplane-talos-operator has. Ask for a RoleBinding in namespace site-a, and check with: " +
				"kubectl auth can-i create talosclusters.talos.fieldplane.dev/plant --subresource=discover -n site-a"},
		{"paused meanwhile", apierrors.NewConflict(group, "plant", errors.New("spec.paused stops discovery")), "spec.paused stops discovery", "Settle what the server names"},
		{"no such subresource", apierrors.NewGenericServerResponse(404, "post", group, "plant", "404 page not found", 0, true), "does not know talosclusters/discover", "older than this plugin"},
		{"silence", errors.New("i/o timeout"), "i/o timeout", "Whether it was stored is not known. Look before trying again: kubectl -n site-a get taloscluster plant"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(plantCluster())
			s.client.PrependReactor("create", "talosclusters", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			s.run(t, "discover", "plant").wantRequests(t, 1)
			s.client.ClearActions()
			s.wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: T-10
func TestDiscoverEndsWithoutAResult(t *testing.T) {
	for _, test := range []struct {
		name       string
		edit       func(*v1alpha1.TalosCluster)
		what, todo string
	}{
		{"when none begins in time", func(*v1alpha1.TalosCluster) {}, "the sweep has not begun within 3m0s", "kubectl -n fieldplane-system logs deployment/fieldplane-apiserver"},
		{"when it does not end in time", running(12, 0, 0), "the sweep has not ended within 3m0s", "It goes on by itself. See later what it found: kubectl fieldplane -n site-a pending"},
		{"when the cluster is paused", func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }, "is paused", "spec"},
		{"when the ranges are taken away", func(c *v1alpha1.TalosCluster) { c.Spec.Discovery = v1alpha1.TalosDiscovery{} }, "discovery is off", "spec"},
		{"when what answered cannot be registered", func(c *v1alpha1.TalosCluster) {
			c.Status.Discovery = sweep(1, 2)
			c.Status.Conditions = []metav1.Condition{{Type: "DiscoveryReady", Status: metav1.ConditionFalse, Message: "quota exceeded"}}
		}, "the sweep ended with a failure: quota exceeded", "tried again with the next sweep"},
	} {
		for _, draws := range []bool{false, true} {
			s := newSession(plantCluster()).then(t, test.edit)
			s.draws = draws
			s.run(t, "discover", "plant").wantRequests(t, 1)
			if s.code == 0 {
				t.Errorf("%s: exit code 0", test.name)
			}
			_, text, ok := strings.Cut(s.errOut, "error: ")
			if !ok || !strings.Contains(text, test.what) || !strings.Contains(text, test.todo) {
				t.Errorf("%s: have %q", test.name, s.errOut)
			}
		}
	}

	t.Run("but outlives a restart of the server", func(t *testing.T) {
		s := newSession(plantCluster()).then(t, func(*v1alpha1.TalosCluster) {}).then(t, ended(func(*v1alpha1.DiscoveryStatus) {}))
		gets := 0
		s.client.PrependReactor("get", "talosclusters", func(clienttesting.Action) (bool, runtime.Object, error) {
			gets++
			return gets == 2, nil, apierrors.NewServiceUnavailable("no endpoints")
		})
		s.run(t, "discover", "plant").wantOK(t)
		wantContains(t, s.errOut, "the server does not answer; waiting for it")
	})
}

// Req: T-10
func TestDiscoverIsHonestAboutWhatItCannotKnow(t *testing.T) {
	t.Run("without the right to list machines", func(t *testing.T) {
		s := newSession(plantCluster(), pendingMachine()).then(t, ended(func(d *v1alpha1.DiscoveryStatus) { d.Answered = 1 }))
		s.client.PrependReactor("list", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), "", errors.New("no"))
		})
		s.run(t, "discover", "plant").wantOK(t)
		wantContains(t, s.errOut, "you may not list talosmachines")
		wantContains(t, s.out, "1 answered in maintenance mode")
	})
	t.Run("which of the known machines answered", func(t *testing.T) {
		s := newSession(plantCluster(), pendingMachine(), pendingMachine(func(m *v1alpha1.TalosMachine) { m.Name = secondUUID }))
		s.then(t, ended(func(d *v1alpha1.DiscoveryStatus) { d.Answered = 1 })).run(t, "discover", "plant").wantOK(t)
		wantContains(t, s.errOut, "Of the 2 known machines above, 1 answered this time; the others are shown as they last answered.\n")
	})
}
