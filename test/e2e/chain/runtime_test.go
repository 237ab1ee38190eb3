package chain

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	typed "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/runtimeclient"
	"github.com/fieldplane/fieldplane/test/harness"
)

// runtimeLimit is how long a runtime may take from its Unit to being in contact: a pod has to be started for it.
const runtimeLimit = 45 * time.Second

func (s site) units() typed.UnitInterface { return s.client.PhysicalV1alpha1().Units(s.name) }

// addUnit declares a Unit.
func (s site) addUnit(t *testing.T, name string) {
	t.Helper()
	_, err := s.units().Create(t.Context(), &v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
}

// registers is a tag of a holding register of a module.
func registers(name, module string, offset int) v1alpha1.Tag {
	return v1alpha1.Tag{
		Name: name, IOModuleRef: v1alpha1.IOModuleReference{Name: module}, Address: fmt.Sprint("holding:", offset), DataType: v1alpha1.DataTypeUint16,
	}
}

// addTags declares a ControlModule of a Unit.
func (s site) addTags(t *testing.T, name, unit string, tags ...v1alpha1.Tag) {
	t.Helper()
	module := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	module.Spec.UnitRef.Name, module.Spec.Tags = unit, tags
	_, err := s.client.PhysicalV1alpha1().ControlModules(s.name).Create(t.Context(), module, metav1.CreateOptions{})
	must(t, err)
}

// lacks says how a condition differs from a status, "" if it does not.
func lacks(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "has no condition " + kind
	}
	if c.Status != status {
		return fmt.Sprintf("has %s=%s (%s: %s)", kind, c.Status, c.Reason, c.Message)
	}
	return ""
}

// inContact waits until a Unit's runtime is in contact with its configuration in force.
func (s site) inContact(t *testing.T, unit string) *v1alpha1.Unit {
	t.Helper()
	return until(t, runtimeLimit, unit, s.units().Watch, func(u *v1alpha1.Unit) string {
		return lacks(u.Status.Conditions, "RuntimeReady", metav1.ConditionTrue)
	})
}

// runtime is a client of a Unit's runtime with the namespace's own certificate.
func (s site) runtime(t *testing.T, unit string) *runtimeclient.Client {
	t.Helper()
	secret, err := env.Host().CoreV1().Secrets(s.name).Get(t.Context(), probepod.TLSSecret, metav1.GetOptions{})
	must(t, err)
	credentials, err := probeapi.StaticCredentials(secret.Data["ca.crt"], secret.Data["tls.crt"], secret.Data["tls.key"])
	must(t, err)
	pod := podOf(t, s.name, probepod.RuntimeName(unit))
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(api.Port))
	return runtimeclient.New(address, s.name, credentials, (&net.Dialer{Timeout: 2 * time.Second}).DialContext, clock.RealClock{})
}

// reads waits until a Unit's runtime has good values of these tags, as MODULE/TAG=VALUE.
func (s site) reads(t *testing.T, unit string, want ...string) {
	t.Helper()
	harness.Eventually(t, runtimeLimit, func() string {
		list, err := s.runtime(t, unit).Tags(t.Context())
		if err != nil {
			return err.Error()
		}
		var got []string
		for _, tag := range list.Tags {
			value := "nothing: " + tag.Message
			if tag.Value != nil && tag.Status == 0 {
				value = *tag.Value
			}
			got = append(got, fmt.Sprintf("%s/%s=%s", tag.ControlModule, tag.Name, value))
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("reads %q, want %q", got, want)
		}
		return ""
	})
}

// Req: P-14, P-15, P-10, P-18 (the server has the shipped rights and no others)
func TestAUnitsRuntimeComesFollowsItsTagsComesBackAndGoesWithIt(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "mixer", d, 1)
	s.addUnit(t, "mixing")
	speed := registers("speed", "mixer", 1)
	speed.Access, speed.HoldValue = v1alpha1.AccessReadWrite, ptr.To("0")
	s.addTags(t, "drive", "mixing", registers("temperature", "mixer", 0), speed)

	unit := s.inContact(t, "mixing")
	name := probepod.RuntimeName("mixing")
	if unit.Status.RuntimePodName != name {
		t.Errorf("the Unit names pod %q", unit.Status.RuntimePodName)
	}
	pod := s.probe(t, name)
	s.reads(t, "mixing", "drive/speed=1480", "drive/temperature=215")
	// The probe has its connection too.
	s.online(t, firstLimit, "mixer")
	controlModules := s.client.PhysicalV1alpha1().ControlModules(s.name)
	until(t, runtimeLimit, "drive", controlModules.Watch, func(c *v1alpha1.ControlModule) string {
		return lacks(c.Status.Conditions, "ReferencesResolved", metav1.ConditionTrue)
	})

	// A tag that comes touches neither the pod nor the connections.
	connections := d.Accepted()
	s.addTags(t, "extra", "mixing", registers("again", "mixer", 0))
	s.reads(t, "mixing", "drive/speed=1480", "drive/temperature=215", "extra/again=215")
	if now := podOf(t, s.name, name); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("for a new tag there is another pod, or it was restarted: %+v", now.Status.ContainerStatuses)
	}
	if now := d.Accepted(); now != connections {
		t.Errorf("for a new tag the device has %d new connections", now-connections)
	}
	must(t, controlModules.Delete(t.Context(), "extra", metav1.DeleteOptions{}))
	s.reads(t, "mixing", "drive/speed=1480", "drive/temperature=215")

	must(t, syscall.Kill(pidOf(t, pod), syscall.SIGKILL))
	until(t, runtimeLimit, name, env.Host().CoreV1().Pods(s.name).Watch, func(now *corev1.Pod) string {
		if now.Status.ContainerStatuses[0].RestartCount == 0 || !now.Status.ContainerStatuses[0].Ready {
			return "was not started again"
		}
		return ""
	})
	s.reads(t, "mixing", "drive/speed=1480", "drive/temperature=215")

	must(t, env.Host().CoreV1().Pods(s.name).Delete(t.Context(), name, metav1.DeleteOptions{}))
	until(t, runtimeLimit, name, env.Host().CoreV1().Pods(s.name).Watch, func(now *corev1.Pod) string {
		if now.UID == pod.UID || now.Status.Phase != corev1.PodRunning {
			return "is not made anew"
		}
		return ""
	})
	s.reads(t, "mixing", "drive/speed=1480", "drive/temperature=215")

	for {
		unit, err := s.units().Get(t.Context(), "mixing", metav1.GetOptions{})
		must(t, err)
		unit.Spec.NodeSelector = map[string]string{"zone": "b"}
		if _, err = s.units().Update(t.Context(), unit, metav1.UpdateOptions{}); err == nil {
			break
		}
		if !isConflict(err) {
			t.Fatal(err)
		}
	}
	until(t, runtimeLimit, name, env.Host().CoreV1().Pods(s.name).Watch, func(now *corev1.Pod) string {
		if now.Spec.NodeName != "node-b" || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("runs on %q", now.Spec.NodeName)
		}
		return ""
	})
	s.reads(t, "mixing", "drive/speed=1480", "drive/temperature=215")

	must(t, s.units().Delete(t.Context(), "mixing", metav1.DeleteOptions{}))
	harness.Eventually(t, runtimeLimit, func() string {
		_, podErr := env.Host().CoreV1().Pods(s.name).Get(t.Context(), name, metav1.GetOptions{})
		_, configErr := env.Host().CoreV1().ConfigMaps(s.name).Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(podErr) || !apierrors.IsNotFound(configErr) {
			return fmt.Sprintf("there is a pod (%v) or a ConfigMap (%v)", podErr, configErr)
		}
		return ""
	})
	until(t, runtimeLimit, "drive", controlModules.Watch, func(c *v1alpha1.ControlModule) string {
		return lacks(c.Status.Conditions, "ReferencesResolved", metav1.ConditionFalse)
	})
}

// Req: P-14, P-15 (one connection, one probe, two Units)
func TestADeviceWithOneConnectionIsReadThroughItsProbeByTwoUnits(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	d.MaxClients(1)
	s.add(t, "mixer", d, 1, func(spec *v1alpha1.IOModuleSpec) { spec.Modbus.MaxConnections = ptr.To[int32](1) })
	s.online(t, firstLimit, "mixer")
	states := s.states(t, "mixer")
	for _, unit := range []string{"mixing", "cleaning"} {
		s.addUnit(t, unit)
		s.addTags(t, "of-"+unit, unit, registers("temperature", "mixer", 0))
	}
	for _, unit := range []string{"mixing", "cleaning"} {
		s.inContact(t, unit)
		s.reads(t, unit, "of-"+unit+"/temperature=215")
		report, err := s.runtime(t, unit).Report(t.Context())
		must(t, err)
		if len(report.Modules) != 1 || report.Modules[0].Via != "probe" {
			t.Errorf("Unit %s reaches its modules as %+v", unit, report.Modules)
		}
	}
	if open := d.Open(); open != 1 {
		t.Errorf("%d connections to the device are open", open)
	}
	// The probe moves, and both follow it.
	before := podOf(t, s.name, probeName).UID
	must(t, env.Host().CoreV1().Pods(s.name).Delete(t.Context(), probeName, metav1.DeleteOptions{}))
	until(t, firstLimit, probeName, env.Host().CoreV1().Pods(s.name).Watch, func(now *corev1.Pod) string {
		if now.UID == before || now.Status.Phase != corev1.PodRunning {
			return "is not made anew"
		}
		return ""
	})
	s.online(t, firstLimit, "mixer")
	for _, unit := range []string{"mixing", "cleaning"} {
		s.reads(t, unit, "of-"+unit+"/temperature=215")
	}
	if open := d.Open(); open != 1 {
		t.Errorf("%d connections to the device are open", open)
	}
	states.neverFaulty(t)
}

// A new server has yet to hear of the runtimes, and alarms nobody for that.
//
// Req: A-06, P-16b
func TestARestartOfTheServerIsNoTroubleOfARuntime(t *testing.T) {
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "mixer", d, 1)
	s.online(t, firstLimit, "mixer")
	s.addUnit(t, "mixing")
	s.addTags(t, "drive", "mixing", registers("temperature", "mixer", 0))
	s.inContact(t, "mixing")
	start := &v1alpha1.UnitCommand{Spec: v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandStart}}
	_, err := s.units().Command(t.Context(), "mixing", start, metav1.CreateOptions{})
	must(t, err)
	running := until(t, onlineLimit, "mixing", s.units().Watch, func(u *v1alpha1.Unit) string {
		if u.Status.State != v1alpha1.UnitRunning {
			return "is " + string(u.Status.State)
		}
		return lacks(u.Status.Conditions, "RuntimeReady", metav1.ConditionTrue)
	})
	pod := podOf(t, s.name, probepod.RuntimeName("mixing"))

	env.Installation.Kill()
	must(t, env.Installation.StartServer(t.Context()))
	must(t, env.Installation.WaitAvailable(t.Context()))

	// What comes after the restart is judged by the new server.
	d.fault(t, "closed")
	held := until(t, onlineLimit, "mixing", s.units().Watch, func(u *v1alpha1.Unit) string {
		if u.Status.State != v1alpha1.UnitHeld {
			return "is " + string(u.Status.State)
		}
		return lacks(u.Status.Conditions, "RuntimeReady", metav1.ConditionTrue)
	})
	before, after := meta.FindStatusCondition(running.Status.Conditions, "RuntimeReady"), meta.FindStatusCondition(held.Status.Conditions, "RuntimeReady")
	if !before.LastTransitionTime.Equal(&after.LastTransitionTime) {
		t.Errorf("the runtime was ready since %s, and is since %s", before.LastTransitionTime, after.LastTransitionTime)
	}
	if events := withReason(eventsOn(t, s.name, "Unit", "mixing"), corev1.EventTypeWarning, "RuntimeUnreachable"); len(events) > 0 {
		t.Errorf("it was alarmed: %q", events)
	}
	if now := podOf(t, s.name, pod.Name); now.UID != pod.UID {
		t.Error("the runtime was made anew")
	}
}

// Req: P-11, P-15
func TestWhenTheNodeOfARuntimeIsLostItIsMadeAnewElsewhereWithinAMinute(t *testing.T) {
	pool := map[string]string{"pool": "runtimes"}
	must(t, env.Cluster.AddNode(t.Context(), "runtimes-1", pool))
	s, d := newSite(t), newDevice(t, 1)
	s.add(t, "mixer", d, 1)
	unit := &v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: "mixing"}, Spec: v1alpha1.UnitSpec{NodeSelector: pool}}
	_, err := s.units().Create(t.Context(), unit, metav1.CreateOptions{})
	must(t, err)
	s.addTags(t, "drive", "mixing", registers("temperature", "mixer", 0))
	s.inContact(t, "mixing")
	name := probepod.RuntimeName("mixing")
	before := podOf(t, s.name, name)
	if before.Spec.NodeName != "runtimes-1" {
		t.Fatalf("the runtime runs on %s", before.Spec.NodeName)
	}
	env.MustKubectl(t, "", "cordon", "runtimes-1")
	must(t, env.Cluster.AddNode(t.Context(), "runtimes-2", pool))
	t.Parallel()

	lost := time.Now()
	must(t, env.Cluster.LoseNode("runtimes-1"))
	until(t, time.Minute, name, env.Host().CoreV1().Pods(s.name).Watch, func(now *corev1.Pod) string {
		if now.UID == before.UID || now.Status.Phase != corev1.PodRunning {
			return "is not made anew"
		}
		return ""
	})
	s.inContact(t, "mixing")
	s.reads(t, "mixing", "drive/temperature=215")
	if took := time.Since(lost); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if after := podOf(t, s.name, name); after.Spec.NodeName != "runtimes-2" {
		t.Errorf("the runtime runs on %s", after.Spec.NodeName)
	}
	events := withReason(eventsOn(t, s.name, "Unit", "mixing"), corev1.EventTypeWarning, "RuntimeNodeLost")
	if len(events) != 1 || !containsAll(events[0], "runtimes-1") {
		t.Errorf("the loss is told %d times: %q", len(events), events)
	}
}
