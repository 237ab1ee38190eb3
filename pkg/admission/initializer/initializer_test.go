package initializer

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/generated/informers"
)

type wantsAll struct {
	*admission.Handler
	informers informers.SharedInformerFactory
	client    versioned.Interface
	uncached  authorizer.UnconditionalAuthorizer
	server    ServerIdentity
}

func (w *wantsAll) SetFieldplaneInformers(f informers.SharedInformerFactory) { w.informers = f }
func (w *wantsAll) SetFieldplaneClient(c versioned.Interface)                { w.client = c }
func (w *wantsAll) SetUncachedAuthorizer(authz authorizer.UnconditionalAuthorizer) {
	w.uncached = authz
}
func (w *wantsAll) SetServerIdentity(server ServerIdentity) { w.server = server }
func (w *wantsAll) ValidateInitialization() error           { return nil }

func TestAPluginGetsWhatItWantsAndOthersNothing(t *testing.T) {
	client := fake.NewClientset()
	authz := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionDeny, "", nil
	})
	initializer := New(informers.NewSharedInformerFactory(client, 0), client, authz, NewServerIdentity("system:apiserver"))

	plugin := &wantsAll{}
	initializer.Initialize(plugin)
	if plugin.informers == nil || plugin.client == nil || plugin.uncached == nil || plugin.server.Empty() {
		t.Errorf("have %+v", plugin)
	}
	initializer.Initialize(admission.NewHandler(admission.Create))
}

// Req: A-05, T-13
func TestServerIdentity(t *testing.T) {
	server := NewServerIdentity("", "system:serviceaccount:fieldplane-system:fieldplane-apiserver", "system:apiserver")
	for _, tc := range []struct {
		name string
		user user.Info
		is   bool
	}{
		{"the service account is the server", &user.DefaultInfo{Name: "system:serviceaccount:fieldplane-system:fieldplane-apiserver"}, true},
		{"the loopback user is the server", &user.DefaultInfo{Name: "system:apiserver"}, true},
		{"a person is not", &user.DefaultInfo{Name: "alice"}, false},
		{"a member of system:masters is not", &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, false},
		{"a user without a name is not, although a name was left unset", &user.DefaultInfo{}, false},
		{"no user is not", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if have := server.Is(tc.user); have != tc.is {
				t.Errorf("have %v", have)
			}
		})
	}
	if !NewServerIdentity("").Empty() || server.Empty() {
		t.Error("Empty is wrong")
	}
}
