package runtimelink

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	// silence is how long a runtime may say nothing and still be in contact: three heartbeats. A stream that breaks and comes
	// back within it costs nothing.
	silence = 3 * api.Heartbeat
	// orderAge is how long after the last order that the runtime took it still is in contact: it takes the server for gone then.
	orderAge = api.Contact

	// newsAtOnce and newsEach bound how often a runtime's reports count as news: each may cost a write of the Unit's status, and a
	// pod in the wrong hands could have the store filled with them, to the harm of every other Unit (P-12). What waits is told by
	// the next look at the contact, the latest of it.
	newsAtOnce = 100
	newsEach   = 100 * time.Millisecond

	firstRetry = 100 * time.Millisecond
	// lastRetry is short: the order that waits may be one to hold.
	lastRetry = time.Second
)

// link is what goes to and comes from one pod.
type link struct {
	unit types.NamespacedName
	pod  podFacts

	runtime Runtime
	clock   clock.WithTicker
	// changed is called without the lock, and does not block. distrusted is told of each handshake that failed by a certificate.
	changed    func(types.NamespacedName)
	distrusted func(namespace string)

	cancel  context.CancelFunc
	running sync.WaitGroup
	// news wakes the sender.
	news chan struct{}

	mu    sync.Mutex
	order *api.Order
	// interrupt ends the request that is under way, if there is one.
	interrupt context.CancelFunc
	report    api.Report
	// heard is when the runtime was last heard, taken when it last took an order; the zero time is never.
	heard, taken time.Time
	// inContact is what was told last.
	inContact bool
	// due is when the next news would be due, had all come at their pace. owed: there is some that was not told yet.
	due  time.Time
	owed bool
}

// start follows the pod and sends it the order, if there is one.
func (l *link) start(ctx context.Context, order *api.Order) {
	ctx, l.cancel = context.WithCancel(ctx)
	if order != nil {
		l.tell(*order)
	}
	l.running.Go(func() { l.follow(ctx) })
	l.running.Go(func() { l.send(ctx) })
}

// stop returns when nothing of the link runs any more.
func (l *link) stop() {
	l.cancel()
	l.running.Wait()
	l.runtime.Close()
}

// tell takes an order. One that is under way is given up for one that asks for something else: the runtime may be slow to answer, and
// this one may be to hold.
func (l *link) tell(order api.Order) {
	l.mu.Lock()
	if l.interrupt != nil && l.order != nil && !sameButRevision(*l.order, order) {
		l.interrupt()
	}
	l.order = &order
	l.mu.Unlock()
	l.wake()
}

func sameButRevision(a, b api.Order) bool {
	a.Revision = b.Revision
	return a == b
}

// forget takes back the order.
func (l *link) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = nil
}

func (l *link) wake() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// send gives the order at once, every api.KeepAlive, and soon again when it was not taken.
func (l *link) send(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("unit", klog.KRef(l.unit.Namespace, l.unit.Name))
	pause, told := firstRetry, ""
	for {
		wait := api.KeepAlive
		if err := l.give(ctx); errors.Is(err, context.Canceled) {
			// It was given up for the next one, or for good.
			wait = 0
		} else if err != nil {
			// A lasting trouble is told once, and not that a program has yet to start.
			text := err.Error()
			if report, _ := l.look(); text != told && report.Runtime.BootID != "" {
				told = text
				log.Info("The runtime did not take an order", "address", l.pod.address, "err", text)
			}
			l.suspect(err)
			wait, pause = pause, min(2*pause, lastRetry)
		} else {
			pause, told = firstRetry, ""
		}
		timer := l.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.news:
			timer.Stop()
			pause = firstRetry
		case <-timer.C():
		}
	}
}

// give sends the order of now, if there is one.
func (l *link) give(ctx context.Context) error {
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	l.mu.Lock()
	if l.order == nil {
		l.mu.Unlock()
		return nil
	}
	order := *l.order
	l.interrupt = interrupt
	l.mu.Unlock()

	_, err := l.runtime.Put(ctx, order)

	l.mu.Lock()
	l.interrupt = nil
	if err == nil {
		l.taken = l.clock.Now()
	}
	l.mu.Unlock()
	l.judge()
	return err
}

// follow hears reports, again and again, with growing pauses while the runtime does not answer.
func (l *link) follow(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("unit", klog.KRef(l.unit.Namespace, l.unit.Name))
	pause := firstRetry
	for {
		heard := false
		err := l.runtime.WatchReports(ctx, func(report api.Report) {
			l.hear(report)
			if !heard {
				// It may have started anew, and know no order.
				l.wake()
			}
			heard = true
		})
		if ctx.Err() != nil {
			return
		}
		if heard {
			pause = firstRetry
			log.Info("The runtime's reports ended", "err", err.Error())
		} else {
			log.V(2).Info("The runtime cannot be followed", "address", l.pod.address, "err", err.Error())
		}
		l.suspect(err)
		timer := l.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		pause = min(2*pause, lastRetry)
	}
}

func (l *link) suspect(err error) {
	if peer.ByCertificate(err) {
		l.distrusted(l.unit.Namespace)
	}
}

// hear takes a report.
func (l *link) hear(report api.Report) {
	l.mu.Lock()
	news := !sameReport(l.report, report)
	l.report, l.heard = report, l.clock.Now()
	contact := l.contact()
	news = news || contact != l.inContact
	l.inContact = contact
	if news && !l.mayTell() {
		news, l.owed = false, true
	}
	l.mu.Unlock()
	if news {
		l.changed(l.unit)
	}
}

// mayTell tells whether a report may count as news now.
func (l *link) mayTell() bool {
	now := l.clock.Now()
	if earliest := now.Add(-newsAtOnce * newsEach); l.due.Before(earliest) {
		l.due = earliest
	}
	if !l.due.Add(newsEach).Before(now) {
		return false
	}
	l.due = l.due.Add(newsEach)
	return true
}

// judge tells of contact that was lost or found, and what was too much to be told at once.
func (l *link) judge() {
	l.mu.Lock()
	contact := l.contact()
	news := contact != l.inContact || l.owed
	l.inContact, l.owed = contact, false
	l.mu.Unlock()
	if news {
		l.changed(l.unit)
	}
}

// contact is whether the runtime speaks and listens, and is this Unit's.
func (l *link) contact() bool {
	now := l.clock.Now()
	switch {
	case l.heard.IsZero() || now.Sub(l.heard) > silence:
		return false
	case l.pod.unitUID != "" && l.report.Runtime.UID != string(l.pod.unitUID):
		// It has no configuration yet, or is a former Unit's of this name.
		return false
	case l.order == nil:
		return true
	default:
		return l.report.Runtime.UID == l.order.UID && !l.taken.IsZero() && now.Sub(l.taken) <= orderAge
	}
}

// look is the last report, and whether the runtime is in contact.
func (l *link) look() (api.Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report, l.contact()
}

// sameReport tells whether two reports differ in nothing but their time.
func sameReport(a, b api.Report) bool {
	a.Runtime.Time = b.Runtime.Time
	return reflect.DeepEqual(a, b)
}
