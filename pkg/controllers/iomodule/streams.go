package iomodule

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

const (
	// silence is how long a probe may say nothing before its modules are Unknown: three heartbeats. A stream that breaks
	// and comes back within it costs no module its state: none of the results is older than three periods of a second.
	silence = 3 * api.DefaultHeartbeat
	// silenceCheck is how often silence is looked for.
	silenceCheck = 500 * time.Millisecond

	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 3 * time.Second
)

// Follow follows one probe: it calls handle with everything that the probe says, in order, until ctx ends or the
// stream does. The error is never nil.
type Follow func(ctx context.Context, namespace, address string, handle func(probeclient.Update)) error

// streams follow the probes, one stream for each pod, and hold what they said last.
type streams struct {
	follow Follow
	clock  clock.WithTicker
	// changed is told of modules whose verdict is another one, changedAll of probes that fell silent or were heard
	// again. Neither is called with the lock held.
	changed    func(module types.NamespacedName)
	changedAll func(probe types.NamespacedName)
	// distrusted is told of each handshake that failed by a certificate.
	distrusted func(namespace string)

	mu    sync.Mutex
	byPod map[types.NamespacedName]*stream
}

// stream is what is heard of one pod.
type stream struct {
	uid     types.UID
	address string
	cancel  context.CancelFunc
	done    chan struct{}

	// The rest is under the lock of streams.
	modules map[string]api.ModuleState
	heard   hearing
	// last is when the probe was heard last, or the stream began.
	last time.Time
}

func newStreams(follow Follow, c clock.WithTicker, changed, changedAll func(types.NamespacedName), distrusted func(namespace string)) *streams {
	return &streams{
		follow: follow, clock: c, changed: changed, changedAll: changedAll, distrusted: distrusted,
		byPod: map[types.NamespacedName]*stream{},
	}
}

// ensure follows the pod, and not the one that had its name before; a pod that does not run is not followed. It is called
// by one goroutine.
func (s *streams) ensure(ctx context.Context, probe types.NamespacedName, pod podFacts) {
	s.mu.Lock()
	old := s.byPod[probe]
	s.mu.Unlock()
	if old != nil && pod.running && old.uid == pod.uid && old.address == pod.address {
		return
	}
	if old != nil {
		s.end(probe, old)
		s.changedAll(probe)
	}
	if !pod.running {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	st := &stream{uid: pod.uid, address: pod.address, cancel: cancel, done: make(chan struct{}), last: s.clock.Now()}
	s.mu.Lock()
	s.byPod[probe] = st
	s.mu.Unlock()
	go func() {
		defer close(st.done)
		s.run(ctx, probe, st)
	}()
}

// end forgets a stream, and returns when nothing of it runs any more.
func (s *streams) end(probe types.NamespacedName, st *stream) {
	st.cancel()
	<-st.done
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byPod, probe)
}

// stop ends all streams.
func (s *streams) stop() {
	s.mu.Lock()
	all := make(map[types.NamespacedName]*stream, len(s.byPod))
	for probe, st := range s.byPod {
		all[probe] = st
		st.cancel()
	}
	s.mu.Unlock()
	for probe, st := range all {
		s.end(probe, st)
	}
}

// run follows again and again, with growing pauses while the probe does not answer.
func (s *streams) run(ctx context.Context, probe types.NamespacedName, st *stream) {
	log := klog.FromContext(ctx).WithValues("probe", klog.KRef(probe.Namespace, probe.Name))
	address := net.JoinHostPort(st.address, strconv.Itoa(probepod.APIPort))
	pause := firstReconnect
	for {
		heard := false
		err := s.follow(ctx, probe.Namespace, address, func(update probeclient.Update) {
			heard = true
			s.hear(probe, st, update)
		})
		if ctx.Err() != nil {
			return
		}
		if heard {
			pause = firstReconnect
			log.Info("The probe's stream ended", "err", err.Error())
		} else {
			log.V(2).Info("The probe cannot be followed", "address", address, "err", err.Error())
		}
		s.failed(probe, st, err)
		timer := s.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		pause = min(2*pause, lastReconnect)
	}
}

// failed takes the end of a stream, or that there was none. It counts after the silence that a stream may take to come back.
func (s *streams) failed(probe types.NamespacedName, st *stream, err error) {
	now := silent
	if peer.ByCertificate(err) {
		now = distrusted
		s.distrusted(probe.Namespace)
	}
	s.mu.Lock()
	changes := st.heard != now && (now == distrusted || st.heard == distrusted) && s.clock.Since(st.last) > silence
	if changes {
		st.heard, st.modules = now, nil
	}
	s.mu.Unlock()
	if changes {
		s.changedAll(probe)
	}
}

// hear takes what a probe says.
func (s *streams) hear(probe types.NamespacedName, st *stream, update probeclient.Update) {
	s.mu.Lock()
	wasHeard := st.heard == hearsIt
	before := st.modules
	st.heard, st.last, st.modules = hearsIt, s.clock.Now(), update.Modules
	s.mu.Unlock()
	if !wasHeard {
		s.changedAll(probe)
		return
	}
	for _, names := range [][]string{update.Changed, update.Removed} {
		for _, name := range names {
			// The first update of a stream that came back names everything; only what is new concerns anybody.
			if is, ok := update.Modules[name]; ok {
				if was, ok := before[name]; ok && was.Equal(is) {
					continue
				}
			}
			s.changed(types.NamespacedName{Namespace: probe.Namespace, Name: name})
		}
	}
	if len(update.Changed) < len(update.Modules) || len(before) == 0 {
		return
	}
	// So does what it no longer knows, which such an update does not name.
	for name := range before {
		if _, ok := update.Modules[name]; !ok {
			s.changed(types.NamespacedName{Namespace: probe.Namespace, Name: name})
		}
	}
}

// checkSilence finds probes that have said nothing for too long.
func (s *streams) checkSilence() {
	now := s.clock.Now()
	var fell []types.NamespacedName
	s.mu.Lock()
	for probe, st := range s.byPod {
		if st.heard != silent && st.heard != distrusted && now.Sub(st.last) > silence {
			st.heard, st.modules = silent, nil
			fell = append(fell, probe)
		}
	}
	s.mu.Unlock()
	for _, probe := range fell {
		s.changedAll(probe)
	}
}

// look is what was heard of a module from this very pod.
func (s *streams) look(probe types.NamespacedName, pod types.UID, module string) (hearing, *api.ModuleState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byPod[probe]
	if st == nil || st.uid != pod {
		return awaiting, nil
	}
	if entry, ok := st.modules[module]; ok {
		return st.heard, &entry
	}
	return st.heard, nil
}
