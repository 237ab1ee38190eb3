package integration

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/test/harness"
)

// noticed is how soon a policy that was made must act.
const noticed = 20 * time.Second

// in selects one namespace.
func in(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
}

// writesOf are rules for creates and updates of resources of both groups.
func writesOf(resources ...string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"physical.fieldplane.dev", "talos.fieldplane.dev"}, APIVersions: []string{"v1alpha1"}, Resources: resources,
		},
	}}
}

// matching turns rules into what policies match.
func matching(rules []admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MatchResources {
	match := &admissionregistrationv1.MatchResources{}
	for _, rule := range rules {
		match.ResourceRules = append(match.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	return match
}

// validating makes a policy, bound to a namespace unless it is "".
func validating(t *testing.T, name, namespace, expression, message string, resources ...string) {
	t.Helper()
	client := env.Host().AdmissionregistrationV1()
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: matching(writesOf(resources...)),
			Validations:      []admissionregistrationv1.Validation{{Expression: expression, Message: message}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if namespace == "" {
		return
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: in(namespace)},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dryCreate tries to create an object with a label.
func dryCreate(t testing.TB, k kind, namespace, label string) error {
	t.Helper()
	object := k.object(namespace, k.name(1))
	object.SetLabels(map[string]string{label: "yes"})
	_, err := objects(t, k, namespace).Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// Req: A-04 (C12)
func TestAValidatingAdmissionPolicyActsOnEveryKindAndSubresource(t *testing.T) {
	t.Parallel()
	namespace, elsewhere := env.Namespace(t), env.Namespace(t)
	validating(t, "no-"+namespace, namespace, `!has(object.metadata.labels) || !('forbidden' in object.metadata.labels)`, "the policy says no", "*")
	validating(t, "approval-"+namespace, namespace, `object.spec.role != 'controlplane'`, "no control planes here", "talosmachines/approval")
	for _, k := range kinds() {
		harness.Eventually(t, noticed, func() string {
			if err := dryCreate(t, k, namespace, "forbidden"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the policy says no") {
				return k.kind + " is not refused: " + text(err)
			}
			return ""
		})
		if err := dryCreate(t, k, namespace, "allowed"); err != nil {
			t.Errorf("%s that the policy allows: %v", k.kind, err)
		}
		if err := dryCreate(t, k, elsewhere, "forbidden"); err != nil {
			t.Errorf("%s elsewhere: %v", k.kind, err)
		}
		create(t, k, k.object(namespace, k.name(1)))
		_, err := objects(t, k, namespace).Patch(t.Context(), k.name(1), types.MergePatchType, []byte(`{"metadata":{"labels":{"forbidden":"yes"}}}`), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the policy says no") {
			t.Errorf("%s: a patch: %v", k.kind, err)
		}
	}
	machine := kindOf("TalosMachine")
	for role, refused := range map[string]bool{"controlplane": true, "worker": false} {
		_, err := objects(t, machine, namespace).Patch(t.Context(), machine.name(1), types.MergePatchType, []byte(nested(role, "spec", "role")), metav1.PatchOptions{}, "approval")
		if refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "no control planes here") {
			t.Errorf("role %s through approval: %v", role, err)
		}
	}
}

func text(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// Req: A-04, A-07 (A4)
func TestThePolicyControllerKnowsOurTypes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ resource, expression, warning string }{
		"unit-right":    {"units", `object.spec.nodeSelector['zone'] == 'a' && object.status.state == 'Idle'`, ""},
		"unit-wrong":    {"units", `object.spec.nonsense == 1`, "nonsense"},
		"machine-right": {"talosmachines", `object.spec.identity.macAddresses.size() > 0 && object.spec.approved`, ""},
		"machine-wrong": {"talosmachines", `object.spec.identity.nonsense == 1`, "nonsense"},
		"module-right":  {"iomodules", `object.spec.probe.failureThreshold < 4`, ""},
		"cluster-right": {"talosclusters", `object.spec.discovery.cidrs.size() < 3`, ""},
		"cmod-right":    {"controlmodules", `object.spec.tags.all(t, t.name != '')`, ""},
		"ctlr-right":    {"controllers", `object.spec.nodeName != ''`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			validating(t, "types-"+name, "", tc.expression, "", tc.resource)
			harness.Eventually(t, 60*time.Second, func() string {
				policy, err := env.Host().AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "types-"+name, metav1.GetOptions{})
				switch {
				case err != nil:
					return err.Error()
				case policy.Status.ObservedGeneration == 0 || policy.Status.TypeChecking == nil:
					return "not checked yet"
				}
				warnings := toJSON(policy.Status.TypeChecking.ExpressionWarnings)
				if (tc.warning == "") != (len(policy.Status.TypeChecking.ExpressionWarnings) == 0) || !strings.Contains(warnings, tc.warning) {
					t.Errorf("warnings: %s", warnings)
				}
				return ""
			})
		})
	}
}

// mutating makes a policy that is bound to a namespace.
func mutating(t *testing.T, name, namespace string, mutation admissionregistrationv1.Mutation, resources ...string) {
	t.Helper()
	client := env.Host().AdmissionregistrationV1()
	if _, err := client.MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: matching(writesOf(resources...)), Mutations: []admissionregistrationv1.Mutation{mutation},
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			FailurePolicy:      ptr.To(admissionregistrationv1.Fail),
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name, MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: in(namespace)}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Req: A-04 (C12)
func TestAMutatingAdmissionPolicyActsOnEveryKind(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	mutating(t, "label-"+namespace, namespace, admissionregistrationv1.Mutation{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"mutated": "yes"}}}`},
	}, "*")
	for _, k := range kinds() {
		harness.Eventually(t, noticed, func() string {
			object, err := objects(t, k, namespace).Create(t.Context(), k.object(namespace, k.name(1)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil || object.GetLabels()["mutated"] != "yes" {
				return k.kind + " is not mutated: " + text(err)
			}
			return ""
		})
		if made := create(t, k, k.object(namespace, k.name(1))); get(t, k, namespace, made.GetName()).GetLabels()["mutated"] != "yes" {
			t.Errorf("%s is stored without what the policy sets", k.kind)
		}
	}
}

// Req: A-04, T-13, T-01
func TestOurRulesJudgeWhatPoliciesMakeOfAnObject(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.grant(t, "create,update,patch", "talosmachines,talosclusters")
	mutating(t, "approve-"+m.namespace, m.namespace, admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/approved", value: true},
			JSONPatch{op: "add", path: "/spec/install", value: Object.spec.install{disk: "/dev/sda"}}]`},
	}, "talosmachines")
	mutating(t, "widen-"+m.namespace, m.namespace, admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/discovery/cidrs", value: ["192.0.0.0/8"]}]`},
	}, "talosclusters")
	as := func(k kind, object string) error {
		_, err := m.alice.Patch(t.Context(), k.name(7), types.ApplyPatchType, []byte(object), metav1.PatchOptions{FieldManager: "alice"})
		return err
	}
	var refusal error
	harness.Eventually(t, noticed, func() string {
		refusal = as(m.kind, toJSON(m.kind.object(m.namespace, m.kind.name(7)).Object))
		switch {
		case refusal == nil:
			if err := m.admin.Delete(t.Context(), m.kind.name(7), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			return "nothing is refused"
		case !apierrors.IsForbidden(refusal):
			// Our server reads the host's OpenAPI every 5 s; until it knows a type, it mutates none of it and says so.
			return refusal.Error()
		}
		return ""
	})
	m.refused(t, "approved by a policy on behalf of alice", refusal, "spec.approved")
	cluster := kindOf("TalosCluster")
	harness.Eventually(t, noticed, func() string {
		_, err := objects(t, cluster, m.namespace).Create(t.Context(), cluster.object(m.namespace, "widened"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "192.0.0.0/8") {
			return text(err)
		}
		return ""
	})
}

// Req: A-03, A-04 (C12)
func TestAWebhookIsCalledByOurServerAloneAndWithTheUsersName(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	var (
		mu    sync.Mutex
		asked []admissionv1.AdmissionRequest
	)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		asked = append(asked, *review.Request)
		mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !strings.Contains(string(review.Request.Object.Raw), `"forbidden":"yes"`)}
		review.Response.Result = &metav1.Status{Message: "the webhook says no"}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + m.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "test.example.com", Rules: writesOf("*", "talosmachines/approval"), NamespaceSelector: in(m.namespace),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: ptr.To[int32](10),
		}},
	}
	client := env.Host().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := client.Create(t.Context(), webhook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		harness.Eventually(t, noticed, func() string {
			if err := dryCreate(t, k, m.namespace, "forbidden"); !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "the webhook says no") {
				return k.kind + " is not refused: " + text(err)
			}
			return ""
		})
		if err := dryCreate(t, k, m.namespace, "allowed"); err != nil {
			t.Errorf("%s that the webhook allows: %v", k.kind, err)
		}
	}

	machine := m.pending(t)
	m.grant(t, "patch", "talosmachines/approval")
	m.grant(t, "approve", "talosmachines/approval")
	mu.Lock()
	asked = nil
	mu.Unlock()
	if err := m.patch(t, machine.Name, approval, "approval"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	var ofAlice []admissionv1.AdmissionRequest
	for _, request := range asked {
		if request.UserInfo.Username == m.user {
			ofAlice = append(ofAlice, request)
		}
	}
	if len(ofAlice) != 1 {
		t.Fatalf("the webhook was called %d times for one request", len(ofAlice))
	}
	request := ofAlice[0]
	if request.SubResource != "approval" || request.Operation != admissionv1.Update || request.Name != machine.Name || request.Namespace != m.namespace ||
		request.Resource.Resource != "talosmachines" || request.Kind.Kind != "TalosMachine" || len(request.OldObject.Raw) == 0 ||
		!strings.Contains(string(request.Object.Raw), `"approved":true`) || strings.Contains(string(request.OldObject.Raw), `"approved":true`) {
		t.Errorf("the webhook was asked about %s", toJSON(request))
	}

	// A webhook that does not answer must not be passed by.
	server.Close()
	if err := dryCreate(t, kindOf("Unit"), m.namespace, "allowed"); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("with the webhook down: %v", err)
	}
	if err := client.Delete(t.Context(), webhook.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, noticed, func() string {
		if err := dryCreate(t, kindOf("Unit"), m.namespace, "allowed"); err != nil {
			return err.Error()
		}
		return ""
	})
}
