package machineapproval

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
)

// Whoever edits clusters decides what their approved machines are configured with: for that, approving takes the verb on
// all machines of the namespace.
//
// Req: T-13
func TestWhatAnApprovedMachineGetsFromItsClusterNeedsTheVerb(t *testing.T) {
	cluster := func(change func(*talos.TalosClusterSpec)) *talos.TalosCluster {
		cluster := &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "site-a"}, Spec: talos.TalosClusterSpec{
			ControlPlaneEndpoint: "https://192.0.2.1:6443", KubernetesVersion: "v1.36.1", InstallImage: "installer:v1", ConfigPatches: []string{"a: 1", "b: 1"},
		}}
		change(&cluster.Spec)
		return cluster
	}
	same := cluster(func(*talos.TalosClusterSpec) {})
	machine := func(namespace, name, cluster string, approved *bool) runtime.Object {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: v1alpha1.TalosMachineSpec{ClusterRef: v1alpha1.ClusterReference{Name: cluster}, Approved: approved}}
	}
	yes, no := ptr.To(true), ptr.To(false)
	writes := []struct {
		name            string
		stored, written *talos.TalosCluster
		needs           string
	}{
		{"creating it", nil, same, "create"},
		{"the endpoint", same, cluster(func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://192.0.2.2:6443" }), "change spec.controlPlaneEndpoint of"},
		{"the Kubernetes version", same, cluster(func(s *talos.TalosClusterSpec) { s.KubernetesVersion = "v1.36.2" }), "change spec.kubernetesVersion of"},
		{"the installer", same, cluster(func(s *talos.TalosClusterSpec) { s.InstallImage = "" }), "change spec.installImage of"},
		{"the order of the patches", same, cluster(func(s *talos.TalosClusterSpec) { s.ConfigPatches = []string{"b: 1", "a: 1"} }), "change spec.configPatches of"},
		{"the patches taken away", same, cluster(func(s *talos.TalosClusterSpec) { s.ConfigPatches = nil }), "change spec.configPatches of"},
		{"two of them", same, cluster(func(s *talos.TalosClusterSpec) { s.ConfigPatches, s.InstallImage = nil, "" }), "change spec.installImage, spec.configPatches of"},
		{"nothing", same, same, ""},
		{"ranges and pause", same, cluster(func(s *talos.TalosClusterSpec) { s.Discovery.Addresses, s.Paused = []string{"192.0.2.9"}, true }), ""},
	}
	plants := []struct {
		name     string
		machines []runtime.Object
		listErr  error
		concerns string // the machines that are named; "": none is approved
		code     int32
	}{
		{name: "no machine"},
		{name: "machines that are not approved, of another cluster, in another namespace", machines: []runtime.Object{
			machine("site-a", "m1", "c1", nil), machine("site-a", "m2", "c1", no), machine("site-a", "m3", "c2", yes), machine("site-b", "m4", "c1", yes),
		}},
		{name: "an approved machine", machines: []runtime.Object{machine("site-a", "m1", "c1", yes), machine("site-a", "m2", "c1", nil)}, concerns: "(m1)"},
		{name: "many", machines: []runtime.Object{
			machine("site-a", "m5", "c1", yes), machine("site-a", "m1", "c1", yes), machine("site-a", "m4", "c1", yes), machine("site-a", "m3", "c1", yes), machine("site-a", "m2", "c1", yes),
		}, concerns: "(m1, m2, m3 and 2 more)"},
		{name: "nobody knows", listErr: errors.New("store is away"), code: http.StatusServiceUnavailable},
	}
	for _, write := range writes {
		for _, plant := range plants {
			for _, answer := range []struct {
				name     string
				decision authorizer.Decision
				err      error
				code     int32
			}{
				{"verb yes", authorizer.DecisionAllow, nil, http.StatusOK},
				{"verb no", authorizer.DecisionNoOpinion, nil, http.StatusForbidden},
				{"review failed", authorizer.DecisionNoOpinion, errors.New("host is away"), http.StatusServiceUnavailable},
			} {
				for _, dryRun := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%s/dryRun=%v", write.name, plant.name, answer.name, dryRun), func(t *testing.T) {
						client := fake.NewClientset(plant.machines...)
						if plant.listErr != nil {
							client.PrependReactor("list", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, plant.listErr })
						}
						authz := &recorder{decision: answer.decision, err: answer.err}
						plugin := newPlugin(authz)
						plugin.SetFieldplaneClient(client)
						err := validateCluster(plugin, write.stored, write.written, "", dryRun, "alice")

						wantCode, asks := int32(http.StatusOK), false
						switch {
						case write.needs == "":
						case plant.code != 0:
							wantCode = plant.code
						case plant.concerns != "":
							wantCode, asks = answer.code, true
						default:
							// Whoever has the verb need not wait, and need not be waited for.
							asks = !dryRun
						}
						if have := code(err); have != wantCode {
							t.Fatalf("have %d (%v), want %d", have, err, wantCode)
						}
						var want []string
						if asks {
							// Without a name: of all of them.
							want = []string{"alice approve talosmachines.talos.fieldplane.dev/approval site-a/"}
						}
						if !slices.Equal(authz.asked, want) {
							t.Errorf("asked %q, want %q", authz.asked, want)
						}
						if write.needs == "" && len(client.Actions()) > 0 {
							t.Errorf("listed for nothing: %v", client.Actions())
						}
						if wantCode == http.StatusForbidden {
							for _, text := range []string{`talosclusters.talos.fieldplane.dev`, `TalosCluster "c1"`, `verb "approve"`, `"talosmachines/approval"`, write.needs, plant.concerns} {
								if !strings.Contains(err.Error(), text) {
									t.Errorf("%q does not say %q", err, text)
								}
							}
						}
					})
				}
			}
		}
	}

	// Discovery and counts are written without asking anybody; the server itself never decides what machines get.
	plugin := newPlugin(&recorder{decision: authorizer.DecisionAllow})
	plugin.SetFieldplaneClient(fake.NewClientset(machine("site-a", "m1", "c1", yes)))
	if err := validateCluster(plugin, same, same, "status", false, loopback); err != nil {
		t.Errorf("the server's write of status: %v", err)
	}
	changed := cluster(func(s *talos.TalosClusterSpec) { s.ConfigPatches = nil })
	if err := validateCluster(plugin, same, changed, "", false, loopback); code(err) != http.StatusForbidden || !strings.Contains(err.Error(), "itself never approves") {
		t.Errorf("the server's write of patches: %v", err)
	}
}

// A change of a cluster and an approval write two objects: neither may come between the other's check and its storing.
//
// Req: T-13
func TestAClusterIsNotChangedInTheMomentOfAnApproval(t *testing.T) {
	before := &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "site-a"}}
	after := before.DeepCopy()
	after.Spec.ConfigPatches = []string{"machine: {}"}

	for _, tc := range []struct {
		name string
		// editor may approve too.
		editor bool
		dryRun bool
		pause  time.Duration
		edit   bool // it comes before the approval
		code   int32
	}{
		{name: "an approval just after somebody's edit", edit: true, code: http.StatusConflict},
		{name: "an approval a moment after somebody's edit", edit: true, pause: settles, code: http.StatusConflict},
		{name: "an approval well after somebody's edit", edit: true, pause: settles + time.Second, code: http.StatusOK},
		{name: "an approval just after an approver's edit", edit: true, editor: true, code: http.StatusOK},
		{name: "an approval just after an edit that was only tried", edit: true, dryRun: true, code: http.StatusOK},
		{name: "somebody's edit just after an approval", code: http.StatusForbidden},
		{name: "somebody's edit well after an approval that was not stored", pause: settles + time.Second, code: http.StatusOK},
		{name: "an approver's edit just after an approval", editor: true, code: http.StatusOK},
		{name: "somebody's edit just after an approval that was only tried", dryRun: true, code: http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			plugin := newPlugin(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if tc.editor || a.GetUser().GetName() == "ada" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			}))
			plugin.approvals.clock, plugin.edits.clock = clock, clock

			edit := func(dryRun bool) error { return validateCluster(plugin, before, after, "", dryRun, "mallory") }
			approve := func(dryRun bool) error { return validate(plugin, pending(), approved(), "approval", dryRun, "ada") }
			first, second := approve, edit
			if tc.edit {
				first, second = edit, approve
			}
			if err := first(tc.dryRun); err != nil {
				t.Fatal(err)
			}
			clock.SetTime(clock.Now().Add(tc.pause))
			if err := second(false); code(err) != tc.code {
				t.Errorf("have %v, want %d", err, tc.code)
			}
		})
	}
}

func validateCluster(plugin *Approval, stored, cluster *talos.TalosCluster, subresource string, dryRun bool, who string) error {
	op, name := admission.Update, cluster.Name
	var old runtime.Object
	if stored != nil {
		old = stored
	} else {
		op, name = admission.Create, ""
	}
	return plugin.Validate(context.Background(), admission.NewAttributesRecord(cluster, old, schema.GroupVersionKind{}, "site-a", name,
		schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: "talosclusters"}, subresource, op, nil, dryRun, &user.DefaultInfo{Name: who}), nil)
}
