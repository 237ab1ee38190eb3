package controller

import (
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type table = object.Table[*physical.Controller]

// newTable returns what kubectl get shows of Controllers.
func newTable(clock clock.PassiveClock) table {
	table := table{Clock: clock}
	table.Columns = []object.Column[*physical.Controller]{
		{Name: "Phase", Description: "AwaitingNode, Ready, NotReady or Simulated.", Cell: func(c *physical.Controller) any { return string(c.Status.Phase) }},
		{Name: "Node", Description: "Node that the Controller is.", Cell: func(c *physical.Controller) any { return c.Status.NodeName }},
		{Name: "Heartbeat", Description: "Who keeps a simulation Controller alive.", Wide: true, Cell: func(c *physical.Controller) any { return string(c.Spec.Heartbeat) }},
		{Name: "Last Alive", Description: "Time since a simulation Controller gave a sign of life.", Wide: true, Cell: func(c *physical.Controller) any { return lastAlive(table, c) }},
	}
	return table
}

func lastAlive(table table, c *physical.Controller) string {
	if c.Status.LastAlive == nil {
		return ""
	}
	return table.Since(*c.Status.LastAlive)
}
