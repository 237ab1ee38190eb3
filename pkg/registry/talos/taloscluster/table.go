package taloscluster

import (
	"fmt"
	"strconv"

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
		{Name: "Sweep", Description: "Time since the last sweep ended.", Cell: func(c *talos.TalosCluster) any { return sweep(table, c) }},
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

func sweep(table table, c *talos.TalosCluster) string {
	if c.Status.Discovery == nil || c.Status.Discovery.CompletedAt == nil {
		return ""
	}
	return table.Since(*c.Status.Discovery.CompletedAt)
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
