package provider

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

const (
	// retryStart is the pause after a container could not even be started.
	retryStart = time.Second
	// firstBackoff doubles with every quick end up to maxBackoff; a kubelet's 10 s
	// to 5 min would only make tests slow.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// longRun is how long a container has to run for its back-off to begin anew.
	longRun = 10 * time.Second
	// keptLogs is how many runs of a container keep their log.
	keptLogs = 5
)

// container is one container of a pod over all its restarts.
type container struct {
	name string
	init bool
	// restart asks for a restart because the image in the spec has changed.
	restart chan struct{}

	mu    sync.Mutex
	state containerState
}

// containerState is what a container's status is made of.
type containerState struct {
	name     string
	image    string
	id       string
	current  corev1.ContainerState
	last     corev1.ContainerState
	restarts int32
	started  bool
	ready    bool
	// final is set when the container has ended and will not be started again.
	final bool
}

func (c *container) snapshot() containerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *container) set(r *podRunner, change func(*containerState)) {
	c.mu.Lock()
	change(&c.state)
	c.mu.Unlock()
	r.stateChanged()
}

// spec finds the container in the pod as it is now: image changes reach a running pod.
func (c *container) spec(pod *corev1.Pod) *corev1.Container {
	list := pod.Spec.Containers
	if c.init {
		list = pod.Spec.InitContainers
	}
	for i := range list {
		if list[i].Name == c.name {
			return &list[i]
		}
	}
	return nil
}

// run starts the container, again and again as the restart policy says. It
// returns the last exit code when the container has ended for good.
func (c *container) run(r *podRunner) int {
	backoff := firstBackoff
	for {
		began := r.p.config.Clock.Now()
		code, ran := c.runOnce(r)
		switch {
		case r.stop.Err() != nil:
			c.set(r, func(s *containerState) { s.final = true })
			return code
		case !ran:
			r.pause(retryStart)
			if r.stop.Err() != nil {
				c.set(r, func(s *containerState) {
					s.final = true
					s.current = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container was never started"}}
				})
				return 137
			}
			continue
		case !c.restarts(r.currentPod(), code):
			c.set(r, func(s *containerState) { s.final = true })
			return code
		}
		if r.p.config.Clock.Since(began) >= longRun {
			backoff = firstBackoff
		}
		c.set(r, func(s *containerState) {
			s.last = s.current
			s.restarts++
			s.current = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason:  "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %s restarting container %s", backoff, c.name),
			}}
		})
		r.pause(backoff)
		backoff = min(backoff*2, maxBackoff)
		if r.stop.Err() != nil {
			c.set(r, func(s *containerState) { s.final, s.current = true, s.last })
			return code
		}
	}
}

func (c *container) restarts(pod *corev1.Pod, code int) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return !c.init || code != 0
	}
}

// runOnce runs the process once; ran is false if it could not be started, and
// the state then says why.
func (c *container) runOnce(r *podRunner) (code int, ran bool) {
	pod := r.currentPod()
	spec := c.spec(pod)
	waiting := func(reason string, err error) (int, bool) {
		r.p.config.Recorder.Event(pod, corev1.EventTypeWarning, "Failed", err.Error())
		c.set(r, func(s *containerState) {
			s.current = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: err.Error()}}
		})
		return 0, false
	}
	command, err := r.command(r.stop, pod, spec)
	if err != nil {
		return waiting("CreateContainerConfigError", err)
	}
	run := c.snapshot().restarts
	log, err := openLog(r.logDir, c.name, run)
	if err != nil {
		return waiting("CreateContainerError", err)
	}
	defer log.Close()
	if namespace := r.p.config.NetworkNamespace; namespace != "" {
		// ip replaces itself by the program, which thus keeps its process id.
		command.path, command.args = "ip", slices.Concat([]string{"netns", "exec", namespace, command.path}, command.args)
	}
	process, err := child.Start(child.Spec{
		Name:    fmt.Sprintf("container %s of pod %s/%s", c.name, pod.Namespace, pod.Name),
		Path:    command.path,
		Args:    command.args,
		Env:     command.env,
		Dir:     command.dir,
		Output:  log,
		PidFile: filepath.Join(r.p.config.PidDir, fmt.Sprintf("pod-%s-%s.pid", pod.UID, c.name)),
	})
	if err != nil {
		return waiting("CreateContainerError", err)
	}
	startedAt := metav1.NewTime(r.p.config.Clock.Now())
	id := fmt.Sprintf("process://%d", process.Pid())
	c.set(r, func(s *containerState) {
		s.id, s.image = id, spec.Image
		s.started = spec.StartupProbe == nil
		s.ready = spec.StartupProbe == nil && spec.ReadinessProbe == nil
		s.current = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: startedAt}}
	})

	probes, endProbes := context.WithCancel(r.stop)
	unhealthy := make(chan string, 1)
	var group sync.WaitGroup
	group.Go(func() { c.probe(probes, r, pod, spec, unhealthy) })

	grace := time.Duration(*graceOf(pod)) * time.Second
	select {
	case <-process.Done():
	case message := <-unhealthy:
		r.p.config.Recorder.Eventf(pod, corev1.EventTypeNormal, "Killing", "Container %s failed liveness probe, will be restarted: %s", c.name, message)
		process.Stop(r.kill, grace)
	case <-c.restart:
		r.p.config.Recorder.Eventf(pod, corev1.EventTypeNormal, "Killing", "Container %s definition changed, will be restarted", c.name)
		process.Stop(r.kill, grace)
	case <-r.stop.Done():
		// The pod's own deadline (r.kill) decides when the process has had its time.
		process.Stop(r.kill, 365*24*time.Hour)
	}
	endProbes()
	group.Wait()

	code = process.ExitCode()
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	c.set(r, func(s *containerState) {
		s.ready, s.started = false, false
		s.current = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, StartedAt: startedAt,
			FinishedAt: metav1.NewTime(r.p.config.Clock.Now()), ContainerID: id,
		}}
	})
	return code, true
}

// graceOf is the pod's terminationGracePeriodSeconds; the API server defaults it.
func graceOf(pod *corev1.Pod) *int64 {
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		return pod.Spec.TerminationGracePeriodSeconds
	}
	return new(int64(corev1.DefaultTerminationGracePeriodSeconds))
}

func logPath(dir, container string, run int32) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.log", container, run))
}

func openLog(dir, container string, run int32) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if run >= keptLogs {
		_ = os.Remove(logPath(dir, container, run-keptLogs))
	}
	return os.OpenFile(logPath(dir, container, run), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}
