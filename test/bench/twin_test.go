package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/test/harness"
)

// twinGroup holds CustomResourceDefinitions with the structural schemas of our kinds, taken from the same OpenAPI
// document with its references resolved. What the twin has not got: defaults (the objects are sent defaulted), the
// rules beyond the schema, and admission; it is the cheaper one for that.
var twinGroup = schema.GroupVersion{Group: "twin.bench.fieldplane.dev", Version: "v1alpha1"}

const benchUser = "bench-operator"

// side is one of the two servers, reached through the same kube-apiserver by the same ordinary user.
type side struct {
	name string
	// typed is the client that a Go program would use: protobuf for ours, and JSON, which is all there is, for the twin.
	typed rest.Interface
	// untyped is the dynamic client.
	untyped dynamic.Interface
	group   schema.GroupVersion
}

// sides gives the ordinary user of the benchmarks all rights in a namespace, and no others, and returns both servers.
func sides(b *testing.B, namespace string) (ours, twin side) {
	b.Helper()
	installTwins(b)
	config, err := env.Cluster.UserConfig(benchUser)
	must(b, err)
	untyped, err := dynamic.NewForConfig(config)
	must(b, err)

	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = runtime.ContentTypeProtobuf
	clientset, err := versioned.NewForConfig(protobuf)
	must(b, err)
	ours = side{name: "ours", typed: clientset.PhysicalV1alpha1().RESTClient(), untyped: untyped, group: v1alpha1.SchemeGroupVersion}
	twin = side{name: "twin", typed: twinClient(b, config), untyped: untyped, group: twinGroup}

	roles := env.Host().RbacV1()
	_, err = roles.Roles(namespace).Create(b.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: benchUser},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{ours.group.Group, twin.group.Group}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		}},
	}, metav1.CreateOptions{})
	must(b, err)
	_, err = roles.RoleBindings(namespace).Create(b.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: benchUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: benchUser},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: benchUser}},
	}, metav1.CreateOptions{})
	must(b, err)
	for _, s := range []side{ours, twin} {
		for _, resource := range []string{"iomodules", "controllers", "controlmodules"} {
			harness.Eventually(b, 30*time.Second, func() string {
				_, err := s.untyped.Resource(s.group.WithResource(resource)).Namespace(namespace).List(b.Context(), metav1.ListOptions{})
				if err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}
	return ours, twin
}

// twinClient reads and writes our Go types as objects of the twin's group.
func twinClient(b *testing.B, config *rest.Config) rest.Interface {
	b.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(twinGroup,
		&v1alpha1.IOModule{}, &v1alpha1.IOModuleList{},
		&v1alpha1.Controller{}, &v1alpha1.ControllerList{},
		&v1alpha1.ControlModule{}, &v1alpha1.ControlModuleList{})
	metav1.AddToGroupVersion(scheme, twinGroup)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &twinGroup
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	must(b, err)
	return client
}

// installTwins makes the CustomResourceDefinitions, once in a cluster.
func installTwins(b *testing.B) {
	b.Helper()
	admin, err := dynamic.NewForConfig(env.Cluster.AdminConfig())
	must(b, err)
	crds := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definitions := readDefinitions(b)
	for _, kind := range []string{"IOModule", "Controller", "ControlModule"} {
		plural := strings.ToLower(kind) + "s"
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": plural + "." + twinGroup.Group},
			"spec": map[string]any{
				"group": twinGroup.Group,
				"scope": "Namespaced",
				"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
				"versions": []any{map[string]any{
					"name": twinGroup.Version, "served": true, "storage": true,
					"subresources": map[string]any{"status": map[string]any{}},
					"schema":       map[string]any{"openAPIV3Schema": definitions.structural(definitions.nameOf(b, kind))},
				}},
			},
		}}
		if _, err := crds.Create(b.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			b.Fatal(err)
		}
	}
}

// definitions are the schemas of an OpenAPI v2 document by name.
type definitions map[string]map[string]any

func readDefinitions(b *testing.B) definitions {
	b.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "generated", "openapi", "schema.json"))
	must(b, err)
	var document struct {
		Definitions definitions `json:"definitions"`
	}
	must(b, json.Unmarshal(data, &document))
	return document.Definitions
}

// nameOf finds one of our kinds: how its package is written in the name is the generator's matter.
func (d definitions) nameOf(b *testing.B, kind string) string {
	b.Helper()
	for name := range d {
		if strings.HasSuffix(name, ".physical.v1alpha1."+kind) {
			return name
		}
	}
	b.Fatalf("the OpenAPI document has no %s", kind)
	return ""
}

// structural is a definition as a CustomResourceDefinition takes it: without references, descriptions and defaults, of
// which the document has only those of absent members.
func (d definitions) structural(name string) map[string]any {
	if strings.HasSuffix(name, ".meta.v1.ObjectMeta") {
		return map[string]any{"type": "object"} // the API server knows it itself
	}
	return d.resolve(d[name])
}

func (d definitions) resolve(in map[string]any) map[string]any {
	if ref, ok := in["$ref"].(string); ok {
		return d.structural(strings.TrimPrefix(ref, "#/definitions/"))
	}
	out := map[string]any{}
	for key, value := range in {
		switch key {
		case "description", "default", "x-kubernetes-group-version-kind":
		case "properties":
			properties := map[string]any{}
			for name, property := range value.(map[string]any) {
				properties[name] = d.resolve(property.(map[string]any))
			}
			out[key] = properties
		case "items", "additionalProperties":
			out[key] = d.resolve(value.(map[string]any))
		default:
			out[key] = value
		}
	}
	return out
}
