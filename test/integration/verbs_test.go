package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/test/harness"
)

// Req: A-01 (C3, C7, C8, C11, C12)
func TestEveryVerbOfKubectlWorksOnEveryKind(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		kubectl := func(input string, args ...string) string {
			t.Helper()
			return env.MustKubectl(t, input, append(args, "-n", namespace)...)
		}
		one, two := k.name(1), k.name(2)
		manifest := toJSON(k.object(namespace, one).Object)
		value := func(name string) string {
			t.Helper()
			return kubectl("", "get", k.full(), name, "-o", "jsonpath="+k.jsonPath())
		}
		becomes := func(name string, want any) {
			t.Helper()
			if have := value(name); have != fmt.Sprint(want) {
				t.Errorf("%s of %s is %q, not %q", k.jsonPath(), name, have, fmt.Sprint(want))
			}
		}

		kubectl(manifest, "create", "-f", "-")
		kubectlFails(t, manifest, []string{"create", "-f", "-"}, "AlreadyExists")

		// get and list, by every name of the kind.
		for _, name := range []string{k.kind, k.shortName} {
			if have := kubectl("", "get", name, one, "-o", "name"); have != strings.ToLower(k.kind)+"."+k.gv.Group+"/"+one+"\n" {
				t.Errorf("get %s %s: %q", name, one, have)
			}
		}
		if have := kubectl("", "get", k.full(), "-o", "name"); strings.Count(have, "\n") != 1 {
			t.Errorf("the list is %q", have)
		}
		kubectlFails(t, "", []string{"get", k.full(), two, "-n", namespace}, "NotFound")

		// watch, and every way to change.
		lines := following(t, "get", k.full(), "-n", namespace, "--watch", "--output-watch-events", "-o", "jsonpath={.type}/{.object.metadata.name}"+
			strings.Replace(k.jsonPath(), "{", "/{.object", 1)+"{\"\\n\"}")
		awaitLine(t, lines, fmt.Sprintf("ADDED/%s/%v", one, k.first))

		kubectl("", "patch", k.full(), one, "--type=merge", "-p", k.patch(k.second))
		awaitLine(t, lines, fmt.Sprintf("MODIFIED/%s/%v", one, k.second))
		kubectl("", "patch", k.full(), one, "--type=json", "-p", toJSON([]fields{
			{"op": "test", "path": "/" + strings.Join(k.path, "/"), "value": k.second},
			{"op": "replace", "path": "/" + strings.Join(k.path, "/"), "value": k.first},
		}))
		becomes(one, k.first)
		kubectl("", "patch", k.full(), one, "--type=strategic", "-p", k.patch(k.second))
		becomes(one, k.second)

		if output, err := edit(t, fmt.Sprintf("s/%[1]s:.*%[2]v/%[1]s:\\ %[3]v/", k.path[len(k.path)-1], k.second, k.first), "edit", k.full(), one, "-n", namespace); err != nil {
			t.Errorf("edit: %v\n%s", err, output)
		}
		becomes(one, k.first)

		kubectl(toJSON(k.changed(namespace, one).Object), "replace", "-f", "-")
		becomes(one, k.second)

		// Client-side apply takes over what was created, changes it, and says when there is nothing to do.
		kubectl(manifest, "apply", "-f", "-")
		becomes(one, k.first)
		if have := kubectl(manifest, "apply", "-f", "-"); !strings.Contains(have, "unchanged") {
			t.Errorf("applied again: %s", have)
		}

		// wait, describe, auth can-i.
		if k.status != nil {
			patch := []string{"patch", k.full(), one, "--subresource=status", "--type=merge", "-p", toJSON(fields{"status": k.status})}
			if k.own {
				kubectlFails(t, "", append(patch, "-n", namespace), "Forbidden", "controllers alone")
				patch = append(patch, "--as="+env.ServerConfig().Impersonate.UserName, "--as-group="+env.ServerConfig().Impersonate.Groups[0])
			}
			kubectl("", patch...)
		}
		kubectl("", "wait", k.full()+"/"+one, "--for=jsonpath="+k.reached, "--timeout=20s")
		if k.condition != "" {
			kubectl("", "wait", k.full()+"/"+one, "--for=condition="+k.condition, "--timeout=20s")
		}
		if have := kubectl("", "describe", k.full(), one); !strings.Contains(have, "Kind:         "+k.kind) || !strings.Contains(have, "Status:") {
			t.Errorf("describe says:\n%s", have)
		}
		if have := kubectl("", "auth", "can-i", "deletecollection", k.full()); have != "yes\n" {
			t.Errorf("can-i deletecollection: %s", have)
		}
		kubectlFails(t, "", []string{"auth", "can-i", "list", k.full(), "-n", namespace, "--as=stranger"}, "no")
		kubectlFails(t, "", []string{"get", k.full(), "-n", namespace, "--as=stranger"}, "Forbidden", "stranger")

		// delete one, and delete what is left.
		kubectl("", "delete", k.full(), one)
		awaitLine(t, lines, "DELETED/"+one)
		for n := 1; n <= 3; n++ {
			create(t, k, k.object(namespace, k.name(n)))
		}
		setFinalizers(t, k, namespace, one, "test.example/hold")
		kubectl("", "delete", k.full(), "--all", "--wait=false")
		kubectlFails(t, "", []string{"wait", k.full() + "/" + one, "--for=delete", "-n", namespace, "--timeout=300ms"})
		setFinalizers(t, k, namespace, one)
		kubectl("", "wait", k.full()+"/"+one, "--for=delete", "--timeout=20s")
		if have := kubectl("", "get", k.full(), "-o", "name"); have != "" {
			t.Errorf("after delete --all there is %s", have)
		}
	})
}

// setFinalizers leaves an object with these finalizers and no others.
func setFinalizers(t testing.TB, k kind, namespace, name string, finalizers ...string) {
	t.Helper()
	patch := []byte(nested(append([]string{}, finalizers...), "metadata", "finalizers"))
	if _, err := objects(t, k, namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Req: A-01, A-07 (C3)
func TestExplainTellsEveryFieldOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			output := env.MustKubectl(t, "", "explain", k.full(), "--recursive")
			for _, want := range append([]string{"GROUP:      " + k.gv.Group, "KIND:       " + k.kind, "conditions\t<[]Condition>", "metadata\t<ObjectMeta>"}, k.path[:2]...) {
				if !strings.Contains(output, want) {
					t.Errorf("%q is missing from:\n%s", want, output)
				}
			}
			// A field and its comment.
			leaf := env.MustKubectl(t, "", "explain", k.resource+"."+strings.Join(k.path[:2], "."))
			if _, description, found := strings.Cut(leaf, "DESCRIPTION:"); !found || strings.Contains(description, "<empty>") {
				t.Errorf("no description of %v:\n%s", k.path[:2], leaf)
			}
		})
	}
}

// Req: A-01, A-05 (A5, C4)
func TestServerSideApplyOfEveryKindKnowsWhoOwnsWhat(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		name := k.name(1)
		apply := func(manager string, object *unstructured.Unstructured, args ...string) (string, error) {
			return env.Kubectl(t, toJSON(object.Object), append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, args...)...)
		}
		must := func(output string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
		}
		first := k.object(namespace, name)
		first.SetLabels(map[string]string{"first": "yes"})
		must(apply("one", first))
		unchangedBy(t, k, namespace, name, func() { must(apply("one", first)) })

		second := k.changed(namespace, name)
		output, err := apply("two", second)
		if err == nil || !strings.Contains(output, `conflict with "one"`) || !strings.Contains(output, strings.Join(k.path, ".")) {
			t.Errorf("applied by a second manager: %v\n%s", err, output)
		}
		if have := at(get(t, k, namespace, name), k.path...); have != k.first {
			t.Errorf("in spite of the conflict the value is %v", have)
		}
		must(apply("two", second, "--force-conflicts"))
		if have := at(get(t, k, namespace, name), k.path...); have != k.second {
			t.Errorf("by force the value is %v", have)
		}
		output, err = apply("one", first)
		if err == nil || !strings.Contains(output, `conflict with "two"`) {
			t.Errorf("applied by the manager that lost: %v\n%s", err, output)
		}

		// What its only manager leaves out goes away.
		second.SetLabels(nil)
		must(apply("one", second))
		if have := get(t, k, namespace, name).GetLabels(); have["first"] != "" {
			t.Errorf("a label that its manager left out is still there: %v", have)
		}
	})
}

// unchangedBy says when something gives the object a new version. Controllers may write its status meanwhile, so it is
// done until they have not.
func unchangedBy(t testing.TB, k kind, namespace, name string, do func()) {
	t.Helper()
	for range 5 {
		before := get(t, k, namespace, name)
		do()
		after := get(t, k, namespace, name)
		if before.GetResourceVersion() == after.GetResourceVersion() {
			return
		}
		if toJSON(before.Object["spec"]) != toJSON(after.Object["spec"]) {
			t.Fatalf("the spec has changed:\n%s\n%s", toJSON(before.Object["spec"]), toJSON(after.Object["spec"]))
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Errorf("%s %s gets a new resourceVersion every time", k.kind, name)
}

// Req, A-05 (C5)
func TestDryRunOfEveryVerbAdmitsAndDefaultsAndKeepsNothing(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		dryRun := func(input string, args ...string) *unstructured.Unstructured {
			t.Helper()
			output := env.MustKubectl(t, input, append(args, "-n", namespace, "--dry-run=server", "-o", "json")...)
			object := &unstructured.Unstructured{}
			// Before the object stand warnings.
			if err := object.UnmarshalJSON([]byte(output[max(0, strings.Index(output, "{")):])); err != nil {
				t.Fatalf("kubectl %v: %v\n%s", args, err, output)
			}
			return object
		}
		one, two := k.name(1), k.name(2)
		manifest := toJSON(k.object(namespace, two).Object)
		change := toJSON(k.changed(namespace, one).Object)
		bad := k.object(namespace, two)
		if k.kind != "TalosMachine" {
			bad = merged(t, bad, k.invalid)
		} else {
			bad = merged(t, bad, `{"spec":{"approved":true}}`)
		}
		create(t, k, k.object(namespace, one))

		for _, tc := range []struct {
			name string
			args []string
		}{
			{"create", []string{"create", "-f", "-"}},
			{"apply", []string{"apply", "-f", "-"}},
			{"server-side apply", []string{"apply", "--server-side", "-f", "-"}},
		} {
			would := dryRun(manifest, tc.args...)
			if would.GetUID() == "" || k.defaulted != nil && at(would, k.defaulted...) != k.filledIn {
				t.Errorf("%s: no uid or not defaulted: %s", tc.name, toJSON(would.Object))
			}
			if output, err := env.Kubectl(t, toJSON(bad.Object), append(tc.args, "--dry-run=server")...); err == nil {
				t.Errorf("%s of a bad object is admitted: %s", tc.name, output)
			}
		}
		if have := env.MustKubectl(t, "", "get", k.full(), "-n", namespace, "-o", "name"); strings.Count(have, "\n") != 1 {
			t.Errorf("after dry runs of creation there is %s", have)
		}

		unchangedBy(t, k, namespace, one, func() {
			for _, tc := range []struct {
				name  string
				input string
				args  []string
			}{
				{"apply", change, []string{"apply", "-f", "-"}},
				{"server-side apply", change, []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}},
				{"merge patch", "", []string{"patch", k.full(), one, "--type=merge", "-p", k.patch(k.second)}},
				{"replace", change, []string{"replace", "-f", "-"}},
			} {
				if have := at(dryRun(tc.input, tc.args...), k.path...); have != k.second {
					t.Errorf("%s would make it %v", tc.name, have)
				}
			}
			env.MustKubectl(t, "", "delete", k.full(), one, "-n", namespace, "--dry-run=server")
			env.MustKubectl(t, "", "delete", k.full(), "--all", "-n", namespace, "--dry-run=server")
		})
		kubectlFails(t, "", []string{"patch", k.full(), one, "-n", namespace, "--type=merge", "-p", k.invalid, "--dry-run=server"}, k.refusal)
		if err := objects(t, k, namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{}); err != nil {
			t.Errorf("deletecollection: %v", err)
		}
		get(t, k, namespace, one)
	})
}

// merged is an object with a merge patch of two levels applied, as far as these tests need it.
func merged(t testing.TB, object *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	change := &unstructured.Unstructured{}
	if err := change.UnmarshalJSON([]byte(strings.Replace(patch, "{", `{"apiVersion":"v1","kind":"Patch",`, 1))); err != nil {
		t.Fatal(err)
	}
	object = object.DeepCopy()
	spec := object.Object["spec"].(fields)
	for member, value := range change.Object["spec"].(fields) {
		if value == nil {
			delete(spec, member)
		} else {
			spec[member] = value
		}
	}
	return object
}

// Req: A-01, T-13 (C6)
func TestAWriteAgainstAnOldVersionConflicts(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		name := k.name(1)
		old := create(t, k, k.object(namespace, name))
		client := objects(t, k, namespace)
		if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(k.patch(k.second)), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		kubectlFails(t, toJSON(old.Object), []string{"replace", "-f", "-"}, "Conflict", "the object has been modified")
		for _, patch := range []struct {
			kind types.PatchType
			body string
		}{
			{types.MergePatchType, `{"metadata":{"resourceVersion":"` + old.GetResourceVersion() + `","labels":{"a":"b"}}}`},
			{types.StrategicMergePatchType, `{"metadata":{"resourceVersion":"` + old.GetResourceVersion() + `","labels":{"a":"b"}}}`},
			{types.JSONPatchType, `[{"op":"replace","path":"/metadata/resourceVersion","value":"` + old.GetResourceVersion() + `"},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`},
		} {
			if _, err := client.Patch(t.Context(), name, patch.kind, []byte(patch.body), metav1.PatchOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("%s: %v", patch.kind, err)
			}
		}
		unseen := get(t, k, namespace, name)
		unseen.SetResourceVersion("")
		if _, err := client.Update(t.Context(), unseen, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.resourceVersion") {
			t.Errorf("an update without a resourceVersion: %v", err)
		}
		version := old.GetResourceVersion()
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}); !apierrors.IsConflict(err) {
			t.Errorf("a delete of an old version: %v", err)
		}
	})
}

// Req: A-01 (C6)
func TestStrictValidationRefusesUnknownAndDuplicateFields(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		client := rest(t, k)
		unknown := merged(t, k.object(namespace, k.name(1)), `{"spec":{"nonsense":"x"}}`)
		kubectlFails(t, toJSON(unknown.Object), []string{"create", "--validate=strict", "-f", "-"}, "unknown field", "nonsense")

		member, value := k.path[1], toJSON(k.object("", k.name(1)).Object["spec"].(fields)[k.path[1]])
		double := strings.Replace(toJSON(k.object(namespace, k.name(1)).Object), `"`+member+`":`, `"`+member+`":`+value+`,"`+member+`":`, 1)
		for _, tc := range []struct{ name, validation, refusal string }{
			{"strict", "Strict", fmt.Sprintf(`duplicate field "spec.%s"`, member)},
			{"warn", "Warn", ""},
			{"ignore", "Ignore", ""},
		} {
			result := client.Post().AbsPath(k.url(namespace)).Param("fieldValidation", tc.validation).Param("dryRun", "All").
				SetHeader("Content-Type", "application/json").Body([]byte(double)).Do(t.Context())
			err := result.Error()
			if tc.refusal == "" && err != nil || tc.refusal != "" && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.refusal)) {
				t.Errorf("duplicate field, %s: %v", tc.name, err)
			}
			if warned := len(result.Warnings()) > 0; warned != (tc.validation == "Warn") {
				t.Errorf("duplicate field, %s: warnings %v", tc.name, result.Warnings())
			}
		}

		create(t, k, k.object(namespace, k.name(1)))
		_, err := objects(t, k, namespace).Patch(t.Context(), k.name(1), types.MergePatchType, []byte(`{"spec":{"nonsense":"x"}}`),
			metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
		if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.nonsense"`) {
			t.Errorf("patch with an unknown field: %v", err)
		}
	})
}

// Req: A-01 (C8)
func TestListsComeInChunks(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		for n := 1; n <= 5; n++ {
			create(t, k, k.object(namespace, k.name(n)))
		}
		output := env.MustKubectl(t, "", "get", k.full(), "-n", namespace, "--chunk-size=2", "-o", "name")
		if strings.Count(output, "\n") != 5 {
			t.Errorf("in chunks of two: %s", output)
		}
		client := objects(t, k, namespace)
		seen, options := map[string]bool{}, metav1.ListOptions{Limit: 2}
		for _, want := range []struct {
			items, remaining int64
			more             bool
		}{{2, 3, true}, {2, 1, true}, {1, 0, false}} {
			list, err := client.List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			remaining := int64(0)
			if list.GetRemainingItemCount() != nil {
				remaining = *list.GetRemainingItemCount()
			}
			if int64(len(list.Items)) != want.items || remaining != want.remaining || (list.GetContinue() != "") != want.more {
				t.Errorf("%d items, %d remain, continue %q; want %+v", len(list.Items), remaining, list.GetContinue(), want)
			}
			for _, item := range list.Items {
				if seen[item.GetName()] {
					t.Errorf("%s comes twice", item.GetName())
				}
				seen[item.GetName()] = true
			}
			options.Continue = list.GetContinue()
		}
		options.Continue = "nonsense"
		if _, err := client.List(t.Context(), options); !apierrors.IsBadRequest(err) {
			t.Errorf("a continue token of nobody: %v", err)
		}
	})
}

// Req: A-01 (C7)
func TestAWatchFromAVersionMissesNothing(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		client := objects(t, k, namespace)
		before, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		name := k.name(1)
		create(t, k, k.object(namespace, name))
		if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(k.patch(k.second)), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		seconds := int64(10)
		watch, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.GetResourceVersion(), TimeoutSeconds: &seconds})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
		var have []string
		for event := range watch.ResultChan() {
			object := event.Object.(*unstructured.Unstructured)
			line := fmt.Sprintf("%s %v", event.Type, at(object, k.path...))
			// Controllers write status in between.
			if len(have) == 0 || have[len(have)-1] != line {
				have = append(have, line)
			}
			if event.Type == "DELETED" {
				break
			}
		}
		want := fmt.Sprintf("[ADDED %[1]v MODIFIED %[2]v DELETED %[2]v]", k.first, k.second)
		if modified := fmt.Sprintf("[ADDED %[1]v MODIFIED %[1]v MODIFIED %[2]v DELETED %[2]v]", k.first, k.second); fmt.Sprint(have) != want && fmt.Sprint(have) != modified {
			t.Errorf("the watch shows %v, not %s", have, want)
		}
	})
}

// Req: A-01, A-08 (C3)
func TestDiscoveryTellsTheVerbsAndSubresourcesOfEveryKind(t *testing.T) {
	t.Parallel()
	host := env.Host().Discovery()
	// Asked for all at once, clients get the aggregated form; asked for one version, the older one. They must agree.
	_, aggregated, err := host.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	together := map[string]string{}
	for _, list := range aggregated {
		for _, resource := range list.APIResources {
			together[list.GroupVersion+"/"+resource.Name] = toJSON([]any{resource.Verbs, resource.ShortNames, resource.Categories, resource.Kind, resource.Namespaced})
		}
	}
	for _, k := range kinds() {
		list, err := host.ServerResourcesForGroupVersion(k.gv.String())
		if err != nil {
			t.Fatal(err)
		}
		verbs := map[string]string{}
		for _, resource := range list.APIResources {
			verbs[resource.Name] = fmt.Sprint(resource.Verbs)
			alone := toJSON([]any{resource.Verbs, resource.ShortNames, resource.Categories, resource.Kind, resource.Namespaced})
			if have := together[k.gv.String()+"/"+resource.Name]; have != alone {
				t.Errorf("%s is %s in the aggregated discovery, and %s in the other", resource.Name, have, alone)
			}
			if resource.Name == k.resource && (resource.Kind != k.kind || resource.SingularName != strings.ToLower(k.kind) ||
				fmt.Sprint(resource.ShortNames) != "["+k.shortName+"]" || fmt.Sprint(resource.Categories) != "[fieldplane]" ||
				!resource.Namespaced || resource.StorageVersionHash == "") {
				t.Errorf("%s: %+v", k.kind, resource)
			}
		}
		want := map[string]string{
			k.resource:             "[create delete deletecollection get list patch update watch]",
			k.resource + "/status": "[get patch update]",
		}
		switch k.kind {
		case "TalosMachine":
			want[k.resource+"/approval"], want[k.resource+"/endpoint"] = "[get patch update]", "[get patch update]"
			want[k.resource+"/config"], want[k.resource+"/reboot"] = "[get]", "[create]"
		case "TalosCluster":
			want[k.resource+"/discover"] = "[create]"
		case "IOModule":
			want[k.resource+"/channels"] = "[get]"
		case "Unit":
			want[k.resource+"/command"], want[k.resource+"/tags"] = "[create]", "[get update watch]"
		}
		for name, verbsWanted := range want {
			if verbs[name] != verbsWanted {
				t.Errorf("%s has verbs %s, not %s", name, verbs[name], verbsWanted)
			}
		}
		for name := range verbs {
			if _, known := want[name]; strings.HasPrefix(name, k.resource+"/") && !known {
				t.Errorf("%s is served and no test knows it", name)
			}
		}
	}
}

// Req: A-01
func TestApplyOfAFolderTakesAClusterAndItsMachineTogether(t *testing.T) {
	t.Parallel()
	namespace, dir := env.Namespace(t), t.TempDir()
	cluster, machine := kindOf("TalosCluster"), kindOf("TalosMachine")
	declared := cluster.object(namespace, "cluster", fields{"discovery": fields{"addresses": []any{"192.0.2.7"}}})
	inside := machine.object(namespace, machine.name(1), fields{"endpoint": "192.0.2.7"})
	for name, object := range map[string]*unstructured.Unstructured{"1-cluster.json": declared, "2-machine.json": inside} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(toJSON(object.Object)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The user may not update talosmachines/endpoint: the plugin must see the cluster that was written an instant ago.
	grant(t, namespace, "gitops", rule("*", "talosclusters,talosmachines"))
	env.MustKubectl(t, "", "apply", "-f", dir, "--as=gitops")
	harness.Eventually(t, 10*time.Second, func() string {
		return strings.TrimPrefix(env.MustKubectl(t, "", "diff", "-f", dir), "")
	})
}
