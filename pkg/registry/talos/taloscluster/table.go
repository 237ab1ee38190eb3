package taloscluster

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type table = object.Table[*talos.TalosCluster]

// newTable returns what kubectl get shows of TalosClusters.
func newTable(clock clock.PassiveClock) table {
	table := table{Clock: clock}
	table.Columns = []object.Column[*talos.TalosCluster]{
		{Name: "Endpoint", Description: "Kubernetes API of the cluster.", Cell: func(c *talos.TalosCluster) any { return c.Spec.ControlPlaneEndpoint }},
		{Name: "Machines", Description: "Number of machines.", Type: "integer", Cell: func(c *talos.TalosCluster) any { return int64(c.Status.Machines.Total) }},
		{Name: "Pending", Description: "Machines that wait for approval.", Type: "integer", Cell: func(c *talos.TalosCluster) any { return int64(c.Status.Machines.Pending) }},
		{Name: "Running", Description: "Machines that run.", Type: "integer", Cell: func(c *talos.TalosCluster) any { return int64(c.Status.Machines.Running) }},
		{Name: "Failed", Description: "Machines that failed.", Type: "integer", Cell: func(c *talos.TalosCluster) any { return int64(c.Status.Machines.Failed) }},
		{Name: "Reason", Description: "What the cluster waits for, or what is wrong with it.", Cell: func(c *talos.TalosCluster) any { return reason(c) }},
		{Name: "Sweep", Description: "Time since the last sweep ended, or how far the running one is.", Cell: func(c *talos.TalosCluster) any { return sweep(table, c) }},
		{Name: "Answered", Description: "Addresses that answered in the last sweep.", Cell: func(c *talos.TalosCluster) any { return answered(c) }},
		{Name: "Talos", Description: "Talos version that configuration is generated for.", Wide: true, Cell: func(c *talos.TalosCluster) any { return c.Spec.TalosVersion }},
		{Name: "Kubernetes", Description: "Kubernetes version.", Wide: true, Cell: func(c *talos.TalosCluster) any { return c.Spec.KubernetesVersion }},
		{Name: "Weak", Description: "Machines without a full identity.", Wide: true, Cell: func(c *talos.TalosCluster) any {
			return findings(c, func(d *talos.DiscoveryStatus) int { return len(d.Weak) })
		}},
		{Name: "Collisions", Description: "Machines whose identity is, in part, that of another.", Wide: true, Cell: func(c *talos.TalosCluster) any {
			return findings(c, func(d *talos.DiscoveryStatus) int { return len(d.Collisions) })
		}},
		{Name: "Paused", Description: "Whether everything is stopped.", Wide: true, Cell: func(c *talos.TalosCluster) any { return strconv.FormatBool(c.Spec.Paused) }},
	}
	return table
}

// reason is the first of what an operator has to know of the cluster itself, in the order in which it stops the machines.
func reason(c *talos.TalosCluster) string {
	if c.Spec.Paused {
		return "Paused"
	}
	for _, kind := range []string{"BundleReady", "DiscoveryReady", "Bootstrapped"} {
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		// That no ranges are declared is how a cluster begins, and stays for those who register machines by hand.
		if condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason != "NoRanges" {
			return condition.Reason
		}
	}
	return ""
}

func sweep(table table, c *talos.TalosCluster) string {
	discovery := c.Status.Discovery
	switch {
	case discovery == nil:
		return ""
	case discovery.CompletedAt != nil:
		return table.Since(*discovery.CompletedAt)
	case discovery.StartedAt != nil:
		return fmt.Sprintf("%d/%d", discovery.Asked, discovery.Candidates)
	}
	return ""
}

func answered(c *talos.TalosCluster) string {
	if c.Status.Discovery == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", c.Status.Discovery.Answered, c.Status.Discovery.Candidates)
}

func findings(c *talos.TalosCluster, count func(*talos.DiscoveryStatus) int) string {
	if c.Status.Discovery == nil {
		return ""
	}
	return strconv.Itoa(count(c.Status.Discovery))
}
