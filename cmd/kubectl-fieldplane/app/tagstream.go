package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

const (
	// frameEvery is how often a display that is drawn on is looked after; more changes than that nobody could read.
	frameEvery = 200 * time.Millisecond
	// streamSilence is how long a stream may say nothing: the server sends a bookmark after 5 s without a change.
	streamSilence = 12 * time.Second
	// streamQuiet is how long it may say nothing until what it told last is no longer shown as true.
	streamQuiet = 7 * time.Second
	// openTimeout bounds the opening of a stream: the server waits up to 10 s for the first values.
	openTimeout = 15 * time.Second
)

// untilNextTry is the time to the next try to open a lost stream: at once, and then ever more slowly.
func untilNextTry(failures int) time.Duration {
	waits := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second}
	return waits[min(failures, len(waits)-1)]
}

// tagView shows a board of tags in one way or another.
type tagView interface {
	// changed is called after an event was put on the board. Bookmarks change nothing.
	changed(board *tagBoard, event watch.EventType, tags *v1alpha1.UnitTags) error
	// lost is called when the stream is lost, and found when it is back.
	lost(board *tagBoard)
	found(board *tagBoard, after time.Duration)
	// frame is called every frameEvery.
	frame(board *tagBoard) error
	close(board *tagBoard)
}

// watch shows the tags until it is interrupted, or it is certain that no stream of them comes any more.
func (c *tagsCommand) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	board := newTagBoard(c.clock.Now())
	view := c.view()
	err := c.follow(ctx, board, view)
	view.close(board)
	return err
}

// opened is what came of opening a stream.
type opened struct {
	stream watch.Interface
	err    error
}

func (c *tagsCommand) follow(ctx context.Context, board *tagBoard, view tagView) error {
	ticks, stop := c.ticks(frameEvery)
	defer stop()
	var (
		opening      chan opened
		stream       watch.Interface
		events       <-chan watch.Event
		giveUp       = context.CancelFunc(func() {})
		since        time.Time
		next         = c.clock.Now()
		failures     int
		open, closed func(error)
	)
	open = func(error) {
		openCtx, cancel := context.WithCancel(ctx)
		opening, giveUp, since = make(chan opened, 1), cancel, c.clock.Now()
		answer := opening
		go func() {
			stream, err := c.watchTags(openCtx, c.namespace, c.unit)
			answer <- opened{stream, err}
		}()
	}
	closed = func(err error) {
		giveUp()
		if stream != nil {
			stream.Stop()
		}
		opening, stream, events = nil, nil, nil
		next = c.clock.Now().Add(untilNextTry(failures))
		failures++
		if board.lose(c.clock.Now(), err) {
			view.lost(board)
		}
	}
	defer func() {
		giveUp()
		if stream != nil {
			stream.Stop()
		}
	}()
	open(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case result := <-opening:
			opening = nil
			switch {
			case ctx.Err() != nil:
				return nil
			case result.err == nil:
				stream, events, since = result.stream, result.stream.ResultChan(), c.clock.Now()
			case !lost(result.err):
				return c.attempt("watch").explain(result.err)
			default:
				closed(result.err)
			}
		case event, ok := <-events:
			switch {
			case !ok:
				closed(errors.New("the server ended it"))
				continue
			case event.Type == watch.Error:
				closed(apierrors.FromObject(event.Object))
				continue
			}
			tags, ok := event.Object.(*v1alpha1.UnitTags)
			if !ok {
				closed(fmt.Errorf("the server sent a %T", event.Object))
				continue
			}
			failures, since = 0, c.clock.Now()
			if after, back := board.put(c.clock.Now(), event.Type, tags, c.shows); back {
				view.found(board, after)
			}
			if err := view.changed(board, event.Type, tags); err != nil {
				return err
			}
		case <-ticks:
			now := c.clock.Now()
			switch {
			case opening != nil && now.Sub(since) > openTimeout:
				closed(errors.New("no answer from the server"))
			case events != nil && now.Sub(since) > streamSilence:
				closed(errors.New("nothing was heard of it any more"))
			case opening == nil && events == nil && !now.Before(next):
				open(nil)
			}
			if err := view.frame(board); err != nil {
				return err
			}
		}
	}
}
