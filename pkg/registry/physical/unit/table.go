package unit

import (
	"fmt"

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
		{Name: "Since", Description: "Time since the last change of state.", Cell: func(u *physical.Unit) any { return since(table, u) }},
		{Name: "Mode", Description: "ISA-88 mode.", Cell: func(u *physical.Unit) any { return string(u.Status.Mode) }},
		{Name: "Hold", Description: "Why the Unit is held.", Cell: func(u *physical.Unit) any { return holdCause(u) }},
		{Name: "Modules", Description: "IOModules that hold the Unit.", Wide: true, Cell: func(u *physical.Unit) any { return holdModules(u) }},
		{Name: "Command", Description: "The last command, who sent it, and what became of it.", Wide: true, Cell: func(u *physical.Unit) any { return lastCommand(u) }},
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
	return some(u.Status.Hold.Modules)
}

func lastCommand(u *physical.Unit) string {
	last := u.Status.LastCommand
	if last == nil {
		return ""
	}
	return fmt.Sprintf("%s by %s: %s", last.Command, teller(last.Actor), last.Outcome)
}

func since(table table, u *physical.Unit) any {
	if u.Status.LastTransitionTime == nil {
		return ""
	}
	return table.Since(*u.Status.LastTransitionTime)
}
