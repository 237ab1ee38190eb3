package deploy

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	physicalGroup = "physical.fieldplane.dev"
	talosGroup    = "talos.fieldplane.dev"
)

// right is something that a rule may grant; resource may carry a subresource.
type right struct {
	group, resource string
	verbs           []string
}

// readSecrets is what no ClusterRole may grant without resourceNames: a
// ClusterRole bound once reads every namespace.
func readSecrets() right {
	return right{group: "", resource: "secrets", verbs: []string{"get", "list", "watch"}}
}

// neverAggregated is what starts machines or moves plant. Aggregated into view,
// edit or admin it would come with a namespace that somebody was given for
// quite another reason.
func neverAggregated() []right {
	write := []string{"create", "update", "patch", "delete"}
	all := append([]string{"get", "list", "watch", "approve", "override"}, write...)
	return []right{
		{group: talosGroup, resource: "talosmachines", verbs: []string{"approve"}},
		{group: talosGroup, resource: "talosmachines/approval", verbs: append([]string{"approve"}, write...)},
		{group: talosGroup, resource: "talosmachines/endpoint", verbs: all},
		{group: talosGroup, resource: "talosmachines/config", verbs: all},
		{group: talosGroup, resource: "talosmachines/reboot", verbs: all},
		{group: talosGroup, resource: "talosclusters/discover", verbs: all},
		{group: physicalGroup, resource: "units", verbs: []string{"override"}},
		{group: physicalGroup, resource: "units/command", verbs: all},
		{group: physicalGroup, resource: "units/tags", verbs: write},
		// The servers' own controllers write these alone, whoever asks.
		{group: physicalGroup, resource: "units/status", verbs: write},
		{group: physicalGroup, resource: "iomodules/status", verbs: write},
		{group: talosGroup, resource: "talosclusters/status", verbs: write},
		{group: talosGroup, resource: "talosmachines/status", verbs: write},
	}
}

// foreignRoles are the roles of the cluster that the manifests may bind.
func foreignRoles() []string {
	return []string{"ClusterRole/system:auth-delegator", "Role/extension-apiserver-authentication-reader"}
}

// Violations says which of the shipped roles grant what A-10 forbids: one line
// each, with the role and the verbs.
func Violations(objects []runtime.Object) []string {
	var found []string
	own := map[string]bool{}
	for _, object := range objects {
		switch role := object.(type) {
		case *rbacv1.Role:
			own["Role/"+role.Name] = true
		case *rbacv1.ClusterRole:
			own["ClusterRole/"+role.Name] = true
			found = append(found, clusterRoleViolations(role)...)
		}
	}
	for _, object := range objects {
		var name string
		var ref rbacv1.RoleRef
		switch binding := object.(type) {
		case *rbacv1.RoleBinding:
			name, ref = "RoleBinding "+binding.Name, binding.RoleRef
		case *rbacv1.ClusterRoleBinding:
			name, ref = "ClusterRoleBinding "+binding.Name, binding.RoleRef
		default:
			continue
		}
		if key := ref.Kind + "/" + ref.Name; !own[key] && !slices.Contains(foreignRoles(), key) {
			found = append(found, fmt.Sprintf("%s binds %s, which is not among the shipped roles", name, key))
		}
	}
	return found
}

func clusterRoleViolations(role *rbacv1.ClusterRole) []string {
	var found []string
	if role.AggregationRule != nil {
		found = append(found, fmt.Sprintf("ClusterRole %s is filled in by the cluster: what it grants cannot be told here", role.Name))
	}
	var aggregated []string
	for label, value := range role.Labels {
		if to, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok && value == "true" {
			aggregated = append(aggregated, to)
		}
	}
	slices.Sort(aggregated)
	for _, rule := range role.Rules {
		secrets := readSecrets()
		if verbs := granted(rule, secrets); len(verbs) > 0 && len(rule.ResourceNames) == 0 {
			found = append(found, fmt.Sprintf("ClusterRole %s grants %s on secrets without resourceNames", role.Name, strings.Join(verbs, ", ")))
		}
		if len(aggregated) == 0 {
			continue
		}
		for _, right := range neverAggregated() {
			if verbs := granted(rule, right); len(verbs) > 0 {
				found = append(found, fmt.Sprintf("ClusterRole %s grants %s on %s and is aggregated into %s",
					role.Name, strings.Join(verbs, ", "), right.resource, strings.Join(aggregated, ", ")))
			}
		}
	}
	return found
}

// granted returns which of the right's verbs the rule grants.
func granted(rule rbacv1.PolicyRule, right right) []string {
	var verbs []string
	for _, verb := range right.verbs {
		if Grants(rule, right.group, right.resource, verb) {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// Grants tells whether the rule grants the verb on the resource, which may
// carry a subresource, by the rules of the RBAC authorizer: "*" stands for
// every group, verb, or resource with its subresources, and "*/sub" for that
// subresource of everything. It leaves resourceNames to the caller.
func Grants(rule rbacv1.PolicyRule, group, resource, verb string) bool {
	_, subresource, isSub := strings.Cut(resource, "/")
	return matches(rule.APIGroups, group) && matches(rule.Verbs, verb) &&
		(matches(rule.Resources, resource) || isSub && slices.Contains(rule.Resources, "*/"+subresource))
}

func matches(list []string, wanted string) bool {
	return slices.Contains(list, wanted) || slices.Contains(list, rbacv1.ResourceAll)
}
