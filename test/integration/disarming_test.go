package integration

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// disarming is a change of spec that would disarm the Unit mixer.
type disarming struct {
	name, kind, object string
	change             func(spec fields)
}

func disarmings() []disarming {
	tag := func(change func(tag fields)) func(fields) {
		return func(spec fields) { change(spec["tags"].([]any)[1].(fields)) }
	}
	return []disarming{
		{"narrowing holdOn", "Unit", "mixer", func(spec fields) { spec["holdOn"] = []any{"Fault"} }},
		{"loosening unknownHoldAfter", "Unit", "mixer", func(spec fields) { spec["unknownHoldAfter"] = "2m" }},
		{"switching unknownHoldAfter off", "Unit", "mixer", func(spec fields) { spec["unknownHoldAfter"] = "0s" }},
		{"another unitRef", "ControlModule", "drive", func(spec fields) { spec["unitRef"] = fields{"name": "other"} }},
		{"removing a tag", "ControlModule", "drive", func(spec fields) { spec["tags"] = spec["tags"].([]any)[:1] }},
		{"another module for a tag", "ControlModule", "drive", tag(func(tag fields) { tag["ioModuleRef"] = fields{"name": "other"} })},
		{"another address for a tag", "ControlModule", "drive", tag(func(tag fields) { tag["address"] = "holding:0" })},
		{"another type for a tag", "ControlModule", "drive", tag(func(tag fields) { tag["dataType"] = "float32" })},
		{"another hold value", "ControlModule", "drive", func(spec fields) { spec["tags"].([]any)[0].(fields)["holdValue"] = "100" }},
		{"another Controller", "IOModule", "tank", func(spec fields) { spec["controllerRef"] = fields{"name": "other"} }},
		{"another protocol", "IOModule", "tank", func(spec fields) {
			spec["protocol"], spec["modbus"] = "modbus", fields{"endpoint": "tcp://127.0.0.1:1"}
		}},
		{"a longer probe period", "IOModule", "tank", func(spec fields) { spec["probe"].(fields)["period"] = "60s" }},
		{"more failures forgiven", "IOModule", "tank", func(spec fields) { spec["probe"].(fields)["failureThreshold"] = int64(10) }},
		{"fewer successes asked for", "IOModule", "tank", func(spec fields) { spec["probe"].(fields)["successThreshold"] = int64(1) }},
	}
}

// editor is somebody who may write everything of the namespace but statuses, and may not override.
func editor(t *testing.T, namespace string) string {
	t.Helper()
	user := "editor." + namespace
	grant(t, namespace, user, rule("*", "units,controlmodules,iomodules,controllers"))
	return user
}

// as is a client without types for a kind in a namespace.
func as(t testing.TB, user string, k kind, namespace string) dynamic.ResourceInterface {
	t.Helper()
	config, err := env.Cluster.UserConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(k.gvr()).Namespace(namespace)
}

// errNothing says that a write was let in and changed nothing.
var errNothing = errors.New("nothing was changed")

// Every row of P-16a on every path, by one who may not override and by one who may; and what of it goes when the Unit is at
// rest.
//
// Req: P-16a, A-05
func TestWhatDisarmsAUnitThatIsNotAtRestNeedsTheVerbOnEveryPath(t *testing.T) {
	t.Parallel()
	for _, d := range disarmings() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			e := newEquipment(t, false)
			user := editor(t, e.namespace)
			k := kindOf(d.kind)
			client := as(t, user, k, e.namespace)
			e.run(t)
			attempt := func(write write, dryRun bool) error {
				stored := get(t, k, e.namespace, d.object)
				before := toJSON(stored.Object["spec"])
				spec := stored.DeepCopy().Object["spec"].(fields)
				d.change(spec)
				answer, err := write.do(t, client, stored, fields{"spec": spec}, dryRun)
				after := toJSON(get(t, k, e.namespace, d.object).Object["spec"])
				if err != nil && after != before {
					t.Errorf("%s: refused, and yet the spec is %s", write.name, after)
				}
				// Whoever applies a list without what is another's takes nothing from it.
				if err == nil && write.name == "server-side apply" && toJSON(answer.Object["spec"]) == before {
					return errNothing
				}
				return err
			}
			for _, write := range writes() {
				for _, dryRun := range []bool{true, false} {
					err := attempt(write, dryRun)
					if errors.Is(err, errNothing) {
						continue
					}
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `needs the verb "override" on resource "units/command"`) || !strings.Contains(err.Error(), `Unit "mixer" is `) {
						t.Errorf("%s, dry run %v: %v", write.name, dryRun, err)
					}
				}
			}
			// What disarms nothing is not asked about.
			if _, err := client.Patch(t.Context(), d.object, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
				t.Errorf("a label: %v", err)
			}
			revoke := grant(t, e.namespace, user, rule("override", "units/command", "mixer"))
			for _, write := range writes() {
				if err := attempt(write, true); err != nil && !errors.Is(err, errNothing) {
					t.Errorf("%s with the verb on this Unit: %v", write.name, err)
				}
			}
			revoke()

			// At rest it is an edit like any other.
			if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandAbort}); err != nil {
				t.Fatal(err)
			}
			e.is(t, v1alpha1.UnitAborted)
			for _, write := range writes() {
				if err := attempt(write, true); err != nil && !errors.Is(err, errNothing) {
					t.Errorf("%s, at rest: %v", write.name, err)
				}
			}
			if err := attempt(writes()[1], false); err != nil {
				t.Errorf("at rest: %v", err)
			}
		})
	}
}

// Req: P-16a
func TestNothingThatAUnitNeedsIsDeletedWhileItIsNotAtRest(t *testing.T) {
	t.Parallel()
	for _, d := range []disarming{{kind: "Unit", object: "mixer"}, {kind: "ControlModule", object: "drive"}, {kind: "IOModule", object: "tank"}} {
		t.Run(d.kind, func(t *testing.T) {
			t.Parallel()
			e := newEquipment(t, false)
			user := editor(t, e.namespace)
			k := kindOf(d.kind)
			client := as(t, user, k, e.namespace)
			e.run(t)
			foreground, orphan := metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
			for name, remove := range map[string]func() error{
				"delete": func() error { return client.Delete(t.Context(), d.object, metav1.DeleteOptions{}) },
				"dry run": func() error {
					return client.Delete(t.Context(), d.object, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
				},
				"in the foreground": func() error {
					return client.Delete(t.Context(), d.object, metav1.DeleteOptions{PropagationPolicy: &foreground})
				},
				"leaving orphans": func() error {
					return client.Delete(t.Context(), d.object, metav1.DeleteOptions{PropagationPolicy: &orphan})
				},
				"all of them": func() error {
					return client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
				},
				"at once": func() error { return client.Delete(t.Context(), d.object, *metav1.NewDeleteOptions(0)) },
			} {
				if err := remove(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `Unit "mixer" is `) || !strings.Contains(err.Error(), "delete "+d.kind) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if object := get(t, k, e.namespace, d.object); object.GetDeletionTimestamp() != nil {
				t.Fatal("it is being deleted")
			}
			kubectlFails(t, "", []string{"delete", k.full(), d.object, "-n", e.namespace, "--as=" + user}, "Forbidden", "override")

			// Deleted while it was at rest and held up by a finalizer, it would go later.
			if d.kind != "Unit" {
				if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandAbort}); err != nil {
					t.Fatal(err)
				}
				e.is(t, v1alpha1.UnitAborted)
				setFinalizers(t, k, e.namespace, d.object, "test.example/hold")
				if err := client.Delete(t.Context(), d.object, metav1.DeleteOptions{}); err != nil {
					t.Fatalf("at rest: %v", err)
				}
				if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandReset}); err != nil {
					t.Fatal(err)
				}
				e.is(t, v1alpha1.UnitIdle)
				e.run(t)
				if _, err := client.Patch(t.Context(), d.object, types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
					t.Errorf("the last finalizer: %v", err)
				}
			}
			grant(t, e.namespace, user, rule("override", "units/command"))
			if d.kind == "Unit" {
				if err := client.Delete(t.Context(), d.object, metav1.DeleteOptions{}); err != nil {
					t.Errorf("with the verb: %v", err)
				}
			} else if _, err := client.Patch(t.Context(), d.object, types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{}); err != nil {
				t.Errorf("the last finalizer, with the verb: %v", err)
			}
			if _, err := objects(t, k, e.namespace).Get(t.Context(), d.object, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

// Req: P-16a, A-04
func TestANamespaceWithAUnitThatRunsGoesAwayWhole(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	e.run(t)
	deleteNamespace(t, e.namespace)
	gone(t, e.namespace)
}

// Req: P-16a. A manifest in Git that names what is stored is applied again and again, whatever the Unit does.
func TestWhatIsAppliedAgainUnchangedDisarmsNothing(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	user := editor(t, e.namespace)
	e.run(t)
	for kind, name := range map[string]string{"Unit": "mixer", "ControlModule": "drive", "IOModule": "tank"} {
		k := kindOf(kind)
		stored := get(t, k, e.namespace, name)
		bare := &unstructured.Unstructured{Object: fields{"apiVersion": stored.GetAPIVersion(), "kind": kind, "metadata": fields{"name": name, "namespace": e.namespace}, "spec": stored.Object["spec"]}}
		for _, args := range [][]string{{"apply", "-f", "-"}, {"apply", "--server-side", "--force-conflicts", "-f", "-"}} {
			if output, err := env.Kubectl(t, toJSON(bare.Object), append(args, "--as="+user)...); err != nil {
				t.Errorf("%s %s: %v\n%s", args, kind, err, output)
			}
		}
	}
	if unit := e.unit(t); unit.Status.State != v1alpha1.UnitRunning {
		t.Errorf("the Unit is %s", unit.Status.State)
	}
}
