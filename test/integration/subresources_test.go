package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// write is one way to change a part of an object.
type write struct {
	name string
	do   func(t *testing.T, client dynamic.ResourceInterface, stored *unstructured.Unstructured, change fields, dryRun bool, subresource ...string) (*unstructured.Unstructured, error)
}

// matrixManager is the field manager of what these tests apply.
const matrixManager = "matrix"

// writes are all of them. A change is a whole new value for members of metadata, spec and status.
func writes() []write {
	dry := func(dryRun bool) []string {
		if dryRun {
			return []string{metav1.DryRunAll}
		}
		return nil
	}
	patch := func(kind types.PatchType, body func(change fields) any) func(*testing.T, dynamic.ResourceInterface, *unstructured.Unstructured, fields, bool, ...string) (*unstructured.Unstructured, error) {
		return func(t *testing.T, client dynamic.ResourceInterface, stored *unstructured.Unstructured, change fields, dryRun bool, subresource ...string) (*unstructured.Unstructured, error) {
			return client.Patch(t.Context(), stored.GetName(), kind, []byte(toJSON(body(change))), metav1.PatchOptions{DryRun: dry(dryRun)}, subresource...)
		}
	}
	return []write{
		{"PUT", func(t *testing.T, client dynamic.ResourceInterface, stored *unstructured.Unstructured, change fields, dryRun bool, subresource ...string) (*unstructured.Unstructured, error) {
			// A controller's write in between is a conflict of its own.
			for {
				current, err := client.Get(t.Context(), stored.GetName(), metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				overwrite(current, change)
				updated, err := client.Update(t.Context(), current, metav1.UpdateOptions{DryRun: dry(dryRun)}, subresource...)
				if !apierrors.IsConflict(err) {
					return updated, err
				}
			}
		}},
		{"merge patch", patch(types.MergePatchType, func(change fields) any { return change })},
		{"JSON patch", patch(types.JSONPatchType, func(change fields) any {
			var operations []fields
			for top, members := range change {
				for member, value := range members.(fields) {
					operations = append(operations, fields{"op": "add", "path": "/" + top + "/" + member, "value": value})
				}
			}
			return operations
		})},
		{"server-side apply", func(t *testing.T, client dynamic.ResourceInterface, stored *unstructured.Unstructured, change fields, dryRun bool, subresource ...string) (*unstructured.Unstructured, error) {
			applied := &unstructured.Unstructured{Object: fields{"apiVersion": stored.GetAPIVersion(), "kind": stored.GetKind()}}
			overwrite(applied, change)
			applied.SetName(stored.GetName())
			return client.Apply(t.Context(), stored.GetName(), applied, metav1.ApplyOptions{FieldManager: matrixManager, Force: true, DryRun: dry(dryRun)}, subresource...)
		}},
	}
}

func overwrite(object *unstructured.Unstructured, change fields) {
	for top, members := range change {
		if _, is := object.Object[top].(fields); !is {
			object.Object[top] = fields{}
		}
		maps.Copy(object.Object[top].(fields), members.(fields))
	}
}

// approvalSet are the members of spec that the approval subresource carries.
func approvalSet() fields {
	return fields{
		"approved": true, "role": "worker", "install": fields{"disk": "/dev/sda"}, "network": fields{"hostname": "host"},
		"nodeLabels": fields{"a": "b"}, "nodeTaints": []any{fields{"key": "k", "effect": "NoSchedule"}},
		"diskRoles":           []any{fields{"role": "data", "diskSelector": fields{"type": "ssd"}}},
		"acceptedFingerprint": "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=", "acceptUnverifiedFingerprint": true, "acceptSharedHardware": true,
	}
}

// Req: A-05, T-13, T-14 (A10, C4, C5)
func TestEachPathToAMachineWritesItsOwnFieldsAndNoOthers(t *testing.T) {
	t.Parallel()
	k := kindOf("TalosMachine")
	change := fields{
		"metadata": fields{"labels": fields{"touched": "yes"}},
		"spec": fields{
			"endpoint": "192.0.2.7", "configPatches": []any{"machine:\n  sysctls:\n    a.b: \"1\"\n"},
		},
		"status": fields{
			"observedEndpoint": "192.0.2.99",
			"approval":         fields{"user": "mallory", "time": "2026-01-01T00:00:00Z", "identity": fields{"uuid": "x"}},
		},
	}
	maps.Copy(change["spec"].(fields), approvalSet())
	part := func(object *unstructured.Unstructured) []string {
		var parts []string
		if object.GetLabels()["touched"] == "yes" {
			parts = append(parts, "metadata")
		}
		spec, _ := object.Object["spec"].(fields)
		written := 0
		for member, value := range approvalSet() {
			if toJSON(spec[member]) == toJSON(value) {
				written++
			}
		}
		switch written {
		case 0:
		case len(approvalSet()):
			parts = append(parts, "approval")
		default:
			parts = append(parts, fmt.Sprintf("%d members of approval", written))
		}
		if spec["endpoint"] == "192.0.2.7" {
			parts = append(parts, "endpoint")
		}
		if spec["configPatches"] != nil {
			parts = append(parts, "configPatches")
		}
		if at(object, "status", "observedEndpoint") != nil {
			parts = append(parts, "status")
		}
		if user := at(object, "status", "approval", "user"); user == "mallory" {
			parts = append(parts, "a forged approval")
		}
		return parts
	}
	owned := map[string][]string{
		"":         {"metadata", "spec"},
		"status":   {"status"},
		"approval": {"spec"},
		"endpoint": {"spec"},
	}
	cases := []struct {
		subresource string
		writes      []string
		generations int64
	}{
		{"", []string{"metadata", "approval", "endpoint", "configPatches"}, 1},
		{"status", []string{"status"}, 0},
		{"approval", []string{"approval"}, 1},
		{"endpoint", []string{"endpoint"}, 1},
	}
	namespace := env.Namespace(t)
	client := objects(t, k, namespace)
	for i, tc := range cases {
		for j, write := range writes() {
			t.Run(write.name+" to "+named(tc.subresource), func(t *testing.T) {
				t.Parallel()
				name := k.name(10*i + j)
				fresh := k.object(namespace, name)
				delete(fresh.Object["spec"].(fields), "role")
				stored := create(t, k, fresh)
				writer := client
				if tc.subresource == "status" {
					writer = statusWriter(t, k, namespace)
				}
				for _, dryRun := range []bool{true, false} {
					answer, err := write.do(t, writer, stored, change, dryRun, path(tc.subresource)...)
					if err != nil {
						t.Fatalf("dry run %v: %v", dryRun, err)
					}
					if have := part(answer); !slices.Equal(have, tc.writes) {
						t.Errorf("dry run %v: it answers with changed %v, not %v", dryRun, have, tc.writes)
					}
					after := get(t, k, namespace, name)
					want, generation := tc.writes, stored.GetGeneration()+tc.generations
					if dryRun {
						want, generation = nil, stored.GetGeneration()
					}
					if have := part(after); !slices.Equal(have, want) {
						t.Errorf("dry run %v: %v are changed, not %v", dryRun, have, want)
					}
					if after.GetGeneration() != generation {
						t.Errorf("dry run %v: generation is %d, not %d", dryRun, after.GetGeneration(), generation)
					}
				}
				if write.name == "server-side apply" {
					have := managed(t, get(t, k, namespace, name), tc.subresource)
					if keys := slices.Sorted(maps.Keys(have)); !slices.Equal(keys, owned[tc.subresource]) {
						t.Errorf("%s owns %v, not %v", matrixManager, keys, owned[tc.subresource])
					}
					if _, spec := have["spec"]; spec && tc.subresource == "endpoint" && !slices.Equal(slices.Collect(maps.Keys(have["spec"])), []string{"endpoint"}) {
						t.Errorf("%s owns %v of spec", matrixManager, have["spec"])
					}
					if have["spec"]["endpoint"] != (tc.subresource == "" || tc.subresource == "endpoint") || have["spec"]["configPatches"] != (tc.subresource == "") {
						t.Errorf("%s owns %v of spec", matrixManager, have["spec"])
					}
				}
			})
		}
	}
}

// Req: A-05 (A5, A10, C4, C5, C11)
func TestEachPathToAnyKindWritesItsOwnFieldsAndNoOthers(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		client := objects(t, k, namespace)
		status := k.status
		if status == nil {
			status = fields{"state": map[string]string{"IOModule": "Online", "Unit": "Running"}[k.kind]}
		}
		// Nobody else writes a condition of this type.
		marked := func(object *unstructured.Unstructured) bool {
			for member, value := range status {
				have := toJSON(at(object, "status", member))
				if member == "conditions" {
					// Beside it stand those that controllers keep.
					if !strings.Contains(have, `"type":"Tested"`) {
						return false
					}
					continue
				}
				if have != toJSON(value) {
					return false
				}
			}
			return true
		}
		change := fields{
			"metadata": fields{"labels": fields{"touched": "yes"}},
			"spec":     fields{k.path[1]: k.changed("", k.name(1)).Object["spec"].(fields)[k.path[1]]},
			"status":   status,
		}
		number := 0
		for _, subresource := range []string{"", "status"} {
			for _, write := range writes() {
				number++
				name := k.name(number)
				stored := create(t, k, k.object(namespace, name))
				for _, dryRun := range []bool{true, false} {
					cell := fmt.Sprintf("%s to %s, dry run %v", write.name, named(subresource), dryRun)
					writer := client
					if subresource == "status" && k.own {
						if _, err := write.do(t, client, stored, change, dryRun, path(subresource)...); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "controllers alone") {
							t.Errorf("%s: %v", cell, err)
						}
						if k.status == nil {
							continue
						}
						writer = statusWriter(t, k, namespace)
					}
					answer, err := write.do(t, writer, stored, change, dryRun, path(subresource)...)
					if err != nil {
						t.Fatalf("%s: %v", cell, err)
					}
					for _, object := range []*unstructured.Unstructured{answer, get(t, k, namespace, name)} {
						spec, wrote := subresource == "", true
						if dryRun && object != answer {
							spec, wrote = false, false
						}
						if have := object.GetLabels()["touched"] == "yes"; have != spec {
							t.Errorf("%s: labels changed: %v", cell, have)
						}
						if have := at(object, k.path...) == k.second; have != spec {
							t.Errorf("%s: spec changed: %v", cell, have)
						}
						if have := marked(object); have != (wrote && subresource == "status") {
							t.Errorf("%s: status changed: %v", cell, have)
						}
						generation := int64(1)
						if spec {
							generation = 2
						}
						if object.GetGeneration() != generation {
							t.Errorf("%s: generation is %d, not %d", cell, object.GetGeneration(), generation)
						}
					}
				}
				if write.name == "server-side apply" && (subresource == "" || k.status != nil) {
					owned := managed(t, get(t, k, namespace, name), subresource)
					if _, spec := owned["spec"]; spec != (subresource == "") {
						t.Errorf("applied to %s: %s owns spec: %v", named(subresource), matrixManager, spec)
					}
					if _, status := owned["status"]; status != (subresource == "status") {
						t.Errorf("applied to %s: %s owns status: %v", named(subresource), matrixManager, status)
					}
				}
			}
		}

		// A label is not part of what was asked for.
		labelled, err := client.Patch(t.Context(), k.name(1), types.MergePatchType, []byte(`{"metadata":{"labels":{"other":"yes"}}}`), metav1.PatchOptions{})
		if err != nil || labelled.GetGeneration() != 2 {
			t.Errorf("a label makes generation %d, %v", labelled.GetGeneration(), err)
		}
	})
}

func named(subresource string) string {
	if subresource == "" {
		return "the main resource"
	}
	return subresource
}

func path(subresource string) []string {
	if subresource == "" {
		return nil
	}
	return []string{subresource}
}

// managed is what the matrix's manager owns by apply to a subresource: members by the two top levels.
func managed(t testing.TB, object *unstructured.Unstructured, subresource string) map[string]map[string]bool {
	t.Helper()
	owned := map[string]map[string]bool{}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != matrixManager || entry.Operation != metav1.ManagedFieldsOperationApply {
			continue
		}
		if entry.Subresource != subresource {
			t.Errorf("an entry says subresource %q, not %q", entry.Subresource, subresource)
		}
		var tops map[string]map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tops); err != nil {
			t.Fatal(err)
		}
		for top, members := range tops {
			top = strings.TrimPrefix(top, "f:")
			owned[top] = map[string]bool{}
			for member := range members {
				owned[top][strings.TrimPrefix(member, "f:")] = true
			}
		}
	}
	if len(owned) == 0 {
		t.Errorf("%s owns nothing", matrixManager)
	}
	return owned
}

// Req: A-05, T-13 (A10)
func TestNothingArrivesWithAStatus(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		object := k.object(namespace, k.name(1))
		forged := fields{"conditions": conditions("True"), "observedGeneration": int64(9)}
		initial := fields{}
		switch k.kind {
		case "IOModule":
			forged["state"], initial = "Online", fields{"state": "Unknown", "reason": "NotMeasured"}
		case "Unit":
			forged["state"], initial = "Running", fields{"state": "Idle", "mode": "Automatic"}
		case "TalosMachine":
			forged["phase"], initial = "Running", fields{"phase": "Pending"}
			forged["approval"] = fields{"user": "mallory", "time": "2026-01-01T00:00:00Z", "identity": fields{}}
		case "TalosCluster":
			initial = fields{"machines": fields{}}
		}
		object.Object["status"] = forged
		if have := at(create(t, k, object), "status"); toJSON(have) != toJSON(initial) {
			t.Errorf("created: status is %s, not %s", toJSON(have), toJSON(initial))
		}
		object.SetName(k.name(2))
		if k.kind == "TalosMachine" {
			object.Object["spec"].(fields)["identity"].(fields)["uuid"] = k.name(2)
		}
		applied, err := objects(t, k, namespace).Apply(t.Context(), k.name(2), object, metav1.ApplyOptions{FieldManager: matrixManager})
		if err != nil {
			t.Fatal(err)
		}
		if have := at(applied, "status"); toJSON(have) != toJSON(initial) {
			t.Errorf("applied: status is %s, not %s", toJSON(have), toJSON(initial))
		}
	})
}

// Req: A-05 (A10)
func TestASubresourceNeverCreatesItsObject(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		subresources := []string{"status"}
		if k.kind == "TalosMachine" {
			subresources = []string{"status", "approval", "endpoint"}
		}
		client, absent := objects(t, k, namespace), k.object(namespace, k.name(1))
		for _, subresource := range subresources {
			withVersion := absent.DeepCopy()
			withVersion.SetResourceVersion("1")
			writer := client
			if subresource == "status" {
				writer = statusWriter(t, k, namespace)
			}
			if _, err := writer.Update(t.Context(), withVersion, metav1.UpdateOptions{}, subresource); !apierrors.IsNotFound(err) {
				t.Errorf("PUT to %s: %v", subresource, err)
			}
			if _, err := writer.Apply(t.Context(), k.name(1), absent, metav1.ApplyOptions{FieldManager: matrixManager}, subresource); !apierrors.IsNotFound(err) {
				t.Errorf("server-side apply to %s: %v", subresource, err)
			}
		}
		// Nor does a PUT of the main resource.
		if _, err := client.Update(t.Context(), absent, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
			t.Errorf("PUT: %v", err)
		}
	})
}
