// Package tags reads and writes the tags of Units for the registry: it finds a Unit's runtime and asks it (P-15).
package tags

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/runtimeclient"
)

// Client is what is asked of a runtime; *runtimeclient.Client does it.
type Client interface {
	Tags(ctx context.Context) (*api.TagList, error)
	WatchTags(ctx context.Context, handle func(api.TagEvent)) error
	WriteTags(ctx context.Context, writes api.WriteRequest) (*api.WriteResponse, error)
}

var _ Client = &runtimeclient.Client{}

// Dial returns a client of the runtime at an address (host:port) in a namespace.
type Dial func(namespace, address string) Client

// DialRuntimes speaks with runtimes over mutual TLS, with the controllers' certificate; each runtime is verified as one of its
// namespace (P-11, P-12).
func DialRuntimes(controllers *authority.ControllerClient, dial peer.Dial, c clock.Clock) Dial {
	return func(namespace, address string) Client {
		return runtimeclient.New(address, namespace, probeclient.CredentialsOf(controllers, namespace), dial, c)
	}
}

// Runtimes are the runtimes of all Units.
type Runtimes struct {
	pods corev1client.PodsGetter
	dial Dial
}

// NewRuntimes returns what finds runtimes by their pods.
func NewRuntimes(pods corev1client.PodsGetter, dial Dial) *Runtimes {
	return &Runtimes{pods: pods, dial: dial}
}

// Tags returns every tag of a Unit with its value.
func (r *Runtimes) Tags(ctx context.Context, unit *physical.Unit) ([]api.TagValue, error) {
	client, err := r.client(ctx, unit)
	if err != nil {
		return nil, err
	}
	list, err := client.Tags(ctx)
	if err != nil {
		return nil, explain(ctx, unit, err)
	}
	if err := ofUnit(unit, list.Runtime); err != nil {
		return nil, err
	}
	return list.Tags, nil
}

// FollowTags calls handle with every tag, then with what changes, and with heartbeats, until the runtime falls silent, has
// another Unit, or ctx ends; its error is never nil.
func (r *Runtimes) FollowTags(ctx context.Context, unit *physical.Unit, handle func(api.TagEvent)) error {
	client, err := r.client(ctx, unit)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = client.WatchTags(ctx, func(event api.TagEvent) {
		if ctx.Err() != nil {
			return
		}
		if err := ofUnit(unit, event.Runtime); err != nil {
			stop(err)
			return
		}
		handle(event)
	})
	var other apierrors.APIStatus
	if cause := context.Cause(ctx); errors.As(cause, &other) {
		return cause
	}
	return explain(ctx, unit, err)
}

// Reach returns nil if the Unit has a runtime that answers for it.
func (r *Runtimes) Reach(ctx context.Context, unit *physical.Unit) error {
	_, err := r.client(ctx, unit)
	return err
}

// WriteTags sends values and tells what became of each.
func (r *Runtimes) WriteTags(ctx context.Context, unit *physical.Unit, writes []api.TagWrite) []api.WriteResult {
	client, err := r.client(ctx, unit)
	if err != nil {
		return all(writes, api.WriteResult{Message: err.Error()})
	}
	response, err := client.WriteTags(ctx, api.WriteRequest{UID: string(unit.UID), Revision: revisionOf(unit), Writes: writes})
	var (
		refused *api.Error
		unsent  *peer.ConnectError
	)
	switch {
	case err == nil:
		return response.Results
	case errors.As(err, &refused):
		return all(writes, api.WriteResult{Message: "the runtime refuses: " + refused.Message})
	case errors.As(err, &unsent):
		return all(writes, api.WriteResult{Message: "the runtime does not answer: " + unsent.Error()})
	}
	return all(writes, api.WriteResult{Uncertain: true, Message: "no answer of the runtime: " + err.Error()})
}

// revisionOf is the resourceVersion as the controllers' orders have it, 0 if it is none.
func revisionOf(unit *physical.Unit) int64 {
	revision, err := strconv.ParseInt(unit.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

func all(writes []api.TagWrite, result api.WriteResult) []api.WriteResult {
	results := make([]api.WriteResult, 0, len(writes))
	for _, write := range writes {
		result.TagKey = write.TagKey
		results = append(results, result)
	}
	return results
}

// client finds the Unit's runtime.
func (r *Runtimes) client(ctx context.Context, unit *physical.Unit) (Client, error) {
	name := unit.Status.RuntimePodName
	if name == "" {
		return nil, unreachable(unit, "it has none yet")
	}
	pod, err := r.pods.Pods(unit.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, unreachable(unit, "its pod, "+name+", is gone")
	case err != nil && ctx.Err() != nil:
		return nil, apierrors.NewTimeoutError("the pod of the Unit's runtime could not be read in time", 0)
	case err != nil:
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the pod of the runtime of unit %s could not be read: %v", unit.Name, err))
	case pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil:
		return nil, unreachable(unit, "its pod, "+name+", does not run")
	}
	return r.dial(unit.Namespace, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(api.Port))), nil
}

// ofUnit refuses what is said of another Unit: one of the same name was deleted, and its runtime has not heard of it yet.
func ofUnit(unit *physical.Unit, runtime api.RuntimeInfo) error {
	switch runtime.UID {
	case string(unit.UID):
		return nil
	case "":
		return unreachable(unit, "it has no configuration yet")
	}
	return unreachable(unit, "it still has the configuration of another Unit")
}

func explain(ctx context.Context, unit *physical.Unit, err error) error {
	var refused *api.Error
	switch {
	case errors.As(err, &refused):
		return unreachable(unit, "it says: "+refused.Message)
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("the Unit's runtime did not answer in time", 0)
	}
	return unreachable(unit, "it does not answer: "+err.Error())
}

func unreachable(unit *physical.Unit, why string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("the tags of unit %s are read and written through its runtime, and %s", unit.Name, why))
}
