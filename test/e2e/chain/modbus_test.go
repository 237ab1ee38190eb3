package chain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/test/harness"
)

func isConflict(err error) bool { return apierrors.IsConflict(err) }

// Req: P-01, P-02, P-06, P-08, P-13
func TestADeclaredDeviceIsOnlineWithWhatItSaysOfItself(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 3)
	s.add(t, "mixer", d, 3)

	status := s.online(t, firstLimit, "mixer").Status
	if status.Health != v1alpha1.HealthNormal || condition(status.Conditions, "Ready") != "True Connected" || status.LastTransitionTime == nil {
		t.Errorf("not a healthy module: %+v", status)
	}
	if c := condition(status.Conditions, "ControllerFound"); c != "" {
		t.Errorf("a module without a Controller has ControllerFound %s", c)
	}
	if status.ChannelCount == nil || *status.ChannelCount != 2 {
		t.Errorf("channelCount is %v, not 2", status.ChannelCount)
	}
	if status.ProbePodName != probeName {
		t.Errorf("measured by %q", status.ProbePodName)
	}
	// The nameplate is asked for after the first verdict (function 43).
	named := until(t, onlineLimit, "mixer", s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.Identity == nil {
			return "the device's identity is not known"
		}
		return ""
	})
	if have, want := *named.Status.Identity, (v1alpha1.DeviceIdentity{Vendor: "fieldplane", Product: "Mixer", Revision: "1.3"}); have != want {
		t.Errorf("identity is %+v, not %+v", have, want)
	}

	pod := podOf(t, s.name, probeName)
	if len(pod.Spec.NodeSelector) > 0 || len(pod.OwnerReferences) > 0 {
		t.Errorf("the shared probe is pinned or owned: %v, %v", pod.Spec.NodeSelector, pod.OwnerReferences)
	}
	config, err := env.Host().CoreV1().ConfigMaps(s.name).Get(t.Context(), probeName, metav1.GetOptions{})
	must(t, err)
	if !strings.Contains(fmt.Sprint(config.Data), `"name":"mixer"`) {
		t.Errorf("the probe's ConfigMap does not list the module: %v", config.Data)
	}
}

// Req: P-06, P-07, P-16
func TestADeviceThatDoesNotAnswerIsFaultWithin5sAndOnlineWithin15sAfterItIsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, test := range map[string]struct{ fault, reason, message string }{
		"stopped":     {"closed", "Refused", "refused"},
		"black-holed": {"silent", "Timeout", "time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, 1)
			s.add(t, name, d, 1)
			s.online(t, firstLimit, name)

			d.fault(t, test.fault)
			fault := s.verdict(t, faultLimit, name, v1alpha1.ModuleFault, test.reason).Status
			if fault.Health != v1alpha1.HealthFailure || condition(fault.Conditions, "Ready") != "False "+test.reason {
				t.Errorf("not a failed module: %+v", fault)
			}
			if !strings.Contains(fault.Message, test.message) {
				t.Errorf("the message %q does not say what is wrong", fault.Message)
			}
			if fault.Identity == nil || fault.Identity.Product != "Mixer" {
				t.Errorf("what the device said of itself is forgotten: %+v", fault.Identity)
			}

			d.heal(t)
			back := s.online(t, onlineLimit, name).Status
			if back.Health != v1alpha1.HealthNormal || !back.LastTransitionTime.After(fault.LastTransitionTime.Time) {
				t.Errorf("not a healthy module: %+v", back)
			}
		})
	}
}

// Req: P-06, P-13
func TestUnitsBehindOneGatewayShareOneConnectionAndOnlyTheAbsentOneIsFault(t *testing.T) {
	t.Parallel()
	s, gateway := newSite(t), newDevice(t, 1, 2)
	gateway.Absent(modbustest.AnswerTargetFailed)
	s.add(t, "pump", gateway, 1)
	s.add(t, "valve", gateway, 2)
	s.add(t, "nobody", gateway, 9)

	s.online(t, firstLimit, "pump")
	s.online(t, firstLimit, "valve")
	s.verdict(t, firstLimit, "nobody", v1alpha1.ModuleFault, "UnitNotResponding")
	if gateway.Open() != 1 || gateway.Accepted() != 1 {
		t.Errorf("%d connections are open and %d were made, for one gateway", gateway.Open(), gateway.Accepted())
	}

	pump := s.states(t, "pump")
	gateway.RemoveUnit(2)
	s.verdict(t, faultLimit, "valve", v1alpha1.ModuleFault, "UnitNotResponding")
	s.online(t, onlineLimit, "pump")
	if states := pump.all(); !slices.Equal(states, []string{"Online Connected"}) {
		t.Errorf("the other unit was %q", states)
	}
	if gateway.Accepted() != 1 {
		t.Errorf("an absent unit cost its neighbour the connection: %d were made", gateway.Accepted())
	}
}

// Req: P-06, P-07
func TestADeviceThatAnswersWronglyIsFaultWithTheRightReason(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, test := range map[string]struct {
		malformation modbustest.Malformation
		reason       string
	}{
		"noise":          {modbustest.Noise, "ProtocolError"},
		"wrong-unit":     {modbustest.WrongUnit, "ProtocolError"},
		"wrong-protocol": {modbustest.WrongProtocol, "ProtocolError"},
		"wrong-function": {modbustest.WrongFunction, "ProtocolError"},
		"huge-length":    {modbustest.HugeLength, "ProtocolError"},
		"half-a-frame":   {modbustest.HalfFrame, "Timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDevice(t, 1)
			s.add(t, name, d, 1)
			s.online(t, firstLimit, name)
			d.Malform(test.malformation)
			s.verdict(t, faultLimit, name, v1alpha1.ModuleFault, test.reason)
			d.Malform(modbustest.WellFormed)
			s.online(t, onlineLimit, name)
		})
	}
}

// Req: P-08
func TestTheLastModuleTakesItsProbeWithIt(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1, 2)
	s.add(t, "first", d, 1)
	s.add(t, "second", d, 2)
	s.online(t, firstLimit, "first")
	s.online(t, firstLimit, "second")
	pod := podOf(t, s.name, probeName)

	must(t, s.modules.Delete(t.Context(), "first", metav1.DeleteOptions{}))
	harness.Eventually(t, onlineLimit, func() string {
		config, err := env.Host().CoreV1().ConfigMaps(s.name).Get(t.Context(), probeName, metav1.GetOptions{})
		must(t, err)
		if data := fmt.Sprint(config.Data); strings.Contains(data, `"first"`) || !strings.Contains(data, `"second"`) {
			return "the ConfigMap is " + data
		}
		return ""
	})
	if podOf(t, s.name, probeName).UID != pod.UID {
		t.Error("the probe was made anew while a module was left")
	}

	must(t, s.modules.Delete(t.Context(), "second", metav1.DeleteOptions{}))
	untilGone(t, onlineLimit, "the pod", func() error {
		_, err := env.Host().CoreV1().Pods(s.name).Get(t.Context(), probeName, metav1.GetOptions{})
		return err
	})
	untilGone(t, onlineLimit, "the ConfigMap", func() error {
		_, err := env.Host().CoreV1().ConfigMaps(s.name).Get(t.Context(), probeName, metav1.GetOptions{})
		return err
	})
	if d.Open() != 0 {
		t.Errorf("%d connections to the device are still open", d.Open())
	}
}

// Req: P-11
func TestANewModuleTouchesNeitherThePodNorTheConnectionsOfTheOthers(t *testing.T) {
	t.Parallel()
	s, d, other := newSite(t), newDevice(t, 1), newDevice(t, 1)
	s.add(t, "old", d, 1)
	s.online(t, firstLimit, "old")
	pod := s.probe(t, probeName)
	states, before := s.states(t, "old"), d.Accepted()

	s.add(t, "new", other, 1)
	s.online(t, firstLimit, "new")
	must(t, s.modules.Delete(t.Context(), "new", metav1.DeleteOptions{}))
	harness.Eventually(t, onlineLimit, func() string {
		if other.Open() > 0 {
			return "the deleted module's device is still connected"
		}
		return ""
	})

	// Its own channels are taken over on the connection that there is, too.
	s.change(t, "old", func(spec *v1alpha1.IOModuleSpec) { spec.Channels = spec.Channels[:1] })
	if changed := s.online(t, onlineLimit, "old"); *changed.Status.ChannelCount != 1 {
		t.Errorf("channelCount is %d", *changed.Status.ChannelCount)
	}
	states.are(t, "Online Connected")

	if d.Accepted() != before || d.Open() != 1 {
		t.Errorf("the old module's device has %d connections, and %d more were made", d.Open(), d.Accepted()-before)
	}
	after := podOf(t, s.name, probeName)
	if after.UID != pod.UID || after.Status.ContainerStatuses[0].RestartCount != pod.Status.ContainerStatuses[0].RestartCount {
		t.Errorf("the probe was started anew: %s, %s", pod.UID, after.UID)
	}
}

// Req: P-06, A-06
func TestAModuleThatStaysAsItIsIsNotWritten(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "steady", d, 1)
	s.online(t, firstLimit, "steady")
	before := until(t, onlineLimit, "steady", s.modules.Watch, func(m *v1alpha1.IOModule) string {
		if m.Status.Identity == nil {
			return "its identity, the last thing that is read, is not known"
		}
		return ""
	})

	// Ten periods, by the clock of the one who measures.
	requests := d.Requests()
	harness.Eventually(t, 30*time.Second, func() string {
		if n := d.Requests() - requests; n < 10 {
			return fmt.Sprintf("measured %d times", n)
		}
		return ""
	})
	after, err := s.modules.Get(t.Context(), "steady", metav1.GetOptions{})
	must(t, err)
	if after.ResourceVersion != before.ResourceVersion {
		t.Errorf("ten measurements without news were written:\n%+v\n%+v", before.Status, after.Status)
	}
}
