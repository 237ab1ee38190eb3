package hosted

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// NodeOf tells how the node that a pod is bound to is doing.
func NodeOf(ctx context.Context, host kubernetes.Interface, nodes corelisters.NodeLister, pod *corev1.Pod) (NodeHealth, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return NodeHealth{}, nil
	}
	node, err := nodes.Get(name)
	if apierrors.IsNotFound(err) {
		// The cache may be behind for a node that has just joined, and to take it for lost would cost the pod.
		node, err = host.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return NodeHealth{Lost: true, Why: fmt.Sprintf("node %s is gone", name)}, nil
	}
	if err != nil {
		return NodeHealth{}, fmt.Errorf("node %s: %w", name, err)
	}
	return HealthOf(node), nil
}

// HealthOf reads the Ready condition: False is NotReady, Unknown is unreachable.
func HealthOf(node *corev1.Node) NodeHealth {
	condition := readyCondition(node)
	switch {
	case condition == nil:
		return NodeHealth{Lost: true, Since: node.CreationTimestamp.Time, Why: fmt.Sprintf("node %s has not reported", node.Name)}
	case condition.Status == corev1.ConditionTrue:
		return NodeHealth{}
	case condition.Status == corev1.ConditionUnknown:
		return NodeHealth{Lost: true, Since: condition.LastTransitionTime.Time, Why: fmt.Sprintf("node %s is unreachable", node.Name)}
	default:
		return NodeHealth{Lost: true, Since: condition.LastTransitionTime.Time, Why: fmt.Sprintf("node %s is not ready", node.Name)}
	}
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// maxNamedNodes bounds how many nodes are named.
const maxNamedNodes = 5

// Places says where a pod could run, in words for an operator who finds it unscheduled: where it may, and why none of the nodes there
// takes it.
func Places(where string, nodes []*corev1.Node) string {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var named []string
	for _, node := range nodes {
		if len(named) == maxNamedNodes {
			named = append(named, fmt.Sprintf("and %d more", len(nodes)-maxNamedNodes))
			break
		}
		switch {
		case HealthOf(node).Lost:
			named = append(named, HealthOf(node).Why)
		case node.Spec.Unschedulable:
			named = append(named, fmt.Sprintf("node %s is cordoned", node.Name))
		default:
			named = append(named, fmt.Sprintf("node %s does not take it", node.Name))
		}
	}
	if len(named) == 0 {
		return fmt.Sprintf("needs %s, and there is none", where)
	}
	return fmt.Sprintf("needs %s: %s", where, strings.Join(named, ", "))
}
