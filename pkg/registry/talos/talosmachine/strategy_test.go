package talosmachine

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/install"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const (
	uuid     = "4c4c4544-0042-3510-8051-b4c04f4b4c32"
	onScreen = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=" // 32 bytes
	another  = "YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI="
)

var (
	now  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	noon = clocktesting.NewFakePassiveClock(now)
	// earlier is when the stored approval was given.
	earlier = metav1.NewTime(now.Add(-time.Hour))
)

func scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}

func as(name, verb, subresource string) context.Context {
	ctx := genericapirequest.WithNamespace(context.Background(), "plant")
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: name})
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1",
		Namespace: "plant", Resource: "talosmachines", Subresource: subresource, Name: uuid,
	})
}

// pending is a machine as discovery registers it.
func pending() *talos.TalosMachine {
	return &talos.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "plant", Name: uuid, UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: earlier,
			Labels: map[string]string{"line": "2"}, Finalizers: []string{"plant.example/keep"},
		},
		Spec: talos.TalosMachineSpec{
			ClusterRef: talos.ClusterReference{Name: "line2"},
			Identity:   talos.MachineIdentity{UUID: uuid, Serial: "S1", MACAddresses: []string{"b4:45:06:aa:00:02"}},
			Endpoint:   "192.0.2.10",
		},
		Status: talos.TalosMachineStatus{Phase: talos.MachinePending, ObservedEndpoint: "192.0.2.10"},
	}
}

// approvedBy is a machine that somebody approved an hour ago.
func approvedBy(name string) *talos.TalosMachine {
	machine := pending()
	machine.Spec.Approved = ptr.To(true)
	machine.Spec.Role = talos.RoleControlPlane
	machine.Spec.Install = &talos.MachineInstall{Disk: "/dev/sda"}
	machine.Spec.AcceptedFingerprint = onScreen
	machine.Status.Phase = talos.MachineApproved
	machine.Status.Approval = &talos.MachineApproval{
		User: name, Time: earlier, Identity: machine.Spec.Identity, Fingerprint: onScreen, Role: talos.RoleControlPlane,
	}
	return machine
}

func rejected() *talos.TalosMachine {
	machine := pending()
	machine.Spec.Rejected = &talos.MachineRejection{Reason: "not ours"}
	machine.Status.Phase = talos.MachineRejected
	return machine
}

func inPhase(machine *talos.TalosMachine, phase talos.MachinePhase, applied bool) *talos.TalosMachine {
	machine.Status.Phase = phase
	machine.Status.Configuration = &talos.MachineConfiguration{IntendedAt: &earlier}
	if applied {
		machine.Status.Configuration.AppliedAt = &earlier
	}
	return machine
}

// Req: T-13. The table of what becomes of approval and phase, on both paths that can write them.
func TestWhatAnApprovalLeavesBehind(t *testing.T) {
	given := func(user, fingerprint string, unverified bool, role talos.MachineRole, when metav1.Time) *talos.MachineApproval {
		return &talos.MachineApproval{
			User: user, Time: when, Identity: pending().Spec.Identity,
			Fingerprint: fingerprint, UnverifiedFingerprint: unverified, Role: role,
		}
	}
	kept := given("bo", onScreen, false, talos.RoleControlPlane, earlier)
	for _, tc := range []struct {
		name     string
		stored   *talos.TalosMachine
		write    func(*talos.TalosMachineSpec)
		approval *talos.MachineApproval
		phase    talos.MachinePhase
	}{
		{
			name: "a write that says nothing of approval changes nothing", stored: pending(),
			write: func(spec *talos.TalosMachineSpec) { spec.NodeLabels = map[string]string{"a": "b"} }, phase: talos.MachinePending,
		},
		{
			name: "approving records who, when, and for which identity and fingerprint", stored: pending(),
			write: func(spec *talos.TalosMachineSpec) {
				spec.Approved, spec.AcceptedFingerprint = ptr.To(true), onScreen
			},
			approval: given("ada", onScreen, false, "", metav1.NewTime(now)), phase: talos.MachineApproved,
		},
		{
			name: "approving without a fingerprint records that this was accepted", stored: pending(),
			write: func(spec *talos.TalosMachineSpec) {
				spec.Approved, spec.AcceptUnverifiedFingerprint = ptr.To(true), true
			},
			approval: given("ada", "", true, "", metav1.NewTime(now)), phase: talos.MachineApproved,
		},
		{
			name: "writing true over true leaves the first approver", stored: approvedBy("bo"),
			write: func(spec *talos.TalosMachineSpec) { spec.Approved = ptr.To(true) }, approval: kept, phase: talos.MachineApproved,
		},
		{
			name: "another role is another approval", stored: approvedBy("bo"),
			write:    func(spec *talos.TalosMachineSpec) { spec.Role = talos.RoleWorker },
			approval: given("ada", onScreen, false, talos.RoleWorker, metav1.NewTime(now)), phase: talos.MachineApproved,
		},
		{
			name: "another disk is another approval", stored: approvedBy("bo"),
			write:    func(spec *talos.TalosMachineSpec) { spec.Install = &talos.MachineInstall{Disk: "/dev/sdb"} },
			approval: given("ada", onScreen, false, talos.RoleControlPlane, metav1.NewTime(now)), phase: talos.MachineApproved,
		},
		{
			name: "labels and taints, which take no approval, leave the approver", stored: approvedBy("bo"),
			write: func(spec *talos.TalosMachineSpec) {
				spec.NodeLabels, spec.NodeTaints = map[string]string{"a": "b"}, []talos.NodeTaint{{Key: "k"}}
			}, approval: kept, phase: talos.MachineApproved,
		},
		{
			name: "another fingerprint is another approval", stored: approvedBy("bo"),
			write:    func(spec *talos.TalosMachineSpec) { spec.AcceptedFingerprint = another },
			approval: given("ada", another, false, talos.RoleControlPlane, metav1.NewTime(now)), phase: talos.MachineApproved,
		},
		{
			name: "accepting no fingerprint at all is another approval", stored: approvedBy("bo"),
			write:    func(spec *talos.TalosMachineSpec) { spec.AcceptUnverifiedFingerprint = true },
			approval: given("ada", onScreen, true, talos.RoleControlPlane, metav1.NewTime(now)), phase: talos.MachineApproved,
		},
		{
			name: "another fingerprint of a machine that failed leaves its phase to the controller", stored: inPhase(approvedBy("bo"), talos.MachineFailed, false),
			write:    func(spec *talos.TalosMachineSpec) { spec.AcceptedFingerprint = another },
			approval: given("ada", another, false, talos.RoleControlPlane, metav1.NewTime(now)), phase: talos.MachineFailed,
		},
		{
			name: "false takes the approval back", stored: approvedBy("bo"),
			write: func(spec *talos.TalosMachineSpec) { spec.Approved = ptr.To(false) }, phase: talos.MachinePending,
		},
		{
			name: "false before anything was accepted by the machine makes it pending", stored: inPhase(approvedBy("bo"), talos.MachineConfiguring, false),
			write: func(spec *talos.TalosMachineSpec) { spec.Approved = ptr.To(false) }, phase: talos.MachinePending,
		},
		{
			name: "false after the machine took its configuration leaves the phase, which tells how that goes", stored: inPhase(approvedBy("bo"), talos.MachineRunning, true),
			write: func(spec *talos.TalosMachineSpec) { spec.Approved = ptr.To(false) }, phase: talos.MachineRunning,
		},
		{
			name: "approving again after that records it and leaves the phase", stored: inPhase(pending(), talos.MachineRunning, true),
			write: func(spec *talos.TalosMachineSpec) {
				spec.Approved, spec.AcceptedFingerprint = ptr.To(true), onScreen
			},
			approval: given("ada", onScreen, false, "", metav1.NewTime(now)), phase: talos.MachineRunning,
		},
		{
			name: "rejecting shows in the phase", stored: pending(),
			write: func(spec *talos.TalosMachineSpec) { spec.Rejected = &talos.MachineRejection{Reason: "not ours"} }, phase: talos.MachineRejected,
		},
		{
			name: "rejecting an approved machine takes the approval back", stored: approvedBy("bo"),
			write: func(spec *talos.TalosMachineSpec) {
				spec.Approved, spec.Rejected = ptr.To(false), &talos.MachineRejection{Reason: "not ours"}
			}, phase: talos.MachineRejected,
		},
		{
			name: "another reason stays rejected", stored: rejected(),
			write: func(spec *talos.TalosMachineSpec) { spec.Rejected = &talos.MachineRejection{Reason: "scrap"} }, phase: talos.MachineRejected,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for path, strategy := range map[string]rest.RESTUpdateStrategy{"": newMain(scheme(), noon), "approval": newApproval(scheme(), noon)} {
				stored, machine := tc.stored.DeepCopy(), tc.stored.DeepCopy()
				tc.write(&machine.Spec)
				// Nobody approves in somebody else's name.
				machine.Status.Approval = &talos.MachineApproval{User: "mallory"}
				machine.Status.Phase = talos.MachineRunning
				strategy.PrepareForUpdate(as("ada", "update", path), machine, stored)
				if !reflect.DeepEqual(machine.Status.Approval, tc.approval) {
					t.Errorf("/%s: approval %+v, want %+v", path, machine.Status.Approval, tc.approval)
				}
				if machine.Status.Phase != tc.phase {
					t.Errorf("/%s: phase %s, want %s", path, machine.Status.Phase, tc.phase)
				}
				if !reflect.DeepEqual(stored, tc.stored) {
					t.Errorf("/%s: the stored machine was changed", path)
				}
			}
		})
	}
}

// Req: T-13. On the main resource an absent member keeps what is stored, so a rejection is cleared through the subresource.
func TestARejectionIsClearedThroughTheApprovalSubresourceAlone(t *testing.T) {
	machine := rejected()
	machine.Spec.Rejected = nil
	newMain(scheme(), noon).PrepareForUpdate(as("ada", "update", ""), machine, rejected())
	if machine.Spec.Rejected == nil || machine.Status.Phase != talos.MachineRejected {
		t.Errorf("a manifest that omits the rejection cleared it: %+v, %s", machine.Spec.Rejected, machine.Status.Phase)
	}
	machine = rejected()
	machine.Spec.Rejected = nil
	newApproval(scheme(), noon).PrepareForUpdate(as("ada", "update", "approval"), machine, rejected())
	if machine.Spec.Rejected != nil || machine.Status.Phase != talos.MachinePending {
		t.Errorf("the rejection was not cleared: %+v, %s", machine.Spec.Rejected, machine.Status.Phase)
	}
}

// Req: T-13, T-11
func TestAMachineIsCreatedAsItIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		name     string
		write    func(*talos.TalosMachineSpec)
		approver string
		phase    talos.MachinePhase
	}{
		{name: "pending, without a role and without an approval", write: func(*talos.TalosMachineSpec) {}, phase: talos.MachinePending},
		{name: "approved by its creator", write: func(spec *talos.TalosMachineSpec) { spec.Approved = ptr.To(true) }, approver: "ada", phase: talos.MachineApproved},
		{name: "rejected", write: func(spec *talos.TalosMachineSpec) { spec.Rejected = &talos.MachineRejection{Reason: "x"} }, phase: talos.MachineRejected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			machine := approvedBy("mallory")
			machine.Spec = pending().Spec
			machine.Status.Hardware = &talos.MachineHardware{Manufacturer: "forged"}
			tc.write(&machine.Spec)
			wanted := machine.Spec.DeepCopy()
			newMain(scheme(), noon).PrepareForCreate(as("ada", "create", ""), machine)
			if !reflect.DeepEqual(&machine.Spec, wanted) {
				t.Errorf("the spec was changed to %+v", machine.Spec)
			}
			if machine.Status.Phase != tc.phase || machine.Status.Hardware != nil || machine.Generation != 1 {
				t.Errorf("phase %s, hardware %+v, generation %d", machine.Status.Phase, machine.Status.Hardware, machine.Generation)
			}
			approver := ""
			if machine.Status.Approval != nil {
				approver = machine.Status.Approval.User
			}
			if approver != tc.approver {
				t.Errorf("approved by %q, want %q", approver, tc.approver)
			}
		})
	}
}

// Req: T-13. Who approved is known from the request that did, and cannot be written.
func TestTheApprovalCannotBeWrittenThroughStatus(t *testing.T) {
	for name, stored := range map[string]*talos.TalosMachine{"pending": pending(), "approved": approvedBy("bo")} {
		machine := stored.DeepCopy()
		machine.Spec.Approved, machine.Spec.Role = ptr.To(true), talos.RoleWorker
		machine.Status.Approval = &talos.MachineApproval{User: "mallory", Time: metav1.NewTime(now)}
		machine.Status.Phase, machine.Status.NodeName = talos.MachineRunning, "n1"
		machine.Generation = 9
		newStatusOnly(scheme()).PrepareForUpdate(as("mallory", "update", "status"), machine, stored)
		if !reflect.DeepEqual(machine.Status.Approval, stored.Status.Approval) {
			t.Errorf("%s: approval %+v, want %+v", name, machine.Status.Approval, stored.Status.Approval)
		}
		if !reflect.DeepEqual(machine.Spec, stored.Spec) || machine.Generation != 3 {
			t.Errorf("%s: the spec was changed through status", name)
		}
		if machine.Status.Phase != talos.MachineRunning || machine.Status.NodeName != "n1" {
			t.Errorf("%s: the rest of status was not written: %+v", name, machine.Status)
		}
	}
}

// Req: A-05
func TestTheEndpointSubresourceWritesTheEndpointAlone(t *testing.T) {
	machine, stored := approvedBy("mallory"), pending()
	machine.Spec.Endpoint = "198.51.100.7"
	machine.Labels, machine.Finalizers = map[string]string{"line": "9"}, nil
	newEndpoint(scheme(), noon).PrepareForUpdate(as("ada", "update", "endpoint"), machine, stored)
	want := pending()
	want.Spec.Endpoint, want.Generation = "198.51.100.7", 4
	if !reflect.DeepEqual(machine, want) {
		t.Errorf("have %+v, want %+v", machine, want)
	}

	approved := approvedBy("bo")
	machine = approvedBy("bo")
	machine.Spec.Endpoint = "198.51.100.7"
	newEndpoint(scheme(), noon).PrepareForUpdate(as("ada", "update", "endpoint"), machine, approved)
	if !reflect.DeepEqual(machine.Status, approved.Status) {
		t.Errorf("another endpoint changed the approval to %+v", machine.Status.Approval)
	}
}

// full has every member of the spec set, and set to something else in each of two variants.
func full(t *testing.T, variant string) talos.TalosMachineSpec {
	t.Helper()
	spec := talos.TalosMachineSpec{
		ClusterRef: talos.ClusterReference{Name: variant}, Identity: talos.MachineIdentity{UUID: variant},
		Role: talos.MachineRole(variant), Approved: ptr.To(variant == "a"), Rejected: &talos.MachineRejection{Reason: variant},
		Endpoint: variant, NodeLabels: map[string]string{variant: "x"}, NodeTaints: []talos.NodeTaint{{Key: variant}},
		Install: &talos.MachineInstall{Disk: variant}, DiskRoles: []talos.DiskRole{{Role: variant}},
		Network: &talos.MachineNetwork{Hostname: variant}, ConfigPatches: []string{variant}, AcceptedFingerprint: variant,
		AcceptUnverifiedFingerprint: true, AcceptSharedHardware: true,
	}
	for i := range reflect.TypeOf(spec).NumField() {
		if reflect.ValueOf(spec).Field(i).IsZero() {
			t.Fatalf("%s is a new member of the spec: set it here, and say below whether it belongs to the approval set", reflect.TypeOf(spec).Field(i).Name)
		}
	}
	return spec
}

// ownMembers do not belong to the approval set: a manifest that omits one clears it.
var ownMembers = []string{"ClusterRef", "Identity", "Endpoint", "ConfigPatches"}

// The approval set is written down three times: what the subresource takes over, what server-side apply knows of that,
// and what a manifest that omits it leaves alone. A member that is in one and not in the others would be wiped, or un-approve.
//
// Req: T-13
func TestTheApprovalSetIsTheSameEverywhere(t *testing.T) {
	from := full(t, "a")
	// What the subresource takes over: each member alone.
	var copied talos.TalosMachineSpec
	copyApproval(&copied, &from)
	// What a manifest that is silent leaves alone.
	var silent talos.TalosMachineSpec
	keepAbsentApproval(&silent, from)
	// What server-side apply knows, by the members' names on the wire.
	known := map[string]bool{}
	for _, path := range approvalFields() {
		if len(path) != 2 || path[0] != "spec" {
			t.Fatalf("path %v is no member of spec", path)
		}
		known[path[1].(string)] = true
	}

	wire := reflect.TypeFor[v1alpha1.TalosMachineSpec]()
	members := 0
	for i := range reflect.TypeOf(from).NumField() {
		name := reflect.TypeOf(from).Field(i).Name
		belongs := !slices.Contains(ownMembers, name)
		value := reflect.ValueOf(from).Field(i).Interface()
		if got := reflect.DeepEqual(reflect.ValueOf(copied).Field(i).Interface(), value); got != belongs {
			t.Errorf("copyApproval takes over %s: %v, want %v", name, got, belongs)
		}
		if got := reflect.DeepEqual(reflect.ValueOf(silent).Field(i).Interface(), value); got != belongs {
			t.Errorf("keepAbsentApproval keeps %s: %v, want %v", name, got, belongs)
		}
		served, ok := wire.FieldByName(name)
		if !ok {
			t.Fatalf("%s is not served", name)
		}
		tag, _, _ := strings.Cut(served.Tag.Get("json"), ",")
		if known[tag] != belongs {
			t.Errorf("approvalFields has %s: %v, want %v", tag, known[tag], belongs)
		}
		if belongs {
			members++
		}
	}
	if len(known) != members {
		t.Errorf("approvalFields has %d members, the set %d", len(known), members)
	}
}

// Req: T-13. For each member: one that is sent is taken, one that is absent is kept.
func TestAManifestThatOmitsAMemberKeepsIt(t *testing.T) {
	stored, sent := full(t, "a"), full(t, "b")
	for i := range reflect.TypeOf(stored).NumField() {
		name := reflect.TypeOf(stored).Field(i).Name
		spec := *sent.DeepCopy()
		reflect.ValueOf(&spec).Elem().Field(i).SetZero()
		before := *spec.DeepCopy()
		keepAbsentApproval(&spec, *stored.DeepCopy())
		for j := range reflect.TypeOf(stored).NumField() {
			want := reflect.ValueOf(before).Field(j).Interface()
			if i == j && !slices.Contains(ownMembers, name) {
				want = reflect.ValueOf(stored).Field(j).Interface()
			}
			if got := reflect.ValueOf(spec).Field(j).Interface(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s omitted: %s is %+v, want %+v", name, reflect.TypeOf(stored).Field(j).Name, got, want)
			}
		}
	}
}

// Req: T-13. As JSON tells an empty member from an absent one, so does the main resource: saying "none" is a change.
func TestSayingNoneIsNotSayingNothing(t *testing.T) {
	var sent v1alpha1.TalosMachine
	if err := json.Unmarshal([]byte(`{"spec":{"nodeLabels":{},"nodeTaints":[],"diskRoles":[],"network":{},"approved":false}}`), &sent); err != nil {
		t.Fatal(err)
	}
	var spec talos.TalosMachineSpec
	if err := v1alpha1.Convert_v1alpha1_TalosMachineSpec_To_talos_TalosMachineSpec(&sent.Spec, &spec, nil); err != nil {
		t.Fatal(err)
	}
	keepAbsentApproval(&spec, full(t, "a"))
	if len(spec.NodeLabels) != 0 || len(spec.NodeTaints) != 0 || len(spec.DiskRoles) != 0 || spec.Network.Hostname != "" || *spec.Approved {
		t.Errorf("an empty member was taken for an absent one: %+v", spec)
	}
	if spec.Role != "a" || spec.Install == nil {
		t.Errorf("an absent member was not kept: %+v", spec)
	}
}

// Req: A-04, T-11, T-13. The whole of what the store does with an update, without its etcd.
func TestUpdatesAsTheStoreMakesThem(t *testing.T) {
	for _, tc := range []struct {
		name   string
		path   string
		stored *talos.TalosMachine
		write  func(*talos.TalosMachine)
		// wrong is part of the refusal; "" when the write is accepted.
		wrong string
	}{
		{
			name: "approving through the subresource", path: "approval", stored: pending(), write: func(m *talos.TalosMachine) {
				m.Spec = approvedBy("x").Spec
			},
		},
		{
			name: "approving through the main resource", stored: pending(), write: func(m *talos.TalosMachine) { m.Spec = approvedBy("x").Spec },
		},
		{
			name: "approving without a role", path: "approval", stored: pending(), write: func(m *talos.TalosMachine) {
				m.Spec = approvedBy("x").Spec
				m.Spec.Role = ""
			}, wrong: "spec.role",
		},
		{
			name: "an unknown role", path: "approval", stored: pending(), write: func(m *talos.TalosMachine) { m.Spec.Role = "boss" }, wrong: "spec.role",
		},
		{
			name: "clearing the role of an approved machine through the subresource", path: "approval", stored: approvedBy("bo"),
			write: func(m *talos.TalosMachine) { m.Spec.Role = "" }, wrong: "spec.role",
		},
		{
			name: "a manifest that omits the role of an approved machine", stored: approvedBy("bo"), write: func(m *talos.TalosMachine) { m.Spec.Role = "" },
		},
		{
			name: "another cluster", stored: pending(), write: func(m *talos.TalosMachine) { m.Spec.ClusterRef.Name = "other" }, wrong: "spec.clusterRef",
		},
		{
			name: "another identity", stored: pending(), write: func(m *talos.TalosMachine) { m.Spec.Identity.Serial = "S2" }, wrong: "spec.identity",
		},
		{
			name: "another identity sent to the approval subresource is not written", path: "approval", stored: pending(),
			write: func(m *talos.TalosMachine) { m.Spec.Identity.Serial = "S2" },
		},
		{
			name: "an endpoint that is a name", path: "endpoint", stored: pending(), write: func(m *talos.TalosMachine) { m.Spec.Endpoint = "node1" }, wrong: "spec.endpoint",
		},
		{
			name: "an unknown phase", path: "status", stored: pending(), write: func(m *talos.TalosMachine) { m.Status.Phase = "Dancing" }, wrong: "status.phase",
		},
		{
			name: "an invalid label sent to a subresource is not written", path: "status", stored: pending(), write: func(m *talos.TalosMachine) {
				m.Labels = map[string]string{"not a label": "x"}
			},
		},
		{
			name: "an invalid label", stored: pending(), write: func(m *talos.TalosMachine) { m.Labels = map[string]string{"not a label": "x"} }, wrong: "metadata.labels",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			strategies := map[string]rest.RESTUpdateStrategy{
				"": newMain(scheme(), noon), "status": newStatusOnly(scheme()),
				"approval": newApproval(scheme(), noon), "endpoint": newEndpoint(scheme(), noon),
			}
			machine := tc.stored.DeepCopy()
			tc.write(machine)
			err := rest.BeforeUpdate(strategies[tc.path], as("ada", "update", tc.path), machine, tc.stored)
			switch {
			case err == nil && tc.wrong != "":
				t.Errorf("accepted, want it refused for %s", tc.wrong)
			case err != nil && (tc.wrong == "" || !strings.Contains(err.Error(), tc.wrong)):
				t.Errorf("refused: %v, want %q", err, tc.wrong)
			}
		})
	}
}

// Req: T-05, T-11
func TestACreateAsTheStoreMakesIt(t *testing.T) {
	machine := pending()
	machine.ObjectMeta = metav1.ObjectMeta{Namespace: "plant", Name: uuid}
	rest.FillObjectMetaSystemFields(machine)
	if err := rest.BeforeCreate(newMain(scheme(), noon), as("ada", "create", ""), machine); err != nil {
		t.Fatal(err)
	}
	if machine.Spec.Role != "" || machine.Spec.Approved != nil {
		t.Errorf("defaulted: role %q, approved %v", machine.Spec.Role, machine.Spec.Approved)
	}
	machine = pending()
	machine.ObjectMeta = metav1.ObjectMeta{Namespace: "plant", Name: "machine-1"}
	rest.FillObjectMetaSystemFields(machine)
	if err := rest.BeforeCreate(newMain(scheme(), noon), as("ada", "create", ""), machine); err == nil || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("a name that is not the UUID: %v", err)
	}
}
