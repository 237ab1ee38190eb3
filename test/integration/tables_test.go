package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// Req: A-08 (C11)
func TestTablesShowWhatAnOperatorNeeds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		columns, wide []string
		// cells are some of a stored object's, by column.
		cells map[string]string
	}{
		"IOModule": {
			[]string{"Name", "Protocol", "Endpoint", "State", "Reason", "Since"}, []string{"Controller", "Health", "Channels", "Probe", "Message"},
			map[string]string{"Protocol": "simulation", "State": "Unknown", "Controller": "nobody"},
		},
		"Controller":    {[]string{"Name", "Phase", "Node"}, []string{"Heartbeat", "Last Alive"}, map[string]string{"Node": "<none>", "Heartbeat": "<none>"}},
		"ControlModule": {[]string{"Name", "Unit", "Tags", "References"}, []string{"Message"}, map[string]string{"Unit": "first", "Tags": "0"}},
		"Unit":          {[]string{"Name", "State", "Since", "Mode", "Hold"}, []string{"Modules", "Command", "Runtime"}, map[string]string{"State": "Idle", "Mode": "Automatic", "Hold": "<none>"}},
		"TalosCluster": {
			[]string{"Name", "Endpoint", "Machines", "Pending", "Running", "Failed", "Reason", "Sweep", "Answered"}, []string{"Talos", "Kubernetes", "Weak", "Collisions", "Paused"},
			map[string]string{"Endpoint": "https://192.0.2.1:6443", "Talos": "v1.13", "Kubernetes": "v1.36.1", "Paused": "true", "Reason": "Paused"},
		},
		"TalosMachine": {
			[]string{"Name", "Cluster", "Role", "Phase", "Reason", "Endpoint", "Serial", "Hardware", "Node"},
			[]string{"Approved", "Approved By", "MACs", "Disks", "Observed", "Fingerprint", "Talos"},
			map[string]string{"Cluster": "cluster", "Role": "worker", "Phase": "Pending", "Serial": "S1", "Observed": "192.0.2.9", "Approved": "false", "Approved By": "<none>"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, namespace := kindOf(name), env.Namespace(t)
			create(t, k, k.object(namespace, k.name(1)))
			if k.status != nil {
				writeStatus(t, k, namespace, k.name(1), k.status)
			}
			body, err := rest(t, k).Get().AbsPath(k.url(namespace)).SetHeader("Accept", asTable).Do(t.Context()).Raw()
			if err != nil {
				t.Fatal(err)
			}
			var table metav1.Table
			if err := json.Unmarshal(body, &table); err != nil || table.Kind != "Table" || len(table.Rows) != 1 {
				t.Fatalf("%v: %s", err, body)
			}
			var columns, wide, all []string
			cells := map[string]string{}
			for i, column := range table.ColumnDefinitions {
				all = append(all, column.Name)
				if cells[column.Name] = fmt.Sprint(table.Rows[0].Cells[i]); column.Priority == 0 {
					columns = append(columns, column.Name)
				} else {
					wide = append(wide, column.Name)
				}
				if column.Description == "" {
					t.Errorf("column %s has no description", column.Name)
				}
			}
			if !slices.Equal(columns, append(want.columns, "Age")) || !slices.Equal(wide, want.wide) {
				t.Errorf("columns %q, wide %q", columns, wide)
			}
			for column, cell := range want.cells {
				if cells[column] != cell {
					t.Errorf("%s is %q, not %q", column, cells[column], cell)
				}
			}
			// kubectl prints the wide columns last but for the age, as the server orders them.
			for shown, args := range map[*[]string][]string{&columns: nil, &all: {"-o", "wide"}} {
				output := env.MustKubectl(t, "", append([]string{"get", k.shortName, "-n", namespace}, args...)...)
				header, _, _ := strings.Cut(output, "\n")
				if squeezed := strings.ToUpper(strings.Join(*shown, " ")); strings.Join(strings.Fields(header), " ") != squeezed {
					t.Errorf("kubectl get %v shows %q, and the columns are %q", args, header, squeezed)
				}
			}
		})
	}
}

// Req: A-08
func TestTheCategoryListsEveryKind(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	for _, k := range kinds() {
		create(t, k, k.object(namespace, k.name(1)))
	}
	output := env.MustKubectl(t, "", "get", "fieldplane", "-n", namespace, "-o", "name")
	for _, k := range kinds() {
		if !strings.Contains(output, strings.ToLower(k.kind)+"."+k.gv.Group+"/"+k.name(1)+"\n") {
			t.Errorf("%s is missing from\n%s", k.kind, output)
		}
	}
}

// Req: A-08 (C10)
func TestEveryDeclaredFieldSelectsInListWatchAndDeletecollection(t *testing.T) {
	t.Parallel()
	declared := physicalv1alpha1.SelectableFields()
	maps.Copy(declared, talosv1alpha1.SelectableFields())
	// The value, and what makes an object have it that others do not.
	type selected struct {
		value       string
		yes, status fields
		wait        bool
	}
	tests := map[string]map[string]selected{
		"IOModule": {
			"spec.protocol":           {value: "modbus", yes: fields{"protocol": "modbus", "modbus": fields{"endpoint": "tcp://127.0.0.1:1"}, "simulation": nil}},
			"spec.controllerRef.name": {value: "chosen", yes: fields{"controllerRef": fields{"name": "chosen"}}},
			// A Controller that beats, kept by the test, makes its modules Online.
			"status.state": {value: "Online", yes: fields{"controllerRef": fields{"name": "beating"}}, wait: true},
		},
		// Whatever it is written to be, a Controller that awaits its Node soon is that again.
		"Controller":    {"status.phase": {value: "Simulated", yes: fields{"simulation": true, "nodeName": nil}, wait: true}},
		"ControlModule": {"spec.unitRef.name": {value: "chosen", yes: fields{"unitRef": fields{"name": "chosen"}}}},
		// Nobody but a controller writes the state: a Unit that nobody commands is Idle.
		"Unit":         {"status.state": {value: "Idle"}},
		"TalosCluster": {},
		"TalosMachine": {
			"spec.clusterRef.name": {value: "chosen", yes: fields{"clusterRef": fields{"name": "chosen"}}},
			"spec.approved":        {value: "true", yes: fields{"approved": true, "install": fields{"disk": "/dev/sda"}}},
			"spec.role":            {value: "controlplane", yes: fields{"role": "controlplane"}},
			"status.phase":         {value: "Rejected", yes: fields{"rejected": fields{"reason": "x"}}, status: fields{"phase": "Rejected"}},
		},
	}
	for _, k := range kinds() {
		if len(tests[k.kind]) != len(declared[k.kind]) {
			t.Errorf("%s declares %v, and tested are %v", k.kind, declared[k.kind], slices.Collect(maps.Keys(tests[k.kind])))
		}
		for _, field := range append([]string{"metadata.name"}, declared[k.kind]...) {
			tc, known := tests[k.kind][field]
			if field == "metadata.name" {
				tc = selected{value: k.name(1)}
			} else if !known {
				t.Errorf("nobody tests %s of %s", field, k.kind)
				continue
			}
			t.Run(k.kind+" by "+field, func(t *testing.T) {
				t.Parallel()
				namespace := env.Namespace(t)
				client := objects(t, k, namespace)
				if tc.wait && k.kind == "IOModule" {
					beat(t, namespace, "beating")
				}
				selector := field + "=" + tc.value
				// A watch that was there before.
				watcher, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: selector})
				if err != nil {
					t.Fatal(err)
				}
				defer watcher.Stop()
				chosen, other := k.object(namespace, k.name(1), tc.yes), k.object(namespace, k.name(2))
				for member, value := range tc.yes {
					if value == nil {
						delete(chosen.Object["spec"].(fields), member)
					}
				}
				create(t, k, other)
				create(t, k, chosen)
				if tc.status != nil {
					writeStatus(t, k, namespace, k.name(1), tc.status)
				}
				all := k.kind == "Unit" && field == "status.state"
				if tc.wait {
					env.MustKubectl(t, "", "wait", k.full()+"/"+k.name(1), "-n", namespace, "--for=jsonpath={."+field+"}="+tc.value, "--timeout=20s")
				}
				event := nextEvent(t, watcher)
				if event.Type != watch.Added || !all && event.Object.(*unstructured.Unstructured).GetName() != k.name(1) {
					t.Errorf("the watch shows first %s %s", event.Type, toJSON(event.Object))
				}
				names := func(options metav1.ListOptions) string {
					list, err := client.List(t.Context(), options)
					if err != nil {
						return err.Error()
					}
					var names []string
					for _, item := range list.Items {
						names = append(names, item.GetName())
					}
					return strings.Join(names, " ")
				}
				one, both := k.name(1), k.name(1)+" "+k.name(2)
				selects, remains := one, k.name(2)
				if all {
					selects, remains = both, ""
				}
				if have := names(metav1.ListOptions{FieldSelector: selector}); have != selects {
					t.Errorf("%s lists %q", selector, have)
				}
				if have := names(metav1.ListOptions{FieldSelector: field + "!=" + tc.value}); have != remains {
					t.Errorf("%s!=%s lists %q", field, tc.value, have)
				}
				if have := env.MustKubectl(t, "", "get", k.full(), "-n", namespace, "--field-selector", selector, "-o", "name"); strings.Count(have, "\n") != len(strings.Fields(selects)) {
					t.Errorf("kubectl lists %q", have)
				}
				if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: field + "=nothing"}); err != nil {
					t.Error(err)
				}
				if have := names(metav1.ListOptions{}); have != both {
					t.Errorf("after a deletecollection that selects nothing there is %q", have)
				}
				if field == "spec.approved" {
					// The delete guard is in the way of the approved one: the others it is that go.
					selector, remains = "spec.approved=false", one
				}
				if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector}); err != nil {
					t.Error(err)
				}
				if have := names(metav1.ListOptions{}); have != remains {
					t.Errorf("after a deletecollection of %s there is %q", selector, have)
				}
			})
		}
	}
}

func nextEvent(t testing.TB, watcher watch.Interface) watch.Event {
	t.Helper()
	select {
	case event := <-watcher.ResultChan():
		return event
	case <-time.After(10 * time.Second):
		t.Fatal("the watch shows nothing")
		return watch.Event{}
	}
}

// beat makes a simulation Controller and keeps it alive until the test ends.
func beat(t *testing.T, namespace, name string) {
	t.Helper()
	k := kindOf("Controller")
	controller := k.object(namespace, name, fields{"simulation": true, "heartbeat": "External"})
	delete(controller.Object["spec"].(fields), "nodeName")
	create(t, k, controller)
	now := nested(metav1.Now().UTC().Format(time.RFC3339), "status", "lastAlive")
	if _, err := objects(t, k, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(now), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// Req: A-08 (C10)
func TestAnUndeclaredFieldSelectsNothingAndIsRefused(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		create(t, k, k.object(namespace, k.name(1)))
		client := objects(t, k, namespace)
		for _, field := range []string{"spec.nonsense", "metadata.uid", "status.observedGeneration"} {
			options := metav1.ListOptions{FieldSelector: field + "=x"}
			_, listed := client.List(t.Context(), options)
			_, watched := client.Watch(t.Context(), options)
			deleted := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, options)
			for verb, err := range map[string]error{"list": listed, "watch": watched, "deletecollection": deleted} {
				if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), field) {
					t.Errorf("%s by %s: %v", verb, field, err)
				}
			}
		}
		get(t, k, namespace, k.name(1))
	})
}

// Req: A-08, T-13
func TestKubectlShowsWhoApproved(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	machine := m.approved(t)
	harness.Eventually(t, 5*time.Second, func() string {
		output := env.MustKubectl(t, "", "get", "tm", machine.Name, "-n", m.namespace, "-o", "wide")
		if user := machine.Status.Approval.User; user == "" || !strings.Contains(output, user) {
			return output
		}
		return ""
	})
}
