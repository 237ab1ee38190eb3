package unit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// runtimes is one runtime. What it leaves out is the network: real ones are spoken to in pkg/unitruntime/tags.
type runtimes struct {
	tags []api.TagValue
	err  error
	// events are those of a watch; it ends with end when they are closed.
	events chan api.TagEvent
	end    error
	// answer is what becomes of writes.
	answer func(writes []api.TagWrite) []api.WriteResult
	sent   [][]api.TagWrite
}

func (r *runtimes) Tags(context.Context, *physical.Unit) ([]api.TagValue, error) {
	return r.tags, r.err
}

func (r *runtimes) FollowTags(ctx context.Context, _ *physical.Unit, handle func(api.TagEvent)) error {
	if r.err != nil {
		return r.err
	}
	for {
		select {
		case event, open := <-r.events:
			if !open {
				return r.end
			}
			handle(event)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *runtimes) Reach(context.Context, *physical.Unit) error { return r.err }

func (r *runtimes) WriteTags(_ context.Context, _ *physical.Unit, writes []api.TagWrite) []api.WriteResult {
	r.sent = append(r.sent, writes)
	return r.answer(writes)
}

// taken is a device that takes everything.
func taken(writes []api.TagWrite) []api.WriteResult {
	var results []api.WriteResult
	for _, write := range writes {
		results = append(results, api.WriteResult{TagKey: write.TagKey, Done: true})
	}
	return results
}

func value(module, name, text string, status driver.StatusCode) api.TagValue {
	return api.TagValue{ControlModule: module, Name: name, Value: ptr.To(text), Status: status, SourceTime: now, IOModule: "press", Address: "holding:1", Access: "ReadWrite", Unit: "bar"}
}

// getter has objects by name.
type getter map[string]runtime.Object

func (g getter) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	switch obj := g[name].(type) {
	case nil:
		return nil, apierrors.NewNotFound(physical.Resource("controlmodules"), name)
	case *broken:
		return nil, obj.err
	default:
		return obj, nil
	}
}

type broken struct {
	physical.ControlModule
	err error
}

func serve(unit *physical.Unit, r *runtimes) (*Tags, *memory) {
	store := &memory{unit: unit}
	module := &physical.ControlModule{Spec: physical.ControlModuleSpec{UnitRef: physical.UnitReference{Name: "mixer"}, Tags: []physical.Tag{
		{Name: "speed", Access: physical.AccessReadWrite, DataType: physical.DataTypeFloat64},
		{Name: "level", Access: physical.AccessRead, DataType: physical.DataTypeFloat64},
		{Name: "count", Access: physical.AccessWrite, DataType: physical.DataTypeUint16},
		{Name: "scaled", Access: physical.AccessWrite, DataType: physical.DataTypeInt16, Scaling: &physical.Scaling{Factor: ptr.To(0.1)}},
		{Name: "on", Access: physical.AccessWrite, DataType: physical.DataTypeBool},
		{Name: "recipe", Access: physical.AccessWrite, DataType: physical.DataTypeString},
		{Name: "quiet"},
	}}}
	other := &physical.ControlModule{Spec: physical.ControlModuleSpec{UnitRef: physical.UnitReference{Name: "press"}, Tags: []physical.Tag{{Name: "speed", Access: physical.AccessWrite}}}}
	modules := getter{"drive": module, "other": other, "unknown": &broken{err: errors.New("the store is away")}}
	if r.answer == nil {
		r.answer = taken
	}
	return &Tags{units: store, modules: modules, status: store, runtimes: r, clock: clock.RealClock{}}, store
}

// Req: P-15
func TestTheTagsAreWhatTheRuntimeSaysSortedAndWithTheirQuality(t *testing.T) {
	bad := value("drive", "speed", "1.5", driver.StatusBadNoCommunication)
	bad.Message = strings.Repeat("ü", 600)
	never := api.TagValue{ControlModule: "drive", Name: "level", Status: driver.StatusBadWaitingForInitialData}
	odd := value("drive", "odd", "x", 0xC1234567)
	tags, _ := serve(in(physical.UnitHeld), &runtimes{tags: []api.TagValue{
		value("pump", "on", "true", driver.StatusGood), bad, value("drive", "age", "7", driver.StatusUncertainLastUsableValue), never, odd,
	}})
	obj, err := tags.Get(t.Context(), "mixer", &metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	have := obj.(*physical.UnitTags)
	if have.Name != "mixer" || have.Namespace != "site-a" || have.UID != "u-1" || have.ResourceVersion != "" || have.Writes != nil || have.Removed != nil {
		t.Errorf("have %+v", have.ObjectMeta)
	}
	var lines []string
	for _, tag := range have.Items {
		lines = append(lines, fmt.Sprintf("%s/%s %s %s %d", tag.ControlModule, tag.Name, tag.Quality, tag.Status, tag.StatusCode))
	}
	want := []string{
		"drive/age Uncertain Uncertain_LastUsableValue 1083179008", "drive/level Bad Bad_WaitingForInitialData 2150760448",
		"drive/odd Bad 0xC1234567 3240314215", "drive/speed Bad Bad_NoCommunication 2150694912", "pump/on Good Good 0",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("have\n%s", strings.Join(lines, "\n"))
	}
	speed, level := have.Items[3], have.Items[1]
	if *speed.Value != "1.5" || !speed.SourceTime.Time.Equal(now) || speed.Unit != "bar" || speed.IOModule != "press" || speed.Address != "holding:1" || speed.Access != physical.AccessReadWrite {
		t.Errorf("have %+v", speed)
	}
	if len(speed.Message) > 1024 || strings.Trim(speed.Message, "ü") != "" {
		t.Errorf("a message of %d bytes that ends in %q", len(speed.Message), speed.Message[len(speed.Message)-3:])
	}
	if level.Value != nil || level.SourceTime != nil {
		t.Errorf("have %+v", level)
	}

	table, err := tags.ConvertToTable(t.Context(), have, nil)
	if err != nil || len(table.Rows) != 5 {
		t.Fatalf("have %+v, %v", table, err)
	}
	for _, row := range table.Rows {
		if len(row.Cells) != len(table.ColumnDefinitions) {
			t.Errorf("%d cells in %d columns", len(row.Cells), len(table.ColumnDefinitions))
		}
	}
	if text := fmt.Sprint(table.Rows[4].Cells...); text != "pumpontruebarGood2026-03-01T12:00:00.000ZGoodpressholding:1ReadWrite" {
		t.Errorf("have %s", text)
	}
	if _, err := tags.ConvertToTable(t.Context(), &physical.Unit{}, nil); err == nil {
		t.Error("a Unit became a table of tags")
	}
}

// Req: P-15, A-05
func TestAGetOfTagsRefusesWhatItWouldIgnore(t *testing.T) {
	away := apierrors.NewServiceUnavailable("no runtime")
	for name, test := range map[string]struct {
		unit    string
		options runtime.Object
		err     error
		fits    func(error) bool
	}{
		"?watch=1":          {options: &metav1.ListOptions{Watch: true}, fits: apierrors.IsBadRequest},
		"a label selector":  {options: &metav1.ListOptions{LabelSelector: "a=b"}, fits: apierrors.IsBadRequest},
		"a field selector":  {options: &metav1.ListOptions{FieldSelector: "a=b"}, fits: apierrors.IsBadRequest},
		"a limit":           {options: &metav1.ListOptions{Limit: 5}, fits: apierrors.IsBadRequest},
		"continue":          {options: &metav1.ListOptions{Continue: "x"}, fits: apierrors.IsBadRequest},
		"other options":     {options: &physical.Unit{}, fits: apierrors.IsBadRequest},
		"no such Unit":      {unit: "-", options: &metav1.ListOptions{}, fits: apierrors.IsNotFound},
		"nobody to ask":     {options: &metav1.ListOptions{}, err: away, fits: apierrors.IsServiceUnavailable},
		"a former version":  {options: &metav1.ListOptions{ResourceVersion: "7"}, fits: func(err error) bool { return err == nil }},
		"with a time limit": {options: &metav1.ListOptions{TimeoutSeconds: ptr.To(int64(5))}, fits: func(err error) bool { return err == nil }},
	} {
		tags, store := serve(in(physical.UnitIdle), &runtimes{err: test.err})
		if test.unit != "" {
			store.unit = nil
		}
		if _, err := tags.Get(t.Context(), "mixer", test.options); !test.fits(err) {
			t.Errorf("%s: have %v", name, err)
		}
	}
}

// Neither patched nor listed: a Getter that updates would be patched.
func TestWhatTagsAreServedBy(t *testing.T) {
	var tags any = &Tags{}
	if _, is := tags.(rest.Patcher); is {
		t.Error("a rest.Patcher")
	}
	if _, is := tags.(rest.Lister); is {
		t.Error("a rest.Lister")
	}
}

func named(name string) *internalversion.ListOptions {
	return &internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name), AllowWatchBookmarks: true}
}

func told(event watch.Event) string {
	tags, ok := event.Object.(*physical.UnitTags)
	if !ok {
		status := event.Object.(*metav1.Status)
		return fmt.Sprintf("%s %d %s", event.Type, status.Code, status.Message)
	}
	text := string(event.Type)
	for _, tag := range tags.Items {
		text += fmt.Sprintf(" %s=%s", tag.Name, *tag.Value)
	}
	for _, tag := range tags.Removed {
		text += " -" + tag.Name
	}
	return text
}

// next is the next event of a watch, or how it ended.
func next(watcher watch.Interface) string {
	select {
	case event, open := <-watcher.ResultChan():
		if !open {
			return "closed"
		}
		return told(event)
	case <-time.After(time.Hour):
		return "nothing"
	}
}

func change(removed []string, pairs ...string) api.TagEvent {
	event := api.TagEvent{Type: api.TagChange}
	for i := 0; i < len(pairs); i += 2 {
		event.Tags = append(event.Tags, value("drive", pairs[i], pairs[i+1], driver.StatusGood))
	}
	for _, name := range removed {
		event.Removed = append(event.Removed, api.TagKey{ControlModule: "drive", Name: name})
	}
	return event
}

func snapshot(pairs ...string) api.TagEvent {
	event := change(nil, pairs...)
	event.Type = api.TagSnapshot
	return event
}

// Req: P-15, A-05
func TestAWatchTellsTheSnapshotThenWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runtimes{events: make(chan api.TagEvent), end: apierrors.NewServiceUnavailable("the runtime fell silent")}
		tags, _ := serve(in(physical.UnitRunning), r)
		go func() { r.events <- snapshot("speed", "1", "level", "2") }()
		watcher, err := tags.Watch(t.Context(), named("mixer"))
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want string) {
			t.Helper()
			if have := next(watcher); have != want {
				t.Errorf("have %q, want %q", have, want)
			}
		}
		expect("ADDED level=2 speed=1")
		r.events <- change(nil, "speed", "3")
		expect("MODIFIED speed=3")
		r.events <- change([]string{"level"}, "speed", "4")
		expect("MODIFIED speed=4 -level")

		// Heartbeats are not told, silence is, once in a while.
		quiet := time.Now()
		r.events <- api.TagEvent{Type: api.TagHeartbeat}
		expect("BOOKMARK")
		expect("BOOKMARK")
		if passed := time.Since(quiet); passed != 2*bookmarkAfter {
			t.Errorf("two bookmarks after %s", passed)
		}

		// A reader who is slow is told the newest alone, and what went and came again is there.
		r.events <- change(nil, "speed", "5")
		synctest.Wait()
		r.events <- change(nil, "speed", "6", "level", "7")
		r.events <- change([]string{"level", "speed"})
		r.events <- change(nil, "level", "8")
		r.events <- change([]string{"never"})
		expect("MODIFIED speed=5")
		expect("MODIFIED level=8 -never -speed")

		r.events <- change(nil, "speed", "9")
		close(r.events)
		expect("MODIFIED speed=9")
		expect("ERROR 503 the runtime fell silent")
		expect("closed")
	})
}

// Req: P-15, A-01. Otherwise a few hundred people who follow tags would keep everybody else from the server.
func TestAWatchThatHasBegunTakesNoSeatOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		signal := flowcontrol.NewInitializationSignal()
		r := &runtimes{events: make(chan api.TagEvent)}
		tags, _ := serve(in(physical.UnitRunning), r)
		go func() { r.events <- snapshot("speed", "1") }()
		if _, err := tags.Watch(flowcontrol.WithInitializationSignal(ctx, signal), named("mixer")); err != nil {
			t.Fatal(err)
		}
		signal.Wait() // for ever, if nobody says that it has begun
	})
}

// Req: P-15
func TestAWatchEndsWithItsReader(t *testing.T) {
	for name, leave := range map[string]func(watch.Interface, context.CancelFunc){
		"who stops it":           func(w watch.Interface, _ context.CancelFunc) { w.Stop() },
		"whose request ends":     func(_ watch.Interface, cancel context.CancelFunc) { cancel() },
		"who stops it, and ends": func(w watch.Interface, cancel context.CancelFunc) { w.Stop(); w.Stop(); cancel() },
	} {
		for _, untold := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				// A goroutine that is left behind would fail the test.
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r := &runtimes{events: make(chan api.TagEvent, 1)}
					tags, _ := serve(in(physical.UnitRunning), r)
					r.events <- snapshot("speed", "1")
					watcher, err := tags.Watch(ctx, named("mixer"))
					if err != nil {
						t.Fatal(err)
					}
					if !untold {
						next(watcher)
					}
					leave(watcher, cancel)
					synctest.Wait()
					for range watcher.ResultChan() {
						t.Log("an event was on its way")
					}
				})
			})
		}
	}
}

// Req: P-15, A-05. What keeps the first values away is an error of the request, and not of a stream.
func TestAWatchThatCannotBegin(t *testing.T) {
	away := apierrors.NewServiceUnavailable("no runtime")
	labelled := named("mixer")
	labelled.LabelSelector = labels.SelectorFromSet(labels.Set{"a": "b"})
	for name, test := range map[string]struct {
		options *internalversion.ListOptions
		err     error
		gone    bool
		fits    func(error) bool
		took    time.Duration
	}{
		"no name":                    {options: &internalversion.ListOptions{}, fits: apierrors.IsBadRequest},
		"no options":                 {fits: apierrors.IsBadRequest},
		"labels":                     {options: labelled, fits: apierrors.IsBadRequest},
		"no such Unit":               {options: named("mixer"), gone: true, fits: apierrors.IsNotFound},
		"no runtime":                 {options: named("mixer"), err: away, fits: apierrors.IsServiceUnavailable},
		"a runtime that says naught": {options: named("mixer"), fits: apierrors.IsTimeout, took: snapshotPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				tags, store := serve(in(physical.UnitRunning), &runtimes{err: test.err, events: make(chan api.TagEvent)})
				if test.gone {
					store.unit = nil
				}
				if _, err := tags.Watch(t.Context(), test.options); !test.fits(err) || time.Since(start) != test.took {
					t.Errorf("have %v after %s", err, time.Since(start))
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tags, _ := serve(in(physical.UnitRunning), &runtimes{events: make(chan api.TagEvent)})
		if _, err := tags.Watch(ctx, named("mixer")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("have %v", err)
		}
	})
}

func put(t *testing.T, tags *Tags, user string, sent *physical.UnitTags, dryRun ...string) error {
	t.Helper()
	obj, created, err := tags.Update(as(user), "mixer", rest.DefaultUpdatedObjectInfo(sent), nil,
		func(context.Context, runtime.Object, runtime.Object) error { return nil }, false, &metav1.UpdateOptions{DryRun: dryRun})
	if err == nil {
		if answer := obj.(*physical.UnitTags); created || answer.Writes != nil || answer.Name != "mixer" || answer.Items != nil {
			t.Errorf("answered with %+v", answer)
		}
	}
	return err
}

func writing(pairs ...string) *physical.UnitTags {
	sent := &physical.UnitTags{ObjectMeta: metav1.ObjectMeta{Name: "mixer"}, Reason: "trial"}
	for i := 0; i < len(pairs); i += 2 {
		module, name, _ := strings.Cut(pairs[i], "/")
		sent.Writes = append(sent.Writes, physical.TagWrite{ControlModule: module, Name: name, Value: pairs[i+1]})
	}
	return sent
}

// Req, P-15, P-16b. All of a request is refused if any of it is, and then nothing is recorded or sent.
func TestWhatIsNotWritten(t *testing.T) {
	many := writing()
	for i := range 33 {
		many.Writes = append(many.Writes, physical.TagWrite{ControlModule: "drive", Name: fmt.Sprint("t", i), Value: "1"})
	}
	anew := writing("drive/speed", "1")
	anew.UID = "u-0"
	long := writing("drive/speed", "1")
	long.Reason = strings.Repeat("x", 1025)
	read := writing()
	read.Items = []physical.TagValue{{ControlModule: "drive", Name: "speed", Value: ptr.To("9")}}
	for name, test := range map[string]struct {
		unit *physical.Unit
		sent *physical.UnitTags
		err  error
		code int32
		text string
	}{
		"nothing":                           {sent: writing(), code: http.StatusUnprocessableEntity, text: "writes: Required"},
		"values that were read":             {sent: read, code: http.StatusUnprocessableEntity, text: "writes: Required"},
		"more than is remembered":           {sent: many, code: http.StatusUnprocessableEntity, text: "must have at most 32"},
		"one tag twice":                     {sent: writing("drive/speed", "1", "drive/speed", "2"), code: http.StatusUnprocessableEntity, text: "writes[1]: Duplicate"},
		"a tag without a name":              {sent: writing("drive/", "1"), code: http.StatusUnprocessableEntity, text: "writes[0].name: Required"},
		"a tag without a module":            {sent: writing("/speed", "1"), code: http.StatusUnprocessableEntity, text: "writes[0].controlModule: Required"},
		"a tag that is not there":           {sent: writing("drive/speed", "1", "drive/nothing", "1"), code: http.StatusUnprocessableEntity, text: "writes[1].name: Not found"},
		"a module that is not there":        {sent: writing("nothing/speed", "1"), code: http.StatusUnprocessableEntity, text: "writes[0].controlModule: Not found"},
		"a tag of another Unit":             {sent: writing("other/speed", "1"), code: http.StatusUnprocessableEntity, text: "writes[0].controlModule: Not found"},
		"a tag that is read":                {sent: writing("drive/speed", "1", "drive/level", "1"), code: http.StatusConflict, text: "drive/level is read alone"},
		"a tag that says nothing of access": {sent: writing("drive/quiet", "1"), code: http.StatusConflict, text: "its access is Read"},
		"a word for a number":               {sent: writing("drive/speed", "fast"), code: http.StatusUnprocessableEntity, text: "writes[0].value: Invalid value: \"fast\": must be a number"},
		"no number":                         {sent: writing("drive/speed", "NaN"), code: http.StatusUnprocessableEntity, text: "must be a number"},
		"more than any number":              {sent: writing("drive/speed", "+Inf"), code: http.StatusUnprocessableEntity, text: "must be a number"},
		"a number that is none any more":    {sent: writing("drive/speed", "1e999"), code: http.StatusUnprocessableEntity, text: "must be a number"},
		"less than is counted":              {sent: writing("drive/count", "-1"), code: http.StatusUnprocessableEntity, text: "from 0 to 65535"},
		"half a piece":                      {sent: writing("drive/count", "1.5"), code: http.StatusUnprocessableEntity, text: "whole number"},
		"more than the scale reaches":       {sent: writing("drive/scaled", "3276.8"), code: http.StatusUnprocessableEntity, text: "32768 as the raw value"},
		"neither on nor off":                {sent: writing("drive/on", "yes"), code: http.StatusUnprocessableEntity, text: "must be a bool"},
		"digits of another script":          {sent: writing("drive/speed", "١٢"), code: http.StatusUnprocessableEntity, text: "must be a number"},
		"a text of a megabyte":              {sent: writing("drive/recipe", strings.Repeat("x", 1<<20)), code: http.StatusUnprocessableEntity, text: "1024"},
		"a text that clears a terminal":     {sent: writing("drive/recipe", "\x1b[2J"), code: http.StatusUnprocessableEntity, text: "printable"},
		"a reason that is too long":         {sent: long, code: http.StatusUnprocessableEntity, text: "reason"},
		"to a Unit that was made anew":      {sent: anew, code: http.StatusConflict, text: "made anew"},
		"to a Unit that is being deleted":   {unit: in(physical.UnitRunning, deleted), sent: writing("drive/speed", "1"), code: http.StatusConflict, text: "being deleted"},
		"without a runtime":                 {sent: writing("drive/speed", "1"), err: apierrors.NewServiceUnavailable("no runtime"), code: http.StatusServiceUnavailable, text: "no runtime"},
		"while nobody knows the tags":       {sent: writing("unknown/speed", "1"), code: http.StatusOK, text: "the store is away"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runtimes{err: test.err}
			unit := test.unit
			if unit == nil {
				unit = in(physical.UnitRunning)
			}
			tags, store := serve(unit, r)
			err := put(t, tags, "ada", test.sent)
			if err == nil || code200(err) != test.code || !strings.Contains(err.Error(), test.text) || len(err.Error()) > 700 {
				t.Errorf("have %v", err)
			}
			if store.writes > 0 || len(r.sent) > 0 {
				t.Errorf("%d writes, sent %v", store.writes, r.sent)
			}
		})
	}
	for _, state := range []physical.UnitState{
		physical.UnitIdle, physical.UnitPausing, physical.UnitPaused, physical.UnitHolding, physical.UnitHeld, physical.UnitRestarting, physical.UnitCompleting,
		physical.UnitComplete, physical.UnitStopping, physical.UnitStopped, physical.UnitAborting, physical.UnitAborted, physical.UnitResetting, "",
	} {
		r := &runtimes{}
		tags, store := serve(in(state), r)
		if err := put(t, tags, "ada", writing("drive/speed", "1")); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "Running alone") || store.writes > 0 || len(r.sent) > 0 {
			t.Errorf("%s: have %v", state, err)
		}
	}
}

// Req: A-06, P-15. The intent is stored before anything is sent, and then what became of it.
func TestAWriteIsRecordedBeforeItIsSentAndAgainWhenItIsDone(t *testing.T) {
	key := func(name string) api.TagKey { return api.TagKey{ControlModule: "drive", Name: name} }
	for name, test := range map[string]struct {
		answer   func([]api.TagWrite) []api.WriteResult
		outcomes []physical.WriteOutcome
		code     int32
		texts    []string
	}{
		"taken": {taken, []physical.WriteOutcome{physical.WriteDone, physical.WriteDone}, http.StatusOK, nil},
		"one refused": {func([]api.TagWrite) []api.WriteResult {
			return []api.WriteResult{{TagKey: key("speed"), Done: true}, {TagKey: key("on"), Reason: "DeviceRefused", Message: "illegal data address"}}
		}, []physical.WriteOutcome{physical.WriteDone, physical.WriteRefused}, http.StatusConflict, []string{"1 of 2 values were written", "drive/on is refused: DeviceRefused: illegal data address"}},
		"one of which nobody knows": {func([]api.TagWrite) []api.WriteResult {
			return []api.WriteResult{{TagKey: key("speed"), Uncertain: true, Reason: "Timeout"}, {TagKey: key("on")}}
		}, []physical.WriteOutcome{physical.WriteUncertain, physical.WriteRefused}, http.StatusGatewayTimeout, []string{"0 of 2", "drive/speed is uncertain: Timeout", "no reason was given"}},
		"done, and yet uncertain": {func([]api.TagWrite) []api.WriteResult {
			return []api.WriteResult{{TagKey: key("speed"), Uncertain: true, Done: true}, {TagKey: key("on"), Done: true}}
		}, []physical.WriteOutcome{physical.WriteUncertain, physical.WriteDone}, http.StatusGatewayTimeout, []string{"1 of 2"}},
		"no answer": {func([]api.TagWrite) []api.WriteResult { return nil }, []physical.WriteOutcome{physical.WriteUncertain, physical.WriteUncertain}, http.StatusGatewayTimeout, []string{"did not say"}},
		"an answer to another": {func([]api.TagWrite) []api.WriteResult {
			return taken([]api.TagWrite{{TagKey: key("on")}, {TagKey: key("speed")}})
		}, []physical.WriteOutcome{physical.WriteUncertain, physical.WriteUncertain}, http.StatusGatewayTimeout, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runtimes{}
			tags, store := serve(in(physical.UnitRunning), r)
			r.answer = func(writes []api.TagWrite) []api.WriteResult {
				for i, record := range store.unit.Status.Writes {
					if record.Outcome != physical.WritePending || record.Actor != "ada" || record.Reason != "trial" || record.Time == nil ||
						record.Name != writes[i].Name || record.Value != writes[i].Value || record.ControlModule != "drive" {
						t.Errorf("while it is sent the record is %+v", record)
					}
				}
				if len(store.unit.Status.Writes) != len(writes) {
					t.Errorf("%d records of %d", len(store.unit.Status.Writes), len(writes))
				}
				return test.answer(writes)
			}
			err := put(t, tags, "ada", writing("drive/speed", "1", "drive/on", "true"))
			if code200(err) != test.code || (err == nil) != (test.code == http.StatusOK) {
				t.Errorf("have %v", err)
			}
			for _, text := range test.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			for i, want := range test.outcomes {
				if record := store.unit.Status.Writes[i]; record.Outcome != want || (record.Message == "") != (want == physical.WriteDone) {
					t.Errorf("recorded is %+v", record)
				}
			}
		})
	}
}

// Req: P-16b. A Unit that is held between the look at it and the record is not written to.
func TestAWriteIsJudgedAgainWhenTheUnitChangesMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*physical.Unit)
		sent      int
	}{
		"it is held":         {func(u *physical.Unit) { u.Status.State = physical.UnitHolding }, 0},
		"it is deleted":      {deleted, 0},
		"it is made anew":    {func(u *physical.Unit) { u.UID = "u-2" }, 0},
		"a condition is set": {func(u *physical.Unit) { u.Status.ObservedGeneration = 3 }, 1},
	} {
		r := &runtimes{}
		tags, store := serve(in(physical.UnitRunning), r)
		store.meanwhile = test.meanwhile
		if err := put(t, tags, "ada", writing("drive/speed", "1")); (err == nil) != (test.sent == 1) || err != nil && !apierrors.IsConflict(err) || len(r.sent) != test.sent {
			t.Errorf("%s: have %v, sent %v", name, err, r.sent)
		}
	}
}

// Req: A-05
func TestADryRunOfAWriteOnlyJudges(t *testing.T) {
	r := &runtimes{}
	tags, store := serve(in(physical.UnitRunning), r)
	if err := put(t, tags, "ada", writing("drive/speed", "1"), metav1.DryRunAll); err != nil || store.writes > 0 || len(r.sent) > 0 {
		t.Errorf("have %v, %d writes, sent %v", err, store.writes, r.sent)
	}
	if err := put(t, tags, "ada", writing("drive/speed", "x"), metav1.DryRunAll); !apierrors.IsInvalid(err) {
		t.Errorf("have %v", err)
	}
}

// Req: A-06. Whoever asked may be gone: what became of his write is recorded all the same.
func TestAWriterWhoLeavesDoesNotTakeTheOutcomeAlong(t *testing.T) {
	ctx, leave := context.WithCancel(as("ada"))
	r := &runtimes{}
	tags, store := serve(in(physical.UnitRunning), r)
	r.answer = func(writes []api.TagWrite) []api.WriteResult { leave(); return taken(writes) }
	_, _, err := tags.Update(ctx, "mixer", rest.DefaultUpdatedObjectInfo(writing("drive/speed", "1")), nil,
		func(context.Context, runtime.Object, runtime.Object) error { return nil }, false, &metav1.UpdateOptions{})
	if err != nil || store.unit.Status.Writes[0].Outcome != physical.WriteDone {
		t.Errorf("have %v, %+v", err, store.unit.Status.Writes)
	}
	// A Unit that is deleted while it is written to has nothing in which to record.
	tags, store = serve(in(physical.UnitRunning), r)
	r.answer = func(writes []api.TagWrite) []api.WriteResult { store.unit = nil; return taken(writes) }
	if err := put(t, tags, "ada", writing("drive/speed", "1")); err != nil {
		t.Errorf("have %v", err)
	}
}

// Req: A-06
func TestWhatAUnitRemembersOfWrites(t *testing.T) {
	past := func(outcome physical.WriteOutcome, age time.Duration, names ...string) []physical.TagWriteRecord {
		var records []physical.TagWriteRecord
		for _, name := range names {
			records = append(records, physical.TagWriteRecord{ControlModule: "drive", Name: name, Actor: "bo", Outcome: outcome, Time: &metav1.MicroTime{Time: now.Add(-age)}})
		}
		return records
	}
	many := func(n int) []string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("t", i))
		}
		return names
	}
	summary := func(unit *physical.Unit) string {
		counts := map[physical.WriteOutcome]int{}
		for _, record := range unit.Status.Writes {
			counts[record.Outcome]++
		}
		return fmt.Sprint(counts)
	}
	for name, test := range map[string]struct {
		writes []physical.TagWriteRecord
		want   string
	}{
		"none before":                      {nil, "map[Pending:1]"},
		"as many as it remembers":          {past(physical.WriteDone, time.Second, many(32)...), "map[Done:31 Pending:1]"},
		"one under way, older than others": {append(past(physical.WriteDone, time.Second, many(31)...), past(physical.WritePending, time.Minute, "old")...), "map[Done:30 Pending:2]"},
		"one that the server forgot":       {past(physical.WritePending, 61*time.Second, "old"), "map[Pending:1 Uncertain:1]"},
		"one of a clock that was ahead":    {past(physical.WritePending, -time.Hour, "old"), "map[Pending:1 Uncertain:1]"},
		"31 under way":                     {past(physical.WritePending, time.Second, many(31)...), "map[Pending:32]"},
		"32 under way":                     {past(physical.WritePending, time.Second, many(32)...), ""},
	} {
		unit := in(physical.UnitRunning)
		unit.Status.Writes = test.writes
		before := len(unit.Status.Writes)
		_, err := record(unit, writing("drive/speed", "1"), "ada", now)
		if test.want == "" {
			if !apierrors.IsTooManyRequests(err) || len(unit.Status.Writes) != before {
				t.Errorf("%s: have %v", name, err)
			}
			continue
		}
		if have := summary(unit); err != nil || have != test.want || len(unit.Status.Writes) > 32 || unit.Status.Writes[0].Name != "speed" {
			t.Errorf("%s: have %s, %v", name, have, err)
		}
	}

	// Two requests of one instant are told apart, and each concludes its own alone.
	unit := in(physical.UnitRunning)
	first, _ := record(unit, writing("drive/speed", "1"), "ada", now.Add(300*time.Nanosecond))
	second, _ := record(unit, writing("drive/speed", "2"), "ada", now)
	if !second.After(first.Time) || first.Nanosecond()%1000 != 0 {
		t.Fatalf("%v, then %v", first, second)
	}
	conclude(unit, "ada", first, []outcome{{TagKey: api.TagKey{ControlModule: "drive", Name: "speed"}, outcome: physical.WriteDone}})
	if summary(unit) != "map[Done:1 Pending:1]" || unit.Status.Writes[1].Value != "1" || unit.Status.Writes[1].Outcome != physical.WriteDone {
		t.Errorf("have %+v", unit.Status.Writes)
	}
	conclude(unit, "mallory", second, []outcome{{TagKey: api.TagKey{ControlModule: "drive", Name: "speed"}, outcome: physical.WriteDone}})
	if unit.Status.Writes[0].Outcome != physical.WritePending {
		t.Error("another's was concluded")
	}
}
