package unit

import (
	"strings"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type table = object.Table[*physical.Unit]

// newTable returns what kubectl get shows of Units.
func newTable(clock clock.PassiveClock) table {
	table := table{Clock: clock}
	table.Columns = []object.Column[*physical.Unit]{
		{Name: "State", Description: "ISA-88 state.", Cell: func(u *physical.Unit) any { return string(u.Status.State) }},
		{Name: "Mode", Description: "ISA-88 mode.", Cell: func(u *physical.Unit) any { return string(u.Status.Mode) }},
		{Name: "Hold", Description: "Why the Unit is held.", Cell: func(u *physical.Unit) any { return holdCause(u) }},
		{Name: "Modules", Description: "IOModules that hold the Unit.", Wide: true, Cell: func(u *physical.Unit) any { return holdModules(u) }},
		{Name: "Runtime", Description: "Pod that runs the Unit.", Wide: true, Cell: func(u *physical.Unit) any { return u.Status.RuntimePodName }},
	}
	return table
}

func holdCause(u *physical.Unit) string {
	if u.Status.Hold == nil {
		return ""
	}
	return string(u.Status.Hold.Cause)
}

func holdModules(u *physical.Unit) string {
	if u.Status.Hold == nil {
		return ""
	}
	return strings.Join(u.Status.Hold.Modules, ",")
}
