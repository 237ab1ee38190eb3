package chain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/plant"
)

// Req: T-05, T-13, T-18
func TestAMachineWithAnothersSerialIsToldAndApprovedOnlyWhenThatIsAccepted(t *testing.T) {
	t.Parallel()
	var serial string
	p := newNodes(t, func(spec *plant.TalosSpec) {
		if serial == "" {
			serial = spec.Serial
		}
		spec.Serial = serial
	}, "first", "second")
	first, second := p.Node("first"), p.Node("second")
	f := newFleetOf(t, p, "first")
	f.names = []string{"first", "second"}
	f.pending(t, first)
	// It comes later, so that it is the one that is told.
	f.declare(t, addresses(host(first), host(second)))
	m := f.has(t, sweepLimit, "second", "SharesHardware", "True SharesHardware")
	if text := fmt.Sprint(m.Status.Conditions); !containsAll(text, f.uuid("first"), serial) {
		t.Errorf("the condition does not name the other machine and what they share: %s", text)
	}
	if m.Status.Phase != v1alpha1.MachinePending {
		t.Errorf("phase is %q", m.Status.Phase)
	}
	if have := condition(f.pending(t, first).Status.Conditions, "SharesHardware"); have != "" {
		t.Errorf("the first one is told, too: %s", have)
	}
	if line := told(t, f.namespace, "TalosCluster", clusterName, corev1.EventTypeWarning, "SharesHardware"); !containsAll(line, f.uuid("first"), f.uuid("second")) {
		t.Errorf("told is %q", line)
	}
	found := f.sweepAgain(t).Status.Discovery
	if len(found.Collisions) != 1 || found.Collisions[0].Reason != v1alpha1.FindingSharesHardware || found.Collisions[0].MachineName != f.uuid("first") || found.Collisions[0].Address != host(second) {
		t.Errorf("collisions are %+v", found.Collisions)
	}

	// Refused on every path, with the other machine's name.
	patch := func(more string, args ...string) (string, error) {
		return env.Kubectl(t, "", append([]string{"patch", "talosmachine", m.Name, "-n", f.namespace, "--type=merge", "-p",
			`{"spec":{"approved":true,"role":"worker","install":{"disk":"` + talosDisk + `"}` + more + `}}`}, args...)...)
	}
	for _, args := range [][]string{nil, {"--subresource=approval"}} {
		output, err := patch("", args...)
		if err == nil || !containsAll(output, "acceptSharedHardware", f.uuid("first")) {
			t.Errorf("kubectl patch %v: %v\n%s", args, err, output)
		}
	}
	approve := []string{"approve", "machine", m.Name, "-n", f.namespace, "--yes", "--role", "worker", "--install-disk", talosDisk}
	if output, err := plugin(t, approve...); err == nil || !containsAll(output, "--accept-shared-hardware", f.uuid("first")) {
		t.Errorf("approved: %v\n%s", err, output)
	}
	if m := f.get(t, "second"); m.Spec.Approved != nil && *m.Spec.Approved {
		t.Error("a machine that was refused is approved")
	}
	receivedNothing(t, first, second)

	mustPlugin(t, append(approve, "--accept-shared-hardware")...)
	m = f.applied(t, m.Name)
	if a := m.Status.Approval; a == nil || !a.SharedHardware {
		t.Errorf("that it was accepted is recorded as %+v", a)
	}
	receivedOne(t, second, v1alpha1.RoleWorker)
	// The first one is not the later one, and needs no acceptance.
	f.approveAs(t, "first", v1alpha1.RoleWorker)
	f.applied(t, f.uuid("first"))
	receivedOne(t, first, v1alpha1.RoleWorker)
}

// Req: T-05, T-13, T-18. The acceptance by plain kubectl, and an approval that came before anybody knew.
func TestSharedHardwareThatIsFoundAfterTheApprovalStopsTheConfiguration(t *testing.T) {
	t.Parallel()
	var mac string
	p := newNodes(t, func(spec *plant.TalosSpec) {
		if mac == "" {
			mac = spec.Links[0].MAC
		}
		spec.Links = slices.Clone(spec.Links)
		spec.Links[0].MAC = mac
	}, "first", "second")
	first, second := p.Node("first"), p.Node("second")
	f := newFleetOf(t, p, "first")
	f.names = []string{"first", "second"}
	f.pending(t, first)
	// Registered by hand and approved in one step: nothing of it is known yet.
	f.editCluster(t, `{"paused":true}`)
	hw := second.Hardware()
	approved := true
	_, err := f.machines.Create(t.Context(), &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: hw.UUID},
		Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: clusterName},
			Identity:   v1alpha1.MachineIdentity{UUID: hw.UUID, Serial: hw.Serial, MACAddresses: []string{mac}},
			Endpoint:   host(second), Approved: &approved, Role: v1alpha1.RoleWorker, Install: &v1alpha1.MachineInstall{Disk: talosDisk},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	f.has(t, sweepLimit, "second", "SharesHardware", "True SharesHardware")
	f.editCluster(t, `{"paused":false}`)
	f.configured(t, f.uuid("second"), "False SharedHardwareNotAccepted")
	f.wake(t)
	f.sweepAgain(t)
	receivedNothing(t, second)

	env.MustKubectl(t, "", "patch", "talosmachine", hw.UUID, "-n", f.namespace, "--subresource=approval", "--type=merge", "-p", `{"spec":{"acceptSharedHardware":true}}`)
	m := f.applied(t, hw.UUID)
	if a := m.Status.Approval; a == nil || !a.SharedHardware {
		t.Errorf("that it was accepted is recorded as %+v", a)
	}
	receivedOne(t, second, v1alpha1.RoleWorker)
	receivedNothing(t, first)
}

// Req: T-05, T-07, T-09, P-12
func TestAMachineOfAnotherNamespaceIsToldWithoutThatNamespacesNameAndNotRegisteredTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "claimed")
	f.pending(t, f.node("claimed"))
	leftAlone := f.leftAlone(t, "claimed")
	other := newCell(t, addresses(host(f.node("claimed")))).withBundle(t, secretsBundle())
	other.tellsNothing(t)
	found := other.swept(t).Status.Discovery
	if found.Registered != 0 || found.Answered != 1 || len(found.Collisions) != 1 || found.Collisions[0].Reason != v1alpha1.FindingIdentityClaimed ||
		found.Collisions[0].Address != host(f.node("claimed")) {
		t.Errorf("found is %+v", found)
	}
	line := told(t, other.namespace, "TalosCluster", clusterName, corev1.EventTypeWarning, "IdentityClaimed")
	other.sweepAgain(t)
	other.sweepAgain(t)
	if lines := withReason(eventsOn(t, other.namespace, "TalosCluster", clusterName), corev1.EventTypeWarning, "IdentityClaimed"); len(lines) != 1 {
		t.Errorf("told %d times: %q", len(lines), lines)
	}
	// site-1 is in site-12, so whole words.
	objects := env.MustKubectl(t, "", "get", "talosclusters,talosmachines,events", "-n", other.namespace, "-o", "yaml")
	for _, text := range []string{line, objects} {
		if slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", r) }), f.namespace) {
			t.Errorf("the other namespace is named: %s", text)
		}
	}
	if !strings.Contains(objects, "IdentityClaimed") {
		t.Error("this test looks in the wrong place")
	}
	machines, err := other.machines.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(machines.Items) != 0 {
		t.Errorf("registered twice: %+v", machines.Items)
	}
	_, err = other.machines.Get(t.Context(), f.uuid("claimed"), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the machine in the second namespace: %v", err)
	}
	leftAlone()
}
