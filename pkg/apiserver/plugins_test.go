package apiserver

import (
	"slices"
	"testing"

	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// Req: A-04. A plugin that is registered and not in the order would never run,
// one in the order and not registered would stop the server from starting.
func TestEveryRegisteredAdmissionPluginHasItsPlaceInTheOrder(t *testing.T) {
	options := genericoptions.NewAdmissionOptions()
	RegisterAdmissionPlugins(options.Plugins)

	order := AdmissionOrder()
	registered := options.Plugins.Registered()
	for _, name := range registered {
		if !slices.Contains(order, name) {
			t.Errorf("plugin %s is registered and has no place in AdmissionOrder", name)
		}
	}
	for _, name := range order {
		if !slices.Contains(registered, name) {
			t.Errorf("plugin %s has a place in AdmissionOrder and is not registered", name)
		}
	}

	before := func(first, second string) {
		if slices.Index(order, first) > slices.Index(order, second) {
			t.Errorf("%s must run before %s", first, second)
		}
	}
	before("NamespaceLifecycle", "IOModuleRules")
	before("MachineApproval", "MachineEndpoint")
	before("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
	before("StatusWriters", "ValidatingAdmissionPolicy")
	before("UnitGuard", "ValidatingAdmissionPolicy")
}
