package localcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/test/localcluster/provider"
)

// podWorkers is how many pods of a node are looked at at a time.
const podWorkers = 10

// virtualNode is one virtual-kubelet node. The provider, with the running
// processes, outlives the controllers that connect it to the API, so that a node
// can be lost and come back.
type virtualNode struct {
	cluster  *Cluster
	object   *corev1.Node
	provider *provider.Provider
	kubelet  *kubeletServer
	// handlers feed changes of ConfigMaps and Secrets to the provider.
	handlers map[cache.SharedIndexInformer]cache.ResourceEventHandlerRegistration

	mu sync.Mutex
	// disconnect ends the controllers and waits for them; nil while disconnected.
	disconnect func()
}

// AddNode adds a virtual node and returns when it is Ready and schedulable.
func (c *Cluster) AddNode(ctx context.Context, name string, labels map[string]string) error {
	return c.addNode(ctx, Node{Name: name, Labels: labels})
}

func (c *Cluster) addNode(ctx context.Context, node Node) error {
	name := node.Name
	n, err := c.newNode(node)
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	c.mu.Lock()
	_, taken := c.nodes[name]
	if !taken && !c.stopping {
		c.nodes[name] = n
	}
	stopping := c.stopping
	c.mu.Unlock()
	if taken || stopping {
		n.stop()
		return fmt.Errorf("node %s: it exists already, or the cluster is being stopped", name)
	}
	registered, err := n.connect()
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return c.waitNodeReady(ctx, name, registered)
}

// RemoveNode ends the node's pods and deletes them and the node.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	c.mu.Lock()
	n := c.nodes[name]
	delete(c.nodes, name)
	c.mu.Unlock()
	if n == nil {
		return fmt.Errorf("node %s: not one of this cluster's", name)
	}
	n.stop()
	// The node first, so that the scheduler binds nothing to it any more.
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("node %s: lease: %w", name, err)
	}
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: onNode(name)})
	if err != nil {
		return fmt.Errorf("node %s: pods: %w", name, err)
	}
	for _, pod := range pods.Items {
		err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("node %s: pod %s/%s: %w", name, pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// LoseNode cuts the node off from the API, as a network partition does: no
// heartbeats, no statuses, nothing is started or stopped; its processes run on.
// The cluster notices after kube-controller-manager's --node-monitor-grace-period
// (50 s unless ExtraArgs say otherwise).
func (c *Cluster) LoseNode(name string) error {
	n := c.node(name)
	if n == nil {
		return fmt.Errorf("node %s: not one of this cluster's", name)
	}
	n.provider.Partition()
	n.disconnectNow()
	return nil
}

// RestoreNode ends what LoseNode began and returns when the node is Ready again.
func (c *Cluster) RestoreNode(ctx context.Context, name string) error {
	n := c.node(name)
	if n == nil {
		return fmt.Errorf("node %s: not one of this cluster's", name)
	}
	registered, err := n.connect()
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return c.waitNodeReady(ctx, name, registered)
}

func (c *Cluster) node(name string) *virtualNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

func (c *Cluster) newNode(node Node) (*virtualNode, error) {
	name := node.Name
	object := nodeObject(name, node.Labels)
	addresses, namespace := c.addresses, ""
	if node.Network != nil {
		addresses, namespace = provider.NewAddressesOf(node.Network.Pods), node.Network.Namespace
	}
	dir := c.path("pods", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	n := &virtualNode{cluster: c, object: object, handlers: map[cache.SharedIndexInformer]cache.ResourceEventHandlerRegistration{}}
	n.provider = provider.New(provider.Config{
		Dir:              dir,
		LogDir:           c.podLogDir(),
		PidDir:           c.path("run"),
		BinDir:           c.options.PodBinDir,
		Client:           c.client,
		Recorder:         c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: name}),
		Addresses:        addresses,
		NetworkNamespace: namespace,
		Allocatable:      object.Status.Allocatable,
		APIServerHost:    "127.0.0.1",
		APIServerPort:    strconv.Itoa(c.ports.APIServer),
		VolumeRefresh:    c.options.VolumeRefresh,
		Clock:            clock.RealClock{},
	})
	var err error
	if n.kubelet, err = startKubeletServer(c.pki, n.provider); err != nil {
		return nil, err
	}
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n.kubelet.port)
	for kind, informer := range map[provider.ObjectKind]cache.SharedIndexInformer{
		provider.ConfigMap: c.informers.Core().V1().ConfigMaps().Informer(),
		provider.Secret:    c.informers.Core().V1().Secrets().Informer(),
	} {
		changed := func(object any) {
			if object, ok := object.(metav1.Object); ok {
				n.provider.ObjectChanged(kind, object.GetNamespace(), object.GetName())
			}
		}
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    changed,
			UpdateFunc: func(_, object any) { changed(object) },
			DeleteFunc: changed,
		})
		if err != nil {
			return nil, err
		}
		n.handlers[informer] = registration
	}
	return n, nil
}

// connect runs the node's and the pods' controllers until disconnectNow. The
// channel is closed when the node has registered itself.
func (n *virtualNode) connect() (registered <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.disconnect != nil {
		return nil, errors.New("it is connected already")
	}
	c, name := n.cluster, n.object.Name
	podInformers := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = onNode(name)
	}))
	pods := podInformers.Core().V1().Pods()
	n.provider.Attach(pods.Lister())
	podController, err := node.NewPodController(node.PodControllerConfig{
		PodClient:         provider.StatusPatcher{PodsGetter: c.client.CoreV1()},
		PodInformer:       pods,
		EventRecorder:     c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: name}),
		Provider:          n.provider,
		ConfigMapInformer: c.informers.Core().V1().ConfigMaps(),
		SecretInformer:    c.informers.Core().V1().Secrets(),
		ServiceInformer:   c.informers.Core().V1().Services(),
		// The default limits the whole node to ten changes a second.
		SyncPodsFromKubernetesRateLimiter:    retryLimiter(),
		DeletePodsFromKubernetesRateLimiter:  retryLimiter(),
		SyncPodStatusFromProviderRateLimiter: retryLimiter(),
		// The provider resolves environments itself, at each start of a container.
		SkipDownwardAPIResolution: true,
	})
	if err != nil {
		return nil, err
	}
	nodeController, err := node.NewNodeController(
		node.NewNaiveNodeProvider(), n.object.DeepCopy(), c.client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), node.DefaultLeaseDuration),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	podInformers.Start(ctx.Done())
	go func() { _ = podController.Run(ctx, podWorkers) }()
	go func() { _ = nodeController.Run(ctx) }()
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
			n.provider.Synced()
		}
	}()
	n.disconnect = func() {
		cancel()
		<-podController.Done()
		<-nodeController.Done()
		podInformers.Shutdown()
	}
	return nodeController.Ready(), nil
}

func (n *virtualNode) disconnectNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.disconnect != nil {
		n.disconnect()
		n.disconnect = nil
	}
}

// stop ends the node's controllers and its pods' processes; the API keeps both.
func (n *virtualNode) stop() {
	n.disconnectNow()
	n.provider.Stop(n.cluster.options.PodStopLimit)
	for informer, registration := range n.handlers {
		_ = informer.RemoveEventHandler(registration)
	}
	n.kubelet.stop()
}

func (c *Cluster) waitNodeReady(ctx context.Context, name string, registered <-chan struct{}) error {
	// A node of an earlier start may look Ready before it has said so.
	select {
	case <-registered:
	case <-ctx.Done():
		return fmt.Errorf("node %s: registering: %w", name, ctx.Err())
	case <-c.failed:
		return c.failure
	}
	var last string
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Err(); err != nil {
			return false, err
		}
		object, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			last = err.Error()
			return false, nil
		}
		ready := slices.ContainsFunc(object.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
		// The node-lifecycle controller lifts the taint that admission puts on new nodes.
		for _, taint := range object.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
				last = "it still has the taint " + taint.ToString()
				return false, nil
			}
		}
		last = "it is not Ready"
		return ready, nil
	})
	if err != nil {
		return fmt.Errorf("node %s: %w (last: %s)", name, err, last)
	}
	return nil
}

// nodeObject is the Node as its kubelet would register it.
func nodeObject(name string, labels map[string]string) *corev1.Node {
	all := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(all, labels)
	// Processes are not limited; the amounts only have to suffice for every test.
	amounts := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("256Gi"),
		corev1.ResourcePods:             resource.MustParse("500"),
	}
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
		Status: corev1.NodeStatus{
			Capacity:    amounts,
			Allocatable: amounts,
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion:          "v1.37.2",
				OperatingSystem:         "linux",
				Architecture:            runtime.GOARCH,
				OSImage:                 "local processes",
				ContainerRuntimeVersion: "process://1",
			},
		},
	}
}

func onNode(name string) string {
	return fields.OneTermEqualSelector("spec.nodeName", name).String()
}

func retryLimiter() workqueue.TypedRateLimiter[any] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Millisecond, 5*time.Second)
}
