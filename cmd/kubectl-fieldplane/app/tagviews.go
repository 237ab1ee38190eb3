package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// stamp is how a line tells when something came.
const stamp = "2006-01-02T15:04:05.000Z"

// view is how the tags are shown: as a picture where one can be drawn, else as objects or as lines.
func (c *tagsCommand) view() tagView {
	to := c.display()
	switch {
	case c.output == "json" || c.output == "yaml":
		return &tagObjects{tagRemarks{c}}
	case to.draws:
		return &tagPicture{tagsCommand: c, to: to, screen: &screen{out: c.Out, colours: to.colours}}
	default:
		return &tagLines{tagRemarks: tagRemarks{c}}
	}
}

// tagRemarks tells on ErrOut what becomes of the stream, for views that leave Out to the values.
type tagRemarks struct{ *tagsCommand }

func (r tagRemarks) lost(board *tagBoard) {
	fmt.Fprintf(r.ErrOut, "%s The stream is lost: %s. No value is known to be true any more; connecting again.\n", r.stamp(), clean(board.why.Error()))
}

func (r tagRemarks) found(_ *tagBoard, after time.Duration) {
	fmt.Fprintf(r.ErrOut, "%s The stream is back after %s.\n", r.stamp(), age(r.clock.Now(), metav1.NewTime(r.clock.Now().Add(-after))))
}

func (tagRemarks) frame(*tagBoard) error { return nil }

func (tagRemarks) close(*tagBoard) {}

func (r tagRemarks) stamp() string { return r.clock.Now().UTC().Format(stamp) }

// tagObjects writes every event as an object.
type tagObjects struct{ tagRemarks }

func (v *tagObjects) changed(_ *tagBoard, event watch.EventType, tags *v1alpha1.UnitTags) error {
	if event == watch.Bookmark {
		return nil
	}
	shown := tags.DeepCopy()
	shown.Items = slices.DeleteFunc(shown.Items, func(tag v1alpha1.TagValue) bool { return !v.shows(tag.ControlModule, tag.Name) })
	shown.Removed = slices.DeleteFunc(shown.Removed, func(tag v1alpha1.TagReference) bool { return !v.shows(tag.ControlModule, tag.Name) })
	if len(shown.Items)+len(shown.Removed) == 0 && event != watch.Added {
		return nil
	}
	return v.printObject(shown)
}

// tagLines writes a line for each change of a value, a quality or a status, and none where only time went by.
type tagLines struct {
	tagRemarks
	widths  []int
	started bool
}

func (v *tagLines) changed(board *tagBoard, event watch.EventType, tags *v1alpha1.UnitTags) error {
	if event == watch.Bookmark {
		return nil
	}
	table := &grid{header: []string{"TIME", "TAG", "VALUE", "UNIT", "QUALITY", "STATUS"}, least: v.widths}
	if v.output == "wide" {
		table.header = append(table.header, "IOMODULE", "ADDRESS", "MESSAGE")
	}
	for i := range tags.Items {
		tag := &tags.Items[i]
		if !v.shows(tag.ControlModule, tag.Name) {
			continue
		}
		if old, had := board.before[v1alpha1.TagReference{ControlModule: tag.ControlModule, Name: tag.Name}]; had && sameReading(&old, tag) {
			continue
		}
		row := []span{{text: v.stamp()}, {text: tagName(tag.ControlModule, tag.Name)}, {text: shownValue(tag)}, {text: tag.Unit}, {text: string(tag.Quality)}, {text: tag.Status}}
		if v.output == "wide" {
			row = append(row, span{text: tag.IOModule}, span{text: tag.Address}, span{text: tag.Message})
		}
		table.add(row...)
	}
	for _, tag := range board.gone {
		row := make([]span, len(table.header))
		row[0], row[1], row[4] = span{text: v.stamp()}, span{text: tagName(tag.ControlModule, tag.Name)}, span{text: "removed"}
		table.add(row...)
	}
	if len(table.rows) == 0 {
		if !v.started {
			v.explainEmpty()
		}
		v.started = true
		return nil
	}
	for _, line := range table.lines(v.noHeaders || v.widths != nil) {
		if _, err := fmt.Fprintln(v.Out, line.render(0, false)); err != nil {
			return err
		}
	}
	v.widths, v.started = table.widths(), true
	return nil
}

// sameReading tells whether two readings differ in nothing but time.
func sameReading(a, b *v1alpha1.TagValue) bool {
	return (a.Value == nil) == (b.Value == nil) && (a.Value == nil || *a.Value == *b.Value) &&
		a.Quality == b.Quality && a.Status == b.Status && a.StatusCode == b.StatusCode
}

// tagPicture draws the tags over and over.
type tagPicture struct {
	*tagsCommand
	to     display
	screen *screen
	widths []int

	// drawn is of what the last picture was, so that nothing is drawn that looks the same.
	drawn drawn
}

// drawn is what a picture depends on. Ages grow by themselves, and somebody may have pulled at the window.
type drawn struct {
	changes       int
	second        int64
	width, height int
}

// A picture is drawn at the next frame, whatever happened until then.
func (*tagPicture) changed(*tagBoard, watch.EventType, *v1alpha1.UnitTags) error { return nil }

func (*tagPicture) lost(*tagBoard) {}

func (*tagPicture) found(*tagBoard, time.Duration) {}

func (v *tagPicture) frame(board *tagBoard) error {
	width, height := v.to.size()
	now := drawn{changes: board.changes, second: v.clock.Now().Unix(), width: width, height: height}
	if now == v.drawn {
		return nil
	}
	v.drawn = now
	return v.screen.draw(v.picture(board, width, height), width, height)
}

// close leaves the last picture on the terminal, as lines.
func (v *tagPicture) close(board *tagBoard) {
	v.screen.close()
	if !board.known {
		return
	}
	width, height := v.to.size()
	lines := v.picture(board, width, height)
	if board.live {
		lines[1] = line{{"Ended at the time above; nothing below is followed any more.", aside}}
	}
	for _, line := range lines {
		fmt.Fprintln(v.Out, line.render(width, v.to.colours))
	}
}

// picture is what the terminal shows: how many tags there are and how the stream is, and as many tags as there is room for.
func (v *tagPicture) picture(board *tagBoard, width, height int) []line {
	keys := board.sorted()
	now := v.clock.Now()
	lines := []line{
		spread(span{clean(fmt.Sprintf("Unit %s/%s   %s", v.namespace, v.unit, countTags(board, keys, now))), heading}, now.Format("15:04:05"), width),
		v.stream(board, now),
	}
	switch {
	case !board.known:
		return lines
	case len(keys) == 0 && len(v.only) > 0:
		return append(lines, nil, text("The Unit has no such tag."))
	case len(keys) == 0:
		return append(lines, nil, text("The Unit has no tags: no ControlModule whose unitRef names it declares any."))
	}
	lines = append(lines, nil)
	// The headers take a line, and so does the count of what does not fit.
	room := max(0, height-len(lines)-1)
	fits := len(keys)
	if fits > room {
		fits = max(0, room-1)
	}
	table := tagGrid(board.take(keys[:fits]), now, v.output == "wide", board.current(now))
	table.least = v.widths
	v.widths = table.widths()
	lines = append(lines, table.lines(v.noHeaders)...)
	if hidden := keys[fits:]; len(hidden) > 0 {
		_, uncertain, bad := board.count(hidden)
		note := fmt.Sprintf("%d more, %d of them not Good, do not fit. Name what you want to see: kubectl fieldplane tags %s MODULE[/TAG]", len(hidden), uncertain+bad, v.unit)
		emphasis := aside
		if uncertain+bad > 0 {
			emphasis = doubtful
		}
		lines = append(lines, line{{clean(note), emphasis}})
	}
	return lines
}

// stream says how the stream is.
func (v *tagPicture) stream(board *tagBoard, now time.Time) line {
	switch {
	case board.live && !board.current(now):
		return line{{fmt.Sprintf("Nothing was heard for %s: what is shown is what came last.", age(now, metav1.NewTime(board.heard))), doubtful}}
	case board.live:
		return line{{fmt.Sprintf("Live, heard %s ago. Ctrl-C ends it.", age(now, metav1.NewTime(board.heard))), fine}}
	case board.why == nil:
		return line{{"Connecting.", aside}}
	case board.known:
		return line{{clean(fmt.Sprintf("STREAM LOST %s ago: what is shown is what came last. Connecting again: %s", age(now, metav1.NewTime(board.at)), board.why)), wrong}}
	default:
		return line{{clean(fmt.Sprintf("No stream for %s. Connecting again: %s", age(now, metav1.NewTime(board.at)), board.why)), wrong}}
	}
}

func countTags(board *tagBoard, keys []v1alpha1.TagReference, now time.Time) string {
	if !board.known {
		return ""
	}
	good, uncertain, bad := board.count(keys)
	if !board.current(now) {
		return fmt.Sprintf("%d tags", len(keys))
	}
	return fmt.Sprintf("%d tags: %d Good, %d Uncertain, %d Bad", len(keys), good, uncertain, bad)
}

// spread puts a text at the left and one at the right, if there is room for both.
func spread(left span, right string, width int) line {
	left.text = strings.TrimSpace(left.text)
	room := width - columnsOf(left.text) - columnsOf(right)
	if room < 1 {
		return line{left}
	}
	return line{left, {text: strings.Repeat(" ", room)}, {text: right, tone: aside}}
}
