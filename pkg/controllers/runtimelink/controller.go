// Package runtimelink is the server's end of what it and the runtimes of Units say to each other: it follows every runtime's
// reports and repeats to each the order that its Unit's controller has given (P-16b). It decides nothing.
//
// RBAC in the host cluster: pods get, list, watch.
package runtimelink

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/controllers/internal/watch"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/runtimeclient"
)

const (
	// contactCheck is how often lost contact is looked for.
	contactCheck = 500 * time.Millisecond

	firstRequeue = 5 * time.Millisecond
	lastRequeue  = 10 * time.Second
)

// Runtime is what a link needs of one Unit's runtime; *runtimeclient.Client is one.
type Runtime interface {
	WatchReports(ctx context.Context, handle func(api.Report)) error
	Put(ctx context.Context, order api.Order) (*api.Report, error)
	Close()
}

// ConnectRuntimes reaches runtimes over mutual TLS, with the controllers' certificate; each is verified as one of its namespace
// (P-12).
func ConnectRuntimes(controllers *authority.ControllerClient, dial peer.Dial, c clock.Clock) func(namespace, address string) Runtime {
	return func(namespace, address string) Runtime {
		return runtimeclient.New(address, namespace, probeclient.CredentialsOf(controllers, namespace), dial, c)
	}
}

// Options are what the controller needs from outside.
type Options struct {
	// Pods of all namespaces of the host cluster; they may be filtered by the label probepod.RuntimeLabel.
	Pods coreinformers.PodInformer
	// Connect returns a client of the runtime at an address; it does not dial yet.
	Connect func(namespace, address string) Runtime
	// Distrusted is told of namespaces where a runtime's certificate, or the controllers' by a runtime, is refused; it is told again and
	// again while that lasts, and must not block.
	Distrusted func(namespace string)
	Clock      clock.WithTicker
}

// Controller keeps one link to each runtime.
type Controller struct {
	informer   cache.SharedIndexInformer
	pods       corelisters.PodLister
	connect    func(namespace, address string) Runtime
	distrusted func(namespace string)
	clock      clock.WithTicker
	// queue holds the pods that have to be looked at.
	queue work.Queue

	mu      sync.Mutex
	changed func(types.NamespacedName)
	orders  map[types.NamespacedName]api.Order
	links   map[types.NamespacedName]*link
}

// New returns a controller; the informer it asks for is started by the caller, before or after.
func New(o Options) *Controller {
	return &Controller{
		informer: o.Pods.Informer(), pods: o.Pods.Lister(),
		connect: o.Connect, distrusted: o.Distrusted, clock: o.Clock,
		queue:   work.NewQueue("runtimelink", firstRequeue, lastRequeue, o.Clock),
		changed: func(types.NamespacedName) {},
		orders:  map[types.NamespacedName]api.Order{},
		links:   map[types.NamespacedName]*link{},
	}
}

// OnChange has a function called whenever what Report says of a Unit has changed otherwise than by its time. It is called before
// Run, once; the function does not block.
func (c *Controller) OnChange(changed func(unit types.NamespacedName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = changed
}

// Tell has the runtime follow an order from now on: it is sent at once and every api.KeepAlive, until another is told. An order of a
// lower revision than one told before is dropped.
func (c *Controller) Tell(unit types.NamespacedName, order api.Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.orders[unit]; ok && before.UID == order.UID && (order.Revision < before.Revision || order == before) {
		return
	}
	c.orders[unit] = order
	if l := c.links[unit]; l != nil {
		l.tell(order)
	}
}

// Forget stops telling, until Tell does.
func (c *Controller) Forget(unit types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.orders, unit)
	if l := c.links[unit]; l != nil {
		l.forget()
	}
}

// Report is the last one of the Unit's runtime, and the pod that it came from, "" if there is none. While the runtime is not in contact,
// the report is the last one that was heard, or the zero Report.
func (c *Controller) Report(unit types.NamespacedName) (report api.Report, pod string, inContact bool) {
	c.mu.Lock()
	l := c.links[unit]
	c.mu.Unlock()
	if l == nil {
		return api.Report{}, "", false
	}
	report, inContact = l.look()
	return report, l.pod.name, inContact
}

// Run keeps the links until ctx ends, and returns when nothing of it runs any more. It can run once.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("runtimelink"))
	defer c.queue.ShutDown()
	pods := watch.Source{Informer: c.informer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    c.podChanged,
		UpdateFunc: func(_, after any) { c.podChanged(after) },
		DeleteFunc: c.podChanged,
	}}
	stop, synced, err := watch.Follow(ctx, pods)
	defer stop()
	if err != nil || !synced {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { c.checkContacts(ctx) })
	// Only one at once: a link is made and ended by one goroutine.
	work.Workers{
		Kind: "unit", Count: 1, Timeout: time.Minute,
		Reconcile: func(_ context.Context, unit types.NamespacedName) (work.Again, error) {
			// A link outlives the reconcile that makes it.
			return work.Again{}, c.reconcile(ctx, unit)
		},
	}.Run(ctx, c.queue)
	running.Wait()
	c.stop()
	return nil
}

func (c *Controller) podChanged(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if unit, ours := probepod.UnitOf(pod); ours {
		c.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: unit})
	}
}

// podFacts is what is known of a runtime's pod.
type podFacts struct {
	name string
	uid  types.UID
	// address is "" while it does not run.
	address string
	// unitUID is that of the Unit that owns it.
	unitUID types.UID
}

// reconcile has the Unit's pod, and not the one that had its name before, be the one that is linked.
func (c *Controller) reconcile(ctx context.Context, unit types.NamespacedName) error {
	pod, err := c.podOf(unit)
	if err != nil {
		return err
	}
	c.mu.Lock()
	old := c.links[unit]
	c.mu.Unlock()
	if old != nil && old.pod == pod || old == nil && pod.address == "" {
		return nil
	}
	if old != nil {
		old.stop()
	}
	c.mu.Lock()
	changed := c.changed
	delete(c.links, unit)
	if pod.address != "" && ctx.Err() == nil {
		l := &link{
			unit: unit, pod: pod, clock: c.clock, changed: changed, distrusted: c.distrusted,
			runtime: c.connect(unit.Namespace, net.JoinHostPort(pod.address, strconv.Itoa(api.Port))),
			news:    make(chan struct{}, 1),
		}
		var order *api.Order
		if told, ok := c.orders[unit]; ok {
			order = &told
		}
		c.links[unit] = l
		l.start(ctx, order)
	}
	c.mu.Unlock()
	changed(unit)
	return nil
}

// podOf is the pod of a Unit's runtime, the zero one if there is none that runs.
func (c *Controller) podOf(unit types.NamespacedName) (podFacts, error) {
	pod, err := c.pods.Pods(unit.Namespace).Get(probepod.RuntimeName(unit.Name))
	if apierrors.IsNotFound(err) {
		return podFacts{}, nil
	}
	if err != nil {
		return podFacts{}, err
	}
	if of, ours := probepod.UnitOf(pod); !ours || of != unit.Name || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		return podFacts{}, nil
	}
	facts := podFacts{name: pod.Name, uid: pod.UID, address: pod.Status.PodIP}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		facts.unitUID = owner.UID
	}
	return facts, nil
}

// checkContacts tells of runtimes that fell silent, or take no orders.
func (c *Controller) checkContacts(ctx context.Context) {
	ticker := c.clock.NewTicker(contactCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, l := range c.all() {
			l.judge()
		}
	}
}

func (c *Controller) all() []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*link, 0, len(c.links))
	for _, l := range c.links {
		all = append(all, l)
	}
	return all
}

// stop ends all links.
func (c *Controller) stop() {
	all := c.all()
	for _, l := range all {
		l.cancel()
	}
	for _, l := range all {
		l.stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.links)
}
