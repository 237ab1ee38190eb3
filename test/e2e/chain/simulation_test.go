package chain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// lifePeriod is how old a sign of life may be, and slack what a loaded machine may add.
const (
	lifePeriod = 30 * time.Second
	slack      = 8 * time.Second
)

// addSimulated declares a simulation module of a Controller.
func (s site) addSimulated(t *testing.T, name, controller string) {
	t.Helper()
	_, err := s.modules.Create(t.Context(), &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.IOModuleSpec{
			Protocol: v1alpha1.ProtocolSimulation, ControllerRef: &v1alpha1.ControllerReference{Name: controller},
			Channels: []v1alpha1.Channel{{Name: "level", Address: "level", DataType: v1alpha1.DataTypeFloat32}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

// beat patches a Controller's lastAlive, as a simulator does.
func (s site) beat(t *testing.T, name string, at time.Time) {
	t.Helper()
	if failure := s.tryBeat(t, name, at); failure != "" {
		t.Fatal(failure)
	}
}

func (s site) tryBeat(t *testing.T, name string, at time.Time) string {
	t.Helper()
	_, err := s.client.PhysicalV1alpha1().Controllers(s.name).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"lastAlive":%q}}`, at.UTC().Format(time.RFC3339)), metav1.PatchOptions{}, "status")
	if err != nil {
		return err.Error()
	}
	return ""
}

// simulation is a Controller that is one.
func simulation(mode v1alpha1.HeartbeatMode) v1alpha1.ControllerSpec {
	return v1alpha1.ControllerSpec{Simulation: true, Heartbeat: mode}
}

// Req: P-05
func TestARestartOfTheServerLeavesASimulationAWholeStalePeriod(t *testing.T) {
	s := newSite(t)
	s.addController(t, "line", simulation(v1alpha1.HeartbeatExternal))
	s.addController(t, "managed", simulation(""))
	s.addSimulated(t, "level", "line")
	s.addSimulated(t, "flow", "managed")
	s.verdict(t, onlineLimit, "flow", v1alpha1.ModuleOnline, "ControllerAlive")
	s.beat(t, "line", time.Now().Add(-lifePeriod/2))
	s.verdict(t, 10*time.Second, "level", v1alpha1.ModuleOnline, "ControllerAlive")

	env.Installation.Kill()
	killed := time.Now()
	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))
	level, flow := s.states(t, "level"), s.states(t, "flow")
	// The rest is waiting, beside the others.
	t.Parallel()

	offline := s.verdict(t, lifePeriod+slack, "level", v1alpha1.ModuleOffline, "ControllerSilent").Status
	// The time is cut to the second.
	if after := offline.LastTransitionTime.Sub(killed); after < lifePeriod-time.Second {
		t.Errorf("Offline %s after the former server was killed", after)
	}
	level.are(t, "Online ControllerAlive", "Offline ControllerSilent")
	flow.are(t, "Online ControllerAlive")
}

// Req: P-02, P-05, P-07
func TestASimulationLivesAsItsControllerDoes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, site){
		"Managed: the server beats, at most once in 10 s, until it is suspended": func(t *testing.T, s site) {
			beats := record(t, "line", s.client.PhysicalV1alpha1().Controllers(s.name).Watch, func(c *v1alpha1.Controller) string {
				if c.Status.LastAlive == nil {
					return "never"
				}
				return c.Status.LastAlive.UTC().Format(time.RFC3339)
			})
			s.addController(t, "line", simulation(""))
			s.addSimulated(t, "level", "line")
			online := s.verdict(t, onlineLimit, "level", v1alpha1.ModuleOnline, "ControllerAlive")
			module := online.Status
			if c := condition(module.Conditions, "ControllerFound"); c != "True Found" || module.ProbePodName != "" || module.Health != v1alpha1.HealthNormal ||
				*module.ChannelCount != 1 {
				t.Errorf("a simulation that lives: %+v", module)
			}
			if pods := s.probePods(t); len(pods) > 0 {
				t.Errorf("a simulation has probes: %q", pods)
			}
			states := s.states(t, "level")
			time.Sleep(lifePeriod)
			if after, err := s.modules.Get(t.Context(), "level", metav1.GetOptions{}); err != nil || after.ResourceVersion != online.ResourceVersion {
				t.Errorf("beats are written to the module: %+v, %v", after.Status, err)
			}
			s.changeController(t, "line", func(spec *v1alpha1.ControllerSpec) { spec.Heartbeat = v1alpha1.HeartbeatSuspended })
			s.verdict(t, lifePeriod+slack, "level", v1alpha1.ModuleOffline, "ControllerSilent")
			s.changeController(t, "line", func(spec *v1alpha1.ControllerSpec) { spec.Heartbeat = v1alpha1.HeartbeatManaged })
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleOnline, "ControllerAlive")
			states.are(t, "Online ControllerAlive", "Offline ControllerSilent", "Online ControllerAlive")

			var last time.Time
			seen := 0
			for _, line := range beats.all() {
				at, err := time.Parse(time.RFC3339, line)
				if err != nil {
					continue
				}
				if seen++; seen > 1 && at.Sub(last) < 10*time.Second {
					t.Errorf("two beats within 10 s: %q", beats.all())
				}
				last = at
			}
			if seen < 4 {
				t.Errorf("%d beats: %q", seen, beats.all())
			}
		},
		"External: a simulator beats": func(t *testing.T, s site) {
			s.addSimulated(t, "level", "line")
			absent := s.verdict(t, onlineLimit, "level", v1alpha1.ModuleUnknown, "ControllerNotFound").Status
			if c := condition(absent.Conditions, "ControllerFound"); c != "False ControllerNotFound" {
				t.Errorf("ControllerFound is %q", c)
			}
			s.addController(t, "line", simulation(v1alpha1.HeartbeatExternal))
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleUnknown, "NeverSeen")
			simulator := s
			simulator.client = bind(t, s.name, "simulator."+s.name, "fieldplane-simulator")
			harness.Eventually(t, onlineLimit, func() string {
				// It takes a moment until a right is known.
				return simulator.tryBeat(t, "line", time.Now())
			})
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleOnline, "ControllerAlive")
			if _, err := simulator.client.PhysicalV1alpha1().Controllers(s.name).Patch(t.Context(), "line", types.MergePatchType,
				[]byte(`{"spec":{"heartbeat":"Managed"}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("a simulator may change the specification: %v", err)
			}
			// It stops; the server has not beaten for it.
			s.verdict(t, lifePeriod+slack, "level", v1alpha1.ModuleOffline, "ControllerSilent")
			s.beat(t, "line", time.Now())
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleOnline, "ControllerAlive")
			must(t, s.client.PhysicalV1alpha1().Controllers(s.name).Delete(t.Context(), "line", metav1.DeleteOptions{}))
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleUnknown, "ControllerNotFound")
		},
		"External, and its clock is ahead: it dies all the same": func(t *testing.T, s site) {
			s.addController(t, "line", simulation(v1alpha1.HeartbeatExternal))
			s.addSimulated(t, "level", "line")
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleUnknown, "NeverSeen")
			s.beat(t, "line", time.Now().Add(time.Hour))
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleOnline, "ControllerAlive")
			s.verdict(t, lifePeriod+slack, "level", v1alpha1.ModuleOffline, "ControllerSilent")
			s.beat(t, "line", time.Now().Add(time.Hour+time.Second))
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleOnline, "ControllerAlive")
		},
		"Suspended: nobody beats": func(t *testing.T, s site) {
			s.addController(t, "line", simulation(v1alpha1.HeartbeatSuspended))
			s.addSimulated(t, "level", "line")
			states := s.states(t, "level")
			s.verdict(t, onlineLimit, "level", v1alpha1.ModuleUnknown, "NeverSeen")
			time.Sleep(lifePeriod)
			if c, err := s.client.PhysicalV1alpha1().Controllers(s.name).Get(t.Context(), "line", metav1.GetOptions{}); err != nil || c.Status.LastAlive != nil {
				t.Errorf("somebody has beaten: %+v, %v", c.Status, err)
			}
			for _, line := range states.all() {
				// A module begins as not measured.
				if line != " " && !strings.HasPrefix(line, "Unknown ") {
					t.Errorf("what never lived was %q", line)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSite(t))
		})
	}
}
