package provider

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostIP is the address of every local node.
const hostIP = "127.0.0.1"

// statusInput is everything a pod's status is computed from.
type statusInput struct {
	pod        *corev1.Pod
	ip         string
	startedAt  metav1.Time
	now        metav1.Time
	init       []containerState
	main       []containerState
	previous   []corev1.PodCondition
	networkSet bool
}

// podStatus computes a pod's status as a kubelet does.
func podStatus(in statusInput) corev1.PodStatus {
	status := corev1.PodStatus{
		ObservedGeneration: in.pod.Generation,
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		StartTime:          &in.startedAt,
	}
	if in.ip != "" {
		status.PodIP = in.ip
		status.PodIPs = []corev1.PodIP{{IP: in.ip}}
	}
	for i, s := range in.init {
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(s, in.pod.Spec.InitContainers[i].Image, true))
	}
	for i, s := range in.main {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(s, in.pod.Spec.Containers[i].Image, false))
	}
	status.Phase = phase(in.init, in.main)

	terminal := status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed
	completed := status.Phase == corev1.PodSucceeded
	uninitialized := namesWhere(in.init, func(s containerState) bool {
		return s.current.Terminated == nil || s.current.Terminated.ExitCode != 0
	})
	unready := namesWhere(in.main, func(s containerState) bool { return !s.ready })
	condition := func(kind corev1.PodConditionType, ok bool, reason, message string) {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: in.pod.Generation, LastTransitionTime: in.now}
		if !ok {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
		for _, old := range in.previous {
			if old.Type == kind && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	unreadyReason, unreadyMessage := "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	if terminal {
		unreadyReason, unreadyMessage = "PodFailed", ""
		if completed {
			unreadyReason = "PodCompleted"
		}
	}
	condition(corev1.PodReadyToStartContainers, in.networkSet && !terminal, "", "")
	condition(corev1.PodInitialized, len(uninitialized) == 0, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(uninitialized, " ")))
	condition(corev1.ContainersReady, len(unready) == 0 && !terminal, unreadyReason, unreadyMessage)
	condition(corev1.PodReady, len(unready) == 0 && !terminal, unreadyReason, unreadyMessage)
	return status
}

func phase(init, main []containerState) corev1.PodPhase {
	for _, s := range init {
		switch {
		case s.current.Terminated == nil:
			return corev1.PodPending
		case s.final && s.current.Terminated.ExitCode != 0:
			return corev1.PodFailed
		}
	}
	allFinal, failed, everRan := true, false, false
	for _, s := range main {
		allFinal = allFinal && s.final
		failed = failed || s.current.Terminated != nil && s.current.Terminated.ExitCode != 0
		everRan = everRan || s.current.Running != nil || s.current.Terminated != nil || s.last.Terminated != nil
	}
	switch {
	case allFinal && failed:
		return corev1.PodFailed
	case allFinal:
		return corev1.PodSucceeded
	case everRan:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

func containerStatus(s containerState, image string, init bool) corev1.ContainerStatus {
	if s.image != "" {
		image = s.image
	}
	ready := s.ready
	if init {
		ready = s.current.Terminated != nil && s.current.Terminated.ExitCode == 0
	}
	return corev1.ContainerStatus{
		Name: s.name, Image: image, ImageID: image, ContainerID: s.id,
		State: s.current, LastTerminationState: s.last,
		RestartCount: s.restarts, Ready: ready, Started: new(s.started),
	}
}

func namesWhere(states []containerState, is func(containerState) bool) []string {
	var names []string
	for _, s := range states {
		if is(s) {
			names = append(names, s.name)
		}
	}
	return names
}
