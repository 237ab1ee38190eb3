package app

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// parseMachine reads "machine UUID" and "machine/UUID", the arguments of a command about one machine.
func parseMachine(command string, args []string) (string, error) {
	form := "Write: kubectl fieldplane " + command + " machine UUID. See what waits: kubectl fieldplane pending"
	kind, name := "", ""
	switch len(args) {
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		kind, name = args[0], args[1]
	case 0:
		return "", told("which machine is not said", form)
	default:
		return "", told(fmt.Sprintf("%s takes one machine at a time, and there are %d arguments", command, len(args)), form)
	}
	switch resource, group, _ := strings.Cut(strings.ToLower(kind), "."); {
	case group != "" && group != v1alpha1.GroupName:
		return "", told(fmt.Sprintf("%s takes a machine, and %q is none", command, kind), form)
	case resource != "machine" && resource != "machines" && resource != "talosmachine" && resource != "talosmachines" && resource != "tm":
		return "", told(fmt.Sprintf("%s takes a machine, and %q is none", command, kind), form)
	case name == "":
		return "", told("which machine is not said", form)
	}
	// Machines are named by the lower-case form; firmware screens show the other.
	name = strings.ToLower(name)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", told(fmt.Sprintf("%q is not the name of a machine", name), form)
	}
	return name, nil
}

// parseCluster reads "CLUSTER" and "cluster/CLUSTER", the argument of a command about one cluster.
func parseCluster(command string, args []string) (string, error) {
	form := "Write: kubectl fieldplane " + command + " CLUSTER. See which there are: kubectl get talosclusters -A"
	switch len(args) {
	case 1:
	case 0:
		return "", told("which cluster is not said", form)
	default:
		return "", told(fmt.Sprintf("%s takes one cluster at a time, and there are %d arguments", command, len(args)), form)
	}
	kind, name, ok := strings.Cut(args[0], "/")
	if !ok {
		kind, name = "cluster", args[0]
	}
	resource, group, _ := strings.Cut(strings.ToLower(kind), ".")
	if group != "" && group != v1alpha1.GroupName || resource != "cluster" && resource != "taloscluster" && resource != "talosclusters" && resource != "tc" {
		return "", told(fmt.Sprintf("%s takes a TalosCluster, and %q is none", command, kind), form)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", told(fmt.Sprintf("%q is not the name of a TalosCluster", name), form)
	}
	return name, nil
}

func (t target) getMachine(ctx context.Context, name string) (*v1alpha1.TalosMachine, error) {
	machine, err := t.client.TalosV1alpha1().TalosMachines(t.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, attempt{to: "read the machine", namespace: t.namespace, machine: name}.explain(err)
	}
	return machine, nil
}

func (t target) getCluster(ctx context.Context, name string) (*v1alpha1.TalosCluster, error) {
	cluster, err := t.client.TalosV1alpha1().TalosClusters(t.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, attempt{to: "read the cluster", namespace: t.namespace, cluster: name}.explain(err)
	}
	return cluster, nil
}

// updateApproval writes the approval of a machine, against the resourceVersion that it carries (T-13).
func (t target) updateApproval(ctx context.Context, to string, machine *v1alpha1.TalosMachine, options metav1.UpdateOptions) (*v1alpha1.TalosMachine, error) {
	stored, err := t.client.TalosV1alpha1().TalosMachines(t.namespace).UpdateApproval(ctx, machine.Name, machine, options)
	if err != nil {
		return nil, attempt{to: to, namespace: t.namespace, machine: machine.Name, writes: true, needs: approveRight()}.explain(err)
	}
	return stored, nil
}

func resourceName(machine string) string {
	return "talosmachine." + v1alpha1.GroupName + "/" + machine
}
