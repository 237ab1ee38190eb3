// Package machineapproval asks for the verb approve before a TalosMachine is approved, un-approved, rejected, or made into
// something other than what was approved, on whatever path the write comes, and before its TalosCluster changes what
// approved machines are configured with (T-13).
package machineapproval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
	"github.com/fieldplane/fieldplane/pkg/admission/permission"
)

const (
	// PluginName is the name under which the plugin is registered.
	PluginName = "MachineApproval"

	// Verb is the RBAC verb that approval needs, on talosmachines/approval (T-13).
	Verb = "approve"
	// Resource and Subresource are what the verb is asked on; the subresource is also the path on which it is always asked.
	Resource    = "talosmachines"
	Subresource = "approval"

	// conditionSharesHardware is True on a machine that has the serial number or a MAC address of another.
	conditionSharesHardware = "SharesHardware"
)

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Approval is the plugin.
type Approval struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	client     versioned.Interface
	server     initializer.ServerIdentity
	// approvals are those of machines, edits the changes of clusters by users who may not approve.
	approvals, edits *underway
}

var (
	_ admission.ValidationInterface       = &Approval{}
	_ initializer.WantsUncachedAuthorizer = &Approval{}
	_ initializer.WantsFieldplaneClient   = &Approval{}
	_ initializer.WantsServerIdentity     = &Approval{}
)

// New returns the plugin, to be initialized with an authorizer, a client for our kinds, and the server's identity.
func New() *Approval {
	return &Approval{
		Handler:   admission.NewHandler(admission.Create, admission.Update),
		approvals: newUnderway(), edits: newUnderway(),
	}
}

// SetUncachedAuthorizer implements initializer.WantsUncachedAuthorizer.
func (p *Approval) SetUncachedAuthorizer(authz authorizer.UnconditionalAuthorizer) {
	p.authorizer = authz
}

// SetFieldplaneClient implements initializer.WantsFieldplaneClient.
func (p *Approval) SetFieldplaneClient(client versioned.Interface) { p.client = client }

// SetServerIdentity implements initializer.WantsServerIdentity.
func (p *Approval) SetServerIdentity(server initializer.ServerIdentity) { p.server = server }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Approval) ValidateInitialization() error {
	switch {
	case p.authorizer == nil:
		return errors.New(PluginName + " needs an authorizer that is not cached")
	case p.client == nil:
		return errors.New(PluginName + " needs a client for the talos group")
	case p.server.Empty():
		return errors.New(PluginName + " needs the server's identity")
	}
	return nil
}

// Validate implements admission.ValidationInterface. It compares what is stored with what would be, after mutation and
// the strategy, and so holds on every path alike, those included on which the strategy lets nothing of this through.
func (p *Approval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// A subresource that is created is a request, and no machine or cluster: whether it may be made is its path's RBAC to say.
	if a.GetSubresource() != "" && a.GetOperation() == admission.Create {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case talos.Resource(Resource):
		return p.validateMachine(ctx, a)
	case talos.Resource("talosclusters"):
		return p.validateCluster(ctx, a)
	}
	return nil
}

func (p *Approval) validateMachine(ctx context.Context, a admission.Attributes) error {
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
	if err := permission.Require(ctx, p.authorizer, a, permission.Permission{
		Verb: Verb, Subresource: Subresource, Name: machine.Name, To: act.String(),
	}); err != nil {
		return err
	}
	// Only now: what is known of the machine is told to those who may approve it.
	if shared := sharedHardware(stored); shared != "" && !machine.Spec.AcceptSharedHardware &&
		(act.kind == approving || act.kind == altering && stored.Spec.AcceptSharedHardware) {
		return refuse("spec.approved: true: " + shared + "; check which of the two this is, then set spec.acceptSharedHardware: true to approve it all the same")
	}
	if act.kind != approving || a.IsDryRun() {
		return nil
	}
	cluster := a.GetNamespace() + "/" + machine.Spec.ClusterRef.Name
	forget := p.approvals.note(cluster)
	if p.edits.any(cluster) {
		forget()
		return apierrors.NewConflict(a.GetResource().GroupResource(), machine.Name, fmt.Errorf(
			"TalosCluster %q, with which it is configured, was changed in the last seconds by somebody who may not approve: look at it, and approve again",
			machine.Spec.ClusterRef.Name))
	}
	return nil
}

// sharedHardware says with which other machine a stored one shares hardware, "" when with none that is known.
func sharedHardware(stored *talos.TalosMachine) string {
	if stored == nil {
		return ""
	}
	condition := meta.FindStatusCondition(stored.Status.Conditions, conditionSharesHardware)
	switch {
	case condition == nil || condition.Status != "True":
		return ""
	case condition.Message == "":
		return "the machine shares its serial number or a MAC address with another"
	}
	return condition.Message
}

type kind int

const (
	nothing kind = iota
	approving
	unapproving
	altering
	accepting
	rejecting
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
	case accepting:
		return "set or change " + strings.Join(a.fields, ", ") + ", which an approver accepts"
	case rejecting:
		return "reject a machine or take a rejection back (spec.rejected)"
	case writing:
		return "write the approval subresource"
	default:
		return "do nothing"
	}
}

// classify tells what a write does; stored is nil when it creates the machine.
func classify(stored, machine *talos.TalosMachine, subresource string) act {
	if stored == nil {
		stored = &talos.TalosMachine{}
	}
	was, is := talos.IsApproved(stored), talos.IsApproved(machine)

	switch {
	case is && !was:
		return act{kind: approving}
	case was && !is:
		return act{kind: unapproving}
	}
	if was {
		fields := talos.ChangedApproval(&stored.Spec, &machine.Spec)
		// Identity can be replayed: who moves the endpoint of a machine that waits for its configuration decides who gets it.
		if stored.Spec.Endpoint != machine.Spec.Endpoint && !configured(stored) {
			fields = append(fields, "spec.endpoint")
		}
		if len(fields) > 0 {
			return act{kind: altering, fields: fields}
		}
	}
	// Set beforehand, these would look like the approver's own.
	if fields := talos.ChangedAcceptance(&stored.Spec, &machine.Spec); len(fields) > 0 {
		return act{kind: accepting, fields: fields}
	}
	if !equality.Semantic.DeepEqual(stored.Spec.Rejected, machine.Spec.Rejected) {
		return act{kind: rejecting}
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
