package probe

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// sharing lets others use a supervised device beside its supervisor, until it ends.
type sharing struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	ended bool
	users sync.WaitGroup
}

func newSharing() *sharing {
	s := &sharing{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// join is a use of the device until leave, with a context that also ends when the supervisor does; false when it has ended.
func (s *sharing) join(ctx context.Context) (joined context.Context, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, false
	}
	s.users.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		s.users.Done()
	}, true
}

// end ends all uses and waits for them.
func (s *sharing) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.cancel()
	s.users.Wait()
}

// maxWriters is how many clients of one module are remembered: its Units' runtimes, and their former lives.
const maxWriters = 64

// writeOrder is the order of the writes to one module. It outlives the supervisor, as long as the module is in the config.
type writeOrder struct {
	// turn holds one element while somebody writes.
	turn chan struct{}

	mu sync.Mutex
	// newest is the highest sequence of each client, clients the order in which they came.
	newest  map[string]uint64
	clients []string
}

func newWriteOrder() *writeOrder {
	return &writeOrder{turn: make(chan struct{}, 1), newest: map[string]uint64{}}
}

// enter notes that a client's write came, so that none before it is done any more, and waits for its turn.
func (o *writeOrder) enter(ctx context.Context, client string, sequence uint64) (leave func(), err *driver.Error) {
	o.mu.Lock()
	newest, known := o.newest[client]
	if known && sequence <= newest {
		o.mu.Unlock()
		return nil, overtaken(sequence, newest)
	}
	if !known {
		if len(o.clients) == maxWriters {
			delete(o.newest, o.clients[0])
			o.clients = append(o.clients[:0], o.clients[1:]...)
		}
		o.clients = append(o.clients, client)
	}
	o.newest[client] = sequence
	o.mu.Unlock()

	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, &driver.Error{Reason: driver.ReasonNotMeasured, Err: errors.New("not sent: the writes before it took all of its time")}
	}
	leave = func() { <-o.turn }
	o.mu.Lock()
	newest = o.newest[client]
	o.mu.Unlock()
	if newest > sequence {
		leave()
		return nil, overtaken(sequence, newest)
	}
	return leave, nil
}

func overtaken(sequence, newest uint64) *driver.Error {
	return &driver.Error{Reason: driver.ReasonNotMeasured, Err: fmt.Errorf("not sent: it is write %d, and write %d came already", sequence, newest)}
}
