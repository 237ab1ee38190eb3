package app

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// Req: P-16, P-16b
func TestWhatStopsAUnitIsSentBeforeAnythingElseIsAskedAndAsksNothing(t *testing.T) {
	for _, test := range []struct {
		name            string
		transient, ends v1alpha1.UnitState
	}{
		{"hold", v1alpha1.UnitHolding, v1alpha1.UnitHeld},
		{"stop", v1alpha1.UnitStopping, v1alpha1.UnitStopped},
		{"abort", v1alpha1.UnitAborting, v1alpha1.UnitAborted},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer(inState(test.transient))).units(done(test.transient), nil, nil)
			s.noTerminal = true
			s.steps = append(s.steps, func() {})
			s.thenUnit(t, inState(test.ends)).run(t, test.name, "mixer", "--reason", " leak ").wantOK(t)
			name := strings.ToUpper(test.name)
			wantText(t, s.out, "unit.physical.fieldplane.dev/mixer: "+name+" is carried out; it is "+string(test.transient)+"\n"+
				"unit.physical.fieldplane.dev/mixer is "+string(test.ends)+"\n")
			wantText(t, s.errOut, "it is "+string(test.transient)+"; waiting for "+string(test.ends)+"\n")
			want := v1alpha1.UnitCommandSpec{ID: "id-1", Command: v1alpha1.UnitCommandName(name), Reason: "leak"}
			if sent := s.commands(); len(sent) != 1 || sent[0] != want || !s.client.Actions()[0].Matches("create", "units/command") {
				t.Errorf("sent %+v, first of all %v", sent, s.client.Actions()[0])
			}
		})
	}
}

// Req: P-16c
func TestWhatSetsAUnitGoingShowsItBefore(t *testing.T) {
	s := newSession(mixer(heldByFault("plc-1", "plc-2", "plc-3", "plc-4"), unitCondition(conditionEquipmentHealthy, metav1.ConditionFalse, "ModuleFault", "plc-1 is Fault\x1b"),
		func(u *v1alpha1.Unit) {
			u.Status.LastCommand = &v1alpha1.UnitCommandRecord{Command: v1alpha1.CommandRestart, Actor: "bob", Time: ago(time.Minute), Outcome: v1alpha1.CommandRefused, Message: "plc-1 is Fault"}
		})).units(done(v1alpha1.UnitRestarting), nil, nil)
	s.noTerminal = true
	s.thenUnit(t, inState(v1alpha1.UnitRestarting)).thenUnit(t, inState(v1alpha1.UnitRunning)).run(t, "restart", "unit/mixer").wantOK(t)
	wantText(t, s.out, `Unit:           mixer
Namespace:      site-a
State:          Held, for 5m
Mode:           Automatic
Held by:        IOModuleFault: plc-1, plc-2, plc-3, plc-4
Was:            Running
Equipment:      ModuleFault plc-1 is Fault`+"\uFFFD"+`
Runtime:        well
Last command:   RESTART of bob, 60s ago: Refused: plc-1 is Fault

unit.physical.fieldplane.dev/mixer: RESTART is carried out; it is Restarting
unit.physical.fieldplane.dev/mixer is Running
`)
	for command, state := range map[string]v1alpha1.UnitState{"start": v1alpha1.UnitRunning, "resume": v1alpha1.UnitRunning, "reset": v1alpha1.UnitIdle} {
		s := newSession(mixer(inState(v1alpha1.UnitStopped))).units(done(state), nil, nil).run(t, command, "mixer").wantOK(t)
		wantContains(t, s.out, "State:       Stopped, for 120m\n", "\n\nunit.physical.fieldplane.dev/mixer: "+strings.ToUpper(command)+" is carried out; it is "+string(state)+"\n")
	}

	s = newSession(mixer(inState(v1alpha1.UnitStopped), unitCondition(conditionRuntimeDeployed, metav1.ConditionFalse, "RuntimeUnschedulable", "no node with zone=z\x1b"))).
		units(done(v1alpha1.UnitIdle), nil, nil).run(t, "reset", "mixer").wantOK(t)
	wantContains(t, s.out, "Runtime's pod:   RuntimeUnschedulable no node with zone=z\uFFFD\n")

	s = newSession(mixer()).units(done(v1alpha1.UnitRunning), nil, nil)
	s.client.PrependReactor("get", "units", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1alpha1.Resource("units"), "mixer", errors.New("no"))
	})
	s.run(t, "start", "mixer").wantOK(t)
	wantContains(t, s.errOut, "Not shown, because you may not read Units: how mixer stands.\n")
	if len(s.commands()) != 1 {
		t.Error("whoever may command, and not read, commands nothing")
	}
}

func TestAModeIsChangedByACommand(t *testing.T) {
	s := newSession(mixer()).units(done(v1alpha1.UnitRunning), nil, nil).run(t, "mode", "mixer", "manual", "--id", "mine").wantOK(t)
	wantText(t, s.out, "unit.physical.fieldplane.dev/mixer is in mode manual now\n")
	if sent := s.commands(); len(sent) != 1 || sent[0] != (v1alpha1.UnitCommandSpec{ID: "mine", Command: v1alpha1.CommandManual}) {
		t.Errorf("sent %+v", sent)
	}
}

func TestACommandsOutputs(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		wants []string
	}{
		{"json", []string{"-o", "json"}, []string{`"kind": "UnitCommand"`, `"outcome": "Done"`, `"state": "Held"`}},
		{"yaml", []string{"-o", "yaml"}, []string{"kind: UnitCommand\n", "state: Held\n"}},
		{"name", []string{"-o", "name"}, []string{"unit.physical.fieldplane.dev/mixer\n"}},
		{"without waiting", []string{"--no-wait", "-o", "yaml"}, []string{"state: Holding\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer(inState(v1alpha1.UnitHolding))).units(done(v1alpha1.UnitHolding), nil, nil)
			s.thenUnit(t, inState(v1alpha1.UnitHeld)).run(t, append([]string{"hold", "mixer"}, test.args...)...).wantOK(t)
			wantContains(t, s.out, test.wants...)
			if strings.Contains(s.out, "carried out") || !strings.Contains(s.errOut, "HOLD is carried out; it is Holding\n") {
				t.Errorf("%s\n%s", s.out, s.errOut)
			}
		})
	}
}

// Req: A-05, P-16c
func TestACommandThatIsRefusedSaysSoInTheServersWords(t *testing.T) {
	group := v1alpha1.Resource("units")
	conflict := apierrors.NewConflict(group, "mixer", errors.New("RESTART is not allowed in state Running; in state Running these are allowed: PAUSE, HOLD\x1b"))
	for _, test := range []struct {
		name   string
		args   []string
		answer error
		what   string
		todo   string
		code   int
	}{
		{"by the state", []string{"restart", "mixer"}, conflict, "the server refuses: Operation cannot be fulfilled on units.physical.fieldplane.dev \"mixer\": RESTART is not allowed in state Running; in state Running these are allowed: PAUSE, HOLD\uFFFD", "Nothing was changed by it.", 1},
		{"there is no such Unit", []string{"hold", "mixer"}, apierrors.NewNotFound(group, "mixer"), "there is no Unit mixer in namespace site-a", "kubectl get units -A", 1},
		{"the right is missing", []string{"hold", "mixer"}, apierrors.NewForbidden(group, "mixer", errors.New("no")), "forbidden", "create on units/command, which the ClusterRole fieldplane-unit-operator has. Check with: kubectl auth can-i create units.physical.fieldplane.dev/mixer --subresource=command -n site-a", 1},
		{"the right to override is missing", []string{"start", "mixer", "--override", "--reason", "r"}, apierrors.NewForbidden(group, "mixer", errors.New("no")), "forbidden", "fieldplane-unit-override", 1},
		{"the server is older", []string{"hold", "mixer"}, apierrors.NewGenericServerResponse(404, "post", group, "mixer", "404 page not found", 0, true), "does not know units/command", "--version", 1},
		{"who are you", []string{"hold", "mixer"}, apierrors.NewUnauthorized("no"), "the server does not know you", "kubectl auth whoami", 1},
		{"it is no command", []string{"hold", "mixer"}, apierrors.NewBadRequest("no"), "the server refuses: no", "Nothing was changed by it.", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer()).units(func(*v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) { return nil, test.answer }, nil, nil)
			s.run(t, test.args...)
			_, text, ok := strings.Cut(s.errOut, "error: ")
			if s.code != test.code || !ok || !strings.Contains(text, test.what) || !strings.Contains(text, test.todo) {
				t.Errorf("code %d, have %q", s.code, s.errOut)
			}
			if sent := s.commands(); len(sent) != 1 {
				t.Errorf("a refusal is sent %d times", len(sent))
			}
		})
	}
}

func TestACommandThatIsWrongIsNotSent(t *testing.T) {
	for _, test := range []struct {
		name       string
		args       []string
		what, todo string
	}{
		{"no Unit", []string{"hold"}, "which Unit is not said", "kubectl get units -A"},
		{"two Units", []string{"hold", "a", "b"}, "hold takes one Unit at a time", "kubectl fieldplane hold UNIT"},
		{"no Unit at all", []string{"hold", "machine/a"}, `"machine" is none`, "kubectl get units -A"},
		{"another group's", []string{"hold", "unit.example.org/a"}, `is none`, "kubectl get units -A"},
		{"no name", []string{"hold", "A_b"}, "is not the name of a Unit", "kubectl get units -A"},
		{"override without a reason", []string{"start", "mixer", "--override", "--reason", " "}, "--override needs --reason", "Add --reason"},
		{"override where nothing refuses", []string{"hold", "mixer", "--override"}, "unknown flag: --override", "hold --help"},
		{"a reason that is too long", []string{"hold", "mixer", "--reason", strings.Repeat("x", 1025)}, "--reason has 1025 bytes", "shorter"},
		{"an id that is too long", []string{"hold", "mixer", "--id", strings.Repeat("x", 129)}, "--id has 129 bytes", "shorter"},
		{"no time", []string{"hold", "mixer", "--timeout", "0s"}, "--timeout 0s is no time to wait", "--no-wait"},
		{"an output that is none", []string{"hold", "mixer", "-o", "wide"}, "-o wide is not possible", "json, yaml or name"},
		{"no mode", []string{"mode", "mixer"}, "which mode is not said", "mode UNIT automatic|manual"},
		{"another mode", []string{"mode", "mixer", "START"}, `there is no mode "START"`, "automatic or manual"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer()).units(done(v1alpha1.UnitHeld), nil, nil)
			s.run(t, test.args...).wantRefused(t, test.what, test.todo)
			if len(s.client.Actions()) > 0 {
				t.Errorf("asked: %v", s.client.Actions())
			}
		})
	}
}

// Req: A-06, P-16c
func TestALostAnswerSendsTheSameCommandAgainAndNeverAnother(t *testing.T) {
	lostAnswer, busy := io.ErrUnexpectedEOF, apierrors.NewTooManyRequests("slowly", 1)
	down := apierrors.NewServiceUnavailable("nobody is there")
	for _, test := range []struct {
		name string
		args []string
		// answers come one after another; the last one again and again.
		answers []error
		// stored is what the Unit remembers of the command.
		stored *v1alpha1.UnitCommandRecord
		sent   int
		code   int
		wants  []string
	}{
		{name: "until there is one", args: []string{"hold", "mixer"}, answers: []error{lostAnswer, down, busy, nil}, sent: 4,
			wants: []string{"No answer yet (unexpected EOF); asking again under the same id, so that it is carried out once.\n", "(nobody is there)"}},
		{name: "unless it never comes", args: []string{"stop", "mixer", "--timeout", "3s"}, answers: []error{lostAnswer}, sent: 6, code: exitUnfinished,
			wants: []string{"error: whether STOP was carried out is not known: the Unit has no record of it after 3s, so that it most likely never reached the server\n", "--id id-1"}},
		{name: "and what sets a Unit going for no longer than the server carries it out", args: []string{"start", "mixer"}, answers: []error{down}, sent: 20, code: exitUnfinished,
			wants: []string{"error: whether START was carried out is not known: the Unit has no record of it after 30s"}},
		{name: "what was stored and not answered is found", args: []string{"start", "mixer"}, answers: []error{down}, stored: recorded(v1alpha1.CommandStart, v1alpha1.CommandDone, ""), sent: 20,
			wants: []string{"START is carried out; it is Running\n"}},
		{name: "and was refused", args: []string{"start", "mixer"}, answers: []error{down}, stored: recorded(v1alpha1.CommandStart, v1alpha1.CommandExpired, "nobody carried it out within 10 s"), sent: 20, code: exitFailed,
			wants: []string{"error: START was not carried out: Expired: nobody carried it out within 10 s\nThe Unit is Running. Allowed now: PAUSE, HOLD, STOP, ABORT."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := test.answers
			s := newSession(mixer(func(u *v1alpha1.Unit) {
				if test.stored != nil {
					u.Status.RecentCommands = []v1alpha1.UnitCommandRecord{{ID: "other"}, *test.stored}
				}
			})).units(func(command *v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) {
				answer := answers[0]
				if len(answers) > 1 {
					answers = answers[1:]
				}
				if answer != nil {
					return nil, answer
				}
				return done(v1alpha1.UnitHeld)(command)
			}, nil, nil)
			s.run(t, test.args...)
			wantContains(t, s.out+s.errOut, test.wants...)
			sent := s.commands()
			for _, command := range sent {
				if command != sent[0] || command.ID != "id-1" {
					t.Errorf("sent %+v", sent)
				}
			}
			if s.code != test.code || len(sent) != test.sent {
				t.Errorf("code %d, sent %d times\n%s%s", s.code, len(sent), s.out, s.errOut)
			}
		})
	}

	s := newSession(mixer()).units(func(*v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) { return nil, lostAnswer }, nil, nil)
	s.steps = append(s.steps, func() { s.interrupt() })
	s.run(t, "hold", "mixer")
	if s.code != exitUnfinished || !strings.Contains(s.errOut, "it was interrupted") {
		t.Errorf("code %d\n%s", s.code, s.errOut)
	}
}

// Req: P-16, P-16b, P-16c
func TestACommandIsFollowedToWhereItLeads(t *testing.T) {
	accepted := answeredWith(v1alpha1.CommandAccepted, v1alpha1.UnitRunning)
	remembers := func(command v1alpha1.UnitCommandName, outcome v1alpha1.CommandOutcome, message string, state v1alpha1.UnitState) func(*v1alpha1.Unit) {
		return func(u *v1alpha1.Unit) {
			u.Status.State, u.Status.LastCommand = state, recorded(command, outcome, message)
		}
	}
	for _, test := range []struct {
		name   string
		args   []string
		answer func(*v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error)
		then   []func(*v1alpha1.Unit)
		code   int
		wants  []string
	}{
		{name: "once it is carried out", args: []string{"hold", "mixer"}, answer: accepted,
			then:  []func(*v1alpha1.Unit){remembers(v1alpha1.CommandHold, v1alpha1.CommandDone, "held\x07", v1alpha1.UnitHolding), inState(v1alpha1.UnitHeld)},
			wants: []string{"\rHOLD is accepted; waiting for it to be carried out", "HOLD is carried out; it is Holding (held\uFFFD)\n", "mixer is Held\n"}},
		{name: "unless it is refused", args: []string{"restart", "mixer"}, answer: accepted,
			then: []func(*v1alpha1.Unit){remembers(v1alpha1.CommandRestart, v1alpha1.CommandRefused, "plc-1 is Fault", v1alpha1.UnitHeld)}, code: exitFailed,
			wants: []string{"error: RESTART was not carried out: Refused: plc-1 is Fault\nThe Unit is Held. Allowed now: HOLD, RESTART, STOP, ABORT.\n"}},
		{name: "unless another goes before it", args: []string{"pause", "mixer"}, answer: accepted,
			then: []func(*v1alpha1.Unit){remembers(v1alpha1.CommandPause, v1alpha1.CommandSuperseded, "", v1alpha1.UnitHolding)}, code: exitFailed,
			wants: []string{"error: PAUSE was not carried out: Superseded\nThe Unit is Holding. Allowed now: HOLD, STOP, ABORT.\n"}},
		{name: "unless a module fails meanwhile", args: []string{"restart", "mixer"}, answer: done(v1alpha1.UnitRestarting),
			then: []func(*v1alpha1.Unit){func(u *v1alpha1.Unit) { heldByFault("plc-1")(u); u.Status.State = v1alpha1.UnitHolding }}, code: exitFailed,
			wants: []string{"error: the Unit did not become Running: it is Holding, held by IOModuleFault: plc-1\nAllowed now: HOLD, STOP, ABORT."}},
		{name: "unless somebody sends another", args: []string{"hold", "mixer"}, answer: done(v1alpha1.UnitHolding),
			then: []func(*v1alpha1.Unit){func(u *v1alpha1.Unit) {
				u.Status.State, u.Status.LastCommand = v1alpha1.UnitStopping, &v1alpha1.UnitCommandRecord{ID: "x", Command: v1alpha1.CommandStop, Actor: "bob\x1b"}
			}}, code: exitFailed,
			wants: []string{"error: the Unit did not become Held: it is Stopping, by STOP of bob\uFFFD\n"}},
		{name: "and told what keeps it", args: []string{"hold", "mixer", "--timeout", "2s"}, answer: done(v1alpha1.UnitHolding),
			then: []func(*v1alpha1.Unit){func(u *v1alpha1.Unit) {
				u.Status.State = v1alpha1.UnitHolding
				unitCondition(conditionHoldValuesWritten, metav1.ConditionFalse, "HoldValuesRefused", "not taken: pump-3/speed")(u)
			}}, code: exitUnfinished,
			wants: []string{"\rit is Holding; waiting for Held: HoldValuesRefused not taken: pump-3/speed",
				"error: HOLD is carried out, and the Unit is still Holding after 2s: HoldValuesRefused not taken: pump-3/speed\nIt is tried again every second, and stays so until a device takes it or the tag is corrected."}},
		{name: "and told what was not taken", args: []string{"hold", "mixer"}, answer: done(v1alpha1.UnitHolding),
			then: []func(*v1alpha1.Unit){func(u *v1alpha1.Unit) {
				u.Status.State = v1alpha1.UnitHeld
				unitCondition(conditionHoldValuesWritten, metav1.ConditionFalse, "HoldValuesUnreachable", "they follow when the device is back: pump-3/speed")(u)
			}},
			wants: []string{"mixer is Held\n", "Warning: not every hold value was taken: they follow when the device is back: pump-3/speed\n"}},
		{name: "as long as it takes to be carried out", args: []string{"reset", "mixer", "--timeout", "1s"}, answer: accepted, code: exitUnfinished,
			wants: []string{"error: RESET is accepted, and was not carried out within 1s\n"}},
		{name: "unless nobody waits", args: []string{"reset", "mixer", "--no-wait"}, answer: accepted, wants: []string{"RESET is accepted, and not carried out yet\n"}},
		{name: "unless the server says nothing", args: []string{"hold", "mixer"}, answer: func(c *v1alpha1.UnitCommand) (*v1alpha1.UnitCommand, error) { return c, nil }, code: exitUnfinished,
			wants: []string{"does not say what became of the command"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer()).units(test.answer, nil, nil)
			s.draws = true
			for _, step := range test.then {
				s.thenUnit(t, step)
			}
			s.run(t, test.args...)
			wantContains(t, s.out+s.errOut, test.wants...)
			if s.code != test.code || len(s.commands()) != 1 {
				t.Errorf("code %d, sent %+v\n%s%s", s.code, s.commands(), s.out, s.errOut)
			}
		})
	}
}

func TestFollowingSurvivesARestartOfTheServerAndEndsWithTheUser(t *testing.T) {
	away := true
	s := newSession(mixer(inState(v1alpha1.UnitHeld))).units(done(v1alpha1.UnitHolding), nil, nil)
	s.client.PrependReactor("get", "units", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, apierrors.NewServiceUnavailable("away")
	})
	s.draws = true
	s.steps = []func(){func() {}, func() { away = false }}
	s.run(t, "hold", "mixer").wantOK(t)
	wantContains(t, s.errOut, "\rthe server does not answer; waiting for it")
	wantContains(t, s.out, "mixer is Held\n")

	for _, test := range []struct {
		outcome v1alpha1.CommandOutcome
		want    string
	}{
		{v1alpha1.CommandDone, "error: not waited for: HOLD is carried out, and the Unit was Holding on its way to Held\nIt goes on by itself."},
		{v1alpha1.CommandAccepted, "error: not waited for: HOLD is accepted, and was not carried out yet\nIt is not taken back."},
	} {
		s := newSession(mixer(inState(v1alpha1.UnitHolding))).units(answeredWith(test.outcome, v1alpha1.UnitHolding), nil, nil)
		s.steps = []func(){func() { s.interrupt() }}
		s.run(t, "hold", "mixer")
		if s.code != exitUnfinished || !strings.Contains(s.errOut, test.want) {
			t.Errorf("code %d\n%s", s.code, s.errOut)
		}
	}

	s = newSession(mixer()).units(done(v1alpha1.UnitHolding), nil, nil)
	s.client.PrependReactor("get", "units", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1alpha1.Resource("units"), "mixer", errors.New("no"))
	})
	s.run(t, "hold", "mixer").wantOK(t)
	wantContains(t, s.errOut, "Not waited for, because you may not read Units")
}

// Req: P-16c
func TestAnOverrideSaysLoudlyWhatItPassesOver(t *testing.T) {
	module := func(name string, state v1alpha1.ModuleState, reason string) *v1alpha1.IOModule {
		return &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: name}, Status: v1alpha1.IOModuleStatus{
			State: state, Reason: reason, LastTransitionTime: ago(3 * time.Minute), Message: "no answer\x1b",
		}}
	}
	controlModule := func(unit string, modules ...string) *v1alpha1.ControlModule {
		cm := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "of-" + unit}, Spec: v1alpha1.ControlModuleSpec{UnitRef: v1alpha1.UnitReference{Name: unit}}}
		for _, name := range modules {
			cm.Spec.Tags = append(cm.Spec.Tags, v1alpha1.Tag{Name: "t-" + name, IOModuleRef: v1alpha1.IOModuleReference{Name: name}})
		}
		return cm
	}
	objects := []runtime.Object{
		mixer(heldByFault("plc-1"), unitCondition(conditionRuntimeReady, metav1.ConditionFalse, "RuntimeUnreachable", "it does not answer")),
		controlModule("mixer", "plc-1", "plc-2", "plc-3", "gone"), controlModule("other", "plc-4"),
		module("plc-1", v1alpha1.ModuleFault, "Timeout"), module("plc-2", v1alpha1.ModuleOnline, "Connected"), module("plc-3", "", ""), module("plc-4", v1alpha1.ModuleFault, "Refused"),
	}
	s := newSession(objects...).units(done(v1alpha1.UnitRestarting), nil, nil)
	s.thenUnit(t, func(u *v1alpha1.Unit) {
		u.Status.State = v1alpha1.UnitRunning
	})
	s.client.PrependReactor("create", "units", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.thenUnit(t, func(u *v1alpha1.Unit) {
			u.Status.Overridden = []v1alpha1.OverriddenModule{{Module: "gone"}, {Module: "plc-1", State: v1alpha1.ModuleFault}}
		})
		s.steps[len(s.steps)-1]()
		s.steps = s.steps[:1]
		return false, nil, nil
	})
	s.run(t, "restart", "mixer", "--override", "--reason", "level-1 measures the same").wantOK(t)
	wantText(t, s.errOut, `WARNING: --override sets mixer going without what it needs being known to be well.
WARNING: passed over, and not holding the Unit until that changes:
WARNING:   IOModule gone: does not exist
WARNING:   IOModule plc-1: Fault Timeout, for 3m: no answer`+"\uFFFD"+`
WARNING:   IOModule plc-3: Unknown, for 3m: no answer`+"\uFFFD"+`
WARNING:   its runtime: is not known to be ready: RuntimeUnreachable it does not answer

WARNING: recorded as passed over: gone (does not exist), plc-1 (Fault)
it is Restarting; waiting for Running
`)
	if sent := s.commands(); len(sent) != 1 || !sent[0].Override || sent[0].Reason != "level-1 measures the same" {
		t.Errorf("sent %+v", sent)
	}

	s = newSession(mixer(heldByFault("plc-1"))).units(done(v1alpha1.UnitRunning), nil, nil).run(t, "start", "mixer", "--override", "--reason", "r").wantOK(t)
	wantContains(t, s.errOut, "WARNING: every module that it needs is told to be Online now")

	s = newSession(mixer()).units(done(v1alpha1.UnitRunning), nil, nil)
	s.client.PrependReactor("list", "controlmodules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1alpha1.Resource("controlmodules"), "", errors.New("no"))
	})
	s.run(t, "start", "mixer", "--override", "--reason", "r").wantOK(t)
	wantContains(t, s.errOut, "WARNING: which modules it passes over cannot be shown: ")
}

func TestCompletionOffersTheUnitsThatACommandIsFor(t *testing.T) {
	named := func(name string, edits ...func(*v1alpha1.Unit)) *v1alpha1.Unit {
		return mixer(append(edits, func(u *v1alpha1.Unit) { u.Name = name })...)
	}
	objects := []runtime.Object{
		named("held", heldByFault("plc-1", "plc-2", "plc-3", "plc-4")), named("idle", inState(v1alpha1.UnitIdle)), named("paused", inState(v1alpha1.UnitPaused)),
		named("running"), named("stopped", inState(v1alpha1.UnitStopped)),
	}
	for command, want := range map[string]string{
		"hold": "held paused running", "restart": "held", "start": "idle", "stop": "held paused running", "abort": "held paused running stopped",
		"reset": "stopped", "pause": "running", "resume": "paused", "mode": "held idle paused running stopped", "tags": "held idle paused running stopped", "write": "running",
	} {
		s := newSession(objects...).run(t, "__complete", command, "").wantOK(t)
		have, _, _ := strings.Cut(s.out, ":4\n")
		var names []string
		for _, line := range strings.Split(strings.TrimSpace(have), "\n") {
			name, _, _ := strings.Cut(line, "\t")
			names = append(names, name)
		}
		if have := strings.Join(names, " "); have != want {
			t.Errorf("%s: have %q, want %q", command, have, want)
		}
	}
	s := newSession(objects...).run(t, "__complete", "restart", "h").wantOK(t)
	wantContains(t, s.out, "held\tHeld IOModuleFault: plc-1, plc-2, plc-3 and 1 more\n")
	s = newSession(objects...).run(t, "__complete", "mode", "held", "").wantOK(t)
	wantContains(t, s.out, "automatic\nmanual\n:4\n")
	for _, args := range [][]string{{"hold", "held", ""}, {"mode", "held", "manual", ""}} {
		if s := newSession(objects...).run(t, append([]string{"__complete"}, args...)...).wantOK(t); !strings.HasPrefix(s.out, ":4\n") {
			t.Errorf("%v: %q", args, s.out)
		}
	}
}

func TestWhatHoldsAUnitIsToldInAFewWords(t *testing.T) {
	operator := []v1alpha1.UnitHoldCause{{Cause: v1alpha1.HoldCauseOperator, Actor: "alice"}, {Cause: v1alpha1.HoldCauseIOModuleFault, Module: "a"}}
	for _, test := range []struct {
		hold *v1alpha1.UnitHold
		want string
	}{
		{nil, ""},
		{&v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseIOModuleFault, Modules: []string{"a"}}, "IOModuleFault: a"},
		{&v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseIOModuleMissing, Modules: []string{"a", "b", "c", "d", "e"}}, "IOModuleMissing: a, b, c and 2 more"},
		{&v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseOperator, Causes: operator[:1]}, "Operator alice"},
		{&v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseOperator, Modules: []string{"a"}, Causes: operator}, "Operator alice; then a"},
		{&v1alpha1.UnitHold{Cause: v1alpha1.HoldCauseRestored}, "Restored"},
	} {
		if have := heldBy(mixer(func(u *v1alpha1.Unit) { u.Status.Hold = test.hold }), shownModules); have != test.want {
			t.Errorf("have %q, want %q", have, test.want)
		}
	}
}

// TestEveryCommandHasItsDestination proves that whoever waits for a command waits for the right state.
func TestEveryCommandHasItsDestination(t *testing.T) {
	for command, want := range map[v1alpha1.UnitCommandName]v1alpha1.UnitState{
		v1alpha1.CommandStart: v1alpha1.UnitRunning, v1alpha1.CommandPause: v1alpha1.UnitPaused, v1alpha1.CommandResume: v1alpha1.UnitRunning,
		v1alpha1.CommandHold: v1alpha1.UnitHeld, v1alpha1.CommandRestart: v1alpha1.UnitRunning, v1alpha1.CommandStop: v1alpha1.UnitStopped,
		v1alpha1.CommandAbort: v1alpha1.UnitAborted, v1alpha1.CommandReset: v1alpha1.UnitIdle, v1alpha1.CommandManual: "", v1alpha1.CommandAutomatic: "",
	} {
		if have := destination(command); have != want {
			t.Errorf("%s leads to %q, want %q", command, have, want)
		}
	}
}
