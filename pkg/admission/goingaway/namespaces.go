// Package goingaway tells whether a namespace of the host cluster is going away: then nothing in it is guarded against being
// deleted, or the namespace would never end.
package goingaway

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Namespaces is embedded in a plugin, and makes it one that Kubernetes initializes with a client and informers of the host cluster.
type Namespaces struct {
	// Synced tells whether the informer's word counts.
	Synced cache.InformerSynced

	host   kubernetes.Interface
	lister corelisters.NamespaceLister
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet of k8s.io/apiserver.
func (n *Namespaces) SetExternalKubeClientSet(client kubernetes.Interface) { n.host = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory of k8s.io/apiserver.
func (n *Namespaces) SetExternalKubeInformerFactory(f kubeinformers.SharedInformerFactory) {
	namespaces := f.Core().V1().Namespaces()
	n.lister, n.Synced = namespaces.Lister(), namespaces.Informer().HasSynced
}

// Initialized tells whether it has its client and its informer.
func (n *Namespaces) Initialized() bool { return n.host != nil && n.lister != nil }

// GoingAway tells whether the namespace is being deleted or is gone, by the informer and, before it says no, by a live read.
func (n *Namespaces) GoingAway(ctx context.Context, name string) (bool, error) {
	if n.GoingAwayByInformer(name) {
		return true, nil
	}
	namespace, err := n.host.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	return namespace.DeletionTimestamp != nil, nil
}

// GoingAwayByInformer tells whether the informer says that the namespace is being deleted; it asks nobody.
func (n *Namespaces) GoingAwayByInformer(name string) bool {
	if !n.Synced() {
		return false
	}
	namespace, err := n.lister.Get(name)
	return err == nil && namespace.DeletionTimestamp != nil
}
