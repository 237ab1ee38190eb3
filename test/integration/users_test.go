package integration

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientrest "k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/installation"
)

// rest is the administrator's client without types, for what typed ones do not send.
func rest(t testing.TB, k kind) clientrest.Interface {
	t.Helper()
	admin := env.Admin(t)
	if k.gv.Group == "talos.fieldplane.dev" {
		return admin.TalosV1alpha1().RESTClient()
	}
	return admin.PhysicalV1alpha1().RESTClient()
}

// direct makes a configuration reach our server itself, past the aggregator. Client certificates are known there too.
func direct(t testing.TB, config *clientrest.Config) *clientrest.Config {
	t.Helper()
	secret, err := env.Host().CoreV1().Secrets(installation.Namespace).Get(t.Context(), pki.ServingSecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("the Secret holds no CA")
	}
	config = clientrest.CopyConfig(config)
	config.Host = "https://" + env.Installation.Address()
	config.CAData, config.ServerName = secret.Data["ca.crt"], pki.ServingNames(installation.ServiceAccount, installation.Namespace)[0]
	return config
}

// rule allows verbs on resources of both groups; both are lists with commas.
func rule(verbs, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"physical.fieldplane.dev", "talos.fieldplane.dev"},
		Verbs:     strings.Split(verbs, ","), Resources: strings.Split(resources, ","), ResourceNames: names,
	}
}

// grant gives a user the rules in a namespace, and returns when the kube-apiserver says so. What it returns takes them
// back, and returns when the kube-apiserver says so: from then on the next request must be refused.
func grant(t testing.TB, namespace, user string, rules ...rbacv1.PolicyRule) (revoke func()) {
	t.Helper()
	client := env.Host().RbacV1()
	role, err := client.Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settled := func(allowed bool) {
		t.Helper()
		for _, rule := range rules {
			harness.Eventually(t, 2*time.Second, func() string {
				for _, resource := range rule.Resources {
					if may(t, namespace, user, rule.Verbs[0], resource, rule.ResourceNames) != allowed {
						return "RBAC has not heard of it: " + resource
					}
				}
				return ""
			})
		}
	}
	settled(true)
	return func() {
		t.Helper()
		if err := client.RoleBindings(namespace).Delete(t.Context(), role.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settled(false)
	}
}

// may asks the kube-apiserver.
func may(t testing.TB, namespace, user, verb, resource string, names []string) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	group := "physical.fieldplane.dev"
	if strings.HasPrefix(resource, "talos") {
		group = "talos.fieldplane.dev"
	}
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Version: "v1alpha1", Resource: resource, Subresource: subresource,
	}
	if len(names) > 0 {
		attributes.Name = names[0]
	}
	review, err := env.Host().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// noCodec is for clients that send and read bytes alone.
type noCodec struct{ runtime.NegotiatedSerializer }

func (noCodec) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{MediaType: runtime.ContentTypeJSON}}
}
