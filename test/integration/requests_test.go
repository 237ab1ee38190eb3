package integration

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/installation"
)

// secretsOfACluster is one cluster's bundle; making one takes seconds.
var secretsOfACluster = sync.OnceValues(func() ([]byte, error) { return render.GenerateBundle("v1.13") })

// bound gives a user a shipped ClusterRole in a namespace, and returns when the kube-apiserver says so.
func bound(t testing.TB, namespace, user, clusterRole, verb, resource string) versioned.Interface {
	t.Helper()
	if _, err := env.Host().RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 10*time.Second, func() string {
		if !may(t, namespace, user, verb, resource, nil) {
			return fmt.Sprintf("%s may not %s %s", user, verb, resource)
		}
		return ""
	})
	return env.As(t, user)
}

// Req: A-10, P-16a, P-16c, T-13, T-14, T-18a
func TestTheShippedRolesGrantWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	rights := []struct{ verb, resource string }{
		{"list", "talosmachines"},
		{"create", "talosmachines"},
		{"approve", "talosmachines/approval"},
		{"update", "talosmachines/approval"},
		{"update", "talosmachines/endpoint"},
		{"update", "talosmachines/status"},
		{"get", "talosmachines/config"},
		{"create", "talosmachines/reboot"},
		{"create", "talosclusters/discover"},
		{"patch", "talosclusters/status"},
		{"create", "units"},
		{"create", "units/command"},
		{"override", "units/command"},
		{"get", "units/tags"},
		{"watch", "units/tags"},
		{"update", "units/tags"},
		{"update", "units/status"},
	}
	for role, granted := range map[string]string{
		"view":                      "list talosmachines, get units/tags, watch units/tags",
		"edit":                      "list talosmachines, create talosmachines, create units, get units/tags, watch units/tags",
		"admin":                     "list talosmachines, create talosmachines, create units, get units/tags, watch units/tags",
		"fieldplane-approver":       "list talosmachines, approve talosmachines/approval, update talosmachines/approval",
		"fieldplane-talos-operator": "list talosmachines, get talosmachines/config, create talosmachines/reboot, create talosclusters/discover",
		"fieldplane-unit-operator":  "create units/command, get units/tags, watch units/tags, update units/tags",
		"fieldplane-unit-override":  "override units/command",
	} {
		user := role + "." + namespace
		first, resource, _ := strings.Cut(strings.Split(granted, ", ")[0], " ")
		bound(t, namespace, user, role, first, resource)
		harness.Eventually(t, 10*time.Second, func() string {
			var have []string
			for _, right := range rights {
				if may(t, namespace, user, right.verb, right.resource, nil) {
					have = append(have, right.verb+" "+right.resource)
				}
			}
			if have := strings.Join(have, ", "); have != granted {
				return fmt.Sprintf("%s grants %s, not %s", role, have, granted)
			}
			return ""
		})
	}
}

// Req: T-10, A-03, A-05 (C5)
func TestASweepIsAskedForThroughAPathOfItsOwn(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("TalosCluster")
	// Nobody is at this address; nothing is refused there, and nothing answers in maintenance mode.
	create(t, k, k.object(namespace, "cluster", fields{"paused": false, "discovery": fields{"addresses": []any{"127.0.69.254"}}}))
	create(t, k, k.object(namespace, "off", fields{"paused": false}))
	create(t, k, k.object(namespace, "paused", fields{"discovery": fields{"addresses": []any{"127.0.69.254"}}}))
	admin := env.Admin(t).TalosV1alpha1().TalosClusters(namespace)
	asked := func() *metav1.Time {
		t.Helper()
		cluster, err := admin.Get(t.Context(), "cluster", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if cluster.Status.Discovery == nil {
			return nil
		}
		return cluster.Status.Discovery.RequestedAt
	}

	editor := bound(t, namespace, "editor."+namespace, "edit", "update", "talosclusters").TalosV1alpha1().TalosClusters(namespace)
	if _, err := editor.RequestDiscovery(t.Context(), "cluster", &v1alpha1.DiscoveryRequest{}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "talosclusters/discover") {
		t.Errorf("by an editor: %v", err)
	}
	operator := bound(t, namespace, "operator."+namespace, "fieldplane-talos-operator", "create", "talosclusters/discover").TalosV1alpha1().TalosClusters(namespace)
	named := func(name string) *v1alpha1.DiscoveryRequest {
		return &v1alpha1.DiscoveryRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, tc := range []struct {
		name, cluster, body string
		fits                func(error) bool
		says                string
	}{
		{"another's name in the body", "cluster", "off", apierrors.IsBadRequest, `"off"`},
		{"no cluster", "gone", "", apierrors.IsNotFound, "gone"},
		{"discovery that is off", "off", "", apierrors.IsConflict, "discovery is off"},
		{"discovery that is paused", "paused", "paused", apierrors.IsConflict, "spec.paused"},
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			if _, err := operator.RequestDiscovery(t.Context(), tc.cluster, named(tc.body), metav1.CreateOptions{DryRun: dryRun}); !tc.fits(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, dry run %v: %v", tc.name, dryRun, err)
			}
		}
	}
	would, err := operator.RequestDiscovery(t.Context(), "cluster", named(""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || would.Status.RequestedAt == nil || asked() != nil {
		t.Fatalf("dry run: %v, %+v, and stored is %v", err, would, asked())
	}

	var last time.Time
	for i := range 2 {
		began := time.Now()
		answer, err := operator.RequestDiscovery(t.Context(), "cluster", named([]string{"", "cluster"}[i]), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		at := answer.Status.RequestedAt
		if at == nil || at.Time.Before(began.Truncate(time.Second)) || !at.After(last) || at.Time.Sub(began) > 3*time.Second || answer.Name != "cluster" || !asked().Equal(at) {
			t.Fatalf("it was asked for at %v after %v, the answer is %+v, and stored is %v", began, last, answer, asked())
		}
		last = at.Time
	}
	harness.Eventually(t, 20*time.Second, func() string {
		cluster, err := admin.Get(t.Context(), "cluster", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cluster.Status.Discovery; d.CompletedAt == nil || d.StartedAt.Time.Before(last) {
			return fmt.Sprintf("no sweep from %v on has ended: %+v", last, d)
		}
		return ""
	})

	// As kubectl sends it, and nothing but that.
	path := k.url(namespace) + "/cluster/discover"
	body := `{"apiVersion":"` + k.gv.String() + `","kind":"DiscoveryRequest"}`
	harness.Eventually(t, 5*time.Second, func() string {
		// Two requests were made in a second; the third, which typed clients repeat by themselves, has to wait for the next.
		if output, err := env.Kubectl(t, body, "create", "--raw", path, "-f", "-"); err != nil && !strings.Contains(output, "TooManyRequests") || err == nil && !strings.Contains(output, "requestedAt") {
			t.Fatalf("kubectl says %s", output)
		} else if err != nil {
			return output
		}
		return ""
	})
	kubectlFails(t, strings.Replace(body, "DiscoveryRequest", "TalosCluster", 1), []string{"create", "--raw", path, "-f", "-"}, "DiscoveryRequest")
	kubectlFails(t, "", []string{"get", "--raw", path}, "MethodNotAllowed")
}

// Req: T-18a, A-03, A-05 (C5)
func TestARebootIsAskedForThroughAPathOfItsOwn(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	operator := bound(t, m.namespace, "operator."+m.namespace, "fieldplane-talos-operator", "create", "talosmachines/reboot").TalosV1alpha1().TalosMachines(m.namespace)
	approver := bound(t, m.namespace, "approver."+m.namespace, "fieldplane-approver", "approve", "talosmachines/approval").TalosV1alpha1().TalosMachines(m.namespace)
	request := func(name, hash string) *v1alpha1.RebootRequest {
		return &v1alpha1.RebootRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RebootRequestSpec{Hash: hash}}
	}
	waiting := func(machine *v1alpha1.TalosMachine, hash string, reboot bool) {
		t.Helper()
		writeStatus(t, m.kind, m.namespace, machine.Name, fields{"update": fields{"hash": hash, "rebootRequired": reboot}})
	}
	pending, idle, easy, machine := m.pending(t), m.approved(t), m.approved(t), m.approved(t)
	waiting(pending, "h2", true)
	waiting(easy, "h2", false)
	waiting(machine, "h2", true)

	for _, tc := range []struct {
		name, machine string
		request       *v1alpha1.RebootRequest
		fits          func(error) bool
		says          string
	}{
		{"another's name in the body", machine.Name, request(idle.Name, ""), apierrors.IsBadRequest, idle.Name},
		{"no machine", m.kind.name(99), request("", ""), apierrors.IsNotFound, m.kind.name(99)},
		{"a machine that is not approved", pending.Name, request("", ""), apierrors.IsConflict, "not approved"},
		{"a machine for which nothing waits", idle.Name, request("", ""), apierrors.IsConflict, "no configuration waits"},
		{"a machine for which nothing waits that needs it", easy.Name, request("", ""), apierrors.IsConflict, "no configuration waits"},
		{"what no longer waits", machine.Name, request("", "h1"), apierrors.IsConflict, "h2"},
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			if _, err := operator.RequestReboot(t.Context(), tc.machine, tc.request, metav1.CreateOptions{DryRun: dryRun}); !tc.fits(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, dry run %v: %v", tc.name, dryRun, err)
			}
		}
	}
	if _, err := approver.RequestReboot(t.Context(), machine.Name, request("", ""), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "talosmachines/reboot") {
		t.Errorf("by an approver: %v", err)
	}
	would, err := operator.RequestReboot(t.Context(), machine.Name, request("", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || would.Status.Hash != "h2" || m.read(t, machine.Name).Status.Reboot != nil {
		t.Fatalf("dry run: %v, %+v", err, would)
	}

	answer, err := operator.RequestReboot(t.Context(), machine.Name, request(machine.Name, "h2"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := m.read(t, machine.Name)
	if have := now.Status.Reboot; have == nil || have.Hash != "h2" || have.RequestedBy != "operator."+m.namespace || !have.RequestedAt.Equal(answer.Status.RequestedAt) ||
		have.IntendedAt != nil || answer.Status.Hash != "h2" || answer.Name != machine.Name {
		t.Errorf("status.reboot is %+v, and the answer %+v", have, answer)
	}
	if now.Generation != machine.Generation || toJSON(now.Spec) != toJSON(machine.Spec) || toJSON(now.Status.Approval) != toJSON(machine.Status.Approval) {
		t.Errorf("it has changed otherwise: %+v", now)
	}
	// Asked for again, by another: it is one reboot, and the first one's.
	again, err := m.admin.RequestReboot(t.Context(), machine.Name, request("", ""), metav1.CreateOptions{})
	if err != nil || !again.Status.RequestedAt.Equal(answer.Status.RequestedAt) || toJSON(m.read(t, machine.Name).Status.Reboot) != toJSON(now.Status.Reboot) {
		t.Errorf("again: %v, %+v", err, again)
	}
}

// Req: T-11, T-15, T-16, A-03
func TestAMachinesConfigurationIsShownToWhoeverMaySeeItAndWithoutSecrets(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	data, err := secretsOfACluster()
	if err != nil {
		t.Fatal(err)
	}
	secrets := env.Host().CoreV1().Secrets(installation.Namespace)
	name := "bundle-" + m.namespace
	cluster := kindOf("TalosCluster")
	create(t, cluster, cluster.object(m.namespace, "line", fields{"secretsRef": fields{"name": name}}))
	m.made++
	machine := m.kind.object(m.namespace, m.kind.name(m.made), fields{
		"clusterRef": fields{"name": "line"}, "install": fields{"disk": "/dev/sda"}, "network": fields{"hostname": "w1"}, "endpoint": "127.0.69.253",
	})
	delete(machine.Object["spec"].(fields), "role")
	create(t, m.kind, machine)
	path := m.kind.url(m.namespace) + "/" + machine.GetName() + "/config"

	viewer, approver, operator := "viewer."+m.namespace, "approver."+m.namespace, "operator."+m.namespace
	bound(t, m.namespace, viewer, "admin", "list", "talosmachines")
	bound(t, m.namespace, approver, "fieldplane-approver", "approve", "talosmachines/approval")
	bound(t, m.namespace, operator, "fieldplane-talos-operator", "get", "talosmachines/config")
	for _, user := range []string{viewer, approver} {
		kubectlFails(t, "", []string{"get", "--raw", path, "--as=" + user}, "Forbidden", "talosmachines/config")
	}
	refused := func(query string, says ...string) {
		t.Helper()
		kubectlFails(t, "", []string{"get", "--raw", path + query, "--as=" + operator}, says...)
	}
	refused("", "render: machine role is not set")
	if _, err := m.admin.Patch(t.Context(), machine.GetName(), types.MergePatchType, []byte(`{"spec":{"role":"worker"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("", "BundleNotFound", installation.Namespace+"/"+name)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{bundle.Key: data}}
	if secret, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	refused("", "BundleNotForThisCluster")
	metav1.SetMetaDataLabel(&secret.ObjectMeta, bundle.ClusterLabel, m.namespace+".line")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	text := env.MustKubectl(t, "", "get", "--raw", path, "--as="+operator)
	for _, want := range []string{"type: worker", "hostname: w1", "disk: /dev/sda", "token: '***'"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	parsed, err := render.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	public := map[string]bool{parsed.Cluster.ID: true}
	for _, certificate := range [][]byte{parsed.Certs.OS.Crt, parsed.Certs.K8s.Crt} {
		public[base64.StdEncoding.EncodeToString(certificate)] = true
	}
	for _, material := range render.BundleMaterial(parsed) {
		if strings.Contains(text, material) && !public[material] {
			t.Errorf("it holds a secret of %d characters", len(material))
		}
	}

	refused("?diff=yesterday", "diff=running")
	refused("?diff=running", "not sent a configuration yet")
	writeStatus(t, m.kind, m.namespace, machine.GetName(), fields{"configuration": fields{"appliedAt": "2026-01-01T00:00:00Z"}})
	began := time.Now()
	refused("?diff=running", "ServiceUnavailable", "127.0.69.253")
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("it took %v to say that nobody answers", took)
	}
	kubectlFails(t, "", []string{"get", "--raw", strings.Replace(path, machine.GetName(), m.kind.name(99), 1), "--as=" + operator}, "NotFound")
}

// Req: T-13, T-18
func TestAMachineThatSharesHardwareIsApprovedOnlyByAcceptingIt(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	first := m.pending(t)
	m.made++
	twin := m.kind.object(m.namespace, m.kind.name(m.made))
	twin.Object["spec"].(fields)["identity"].(fields)["serial"] = first.Spec.Identity.Serial
	create(t, m.kind, twin)
	harness.Eventually(t, 20*time.Second, func() string {
		for _, condition := range m.read(t, twin.GetName()).Status.Conditions {
			if condition.Type == "SharesHardware" && condition.Status == metav1.ConditionTrue {
				return ""
			}
		}
		return "nothing says that it shares its serial"
	})
	for _, subresource := range [][]string{nil, {"approval"}} {
		_, err := m.admin.Patch(t.Context(), twin.GetName(), types.MergePatchType, []byte(approval), metav1.PatchOptions{}, subresource...)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), first.Name) || !strings.Contains(err.Error(), "spec.acceptSharedHardware") {
			t.Errorf("approved %v: %v", subresource, err)
		}
	}
	accepting := strings.Replace(approval, `"approved":true`, `"approved":true,"acceptSharedHardware":true`, 1)
	now, err := m.admin.Patch(t.Context(), twin.GetName(), types.MergePatchType, []byte(accepting), metav1.PatchOptions{}, "approval")
	if err != nil || !now.Status.Approval.SharedHardware || now.Status.Approval.Role != v1alpha1.RoleWorker {
		t.Errorf("accepting it: %v, %+v", err, now)
	}
	// The one that was there first is not in doubt.
	if _, err := m.admin.Patch(t.Context(), first.Name, types.MergePatchType, []byte(approval), metav1.PatchOptions{}, "approval"); err != nil {
		t.Errorf("approving the first: %v", err)
	}
}

// Req: T-13
func TestWhatApprovedMachinesGetFromTheirClusterIsChangedWithTheVerbAlone(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	alice := env.As(t, m.user).TalosV1alpha1().TalosClusters(m.namespace)
	m.grant(t, "create,update,patch", "talosclusters")
	patch := func(patch string, dryRun ...string) error {
		t.Helper()
		_, err := alice.Patch(t.Context(), "cluster", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	changes := map[string]string{
		"spec.controlPlaneEndpoint": `{"spec":{"controlPlaneEndpoint":"https://192.0.2.2:6443"}}`,
		"spec.kubernetesVersion":    `{"spec":{"kubernetesVersion":"v1.36.2"}}`,
		"spec.installImage":         `{"spec":{"installImage":"ghcr.io/siderolabs/installer:v1.13.9"}}`,
		"spec.configPatches":        `{"spec":{"configPatches":["machine:\n  sysctls:\n    a.b: \"2\"\n"]}}`,
	}
	for field, change := range changes {
		if err := patch(change, metav1.DryRunAll); err != nil {
			t.Errorf("%s before anybody is approved: %v", field, err)
		}
	}
	machine := m.approved(t)
	// The right to one machine is not the right to what all get.
	m.grant(t, "approve", "talosmachines/approval", machine.Name)
	for field, change := range changes {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			m.refused(t, field, patch(change, dryRun...), field, machine.Name)
		}
	}
	if err := patch(`{"spec":{"discovery":{"addresses":["192.0.2.9"]}},"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("ranges and labels: %v", err)
	}
	// Nor is a cluster made for machines that are approved already.
	m.made++
	waiting := m.kind.object(m.namespace, m.kind.name(m.made), fields{"clusterRef": fields{"name": "later"}, "approved": true, "install": fields{"disk": "/dev/sda"}})
	create(t, m.kind, waiting)
	k := kindOf("TalosCluster")
	later := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: v1alpha1.TalosClusterSpec{
		ControlPlaneEndpoint: "https://192.0.2.1:6443", SecretsRef: v1alpha1.SecretReference{Name: "bundle"}, TalosVersion: "v1.13", KubernetesVersion: "v1.36.1", Paused: true,
	}}
	_, err := alice.Create(t.Context(), later, metav1.CreateOptions{})
	m.refused(t, "creating the cluster of an approved machine", err, "later", waiting.GetName())
	later.Name = "other"
	if _, err := alice.Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating another cluster: %v", err)
	}
	if now := get(t, k, m.namespace, "cluster"); at(now, k.path...) != k.first || at(now, "spec", "configPatches") != nil {
		t.Errorf("it has changed all the same: %v", at(now, "spec"))
	}

	m.grant(t, "approve", "talosmachines/approval")
	for field, change := range changes {
		if err := patch(change); err != nil {
			t.Errorf("%s with approve: %v", field, err)
		}
	}
	later.Name = "later"
	if _, err := alice.Create(t.Context(), later, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating the cluster with approve: %v", err)
	}
}

// Req: A-04, T-15
func TestVersionsThatDoNotGoTogetherAreRefused(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("TalosCluster")
	if _, err := objects(t, k, namespace).Create(t.Context(), k.object(namespace, "old", fields{"kubernetesVersion": "v1.20.0"}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.kubernetesVersion") {
		t.Errorf("created: %v", err)
	}
	create(t, k, k.object(namespace, "cluster"))
	if _, err := objects(t, k, namespace).Patch(t.Context(), "cluster", types.MergePatchType, []byte(`{"spec":{"kubernetesVersion":"v1.99.0"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "v1.99.0") {
		t.Errorf("changed: %v", err)
	}
}

// Req: T-06, T-13, T-18, T-18a
func TestAnApprovalNamesItsDiskAndARenewedOneForgetsWhatWasSent(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	machine := m.pending(t)
	disks := []any{
		fields{"path": "/dev/sda", "sizeBytes": int64(500e9), "serial": "D1", "transport": "sata"},
		fields{"path": "/dev/nvme0n1", "sizeBytes": int64(1000e9), "serial": "D2", "transport": "nvme"},
	}
	writeStatus(t, m.kind, m.namespace, machine.Name, fields{"hardware": fields{"disks": disks}})
	approve := func(install string) *v1alpha1.TalosMachine {
		t.Helper()
		patch := strings.Replace(approval, `{"disk":"/dev/sda"}`, install, 1)
		now, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "approval")
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	for install, serial := range map[string]string{
		`{"disk":"/dev/sda"}`: "D1", `{"disk":null,"diskSelector":{"type":"nvme"}}`: "D2", `{"disk":null,"diskSelector":{"type":"ssd"}}`: "", `{"diskSelector":null,"disk":"/dev/sdz"}`: "",
	} {
		approval := approve(install).Status.Approval
		if (approval.InstallDisk == nil) != (serial == "") || serial != "" && approval.InstallDisk.Serial != serial {
			t.Errorf("install %s means %+v", install, approval.InstallDisk)
		}
	}

	if _, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(`{"spec":{"approved":false}}`), metav1.PatchOptions{}, "approval"); err != nil {
		t.Fatal(err)
	}
	back := fields{"type": "BackInMaintenance", "status": "True", "reason": "AnswersInMaintenance", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
	writeStatus(t, m.kind, m.namespace, machine.Name, fields{
		"phase": "Running", "configHash": "h1", "configuration": fields{"hash": "h1", "appliedAt": "2026-01-01T00:00:00Z"},
		"update": fields{"hash": "h2"}, "reboot": fields{"hash": "h2"}, "conditions": []any{back},
	})
	now := approve(`{"diskSelector":null,"disk":"/dev/sda"}`)
	status := now.Status
	if status.Phase != v1alpha1.MachineApproved || status.Configuration != nil || status.ConfigHash != "" || status.Update != nil || status.Reboot != nil || len(status.Conditions) > 0 || status.Hardware == nil {
		t.Errorf("approved anew it is %+v", status)
	}
}

// Req: T-10, A-05. Whoever asks in the same moment, and whatever a controller writes meanwhile: no request is lost, none looks
// like another, and what the controller wrote stands.
func TestRequestsOfTheSameMomentAreToldApartAndOverwriteNothing(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("TalosCluster")
	create(t, k, k.object(namespace, "cluster", fields{"paused": false, "discovery": fields{"addresses": []any{"127.0.69.252"}}}))
	client := env.Admin(t).TalosV1alpha1().TalosClusters(namespace)
	writer := statusWriter(t, k, namespace)
	const requests, writes = 4, 20
	answers, failures := make(chan time.Time, requests), make(chan error, requests+writes)
	var running sync.WaitGroup
	for range requests {
		running.Go(func() {
			// A 429 is waited for and repeated by the client itself.
			answer, err := client.RequestDiscovery(t.Context(), "cluster", &v1alpha1.DiscoveryRequest{}, metav1.CreateOptions{})
			if err != nil {
				failures <- err
				return
			}
			answers <- answer.Status.RequestedAt.Time
		})
	}
	running.Go(func() {
		for n := range writes {
			status := fields{"conditions": []any{fields{
				"type": "Tested", "status": "True", "reason": fmt.Sprintf("Write%d", n), "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
			}}}
			if _, err := writer.Patch(t.Context(), "cluster", types.MergePatchType, []byte(toJSON(fields{"status": status})), metav1.PatchOptions{}, "status"); err != nil {
				failures <- err
			}
		}
	})
	running.Wait()
	close(answers)
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	var last time.Time
	seen := map[int64]bool{}
	for at := range answers {
		if seen[at.Unix()] {
			t.Errorf("two requests stand at %v", at)
		}
		seen[at.Unix()] = true
		if at.After(last) {
			last = at
		}
	}
	cluster, err := client.Get(t.Context(), "cluster", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != requests || !cluster.Status.Discovery.RequestedAt.Time.Equal(last) {
		t.Errorf("%d requests of %d are answered, the last at %v; stored is %v", len(seen), requests, last, cluster.Status.Discovery.RequestedAt)
	}
	if text := toJSON(cluster.Status.Conditions); !strings.Contains(text, fmt.Sprintf("Write%d", writes-1)) {
		t.Errorf("what was written meanwhile is lost: %s", text)
	}
}
