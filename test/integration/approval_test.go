package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	client "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/installation"
)

const fingerprint = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="

// approval is a merge patch that approves a worker, with everything that it needs.
const approval = `{"spec":{"approved":true,"role":"worker","install":{"disk":"/dev/sda"},"network":{"hostname":"w1"}}}`

// machines is a namespace for the tests of approval. Its machines' cluster is paused: nobody configures them.
type machines struct {
	namespace, user string
	kind            kind
	admin           client.TalosMachineInterface
	alice           client.TalosMachineInterface
	made            int
}

// newMachines makes the namespace, and in it a user with the rules.
func newMachines(t *testing.T) *machines {
	t.Helper()
	m := &machines{namespace: env.Namespace(t), kind: kindOf("TalosMachine")}
	// A name of the test's own, so that no test's grants are another's.
	m.user = "alice." + m.namespace
	m.admin = env.Admin(t).TalosV1alpha1().TalosMachines(m.namespace)
	m.alice = env.As(t, m.user).TalosV1alpha1().TalosMachines(m.namespace)
	create(t, kindOf("TalosCluster"), kindOf("TalosCluster").object(m.namespace, "cluster"))
	return m
}

// pending is a new machine that nobody has approved.
func (m *machines) pending(t *testing.T) *v1alpha1.TalosMachine {
	t.Helper()
	m.made++
	object := m.kind.object(m.namespace, m.kind.name(m.made), fields{"configPatches": []any{}})
	delete(object.Object["spec"].(fields), "role")
	create(t, m.kind, object)
	return m.read(t, object.GetName())
}

// approved is a new machine that the administrator has approved.
func (m *machines) approved(t *testing.T) *v1alpha1.TalosMachine {
	t.Helper()
	machine := m.pending(t)
	machine, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(approval), metav1.PatchOptions{}, "approval")
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

func (m *machines) read(t testing.TB, name string) *v1alpha1.TalosMachine {
	t.Helper()
	machine, err := m.admin.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return machine
}

func (m *machines) grant(t *testing.T, verbs, resources string, names ...string) (revoke func()) {
	t.Helper()
	return grant(t, m.namespace, m.user, rule(verbs, resources, names...))
}

// patch tries a merge patch as alice.
func (m *machines) patch(t *testing.T, name, patch string, subresource ...string) error {
	t.Helper()
	_, err := m.alice.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	return err
}

// refused fails unless the error is the 403 that names the verb, the resource and the user.
func (m *machines) refused(t testing.TB, what string, err error, texts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, text := range append(texts, `verb "approve"`, "talosmachines/approval", m.user) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the refusal says nothing of %q: %v", what, text, err)
		}
	}
}

// server is a client in the server's own name, which alone may write status.
func (m *machines) server(t testing.TB) client.TalosMachineInterface {
	t.Helper()
	server, err := versioned.NewForConfig(env.ServerConfig())
	if err != nil {
		t.Fatal(err)
	}
	return server.TalosV1alpha1().TalosMachines(m.namespace)
}

func isApproved(machine *v1alpha1.TalosMachine) bool { return ptr.Deref(machine.Spec.Approved, false) }

// approvalPath is a path on which approval can be tried, and what alice needs for it beside the verb approve.
type approvalPath struct {
	name, verb, resource string
	try                  func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error
}

func approvalPaths() []approvalPath {
	set := func(machine *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
		machine = machine.DeepCopy()
		machine.Spec.Approved, machine.Spec.Role, machine.Spec.Install = ptr.To(true), v1alpha1.RoleWorker, &v1alpha1.MachineInstall{Disk: "/dev/sda"}
		return machine
	}
	applied := func(machine *v1alpha1.TalosMachine) []byte {
		object := kindOf("TalosMachine").object(machine.Namespace, machine.Name, fields{"approved": true, "install": fields{"disk": "/dev/sda"}})
		return []byte(toJSON(object.Object))
	}
	return []approvalPath{
		{"update of the subresource", "update", "talosmachines/approval", func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error {
			_, err := m.alice.UpdateApproval(t.Context(), machine.Name, set(machine), metav1.UpdateOptions{DryRun: dryRun})
			return err
		}},
		{"patch of the subresource", "patch", "talosmachines/approval", func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error {
			_, err := m.alice.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(approval), metav1.PatchOptions{DryRun: dryRun}, "approval")
			return err
		}},
		{"server-side apply of the subresource", "patch", "talosmachines/approval", func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error {
			_, err := m.alice.Patch(t.Context(), machine.Name, types.ApplyPatchType, applied(machine), metav1.PatchOptions{DryRun: dryRun, FieldManager: "alice", Force: ptr.To(true)}, "approval")
			return err
		}},
		{"update of the main resource", "update", "talosmachines", func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error {
			_, err := m.alice.Update(t.Context(), set(machine), metav1.UpdateOptions{DryRun: dryRun})
			return err
		}},
		{"JSON patch of the main resource", "patch", "talosmachines", func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error {
			_, err := m.alice.Patch(t.Context(), machine.Name, types.JSONPatchType, []byte(
				`[{"op":"add","path":"/spec/approved","value":true},{"op":"add","path":"/spec/role","value":"worker"},{"op":"add","path":"/spec/install","value":{"disk":"/dev/sda"}}]`),
				metav1.PatchOptions{DryRun: dryRun})
			return err
		}},
		{"server-side apply of the main resource", "patch", "talosmachines", func(t *testing.T, m *machines, machine *v1alpha1.TalosMachine, dryRun []string) error {
			_, err := m.alice.Patch(t.Context(), machine.Name, types.ApplyPatchType, applied(machine), metav1.PatchOptions{DryRun: dryRun, FieldManager: "alice", Force: ptr.To(true)})
			return err
		}},
	}
}

// Req: T-13, A-03, A-05 (A10)
func TestApprovalNeedsTheVerbOnEveryPathAndItCountsAtTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, path := range approvalPaths() {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			m := newMachines(t)
			dryRun := []string{metav1.DryRunAll}
			try := func(machine *v1alpha1.TalosMachine, dryRun []string) error { return path.try(t, m, machine, dryRun) }
			still := func(machine *v1alpha1.TalosMachine) {
				t.Helper()
				if now := m.read(t, machine.Name); isApproved(now) || now.Status.Approval != nil || now.Generation != machine.Generation {
					t.Errorf("it is changed all the same: %+v %+v", now.Spec, now.Status)
				}
			}
			machine := m.pending(t)

			// The verb approve without the path's own verb is not enough.
			revoke := m.grant(t, "approve", "talosmachines/approval")
			if err := try(machine, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("cannot %s resource %q", path.verb, path.resource)) {
				t.Errorf("without %s on %s: %v", path.verb, path.resource, err)
			}
			revoke()

			m.grant(t, path.verb, path.resource)
			m.refused(t, "without approve", try(machine, nil), "spec.approved")
			m.refused(t, "without approve, dry run", try(machine, dryRun), "spec.approved")
			still(machine)

			// Granted: the next request counts. Taken back: the next request counts.
			for round := range 2 {
				revoke = m.grant(t, "approve", "talosmachines/approval")
				if err := try(machine, dryRun); err != nil {
					t.Errorf("round %d, dry run: %v", round, err)
				}
				still(machine)
				if err := try(machine, nil); err != nil {
					t.Errorf("round %d, granted: %v", round, err)
				}
				now := m.read(t, machine.Name)
				if !isApproved(now) || now.Spec.Role != "worker" || now.Spec.Install == nil || now.Status.Approval == nil || now.Status.Approval.User != m.user {
					t.Errorf("round %d: not all is set in one step: %+v %+v", round, now.Spec, now.Status.Approval)
				}
				machine = m.pending(t)
				revoke()
				m.refused(t, fmt.Sprintf("round %d, revoked", round), try(machine, nil))
				still(machine)
			}
		})
	}
}

// Req: T-13
func TestAMachineIsNotCreatedApprovedWithoutTheVerb(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.grant(t, "create,patch,get", "talosmachines")
	creations := map[string]func(name string, dryRun []string) error{
		"create": func(name string, dryRun []string) error {
			machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TalosMachineSpec{
				ClusterRef: v1alpha1.ClusterReference{Name: "cluster"}, Identity: v1alpha1.MachineIdentity{UUID: name},
				Approved: ptr.To(true), Role: v1alpha1.RoleWorker, Install: &v1alpha1.MachineInstall{Disk: "/dev/sda"},
			}}
			_, err := m.alice.Create(t.Context(), machine, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"server-side apply": func(name string, dryRun []string) error {
			object := m.kind.object(m.namespace, name, fields{"approved": true, "install": fields{"disk": "/dev/sda"}})
			_, err := m.alice.Patch(t.Context(), name, types.ApplyPatchType, []byte(toJSON(object.Object)), metav1.PatchOptions{DryRun: dryRun, FieldManager: "alice"})
			return err
		},
	}
	for how, creation := range creations {
		m.made++
		name := m.kind.name(m.made)
		m.refused(t, how, creation(name, nil), "spec.approved")
		m.refused(t, how+", dry run", creation(name, []string{metav1.DryRunAll}))
		if _, err := m.admin.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: never dropped silently means that nothing is there: %v", how, err)
		}
	}
	m.grant(t, "approve", "talosmachines/approval")
	for how, creation := range creations {
		m.made++
		name := m.kind.name(m.made)
		if err := creation(name, nil); err != nil {
			t.Errorf("%s with approve: %v", how, err)
			continue
		}
		if now := m.read(t, name); !isApproved(now) || now.Status.Approval == nil || now.Status.Approval.User != m.user || now.Status.Phase != v1alpha1.MachineApproved {
			t.Errorf("%s with approve: %+v", how, now.Status)
		}
	}
}

// Req: T-13
func TestOnlyTheMachinesThatARoleNamesMayBeApproved(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	named, other := m.pending(t), m.pending(t)
	m.grant(t, "patch,update", "talosmachines,talosmachines/approval")
	m.grant(t, "create", "talosmachines")
	m.grant(t, "approve", "talosmachines/approval", named.Name, m.kind.name(99))
	for _, subresource := range [][]string{nil, {"approval"}} {
		m.refused(t, fmt.Sprintf("another machine %v", subresource), m.patch(t, other.Name, approval, subresource...))
	}
	// The name in the body decides nothing.
	disguised := named.DeepCopy()
	disguised.Spec.Approved = ptr.To(true)
	if _, err := m.alice.UpdateApproval(t.Context(), other.Name, disguised, metav1.UpdateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("the name of the body: %v", err)
	}
	if isApproved(m.read(t, other.Name)) {
		t.Error("the other machine is approved")
	}
	if err := m.patch(t, named.Name, approval, "approval"); err != nil {
		t.Errorf("the named machine: %v", err)
	}
	// A create has no name in its path, and a generated one could not be known.
	for n, allowed := range map[int]bool{98: false, 99: true} {
		machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: m.kind.name(n)}, Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "cluster"}, Identity: v1alpha1.MachineIdentity{UUID: m.kind.name(n)},
			Approved: ptr.To(true), Role: v1alpha1.RoleWorker, Install: &v1alpha1.MachineInstall{Disk: "/dev/sda"},
		}}
		if _, err := m.alice.Create(t.Context(), machine, metav1.CreateOptions{}); (err == nil) != allowed || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("creating %d: %v", n, err)
		}
	}
}

// Req: T-13, A-05
func TestNeitherEditNorAStatusWriteEverApproves(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	machine := m.pending(t)
	m.grant(t, "get,update,patch", "talosmachines,talosmachines/status,talosmachines/approval")
	if _, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(`{"spec":{"role":"worker","install":{"disk":"/dev/sda"},"approved":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{nil, {"--subresource=approval"}} {
		args := append([]string{"edit", m.kind.full(), machine.Name, "-n", m.namespace, "--as=" + m.user}, path...)
		if output, err := edit(t, `s/approved:.false/approved:\ true/`, args...); err == nil || !strings.Contains(output, `verb "approve"`) {
			t.Errorf("edit %v: %v\n%s", path, err, output)
		}
	}
	for _, patch := range []struct{ how, body string }{
		{"--type=merge", approval},
		{"--type=merge", `{"status":{"phase":"Approved","approval":{"user":"mallory","time":"2026-01-01T00:00:00Z","identity":{}}}}`},
		{"--type=json", `[{"op":"replace","path":"/spec/approved","value":true}]`},
	} {
		args := []string{"patch", m.kind.full(), machine.Name, "-n", m.namespace, "--subresource=status", patch.how, "-p", patch.body}
		kubectlFails(t, "", append(args, "--as="+m.user), "Forbidden", "controllers alone")
		// Nor does the server's own, which is let in.
		env.MustKubectl(t, "", append(args, "--as="+env.ServerConfig().Impersonate.UserName, "--as-group="+env.ServerConfig().Impersonate.Groups[0])...)
		if now := m.read(t, machine.Name); isApproved(now) || now.Status.Approval != nil {
			t.Errorf("patch of status with %s approves: %+v %+v", patch.body, now.Spec, now.Status)
		}
	}
	kubectlFails(t, "", []string{"patch", m.kind.full(), machine.Name, "-n", m.namespace, "--as=" + m.user, "--subresource=approval", "--type=merge", "-p", approval},
		"Forbidden", `verb "approve"`)
	if now := m.read(t, machine.Name); isApproved(now) {
		t.Error("it is approved")
	}
}

// Req: T-13
func TestStatusKeepsWhoApprovedWhenAndForWhichIdentityAndFingerprint(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.grant(t, "update,patch", "talosmachines,talosmachines/approval,talosmachines/status")
	m.grant(t, "approve", "talosmachines/approval")
	for _, tc := range []struct {
		name, patch, fingerprint string
		unverified               bool
	}{
		{"a worker", approval, "", false},
		{"a control plane with the console's fingerprint", `{"spec":{"approved":true,"role":"controlplane","install":{"disk":"/dev/sda"},"acceptedFingerprint":"` + fingerprint + `"}}`, fingerprint, false},
		{"a control plane without", `{"spec":{"approved":true,"role":"controlplane","install":{"disk":"/dev/sda"},"acceptUnverifiedFingerprint":true}}`, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			machine, began := m.pending(t), time.Now().Truncate(time.Second)
			if err := m.patch(t, machine.Name, tc.patch, "approval"); err != nil {
				t.Fatal(err)
			}
			now := m.read(t, machine.Name)
			have := now.Status.Approval
			if have == nil || have.User != m.user || have.Time.Time.Before(began) || time.Since(have.Time.Time) > time.Minute ||
				have.Identity.UUID != machine.Name || have.Identity.Serial != machine.Spec.Identity.Serial ||
				have.Fingerprint != tc.fingerprint || have.UnverifiedFingerprint != tc.unverified {
				t.Fatalf("status.approval is %+v", have)
			}
			// Nobody rewrites history.
			for _, patch := range []string{`{"status":{"approval":{"user":"mallory"}}}`, `{"status":{"approval":null}}`} {
				if err := m.patch(t, machine.Name, patch, "status"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "controllers alone") {
					t.Errorf("%s: %v", patch, err)
				}
				if _, err := m.server(t).Patch(t.Context(), machine.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
					t.Errorf("%s by the server: %v", patch, err)
				}
			}
			if err := m.patch(t, machine.Name, `{"status":{"approval":null}}`, "approval"); err != nil {
				t.Error(err)
			}
			if after := m.read(t, machine.Name).Status.Approval; toJSON(after) != toJSON(have) {
				t.Errorf("status.approval was %s, is %s", toJSON(have), toJSON(after))
			}
			if err := m.patch(t, machine.Name, `{"spec":{"approved":false}}`, "approval"); err != nil {
				t.Fatal(err)
			}
			if after := m.read(t, machine.Name); after.Status.Approval != nil || after.Status.Phase != v1alpha1.MachinePending {
				t.Errorf("un-approved: %+v", after.Status)
			}
		})
	}
}

// Req: T-11, T-13, T-18
func TestAnApprovalIsWhole(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	for _, tc := range []struct{ name, patch, says string }{
		{"without a role", `{"spec":{"approved":true,"install":{"disk":"/dev/sda"}}}`, "spec.role"},
		{"without a disk", `{"spec":{"approved":true,"role":"worker"}}`, "spec.install"},
		{"of a control plane without a fingerprint", `{"spec":{"approved":true,"role":"controlplane","install":{"disk":"/dev/sda"}}}`, "spec.acceptedFingerprint"},
	} {
		for _, subresource := range [][]string{nil, {"approval"}} {
			machine := m.pending(t)
			_, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(tc.patch), metav1.PatchOptions{}, subresource...)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("approval %s %v: %v", tc.name, subresource, err)
			}
		}
	}
	// An approved machine keeps its role: by the subresource, where absent is cleared, it is refused.
	machine := m.approved(t)
	if _, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(`{"spec":{"role":null}}`), metav1.PatchOptions{}, "approval"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.role") {
		t.Errorf("the role of an approved machine cleared: %v", err)
	}
}

// Req: T-13 (C6)
func TestAnApprovalOfWhatHasChangedMeanwhileConflicts(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.grant(t, "update,patch", "talosmachines,talosmachines/approval")
	m.grant(t, "approve", "talosmachines/approval")
	seen := m.pending(t)
	if _, err := m.admin.Patch(t.Context(), seen.Name, types.MergePatchType, []byte(`{"spec":{"configPatches":["machine:\n  sysctls:\n    a.b: \"1\"\n"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range approvalPaths() {
		if !strings.HasPrefix(path.name, "update") {
			continue
		}
		if err := path.try(t, m, seen, nil); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", path.name, err)
		}
	}
	versioned := strings.Replace(approval, "{", `{"metadata":{"resourceVersion":"`+seen.ResourceVersion+`"},`, 1)
	for _, subresource := range [][]string{nil, {"approval"}} {
		if err := m.patch(t, seen.Name, versioned, subresource...); !apierrors.IsConflict(err) {
			t.Errorf("patch %v: %v", subresource, err)
		}
	}
	unseen := seen.DeepCopy()
	unseen.ResourceVersion, unseen.Spec.Approved, unseen.Spec.Role = "", ptr.To(true), v1alpha1.RoleWorker
	unseen.Spec.Install = &v1alpha1.MachineInstall{Disk: "/dev/sda"}
	if _, err := m.alice.UpdateApproval(t.Context(), unseen.Name, unseen, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update that names no version: %v", err)
	}
	if isApproved(m.read(t, seen.Name)) {
		t.Error("it is approved")
	}
}

// Req: T-13
func TestWhatWasApprovedIsChangedAndTakenBackWithTheVerbAlone(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.grant(t, "update,patch", "talosmachines,talosmachines/approval")
	changes := []struct{ name, patch, says string }{
		{"un-approve", `{"spec":{"approved":false}}`, "un-approve"},
		{"role", `{"spec":{"role":"controlplane","acceptUnverifiedFingerprint":true}}`, "spec.role"},
		{"install", `{"spec":{"install":{"disk":"/dev/sdb"}}}`, "spec.install"},
		{"disk roles", `{"spec":{"diskRoles":[{"role":"data","diskSelector":{"type":"ssd"}}]}}`, "spec.diskRoles"},
		{"network", `{"spec":{"network":{"hostname":"w2"}}}`, "spec.network"},
		{"patches", `{"spec":{"configPatches":["machine:\n  sysctls:\n    a.b: \"2\"\n"]}}`, "spec.configPatches"},
		{"fingerprint", `{"spec":{"acceptedFingerprint":"` + fingerprint + `"}}`, "spec.acceptedFingerprint"},
	}
	refused := m.approved(t)
	for _, change := range changes {
		m.refused(t, change.name, m.patch(t, refused.Name, change.patch), change.says)
		if change.name != "patches" { // which the subresource does not carry
			m.refused(t, change.name+" through the subresource", m.patch(t, refused.Name, change.patch, "approval"), change.says)
		}
	}
	if now := m.read(t, refused.Name); now.Generation != refused.Generation || toJSON(now.Spec) != toJSON(refused.Spec) {
		t.Errorf("it has changed all the same: %+v", now.Spec)
	}
	// What approval does not cover is changed as before.
	if err := m.patch(t, refused.Name, `{"spec":{"nodeLabels":{"a":"b"}},"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("labels: %v", err)
	}
	// A machine that is not approved is anybody's who may update it, but for what an approver says alone.
	pending := m.pending(t)
	for _, change := range append(slices.Clone(changes[2:6]), struct{ name, patch, says string }{"role", `{"spec":{"role":"controlplane"}}`, ""}) {
		if err := m.patch(t, pending.Name, change.patch); err != nil {
			t.Errorf("%s of a pending machine: %v", change.name, err)
		}
	}
	for member, value := range map[string]string{
		"spec.acceptedFingerprint": `"` + fingerprint + `"`, "spec.acceptUnverifiedFingerprint": "true", "spec.acceptSharedHardware": "true", "spec.rejected": `{"reason":"x"}`,
	} {
		patch := `{"spec":{"` + strings.TrimPrefix(member, "spec.") + `":` + value + `}}`
		m.refused(t, member+" of a pending machine", m.patch(t, pending.Name, patch), member)
		m.refused(t, member+" of a pending machine through the subresource", m.patch(t, pending.Name, patch, "approval"), member)
	}

	m.grant(t, "approve", "talosmachines/approval")
	accepted := m.approved(t)
	for _, change := range append(changes[1:], changes[0]) {
		if err := m.patch(t, accepted.Name, change.patch); err != nil {
			t.Errorf("%s with approve: %v", change.name, err)
		}
	}
	if isApproved(m.read(t, accepted.Name)) {
		t.Error("it is not un-approved")
	}
}

// Req: T-13 (C4)
func TestAManifestWithoutApprovalAppliedAgainChangesNothing(t *testing.T) {
	t.Parallel()
	for _, how := range [][]string{{"apply"}, {"apply", "--server-side"}} {
		t.Run(strings.Join(how, " "), func(t *testing.T) {
			t.Parallel()
			m := newMachines(t)
			name := m.kind.name(50)
			object := m.kind.object(m.namespace, name)
			delete(object.Object["spec"].(fields), "role")
			// Who applies from Git has no right to approve.
			m.grant(t, "get,create,patch", "talosmachines")
			apply := func() string {
				t.Helper()
				return env.MustKubectl(t, toJSON(object.Object), append(how, "-f", "-", "--as="+m.user)...)
			}
			apply()
			if _, err := m.admin.Patch(t.Context(), name, types.MergePatchType, []byte(approval), metav1.PatchOptions{}, "approval"); err != nil {
				t.Fatal(err)
			}
			approved := m.read(t, name)
			unchangedBy(t, m.kind, m.namespace, name, func() { apply() })
			if now := m.read(t, name); toJSON(now.Spec) != toJSON(approved.Spec) || now.Generation != approved.Generation || toJSON(now.Status.Approval) != toJSON(approved.Status.Approval) {
				t.Errorf("it was\n%s\nand is\n%s", toJSON(approved.Spec), toJSON(now.Spec))
			}
			// A change of something else goes through, and still takes nothing back.
			object.SetLabels(map[string]string{"line": "two"})
			apply()
			if now := m.read(t, name); toJSON(now.Spec) != toJSON(approved.Spec) || now.Labels["line"] != "two" {
				t.Errorf("with a label it is %v, %s", now.Labels, toJSON(now.Spec))
			}
			// A manifest that speaks of approval is an explicit change.
			object.Object["spec"].(fields)["approved"] = false
			output, err := env.Kubectl(t, toJSON(object.Object), append(how, "-f", "-", "--as="+m.user)...)
			if err == nil || !strings.Contains(output, "approve") {
				t.Errorf("approved: false is applied: %s", output)
			}
			if !isApproved(m.read(t, name)) {
				t.Error("it is un-approved")
			}
		})
	}
}

// Req: T-13 (C4)
func TestApprovalIsKeptWhenItsOnlyManagerOrAReplaceLeavesItOut(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	name := m.kind.name(1)
	object := m.kind.object(m.namespace, name, fields{"approved": true, "install": fields{"disk": "/dev/sda"}})
	for _, approved := range []any{true, nil} {
		if approved == nil {
			delete(object.Object["spec"].(fields), "approved")
			delete(object.Object["spec"].(fields), "install")
		}
		env.MustKubectl(t, toJSON(object.Object), "apply", "--server-side", "-f", "-")
		if now := m.read(t, name); !isApproved(now) || now.Spec.Install == nil {
			t.Errorf("applied with approved %v: %+v", approved, now.Spec)
		}
	}
	env.MustKubectl(t, toJSON(object.Object), "replace", "-f", "-")
	if now := m.read(t, name); !isApproved(now) || now.Spec.Install == nil {
		t.Errorf("replaced: %+v", now.Spec)
	}
}

// Req: T-13
func TestARejectedMachineStaysVisibleAndIsNotApprovedUntilCleared(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.grant(t, "update,patch", "talosmachines,talosmachines/approval")
	m.grant(t, "approve", "talosmachines/approval")
	machine := m.pending(t)
	if err := m.patch(t, machine.Name, `{"spec":{"rejected":{"reason":"stolen"}}}`, "approval"); err != nil {
		t.Fatal(err)
	}
	if output := env.MustKubectl(t, "", "get", m.kind.full(), machine.Name, "-n", m.namespace); !strings.Contains(output, "Rejected") {
		t.Errorf("kubectl get shows:\n%s", output)
	}
	for _, subresource := range [][]string{nil, {"approval"}} {
		if err := m.patch(t, machine.Name, approval, subresource...); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "rejected") {
			t.Errorf("approved %v: %v", subresource, err)
		}
		// A manifest that does not speak of it clears it no more than it un-approves.
		if err := m.patch(t, machine.Name, `{"spec":{"rejected":null}}`); err != nil {
			t.Error(err)
		}
	}
	if now := m.read(t, machine.Name); now.Spec.Rejected == nil || isApproved(now) || now.Status.Phase != v1alpha1.MachineRejected {
		t.Errorf("it is %+v %s", now.Spec, now.Status.Phase)
	}
	if err := m.patch(t, machine.Name, `{"spec":{"rejected":null}}`, "approval"); err != nil {
		t.Fatal(err)
	}
	if now := m.read(t, machine.Name); now.Spec.Rejected != nil || now.Status.Phase != v1alpha1.MachinePending {
		t.Errorf("cleared it is %+v %s", now.Spec, now.Status.Phase)
	}
	if err := m.patch(t, machine.Name, approval, "approval"); err != nil {
		t.Errorf("approved after that: %v", err)
	}
}

// Req: T-13
func TestAMachineThatIsBeingDeletedIsNotApproved(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	machine := m.pending(t)
	setFinalizers(t, m.kind, m.namespace, machine.Name, "test.example/hold")
	if err := m.admin.Delete(t.Context(), machine.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, subresource := range [][]string{nil, {"approval"}} {
		// Not even by the administrator, to whom no verb is refused.
		_, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(approval), metav1.PatchOptions{}, subresource...)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "deleted") {
			t.Errorf("approved %v: %v", subresource, err)
		}
	}
	setFinalizers(t, m.kind, m.namespace, machine.Name)
}

// Req: T-13, T-03
func TestTheServerItselfNeverApproves(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	machine := m.pending(t)
	server := "system:serviceaccount:" + installation.Namespace + ":" + installation.ServiceAccount
	// Whatever somebody grants it.
	grant(t, m.namespace, server, rule("update,patch", "talosmachines,talosmachines/approval"))
	grant(t, m.namespace, server, rule("approve", "talosmachines/approval"))
	config, err := env.Cluster.ServiceAccountConfig(t.Context(), installation.Namespace, installation.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	own, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, subresource := range [][]string{nil, {"approval"}} {
		_, err := own.TalosV1alpha1().TalosMachines(m.namespace).Patch(t.Context(), machine.Name, types.MergePatchType, []byte(approval), metav1.PatchOptions{}, subresource...)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "never approves") {
			t.Errorf("approved %v: %v", subresource, err)
		}
	}
	if isApproved(m.read(t, machine.Name)) {
		t.Error("it is approved")
	}
}

// Req: T-13 (C5)
func TestADryRunOfApprovalKeepsNothing(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	machine := m.pending(t)
	output := env.MustKubectl(t, "", "patch", m.kind.full(), machine.Name, "-n", m.namespace, "--subresource=approval", "--type=merge", "-p", approval, "--dry-run=server", "-o", "json")
	would := &unstructured.Unstructured{}
	if err := would.UnmarshalJSON([]byte(output)); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if at(would, "spec", "approved") != true || at(would, "status", "approval", "user") == nil || at(would, "status", "phase") != "Approved" {
		t.Errorf("it would be %s", output)
	}
	if now := m.read(t, machine.Name); toJSON(now) != toJSON(machine) {
		t.Errorf("it was\n%s\nand is\n%s", toJSON(machine), toJSON(now))
	}
}
