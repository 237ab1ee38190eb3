package iomodule

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/networkprobe"
)

// Confirmed tells whether a module is Online by what its probe, or its Controller's heart, has said since this controller began
// (P-16c). A state that a former leader stored is no evidence, and neither is one of another module of the same name.
func (c *Controller) Confirmed(key types.NamespacedName, uid types.UID) bool {
	module, err := c.modules.IOModules(key.Namespace).Get(key.Name)
	if err != nil || module.UID != uid {
		return false
	}
	var (
		v    verdict
		keep bool
	)
	if networkprobe.Monitors(module) {
		v, keep, err = c.assessProbed(module, nil)
	} else {
		v, keep, _, err = c.assessBound(module)
	}
	return err == nil && !keep && v.confirmed && v.state == v1alpha1.ModuleOnline
}
