package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// fieldValue answers a downward API fieldRef.
func fieldValue(pod *corev1.Pod, podIP, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP", "status.podIPs":
		return podIP, nil
	}
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("fieldRef %q is not supported", path)
}

func subscript(path, field string) (string, bool) {
	rest, ok := strings.CutPrefix(path, field+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// formatMap writes labels or annotations as a downward API file shows them.
func formatMap(m map[string]string) string {
	var out strings.Builder
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s=%q", key, m[key])
	}
	return out.String()
}

// resourceValue answers a downward API resourceFieldRef; a limit that is not set
// is the node's allocatable amount.
func resourceValue(pod *corev1.Pod, container string, allocatable corev1.ResourceList, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return "", fmt.Errorf("resourceFieldRef: no container %q", container)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	key := corev1.ResourceName(name)
	var quantity resource.Quantity
	switch kind {
	case "limits":
		var ok bool
		if quantity, ok = all[i].Resources.Limits[key]; !ok {
			quantity = allocatable[key]
		}
	case "requests":
		quantity = all[i].Resources.Requests[key]
	default:
		return "", fmt.Errorf("resourceFieldRef %q is not supported", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if key == corev1.ResourceCPU {
		return fmt.Sprint(ceilDiv(quantity.MilliValue(), divisor.MilliValue())), nil
	}
	return fmt.Sprint(ceilDiv(quantity.Value(), divisor.Value())), nil
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
