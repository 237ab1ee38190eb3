package deleteguard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

const namespace = "site-a"

func active() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
}

func terminating() *corev1.Namespace {
	ns := active()
	ns.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(0, 0)))
	return ns
}

// plant is what the plugin can see.
type plant struct {
	informed *corev1.Namespace // what the informer shows
	unsynced bool              // the informer's word does not count yet
	live     *corev1.Namespace // what is stored
	liveErr  error
	machines []runtime.Object
	listErr  error
}

func (p plant) plugin(t *testing.T) (*Guard, *fake.Clientset) {
	t.Helper()
	host := kubefake.NewClientset()
	if p.live != nil {
		host = kubefake.NewClientset(p.live)
	}
	if p.liveErr != nil {
		host.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, p.liveErr })
	}
	client := fake.NewClientset(p.machines...)
	if p.listErr != nil {
		client.PrependReactor("list", "talosmachines", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, p.listErr })
	}
	factory := kubeinformers.NewSharedInformerFactory(host, 0)
	if p.informed != nil {
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(p.informed); err != nil {
			t.Fatal(err)
		}
	}
	guard := New()
	guard.SetFieldplaneClient(client)
	guard.SetExternalKubeClientSet(host)
	guard.SetExternalKubeInformerFactory(factory)
	if err := guard.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	guard.Synced = func() bool { return !p.unsynced }
	return guard, client
}

func deletion(old runtime.Object, resource, name string, dryRun bool) admission.Attributes {
	return admission.NewAttributesRecord(nil, old, schema.GroupVersionKind{}, namespace, name,
		schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: resource}, "", admission.Delete, &metav1.DeleteOptions{}, dryRun, nil)
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

// Every guarded object × every state of its namespace, by delete and by deletecollection, for real and as a dry run.
//
// Req: T-17
func TestEveryCell(t *testing.T) {
	machine := func(approved *bool) runtime.Object {
		return &talos.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: namespace}, Spec: talos.TalosMachineSpec{Approved: approved}}
	}
	cluster := &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: namespace}}
	served := func(namespace, name, cluster string, approved *bool) runtime.Object {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: v1alpha1.TalosMachineSpec{ClusterRef: v1alpha1.ClusterReference{Name: cluster}, Approved: approved}}
	}

	objects := []struct {
		name     string
		resource string
		old      runtime.Object
		machines []runtime.Object
		listErr  error
		code     int32 // in a namespace that stays
		texts    []string
	}{
		{name: "an approved machine", resource: "talosmachines", old: machine(ptr.To(true)), code: http.StatusForbidden,
			texts: []string{`talosmachines.talos.fieldplane.dev "x" is forbidden`, "spec.approved is true", "kubectl fieldplane unapprove machine x"}},
		{name: "a machine that is not approved", resource: "talosmachines", old: machine(ptr.To(false)), code: http.StatusOK},
		{name: "a machine nobody decided on", resource: "talosmachines", old: machine(nil), code: http.StatusOK},
		{name: "a cluster without machines", resource: "talosclusters", old: cluster, code: http.StatusOK},
		{name: "a cluster whose machines are not approved", resource: "talosclusters", old: cluster,
			machines: []runtime.Object{served(namespace, "m1", "x", nil), served(namespace, "m2", "x", ptr.To(false))}, code: http.StatusOK},
		{name: "a cluster beside approved machines of others", resource: "talosclusters", old: cluster,
			machines: []runtime.Object{served(namespace, "m1", "y", ptr.To(true)), served("site-b", "m2", "x", ptr.To(true))}, code: http.StatusOK},
		{name: "a cluster with an approved machine", resource: "talosclusters", old: cluster,
			machines: []runtime.Object{served(namespace, "m1", "x", nil), served(namespace, "m2", "x", ptr.To(true))}, code: http.StatusForbidden,
			texts: []string{`talosclusters.talos.fieldplane.dev "x" is forbidden`, "un-approved first: m2"}},
		{name: "a cluster with many approved machines", resource: "talosclusters", old: cluster,
			machines: []runtime.Object{served(namespace, "m5", "x", ptr.To(true)), served(namespace, "m4", "x", ptr.To(true)), served(namespace, "m2", "x", ptr.To(true)), served(namespace, "m1", "x", ptr.To(true))},
			code:     http.StatusForbidden, texts: []string{"m1, m2, m4 and 1 more"}},
		{name: "a cluster whose machines cannot be listed", resource: "talosclusters", old: cluster, listErr: errors.New("etcd is away"), code: http.StatusServiceUnavailable,
			texts: []string{"site-a/x", "try again"}},
	}
	namespaces := []struct {
		name  string
		plant plant
		going bool
		fails bool // nobody can say
	}{
		{"the namespace stays", plant{informed: active(), live: active()}, false, false},
		{"the namespace is going away, and the informer knows", plant{informed: terminating(), live: terminating()}, true, false},
		{"the namespace is going away, and the informer is behind", plant{informed: active(), live: terminating()}, true, false},
		{"the namespace is gone, and the informer is behind", plant{informed: active()}, true, false},
		{"the namespace is gone for the informer too", plant{}, true, false},
		{"the informer has not synced and the namespace stays", plant{unsynced: true, live: active()}, false, false},
		{"the namespace cannot be read", plant{informed: active(), liveErr: errors.New("host is away")}, false, true},
	}

	for _, o := range objects {
		for _, n := range namespaces {
			for _, name := range []string{"x", ""} { // deletecollection has no name
				for _, dryRun := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/name=%q/dryRun=%v", o.name, n.name, name, dryRun), func(t *testing.T) {
						p := n.plant
						p.machines, p.listErr = o.machines, o.listErr
						guard, _ := p.plugin(t)
						err := guard.Validate(context.Background(), deletion(o.old, o.resource, name, dryRun), nil)

						want := o.code
						switch {
						case want == http.StatusForbidden && n.going:
							want = http.StatusOK
						case want == http.StatusForbidden && n.fails:
							want = http.StatusServiceUnavailable
						case want == http.StatusServiceUnavailable && n.going && p.informed != nil && p.informed.DeletionTimestamp != nil:
							want = http.StatusOK // nothing needs to be listed
						}
						if have := code(err); have != want {
							t.Fatalf("have %d (%v), want %d", have, err, want)
						}
						if want == o.code && err != nil {
							for _, text := range o.texts {
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

// An informer may lack the approval of an instant ago; the list must be live, and ask for no more than it needs.
//
// Req: T-17
func TestAClustersMachinesAreListedLiveByFieldSelector(t *testing.T) {
	guard, client := plant{informed: active(), live: active()}.plugin(t)
	cluster := &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: namespace}}
	if err := guard.Validate(context.Background(), deletion(cluster, "talosclusters", "c1", false), nil); err != nil {
		t.Fatal(err)
	}
	actions := client.Actions()
	if len(actions) != 1 {
		t.Fatalf("have %v", actions)
	}
	list, ok := actions[0].(clienttesting.ListActionImpl)
	if !ok || list.GetNamespace() != namespace || list.GetListRestrictions().Fields.String() != "spec.approved=true,spec.clusterRef.name=c1" {
		t.Errorf("have %+v", actions[0])
	}
}

func TestOtherResourcesPassAndUnexpectedObjectsDoNot(t *testing.T) {
	guard, _ := plant{informed: active(), live: active()}.plugin(t)
	if err := guard.Validate(context.Background(), deletion(&metav1.Status{}, "others", "x", false), nil); err != nil {
		t.Errorf("another resource: %v", err)
	}
	for _, resource := range []string{"talosmachines", "talosclusters"} {
		for _, old := range []runtime.Object{nil, &metav1.Status{}} {
			if err := guard.Validate(context.Background(), deletion(old, resource, "x", false), nil); !apierrors.IsInternalError(err) {
				t.Errorf("%s with %T: have %v", resource, old, err)
			}
		}
	}
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	host := kubefake.NewClientset()
	ours := initializer.New(nil, fake.NewClientset(), nil, initializer.NewServerIdentity())
	theirs := genericinitializer.New(host, nil, kubeinformers.NewSharedInformerFactory(host, 0), nil, nil, nil, nil, nil)
	plugin, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{ours, theirs})
	if err != nil {
		t.Fatal(err)
	}
	if !plugin.Handles(admission.Delete) || plugin.Handles(admission.Create) || plugin.Handles(admission.Update) {
		t.Error("handles the wrong operations")
	}
	for name, some := range map[string]admission.PluginInitializer{"our client": theirs, "the host's": ours} {
		if _, err := plugins.InitPlugin(PluginName, nil, some); err == nil {
			t.Errorf("initialized without %s", name)
		}
	}
}
