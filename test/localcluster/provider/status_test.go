package provider

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func waitingState(reason string) containerState {
	return containerState{current: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func runningState(ready bool) containerState {
	return containerState{ready: ready, started: true, current: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func endedState(code int32, final bool) containerState {
	return containerState{final: final, current: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
}

func crashing() containerState {
	s := waitingState("CrashLoopBackOff")
	s.last = endedState(1, false).current
	return s
}

func TestPhaseAndReadyFollowFromTheContainers(t *testing.T) {
	for name, test := range map[string]struct {
		init, main []containerState
		phase      corev1.PodPhase
		ready      bool
	}{
		"nothing started is Pending":                        {main: []containerState{waitingState("ContainerCreating")}, phase: corev1.PodPending},
		"a running init container is Pending":               {init: []containerState{runningState(false)}, main: []containerState{waitingState("PodInitializing")}, phase: corev1.PodPending},
		"a failed init container without restart is Failed": {init: []containerState{endedState(1, true)}, main: []containerState{endedState(137, true)}, phase: corev1.PodFailed},
		"running but not ready":                             {main: []containerState{runningState(false)}, phase: corev1.PodRunning},
		"running and ready":                                 {init: []containerState{endedState(0, true)}, main: []containerState{runningState(true)}, phase: corev1.PodRunning, ready: true},
		"one of two ready is not ready":                     {main: []containerState{runningState(true), runningState(false)}, phase: corev1.PodRunning},
		"crashing is Running":                               {main: []containerState{crashing()}, phase: corev1.PodRunning},
		"one ended and one running is Running":              {main: []containerState{endedState(0, true), runningState(true)}, phase: corev1.PodRunning},
		"all ended well is Succeeded":                       {main: []containerState{endedState(0, true), endedState(0, true)}, phase: corev1.PodSucceeded},
		"one of all ended badly is Failed":                  {main: []containerState{endedState(0, true), endedState(2, true)}, phase: corev1.PodFailed},
		"ended but about to be restarted is Running":        {main: []containerState{endedState(1, false)}, phase: corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{
				InitContainers: make([]corev1.Container, len(test.init)),
				Containers:     make([]corev1.Container, len(test.main)),
			}}
			status := podStatus(statusInput{pod: pod, ip: "127.64.0.1", networkSet: true, init: test.init, main: test.main})
			if status.Phase != test.phase {
				t.Errorf("phase is %s, want %s", status.Phase, test.phase)
			}
			pod.Status = status
			if got := conditionStatus(pod, corev1.PodReady); (got == corev1.ConditionTrue) != test.ready {
				t.Errorf("Ready is %s", got)
			}
		})
	}
}

func conditionStatus(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func TestTransitionTimeStaysWhileAConditionDoes(t *testing.T) {
	earlier, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1)}}
	before := podStatus(statusInput{pod: pod, now: earlier, main: []containerState{runningState(false)}})
	after := podStatus(statusInput{pod: pod, now: now, main: []containerState{runningState(true)}, previous: before.Conditions})
	for _, c := range after.Conditions {
		want := earlier
		if c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			want = now
		}
		if !c.LastTransitionTime.Equal(&want) {
			t.Errorf("%s changed at %s, want %s", c.Type, c.LastTransitionTime, want)
		}
	}
}

func TestProbeVerdictsFollowTheThresholds(t *testing.T) {
	for name, test := range map[string]struct {
		answers          string // + and -
		success, failure int32
		changes          string // the verdict after each answer that changed it, else a dot
	}{
		"the first success counts":                     {"+", 1, 3, "+"},
		"failures below the threshold do not":          {"--+--+", 1, 3, "..+..."},
		"the third failure in a row does":              {"+---", 1, 3, "+..-"},
		"a verdict is told once":                       {"+++---", 1, 1, "+..-.."},
		"success after failure needs its own in a row": {"-+-++", 2, 1, "-...+"},
	} {
		t.Run(name, func(t *testing.T) {
			var verdict thresholds
			got := ""
			for _, answer := range test.answers {
				change := "."
				if verdict.count(answer == '+', test.success, test.failure) {
					change = "-"
					if verdict.healthy {
						change = "+"
					}
				}
				got += change
			}
			if got != test.changes {
				t.Errorf("answers %s give %s, want %s", test.answers, got, test.changes)
			}
		})
	}
}

func TestLastLinesCutsWholeLines(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		n    int
		want string
	}{
		"all":                          {"a\nb\n", -1, "a\nb\n"},
		"none":                         {"a\nb\n", 0, ""},
		"one":                          {"a\nb\n", 1, "b\n"},
		"an unfinished line is one":    {"a\nb", 1, "b"},
		"more than there are":          {"a\nb\n", 5, "a\nb\n"},
		"exactly as many as there are": {"a\nb\n", 2, "a\nb\n"},
		"of nothing":                   {"", 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(lastLines([]byte(test.in), test.n)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
