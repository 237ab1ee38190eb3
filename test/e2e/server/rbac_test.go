package server

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/test/installation"
)

// account is the server's user name in the host cluster.
const account = "system:serviceaccount:" + installation.Namespace + ":" + installation.ServiceAccount

// Req: A-10. That each shipped rule is used and is missed is shown in test/integration/rbac; here it is what a server does without it.
func TestTheServerHasTheShippedRightsAloneAndServesWithThem(t *testing.T) {
	running(t)
	var bound []string
	clusterBindings, err := env.Host().RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, binding := range clusterBindings.Items {
		if bindsAccount(binding.Subjects) {
			bound = append(bound, "ClusterRoleBinding "+binding.Name)
		}
	}
	bindings, err := env.Host().RbacV1().RoleBindings("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, binding := range bindings.Items {
		if bindsAccount(binding.Subjects) {
			bound = append(bound, "RoleBinding "+binding.Namespace+"/"+binding.Name)
		}
	}
	slices.Sort(bound)
	want := []string{
		"ClusterRoleBinding fieldplane-apiserver",
		"ClusterRoleBinding fieldplane-apiserver:auth-delegator",
		"RoleBinding fieldplane-system/fieldplane-apiserver",
		"RoleBinding kube-system/fieldplane-apiserver:extension-apiserver-authentication-reader",
	}
	if !slices.Equal(bound, want) {
		t.Errorf("the server's account is bound by %q, want %q", bound, want)
	}

	stopped(t)
	began := time.Now()
	server := startServer(t, freePort(t), "--data-dir="+filepath.Join(t.TempDir(), "store"))
	server.waitReady(t)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("ready after %v", took)
	}
	began = time.Now()
	_, err = direct(t, server.address).PhysicalV1alpha1().ControlModules("default").Create(t.Context(), controlModule(metav1.ObjectMeta{Name: "first"}), metav1.CreateOptions{})
	must(t, err)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the first create took %v", took)
	}
}

// bindsAccount tells whether the subjects are the server's account, by name and not by a group of all accounts or users.
func bindsAccount(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(subject rbacv1.Subject) bool {
		return subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == installation.Namespace && subject.Name == installation.ServiceAccount ||
			subject.Kind == rbacv1.UserKind && subject.Name == account
	})
}

// Req. Each right that a start needs is taken away alone.
func TestWithoutARightThatAStartNeedsTheServerIsNotReadyAndSaysWhatItLacks(t *testing.T) {
	running(t)
	stopped(t)
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "namespaces"},
		{Verb: "list", Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"},
		{Verb: "list", Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
		{Verb: "list", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
		{Verb: "list", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Verb: "list", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
		{Verb: "list", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
		{Verb: "list", Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"},
		{Verb: "list", Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"},
		{Verb: "list", Resource: "nodes"},
	} {
		t.Run("without "+right.Verb+" on "+right.Resource, func(t *testing.T) {
			takeAway(t, right)
			server := startServer(t, freePort(t), "--data-dir="+filepath.Join(t.TempDir(), "store"))
			client := probeClient(t)
			missing := fmt.Sprintf("cannot list resource %q in API group %q", right.Resource, right.Group)
			eventually(t, 20*time.Second, func() error {
				status, text, err := client.get(t.Context(), server.address, "/readyz?verbose")
				if err != nil {
					return err
				}
				if status == http.StatusOK {
					t.Fatalf("the server is ready without this right")
				}
				if !strings.Contains(text, "[-]informer-sync failed") {
					return fmt.Errorf("readyz is %d: %s", status, text)
				}
				// The log quotes what is quoted in the error.
				if !strings.Contains(strings.ReplaceAll(server.log(), `\"`, `"`), missing) {
					return fmt.Errorf("the log does not say %s", missing)
				}
				return nil
			})
		})
	}
}

// Req
func TestWithoutARightToItsSecretOrToTheHostsReviewsTheServerSaysSo(t *testing.T) {
	running(t)
	stopped(t)
	for _, tc := range []struct {
		name  string
		right authorizationv1.ResourceAttributes
		// spoil makes the start need the right.
		spoil func(t *testing.T)
		// use does what is refused without the right, if the start is not.
		use  func(t *testing.T, server *process)
		want string
	}{
		{
			name:  "to read its certificate",
			right: authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: installation.Namespace},
			spoil: func(*testing.T) {},
			want:  `cannot get resource "secrets" in API group "" in the namespace "fieldplane-system"`,
		},
		{
			name:  "to make its certificate",
			right: authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets"},
			spoil: func(t *testing.T) {
				must(t, env.Host().CoreV1().Secrets(installation.Namespace).Delete(t.Context(), pki.ServingSecretName, metav1.DeleteOptions{}))
			},
			want: `cannot create resource "secrets" in API group "" in the namespace "fieldplane-system"`,
		},
		{
			name:  "to know the front proxy",
			right: authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
			spoil: func(*testing.T) {},
			want:  `cannot get resource "configmaps" in API group "" in the namespace "kube-system"`,
		},
		{
			name:  "to ask what a user may do",
			right: authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
			spoil: func(*testing.T) {},
			use: func(t *testing.T, server *process) {
				server.waitReady(t)
				config := directConfig(t, server.address)
				user, err := env.Cluster.UserConfig("operator")
				must(t, err)
				config.CertData, config.KeyData = user.CertData, user.KeyData
				client, err := versioned.NewForConfig(config)
				must(t, err)
				if _, err := client.PhysicalV1alpha1().Units("default").List(t.Context(), metav1.ListOptions{}); err == nil {
					t.Error("a user is served whose rights are not known")
				}
			},
			want: `cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			takeAway(t, tc.right)
			tc.spoil(t)
			server := startServer(t, freePort(t), "--data-dir="+filepath.Join(t.TempDir(), "store"))
			if tc.use != nil {
				tc.use(t, server)
			}
			eventually(t, 20*time.Second, func() error {
				if log := strings.ReplaceAll(server.log(), `\"`, `"`); !strings.Contains(log, tc.want) {
					return fmt.Errorf("the log does not say %s", tc.want)
				}
				return nil
			})
			if tc.use == nil && strings.Contains(server.log(), "Ready and published") {
				t.Error("the server is ready")
			}
		})
	}
}

// takeAway takes a right from the server's roles until the test's end: the resource from each rule that grants it, and bindings of
// roles that are not ours. It returns when the host cluster says that the right is gone.
func takeAway(t *testing.T, right authorizationv1.ResourceAttributes) {
	t.Helper()
	roles := env.Host().RbacV1()
	without := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		var rest []rbacv1.PolicyRule
		for _, rule := range rules {
			if slices.Contains(rule.APIGroups, right.Group) && len(rule.ResourceNames) == 0 {
				rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(resource string) bool { return resource == right.Resource })
			}
			if len(rule.Resources) > 0 {
				rest = append(rest, rule)
			}
		}
		return rest
	}

	clusterRole, err := roles.ClusterRoles().Get(t.Context(), installation.ServiceAccount, metav1.GetOptions{})
	must(t, err)
	role, err := roles.Roles(installation.Namespace).Get(t.Context(), installation.ServiceAccount, metav1.GetOptions{})
	must(t, err)
	reader, err := roles.RoleBindings(metav1.NamespaceSystem).Get(t.Context(), installation.ServiceAccount+":extension-apiserver-authentication-reader", metav1.GetOptions{})
	must(t, err)
	delegator, err := roles.ClusterRoleBindings().Get(t.Context(), installation.ServiceAccount+":auth-delegator", metav1.GetOptions{})
	must(t, err)
	asksHost := right.Group == "authorization.k8s.io"
	t.Cleanup(func() {
		ctx := context.Background()
		clusterRole.ResourceVersion, role.ResourceVersion, reader.ResourceVersion, delegator.ResourceVersion = "", "", "", ""
		_, err := roles.ClusterRoles().Update(ctx, clusterRole, metav1.UpdateOptions{})
		must(t, err)
		_, err = roles.Roles(installation.Namespace).Update(ctx, role, metav1.UpdateOptions{})
		must(t, err)
		if right.Namespace == metav1.NamespaceSystem {
			_, err = roles.RoleBindings(metav1.NamespaceSystem).Create(ctx, reader, metav1.CreateOptions{})
			must(t, err)
		}
		if asksHost {
			_, err = roles.ClusterRoleBindings().Create(ctx, delegator, metav1.CreateOptions{})
			must(t, err)
		}
		waitAllowed(t, right, true)
	})

	waitAllowed(t, right, true)
	crippled := clusterRole.DeepCopy()
	crippled.Rules = without(crippled.Rules)
	_, err = roles.ClusterRoles().Update(t.Context(), crippled, metav1.UpdateOptions{})
	must(t, err)
	if right.Namespace == installation.Namespace {
		crippled := role.DeepCopy()
		crippled.Rules = without(crippled.Rules)
		_, err = roles.Roles(installation.Namespace).Update(t.Context(), crippled, metav1.UpdateOptions{})
		must(t, err)
	}
	if right.Namespace == metav1.NamespaceSystem {
		must(t, roles.RoleBindings(metav1.NamespaceSystem).Delete(t.Context(), reader.Name, metav1.DeleteOptions{}))
	}
	if asksHost {
		must(t, roles.ClusterRoleBindings().Delete(t.Context(), delegator.Name, metav1.DeleteOptions{}))
	}
	waitAllowed(t, right, false)
}

// waitAllowed waits until the kube-apiserver would let the server do this, or would not.
func waitAllowed(t *testing.T, right authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + installation.Namespace, "system:authenticated"}
	// A cleanup waits too, when the test's context has ended.
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		review, err := env.Host().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: account, Groups: groups, ResourceAttributes: &right},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed == allowed, err
	})
	if err != nil {
		t.Fatalf("whether %s on %s is allowed does not become %v: %v", right.Verb, right.Resource, allowed, err)
	}
}
