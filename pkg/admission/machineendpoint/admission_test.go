package machineendpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

const loopback = "system:apiserver"

// recorder answers every question alike and keeps what was asked.
type recorder struct {
	decision authorizer.Decision
	err      error
	asked    []string
}

func (r *recorder) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.asked = append(r.asked, fmt.Sprintf("%s %s %s.%s/%s %s/%s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetAPIGroup(), a.GetSubresource(), a.GetNamespace(), a.GetName()))
	return r.decision, "", r.err
}

func cluster(namespace string, addresses, cidrs []string) *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: namespace},
		Spec: v1alpha1.TalosClusterSpec{Discovery: v1alpha1.TalosDiscovery{Addresses: addresses, Cidrs: cidrs}}}
}

func machine(endpoint string) *talos.TalosMachine {
	return &talos.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m1", Namespace: "site-a"},
		Spec: talos.TalosMachineSpec{ClusterRef: talos.ClusterReference{Name: "c1"}, Endpoint: endpoint}}
}

// plant is what the plugin can see.
type plant struct {
	informed *v1alpha1.TalosCluster // what the informer shows
	unsynced bool                   // the informer shows nothing yet
	live     *v1alpha1.TalosCluster // what is stored
	liveErr  error
}

func (p plant) plugin(t *testing.T, authz authorizer.UnconditionalAuthorizer) (*Endpoint, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	if p.live != nil {
		client = fake.NewClientset(p.live)
	}
	if p.liveErr != nil {
		client.PrependReactor("get", "talosclusters", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, p.liveErr })
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	if p.informed != nil {
		if err := factory.Talos().V1alpha1().TalosClusters().Informer().GetIndexer().Add(p.informed); err != nil {
			t.Fatal(err)
		}
	}
	plugin := New()
	initializer.New(factory, client, authz, initializer.NewServerIdentity(loopback)).Initialize(plugin)
	plugin.synced = func() bool { return !p.unsynced }
	return plugin, client
}

func validate(plugin *Endpoint, stored, wanted *talos.TalosMachine, subresource string, dryRun bool, who string) error {
	op, name := admission.Update, wanted.Name
	var old runtime.Object
	if stored != nil {
		old = stored
	} else {
		op, name = admission.Create, ""
	}
	return plugin.Validate(context.Background(), admission.NewAttributesRecord(wanted, old, schema.GroupVersionKind{}, "site-a", name,
		schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: "talosmachines"}, subresource, op, nil, dryRun, &user.DefaultInfo{Name: who}), nil)
}

func code(err error) int32 {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &status):
		return status.Status().Code
	}
	return 0
}

// Every path × every change of the endpoint × every state of the cluster × every answer of the authorizer.
//
// Req: T-14
func TestEveryCell(t *testing.T) {
	declares := cluster("site-a", []string{"192.0.2.1"}, []string{"198.51.100.0/24"})
	narrow := cluster("site-a", []string{"192.0.2.99"}, nil)

	plants := []struct {
		name     string
		plant    plant
		declared bool // declares 192.0.2.1 and 198.51.100.7
		outside  string
		code     int32 // without the verb; 0: 403
	}{
		{"declared, and the informer knows", plant{informed: declares, live: declares}, true, "", 0},
		{"declared, and the informer is behind", plant{informed: narrow, live: declares}, true, "", 0},
		{"declared, and the informer has not seen the cluster", plant{live: declares}, true, "", 0},
		{"declared, and the informer has not synced", plant{unsynced: true, live: declares}, true, "", 0},
		{"not declared", plant{informed: narrow, live: narrow}, false, `spec.discovery of TalosCluster "c1" does not declare`, 0},
		{"nothing declared", plant{live: cluster("site-a", nil, nil)}, false, `does not declare`, 0},
		{"an invalid declaration declares nothing", plant{live: cluster("site-a", []string{"192.0.2.1", "::1"}, nil)}, false, `does not declare`, 0},
		{"no such cluster", plant{}, false, `does not exist`, 0},
		{"only a cluster of that name in another namespace", plant{informed: cluster("site-b", []string{"192.0.2.1"}, nil), live: cluster("site-b", []string{"192.0.2.1"}, nil)}, false, `does not exist`, 0},
		{"the cluster cannot be read", plant{liveErr: errors.New("etcd is away")}, false, "", http.StatusServiceUnavailable},
	}

	changes := []struct {
		name   string
		stored *talos.TalosMachine
		wanted *talos.TalosMachine
		checks bool
	}{
		{"create with an address", nil, machine("192.0.2.1"), true},
		{"create with an address of a range", nil, machine("198.51.100.7"), true},
		{"create without an endpoint", nil, machine(""), false},
		{"set", machine(""), machine("192.0.2.1"), true},
		{"change", machine("203.0.113.5"), machine("192.0.2.1"), true},
		{"leave, inside or outside", machine("192.0.2.1"), machine("192.0.2.1"), false},
		{"clear", machine("203.0.113.5"), machine(""), false},
	}

	answers := []struct {
		name     string
		decision authorizer.Decision
		err      error
		code     int32
	}{
		{"verb yes", authorizer.DecisionAllow, nil, http.StatusOK},
		{"verb no", authorizer.DecisionNoOpinion, nil, http.StatusForbidden},
		{"review failed", authorizer.DecisionNoOpinion, errors.New("host is away"), http.StatusServiceUnavailable},
	}

	for _, subresource := range []string{"", "endpoint", "approval", "status"} {
		for _, p := range plants {
			for _, c := range changes {
				if c.stored == nil && subresource != "" {
					continue
				}
				for _, answer := range answers {
					for _, dryRun := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%s/%s/%s/dryRun=%v", subresource, p.name, c.name, answer.name, dryRun), func(t *testing.T) {
							authz := &recorder{decision: answer.decision, err: answer.err}
							plugin, client := p.plant.plugin(t, authz)
							err := validate(plugin, c.stored, c.wanted, subresource, dryRun, "alice")

							var wantAsked []string
							wantCode := int32(http.StatusOK)
							if c.checks && !p.declared {
								wantAsked = []string{"alice update talosmachines.talos.fieldplane.dev/endpoint site-a/m1"}
								wantCode = answer.code
								if wantCode != http.StatusOK && p.code != 0 {
									wantCode = p.code
								}
								if len(client.Actions()) != 1 {
									t.Errorf("refused after %d live reads", len(client.Actions()))
								}
							}
							if !slices.Equal(authz.asked, wantAsked) {
								t.Errorf("asked %q, want %q", authz.asked, wantAsked)
							}
							if have := code(err); have != wantCode {
								t.Fatalf("have %d (%v), want %d", have, err, wantCode)
							}
							if wantCode == http.StatusForbidden {
								for _, text := range []string{"spec.endpoint", c.wanted.Spec.Endpoint, `verb "update"`, `"talosmachines/endpoint"`, p.outside} {
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
	}
}

func TestTheInformerAloneAllows(t *testing.T) {
	declares := cluster("site-a", []string{"192.0.2.1"}, nil)
	plugin, client := plant{informed: declares, live: declares}.plugin(t, &recorder{})
	if err := validate(plugin, nil, machine("192.0.2.1"), "", false, "alice"); err != nil || len(client.Actions()) != 0 {
		t.Errorf("have %v after %d live reads", err, len(client.Actions()))
	}
}

// Req: T-05, T-14
func TestWhatDiscoveryCreatesIsUnaffected(t *testing.T) {
	authz := &recorder{}
	plugin, _ := plant{live: cluster("site-a", nil, nil)}.plugin(t, authz)
	if err := validate(plugin, nil, machine("203.0.113.5"), "", false, loopback); err != nil {
		t.Errorf("the server's create is refused: %v", err)
	}
	if err := validate(plugin, machine("203.0.113.5"), machine("203.0.113.5"), "", false, "alice"); err != nil {
		t.Errorf("a later write by a user is refused: %v", err)
	}
	if len(authz.asked) != 0 {
		t.Errorf("asked %q", authz.asked)
	}
	// T-06: the server never moves an endpoint, so it has no privilege to.
	if err := validate(plugin, machine("203.0.113.5"), machine("203.0.113.6"), "", false, loopback); code(err) != http.StatusForbidden {
		t.Errorf("the server's change gives %v", err)
	}
}

func TestUnexpectedObjectsAreRefused(t *testing.T) {
	resource := schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: "talosmachines"}
	plugin, _ := plant{}.plugin(t, &recorder{})
	for name, a := range map[string]admission.Attributes{
		"a wrong object":         admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{}, "", "", resource, "", admission.Create, nil, false, nil),
		"an update from nothing": admission.NewAttributesRecord(machine("192.0.2.1"), nil, schema.GroupVersionKind{}, "", "", resource, "", admission.Update, nil, false, nil),
	} {
		if err := plugin.Validate(context.Background(), a, nil); !apierrors.IsInternalError(err) {
			t.Errorf("%s: have %v", name, err)
		}
	}
	request := admission.NewAttributesRecord(&talos.RebootRequest{}, nil, schema.GroupVersionKind{}, "", "", resource, "reboot", admission.Create, nil, false, nil)
	if err := plugin.Validate(context.Background(), request, nil); err != nil {
		t.Errorf("a request to reboot: %v", err)
	}
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	client, server := fake.NewClientset(), initializer.NewServerIdentity(loopback)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := plugins.InitPlugin(PluginName, nil, initializer.New(factory, client, &recorder{}, server))
	if err != nil {
		t.Fatal(err)
	}
	if !plugin.Handles(admission.Create) || !plugin.Handles(admission.Update) || plugin.Handles(admission.Delete) {
		t.Error("handles the wrong operations")
	}
	for name, without := range map[string]admission.PluginInitializer{
		"an authorizer": initializer.New(factory, client, nil, server),
		"an identity":   initializer.New(factory, client, &recorder{}, initializer.NewServerIdentity()),
		"a client":      initializer.New(factory, nil, &recorder{}, server),
	} {
		if _, err := plugins.InitPlugin(PluginName, nil, without); err == nil {
			t.Errorf("initialized without %s", name)
		}
	}
}
