package talosmachine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// Reboot serves talosmachines/reboot: a POST asks for the machine to be rebooted into the configuration that waits for it,
// and for no other (T-18a).
type Reboot struct {
	status *object.Subresource
	clock  clock.PassiveClock
}

var (
	_ rest.Storage      = &Reboot{}
	_ rest.NamedCreater = &Reboot{}
)

// New returns an empty request.
func (*Reboot) New() runtime.Object { return &talos.RebootRequest{} }

// Destroy does nothing: the store belongs to the main resource.
func (*Reboot) Destroy() {}

// Create writes the request into the machine's status, where the controller sees it. It is refused while nothing waits for
// a reboot, or something else than the one who asks has seen.
func (r *Reboot) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request, ok := obj.(*talos.RebootRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a RebootRequest: %T", obj))
	}
	if err := object.CheckRequestName(name, request.Name); err != nil {
		return nil, err
	}
	if err := validate(ctx, request.DeepCopy()); err != nil {
		return nil, err
	}
	var user string
	if info, ok := genericapirequest.UserFrom(ctx); ok {
		user = info.GetName()
	}
	changed, err := r.status.ChangeStatus(ctx, name, options.DryRun, func(obj runtime.Object) error {
		return ask(obj.(*talos.TalosMachine), request.Spec.Hash, user, r.clock.Now())
	})
	if err != nil {
		return nil, err
	}
	machine := changed.(*talos.TalosMachine)
	return &talos.RebootRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: machine.Namespace, Name: machine.Name},
		Spec:       request.Spec,
		Status: talos.RebootRequestStatus{
			RequestedAt: machine.Status.Reboot.RequestedAt.DeepCopy(),
			Hash:        machine.Status.Reboot.Hash,
		},
	}, nil
}

// ask records that a reboot into the configuration with the hash, or the one that waits, was asked for.
func ask(machine *talos.TalosMachine, hash, user string, now time.Time) error {
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(talos.Resource("talosmachines"), machine.Name, fmt.Errorf(format, args...))
	}
	update := machine.Status.Update
	switch {
	case machine.DeletionTimestamp != nil:
		return refuse("it is being deleted")
	case !talos.IsApproved(machine):
		return refuse("it is not approved: nothing is sent to it")
	case update == nil || !update.RebootRequired || update.Hash == "":
		return refuse("no configuration waits for a reboot (status.update.rebootRequired)")
	case hash != "" && hash != update.Hash:
		return refuse("the configuration that waits for a reboot now is %s, and not %s: look at it, then ask for that one", update.Hash, hash)
	}
	// Asked for twice, it is done once: the record of the intent must not be lost.
	if stands(machine) {
		return nil
	}
	machine.Status.Reboot = &talos.MachineRebootStatus{RequestedAt: &metav1.Time{Time: now}, RequestedBy: user, Hash: update.Hash}
	return nil
}

// stands tells whether a request for what waits is acted on, or will be. One of which nothing came, or that is older than
// the approval or than the change, is acted on no more: it has to be made again, and would else be in its own way for ever.
func stands(machine *talos.TalosMachine) bool {
	update, asked, given := machine.Status.Update, machine.Status.Reboot, machine.Status.Approval
	switch {
	case asked == nil || asked.Hash != update.Hash || asked.RequestedAt == nil || asked.CompletedAt != nil:
		return false
	case update.IntendedAt != nil:
		return true
	case asked.IntendedAt != nil:
		return false
	}
	return !asked.RequestedAt.Before(update.Since) && (given == nil || !asked.RequestedAt.Before(&given.Time))
}
