package app

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

func tag(controlModule, name, value string, quality v1alpha1.TagQuality, edits ...func(*v1alpha1.TagValue)) v1alpha1.TagValue {
	tag := v1alpha1.TagValue{
		ControlModule: controlModule, Name: name, Value: &value, Quality: quality, Status: string(quality), Unit: "1/min",
		SourceTime: ptr.To(metav1.NewMicroTime(now().Add(-time.Second))), IOModule: "plc-1", Address: "holding:7", Access: v1alpha1.AccessReadWrite,
	}
	for _, edit := range edits {
		edit(&tag)
	}
	return tag
}

func mixerTags() *v1alpha1.UnitTags {
	return &v1alpha1.UnitTags{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "mixer"}, Items: []v1alpha1.TagValue{
		tag("pump-3", "speed", "1450.5", v1alpha1.QualityGood),
		tag("pump-3", "temp", "61", v1alpha1.QualityUncertain, func(t *v1alpha1.TagValue) {
			t.Unit, t.Status, t.SourceTime = "°C", "Uncertain_LastUsableValue", ptr.To(metav1.NewMicroTime(now().Add(-7*time.Second)))
		}),
		tag("valve-1", "batch", " \x1b[2J", v1alpha1.QualityGood, func(t *v1alpha1.TagValue) {
			t.Unit, t.SourceTime = "", ptr.To(metav1.NewMicroTime(now().Add(time.Minute)))
		}),
		tag("valve-1", "open", "", v1alpha1.QualityBad, func(t *v1alpha1.TagValue) {
			t.Unit, t.Value, t.Status, t.SourceTime, t.Message = "", nil, "Bad_NoCommunication", nil, "connection refused\x07"
		}),
	}}
}

// Req: P-15
func TestTagsShowValueQualityStatusAndAge(t *testing.T) {
	s := newSession(mixer()).units(nil, mixerTags(), nil).run(t, "tags", "mixer").wantOK(t)
	wantText(t, s.out, `TAG             VALUE     UNIT     QUALITY     STATUS                      AGE
pump-3/speed    1450.5    1/min    Good        Good                        1s
pump-3/temp     61        °C       Uncertain   Uncertain_LastUsableValue   7s
valve-1/batch   " `+"\uFFFD"+`[2J"   <none>   Good        Good                        in 60s
valve-1/open    <none>    <none>   Bad         Bad_NoCommunication         <none>
`)
	for _, test := range []struct {
		name  string
		args  []string
		wants []string
		lines int
	}{
		{"with where they come from", []string{"-o", "wide"}, []string{"ACCESS      IOMODULE   ADDRESS     MESSAGE\n", "ReadWrite   plc-1      holding:7   connection refused\uFFFD\n"}, 5},
		{"without headers", []string{"--no-headers"}, []string{"pump-3/speed "}, 4},
		{"names, as write takes them", []string{"-o", "name"}, []string{"pump-3/speed\npump-3/temp\nvalve-1/batch\nvalve-1/open\n"}, 4},
		{"of a ControlModule", []string{"pump-3", "-o", "name"}, []string{"pump-3/speed\npump-3/temp\n"}, 2},
		{"single ones", []string{"pump-3/temp", "valve-1/open", "-o", "name"}, []string{"pump-3/temp\nvalve-1/open\n"}, 2},
		{"yaml", []string{"-o", "yaml", "valve-1"}, []string{"kind: UnitTags\n", "status: Bad_NoCommunication\n"}, -1},
		{"json", []string{"-o", "json", "pump-3/speed"}, []string{`"kind": "UnitTags"`, `"value": "1450.5"`}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer()).units(nil, mixerTags(), nil).run(t, append([]string{"tags", "mixer"}, test.args...)...).wantOK(t)
			wantContains(t, s.out, test.wants...)
			if lines := strings.Count(s.out, "\n"); test.lines >= 0 && lines != test.lines {
				t.Errorf("%d lines:\n%s", lines, s.out)
			}
			if strings.ContainsAny(s.out, "\x1b\x07") {
				t.Errorf("raw: %q", s.out)
			}
		})
	}
}

func TestTagsThatAreNoneSayWhy(t *testing.T) {
	s := newSession(mixer()).units(nil, &v1alpha1.UnitTags{}, nil).run(t, "tags", "mixer").wantOK(t)
	wantContains(t, s.errOut, "Unit mixer has no tags: no ControlModule whose unitRef names it declares any.\n")
	for _, test := range []struct {
		args      []string
		out, told string
	}{
		{[]string{"pump-4"}, "", "error: Unit mixer has no tag of this name: pump-4\nSee which it has: kubectl fieldplane -n site-a tags mixer -o name\n"},
		{[]string{"pump-3/sped", "pump-3/speed", "pump-4/speed"}, "pump-3/speed", "error: Unit mixer has no tag of this name: pump-3/sped, pump-4/speed\n"},
		{[]string{"pump-3/sped", "-o", "name"}, "", "no tag of this name: pump-3/sped\n"},
		{[]string{"pump-3/sped", "-o", "json"}, `"kind": "UnitTags"`, "no tag of this name: pump-3/sped\n"},
	} {
		s = newSession(mixer()).units(nil, mixerTags(), nil).run(t, append([]string{"tags", "mixer"}, test.args...)...)
		wantContains(t, s.out, test.out)
		wantContains(t, s.errOut, test.told)
		if s.code != exitFailed {
			t.Errorf("%q: exit code %d", test.args, s.code)
		}
	}
}

// Req
func TestTagsTellWhatTheServerAnswers(t *testing.T) {
	group := v1alpha1.Resource("units")
	for _, test := range []struct {
		name       string
		args       []string
		answer     error
		what, todo string
	}{
		{"no Unit", []string{"tags"}, nil, "which Unit is not said", "kubectl get units -A"},
		{"an output that is none", []string{"tags", "mixer", "-o", "table"}, nil, "-o table is not possible", "-o wide, json, yaml or name"},
		{"names that change", []string{"tags", "mixer", "-w", "-o", "name"}, nil, "-o name is not possible with -w", "Leave one"},
		{"there is no such Unit", []string{"tags", "mixer"}, apierrors.NewNotFound(group, "mixer"), "there is no Unit mixer in namespace site-a", "kubectl get units -A"},
		{"the right is missing", []string{"tags", "mixer"}, apierrors.NewForbidden(group, "mixer", errors.New("no")), "forbidden", "it is get on units/tags, which the ClusterRole fieldplane-view has"},
		{"the runtime is away", []string{"tags", "mixer"}, apierrors.NewServiceUnavailable("the runtime is not in contact"), "the runtime is not in contact", "kubectl -n site-a describe unit mixer"},
		{"the server is older", []string{"tags", "mixer"}, apierrors.NewGenericServerResponse(404, "get", group, "mixer", "404 page not found", 0, true), "does not know units/tags", "--version"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newSession(mixer()).units(nil, nil, test.answer).run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
}

func TestCompletionOffersTagsToWriteAndToSee(t *testing.T) {
	controlModule := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "pump-3"}, Spec: v1alpha1.ControlModuleSpec{
		UnitRef: v1alpha1.UnitReference{Name: "mixer"},
		Tags:    []v1alpha1.Tag{{Name: "speed", Access: v1alpha1.AccessReadWrite, DataType: v1alpha1.DataTypeInt16, Unit: "1/min"}, {Name: "temp"}},
	}}
	another := controlModule.DeepCopy()
	another.Name, another.Spec.UnitRef.Name = "pump-4", "other"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"tags", "mixer", ""}, "pump-3/speed\tint16 1/min\npump-3/temp\n:4\n"},
		{[]string{"tags", "mixer", "pump-3/t"}, "pump-3/temp\n:4\n"},
		{[]string{"write", "mixer", ""}, "pump-3/speed=\tint16 1/min\n:6\n"},
		{[]string{"write", "mixer", "x"}, ":6\n"},
	} {
		s := newSession(mixer(), controlModule, another).run(t, append([]string{"__complete"}, test.args...)...).wantOK(t)
		if !strings.HasPrefix(s.out, test.want) {
			t.Errorf("%v: %q", test.args, s.out)
		}
	}
}

// watching is a run of the plugin that goes on until it is ended.
type watching struct {
	*session
	t        *testing.T
	out, err buffer
	ended    chan int
}

// buffer is read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// begin runs the plugin with a stream of tags.
func begin(t *testing.T, s *session, args ...string) *watching {
	w := &watching{session: s, t: t, ended: make(chan int, 1)}
	go func() { w.ended <- s.execute(&w.out, &w.err, args) }()
	return w
}

// streaming gives the session a stream to open next.
func (s *session) streaming() *watch.FakeWatcher {
	stream := watch.NewFake()
	s.streams = append(s.streams, func() (watch.Interface, error) { return stream, nil })
	return stream
}

func (s *session) failing(err error) {
	s.streams = append(s.streams, func() (watch.Interface, error) { return nil, err })
}

// tick lets so much time go by and waits until the plugin has looked at it: a second tick is taken once the first is done.
func (w *watching) tick(duration time.Duration) *watching {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(duration))
	for range 2 {
		select {
		case w.ticks <- w.clock.Now():
		case code := <-w.ended:
			w.t.Fatalf("ended with %d\n%s%s", code, w.out.String(), w.err.String())
		case <-time.After(10 * time.Second):
			w.t.Fatalf("hangs\n%s%s", w.out.String(), w.err.String())
		}
	}
	return w
}

// send sends an event and waits until the plugin has taken it.
func (w *watching) send(stream *watch.FakeWatcher, event watch.EventType, object runtime.Object) {
	w.t.Helper()
	stream.Action(event, object)
	w.tick(0)
}

// until ticks until something was written.
func (w *watching) until(what string) *watching {
	w.t.Helper()
	for range 1000 {
		if strings.Contains(w.out.String()+w.err.String(), what) {
			return w
		}
		w.tick(0)
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("%q never comes:\n%q\n%s", what, w.out.String(), w.err.String())
	return w
}

func (w *watching) end(code int) *watching {
	w.t.Helper()
	w.interrupt()
	return w.wantEnd(code)
}

func (w *watching) wantEnd(code int) *watching {
	w.t.Helper()
	select {
	case have := <-w.ended:
		if have != code {
			w.t.Errorf("code %d, want %d\n%s", have, code, w.err.String())
		}
	case <-time.After(10 * time.Second):
		w.t.Fatal("does not end")
	}
	return w
}

// picture is the last picture that was drawn.
func (w *watching) picture() string {
	_, last, _ := lastCut(w.out.String(), home)
	last, _, _ = strings.Cut(last, clearRest)
	return strings.ReplaceAll(strings.ReplaceAll(last, clearLine, ""), "\r\n", "\n")
}

func lastCut(text, separator string) (before, after string, found bool) {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[:at], text[at+len(separator):], true
	}
	return text, "", false
}

// window is a terminal whose size changes while something is drawn on it.
type window struct {
	mu            sync.Mutex
	width, height int
}

func (w *window) pull(width, height int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.width, w.height = width, height
}

// terminal makes Out a terminal of a size.
func (s *session) terminal(width, height int) *window {
	w := &window{width: width, height: height}
	s.display = display{draws: true, size: func() (int, int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.width, w.height
	}}
	return w
}

func changedTags(tags ...v1alpha1.TagValue) *v1alpha1.UnitTags {
	return &v1alpha1.UnitTags{Items: tags}
}

// Req: P-15
func TestTagsAreDrawnOverOnATerminal(t *testing.T) {
	s := newSession(mixer())
	s.terminal(90, 24)
	stream := s.streaming()
	w := begin(t, s, "tags", "mixer", "-w").until("Connecting.")
	w.send(stream, watch.Added, mixerTags())
	wantText(t, w.tick(0).picture(), `Unit site-a/mixer   4 tags: 2 Good, 1 Uncertain, 1 Bad                            12:00:00
Live, heard 0s ago. Ctrl-C ends it.

TAG             VALUE     UNIT     QUALITY     STATUS                      AGE
pump-3/speed    1450.5    1/min    Good        Good                        1s
pump-3/temp     61        °C       Uncertain   Uncertain_LastUsableValue   7s
valve-1/batch   " `+"\uFFFD"+`[2J"   <none>   Good        Good                        in 60s
valve-1/open    <none>    <none>   Bad         Bad_NoCommunication         <none>`)
	drawn := w.out.String()
	if w.tick(0); w.out.String() != drawn {
		t.Error("draws what is there already")
	}

	w.send(stream, watch.Modified, &v1alpha1.UnitTags{
		Items:   []v1alpha1.TagValue{tag("pump-3", "temp", "62", v1alpha1.QualityGood)},
		Removed: []v1alpha1.TagReference{{ControlModule: "valve-1", Name: "batch"}, {ControlModule: "valve-1", Name: "open"}},
	})
	wantText(t, w.tick(3*time.Second).picture(), `Unit site-a/mixer   2 tags: 2 Good, 0 Uncertain, 0 Bad                            12:00:03
Live, heard 3s ago. Ctrl-C ends it.

TAG             VALUE     UNIT     QUALITY     STATUS                      AGE
pump-3/speed    1450.5    1/min    Good        Good                        4s
pump-3/temp     62        1/min    Good        Good                        4s`)

	w.end(exitDone)
	if before, after, ok := lastCut(w.out.String(), leaveScreen); !ok || strings.Count(before, enterScreen) != 1 || !strings.Contains(after, "12:00:03\nEnded at the time above") || !strings.Contains(after, "\npump-3/temp     62 ") || strings.Contains(after, "\x1b") {
		t.Errorf("the terminal is not given back with the last values: %q", after)
	}
}

func TestATerminalThatIsTooSmallShowsWhatFitsAndTellsTheRest(t *testing.T) {
	s := newSession(mixer())
	window := s.terminal(60, 8)
	stream := s.streaming()
	w := begin(t, s, "tags", "mixer", "-w").until("Connecting.")
	tags := &v1alpha1.UnitTags{}
	for i := range 20 {
		quality := v1alpha1.QualityGood
		if i%10 == 9 {
			quality = v1alpha1.QualityBad
		}
		tags.Items = append(tags.Items, tag("cm", fmt.Sprintf("tag-%02d", i), "1", quality))
	}
	w.send(stream, watch.Added, tags)
	wantText(t, w.tick(0).picture(), `Unit site-a/mixer   20 tags: 18 Good, 0 Uncertain, 2 Bad
Live, heard 0s ago. Ctrl-C ends it.

TAG         VALUE   UNIT    QUALITY   STATUS   AGE
cm/tag-00   1       1/min   Good      Good     1s
cm/tag-01   1       1/min   Good      Good     1s
cm/tag-02   1       1/min   Good      Good     1s
17 more, 2 of them not Good, do not fit. Name what you want…`)

	window.pull(30, 24)
	picture := w.tick(0).picture()
	wantContains(t, picture, "Unit site-a/mixer   20 tags: …\n", "\ncm/tag-19   1       1/min   B…")
	for _, line := range strings.Split(picture, "\n") {
		if columnsOf(line) > 30 {
			t.Errorf("wider than the terminal: %q", line)
		}
	}
	for height := range 8 {
		window.pull(30, height)
		if lines := strings.Count(w.tick(0).picture(), "\n") + 1; lines > max(1, height) {
			t.Errorf("%d lines on a terminal of %d", lines, height)
		}
	}
	w.end(exitDone)
}

// Req: P-15
func TestALostStreamIsToldAndTakenUpAgain(t *testing.T) {
	s := newSession(mixer())
	s.terminal(120, 24)
	first := s.streaming()
	s.failing(apierrors.NewServiceUnavailable("the runtime is not in contact\x1b"))
	second := s.streaming()
	third := s.streaming()
	w := begin(t, s, "tags", "mixer", "-w", "pump-3/speed").until("Connecting.")
	w.send(first, watch.Added, mixerTags())
	w.tick(0)
	w.send(first, watch.Error, &metav1.Status{Message: "the runtime fell silent", Code: 503})
	w.until("STREAM LOST 0s ago: what is shown is what came last. Connecting again: the runtime is not in contact\uFFFD")
	wantContains(t, w.tick(0).picture(), "Unit site-a/mixer   1 tags ", "pump-3/speed   1450.5   1/min   was Good ")
	w.tick(time.Second).tick(0)
	// It is open again and has said nothing: what was known is not known to be true yet.
	wantContains(t, w.picture(), "STREAM LOST 1s ago", "was Good")
	w.send(second, watch.Added, changedTags(tag("pump-3", "speed", "7", v1alpha1.QualityGood)))
	wantContains(t, w.tick(0).picture(), "Live, heard 0s ago", "pump-3/speed   7        1/min   Good ")

	// Bookmarks are signs of life; without any the stream is as good as lost.
	w.tick(streamSilence)
	w.send(second, watch.Bookmark, &v1alpha1.UnitTags{})
	wantContains(t, w.tick(streamQuiet).picture(), "Live, heard 7s ago", " Good ")
	wantContains(t, w.tick(streamSilence-streamQuiet).picture(), "Nothing was heard for 12s: what is shown is what came last.", "was Good")
	wantContains(t, w.tick(time.Second).until("nothing was heard of it any more").picture(), "STREAM LOST", "was Good")
	w.send(third, watch.Added, changedTags(tag("pump-3", "speed", "8", v1alpha1.QualityGood)))
	wantContains(t, w.tick(0).picture(), "Live, heard 0s ago", "pump-3/speed   8 ")
	w.end(exitDone)
}

func TestAStreamThatCanNeverComeEndsTheWatch(t *testing.T) {
	group := v1alpha1.Resource("units")
	for _, test := range []struct {
		name   string
		answer error
		want   string
	}{
		{"there is no such Unit", apierrors.NewNotFound(group, "mixer"), "error: there is no Unit mixer in namespace site-a\n"},
		{"the right is missing", apierrors.NewForbidden(group, "mixer", errors.New("no")), "it is watch on units/tags, which the ClusterRole fieldplane-view has"},
		{"the server is older", apierrors.NewGenericServerResponse(404, "get", group, "mixer", "404 page not found", 0, true), "does not know units/tags"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.failing(test.answer)
			w := begin(t, s, "tags", "mixer", "-w").wantEnd(exitFailed)
			wantContains(t, w.err.String(), test.want)
		})
	}

	// The same, of a Unit that is deleted while it is watched.
	s := newSession(mixer())
	s.terminal(80, 24)
	stream := s.streaming()
	s.failing(apierrors.NewNotFound(group, "mixer"))
	w := begin(t, s, "tags", "mixer", "-w").until("Connecting.")
	w.send(stream, watch.Added, mixerTags())
	stream.Stop()
	go func() {
		for {
			select {
			case s.ticks <- s.clock.Now():
			case <-t.Context().Done():
				return
			}
		}
	}()
	w.wantEnd(exitFailed)
	wantContains(t, w.out.String(), leaveScreen)
	wantContains(t, w.err.String(), "there is no Unit mixer")
}

func TestAStreamThatIsNotAnsweredIsAskedForAgain(t *testing.T) {
	s := newSession(mixer())
	asked, hangs := make(chan struct{}), make(chan struct{})
	defer close(hangs)
	s.streams = append(s.streams, func() (watch.Interface, error) { close(asked); <-hangs; return nil, errors.New("late") })
	stream := s.streaming()
	w := begin(t, s, "tags", "mixer", "-w").tick(0)
	<-asked
	w.tick(openTimeout + time.Second).until("The stream is lost: no answer from the server.").tick(time.Second)
	w.send(stream, watch.Added, mixerTags())
	w.tick(0)
	wantContains(t, w.out.String(), "pump-3/speed")
	w.end(exitDone)
}

// Req: P-15
func TestTagsAreLinesWhereNothingIsDrawn(t *testing.T) {
	s := newSession(mixer())
	stream, second := s.streaming(), s.streaming()
	w := begin(t, s, "tags", "mixer", "-w").tick(0)
	w.send(stream, watch.Added, mixerTags())
	later := tag("pump-3", "speed", "1450.5", v1alpha1.QualityGood, func(t *v1alpha1.TagValue) { t.SourceTime = ptr.To(metav1.NewMicroTime(now())) })
	w.send(stream, watch.Modified, changedTags(later))
	w.send(stream, watch.Bookmark, &v1alpha1.UnitTags{})
	w.tick(1500 * time.Millisecond)
	w.send(stream, watch.Modified, &v1alpha1.UnitTags{Items: []v1alpha1.TagValue{tag("pump-3", "speed", "1451", v1alpha1.QualityGood)}, Removed: []v1alpha1.TagReference{{ControlModule: "valve-1", Name: "open"}}})
	w.tick(0)
	stream.Stop()
	w.until("The stream is lost: the server ended it").tick(time.Second)
	all := mixerTags()
	all.Items = all.Items[:2]
	all.Items[0].Value = ptr.To("0")
	w.send(second, watch.Added, all)
	w.tick(0).end(exitDone)
	wantText(t, w.out.String(), `TIME                       TAG             VALUE     UNIT     QUALITY     STATUS
2026-11-29T12:00:00.000Z   pump-3/speed    1450.5    1/min    Good        Good
2026-11-29T12:00:00.000Z   pump-3/temp     61        °C       Uncertain   Uncertain_LastUsableValue
2026-11-29T12:00:00.000Z   valve-1/batch   " `+"\uFFFD"+`[2J"   <none>   Good        Good
2026-11-29T12:00:00.000Z   valve-1/open    <none>    <none>   Bad         Bad_NoCommunication
2026-11-29T12:00:01.500Z   pump-3/speed    1451      1/min    Good        Good
2026-11-29T12:00:01.500Z   valve-1/open    <none>    <none>   removed     <none>
2026-11-29T12:00:02.500Z   pump-3/speed    0         1/min    Good        Good
2026-11-29T12:00:02.500Z   valve-1/batch   <none>    <none>   removed     <none>
`)
	wantText(t, w.err.String(), `2026-11-29T12:00:01.500Z The stream is lost: the server ended it. No value is known to be true any more; connecting again.
2026-11-29T12:00:02.500Z The stream is back after 1s.
`)
}

func TestTagsAreObjectsWhenObjectsAreAskedFor(t *testing.T) {
	s := newSession(mixer())
	// Objects are for programs, even where somebody looks at them.
	s.terminal(80, 24)
	stream := s.streaming()
	w := begin(t, s, "tags", "mixer", "pump-3/speed", "-w", "-o", "json").tick(0)
	w.send(stream, watch.Added, mixerTags())
	w.send(stream, watch.Modified, changedTags(tag("pump-3", "temp", "1", v1alpha1.QualityGood)))
	w.send(stream, watch.Modified, changedTags(tag("pump-3", "speed", "2", v1alpha1.QualityGood)))
	w.tick(0).end(exitDone)
	if have := w.out.String(); strings.Count(have, `"kind": "UnitTags"`) != 2 || !strings.Contains(have, `"value": "2"`) || strings.Contains(have, "temp") || strings.Contains(have, "\x1b") {
		t.Error(have)
	}
}

func TestAStreamThatSendsSomethingElseIsLost(t *testing.T) {
	s := newSession(mixer())
	stream := s.streaming()
	w := begin(t, s, "tags", "mixer", "-w").tick(0)
	w.send(stream, watch.Added, runtime.Object(mixer()))
	w.until("The stream is lost: the server sent a *v1alpha1.Unit.").end(exitDone)
}

func TestTriesToReconnectBecomeSlower(t *testing.T) {
	last := time.Duration(-1)
	for failures := range 10 {
		wait := untilNextTry(failures)
		if wait < last || wait > 5*time.Second {
			t.Errorf("%s after %d failures, %s before", wait, failures, last)
		}
		last = wait
	}
}
