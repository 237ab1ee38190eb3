package permission

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Req: T-13, T-14
func TestRequire(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"operators"}, Extra: map[string][]string{"scopes": {"plant"}}}
	resource := schema.GroupVersionResource{Group: "talos.fieldplane.dev", Version: "v1alpha1", Resource: "talosmachines"}
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "site-a", "", resource, "", admission.Create, nil, false, alice)
	asked := Permission{Verb: "approve", Subresource: "approval", Name: "m1", To: "set spec.approved to true"}

	for _, tc := range []struct {
		name     string
		decision authorizer.Decision
		reason   string
		err      error
		code     int32
		text     []string
	}{
		{name: "allowed", decision: authorizer.DecisionAllow},
		{name: "allowed although another authorizer failed", decision: authorizer.DecisionAllow, err: errors.New("x")},
		{name: "no opinion is a 403 that names user, verb, resource, namespace and purpose", decision: authorizer.DecisionNoOpinion, code: http.StatusForbidden,
			text: []string{`talosmachines.talos.fieldplane.dev "m1" is forbidden`, `user "alice"`, `verb "approve"`, `resource "talosmachines/approval"`, `API group "talos.fieldplane.dev"`, `namespace "site-a"`, "to set spec.approved to true"}},
		{name: "denied is a 403 with the authorizer's reason", decision: authorizer.DecisionDeny, reason: "not on weekends", code: http.StatusForbidden, text: []string{`"approve"`, "not on weekends"}},
		{name: "a failed review is a 503, not a 403", decision: authorizer.DecisionNoOpinion, err: errors.New("dial timeout"), code: http.StatusServiceUnavailable,
			text: []string{`"approve"`, "talosmachines/approval", "site-a/m1", "try again", "dial timeout"}},
		{name: "a denial with an error is a 503 too", decision: authorizer.DecisionDeny, err: errors.New("dial timeout"), code: http.StatusServiceUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen []authorizer.Attributes
			err := Require(context.Background(), authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				seen = append(seen, a)
				return tc.decision, tc.reason, tc.err
			}), attributes, asked)

			if len(seen) != 1 {
				t.Fatalf("asked %d times", len(seen))
			}
			if r := seen[0]; r.GetUser() != user.Info(alice) || r.GetVerb() != "approve" || r.GetNamespace() != "site-a" || r.GetAPIGroup() != "talos.fieldplane.dev" ||
				r.GetAPIVersion() != "v1alpha1" || r.GetResource() != "talosmachines" || r.GetSubresource() != "approval" || r.GetName() != "m1" || !r.IsResourceRequest() {
				t.Errorf("asked for %+v", r)
			}
			if tc.code == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if code := apierrors.APIStatus(nil); !errors.As(err, &code) || code.Status().Code != tc.code {
				t.Fatalf("want a %d, have %v", tc.code, err)
			}
			for _, text := range tc.text {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

func TestARequestWithoutAUserIsRefusedWithoutPanic(t *testing.T) {
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)
	err := Require(context.Background(), authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	}), attributes, Permission{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("have %v", err)
	}
}
