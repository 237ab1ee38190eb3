// Package isa88 is the procedural state machine of an ISA-88 unit: its states, its commands, and which of them leads
// where, as one table. It decides nothing about health, time or permission, and imports nothing of Kubernetes.
//
// Restarting is what PackML calls Unholding. STOP from Completing, and Pausing to Paused when the pause is complete, are
// additions to the public rules.
package isa88

import "slices"

// State is a state of the machine; the names are those of physical.fieldplane.dev.
type State string

// The states. Those whose names end in -ing, Running excepted, are transient: each ends by itself when what it does is done.
const (
	Idle       State = "Idle"
	Running    State = "Running"
	Pausing    State = "Pausing"
	Paused     State = "Paused"
	Holding    State = "Holding"
	Held       State = "Held"
	Restarting State = "Restarting"
	Completing State = "Completing"
	Complete   State = "Complete"
	Stopping   State = "Stopping"
	Stopped    State = "Stopped"
	Aborting   State = "Aborting"
	Aborted    State = "Aborted"
	Resetting  State = "Resetting"
)

// Command is what an operator, or the system itself, asks of the machine.
type Command string

// The commands.
const (
	Start   Command = "START"
	Pause   Command = "PAUSE"
	Resume  Command = "RESUME"
	Hold    Command = "HOLD"
	Restart Command = "RESTART"
	Stop    Command = "STOP"
	Abort   Command = "ABORT"
	Reset   Command = "RESET"
)

// Mode is the mode of equipment. It says who decides what the equipment does, the control logic or the operator, and
// changes nothing about which command is allowed or what holds a unit.
type Mode string

// The modes of equipment.
const (
	Automatic Mode = "Automatic"
	Manual    Mode = "Manual"
)

// row is what a state answers to each command, and where it goes when it is complete; "" is nowhere. A command that
// leads to the state itself is allowed and does nothing.
type row struct {
	state    State
	commands map[Command]State
	// complete is where the state goes when what it does is done; "" for a state that does not end by itself.
	complete State
}

// table is the whole machine, in the order of docs/design.md. Nobody changes it.
var table = []row{
	{Idle, map[Command]State{Start: Running}, ""},
	{Running, map[Command]State{Pause: Pausing, Hold: Holding, Stop: Stopping, Abort: Aborting}, Completing},
	{Pausing, map[Command]State{Hold: Holding, Stop: Stopping, Abort: Aborting}, Paused},
	{Paused, map[Command]State{Resume: Running, Hold: Holding, Stop: Stopping, Abort: Aborting}, ""},
	{Holding, map[Command]State{Hold: Holding, Stop: Stopping, Abort: Aborting}, Held},
	{Held, map[Command]State{Hold: Held, Restart: Restarting, Stop: Stopping, Abort: Aborting}, ""},
	{Restarting, map[Command]State{Hold: Holding, Stop: Stopping, Abort: Aborting}, Running},
	{Completing, map[Command]State{Stop: Stopping, Abort: Aborting}, Complete},
	{Complete, map[Command]State{Reset: Resetting}, ""},
	{Stopping, map[Command]State{Stop: Stopping, Abort: Aborting}, Stopped},
	{Stopped, map[Command]State{Abort: Aborting, Reset: Resetting}, ""},
	{Aborting, map[Command]State{Abort: Aborting}, Aborted},
	{Aborted, map[Command]State{Reset: Resetting}, ""},
	{Resetting, nil, Idle},
}

// States are all states, in the order of the table.
func States() []State {
	var states []State
	for _, r := range table {
		states = append(states, r.state)
	}
	return states
}

// Commands are all commands, in the order of the table.
func Commands() []Command {
	return []Command{Start, Pause, Resume, Hold, Restart, Stop, Abort, Reset}
}

func find(s State) row {
	for _, r := range table {
		if r.state == s {
			return r
		}
	}
	return row{state: s}
}

// Next is the state to which a command leads; false when it is not allowed. The state itself means that the command is
// allowed and does nothing.
func Next(s State, c Command) (State, bool) {
	next, ok := find(s).commands[c]
	return next, ok
}

// Completed is the state to which a state goes when it is complete; false for one that does not end by itself.
func Completed(s State) (State, bool) {
	next := find(s).complete
	return next, next != ""
}

// Allowed are the commands that a state allows, in the order of Commands.
func Allowed(s State) []Command {
	allowed := find(s).commands
	return slices.DeleteFunc(Commands(), func(c Command) bool { _, ok := allowed[c]; return !ok })
}

// Transient tells whether a state ends by itself and should not last: its watchdog alarms, and never acts (P-16b).
func Transient(s State) bool {
	_, ends := Completed(s)
	return ends && s != Running
}

// Active tells whether a unit in this state is doing something that it could be held in or is held: then nothing may
// disarm it (P-16a). A state that nobody knows is active.
func Active(s State) bool {
	switch s {
	case Idle, Complete, Stopped, Aborted:
		return false
	default:
		return true
	}
}

// Holdable tells whether a fault holds a unit in this state (P-16): those from which HOLD leads to Holding, apart from
// Holding and Held themselves.
func Holdable(s State) bool {
	next, ok := Next(s, Hold)
	return ok && next == Holding && s != Holding
}
