package provider

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// PatchStatus writes a pod's status and nothing else, provided that the pod is
// still the same one. An update instead of a patch would also write labels and
// annotations, as they were when the node last saw them.
func PatchStatus(ctx context.Context, pods corev1client.PodInterface, pod *corev1.Pod) (*corev1.Pod, error) {
	patch, err := statusPatch(pod)
	if err != nil {
		return nil, err
	}
	return pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

func statusPatch(pod *corev1.Pod) ([]byte, error) {
	encoded, err := json.Marshal(pod.Status)
	if err != nil {
		return nil, err
	}
	status := map[string]any{}
	if err := json.Unmarshal(encoded, &status); err != nil {
		return nil, err
	}
	// What is absent from a patch stays; these have to go when they are empty.
	for _, field := range []string{"reason", "message"} {
		if _, ok := status[field]; !ok {
			status[field] = nil
		}
	}
	// The API server's own.
	delete(status, "qosClass")
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
}

// StatusPatcher makes virtual-kubelet's status updates patches.
type StatusPatcher struct {
	corev1client.PodsGetter
}

// Pods implements PodsGetter.
func (s StatusPatcher) Pods(namespace string) corev1client.PodInterface {
	return statusPatchingPods{s.PodsGetter.Pods(namespace)}
}

type statusPatchingPods struct {
	corev1client.PodInterface
}

func (s statusPatchingPods) UpdateStatus(ctx context.Context, pod *corev1.Pod, _ metav1.UpdateOptions) (*corev1.Pod, error) {
	return PatchStatus(ctx, s.PodInterface, pod)
}
