package integration

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// refusedEverywhere tries to bring a spec about on each path, by a create, a patch and an apply, for real and as a dry
// run. Each must be refused with all the texts, and change nothing. The changes turn the spec of accepted into a bad one.
func refusedEverywhere(t *testing.T, k kind, accepted *unstructured.Unstructured, changes fields, refused func(error) bool, texts ...string) {
	t.Helper()
	namespace, name := accepted.GetNamespace(), accepted.GetName()
	bad := accepted.DeepCopy()
	for member, value := range changes {
		if value == nil {
			delete(bad.Object["spec"].(fields), member)
		} else {
			bad.Object["spec"].(fields)[member] = value
		}
	}
	client := objects(t, k, namespace)
	patch := []byte(toJSON(fields{"spec": changes}))
	tries := []struct {
		name string
		do   func(dryRun []string) error
	}{
		{"create", func(dryRun []string) error {
			_, err := client.Create(t.Context(), bad, metav1.CreateOptions{DryRun: dryRun})
			return err
		}},
		{"server-side apply of a new object", func(dryRun []string) error {
			_, err := client.Apply(t.Context(), name, bad, metav1.ApplyOptions{FieldManager: "test", DryRun: dryRun})
			return err
		}},
		{"merge patch", func(dryRun []string) error {
			_, err := client.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun})
			return err
		}},
		{"server-side apply", func(dryRun []string) error {
			_, err := client.Apply(t.Context(), name, bad, metav1.ApplyOptions{FieldManager: "creator", Force: true, DryRun: dryRun})
			return err
		}},
		{"update", func(dryRun []string) error {
			current := get(t, k, namespace, name)
			current.Object["spec"] = bad.Object["spec"]
			_, err := client.Update(t.Context(), current, metav1.UpdateOptions{DryRun: dryRun})
			if apierrors.IsConflict(err) { // with a controller's status
				current.SetResourceVersion(get(t, k, namespace, name).GetResourceVersion())
				_, err = client.Update(t.Context(), current, metav1.UpdateOptions{DryRun: dryRun})
			}
			return err
		}},
	}
	for i, try := range tries {
		if i == 2 {
			// From here on there is something to change.
			if _, err := client.Apply(t.Context(), name, accepted, metav1.ApplyOptions{FieldManager: "creator"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			err := try.do(dryRun)
			if !refused(err) {
				t.Errorf("%s, dry run %v: %v", try.name, dryRun != nil, err)
				continue
			}
			for _, text := range texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s, dry run %v: the refusal says nothing of %q: %v", try.name, dryRun != nil, text, err)
				}
			}
		}
		if i < 2 {
			if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("%s: the object is there: %v", try.name, err)
			}
		}
	}
	if generation := get(t, k, namespace, name).GetGeneration(); generation != 1 {
		t.Errorf("the generation is %d", generation)
	}
}

func list(n int, entry func(i int) string) []any {
	entries := make([]any, n)
	for i := range entries {
		entries[i] = entry(i)
	}
	return entries
}

// Req: T-01, A-04
func TestADiscoveryRangeThatIsTooMuchIsRefusedOnEveryPath(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("TalosCluster")
	for i, tc := range []struct {
		name      string
		discovery fields
		says      []string
	}{
		{"a /23", fields{"cidrs": []any{"192.0.2.0/24", "198.51.100.0/23"}}, []string{"spec.discovery.cidrs[1]", `"198.51.100.0/23"`, "/24 or smaller"}},
		{"an IPv6 address", fields{"addresses": []any{"2001:db8::1"}}, []string{"spec.discovery.addresses[0]", `"2001:db8::1"`, "must be an IPv4 address"}},
		{"an IPv6 range", fields{"cidrs": []any{"2001:db8::/120"}}, []string{"spec.discovery.cidrs[0]", `"2001:db8::/120"`, "must be an IPv4 range"}},
		{"65 addresses", fields{"addresses": list(65, func(i int) string { return fmt.Sprintf("192.0.2.%d", i) })}, []string{"spec.discovery.addresses", `"65"`, "at most 64"}},
		{"5 ranges", fields{"cidrs": list(5, func(i int) string { return fmt.Sprintf("192.0.2.%d/32", i) })}, []string{"spec.discovery.cidrs", `"5"`, "at most 4"}},
		{"a name", fields{"addresses": []any{"machine.example"}}, []string{"spec.discovery.addresses[0]", `"machine.example"`, "names are not resolved"}},
		{"host bits", fields{"cidrs": []any{"192.0.2.7/24"}}, []string{"spec.discovery.cidrs[0]", `"192.0.2.7/24"`, "host bits"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			refusedEverywhere(t, k, k.object(namespace, k.name(i)), fields{"discovery": tc.discovery}, apierrors.IsInvalid, tc.says...)
		})
	}

	t.Run("and what kubectl shows of it names field, value and rule", func(t *testing.T) {
		t.Parallel()
		bad := toJSON(k.object(namespace, "shown", fields{"discovery": fields{"cidrs": []any{"192.0.2.0/23"}}}).Object)
		for _, how := range [][]string{{"create"}, {"create", "--dry-run=server"}, {"apply"}, {"apply", "--server-side"}} {
			kubectlFails(t, bad, append(how, "-f", "-"), "spec.discovery.cidrs[0]", `"192.0.2.0/23"`, "must be /24 or smaller")
		}
	})
	t.Run("and the most that is allowed is accepted", func(t *testing.T) {
		t.Parallel()
		create(t, k, k.object(namespace, "most", fields{"discovery": fields{
			"addresses": list(64, func(i int) string { return fmt.Sprintf("192.0.2.%d", i) }),
			"cidrs":     list(4, func(i int) string { return fmt.Sprintf("203.0.%d.0/24", i) }),
		}}))
	})
}

// Req: P-02, P-09, P-17, A-04
func TestAnIOModuleWhoseBindingDoesNotFitIsRefusedOnEveryPath(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("IOModule")
	// It names a Controller that is not there: nobody probes it.
	modbus := fields{"protocol": "modbus", "modbus": fields{"endpoint": "tcp://127.0.0.1:1"}, "simulation": nil}
	for i, tc := range []struct {
		name           string
		accepted       fields
		changes        fields
		field, because string
	}{
		{"simulation without a Controller", nil, fields{"controllerRef": nil}, "spec.controllerRef", `protocol "simulation"`},
		{"placement of a bound module", modbus, fields{"probePlacement": fields{"nodeSelector": fields{"zone": "a"}}}, "spec.probePlacement.nodeSelector", "controllerRef"},
		{"placement of a simulation", nil, fields{"probePlacement": fields{"nodeSelector": fields{"zone": "a"}}}, "spec.probePlacement.nodeSelector", "simulation"},
		{"a protocol that there is not", nil, fields{"protocol": "profibus"}, "spec.protocol", `"modbus"`},
		{"a protocol without its settings", nil, fields{"protocol": "modbus", "simulation": nil}, "spec.modbus", "connection settings"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			accepted := k.object(namespace, k.name(i), tc.accepted)
			for member, value := range tc.accepted {
				if value == nil {
					delete(accepted.Object["spec"].(fields), member)
				}
			}
			refusedEverywhere(t, k, accepted, tc.changes, apierrors.IsInvalid, tc.field, tc.because)
		})
	}
	for i, spec := range []fields{
		modbus,
		{"protocol": "modbus", "modbus": fields{"endpoint": "tcp://127.0.0.1:1"}, "probePlacement": fields{"nodeSelector": fields{}}},
		{"protocol": "opcua", "opcua": fields{"endpoint": "opc.tcp://127.0.0.1:1"}},
		{"protocol": "ethernetip", "ethernetip": fields{"endpoint": "tcp://127.0.0.1:1"}},
	} {
		t.Run(fmt.Sprintf("and with a Controller %v is as valid as ever", spec["protocol"]), func(t *testing.T) {
			t.Parallel()
			object := k.object(namespace, k.name(20+i), spec)
			delete(object.Object["spec"].(fields), "simulation")
			create(t, k, object)
		})
	}
}

// Req: T-05
func TestWhatMakesAMachineThatMachineNeverChanges(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("TalosMachine")
	name := k.name(1)
	create(t, k, k.object(namespace, name, fields{"identity": fields{"uuid": name, "serial": "S1", "macAddresses": []any{"02:00:00:00:00:01"}}}))
	client := objects(t, k, namespace)
	for _, tc := range []struct{ name, spec, field string }{
		{"uuid", `{"identity":{"uuid":"` + k.name(2) + `"}}`, "spec.identity"},
		{"serial", `{"identity":{"serial":"S2"}}`, "spec.identity"},
		{"MACs", `{"identity":{"macAddresses":["02:00:00:00:00:02"]}}`, "spec.identity"},
		{"no identity", `{"identity":null}`, "spec.identity"},
		{"cluster", `{"clusterRef":{"name":"other"}}`, "spec.clusterRef"},
	} {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+tc.spec+`}`), metav1.PatchOptions{DryRun: dryRun})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.field) {
				t.Errorf("%s, dry run %v: %v", tc.name, dryRun != nil, err)
			}
		}
		// The subresources carry none of it.
		for _, subresource := range []string{"status", "approval", "endpoint"} {
			writer := client
			if subresource == "status" {
				writer = statusWriter(t, k, namespace)
			}
			if _, err := writer.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+tc.spec+`}`), metav1.PatchOptions{}, subresource); err != nil {
				t.Errorf("%s through %s: %v", tc.name, subresource, err)
			}
		}
	}
	if output, err := edit(t, "s/serial:.S1/serial:\\ S2/", "edit", k.full(), name, "-n", namespace); err == nil || !strings.Contains(output, "spec.identity") && !strings.Contains(output, "is invalid") {
		t.Errorf("edit: %v\n%s", err, output)
	}
	if now := get(t, k, namespace, name); now.GetGeneration() != 1 || at(now, "spec", "identity", "serial") != "S1" || at(now, "spec", "clusterRef", "name") != "cluster" {
		t.Errorf("it is %s", toJSON(now.Object))
	}

	stranger := k.object(namespace, k.name(3), fields{"identity": fields{"uuid": k.name(4)}})
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		_, err := client.Create(t.Context(), stranger, metav1.CreateOptions{DryRun: dryRun})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") || !strings.Contains(err.Error(), k.name(4)) {
			t.Errorf("a name that is not the UUID: %v", err)
		}
	}
	generated := k.object(namespace, "", fields{"identity": fields{"uuid": k.name(5)}})
	generated.SetGenerateName("machine-")
	if _, err := client.Create(t.Context(), generated, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a generated name: %v", err)
	}
}

// Req: T-16
func TestTheBundleAndTheContractOfAClusterNeverChange(t *testing.T) {
	t.Parallel()
	namespace, k := env.Namespace(t), kindOf("TalosCluster")
	create(t, k, k.object(namespace, "cluster"))
	for field, spec := range map[string]string{"spec.secretsRef": `{"secretsRef":{"name":"other"}}`, "spec.talosVersion": `{"talosVersion":"v1.12"}`} {
		_, err := objects(t, k, namespace).Patch(t.Context(), "cluster", types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Req: T-14, A-04
func TestAnEndpointOutsideTheRangesNeedsTheRightToUpdateEndpoints(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	cluster := kindOf("TalosCluster")
	create(t, cluster, cluster.object(m.namespace, "declaring", fields{"discovery": fields{"addresses": []any{"192.0.2.7"}, "cidrs": []any{"198.51.100.0/28"}}}))
	create(t, cluster, cluster.object(m.namespace, "silent"))
	m.grant(t, "create,update,patch", "talosmachines")

	type place struct{ cluster, endpoint string }
	declared := []place{{"declaring", "192.0.2.7"}, {"declaring", "198.51.100.15"}}
	foreign := []place{{"declaring", "192.0.2.8"}, {"declaring", "198.51.100.16"}, {"silent", "192.0.2.7"}, {"absent", "192.0.2.7"}}
	object := func(p place, endpoint string) *unstructured.Unstructured {
		m.made++
		change := fields{"clusterRef": fields{"name": p.cluster}}
		if endpoint != "" {
			change["endpoint"] = endpoint
		}
		return m.kind.object(m.namespace, m.kind.name(m.made), change)
	}
	apply := func(object *unstructured.Unstructured, dryRun []string) error {
		_, err := m.alice.Patch(t.Context(), object.GetName(), types.ApplyPatchType, []byte(toJSON(object.Object)), metav1.PatchOptions{FieldManager: "alice", Force: ptr.To(true), DryRun: dryRun})
		return err
	}
	paths := map[string]func(p place, dryRun []string) error{
		"create by apply": func(p place, dryRun []string) error { return apply(object(p, p.endpoint), dryRun) },
		"merge patch": func(p place, dryRun []string) error {
			name := create(t, m.kind, object(p, "")).GetName()
			_, err := m.alice.Patch(t.Context(), name, types.MergePatchType, []byte(nested(p.endpoint, "spec", "endpoint")), metav1.PatchOptions{DryRun: dryRun})
			return err
		},
		"server-side apply": func(p place, dryRun []string) error {
			object := object(p, "")
			create(t, m.kind, object)
			object.Object["spec"].(fields)["endpoint"] = p.endpoint
			return apply(object, dryRun)
		},
		"update": func(p place, dryRun []string) error {
			machine := m.read(t, create(t, m.kind, object(p, "")).GetName())
			machine.Spec.Endpoint = p.endpoint
			_, err := m.alice.Update(t.Context(), machine, metav1.UpdateOptions{DryRun: dryRun})
			return err
		},
	}
	for how, try := range paths {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			for _, p := range declared {
				if err := try(p, dryRun); err != nil {
					t.Errorf("%s of the declared %v: %v", how, p, err)
				}
			}
			for _, p := range foreign {
				err := try(p, dryRun)
				if !apierrors.IsForbidden(err) {
					t.Errorf("%s of %v: %v", how, p, err)
					continue
				}
				for _, text := range []string{"spec.endpoint", p.endpoint, p.cluster, "spec.discovery", "talosmachines/endpoint", `verb "update"`} {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s of %v says nothing of %q: %v", how, p, text, err)
					}
				}
			}
		}
	}

	revoke := m.grant(t, "update", "talosmachines/endpoint")
	for how, try := range paths {
		for _, p := range foreign {
			if err := try(p, nil); err != nil {
				t.Errorf("%s of %v with the right: %v", how, p, err)
			}
		}
	}
	kept := m.read(t, create(t, m.kind, object(foreign[0], "")).GetName())
	kept.Spec.Endpoint = "203.0.113.9"
	kept, err := m.alice.UpdateEndpoint(t.Context(), kept.Name, kept, metav1.UpdateOptions{})
	if err != nil || kept.Spec.Endpoint != "203.0.113.9" {
		t.Fatalf("through the subresource: %v", err)
	}
	revoke()
	// The next request is refused; what stands may stay, when the machine is written and when the ranges shrink.
	if err := paths["merge patch"](foreign[0], nil); !apierrors.IsForbidden(err) {
		t.Errorf("revoked: %v", err)
	}
	if err := m.patch(t, kept.Name, `{"metadata":{"labels":{"a":"b"}},"spec":{"endpoint":"203.0.113.9"}}`); err != nil {
		t.Errorf("the endpoint that stands: %v", err)
	}
	if _, err := objects(t, cluster, m.namespace).Patch(t.Context(), "declaring", types.MergePatchType, []byte(`{"spec":{"discovery":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := m.patch(t, kept.Name, `{"metadata":{"labels":{"a":"c"}}}`); err != nil {
		t.Errorf("after the ranges have shrunk: %v", err)
	}
	for endpoint, says := range map[string]string{"2001:db8::1": "IPv4", "machine.example": "names are not resolved", "192.0.2.7:50000": "without a port"} {
		_, err := m.admin.Patch(t.Context(), kept.Name, types.MergePatchType, []byte(nested(endpoint, "spec", "endpoint")), metav1.PatchOptions{}, "endpoint")
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.endpoint") || !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "15") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
