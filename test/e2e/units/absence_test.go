package units

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/installation"
)

// away is how long the server stays away by itself.
const away = 15 * time.Second

// The Units share a server that goes and comes back: "lost" loses a device of its own while it is away, "well" does not.
//
// Req: P-16, P-16b, A-06
func TestWhileTheServerIsAwayARuntimeHoldsWhatLostADeviceAndNothingElse(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*testing.T)
	}{
		{"the server is stopped", func(t *testing.T) {
			if code := env.Installation.Stop(t.Context()); code != 0 {
				t.Errorf("the server ended with code %d", code)
			}
		}},
		{"the server is killed", func(*testing.T) { env.Installation.Kill() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, pump, other := newSite(t), newDevice(t, 1), newDevice(t, 1, 2)
			s.addModule(t, "pump", pump, 1)
			s.addModule(t, "valve", other, 1)
			s.addModule(t, "tank", other, 2)
			s.addUnit(t, "lost", v1alpha1.UnitSpec{}, drives("speed", "pump", speed, "5"), drives("valve", "valve", valve, "7"))
			s.addUnit(t, "well", v1alpha1.UnitSpec{}, drives("valve", "tank", valve, "9"))
			for _, unit := range []string{"lost", "well"} {
				s.ready(t, unit)
				s.run(t, unit, v1alpha1.CommandStart)
				s.set(t, unit, "valve", "50")
			}
			s.set(t, "lost", "speed", "1200")
			well := shoot[*v1alpha1.Unit](t, "well", s.units().Watch)
			// The runtime has debounced its devices, and an order has come since.
			time.Sleep(api.KeepAlive)
			pods := map[string]*corev1.Pod{}
			for _, unit := range []string{"lost", "well"} {
				pods[unit] = s.pod(t, probepod.RuntimeName(unit))
			}

			ended := time.Now()
			test.end(t)
			gone := time.Now()
			pump.cut(t, "silent")
			var held time.Time
			harness.Eventually(t, api.Contact+faultLimit+settleLimit, func() string {
				writes := other.Unit(1).Writes()
				if last := writes[len(writes)-1]; !slices.Equal(last.Values, []uint16{7}) {
					return fmt.Sprintf("the other device was written %q", other.written(1))
				}
				held = writes[len(writes)-1].At
				return ""
			})
			t.Logf("server gone and device cut -> hold value in the other device %v", held.Sub(gone).Round(time.Millisecond))
			if took := held.Sub(gone); took > api.Contact+faultLimit {
				t.Errorf("held %v after the loss", took)
			}
			// The last order came after the former time, or at it at the latest.
			if took := held.Sub(ended); took < api.Contact-api.KeepAlive-time.Second {
				t.Errorf("held %v after the server went, though it had just ordered to run", took)
			}
			// The runtime is killed, and still knows that it holds.
			must(t, syscall.Kill(pidOf(t, pods["lost"]), syscall.SIGKILL))
			time.Sleep(time.Until(gone.Add(away)))
			if have := other.written(2); !slices.Equal(have, []string{"3=50"}) {
				t.Errorf("the device of the Unit that lost nothing was written %q", have)
			}

			back := time.Now()
			must(t, env.Installation.StartServer(t.Context()))
			must(t, env.Installation.WaitAvailable(t.Context()))
			unit := until(t, contactLimit, "lost", s.units().Get, func(u *v1alpha1.Unit) string {
				if u.Status.State != v1alpha1.UnitHeld {
					return "is " + string(u.Status.State)
				}
				if !slices.ContainsFunc(u.Status.Hold.Causes, func(c v1alpha1.UnitHoldCause) bool {
					return c.Cause == v1alpha1.HoldCauseRuntime && c.Module == "pump"
				}) {
					return "is not held by its runtime"
				}
				return ""
			})
			t.Logf("server started -> seen Held %v, by %+v", time.Since(back).Round(time.Millisecond), unit.Status.Hold)
			if hold := unit.Status.Hold; hold.PreviousState != v1alpha1.UnitRunning || !slices.Equal(hold.Modules, []string{"pump"}) {
				t.Errorf("the hold is %+v", hold)
			}
			s.module(t, settleLimit, "pump", v1alpha1.ModuleFault)
			if have := other.written(1); slices.ContainsFunc(have[1:], func(line string) bool { return line != "3=7" }) {
				t.Errorf("the other device was written %q", have)
			}

			// What lost nothing runs on, has its order and takes writes.
			s.has(t, contactLimit, "well", "RuntimeReady True RuntimeInContact", "EquipmentHealthy True ModulesOnline")
			if have := states(well.all()); !slices.Equal(have, []v1alpha1.UnitState{v1alpha1.UnitRunning}) {
				t.Errorf("the Unit that lost nothing was %q", have)
			}
			if have := other.written(2); !slices.Equal(have, []string{"3=50"}) {
				t.Errorf("the device of the Unit that lost nothing was written %q", have)
			}
			s.set(t, "well", "valve", "60")
			if have := other.written(2); !slices.Equal(have, []string{"3=50", "3=60"}) {
				t.Errorf("the device of the Unit that lost nothing was written %q", have)
			}
			for unit, before := range pods {
				if now := s.pod(t, before.Name); now.UID != before.UID {
					t.Errorf("the runtime of %s was made anew", unit)
				}
			}

			// The latch is gone with the hold.
			pump.heal(t)
			s.ready(t, "lost")
			if have := pump.written(1); len(have) < 2 || slices.ContainsFunc(have[1:], func(line string) bool { return line != "2=5" }) {
				t.Errorf("the device that was lost was written %q", have)
			}
			s.run(t, "lost", v1alpha1.CommandRestart)
			s.set(t, "lost", "valve", "60")
			time.Sleep(2 * time.Second)
			if state := s.unit(t, "lost").Status.State; state != v1alpha1.UnitRunning {
				t.Errorf("restarted, the Unit is %s", state)
			}
		})
	}
}

// pod is a pod that is there.
func (s site) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := env.Host().CoreV1().Pods(s.name).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return pod
}

// Somebody else holds the Lease for a while, so that the server stores what it is told and no controller acts on it: the
// moment between Fault and HOLD, as long as the test wants it.
//
// Req: P-16, A-06
func TestAServerThatIsKilledBetweenFaultAndHoldHoldsWhenItIsBack(t *testing.T) {
	s, d := newSite(t), newDevice(t, 1)
	s.addModule(t, "pump", d, 1)
	s.addUnit(t, "mixing", v1alpha1.UnitSpec{}, drives("speed", "pump", speed, "5"))
	// This one has no runtime, so that nothing but what is stored can hold it.
	s.addUnit(t, "bare", v1alpha1.UnitSpec{NodeSelector: map[string]string{"nowhere": "true"}}, reads("temperature", "pump", temperature))
	s.ready(t, "mixing")
	s.run(t, "mixing", v1alpha1.CommandStart)
	must(t, s.override(t, "bare", v1alpha1.CommandStart))

	env.Installation.Kill()
	leases := env.Host().CoordinationV1().Leases(installation.Namespace)
	if err := leases.Delete(t.Context(), apiserver.LeaseName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	_, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: apiserver.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("somebody-else"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &now, RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))
	d.cut(t, "silent")
	server, err := versioned.NewForConfig(env.ServerConfig())
	must(t, err)
	harness.Eventually(t, settleLimit, func() string {
		m, err := s.modules().Get(t.Context(), "pump", metav1.GetOptions{})
		must(t, err)
		at := metav1.Now()
		m.Status.State, m.Status.Reason, m.Status.LastTransitionTime = v1alpha1.ModuleFault, "Timeout", &at
		meta.RemoveStatusCondition(&m.Status.Conditions, "Ready")
		if _, err := server.PhysicalV1alpha1().IOModules(s.name).UpdateStatus(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	stored := time.Now()
	env.Installation.Kill()
	must(t, leases.Delete(t.Context(), apiserver.LeaseName, metav1.DeleteOptions{}))

	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))
	bare := s.is(t, settleLimit, "bare", v1alpha1.UnitHolding)
	t.Logf("Fault stored -> Holding seen %v, after a kill and a start of the server", time.Since(stored).Round(time.Millisecond))
	if hold := bare.Status.Hold; hold.Cause != v1alpha1.HoldCauseIOModuleFault || !slices.Equal(hold.Modules, []string{"pump"}) || hold.PreviousState != v1alpha1.UnitRunning {
		t.Errorf("the hold is %+v", hold)
	}
	mixing := s.is(t, contactLimit, "mixing", v1alpha1.UnitHeld)
	if hold := mixing.Status.Hold; !slices.ContainsFunc(hold.Causes, func(c v1alpha1.UnitHoldCause) bool {
		return c.Cause == v1alpha1.HoldCauseIOModuleFault && c.Module == "pump"
	}) {
		t.Errorf("the hold is %+v", hold)
	}
	if lines := told(t, s.name, "bare", corev1.EventTypeWarning, "HeldByFault"); len(lines) != 1 {
		t.Errorf("told is %q", lines)
	}
}
