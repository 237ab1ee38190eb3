// Package fakeapi is an API server for the tests of controllers: the generated fake clientset, with resourceVersions
// that are checked, a status that only its subresource writes, and latency on command.
//
// It leaves out admission, validation, defaults and access control, which the real server's own tests show.
package fakeapi

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	typed "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/talos/v1alpha1"
)

// Call is one request.
type Call struct {
	// Verb is create, get, list, update or updatestatus.
	Verb, Resource, Name string
	// Endpoint is the spec.endpoint of a machine that is created.
	Endpoint string
}

// API is the fake server and its client.
type API struct {
	versioned.Interface
	// Fake is the clientset below, without hooks: for what a test does itself.
	Fake *fake.Clientset

	mu      sync.Mutex
	version int
	before  func(context.Context, Call) error
	after   func(context.Context, Call) error
	calls   []Call
}

// New serves the objects.
func New(objects ...runtime.Object) *API {
	a := &API{Fake: fake.NewSimpleClientset()}
	a.Interface = a.Fake

	a.Fake.PrependReactor("create", "*", a.create)
	a.Fake.PrependReactor("update", "*", a.update)

	for _, object := range objects {
		a.add(object)
	}

	return a
}

func (a *API) add(object runtime.Object) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}

	a.stamp(accessor)

	if err := a.Fake.Tracker().Add(object); err != nil {
		panic(err)
	}
}

func (a *API) stamp(object metav1.Object) {
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))

	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + strconv.Itoa(a.version)))
	}
}

// Before is called before each request, After behind it, also when its effect is there already: an error of either is
// the request's. Both get the request's context.
func (a *API) Before(hook func(context.Context, Call) error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.before = hook
}

// After is told at Before.
func (a *API) After(hook func(context.Context, Call) error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.after = hook
}

// Calls are the requests so far.
func (a *API) Calls() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()

	return append([]Call(nil), a.calls...)
}

// Writes are the requests so far that were not reads.
func (a *API) Writes() []Call {
	var out []Call

	for _, call := range a.Calls() {
		if call.Verb != "get" && call.Verb != "list" {
			out = append(out, call)
		}
	}

	return out
}

func (a *API) create(action testing.Action) (bool, runtime.Object, error) {
	create := action.(testing.CreateAction) //nolint:forcetypeassert // the reactor is for creates
	object := create.GetObject().DeepCopyObject()

	accessor, err := meta.Accessor(object)
	if err != nil {
		return true, nil, err
	}

	a.stamp(accessor)
	accessor.SetGeneration(1)
	accessor.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))

	if machine, ok := object.(*v1alpha1.TalosMachine); ok {
		machine.Status = v1alpha1.TalosMachineStatus{}
	}

	if err := a.Fake.Tracker().Create(action.GetResource(), object, action.GetNamespace()); err != nil {
		return true, nil, err
	}

	return true, object, nil
}

func (a *API) update(action testing.Action) (bool, runtime.Object, error) {
	update := action.(testing.UpdateAction) //nolint:forcetypeassert // the reactor is for updates
	object := update.GetObject().DeepCopyObject()

	accessor, err := meta.Accessor(object)
	if err != nil {
		return true, nil, err
	}

	stored, err := a.Fake.Tracker().Get(action.GetResource(), action.GetNamespace(), accessor.GetName())
	if err != nil {
		return true, nil, err
	}

	current, err := meta.Accessor(stored)
	if err != nil {
		return true, nil, err
	}

	if have := accessor.GetResourceVersion(); have != "" && have != current.GetResourceVersion() {
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), accessor.GetName(),
			fmt.Errorf("resourceVersion %s is not %s", have, current.GetResourceVersion()))
	}

	object = merge(stored.DeepCopyObject(), object, action.GetSubresource() == "status")

	if accessor, err = meta.Accessor(object); err != nil {
		return true, nil, err
	}

	a.stamp(accessor)

	if err := a.Fake.Tracker().Update(action.GetResource(), object, action.GetNamespace()); err != nil {
		return true, nil, err
	}

	return true, object, nil
}

// merge takes the status, or all but the status, from the new object.
func merge(stored, updated runtime.Object, status bool) runtime.Object {
	switch from := updated.(type) {
	case *v1alpha1.TalosMachine:
		to := stored.(*v1alpha1.TalosMachine) //nolint:forcetypeassert // of the same resource

		if status {
			to.Status = from.Status

			return to
		}

		from.Status = to.Status
		if !equality.Semantic.DeepEqual(from.Spec, to.Spec) {
			from.Generation = to.Generation + 1
		}
	case *v1alpha1.TalosCluster:
		to := stored.(*v1alpha1.TalosCluster) //nolint:forcetypeassert // of the same resource

		if status {
			to.Status = from.Status

			return to
		}

		from.Status = to.Status
		if !equality.Semantic.DeepEqual(from.Spec, to.Spec) {
			from.Generation = to.Generation + 1
		}
	}

	return updated
}

func request[T any](ctx context.Context, a *API, call Call, do func() (T, error)) (T, error) {
	var none T

	a.mu.Lock()
	before, after := a.before, a.after
	a.mu.Unlock()

	if before != nil {
		if err := before(ctx, call); err != nil {
			return none, err
		}
	}

	if err := ctx.Err(); err != nil {
		return none, err
	}

	a.mu.Lock()
	a.calls = append(a.calls, call)
	a.mu.Unlock()

	out, err := do()
	if err != nil {
		return out, err
	}

	if after != nil {
		if err := after(ctx, call); err != nil {
			return none, err
		}
	}

	return out, ctx.Err()
}

// TalosV1alpha1 is the client with hooks.
func (a *API) TalosV1alpha1() typed.TalosV1alpha1Interface {
	return talosClient{TalosV1alpha1Interface: a.Fake.TalosV1alpha1(), api: a}
}

type talosClient struct {
	typed.TalosV1alpha1Interface

	api *API
}

func (c talosClient) TalosMachines(namespace string) typed.TalosMachineInterface {
	return machines{TalosMachineInterface: c.TalosV1alpha1Interface.TalosMachines(namespace), api: c.api}
}

func (c talosClient) TalosClusters(namespace string) typed.TalosClusterInterface {
	return clusters{TalosClusterInterface: c.TalosV1alpha1Interface.TalosClusters(namespace), api: c.api}
}

type machines struct {
	typed.TalosMachineInterface

	api *API
}

func (m machines) Create(ctx context.Context, o *v1alpha1.TalosMachine, opts metav1.CreateOptions) (*v1alpha1.TalosMachine, error) {
	return request(ctx, m.api, Call{Verb: "create", Resource: "talosmachines", Name: o.Name, Endpoint: o.Spec.Endpoint}, func() (*v1alpha1.TalosMachine, error) {
		return m.TalosMachineInterface.Create(ctx, o, opts)
	})
}

func (m machines) Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1alpha1.TalosMachine, error) {
	return request(ctx, m.api, Call{Verb: "get", Resource: "talosmachines", Name: name}, func() (*v1alpha1.TalosMachine, error) {
		return m.TalosMachineInterface.Get(ctx, name, opts)
	})
}

func (m machines) List(ctx context.Context, opts metav1.ListOptions) (*v1alpha1.TalosMachineList, error) {
	return request(ctx, m.api, Call{Verb: "list", Resource: "talosmachines"}, func() (*v1alpha1.TalosMachineList, error) {
		return m.TalosMachineInterface.List(ctx, opts)
	})
}

func (m machines) Update(ctx context.Context, o *v1alpha1.TalosMachine, opts metav1.UpdateOptions) (*v1alpha1.TalosMachine, error) {
	return request(ctx, m.api, Call{Verb: "update", Resource: "talosmachines", Name: o.Name}, func() (*v1alpha1.TalosMachine, error) {
		return m.TalosMachineInterface.Update(ctx, o, opts)
	})
}

func (m machines) UpdateStatus(ctx context.Context, o *v1alpha1.TalosMachine, opts metav1.UpdateOptions) (*v1alpha1.TalosMachine, error) {
	return request(ctx, m.api, Call{Verb: "updatestatus", Resource: "talosmachines", Name: o.Name}, func() (*v1alpha1.TalosMachine, error) {
		return m.TalosMachineInterface.UpdateStatus(ctx, o, opts)
	})
}

type clusters struct {
	typed.TalosClusterInterface

	api *API
}

func (c clusters) Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1alpha1.TalosCluster, error) {
	return request(ctx, c.api, Call{Verb: "get", Resource: "talosclusters", Name: name}, func() (*v1alpha1.TalosCluster, error) {
		return c.TalosClusterInterface.Get(ctx, name, opts)
	})
}

func (c clusters) UpdateStatus(ctx context.Context, o *v1alpha1.TalosCluster, opts metav1.UpdateOptions) (*v1alpha1.TalosCluster, error) {
	return request(ctx, c.api, Call{Verb: "updatestatus", Resource: "talosclusters", Name: o.Name}, func() (*v1alpha1.TalosCluster, error) {
		return c.TalosClusterInterface.UpdateStatus(ctx, o, opts)
	})
}
