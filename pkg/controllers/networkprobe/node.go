package networkprobe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// nodeOf tells how the node that a pod is bound to is doing.
func (c *Controller) nodeOf(ctx context.Context, pod *corev1.Pod) (nodeHealth, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return nodeHealth{}, nil
	}
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		// The cache may be behind for a node that has just joined, and to take it for lost would cost the probe.
		node, err = c.host.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nodeHealth{lost: true, why: fmt.Sprintf("node %s is gone", name)}, nil
	}
	if err != nil {
		return nodeHealth{}, fmt.Errorf("node %s: %w", name, err)
	}
	return healthOf(node), nil
}

// Lost says why a node counts as lost, "" if it does not.
func Lost(node *corev1.Node) string { return healthOf(node).why }

// healthOf reads the Ready condition: False is NotReady, Unknown is unreachable.
func healthOf(node *corev1.Node) nodeHealth {
	condition := readyCondition(node)
	switch {
	case condition == nil:
		return nodeHealth{lost: true, since: node.CreationTimestamp.Time, why: fmt.Sprintf("node %s has not reported", node.Name)}
	case condition.Status == corev1.ConditionTrue:
		return nodeHealth{}
	case condition.Status == corev1.ConditionUnknown:
		return nodeHealth{lost: true, since: condition.LastTransitionTime.Time, why: fmt.Sprintf("node %s is unreachable", node.Name)}
	default:
		return nodeHealth{lost: true, since: condition.LastTransitionTime.Time, why: fmt.Sprintf("node %s is not ready", node.Name)}
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

// maxNamedNodes bounds how many nodes an event names.
const maxNamedNodes = 5

// placesFor says where a probe could run, in words for an operator who finds it unscheduled.
func (c *Controller) placesFor(s shard) (string, error) {
	nodes, err := c.nodes.List(labels.SelectorFromSet(s.selector))
	if err != nil {
		return "", err
	}
	if s.controller != nil {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return n.Name != NodeOf(s.controller) })
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var named []string
	for _, node := range nodes {
		if len(named) == maxNamedNodes {
			named = append(named, fmt.Sprintf("and %d more", len(nodes)-maxNamedNodes))
			break
		}
		switch {
		case healthOf(node).lost:
			named = append(named, healthOf(node).why)
		case node.Spec.Unschedulable:
			named = append(named, fmt.Sprintf("node %s is cordoned", node.Name))
		default:
			named = append(named, fmt.Sprintf("node %s does not take it", node.Name))
		}
	}
	where := "any node"
	switch {
	case s.controller != nil:
		where = "node " + NodeOf(s.controller)
	case len(s.selector) > 0:
		where = "a node with " + labels.Set(s.selector).String()
	}
	if len(named) == 0 {
		return fmt.Sprintf("The probe needs %s, and there is none", where), nil
	}
	return fmt.Sprintf("The probe needs %s: %s", where, strings.Join(named, ", ")), nil
}
