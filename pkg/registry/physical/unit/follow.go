package unit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// snapshotPatience bounds the wait for a runtime's first word.
	snapshotPatience = 10 * time.Second
	// bookmarkAfter is how long a watch says nothing before a bookmark tells that there was nothing to say.
	bookmarkAfter = 5 * time.Second
	// maxUntold bounds what waits for a reader, in bytes of names and texts: a reader that does not read, of a runtime that is in
	// the wrong hands and names ever other tags, must not take this process's memory (P-12). 20,000 tags take a fifth of it.
	maxUntold = 32 << 20
)

// errTooMuch ends a watch of which too much is untold.
var errTooMuch = errors.New("more tags wait to be read than the watch may keep: read faster, and look at the Unit's runtime")

// following is a watch of a Unit's tags. Between the runtime, which must never wait, and the reader, who may be slow, stands
// what the reader has not been told yet: of each tag the newest value.
type following struct {
	unit      *physical.Unit
	bookmarks bool
	clock     clock.Clock
	stop      context.CancelFunc
	events    chan watch.Event
	// news has room for one: there is something to tell.
	news chan struct{}

	mu      sync.Mutex
	size    int  // of untold and removed
	full    bool // more came than may be kept
	whole   bool // what is untold is a snapshot
	untold  map[api.TagKey]api.TagValue
	removed map[api.TagKey]bool
}

// follow begins a watch; it waits for the first values, so that what keeps them away is told as an error of the request.
func follow(ctx context.Context, runtimes Runtimes, unit *physical.Unit, bookmarks bool, clock clock.Clock) (watch.Interface, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &following{
		unit: unit, bookmarks: bookmarks, clock: clock, stop: stop, events: make(chan watch.Event), news: make(chan struct{}, 1),
		untold: map[api.TagKey]api.TagValue{}, removed: map[api.TagKey]bool{},
	}
	ended := make(chan error, 1)
	go func() { ended <- runtimes.FollowTags(ctx, unit, f.take) }()

	patience := clock.NewTimer(snapshotPatience)
	defer patience.Stop()
	select {
	case <-f.news:
		f.ring()
		// A watch takes one of the server's seats for requests until it has begun. Stores say that by themselves.
		flowcontrol.WatchInitialized(ctx)
		go f.tell(ctx, ended)
		return f, nil
	case err := <-ended:
		stop()
		return nil, err
	case <-ctx.Done():
		stop()
		<-ended
		return nil, ctx.Err()
	case <-patience.C():
		stop()
		<-ended
		return nil, apierrors.NewTimeoutError("the Unit's runtime did not send its tags in time", 0)
	}
}

// Stop ends the watch.
func (f *following) Stop() { f.stop() }

// ResultChan is closed when the watch has ended.
func (f *following) ResultChan() <-chan watch.Event { return f.events }

// take remembers what the runtime says until the reader is told.
func (f *following) take(event api.TagEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch event.Type {
	case api.TagSnapshot:
		f.whole = true
		f.forget()
	case api.TagChange:
	default:
		return
	}
	if f.full {
		return
	}
	for _, value := range event.Tags {
		key := api.TagKey{ControlModule: value.ControlModule, Name: value.Name}
		f.drop(key)
		f.untold[key] = value
		f.size += sizeOf(&value)
	}
	for _, key := range event.Removed {
		f.drop(key)
		if !f.whole {
			f.removed[key] = true
			f.size += len(key.ControlModule) + len(key.Name) + overhead
		}
	}
	if f.size > maxUntold {
		f.full = true
		f.forget()
	}
	f.ring()
}

// forget drops all that is untold.
func (f *following) forget() {
	clear(f.untold)
	clear(f.removed)
	f.size = 0
}

// drop drops what is untold of a tag.
func (f *following) drop(key api.TagKey) {
	if value, ok := f.untold[key]; ok {
		delete(f.untold, key)
		f.size -= sizeOf(&value)
	}
	if f.removed[key] {
		delete(f.removed, key)
		f.size -= len(key.ControlModule) + len(key.Name) + overhead
	}
}

// overhead is what a tag takes besides its texts, about.
const overhead = 200

func sizeOf(v *api.TagValue) int {
	size := overhead + 2*(len(v.ControlModule)+len(v.Name)) + len(v.IOModule) + len(v.Address) + len(v.Access) + len(v.Unit) + len(v.Message)
	if v.Value != nil {
		size += len(*v.Value)
	}
	return size
}

func (f *following) overflowed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}

// ring says that there is something to tell.
func (f *following) ring() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// untoldNow is the next event, and forgets what it tells.
func (f *following) untoldNow() (watch.Event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.whole && len(f.untold) == 0 && len(f.removed) == 0 {
		return watch.Event{}, false
	}
	var (
		values  []api.TagValue
		removed []api.TagKey
	)
	for _, value := range f.untold {
		values = append(values, value)
	}
	for key := range f.removed {
		removed = append(removed, key)
	}
	kind := watch.Modified
	if f.whole {
		kind = watch.Added
	}
	f.whole = false
	f.forget()
	return watch.Event{Type: kind, Object: tagsOf(f.unit, values, removed)}, true
}

// tell hands events to the reader until the runtime falls silent or the reader leaves.
func (f *following) tell(ctx context.Context, ended <-chan error) {
	defer close(f.events)
	quiet := f.clock.NewTimer(bookmarkAfter)
	defer quiet.Stop()
	for {
		var event watch.Event
		select {
		case <-f.news:
			if f.overflowed() {
				f.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(errTooMuch)})
				f.stop()
				<-ended
				return
			}
			var any bool
			if event, any = f.untoldNow(); !any {
				continue
			}
		case <-quiet.C():
			quiet.Reset(bookmarkAfter)
			if !f.bookmarks {
				continue
			}
			event = watch.Event{Type: watch.Bookmark, Object: &physical.UnitTags{ObjectMeta: metaOf(f.unit)}}
		case err := <-ended:
			// What came before the end is told before it.
			if event, any := f.untoldNow(); any {
				f.send(ctx, event)
			}
			f.send(ctx, watch.Event{Type: watch.Error, Object: statusOf(err)})
			f.stop()
			return
		case <-ctx.Done():
			<-ended
			return
		}
		if !f.send(ctx, event) {
			<-ended
			return
		}
		if !quiet.Stop() {
			select {
			case <-quiet.C():
			default:
			}
		}
		quiet.Reset(bookmarkAfter)
	}
}

func (f *following) send(ctx context.Context, event watch.Event) bool {
	select {
	case f.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// statusOf is how a watch tells why it ends.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewServiceUnavailable(err.Error())
	}
	status := api.Status()
	if status.Code == 0 {
		status.Code = http.StatusServiceUnavailable
	}
	return &status
}
