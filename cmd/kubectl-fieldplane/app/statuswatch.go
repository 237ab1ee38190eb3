package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusEvery is how often the plant is read anew.
const statusEvery = 2 * time.Second

// watch shows the plant until it is interrupted. It ends with an error only when nothing could be read at all, at the start,
// and the server said why.
func (c *statusCommand) watch(ctx context.Context) error {
	ticks, stop := c.ticks(frameEvery)
	defer stop()
	to := c.display()
	view := &statusView{statusCommand: c, to: to, screen: &screen{out: c.Out, colours: to.colours}, since: c.clock.Now()}
	defer view.close()

	type reading struct {
		plant *plant
		err   error
	}
	var answer chan reading
	next := c.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case read := <-answer:
			answer, next = nil, c.clock.Now().Add(statusEvery)
			switch {
			case ctx.Err() != nil:
				return nil
			case read.err != nil && !lost(errors.Unwrap(read.err)):
				return read.err
			}
			view.read(read.plant, read.err)
		case <-ticks:
			if answer == nil && !c.clock.Now().Before(next) {
				answer = make(chan reading, 1)
				to := answer
				go func() {
					plant, err := c.read(ctx)
					to <- reading{plant, err}
				}()
			}
			if err := view.frame(); err != nil {
				return err
			}
		}
	}
}

// statusView shows one reading after another: as a picture on a terminal, elsewhere as a line for each change.
type statusView struct {
	*statusCommand
	to     display
	screen *screen

	plant *plant
	// err says why the last reading failed; since is when the first of them did, or the last one succeeded.
	err   error
	since time.Time
	// states are what was told last of each object, notes which notes were told.
	states map[string]string
	notes  string

	drawn drawn
	// changes counts readings.
	changes int
}

func (v *statusView) read(plant *plant, err error) {
	v.changes++
	if err != nil {
		if v.err == nil {
			if !v.to.draws {
				fmt.Fprintf(v.ErrOut, "%s Nothing can be read: %s. Trying again.\n", v.clock.Now().UTC().Format(stamp), firstLine(err))
			}
		}
		v.err = err
		return
	}
	if v.err != nil && !v.to.draws {
		fmt.Fprintf(v.ErrOut, "%s It can be read again.\n", v.clock.Now().UTC().Format(stamp))
	}
	v.plant, v.err, v.since = plant, nil, v.clock.Now()
	if !v.to.draws {
		v.tellChanges()
	}
}

// tellChanges writes a line for each object that is otherwise than it was, and for each that is well or gone.
func (v *statusView) tellChanges() {
	now := v.clock.Now().UTC().Format(stamp)
	if notes := strings.Join(v.plant.notes, "\n"); notes != v.notes {
		v.notes = notes
		if notes != "" {
			fmt.Fprintln(v.ErrOut, notes)
		}
	}
	first := v.states == nil
	if first {
		fmt.Fprintf(v.Out, "%s %s\n", now, v.plant.summary(v.where()).render(0, false))
	}
	states := map[string]string{}
	for _, section := range v.plant.sections() {
		for _, row := range section.rows {
			name := row.kind.Kind + " " + row.namespace + "/" + row.name
			state := clean(row.state)
			states[name] = state
			if old, had := v.states[name]; !had || old != state {
				fmt.Fprintf(v.Out, "%s %s: %s\n", now, clean(name), orNone(state))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.states)) {
		if _, still := states[name]; !still && !v.unread(name) {
			fmt.Fprintf(v.Out, "%s %s: nothing to tell any more\n", now, clean(name))
		}
	}
	// What could not be read this time stands as it was told last.
	for name, state := range v.states {
		if v.unread(name) {
			states[name] = state
		}
	}
	v.states = states
}

// unread tells whether an object's kind is missing from the last reading.
func (v *statusView) unread(name string) bool {
	kind, _, _ := strings.Cut(name, " ")
	return v.plant.missing[strings.ToLower(kind)+"s"]
}

func (v *statusView) frame() error {
	if !v.to.draws {
		return nil
	}
	width, height := v.to.size()
	now := drawn{changes: v.changes, second: v.clock.Now().Unix(), width: width, height: height}
	if now == v.drawn {
		return nil
	}
	v.drawn = now
	return v.screen.draw(v.picture(width, height), width, height)
}

// picture is the plant as far as it fits, with what is worst first in each table.
func (v *statusView) picture(width, height int) []line {
	now := v.clock.Now()
	header := line{{"Read " + age(now, metav1.NewTime(v.since)) + " ago. Ctrl-C ends it.", fine}}
	switch {
	case v.err != nil && v.plant == nil:
		header = line{{"Nothing could be read yet; trying again: " + firstLine(v.err), wrong}}
	case v.err != nil:
		header = line{{"NOT READ FOR " + age(now, metav1.NewTime(v.since)) + ": what is shown is how it was then. Trying again: " + firstLine(v.err), wrong}}
	case v.plant == nil:
		header = line{{"Connecting.", aside}}
	}
	lines := []line{spread(header[0], now.Format("15:04:05"), width)}
	if v.plant == nil {
		return lines
	}
	for _, note := range v.plant.notes {
		lines = append(lines, line{{note, doubtful}})
	}
	// Ages go on, whatever became of the server.
	v.plant.now = now
	lines = append(lines, v.plant.summaryLines(v.where(), width)...)
	shown := v.tables(v.plant, false)
	if len(lines)+len(shown) > height {
		shown = v.tables(v.plant, true)
	}
	lines = append(lines, shown...)
	if len(lines) > height && height > 1 {
		hidden := len(lines) - height + 1
		lines = append(lines[:height-1], line{{fmt.Sprintf("%d more lines do not fit; without -w all are shown", hidden), doubtful}})
	}
	return lines
}

// close leaves the last picture on the terminal, as lines.
func (v *statusView) close() {
	v.screen.close()
	if !v.to.draws || v.plant == nil {
		return
	}
	width, height := v.to.size()
	for _, line := range v.picture(width, height) {
		fmt.Fprintln(v.Out, line.render(width, v.to.colours))
	}
}

func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return clean(first)
}
