package machineapproval

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/admission/approvedmachines"
	"github.com/fieldplane/fieldplane/pkg/admission/permission"
)

// validateCluster asks for the verb, for all machines of the namespace, when a write of a TalosCluster decides what its
// approved machines are configured with: otherwise whoever may edit clusters would approve through them (T-13).
func (p *Approval) validateCluster(ctx context.Context, a admission.Attributes) error {
	cluster, ok := a.GetObject().(*talos.TalosCluster)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected a TalosCluster, have %T", PluginName, a.GetObject()))
	}
	to := "create "
	if a.GetOperation() == admission.Update {
		stored, ok := a.GetOldObject().(*talos.TalosCluster)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("%s: expected a stored TalosCluster, have %T", PluginName, a.GetOldObject()))
		}
		fields := decisive(&stored.Spec, &cluster.Spec)
		if len(fields) == 0 {
			return nil
		}
		to = "change " + strings.Join(fields, ", ") + " of "
	}

	// Before it is known who approved what: an approval may come between.
	key, forget := a.GetNamespace()+"/"+cluster.Name, func() {}
	if !a.IsDryRun() && !p.server.Is(a.GetUserInfo()) {
		forget = p.edits.note(key)
	}
	let := false
	defer func() {
		if !let {
			forget()
		}
	}()

	approved, err := approvedmachines.Of(ctx, p.client, a.GetNamespace(), cluster.Name)
	switch {
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("could not list the machines of TalosCluster %s/%s to see whether one is approved, try again: %v", a.GetNamespace(), cluster.Name, err))
	case len(approved) == 0 && (a.IsDryRun() || p.server.Is(a.GetUserInfo())):
		return nil
	}
	belong := fmt.Sprintf("approved machines belong to (%s) and are configured with", approvedmachines.Told(approved))
	if len(approved) == 0 {
		belong = "a machine is being approved for just now"
	}
	to += fmt.Sprintf("TalosCluster %q, which %s", cluster.Name, belong)
	if p.server.Is(a.GetUserInfo()) {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), cluster.Name, errors.New("the fieldplane server itself never approves; a user does: cannot "+to))
	}
	refusal := permission.Require(ctx, p.authorizer, a, permission.Permission{
		Verb: Verb, Resource: Resource, Subresource: Subresource, To: to,
	})
	if refusal != nil && len(approved) == 0 && !p.approvals.any(key) {
		// It concerns nobody yet. No approval is let in while this is on its way.
		let = true
		return nil
	}
	return refusal
}

// decisive lists the members in which two specs differ that machines are configured with. The others of that kind,
// secretsRef and talosVersion, cannot be changed.
func decisive(stored, spec *talos.TalosClusterSpec) []string {
	var fields []string
	for _, member := range []struct {
		name string
		same bool
	}{
		{"spec.controlPlaneEndpoint", stored.ControlPlaneEndpoint == spec.ControlPlaneEndpoint},
		{"spec.kubernetesVersion", stored.KubernetesVersion == spec.KubernetesVersion},
		{"spec.installImage", stored.InstallImage == spec.InstallImage},
		{"spec.configPatches", equality.Semantic.DeepEqual(stored.ConfigPatches, spec.ConfigPatches)},
	} {
		if !member.same {
			fields = append(fields, member.name)
		}
	}
	return fields
}
