package chain

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// bind gives a user a shipped ClusterRole in a namespace.
func bind(t *testing.T, namespace, user, role string) versioned.Interface {
	t.Helper()
	_, err := env.Host().RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
	return env.As(t, user)
}

// configuration reads talosmachines/config.
func configuration(ctx context.Context, client rest.Interface, namespace, name string, diff bool) (string, error) {
	request := client.Get().Namespace(namespace).Resource("talosmachines").Name(name).SubResource("config")
	if diff {
		request = request.Param("diff", "running")
	}
	text, err := request.DoRaw(ctx)
	return string(text), err
}

// Req: T-11, T-15
func TestAConfigurationIsShownWithoutItsSecretsAndOnlyToWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "waiting")
	leftAlone := f.leftAlone(t, "waiting")
	f.run(t, "control")
	admin := env.Admin(t).TalosV1alpha1().RESTClient()
	text, err := configuration(t.Context(), admin, f.namespace, f.uuid("control"), false)
	must(t, err)
	if !containsAll(text, "type: controlplane", "hostname: control", talosDisk, "***") {
		t.Errorf("shown is\n%s", text)
	}
	if found := leak(text, bundleSecrets()); found != "" {
		t.Errorf("shown is %s", found)
	}
	// It would find them: they are in the configuration itself.
	if leak(string(f.node("control").Configuration()), bundleSecrets()) == "" {
		t.Error("this test finds no secret where they are")
	}
	diff, err := configuration(t.Context(), admin, f.namespace, f.uuid("control"), true)
	if err != nil || strings.TrimSpace(diff) != "" {
		t.Errorf("what runs is what would be sent, and the difference is %q (%v)", diff, err)
	}
	must(t, f.plant.Patch("control", "machine:\n  nodeLabels:\n    changed: by-hand\ncluster:\n  token: abcdef.0123456789abcdef\n"))
	diff, err = configuration(t.Context(), admin, f.namespace, f.uuid("control"), true)
	if err != nil || !strings.Contains(diff, "by-hand") || strings.Contains(diff, "0123456789abcdef") || leak(diff, bundleSecrets()) != "" {
		t.Errorf("the difference is %q (%v)", diff, err)
	}
	if output := mustPlugin(t, "config", "machine", f.uuid("control"), "-n", f.namespace); !strings.Contains(output, "type: controlplane") {
		t.Errorf("the plugin shows\n%s", output)
	}

	// Of what has no role there is no configuration, and that is no approval.
	if _, err = configuration(t.Context(), admin, f.namespace, f.uuid("waiting"), false); !apierrors.IsConflict(err) {
		t.Errorf("of a machine without a role: %v", err)
	}
	if output, err := plugin(t, "config", "machine", f.uuid("waiting"), "-n", f.namespace); err == nil || !strings.Contains(output, "role is not set") {
		t.Errorf("of a machine without a role: %v\n%s", err, output)
	}
	leftAlone()

	for role, allowed := range map[string]bool{"fieldplane-view": false, "fieldplane-edit": false, "fieldplane-approver": false, "fieldplane-talos-operator": true} {
		user := role + "-of-" + f.namespace
		client := bind(t, f.namespace, user, role).TalosV1alpha1()
		harness.Eventually(t, onlineLimit, func() string {
			// RBAC takes a moment; what all of them may is the sign.
			probe := func() error {
				if role == "fieldplane-edit" {
					_, err := client.TalosMachines(f.namespace).Patch(t.Context(), "none", "application/merge-patch+json", []byte(`{}`), metav1.PatchOptions{})
					if apierrors.IsNotFound(err) {
						return nil
					}
					return err
				}
				_, err := client.TalosMachines(f.namespace).List(t.Context(), metav1.ListOptions{})
				return err
			}
			if err := probe(); err != nil {
				return err.Error()
			}
			return ""
		})
		for _, diff := range []bool{false, true} {
			text, err := configuration(t.Context(), client.RESTClient(), f.namespace, f.uuid("control"), diff)
			if allowed != (err == nil) || !allowed && (!apierrors.IsForbidden(err) || strings.Contains(text, "controlplane")) {
				t.Errorf("%s (difference: %v): %v\n%s", role, diff, err, text)
			}
		}
		_, err := client.TalosClusters(f.namespace).RequestDiscovery(t.Context(), clusterName, &v1alpha1.DiscoveryRequest{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if allowed != (err == nil) {
			t.Errorf("%s asks for a sweep: %v", role, err)
		}
		_, err = client.TalosMachines(f.namespace).RequestReboot(t.Context(), f.uuid("control"), &v1alpha1.RebootRequest{}, metav1.CreateOptions{})
		if allowed == apierrors.IsForbidden(err) || err == nil {
			t.Errorf("%s asks for a reboot for which nothing waits: %v", role, err)
		}
	}
}

// Req: T-04, T-05, T-10
func TestTheDiscoverCommandSweepsNowAndShowsWhatAnswered(t *testing.T) {
	t.Parallel()
	p := newNodes(t, func(spec *plant.TalosSpec) {
		if spec.Name == "weak" {
			spec.Serial = "To Be Filled By O.E.M."
		}
	}, "known", "new", "weak")
	must(t, p.Fault("new", string(talosnode.FaultClosed)))
	c := newCell(t, addresses(host(p.Node("known")), host(p.Node("new")), host(p.Node("weak")), "127.0.79.251")).withBundle(t, secretsBundle())
	c.tellsNothing(t)
	c.pending(t, p.Node("known"))
	c.swept(t)
	c.editCluster(t, `{"paused":true}`)
	if output, err := plugin(t, "discover", clusterName, "-n", c.namespace); err == nil || !strings.Contains(output, "paused") {
		t.Errorf("a paused cluster: %v\n%s", err, output)
	}
	c.editCluster(t, `{"paused":false}`)
	c.swept(t)
	// The next one that comes by itself is a minute away.
	must(t, p.Heal("new"))
	output := mustPlugin(t, "discover", clusterName, "-n", c.namespace)
	if !containsAll(output, "4 addresses", "3 answered", "1 registered", p.Node("known").Hardware().UUID, p.Node("new").Hardware().UUID, host(p.Node("weak")), "serial") {
		t.Errorf("shown is\n%s", output)
	}
	// It waited for a sweep that began when it was asked for.
	cluster, err := c.clusters.Get(t.Context(), clusterName, metav1.GetOptions{})
	must(t, err)
	if d := cluster.Status.Discovery; d.RequestedAt == nil || d.CompletedAt == nil || d.StartedAt.Before(d.RequestedAt) {
		t.Errorf("the sweep is %+v", fmt.Sprint(d))
	}
	for _, name := range []string{"known", "new"} {
		c.pending(t, p.Node(name))
	}
	if _, err := c.machines.Get(t.Context(), p.Node("weak").Hardware().UUID, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a weak machine was registered: %v", err)
	}
	receivedNothing(t, p.Node("known"), p.Node("new"), p.Node("weak"))
}
