package controlmodule

import (
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type table = object.Table[*physical.ControlModule]

// newTable returns what kubectl get shows of ControlModules.
func newTable(clock clock.PassiveClock) table {
	table := table{Clock: clock}
	table.Columns = []object.Column[*physical.ControlModule]{
		{Name: "Unit", Description: "Unit that the module belongs to.", Cell: func(m *physical.ControlModule) any { return m.Spec.UnitRef.Name }},
		{Name: "Tags", Description: "Number of tags.", Type: "integer", Cell: func(m *physical.ControlModule) any { return int64(len(m.Spec.Tags)) }},
	}
	return table
}
