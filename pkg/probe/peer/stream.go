package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"
)

// StaleError says that a peer stopped talking: what it said last is no longer known to be true.
type StaleError struct {
	// Who fell silent, such as "the probe".
	Who     string
	Silence time.Duration
}

// Error tells for how long.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%s has said nothing for %s", e.Who, e.Silence)
}

// Stream is what is expected of a stream of JSON documents, one a line.
type Stream struct {
	// Who speaks, such as "the probe".
	Who   string
	Clock clock.Clock
	// Silence is how long it may say nothing.
	Silence time.Duration
	// MaxMessage bounds one document, in bytes.
	MaxMessage int
}

// Follow calls handle with every document, and returns when it refuses one, the stream ends, falls silent (*StaleError), or
// ctx ends. The error is never nil. It closes the body, and nothing of it runs any more when it returns.
func Follow[T any](ctx context.Context, s Stream, body io.ReadCloser, handle func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	documents := make(chan T)
	ended := make(chan error, 1)
	go func() { ended <- read(ctx, s, body, documents) }()
	defer func() {
		// Closing ends the reader, and the reader is waited for.
		cancel()
		_ = body.Close()
		<-ended
	}()

	timer := s.Clock.NewTimer(s.Silence)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
			return &StaleError{Who: s.Who, Silence: s.Silence}
		case err := <-ended:
			ended <- err
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		case document := <-documents:
			if !timer.Stop() {
				select {
				case <-timer.C():
				default:
				}
			}
			timer.Reset(s.Silence)
			if err := handle(document); err != nil {
				return fmt.Errorf("the stream of %s: %w", s.Who, err)
			}
		}
	}
}

const (
	// mostPerSecond and mostAtOnce bound how many documents of a stream are taken: each may cost a walk through a thousand modules,
	// and whoever has a namespace's pod in hand could keep this process busy with nothing. When a whole plant changes at once, a
	// probe says a thousand things in a second; who waits here is told the latest of each then (P-12, P-16).
	mostPerSecond = 2000
	mostAtOnce    = 4000
)

// pace is when the next document would be due, had all come at mostPerSecond. What waits is the kernel's, hence the real time.
type pace struct{ due time.Time }

// wait waits until a document may be taken; false when ctx ends.
func (p *pace) wait(ctx context.Context) bool {
	const each = time.Second / mostPerSecond
	now := time.Now()
	if earliest := now.Add(-mostAtOnce * each); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(each)
	early := p.due.Sub(now)
	if early <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// read passes on one document a line.
func read[T any](ctx context.Context, s Stream, body io.Reader, documents chan<- T) error {
	lines := bufio.NewScanner(body)
	// It grows as it must: there may be a thousand streams of small documents.
	lines.Buffer(make([]byte, 0, min(4<<10, s.MaxMessage)), s.MaxMessage)
	var pace pace
	for lines.Scan() {
		if !pace.wait(ctx) {
			return ctx.Err()
		}
		var document T
		if err := decode(lines.Bytes(), &document); err != nil {
			return fmt.Errorf("the stream of %s: %w", s.Who, err)
		}
		select {
		case documents <- document:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the stream of %s: %w", s.Who, err)
	}
	return fmt.Errorf("%s closed the stream: %w", s.Who, io.EOF)
}
