package unit

import (
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newest holds what was read or written past a cache until the cache has caught up: otherwise a Unit that may run again would
// be held once more by the former state of its module.
type newest[T metav1.Object] struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]T
}

func newNewest[T metav1.Object]() *newest[T] {
	return &newest[T]{objects: map[types.NamespacedName]T{}}
}

// remember takes an object that was read or written.
func (n *newest[T]) remember(object T) {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.objects[key]; !ok || newer(object, known) {
		n.objects[key] = object
	}
}

// of is the cached object, or what is newer. It is called only for what the cache has: what it lacks may be deleted.
func (n *newest[T]) of(cached T) T {
	key := types.NamespacedName{Namespace: cached.GetNamespace(), Name: cached.GetName()}
	n.mu.Lock()
	defer n.mu.Unlock()
	known, ok := n.objects[key]
	if ok && newer(known, cached) {
		return known
	}
	delete(n.objects, key)
	return cached
}

func (n *newest[T]) forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.objects, key)
}

func newer(a, b metav1.Object) bool {
	x, errX := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	y, errY := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return errX == nil && errY == nil && x > y
}
