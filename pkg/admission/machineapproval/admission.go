// Package machineapproval asks for the verb approve before a TalosMachine is approved, un-approved, or, once approved,
// made into something other than what was approved, on whatever path the write comes (T-13).
package machineapproval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
	"github.com/fieldplane/fieldplane/pkg/admission/permission"
)

const (
	// PluginName is the name under which the plugin is registered.
	PluginName = "MachineApproval"

	// Verb is the RBAC verb that approval needs, on talosmachines/approval (T-13).
	Verb = "approve"
	// Subresource is the subresource that the verb is asked on, and the path on which it is always asked.
	Subresource = "approval"
)

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Approval is the plugin.
type Approval struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	server     initializer.ServerIdentity
}

var (
	_ admission.ValidationInterface       = &Approval{}
	_ initializer.WantsUncachedAuthorizer = &Approval{}
	_ initializer.WantsServerIdentity     = &Approval{}
)

// New returns the plugin, to be initialized with an authorizer and the server's identity.
func New() *Approval {
	return &Approval{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetUncachedAuthorizer implements initializer.WantsUncachedAuthorizer.
func (p *Approval) SetUncachedAuthorizer(authz authorizer.UnconditionalAuthorizer) {
	p.authorizer = authz
}

// SetServerIdentity implements initializer.WantsServerIdentity.
func (p *Approval) SetServerIdentity(server initializer.ServerIdentity) { p.server = server }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Approval) ValidateInitialization() error {
	if p.authorizer == nil {
		return errors.New(PluginName + " needs an authorizer that is not cached")
	}
	if p.server.Empty() {
		return errors.New(PluginName + " needs the server's identity")
	}
	return nil
}

// Validate implements admission.ValidationInterface. It compares what is stored with what would be, after mutation and
// the strategy, and so holds on every path alike, those included on which the strategy lets nothing of this through.
func (p *Approval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != talos.Resource("talosmachines") {
		return nil
	}
	machine, ok := a.GetObject().(*talos.TalosMachine)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("%s: expected a TalosMachine, have %T", PluginName, a.GetObject()))
	}
	var stored *talos.TalosMachine
	if a.GetOperation() == admission.Update {
		if stored, ok = a.GetOldObject().(*talos.TalosMachine); !ok {
			return apierrors.NewInternalError(fmt.Errorf("%s: expected a stored TalosMachine, have %T", PluginName, a.GetOldObject()))
		}
	}

	act := classify(stored, machine, a.GetSubresource())
	if act.kind == nothing {
		return nil
	}

	refuse := func(why string) error {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), machine.Name, errors.New(why))
	}
	switch {
	case act.kind == approving && (machine.DeletionTimestamp != nil || stored != nil && stored.DeletionTimestamp != nil):
		return refuse("spec.approved: true: a machine that is being deleted cannot be approved")
	case act.kind == approving && machine.Spec.Rejected != nil:
		return refuse("spec.approved: true: a machine with spec.rejected set cannot be approved; clear spec.rejected through the approval subresource")
	// Un-approving is left to the server's RBAC like anybody's: it only ever stops something.
	case act.kind != unapproving && p.server.Is(a.GetUserInfo()):
		return refuse("the fieldplane server itself never approves; a user does: cannot " + act.String())
	}
	return permission.Require(ctx, p.authorizer, a, permission.Permission{
		Verb: Verb, Subresource: Subresource, Name: machine.Name, To: act.String(),
	})
}

type kind int

const (
	nothing kind = iota
	approving
	unapproving
	altering
	writing
)

// act is what a write does that needs the verb.
type act struct {
	kind   kind
	fields []string
}

// String ends the sentence "needs the verb approve to".
func (a act) String() string {
	switch a.kind {
	case approving:
		return "set spec.approved to true"
	case unapproving:
		return "un-approve a machine (spec.approved was true)"
	case altering:
		return "change " + strings.Join(a.fields, ", ") + " of an approved machine"
	case writing:
		return "write the approval subresource"
	default:
		return "do nothing"
	}
}

// classify tells what a write does; stored is nil when it creates the machine.
func classify(stored, machine *talos.TalosMachine, subresource string) act {
	was := stored != nil && ptr.Deref(stored.Spec.Approved, false)
	is := ptr.Deref(machine.Spec.Approved, false)

	switch {
	case is && !was:
		return act{kind: approving}
	case was && !is:
		return act{kind: unapproving}
	}
	if was {
		fields := approvedContent(&stored.Spec, &machine.Spec)
		// Identity can be replayed: who moves the endpoint of a machine that waits for its configuration decides who gets it.
		if stored.Spec.Endpoint != machine.Spec.Endpoint && !configured(stored) {
			fields = append(fields, "spec.endpoint")
		}
		if len(fields) > 0 {
			return act{kind: altering, fields: fields}
		}
	}
	// docs/design.md, "Approval, exactly": the path needs update on it and approve on it, whatever is written.
	if subresource == Subresource {
		return act{kind: writing}
	}
	return act{}
}

func configured(machine *talos.TalosMachine) bool {
	return machine.Status.Configuration != nil && machine.Status.Configuration.AppliedAt != nil
}

// approvedContent lists the members of what was approved that differ: those of T-13, and what an approver accepted
// (T-18), since the approval of a control plane is only as good as the fingerprint it names.
func approvedContent(stored, spec *talos.TalosMachineSpec) []string {
	var fields []string
	for _, member := range []struct {
		name string
		same bool
	}{
		{"spec.role", stored.Role == spec.Role},
		{"spec.install", equality.Semantic.DeepEqual(stored.Install, spec.Install)},
		{"spec.diskRoles", equality.Semantic.DeepEqual(stored.DiskRoles, spec.DiskRoles)},
		{"spec.network", equality.Semantic.DeepEqual(stored.Network, spec.Network)},
		{"spec.configPatches", equality.Semantic.DeepEqual(stored.ConfigPatches, spec.ConfigPatches)},
		{"spec.acceptedFingerprint", stored.AcceptedFingerprint == spec.AcceptedFingerprint},
		{"spec.acceptUnverifiedFingerprint", stored.AcceptUnverifiedFingerprint == spec.AcceptUnverifiedFingerprint},
		{"spec.acceptSharedHardware", stored.AcceptSharedHardware == spec.AcceptSharedHardware},
	} {
		if !member.same {
			fields = append(fields, member.name)
		}
	}
	return fields
}
