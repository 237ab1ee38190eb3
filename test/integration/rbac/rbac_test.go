// Package rbac runs the server with the rights that the manifests give its
// ServiceAccount, whole and with each rule removed in turn. What is asked and
// refused is read from the kube-apiserver's audit log.
package rbac

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	fieldplane "github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/etcd"
	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/localcluster"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

const (
	repo = "../../.."
	// noticed is how long a missing right may take to show.
	noticed = 40 * time.Second
	// settled is how long a server is watched that lacks nothing.
	settled = 8 * time.Second
)

// site is a cluster with fieldplane in it.
type site struct {
	cluster      *localcluster.Cluster
	installation *installation.Installation
	client       kubernetes.Interface
	audit        *auditLog
	binDir       string
	namespaces   int
}

func newSite(t *testing.T) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	binDir, err := filepath.Abs(filepath.Join(repo, "_local", "bin"))
	must(t, err)
	s := &site{audit: newAuditLog(t), binDir: binDir}
	dir := t.TempDir()
	s.cluster, err = localcluster.Start(ctx, localcluster.Options{
		Dir: filepath.Join(dir, "cluster"), BinDir: binDir,
		ExtraArgs: map[string][]string{"kube-apiserver": s.audit.args()},
	})
	must(t, err)
	t.Cleanup(s.cluster.Stop)
	s.client = s.cluster.Client()
	repoDir, err := filepath.Abs(repo)
	must(t, err)
	s.installation, err = installation.Start(ctx, installation.Options{
		Cluster: s.cluster, BinDir: binDir, RepoDir: repoDir, Dir: dir, LogDir: dir,
	})
	must(t, err)
	t.Cleanup(s.installation.Kill)
	return s
}

// work makes the server use its rights: a module to be probed in a namespace of
// its own, and in the way of its probe a ConfigMap that is somebody else's,
// which is worth an Event.
func (s *site) work(ctx context.Context) error {
	s.namespaces++
	namespace := fmt.Sprintf("site-%d", s.namespaces)
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if s.namespaces%2 == 0 {
		if _, err := s.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "network-io-probe"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	// A flow schema that leads nowhere: everybody who runs priority and
	// fairness marks it as dangling.
	if _, err := s.client.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         9000,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "nowhere"},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	client, err := fieldplane.NewForConfig(s.cluster.AdminConfig())
	if err != nil {
		return err
	}
	_, err = client.PhysicalV1alpha1().IOModules(namespace).Create(ctx, &physicalv1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: "module"},
		Spec: physicalv1alpha1.IOModuleSpec{
			Protocol: physicalv1alpha1.ProtocolModbus,
			Modbus:   &physicalv1alpha1.ModbusConnection{Endpoint: "tcp://127.0.0.1:1"},
		},
	}, metav1.CreateOptions{})
	return err
}

// spoil makes the next start write what it would find in order: its own
// certificate, those of the probes, the Lease.
func (s *site) spoil(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	secrets, err := s.client.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	must(t, err)
	for _, secret := range secrets.Items {
		if secret.Name != pki.ServingSecretName && secret.Name != pki.NamespaceSecretName {
			continue
		}
		secret.Data[corev1.TLSCertKey] = []byte("spoilt")
		_, err := s.client.CoreV1().Secrets(secret.Namespace).Update(ctx, &secret, metav1.UpdateOptions{})
		must(t, err)
	}
	must(t, s.client.CoordinationV1().Leases(installation.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// startServer starts one without waiting for it; the test's end kills it.
func (s *site) startServer(t *testing.T, extraArgs ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	must(t, err)
	defer log.Close()
	server, err := child.Start(child.Spec{
		Name: "fieldplane-apiserver", Path: filepath.Join(s.binDir, "fieldplane-apiserver"),
		Args:    append(s.installation.Args(), extraArgs...),
		Env:     append(os.Environ(), "POD_NAMESPACE="+installation.Namespace, "POD_NAME="+installation.ServiceAccount+"-0"),
		Output:  log,
		PidFile: log.Name() + ".pid",
	})
	must(t, err)
	t.Cleanup(func() {
		server.Signal(syscall.SIGKILL)
		<-server.Done()
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", child.Tail(log.Name(), 40))
		}
	})
}

// until works and looks, again and again, until look is content or the time is
// up.
func (s *site) until(t *testing.T, look func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), noticed)
	defer cancel()
	lastWork := time.Time{}
	for ctx.Err() == nil {
		if look() {
			return true
		}
		// A server that lacks a right may refuse the work. That is no failure
		// of the test.
		if time.Since(lastWork) > 3*time.Second {
			lastWork = time.Now()
			workCtx, done := context.WithTimeout(ctx, 2*time.Second)
			_ = s.work(workCtx)
			done()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// Req, P-18
func TestTheServerRunsWithTheShippedRightsAndNeedsEachOfThem(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	began := time.Now()
	s := newSite(t)
	t.Logf("cluster and server after %v", time.Since(began).Round(time.Millisecond))

	ctx := t.Context()
	cluster, err := s.client.RbacV1().ClusterRoles().Get(ctx, installation.ServiceAccount, metav1.GetOptions{})
	must(t, err)
	own, err := s.client.RbacV1().Roles(installation.Namespace).Get(ctx, installation.ServiceAccount, metav1.GetOptions{})
	must(t, err)
	type shipped struct {
		rbacv1.PolicyRule
		namespace string
		index     int
	}
	var rules []shipped
	for i, rule := range cluster.Rules {
		rules = append(rules, shipped{PolicyRule: rule, index: i})
	}
	for i, rule := range own.Rules {
		rules = append(rules, shipped{PolicyRule: rule, namespace: installation.Namespace, index: i})
	}
	seen := func(t *testing.T, place int64, rule shipped, forbidden bool) bool {
		return slices.ContainsFunc(s.audit.since(t, place), func(r request) bool {
			return r.forbidden() == forbidden && r.coveredBy(rule.PolicyRule, rule.namespace)
		})
	}

	t.Run("a create takes less than a second", func(t *testing.T) {
		began := time.Now()
		must(t, s.work(ctx))
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
	t.Run("a namespace with a module gets its probe's certificate", func(t *testing.T) {
		if !s.until(t, func() bool {
			_, err := s.client.CoreV1().Secrets("site-1").Get(ctx, pki.NamespaceSecretName, metav1.GetOptions{})
			return err == nil
		}) {
			t.Error("there is none")
		}
	})
	s.installation.Kill()

	for _, tc := range []struct {
		name  string
		store func(t *testing.T) []string
		// idle says which rules the server has no use for with this store.
		idle func(rule shipped) bool
	}{
		{
			name:  "with the embedded store nothing is refused, and every rule but that of several replicas is used",
			store: func(*testing.T) []string { return nil },
			idle:  func(rule shipped) bool { return slices.Contains(rule.Resources, "leases") },
		},
		{
			name:  "with an external store nothing is refused, and every rule is used",
			store: func(t *testing.T) []string { return []string{"--etcd-servers=" + externalEtcd(t)} },
			idle:  func(shipped) bool { return false },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			place, began := s.audit.end(t), time.Now()
			s.spoil(t)
			s.startServer(t, tc.store(t)...)
			// A refusal may come late: what happens in the seconds after the
			// start is looked at too.
			s.until(t, func() bool {
				return time.Since(began) > settled && !slices.ContainsFunc(rules, func(rule shipped) bool {
					return !tc.idle(rule) && !seen(t, place, rule, false)
				})
			})
			for _, rule := range rules {
				if !tc.idle(rule) && !seen(t, place, rule, false) {
					t.Errorf("nothing needed %s: the role is not minimal", told(rule.PolicyRule))
				}
				reportUnused(t, s.audit.since(t, 0), rule.PolicyRule, rule.namespace)
			}
			for _, r := range s.audit.since(t, 0) {
				if r.forbidden() {
					t.Errorf("refused: %s", r)
				}
			}
		})
	}

	for _, rule := range rules {
		t.Run("without "+told(rule.PolicyRule), func(t *testing.T) {
			var extraArgs []string
			if slices.Contains(rule.Resources, "leases") {
				extraArgs = []string{"--etcd-servers=" + externalEtcd(t)}
			}
			removeRule(t, s.client, rule.namespace, rule.index)
			s.spoil(t)
			place := s.audit.end(t)
			s.startServer(t, extraArgs...)
			if !s.until(t, func() bool { return seen(t, place, rule, true) }) {
				t.Errorf("the server did not miss it")
			}
		})
	}

	t.Run("without the right to ask who a user is and what they may", func(t *testing.T) {
		bindings := s.client.RbacV1().ClusterRoleBindings()
		binding, err := bindings.Get(ctx, installation.ServiceAccount+":auth-delegator", metav1.GetOptions{})
		must(t, err)
		must(t, bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		t.Cleanup(func() {
			binding.ResourceVersion = ""
			_, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{})
			must(t, err)
		})
		place := s.audit.end(t)
		s.startServer(t)
		if !s.until(t, func() bool {
			return slices.ContainsFunc(s.audit.since(t, place), func(r request) bool {
				return r.forbidden() && r.ObjectRef.Resource == "subjectaccessreviews"
			})
		}) {
			t.Error("the server did not miss it")
		}
	})

	// The right to all ConfigMaps covers this one too. The binding is what lets
	// the server start, and say what it lacks, without it.
	t.Run("without the right to know the front proxy", func(t *testing.T) {
		configMaps := slices.IndexFunc(cluster.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "configmaps") })
		removeRule(t, s.client, "", configMaps)
		frontProxy := func(place int64, forbidden bool) func() bool {
			return func() bool {
				return slices.ContainsFunc(s.audit.since(t, place), func(r request) bool {
					return r.forbidden() == forbidden && r.ObjectRef.Namespace == "kube-system" && r.ObjectRef.Resource == "configmaps"
				})
			}
		}
		t.Run("with the binding it knows", func(t *testing.T) {
			place := s.audit.end(t)
			s.startServer(t)
			if !s.until(t, frontProxy(place, false)) || frontProxy(place, true)() {
				t.Error("the binding does not give the right")
			}
		})
		bindings := s.client.RbacV1().RoleBindings("kube-system")
		binding, err := bindings.Get(ctx, installation.ServiceAccount+":extension-apiserver-authentication-reader", metav1.GetOptions{})
		must(t, err)
		must(t, bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		t.Cleanup(func() {
			binding.ResourceVersion = ""
			_, err := bindings.Create(context.Background(), binding, metav1.CreateOptions{})
			must(t, err)
		})
		place := s.audit.end(t)
		s.startServer(t)
		if !s.until(t, frontProxy(place, true)) {
			t.Error("the server did not miss it")
		}
	})
}

// told names a rule in the words of its manifest.
func told(rule rbacv1.PolicyRule) string {
	text := strings.Join(rule.Verbs, "+") + " on " + strings.Join(rule.Resources, "+")
	if len(rule.ResourceNames) > 0 {
		text += " named " + strings.Join(rule.ResourceNames, "+")
	}
	return text
}

// reportUnused logs what of a rule was never used. It is no failure: a verb may
// be for a day that this test does not see.
func reportUnused(t *testing.T, requests []request, rule rbacv1.PolicyRule, namespace string) {
	t.Helper()
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				one := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: rule.ResourceNames}
				if !slices.ContainsFunc(requests, func(r request) bool { return !r.forbidden() && r.coveredBy(one, namespace) }) {
					t.Logf("not used here: %s on %s of group %q", verb, resource, group)
				}
			}
		}
	}
}

// removeRule takes one rule out of the server's role until the test's end, and
// waits until that counts.
func removeRule(t *testing.T, client kubernetes.Interface, namespace string, index int) {
	t.Helper()
	update := func(change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) error {
		ctx := context.Background()
		if namespace == "" {
			role, err := client.RbacV1().ClusterRoles().Get(ctx, installation.ServiceAccount, metav1.GetOptions{})
			if err != nil {
				return err
			}
			role.Rules = change(role.Rules)
			_, err = client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
			return err
		}
		role, err := client.RbacV1().Roles(namespace).Get(ctx, installation.ServiceAccount, metav1.GetOptions{})
		if err != nil {
			return err
		}
		role.Rules = change(role.Rules)
		_, err = client.RbacV1().Roles(namespace).Update(ctx, role, metav1.UpdateOptions{})
		return err
	}
	var whole []rbacv1.PolicyRule
	must(t, update(func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		whole = slices.Clone(rules)
		return slices.Delete(slices.Clone(rules), index, index+1)
	}))
	t.Cleanup(func() {
		must(t, update(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return whole }))
	})
}

// externalEtcd is an etcd cluster of one member, as far as a server knows that
// is not told.
func externalEtcd(t *testing.T) string {
	t.Helper()
	store, err := etcd.Start(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd")})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := store.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return store.Endpoint()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
