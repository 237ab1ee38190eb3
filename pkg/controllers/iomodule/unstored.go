package iomodule

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// unstored are the modules that were found in a state other than Online which the store did not take: whoever goes by what is stored
// holds nothing for them (P-16).
type unstored struct {
	mu      sync.Mutex
	modules map[types.NamespacedName]bool
	changed func(module types.NamespacedName)
}

func newUnstored() *unstored {
	return &unstored{modules: map[types.NamespacedName]bool{}, changed: func(types.NamespacedName) {}}
}

// set notes whether a module is one of them, and tells of it if that is new.
func (u *unstored) set(module types.NamespacedName, is bool) {
	u.mu.Lock()
	changed := u.changed
	news := u.modules[module] != is
	if is {
		u.modules[module] = true
	} else {
		delete(u.modules, module)
	}
	u.mu.Unlock()
	if news {
		changed(module)
	}
}

// Unstored tells whether a module was found in a state other than Online that the store has yet to take.
func (c *Controller) Unstored(module types.NamespacedName) bool {
	c.unstored.mu.Lock()
	defer c.unstored.mu.Unlock()
	return c.unstored.modules[module]
}

// OnUnstored has a function called whenever what Unstored says of a module has changed. It is called before Run, once; the function
// does not block.
func (c *Controller) OnUnstored(changed func(module types.NamespacedName)) {
	c.unstored.mu.Lock()
	defer c.unstored.mu.Unlock()
	c.unstored.changed = changed
}
