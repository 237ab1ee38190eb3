package unit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/validation"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// maxWrites is how many writes a Unit remembers.
	maxWrites = 32
	// settles is how long after it was recorded a write may still be under way. Nobody will record what became of an older one.
	settles = time.Minute
	// sendPatience bounds the sending, recordPatience the recording of what came of it.
	sendPatience   = 20 * time.Second
	recordPatience = 5 * time.Second
)

// Update writes values to tags of a Unit that runs: it records who writes what, sends it, and records what became of it
// . All of a request is refused if any of it is.
func (t *Tags) Update(ctx context.Context, name string, updated rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc,
	validate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	unit, err := t.unit(ctx, name)
	if err != nil {
		return nil, false, err
	}
	old := &physical.UnitTags{ObjectMeta: metaOf(unit)}
	obj, err := updated.UpdatedObject(ctx, old.DeepCopy())
	if err != nil {
		return nil, false, err
	}
	request, ok := obj.(*physical.UnitTags)
	if !ok {
		return nil, false, apierrors.NewBadRequest(fmt.Sprintf("not UnitTags: %T", obj))
	}
	if request.UID != "" && request.UID != unit.UID {
		return nil, false, refuse(unit, "metadata.uid is %s, and that of the Unit is %s: it was made anew", request.UID, unit.UID)
	}
	if errs := validation.ValidateUnitTags(request); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(physical.Kind("UnitTags"), name, errs)
	}
	if err := validate(ctx, request.DeepCopy(), old); err != nil {
		return nil, false, err
	}
	if err := runs(unit); err != nil {
		return nil, false, err
	}
	if err := t.checkWrites(ctx, unit, request.Writes); err != nil {
		return nil, false, err
	}
	if err := t.runtimes.Reach(ctx, unit); err != nil {
		return nil, false, err
	}
	if err := t.write(ctx, unit, request, options.DryRun); err != nil {
		return nil, false, err
	}
	return &physical.UnitTags{ObjectMeta: metaOf(unit), Reason: request.Reason}, false, nil
}

// runs refuses a write to a Unit that does not run: a Unit that is held gets its hold values, and nothing else (P-16b).
func runs(unit *physical.Unit) error {
	switch {
	case unit.DeletionTimestamp != nil:
		return refuse(unit, "it is being deleted, and nothing is written to its tags any more")
	case unit.Status.State != physical.UnitRunning:
		return refuse(unit, "tags are written in state Running alone; %s", allowed(unit))
	}
	return nil
}

// checkWrites looks at the tags that are to be written, as they are declared now.
func (t *Tags) checkWrites(ctx context.Context, unit *physical.Unit, writes []physical.TagWrite) error {
	modules := map[string]*physical.ControlModule{}
	var errs field.ErrorList
	for i, write := range writes {
		path := field.NewPath("writes").Index(i)
		module, known := modules[write.ControlModule]
		if !known {
			obj, err := t.modules.Get(ctx, write.ControlModule, &metav1.GetOptions{})
			switch {
			case err == nil:
				module = obj.(*physical.ControlModule)
			case !apierrors.IsNotFound(err):
				return err
			}
			if module != nil && module.Spec.UnitRef.Name != unit.Name {
				module = nil
			}
			modules[write.ControlModule] = module
		}
		if module == nil {
			errs = append(errs, field.NotFound(path.Child("controlModule"), write.ControlModule))
			continue
		}
		n := slices.IndexFunc(module.Spec.Tags, func(tag physical.Tag) bool { return tag.Name == write.Name })
		if n < 0 {
			errs = append(errs, field.NotFound(path.Child("name"), write.Name))
			continue
		}
		tag := &module.Spec.Tags[n]
		if tag.Access != physical.AccessWrite && tag.Access != physical.AccessReadWrite {
			return refuse(unit, "tag %s/%s is read alone: its access is %s", write.ControlModule, write.Name, accessOf(tag))
		}
		errs = append(errs, validation.ValidateTagValue(path.Child("value"), write.Value, tag)...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(physical.Kind("UnitTags"), unit.Name, errs)
	}
	return nil
}

func accessOf(tag *physical.Tag) physical.Access {
	if tag.Access == "" {
		return physical.AccessRead
	}
	return tag.Access
}

// write records, sends and records again. From the moment of the first record on it goes on without whoever asked for it: what
// became of a value that was sent is told in the Unit even if he has left.
func (t *Tags) write(ctx context.Context, unit *physical.Unit, request *physical.UnitTags, dryRun []string) error {
	var at metav1.MicroTime
	actor := actorOf(ctx)
	uid := unit.UID
	changed, err := t.status.ChangeStatus(ctx, unit.Name, dryRun, func(obj runtime.Object) error {
		stored := obj.(*physical.Unit)
		if stored.UID != uid {
			return refuse(stored, "it was deleted and made anew")
		}
		if err := runs(stored); err != nil {
			return err
		}
		var err error
		at, err = record(stored, request, actor, t.clock.Now())
		return err
	})
	if err != nil || dryrun.IsDryRun(dryRun) {
		return err
	}

	ctx = context.WithoutCancel(ctx)
	sending, stop := context.WithTimeout(ctx, sendPatience)
	defer stop()
	writes := make([]api.TagWrite, 0, len(request.Writes))
	for _, write := range request.Writes {
		writes = append(writes, api.TagWrite{TagKey: api.TagKey{ControlModule: write.ControlModule, Name: write.Name}, Value: write.Value})
	}
	results := t.runtimes.WriteTags(sending, changed.(*physical.Unit), writes)

	recording, stopRecording := context.WithTimeout(ctx, recordPatience)
	defer stopRecording()
	outcomes := outcomesOf(writes, results)
	_, err = t.status.ChangeStatus(recording, unit.Name, nil, func(obj runtime.Object) error {
		conclude(obj.(*physical.Unit), actor, at, outcomes)
		return nil
	})
	if told := tellOutcomes(unit, outcomes); told != nil {
		return told
	}
	// A Unit that is gone has nothing in which to record.
	if err != nil && !apierrors.IsNotFound(err) {
		return apierrors.NewInternalError(fmt.Errorf("the values were written, and that could not be recorded: %w", err))
	}
	return nil
}

// record puts writes that are about to be sent before those that the Unit remembers, and returns the time that tells them
// from all others.
func record(unit *physical.Unit, request *physical.UnitTags, actor string, now time.Time) (metav1.MicroTime, error) {
	at := now.Truncate(time.Microsecond)
	kept := make([]physical.TagWriteRecord, 0, len(unit.Status.Writes))
	pending := 0
	for _, past := range unit.Status.Writes {
		if past.Time != nil && !past.Time.Time.Before(at) && past.Time.Sub(at) < settles {
			at = past.Time.Add(time.Microsecond)
		}
		if past.Outcome == physical.WritePending {
			if past.Time == nil || now.Sub(past.Time.Time) > settles || past.Time.Sub(now) > settles {
				past.Outcome, past.Message = physical.WriteUncertain, "the server ended before it knew whether the device took it"
			} else {
				pending++
			}
		}
		kept = append(kept, past)
	}
	if pending+len(request.Writes) > maxWrites {
		return metav1.MicroTime{}, apierrors.NewTooManyRequests(fmt.Sprintf("%d values are being written to the Unit just now, and it remembers %d: try again in a moment", pending, maxWrites), 1)
	}

	stamp := metav1.MicroTime{Time: at}
	all := make([]physical.TagWriteRecord, 0, maxWrites)
	for _, write := range request.Writes {
		all = append(all, physical.TagWriteRecord{
			ControlModule: write.ControlModule, Name: write.Name, Value: write.Value,
			Actor: actor, Time: stamp.DeepCopy(), Outcome: physical.WritePending, Reason: request.Reason,
		})
	}
	// One that is under way is never forgotten before it is done.
	room := maxWrites - len(all) - pending
	for _, past := range kept {
		if past.Outcome != physical.WritePending {
			if room == 0 {
				continue
			}
			room--
		}
		all = append(all, past)
	}
	unit.Status.Writes = all
	return stamp, nil
}

// outcome is what became of a write.
type outcome struct {
	api.TagKey
	outcome physical.WriteOutcome
	message string
}

// outcomesOf reads what the runtime says, which is believed of no tag that it does not name.
func outcomesOf(writes []api.TagWrite, results []api.WriteResult) []outcome {
	outcomes := make([]outcome, 0, len(writes))
	for i, write := range writes {
		o := outcome{TagKey: write.TagKey, outcome: physical.WriteUncertain, message: "the runtime did not say whether the device took it"}
		if i < len(results) && results[i].TagKey == write.TagKey {
			switch result := results[i]; {
			case result.Uncertain:
				o.message = sentence(result)
			case result.Done:
				o.outcome, o.message = physical.WriteDone, ""
			default:
				o.outcome, o.message = physical.WriteRefused, sentence(result)
			}
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

func sentence(result api.WriteResult) string {
	const most = 512
	text := result.Message
	switch {
	case text == "" && result.Reason == "":
		text = "no reason was given"
	case text == "":
		text = result.Reason
	case result.Reason != "":
		text = result.Reason + ": " + text
	}
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// conclude records what became of the writes of one request.
func conclude(unit *physical.Unit, actor string, at metav1.MicroTime, outcomes []outcome) {
	for i := range unit.Status.Writes {
		record := &unit.Status.Writes[i]
		if record.Time == nil || !record.Time.Time.Equal(at.Time) || record.Actor != actor {
			continue
		}
		for _, o := range outcomes {
			if record.ControlModule == o.ControlModule && record.Name == o.Name {
				record.Outcome, record.Message = o.outcome, o.message
			}
		}
	}
}

// tellOutcomes is nil when every value was taken.
func tellOutcomes(unit *physical.Unit, outcomes []outcome) error {
	var (
		failed    []string
		uncertain bool
	)
	for _, o := range outcomes {
		if o.outcome == physical.WriteDone {
			continue
		}
		uncertain = uncertain || o.outcome == physical.WriteUncertain
		failed = append(failed, fmt.Sprintf("%s/%s is %s: %s", o.ControlModule, o.Name, strings.ToLower(string(o.outcome)), o.message))
	}
	if failed == nil {
		return nil
	}
	text := fmt.Sprintf("%d of %d values were written: %s", len(outcomes)-len(failed), len(outcomes), strings.Join(failed, "; "))
	if uncertain {
		// Sent again by itself, it might be written twice: it asks for no retry.
		return apierrors.NewTimeoutError(fmt.Sprintf("unit %s: %s", unit.Name, text), 0)
	}
	return refuse(unit, "%s", text)
}
