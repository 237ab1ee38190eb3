// Package taloscluster stores TalosClusters.
package taloscluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/validation"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

func parts() object.SpecStatus[*talos.TalosCluster, talos.TalosClusterSpec, talos.TalosClusterStatus] {
	return object.SpecStatus[*talos.TalosCluster, talos.TalosClusterSpec, talos.TalosClusterStatus]{
		Spec:   func(cluster *talos.TalosCluster) *talos.TalosClusterSpec { return &cluster.Spec },
		Status: func(cluster *talos.TalosCluster) *talos.TalosClusterStatus { return &cluster.Status },

		Validate:       validation.ValidateTalosCluster,
		ValidateUpdate: validation.ValidateTalosClusterUpdate,
		ValidateStatus: validation.ValidateTalosClusterStatusUpdate,
	}
}

// attributes returns the labels and selectable fields of a TalosCluster.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	cluster, ok := obj.(*talos.TalosCluster)
	if !ok {
		return nil, nil, fmt.Errorf("not a TalosCluster: %T", obj)
	}
	return cluster.Labels, generic.AddObjectMetaFieldsSet(fields.Set{}, &cluster.ObjectMeta, true), nil
}
