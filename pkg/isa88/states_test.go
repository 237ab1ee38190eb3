package isa88

import (
	"slices"
	"strings"
	"testing"
)

// expected is the whole machine, written out by hand and not taken from the code. A cell is where the command leads; "–" is
// nowhere, "no-op" is allowed and changes nothing. The column SC is where the state goes when it is complete.
const expected = `
state       START    PAUSE    RESUME   HOLD     RESTART     STOP      ABORT     RESET      SC
Idle        Running  –        –        –        –           –         –         –          –
Running     –        Pausing  –        Holding  –           Stopping  Aborting  –          Completing
Pausing     –        –        –        Holding  –           Stopping  Aborting  –          Paused
Paused      –        –        Running  Holding  –           Stopping  Aborting  –          –
Holding     –        –        –        no-op    –           Stopping  Aborting  –          Held
Held        –        –        –        no-op    Restarting  Stopping  Aborting  –          –
Restarting  –        –        –        Holding  –           Stopping  Aborting  –          Running
Completing  –        –        –        –        –           Stopping  Aborting  –          Complete
Complete    –        –        –        –        –           –         –         Resetting  –
Stopping    –        –        –        –        –           no-op     Aborting  –          Stopped
Stopped     –        –        –        –        –           –         Aborting  Resetting  –
Aborting    –        –        –        –        –           –         no-op     –          Aborted
Aborted     –        –        –        –        –           –         –         Resetting  –
Resetting   –        –        –        –        –           –         –         –          Idle
`

// Req: P-16
func TestEveryCellOfTheTable(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(expected), "\n")
	commands := strings.Fields(lines[0])[1:9]
	cells, completions := 0, 0
	var states []State
	for _, line := range lines[1:] {
		row := strings.Fields(line)
		state := State(row[0])
		states = append(states, state)
		for i, name := range commands {
			want, wantOK := State(row[1+i]), row[1+i] != "–"
			switch {
			case !wantOK:
				want = ""
			case want == "no-op":
				want = state
			}
			cells++
			if got, ok := Next(state, Command(name)); got != want || ok != wantOK {
				t.Errorf("%s in %s leads to %q, %v; want %q, %v", name, state, got, ok, want, wantOK)
			}
			if listed := slices.Contains(Allowed(state), Command(name)); listed != wantOK {
				t.Errorf("%s in %s is listed as allowed: %v", name, state, listed)
			}
		}
		want, wantOK := State(row[9]), row[9] != "–"
		if !wantOK {
			want = ""
		} else {
			completions++
		}
		if got, ok := Completed(state); got != want || ok != wantOK {
			t.Errorf("%s completes to %q, %v; want %q, %v", state, got, ok, want, wantOK)
		}
	}
	// 13 states and Resetting, which allows nothing.
	if cells != 14*8 || completions != 8 {
		t.Errorf("%d cells and %d completions were looked at", cells, completions)
	}
	if !slices.Equal(states, States()) {
		t.Errorf("the states are %v", States())
	}
	var all []string
	for _, c := range Commands() {
		all = append(all, string(c))
	}
	if !slices.Equal(all, commands) {
		t.Errorf("the commands are %v", all)
	}
}

// Req: P-16, P-16a, P-16b
func TestWhatAStateMeans(t *testing.T) {
	for _, tc := range []struct {
		state                       State
		holdable, active, transient bool
	}{
		{state: Idle},
		{state: Running, holdable: true, active: true},
		{state: Pausing, holdable: true, active: true, transient: true},
		{state: Paused, holdable: true, active: true},
		{state: Holding, active: true, transient: true},
		{state: Held, active: true},
		{state: Restarting, holdable: true, active: true, transient: true},
		{state: Completing, active: true, transient: true},
		{state: Complete},
		{state: Stopping, active: true, transient: true},
		{state: Stopped},
		{state: Aborting, active: true, transient: true},
		{state: Aborted},
		{state: Resetting, active: true, transient: true},
		{state: "Unheard", active: true},
	} {
		if got := Holdable(tc.state); got != tc.holdable {
			t.Errorf("%s is holdable: %v", tc.state, got)
		}
		if got := Active(tc.state); got != tc.active {
			t.Errorf("%s is active: %v", tc.state, got)
		}
		if got := Transient(tc.state); got != tc.transient {
			t.Errorf("%s is transient: %v", tc.state, got)
		}
	}
}

// Every way into Running passes a command that leads there.
//
// Req: P-16
func TestOnlyThreeCommandsLeadToRunning(t *testing.T) {
	for _, state := range States() {
		for _, command := range Commands() {
			next, ok := Next(state, command)
			leads := ok && next != state && (next == Running || next == Restarting)
			if want := command == Start && state == Idle || command == Resume && state == Paused || command == Restart && state == Held; leads != want {
				t.Errorf("%s in %s leads to %s", command, state, next)
			}
		}
		if next, ok := Completed(state); ok && (next == Running) != (state == Restarting) {
			t.Errorf("%s completes to %s", state, next)
		}
	}
}

func TestWhatNobodyKnowsIsRefused(t *testing.T) {
	if next, ok := Next("Unheard", Start); ok || next != "" {
		t.Errorf("a state that is not known starts: %s", next)
	}
	if next, ok := Next(Idle, "AUTOMATIC"); ok || next != "" {
		t.Errorf("a mode is taken for a command: %s", next)
	}
	if got := Allowed("Unheard"); len(got) != 0 {
		t.Errorf("a state that is not known allows %v", got)
	}
}
