package apiserver

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"github.com/fieldplane/fieldplane/pkg/admission/deleteguard"
	"github.com/fieldplane/fieldplane/pkg/admission/discoveryranges"
	"github.com/fieldplane/fieldplane/pkg/admission/iomodulerules"
	"github.com/fieldplane/fieldplane/pkg/admission/machineapproval"
	"github.com/fieldplane/fieldplane/pkg/admission/machineendpoint"
	"github.com/fieldplane/fieldplane/pkg/admission/statuswriters"
	"github.com/fieldplane/fieldplane/pkg/admission/unitguard"
)

// AdmissionOrder is the order in which admission plugins run, ours and
// Kubernetes' own. Within it the server runs all that mutate before all that
// validate, so that policies and webhooks see, and ours judge, the final object.
func AdmissionOrder() []string {
	order := append([]string{lifecycle.PluginName}, OwnAdmissionPlugins()...)
	return append(order,
		mutatingadmissionpolicy.PluginName,
		mutatingwebhook.PluginName,
		validatingadmissionpolicy.PluginName,
		validatingwebhook.PluginName,
	)
}

// OwnAdmissionPlugins are the rules of our kinds. None of them can be disabled:
// without MachineApproval, for one, everybody who may write approves.
func OwnAdmissionPlugins() []string {
	return []string{
		iomodulerules.PluginName,
		discoveryranges.PluginName,
		machineapproval.PluginName,
		machineendpoint.PluginName,
		deleteguard.PluginName,
		statuswriters.PluginName,
		unitguard.PluginName,
	}
}

// RegisterAdmissionPlugins adds our plugins to Kubernetes' own.
func RegisterAdmissionPlugins(plugins *admission.Plugins) {
	iomodulerules.Register(plugins)
	discoveryranges.Register(plugins)
	machineapproval.Register(plugins)
	machineendpoint.Register(plugins)
	deleteguard.Register(plugins)
	statuswriters.Register(plugins)
	unitguard.Register(plugins)
}
