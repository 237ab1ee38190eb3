package provider

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// retryVolumes is the pause after a volume could not be made.
const retryVolumes = 500 * time.Millisecond

// podRunner runs one pod. Its goroutine (run) owns the pod's volumes and
// publishes its status; each container has a goroutine of its own.
type podRunner struct {
	p         *Provider
	namespace string
	dir       string
	logDir    string
	ip        string
	startedAt metav1.Time
	init      []*container
	main      []*container
	tokens    map[string]token

	// stop asks the pod to end, kill ends its grace period.
	stop     context.Context
	stopNow  context.CancelFunc
	kill     context.Context
	killNow  context.CancelFunc
	keep     atomic.Bool // the node is being stopped: the API object and the directory stay
	done     chan struct{}
	updated  chan struct{}
	objects  chan struct{}
	changed  chan struct{}
	allEnded chan struct{}

	mu      sync.Mutex
	pod     *corev1.Pod
	status  corev1.PodStatus
	problem string
}

func newPodRunner(p *Provider, pod *corev1.Pod) *podRunner {
	name := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	r := &podRunner{
		p:         p,
		namespace: pod.Namespace,
		dir:       filepath.Join(p.config.Dir, name),
		logDir:    filepath.Join(p.config.LogDir, name),
		startedAt: metav1.NewTime(p.config.Clock.Now()),
		tokens:    map[string]token{},
		done:      make(chan struct{}),
		updated:   make(chan struct{}, 1),
		objects:   make(chan struct{}, 1),
		changed:   make(chan struct{}, 1),
		allEnded:  make(chan struct{}),
		pod:       pod.DeepCopy(),
	}
	if pod.Status.StartTime != nil {
		r.startedAt = *pod.Status.StartTime
	}
	r.stop, r.stopNow = context.WithCancel(context.Background())
	r.kill, r.killNow = context.WithCancel(context.Background())
	known := map[string]corev1.ContainerStatus{}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		known[s.Name] = s
	}
	create := func(spec corev1.Container, init bool) *container {
		c := &container{name: spec.Name, init: init, restart: make(chan struct{}, 1)}
		reason := "ContainerCreating"
		if len(pod.Spec.InitContainers) > 0 {
			reason = "PodInitializing"
		}
		c.state = containerState{name: spec.Name, current: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
		// A pod that ran here before the cluster was stopped counts one restart more.
		if s, ok := known[spec.Name]; ok && (s.State.Running != nil || s.State.Terminated != nil) {
			c.state.restarts = s.RestartCount + 1
			c.state.last = corev1.ContainerState{Terminated: s.State.Terminated}
			if s.State.Running != nil {
				c.state.last.Terminated = &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "Error", Message: "The node was stopped",
					StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.NewTime(p.config.Clock.Now()), ContainerID: s.ContainerID,
				}
			}
		}
		return c
	}
	for _, spec := range pod.Spec.InitContainers {
		r.init = append(r.init, create(spec, true))
	}
	for _, spec := range pod.Spec.Containers {
		r.main = append(r.main, create(spec, false))
	}
	return r
}

func (r *podRunner) currentPod() *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pod
}

// snapshot returns the pod with the status last computed for it.
func (r *podRunner) snapshot() *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := r.pod.DeepCopy()
	r.status.DeepCopyInto(&pod.Status)
	return pod
}

// update takes over a changed pod: its volumes are refreshed at once, and
// containers whose image has changed are restarted.
func (r *podRunner) update(pod *corev1.Pod) {
	r.mu.Lock()
	old := r.pod
	r.pod = pod.DeepCopy()
	r.mu.Unlock()
	for _, c := range r.main {
		before, after := c.spec(old), c.spec(pod)
		if before != nil && after != nil && before.Image != after.Image {
			signal(c.restart)
		}
	}
	signal(r.updated)
}

func (r *podRunner) stateChanged() { signal(r.changed) }

// signal wakes the receiver; a wake-up that is already waiting is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d or until the pod is asked to end.
func (r *podRunner) pause(d time.Duration) {
	select {
	case <-r.stop.Done():
	case <-r.p.config.Clock.After(d):
	}
}

// terminate asks the pod to end and kills its processes after grace. A later
// call may shorten the grace period, never prolong it.
func (r *podRunner) terminate(grace time.Duration) {
	r.stopNow()
	if grace <= 0 {
		r.killNow()
		return
	}
	go func() {
		timer := r.p.config.Clock.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C():
			r.killNow()
		case <-r.done:
		}
	}()
}

// run is the pod's life, from its address to the end of its last process.
func (r *podRunner) run() {
	defer close(r.done)
	defer r.killNow()
	defer r.finish()
	if !r.prepare() {
		r.endUnstarted()
		r.publish()
		return
	}
	go r.runContainers()

	var refresh, renewal clock.Timer
	defer func() {
		for _, timer := range []clock.Timer{refresh, renewal} {
			if timer != nil {
				timer.Stop()
			}
		}
	}()
	arm := func(timer *clock.Timer, d time.Duration) {
		if *timer != nil {
			(*timer).Stop()
		}
		*timer = r.p.config.Clock.NewTimer(d)
	}
	tick := func(timer clock.Timer) <-chan time.Time {
		if timer == nil {
			return nil
		}
		return timer.C()
	}
	sync := func() {
		if r.p.partitioned.Load() {
			arm(&refresh, r.p.config.VolumeRefresh)
			return
		}
		if refresh != nil {
			refresh.Stop()
			refresh = nil
		}
		if err := r.syncVolumes(r.stop); err != nil && r.stop.Err() == nil {
			r.p.config.Recorder.Event(r.currentPod(), corev1.EventTypeWarning, "FailedMount", err.Error())
			arm(&refresh, r.p.config.VolumeRefresh)
		}
		if d, ok := r.nextTokenRefresh(); ok {
			arm(&renewal, d)
		}
	}
	if d, ok := r.nextTokenRefresh(); ok {
		arm(&renewal, d)
	}
	for r.stop.Err() == nil {
		select {
		case <-r.stop.Done():
		case <-r.changed:
			r.publish()
		case <-r.updated:
			sync()
			r.publish()
		case <-r.objects:
			if refresh == nil {
				arm(&refresh, r.p.config.VolumeRefresh)
			}
		case <-tick(refresh):
			sync()
		case <-tick(renewal):
			sync()
		}
	}
	for {
		select {
		case <-r.changed:
			r.publish()
		case <-r.allEnded:
			r.publish()
			return
		}
	}
}

// prepare gives the pod its address and its volumes; false if it was asked to
// end before that succeeded.
func (r *podRunner) prepare() bool {
	for {
		err := r.setUp()
		r.mu.Lock()
		r.problem = ""
		if err != nil {
			r.problem = err.Error()
		}
		r.mu.Unlock()
		r.publish()
		if r.stop.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		r.p.config.Recorder.Event(r.currentPod(), corev1.EventTypeWarning, "FailedMount", err.Error())
		select {
		case <-r.stop.Done():
			return false
		case <-r.updated:
		case <-r.objects:
		case <-r.p.config.Clock.After(retryVolumes):
		}
	}
}

func (r *podRunner) setUp() error {
	pod := r.currentPod()
	if r.ip == "" {
		if pod.Spec.HostNetwork {
			r.ip = hostIP
		} else {
			ip, err := r.p.config.Addresses.Acquire(pod.Status.PodIP)
			if err != nil {
				return err
			}
			r.ip = ip
		}
		r.publish()
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	return r.syncVolumes(r.stop)
}

// runContainers runs the init containers one after the other, then all others
// together, and closes allEnded when nothing runs any more.
func (r *podRunner) runContainers() {
	defer close(r.allEnded)
	for _, c := range r.init {
		code := c.run(r)
		if code != 0 || r.stop.Err() != nil {
			r.endUnstarted()
			return
		}
	}
	var group sync.WaitGroup
	for _, c := range r.main {
		group.Go(func() { c.run(r) })
	}
	group.Wait()
	r.stateChanged()
}

// endUnstarted marks what was never started as ended for good.
func (r *podRunner) endUnstarted() {
	for _, c := range slices.Concat(r.init, r.main) {
		c.set(r, func(s *containerState) {
			s.final = true
			if s.current.Terminated == nil {
				s.current = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container was never started"}}
			}
		})
	}
}

// publish computes the pod's status and tells virtual-kubelet if it has changed.
func (r *podRunner) publish() {
	in := statusInput{ip: r.ip, networkSet: r.ip != "", startedAt: r.startedAt, now: metav1.NewTime(r.p.config.Clock.Now())}
	for _, c := range r.init {
		in.init = append(in.init, c.snapshot())
	}
	for _, c := range r.main {
		in.main = append(in.main, c.snapshot())
	}
	r.mu.Lock()
	in.pod = r.pod
	in.previous = r.status.Conditions
	if in.previous == nil {
		in.previous = r.pod.Status.Conditions
	}
	if r.problem != "" {
		for i := range in.main {
			if in.main[i].current.Waiting != nil {
				in.main[i].current = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: r.problem}}
			}
		}
	}
	r.status = podStatus(in)
	r.mu.Unlock()
	r.p.notifyPod(r.snapshot())
}

// finish gives back what the pod had and, unless the node is only being stopped,
// removes the object from the API: a kubelet deletes it when the last process has
// ended, virtual-kubelet only when the grace period is over.
func (r *podRunner) finish() {
	r.p.config.Addresses.Release(r.ip)
	r.p.forget(r)
	if r.keep.Load() {
		return
	}
	_ = os.RemoveAll(r.dir)
	r.p.deleteObject(r.snapshot())
}

// deleteObject writes the pod's last status and deletes the object, as often as
// it takes within 10 s.
func (p *Provider) deleteObject(pod *corev1.Pod) {
	if p.partitioned.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = PatchStatus(ctx, p.config.Client.CoreV1().Pods(pod.Namespace), pod)
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	for {
		err := p.config.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-p.config.Clock.After(200 * time.Millisecond):
		}
	}
}
