// Package approvedmachines finds the approved machines of a TalosCluster, for plugins that guard what such machines rely on.
package approvedmachines

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
)

// Of returns the names of a cluster's approved machines, sorted. It lists live: an informer that lacks the latest
// approval would let something be done to an approved machine, and who asks does so rarely.
func Of(ctx context.Context, client versioned.Interface, namespace, cluster string) ([]string, error) {
	list, err := client.TalosV1alpha1().TalosMachines(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermEqualSelector(v1alpha1.MachineClusterRefField, cluster),
			fields.OneTermEqualSelector(v1alpha1.MachineApprovedField, "true"),
		).String(),
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, machine := range list.Items {
		if machine.Spec.ClusterRef.Name == cluster && ptr.Deref(machine.Spec.Approved, false) {
			names = append(names, machine.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Told names the first few machines, for a message.
func Told(names []string) string {
	const named = 3
	text := strings.Join(names[:min(named, len(names))], ", ")
	if more := len(names) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
