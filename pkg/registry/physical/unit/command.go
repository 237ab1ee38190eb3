package unit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/validation"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

const (
	// patience is how long a request waits for its command to be carried out. The command stands however that ends.
	patience = 3 * time.Second
	// pause is the time between two looks at what became of it.
	pause = 20 * time.Millisecond
	// maxRecentCommands is how many commands before the last one are remembered.
	maxRecentCommands = 15
)

// statusChanger writes a stored Unit's status; *object.Subresource does.
type statusChanger interface {
	ChangeStatus(ctx context.Context, name string, dryRun []string, change func(obj runtime.Object) error) (runtime.Object, error)
}

var _ statusChanger = &object.Subresource{}

// Command serves units/command: a POST records a command, which the controller carries out, and waits a moment for what
// becomes of it (P-16c).
type Command struct {
	units  rest.Getter
	status statusChanger
	clock  clock.WithTicker
}

var (
	_ rest.Storage      = &Command{}
	_ rest.NamedCreater = &Command{}
)

// New returns an empty command.
func (*Command) New() runtime.Object { return &physical.UnitCommand{} }

// Destroy does nothing: the store belongs to the main resource.
func (*Command) Destroy() {}

// Create records a command, unless the Unit's state does not allow it or it is known by its id already, and answers what
// became of it. A command that is refused, now or by the controller, is a 409 that says what is allowed.
func (c *Command) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	command, ok := obj.(*physical.UnitCommand)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a UnitCommand: %T", obj))
	}
	if err := object.CheckRequestName(name, command.Name); err != nil {
		return nil, err
	}
	if errs := validation.ValidateUnitCommand(command); len(errs) > 0 {
		return nil, apierrors.NewInvalid(physical.Kind("UnitCommand"), name, errs)
	}
	if err := validate(ctx, command.DeepCopy()); err != nil {
		return nil, err
	}
	spec := command.Spec
	if spec.ID == "" {
		spec.ID = string(uuid.NewUUID())
	}
	actor := actorOf(ctx)
	changed, err := c.status.ChangeStatus(ctx, name, options.DryRun, func(obj runtime.Object) error {
		return accept(obj.(*physical.Unit), spec, actor, c.clock.Now())
	})
	if err != nil {
		return nil, err
	}
	unit := changed.(*physical.Unit)
	record := find(unit, spec.ID)
	if record != nil && record.Outcome == physical.CommandAccepted && !dryrun.IsDryRun(options.DryRun) {
		if unit, record, err = c.await(ctx, unit, record); err != nil {
			return nil, err
		}
	}
	return answer(unit, record, spec)
}

// actorOf is the authenticated user as a status names him. A name that is longer than any that a person has is told by its beginning
// and its hash: what is remembered of commands and writes must leave room for a hold.
func actorOf(ctx context.Context) string {
	const most, begin = 512, 400
	info, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return ""
	}
	name := info.GetName()
	if len(name) <= most {
		return strings.ToValidUTF8(name, "?")
	}
	return fmt.Sprintf("%s… (SHA-256 %x)", strings.ToValidUTF8(name[:begin], ""), sha256.Sum256([]byte(name)))
}

// await looks at a Unit until a command in it has an outcome, or patience ends.
func (c *Command) await(ctx context.Context, unit *physical.Unit, record *physical.UnitCommandRecord) (*physical.Unit, *physical.UnitCommandRecord, error) {
	deadline := c.clock.NewTimer(patience)
	defer deadline.Stop()
	look := c.clock.NewTicker(pause)
	defer look.Stop()
	for {
		select {
		case <-deadline.C():
			return unit, record, nil
		case <-ctx.Done():
			return unit, record, nil
		case <-look.C():
		}
		// A cache will do, if it is not older than what was written: a thousand commands at once do not ask the store a thousand
		// times every 20 ms.
		obj, err := c.units.Get(ctx, unit.Name, &metav1.GetOptions{ResourceVersion: unit.ResourceVersion})
		switch {
		case ctx.Err() != nil:
			return unit, record, nil
		case storage.IsTooLargeResourceVersion(err):
			continue // the cache is behind
		case apierrors.IsNotFound(err):
			return nil, nil, refuse(unit, "%s was recorded, and then the Unit was deleted", record.Command)
		case err != nil:
			return nil, nil, err
		}
		now := obj.(*physical.Unit)
		if now.UID != unit.UID {
			return nil, nil, refuse(unit, "%s was recorded, and then the Unit was deleted and made anew", record.Command)
		}
		unit = now
		// So many others may have come after it that it is no longer remembered; then nobody knows.
		found := find(unit, record.ID)
		if found == nil {
			return unit, record, nil
		}
		if record = found; record.Outcome != physical.CommandAccepted {
			return unit, record, nil
		}
	}
}

// answer tells what became of a command.
func answer(unit *physical.Unit, record *physical.UnitCommandRecord, spec physical.UnitCommandSpec) (*physical.UnitCommand, error) {
	if record == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("command %s is not in the status of unit %s", spec.ID, unit.Name))
	}
	switch record.Outcome {
	case physical.CommandRefused, physical.CommandExpired, physical.CommandSuperseded:
		why := record.Message
		if why == "" {
			why = "no reason was recorded"
		}
		return nil, refuse(unit, "%s is %s: %s; %s", record.Command, strings.ToLower(string(record.Outcome)), why, allowed(unit))
	}
	return &physical.UnitCommand{
		ObjectMeta: metav1.ObjectMeta{Namespace: unit.Namespace, Name: unit.Name},
		Spec:       physical.UnitCommandSpec{ID: record.ID, Command: record.Command, Reason: record.Reason, Override: record.Override},
		Status:     physical.UnitCommandStatus{Record: record.DeepCopy(), State: unit.Status.State},
	}, nil
}

// find is the record of a command, or nil.
func find(unit *physical.Unit, id string) *physical.UnitCommandRecord {
	if last := unit.Status.LastCommand; last != nil && last.ID == id {
		return last
	}
	for i := range unit.Status.RecentCommands {
		if record := &unit.Status.RecentCommands[i]; record.ID == id {
			return record
		}
	}
	return nil
}

// accept records a command in a Unit, or says why not. One that is known already changes nothing.
func accept(unit *physical.Unit, spec physical.UnitCommandSpec, actor string, now time.Time) error {
	if known := find(unit, spec.ID); known != nil {
		return same(unit, known, spec, actor)
	}
	if unit.DeletionTimestamp != nil {
		return refuse(unit, "it is being deleted, and takes no command any more")
	}
	status := &unit.Status
	last := status.LastCommand
	from := []physical.UnitState{status.State}
	if last != nil && last.Outcome == physical.CommandAccepted {
		if !supersedes(spec.Command, last.Command) {
			return refuse(unit, "%s of %s is still being carried out, and %s does not go before it: wait for its outcome in status.lastCommand",
				last.Command, teller(last.Actor), spec.Command)
		}
		// The controller may be carrying it out at this moment.
		if next, ok := isa88.Next(isa88.State(status.State), isa88.Command(last.Command)); ok {
			from = append(from, physical.UnitState(next))
		}
	}
	if !slices.ContainsFunc(from, func(state physical.UnitState) bool { return allows(state, spec.Command) }) {
		return refuse(unit, "%s is not allowed in state %s; %s", spec.Command, status.State, allowed(unit))
	}

	if last != nil {
		past := *last.DeepCopy()
		if past.Outcome == physical.CommandAccepted {
			past.Outcome = physical.CommandSuperseded
			past.Message = fmt.Sprintf("%s of %s came before it was carried out", spec.Command, teller(actor))
		}
		status.RecentCommands = append([]physical.UnitCommandRecord{past}, status.RecentCommands...)
		status.RecentCommands = status.RecentCommands[:min(len(status.RecentCommands), maxRecentCommands)]
	}
	status.LastCommand = &physical.UnitCommandRecord{
		ID: spec.ID, Command: spec.Command, Actor: actor, Reason: spec.Reason, Override: spec.Override,
		Time: &metav1.Time{Time: now}, Outcome: physical.CommandAccepted,
	}
	return nil
}

// same refuses an id that is somebody else's, or another command's: whoever sent that one would be told that his was carried out.
func same(unit *physical.Unit, known *physical.UnitCommandRecord, spec physical.UnitCommandSpec, actor string) error {
	switch {
	case known.Actor != actor:
		return refuse(unit, "spec.id %q is that of a command of %s: choose another", spec.ID, teller(known.Actor))
	case known.Command != spec.Command || known.Override != spec.Override:
		was := string(known.Command)
		if known.Override {
			was += " with override"
		}
		return refuse(unit, "spec.id %q is that of another command, %s: choose another", spec.ID, was)
	}
	return nil
}

// supersedes tells whether a command goes before one that is still being carried out: what makes the plant safer never
// waits for what does not.
func supersedes(command, pending physical.UnitCommandName) bool {
	switch command {
	case physical.CommandAbort:
		return pending != physical.CommandAbort
	case physical.CommandStop:
		return pending != physical.CommandAbort && pending != physical.CommandStop
	case physical.CommandHold:
		return pending != physical.CommandAbort && pending != physical.CommandStop && pending != physical.CommandHold
	default:
		return false
	}
}

func isMode(command physical.UnitCommandName) bool {
	return command == physical.CommandAutomatic || command == physical.CommandManual
}

// allows tells whether a state allows a command; the mode may be changed in every state.
func allows(state physical.UnitState, command physical.UnitCommandName) bool {
	if isMode(command) {
		return true
	}
	_, ok := isa88.Next(isa88.State(state), isa88.Command(command))
	return ok
}

// allowed says what a Unit allows now, and why it stands where it does.
func allowed(unit *physical.Unit) string {
	state := unit.Status.State
	var commands []string
	for _, command := range validation.UnitCommands() {
		if allows(state, command) {
			commands = append(commands, string(command))
		}
	}
	text := fmt.Sprintf("in state %s these are allowed: %s", state, strings.Join(commands, ", "))
	if next, ok := isa88.Completed(isa88.State(state)); ok && isa88.Transient(isa88.State(state)) {
		text += fmt.Sprintf("; %s ends by itself in %s", state, next)
	}
	if hold := unit.Status.Hold; hold != nil && (state == physical.UnitHolding || state == physical.UnitHeld) {
		text += fmt.Sprintf("; it is held by %s", hold.Cause)
		switch causes := hold.Causes; {
		case len(hold.Modules) == 0:
		case len(causes) > 0 && causes[0].Module == "":
			// They came later than what began the hold, which is not of them.
			text += ", then by " + some(hold.Modules)
		default:
			text += " of " + some(hold.Modules)
		}
	}
	return text
}

// some is a list of names that is told in a sentence.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func teller(actor string) string {
	if actor == "" {
		return "nobody"
	}
	return actor
}

func refuse(unit *physical.Unit, format string, args ...any) error {
	return apierrors.NewConflict(physical.Resource("units"), unit.Name, fmt.Errorf(format, args...))
}
