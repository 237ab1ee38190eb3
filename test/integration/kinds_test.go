package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// fields is a JSON object.
type fields = map[string]any

// kind is what tests over all kinds need to know of one. No object of it makes the server start a probe, open a
// connection, or beat a heart.
type kind struct {
	kind, resource, shortName string
	gv                        schema.GroupVersion
	// spec is a valid spec of the object with the name.
	spec func(name string) fields
	// path leads to a member of spec that holds first and may become second.
	path          []string
	first, second any
	// defaulted is a member that the server fills in, absent in spec.
	defaulted []string
	filledIn  any
	// invalid is a merge patch that admission or validation refuses, and refusal what it says of it.
	invalid, refusal string
	// condition is one that a controller keeps on such an object, as kubectl wait writes it.
	condition string
	// reached is a status that the object has by itself, as kubectl wait writes it.
	reached string
	// status is a status that lasts when it is written; nil if the controllers would undo any.
	status fields
	// own tells that the server alone may write the status.
	own bool
}

// name is the n-th name of an object of the kind: machines are named by UUID.
func (k kind) name(n int) string {
	if k.kind == "TalosMachine" {
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}
	return fmt.Sprintf("%s-%d", k.shortName, n)
}

// serial is the serial number of the machine with the name: S1 of the first. Two that share one are told apart by status.
func serial(name string) string {
	return "S" + strings.TrimLeft(name[strings.LastIndex(name, "-")+1:], "0")
}

func (k kind) gvr() schema.GroupVersionResource { return k.gv.WithResource(k.resource) }

// full is the resource as kubectl writes it without doubt about the group.
func (k kind) full() string { return k.resource + "." + k.gv.Group }

// path of the resource in the API.
func (k kind) url(namespace string) string {
	return "/apis/" + k.gv.String() + "/namespaces/" + namespace + "/" + k.resource
}

// object is a valid object; changes are merged into its spec.
func (k kind) object(namespace, name string, changes ...fields) *unstructured.Unstructured {
	spec := k.spec(name)
	for _, change := range changes {
		for member, value := range change {
			spec[member] = value
		}
	}
	return &unstructured.Unstructured{Object: fields{
		"apiVersion": k.gv.String(), "kind": k.kind,
		"metadata": fields{"name": name, "namespace": namespace},
		"spec":     spec,
	}}
}

// changed is the object with the second value at the path.
func (k kind) changed(namespace, name string) *unstructured.Unstructured {
	object := k.object(namespace, name)
	if err := unstructured.SetNestedField(object.Object, k.second, k.path...); err != nil {
		panic(err)
	}
	return object
}

// patch is a merge patch that sets the path to a value.
func (k kind) patch(value any) string { return nested(value, k.path...) }

// jsonPath is the path as kubectl's -o jsonpath has it.
func (k kind) jsonPath() string { return jsonPath(k.path) }

func jsonPath(path []string) string {
	text := "{"
	for _, member := range path {
		text += "." + member
	}
	return text + "}"
}

// nested is the JSON of a value under a path.
func nested(value any, path ...string) string {
	for i := len(path) - 1; i >= 0; i-- {
		value = fields{path[i]: value}
	}
	return toJSON(value)
}

func toJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// conditions is a list of conditions with one that nobody else writes.
func conditions(status string) []any {
	return []any{fields{
		"type": "Tested", "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}
}

func kinds() []kind {
	return []kind{
		{
			kind: "IOModule", resource: "iomodules", shortName: "iom", gv: physicalv1alpha1.SchemeGroupVersion,
			spec: func(string) fields {
				return fields{"protocol": "simulation", "controllerRef": fields{"name": "nobody"}, "simulation": fields{"seed": int64(1)}}
			},
			path: []string{"spec", "simulation", "seed"}, first: int64(1), second: int64(2),
			defaulted: []string{"spec", "probe", "period"}, filledIn: "1s",
			invalid: `{"spec":{"controllerRef":null}}`, refusal: "spec.controllerRef",
			condition: "ControllerFound=False", reached: "{.status.state}=Unknown",
			own: true,
		},
		{
			kind: "Controller", resource: "controllers", shortName: "ctlr", gv: physicalv1alpha1.SchemeGroupVersion,
			spec: func(string) fields { return fields{"nodeName": "first.example"} },
			path: []string{"spec", "nodeName"}, first: "first.example", second: "second.example",
			invalid: `{"spec":{"simulation":true}}`, refusal: "at most one of nodeName, machineRef and simulation",
			condition: "Ready=False", reached: "{.status.phase}=AwaitingNode",
			status: fields{"lastAlive": "2026-01-01T00:00:00Z"},
		},
		{
			kind: "ControlModule", resource: "controlmodules", shortName: "cmod", gv: physicalv1alpha1.SchemeGroupVersion,
			spec: func(string) fields { return fields{"unitRef": fields{"name": "first"}} },
			path: []string{"spec", "unitRef", "name"}, first: "first", second: "second",
			invalid: `{"spec":{"unitRef":{"name":"Not A Name"}}}`, refusal: "spec.unitRef.name",
			condition: "ReferencesResolved=False", reached: `{.status.conditions[?(@.type=="ReferencesResolved")].reason}=UnitNotFound`,
			status: fields{"conditions": conditions("True")},
		},
		{
			kind: "Unit", resource: "units", shortName: "un", gv: physicalv1alpha1.SchemeGroupVersion,
			spec: func(string) fields { return fields{"nodeSelector": fields{"zone": "first"}} },
			path: []string{"spec", "nodeSelector", "zone"}, first: "first", second: "second",
			defaulted: []string{"spec", "holdTimeout"}, filledIn: "30s",
			invalid: `{"spec":{"holdOn":["Offline"]}}`, refusal: "spec.holdOn",
			condition: "EquipmentHealthy=True", reached: "{.status.state}=Idle",
			own: true,
		},
		{
			kind: "TalosCluster", resource: "talosclusters", shortName: "tc", gv: talosv1alpha1.SchemeGroupVersion,
			spec: func(string) fields {
				return fields{
					"controlPlaneEndpoint": "https://192.0.2.1:6443", "secretsRef": fields{"name": "bundle"},
					"talosVersion": "v1.13", "kubernetesVersion": "v1.36.1", "paused": true,
				}
			},
			path: []string{"spec", "kubernetesVersion"}, first: "v1.36.1", second: "v1.36.2",
			invalid: `{"spec":{"discovery":{"cidrs":["192.0.2.0/23"]}}}`, refusal: "spec.discovery.cidrs[0]",
			condition: "DiscoveryReady=False", reached: "{.status.machines.total}=7",
			status: fields{"machines": fields{"total": int64(7)}}, own: true,
		},
		{
			kind: "TalosMachine", resource: "talosmachines", shortName: "tm", gv: talosv1alpha1.SchemeGroupVersion,
			spec: func(name string) fields {
				return fields{"clusterRef": fields{"name": "cluster"}, "identity": fields{"uuid": name, "serial": serial(name)}, "role": "worker"}
			},
			path: []string{"spec", "role"}, first: "worker", second: "controlplane",
			defaulted: []string{"status", "phase"}, filledIn: "Pending",
			invalid: `{"spec":{"identity":{"serial":"another"}}}`, refusal: "spec.identity",
			condition: "Tested=True", reached: "{.status.phase}=Pending",
			status: fields{"observedEndpoint": "192.0.2.9", "conditions": conditions("True")}, own: true,
		},
	}
}

func kindOf(name string) kind {
	for _, k := range kinds() {
		if k.kind == name {
			return k
		}
	}
	panic("no kind " + name)
}

// forEveryKind runs a test for every kind, each in a namespace of its own.
func forEveryKind(t *testing.T, test func(t *testing.T, k kind, namespace string)) {
	t.Helper()
	for _, k := range kinds() {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			test(t, k, env.Namespace(t))
		})
	}
}

// objects is the administrator's untyped client of a kind in a namespace.
func objects(t testing.TB, k kind, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(env.Cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(k.gvr()).Namespace(namespace)
}

// statusWriter is a client that may write a kind's status.
func statusWriter(t testing.TB, k kind, namespace string) dynamic.ResourceInterface {
	t.Helper()
	if !k.own {
		return objects(t, k, namespace)
	}
	client, err := dynamic.NewForConfig(env.ServerConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(k.gvr()).Namespace(namespace)
}

// writeStatus merges a status into a stored one.
func writeStatus(t testing.TB, k kind, namespace, name string, status fields) *unstructured.Unstructured {
	t.Helper()
	written, err := statusWriter(t, k, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(toJSON(fields{"status": status})), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("status of %s %s: %v", k.kind, name, err)
	}
	return written
}

// create makes an object that must be accepted.
func create(t testing.TB, k kind, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := objects(t, k, object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s %s: %v", k.kind, object.GetName(), err)
	}
	return created
}

// get reads an object that must be there.
func get(t testing.TB, k kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := objects(t, k, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get %s %s: %v", k.kind, name, err)
	}
	return object
}

// at returns what stands at a path of an object, or nil.
func at(object *unstructured.Unstructured, path ...string) any {
	value, found, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil || !found {
		return nil
	}
	return value
}
