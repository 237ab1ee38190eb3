package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const shipped = "../../artifacts/deploy"

func render(t *testing.T, name string) []runtime.Object {
	t.Helper()
	objects, err := Render(filepath.Join(shipped, name))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// Req: A-10
func TestShippedRBACIsMinimal(t *testing.T) {
	dirs, err := Kustomizations(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, dir := range dirs {
		names = append(names, filepath.Base(dir))
	}
	for _, name := range []string{"base", "ha", "local"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no kustomization %s", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			objects := render(t, name)
			roles := 0
			for _, object := range objects {
				if _, ok := object.(*rbacv1.ClusterRole); ok {
					roles++
				}
			}
			if roles == 0 {
				t.Error("no ClusterRole: nothing was looked at")
			}
			for _, violation := range Violations(objects) {
				t.Error(violation)
			}
		})
	}
}

// Who may do what with machines, by the shipped roles: the whole of it.
//
// Req: A-10, T-13
func TestWhatTheRolesForMachinesGrant(t *testing.T) {
	objects := render(t, "base")
	type granted map[string]string
	reads := "get list watch"
	for role, want := range map[string]granted{
		"fieldplane-approver":       {"talosclusters": reads, "talosmachines": reads, "talosmachines/approval": "get update patch approve"},
		"fieldplane-talos-operator": {"talosclusters": reads, "talosmachines": reads, "talosclusters/discover": "create", "talosmachines/reboot": "create", "talosmachines/config": "get"},
	} {
		have := granted{}
		for _, rule := range find[rbacv1.ClusterRole](t, objects, role).Rules {
			if !slices.Equal(rule.APIGroups, []string{talosGroup}) || len(rule.ResourceNames) > 0 {
				t.Errorf("%s: %+v", role, rule)
			}
			for _, resource := range rule.Resources {
				have[resource] = strings.Join(rule.Verbs, " ")
			}
		}
		if !maps.Equal(have, want) {
			t.Errorf("%s grants %v, not %v", role, have, want)
		}
	}
}

// Who may do what with Units, by the shipped roles: the whole of it.
//
// Req: A-10, P-16a, P-16c
func TestWhatTheRolesForUnitsGrant(t *testing.T) {
	objects := render(t, "base")
	type granted map[string]string
	reads := "get list watch"
	for role, want := range map[string]granted{
		"fieldplane-unit-operator": {
			"controllers": reads, "controlmodules": reads, "iomodules": reads, "units": reads,
			"units/command": "create", "units/tags": "get watch update",
		},
		"fieldplane-unit-override": {"units/command": "override"},
	} {
		have := granted{}
		for _, rule := range find[rbacv1.ClusterRole](t, objects, role).Rules {
			if !slices.Equal(rule.APIGroups, []string{physicalGroup}) || len(rule.ResourceNames) > 0 {
				t.Errorf("%s: %+v", role, rule)
			}
			for _, resource := range rule.Resources {
				have[resource] = strings.Join(rule.Verbs, " ")
			}
		}
		if !maps.Equal(have, want) {
			t.Errorf("%s grants %v, not %v", role, have, want)
		}
	}
}

// What the first test would say if the manifests were not as they are.
//
// Req: A-10
func TestAWiderManifestIsNoticed(t *testing.T) {
	rule := func(groups, resources, verbs string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: strings.Split(groups, " "), Resources: strings.Split(resources, " "), Verbs: strings.Split(verbs, " "), ResourceNames: names}
	}
	const server, edit, view, approver = "fieldplane-apiserver", "fieldplane-edit", "fieldplane-view", "fieldplane-approver"
	for _, tc := range []struct {
		name string
		role string
		add  rbacv1.PolicyRule
		want string
	}{
		{name: "get on every Secret", role: server, add: rule("", "secrets", "get"), want: "ClusterRole fieldplane-apiserver grants get on secrets without resourceNames"},
		{name: "list and watch beside an innocent resource", role: server, add: rule(" apps", "configmaps secrets", "list watch create"), want: "ClusterRole fieldplane-apiserver grants list, watch on secrets"},
		{name: "any verb", role: server, add: rule("", "secrets", "*"), want: "grants get, list, watch on secrets"},
		{name: "any resource", role: server, add: rule("", "*", "get"), want: "grants get on secrets"},
		{name: "any group", role: server, add: rule("*", "secrets", "watch"), want: "grants watch on secrets"},
		{name: "everything", role: server, add: rule("*", "*", "*"), want: "grants get, list, watch on secrets"},
		{name: "Secrets through a user's role", role: view, add: rule("", "secrets", "list"), want: "ClusterRole fieldplane-view grants list on secrets"},
		{name: "a named Secret is fine", role: server, add: rule("", "secrets", "get list watch", "fieldplane-tls")},
		{name: "creating Secrets is fine", role: server, add: rule("", "secrets", "create update")},
		{name: "another group's secrets are fine", role: server, add: rule("example.dev", "secrets", "get")},

		{name: "approve for editors", role: edit, add: rule(talosGroup, "talosmachines/approval", "update approve"),
			want: "ClusterRole fieldplane-edit grants approve, update on talosmachines/approval and is aggregated into admin, edit"},
		{name: "approval without the verb for editors", role: edit, add: rule(talosGroup, "talosmachines/approval", "patch"), want: "grants patch on talosmachines/approval"},
		{name: "any verb on machines for editors", role: edit, add: rule(talosGroup, "talosmachines", "*"), want: "grants approve on talosmachines"},
		{name: "endpoint for editors", role: edit, add: rule(talosGroup, "talosmachines/endpoint", "update"), want: "grants update on talosmachines/endpoint"},
		{name: "rendered configuration for viewers", role: view, add: rule(talosGroup, "talosmachines/config", "get"), want: "ClusterRole fieldplane-view grants get on talosmachines/config and is aggregated into admin, edit, view"},
		{name: "sweeps for editors", role: edit, add: rule(talosGroup, "talosclusters/discover", "create"), want: "grants create on talosclusters/discover"},
		{name: "reboots for editors", role: edit, add: rule(talosGroup, "talosmachines/reboot", "create"), want: "grants create on talosmachines/reboot"},
		{name: "a machine's status for editors", role: edit, add: rule(talosGroup, "talosmachines/status", "update"), want: "grants update on talosmachines/status"},
		{name: "a cluster's status for editors", role: edit, add: rule(talosGroup, "talosclusters/status", "patch"), want: "grants patch on talosclusters/status"},
		{name: "commands for editors", role: edit, add: rule(physicalGroup, "units/command", "create"), want: "grants create on units/command"},
		{name: "override for editors", role: edit, add: rule(physicalGroup, "units/command", "override"), want: "grants override on units/command"},
		{name: "writing tags for editors", role: edit, add: rule(physicalGroup, "units/tags", "get update"), want: "grants update on units/tags"},
		{name: "a subresource of everything", role: edit, add: rule("*", "*/command", "create"), want: "grants create on units/command"},
		{name: "everything of a group for editors", role: edit, add: rule(talosGroup, "*", "*"), want: "talosmachines/config"},
		{name: "a Unit's status for editors", role: edit, add: rule(physicalGroup, "units/status", "patch"), want: "grants patch on units/status"},
		{name: "reading tags is fine for viewers", role: view, add: rule(physicalGroup, "units/tags", "get watch")},
		{name: "approve is fine in a role that is not aggregated", role: approver, add: rule(talosGroup, "talosmachines/approval", "approve")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := render(t, "base")
			role := find[rbacv1.ClusterRole](t, objects, tc.role)
			role.Rules = append(role.Rules, tc.add)
			got := Violations(objects)
			if tc.want == "" {
				if len(got) > 0 {
					t.Errorf("want no violation, got %q", got)
				}
				return
			}
			if !slices.ContainsFunc(got, func(violation string) bool { return strings.Contains(violation, tc.want) }) {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}

	t.Run("the approver's role made aggregated", func(t *testing.T) {
		objects := render(t, "base")
		role := find[rbacv1.ClusterRole](t, objects, approver)
		metav1.SetMetaDataLabel(&role.ObjectMeta, "rbac.authorization.k8s.io/aggregate-to-admin", "true")
		if got := strings.Join(Violations(objects), "\n"); !strings.Contains(got, "ClusterRole fieldplane-approver grants approve, update, patch on talosmachines/approval and is aggregated into admin") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a role that the cluster fills in", func(t *testing.T) {
		objects := render(t, "base")
		role := find[rbacv1.ClusterRole](t, objects, server)
		role.AggregationRule = &rbacv1.AggregationRule{}
		if got := Violations(objects); len(got) != 1 || !strings.Contains(got[0], "is filled in by the cluster") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a binding to cluster-admin", func(t *testing.T) {
		objects := render(t, "base")
		binding := find[rbacv1.ClusterRoleBinding](t, objects, server)
		binding.RoleRef.Name = "cluster-admin"
		if got := Violations(objects); len(got) != 1 || !strings.Contains(got[0], "ClusterRoleBinding fieldplane-apiserver binds ClusterRole/cluster-admin") {
			t.Errorf("got %q", got)
		}
	})
}
