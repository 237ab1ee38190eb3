package taloscluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// Discover serves talosclusters/discover: a POST asks for a sweep of the declared ranges now (T-10).
type Discover struct {
	status *object.Subresource
	clock  clock.PassiveClock
}

var (
	_ rest.Storage      = &Discover{}
	_ rest.NamedCreater = &Discover{}
)

// New returns an empty request.
func (*Discover) New() runtime.Object { return &talos.DiscoveryRequest{} }

// Destroy does nothing: the store belongs to the main resource.
func (*Discover) Destroy() {}

// Create writes the request into the cluster's status, where the controller sees it. It is refused while nothing would
// come of it.
func (d *Discover) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request, ok := obj.(*talos.DiscoveryRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a DiscoveryRequest: %T", obj))
	}
	if err := object.CheckRequestName(name, request.Name); err != nil {
		return nil, err
	}
	if err := validate(ctx, request.DeepCopy()); err != nil {
		return nil, err
	}
	changed, err := d.status.ChangeStatus(ctx, name, options.DryRun, func(obj runtime.Object) error {
		return ask(obj.(*talos.TalosCluster), d.clock.Now())
	})
	if err != nil {
		return nil, err
	}
	cluster := changed.(*talos.TalosCluster)
	return &talos.DiscoveryRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name},
		Status:     talos.DiscoveryRequestStatus{RequestedAt: cluster.Status.Discovery.RequestedAt.DeepCopy()},
	}, nil
}

// ask records that a sweep was asked for.
func ask(cluster *talos.TalosCluster, now time.Time) error {
	refuse := func(why string) error {
		return apierrors.NewConflict(talos.Resource("talosclusters"), cluster.Name, errors.New(why))
	}
	switch {
	case cluster.DeletionTimestamp != nil:
		return refuse("it is being deleted: nothing is swept any more")
	case len(cluster.Spec.Discovery.Addresses) == 0 && len(cluster.Spec.Discovery.Cidrs) == 0:
		return refuse("discovery is off: spec.discovery declares no address and no CIDR to sweep")
	case cluster.Spec.Paused:
		return refuse("discovery is paused: spec.paused stops everything")
	}
	if cluster.Status.Discovery == nil {
		cluster.Status.Discovery = &talos.DiscoveryStatus{}
	}

	// Times are stored by the second. One that is rounded up, and then grows, tells two requests of one second apart, and
	// no sweep that began before the request seems to answer it.
	at := now.Truncate(time.Second)
	if at.Before(now) {
		at = at.Add(time.Second)
	}
	// One that is far ahead was written by a clock that has been set back since, and would never be answered.
	if last := cluster.Status.Discovery.RequestedAt; last != nil && !at.After(last.Time) && last.Sub(at) < time.Minute {
		if last.Time.After(at) {
			// Two in one second stand in it already. A third would push the sweep that answers it ever further away.
			return apierrors.NewTooManyRequests("sweeps were asked for in this very second already; ask again in a second", 1)
		}
		at = last.Add(time.Second)
	}
	cluster.Status.Discovery.RequestedAt = &metav1.Time{Time: at}
	return nil
}
