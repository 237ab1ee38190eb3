package iomodule

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// connections remember since which generation each module has the connection settings that it has, as far as this
// process has seen. What it has not seen it takes for changed, so that a verdict on another device is never believed.
type connections struct {
	mu      sync.Mutex
	modules map[types.NamespacedName]connection
}

type connection struct {
	uid   types.UID
	since int64
}

func newConnections() *connections {
	return &connections{modules: map[types.NamespacedName]connection{}}
}

// observe takes an informer's event; either side may be nil.
func (c *connections) observe(before, after *v1alpha1.IOModule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after == nil {
		delete(c.modules, keyOf(before))
		return
	}
	known, ok := c.modules[keyOf(after)]
	if ok && before != nil && known.uid == after.UID && sameConnection(&before.Spec, &after.Spec) {
		return
	}
	c.modules[keyOf(after)] = connection{after.UID, after.Generation}
}

// since is the first generation whose verdict is on the device that the module names.
func (c *connections) since(module *v1alpha1.IOModule) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.modules[keyOf(module)]
	if !ok || known.uid != module.UID {
		return module.Generation
	}
	return known.since
}

func sameConnection(a, b *v1alpha1.IOModuleSpec) bool {
	return a.Protocol == b.Protocol &&
		equality.Semantic.DeepEqual(a.Modbus, b.Modbus) &&
		equality.Semantic.DeepEqual(a.OPCUA, b.OPCUA) &&
		equality.Semantic.DeepEqual(a.Ethernetip, b.Ethernetip)
}

func keyOf(module *v1alpha1.IOModule) types.NamespacedName {
	return types.NamespacedName{Namespace: module.Namespace, Name: module.Name}
}
