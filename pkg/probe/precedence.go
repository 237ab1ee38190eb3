package probe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// precedence has a supervisor's checks go before all others that read its device: on a connection that does one thing at a time,
// each of them would take a whole timeout of a device that has fallen silent, and the verdict would be late (P-16). So
//   - readers go one at a time, and none begins while a check waits or is under way;
//   - silence that a reader meets is checked at once, and the readers after it wait for what comes of that;
//   - while the checks meet silence, readers are told so, and ask nothing.
//
// Writes do not wait here: a hold value is tried whatever is known.
type precedence struct {
	// soon holds one element when a check should not wait for its time.
	soon chan struct{}

	mu sync.Mutex
	// reading: a reader uses the device. checking: a check waits or is under way. doubt: a reader met silence, and no check ended since.
	reading, checking, doubt bool
	// silence is what the last check met, if that was silence.
	silence error
	// readers are those that wait, in the order in which they came; each is sent nil when it is its turn, or an error.
	readers []chan error
	// read is closed when the reader that uses the device has ended.
	read chan struct{}
}

func newPrecedence() *precedence { return &precedence{soon: make(chan struct{}, 1)} }

// change makes a change, and lets a reader go on, or all of them, if that follows.
func (p *precedence) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	for len(p.readers) > 0 && (p.silence != nil || !p.reading && !p.checking && !p.doubt) {
		if p.silence == nil {
			p.reading, p.read = true, make(chan struct{})
		}
		p.readers[0] <- p.silence
		p.readers = slices.Delete(p.readers, 0, 1)
	}
}

// beginCheck keeps readers from beginning, and waits for the one that has begun; not longer than patience, since that one
// may ask for much of a device that is well, which the driver serves bit by bit.
func (p *precedence) beginCheck(ctx context.Context, c clock.Clock, patience time.Duration) {
	select {
	case <-p.soon:
	default:
	}
	var read chan struct{}
	p.change(func() {
		p.checking = true
		if p.reading {
			read = p.read
		}
	})
	if read == nil {
		return
	}
	timer := c.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-read:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// endCheck lets readers go on, or tells them of silence.
func (p *precedence) endCheck(err error) {
	p.change(func() {
		p.checking, p.doubt = false, false
		if err == nil || driver.ReasonOf(err) != driver.ReasonNotMeasured {
			p.silence = nil
		}
		if isSilence(err) {
			p.silence = err
		}
	})
}

// beginRead waits for a reader's turn, in the order in which they came. The error is that of the device where it is known to be silent.
func (p *precedence) beginRead(ctx context.Context) error {
	turn := make(chan error, 1)
	p.change(func() { p.readers = append(p.readers, turn) })
	select {
	case err := <-turn:
		return err
	case <-ctx.Done():
	}
	waits := false
	p.change(func() {
		i := slices.Index(p.readers, turn)
		if waits = i >= 0; waits {
			p.readers = slices.Delete(p.readers, i, i+1)
		}
	})
	if !waits && <-turn == nil {
		// The turn came in the same moment: pass it on.
		p.endRead(nil)
	}
	return &driver.Error{Reason: driver.ReasonNotMeasured, Err: errors.New("not asked: those before it took all of its time")}
}

// endRead lets the next one go on, after a check if this one met silence.
func (p *precedence) endRead(err error) {
	silent := isSilence(err)
	p.change(func() {
		p.reading = false
		close(p.read)
		p.doubt = p.doubt || silent
	})
	if silent {
		select {
		case p.soon <- struct{}{}:
		default:
		}
	}
}

// isSilence tells whether an error is that of a device that did not answer.
func isSilence(err error) bool {
	failure, ok := errors.AsType[*driver.Error](err)
	return ok && !failure.Answered && failure.Reason == driver.ReasonTimeout
}
