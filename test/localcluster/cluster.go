// Package localcluster runs a real Kubernetes 1.37 cluster on loopback: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as processes, and
// virtual-kubelet nodes that run pods as local processes.
//
// It does not link k8s.io/kubernetes; build.sh builds the binaries it starts.
package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/transport"

	"github.com/fieldplane/fieldplane/test/localcluster/child"
	"github.com/fieldplane/fieldplane/test/localcluster/provider"
)

// Options says where a cluster keeps its things and what it is made of.
type Options struct {
	// Dir keeps all state: etcd's data, certificates, ports, kubeconfigs, pods. A
	// second start on the same Dir continues where the first one stopped.
	Dir string
	// BinDir holds etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
	BinDir string
	// PodBinDir holds the programs that pods run; BinDir if empty.
	PodBinDir string
	// LogDir receives one log per component and pods/<pod>/<container>; Dir/log if empty.
	LogDir string
	// Nodes are added during the start.
	Nodes []Node
	// VolumeRefresh is how long after a change a ConfigMap or Secret reaches the
	// files of pods that mount it, unless an annotation of the pod changes, which
	// refreshes at once; a kubelet takes up to about 90 s. 10 s if zero.
	VolumeRefresh time.Duration
	// ExtraArgs are appended to the flags of the component of that name.
	ExtraArgs map[string][]string
	// Progress, if set, is called when a step begins (took is zero) and when it is
	// done. Calls are serialised.
	Progress func(step string, took time.Duration)
	// PodStopLimit is how long a pod's process may take to stop when the whole cluster
	// stops, whatever its terminationGracePeriodSeconds; 3 s if zero.
	PodStopLimit time.Duration
}

// Node describes a virtual node.
type Node struct {
	Name   string
	Labels map[string]string
	// Network is where its pods run when that is not the network of the cluster itself.
	Network *Network
}

// Network is a network namespace as `ip netns` knows it, with an IPv4 network of 24 bits for its pods, to which this
// machine has a route. Root alone can use one.
type Network struct {
	Namespace string
	Pods      netip.Prefix
}

// Cluster is a running cluster.
type Cluster struct {
	options    Options
	lock       *os.File
	pki        *pki
	ports      ports
	etcdSocket string
	// socketDir is set where Dir's path is too long for a unix socket.
	socketDir string
	admin     *rest.Config
	client    kubernetes.Interface
	// informers of ConfigMaps, Secrets and Services are shared by all nodes.
	informers     informers.SharedInformerFactory
	stopInformers context.CancelFunc
	events        record.EventBroadcaster
	addresses     *provider.Addresses

	mu         sync.Mutex
	components []*child.Process
	nodes      map[string]*virtualNode
	stopping   bool
	stopOnce   sync.Once

	failOnce sync.Once
	failed   chan struct{}
	failure  error

	progressMu sync.Mutex
}

// Start starts a cluster and returns when everything is ready: the control
// plane, the default namespace's ServiceAccount and all nodes. ctx bounds the
// start; the cluster lives until Stop. On an error nothing is left running.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	var err error
	for _, dir := range []*string{&options.Dir, &options.BinDir, &options.PodBinDir, &options.LogDir} {
		if *dir != "" {
			// Children run elsewhere: a relative path would mean something else to them.
			if *dir, err = filepath.Abs(*dir); err != nil {
				return nil, err
			}
		}
	}
	if options.Dir == "" || options.BinDir == "" {
		return nil, errors.New("localcluster: Dir and BinDir are required")
	}
	if options.PodBinDir == "" {
		options.PodBinDir = options.BinDir
	}
	if options.LogDir == "" {
		options.LogDir = filepath.Join(options.Dir, "log")
	}
	if options.VolumeRefresh == 0 {
		options.VolumeRefresh = 10 * time.Second
	}
	if options.PodStopLimit == 0 {
		options.PodStopLimit = 3 * time.Second
	}
	c := &Cluster{options: options, nodes: map[string]*virtualNode{}, failed: make(chan struct{})}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.step("etcd", func() error {
		if err := c.startComponent("etcd", c.etcdArgs()); err != nil {
			return err
		}
		return c.waitHealthy(ctx, "etcd", c.unixClient(c.etcdSocket), "http://etcd/health")
	}); err != nil {
		return err
	}
	admin, err := c.httpClient()
	if err != nil {
		return err
	}
	if err := c.step("kube-apiserver", func() error {
		if err := c.startComponent("kube-apiserver", c.apiserverArgs()); err != nil {
			return err
		}
		return c.waitHealthy(ctx, "kube-apiserver", admin, c.URL()+"/readyz")
	}); err != nil {
		return err
	}
	if err := c.step("kube-controller-manager and kube-scheduler", func() error {
		if err := c.startComponent("kube-controller-manager", c.controllerManagerArgs()); err != nil {
			return err
		}
		if err := c.startComponent("kube-scheduler", c.schedulerArgs()); err != nil {
			return err
		}
		if err := c.waitHealthy(ctx, "kube-controller-manager", admin, "https://127.0.0.1:"+strconv.Itoa(c.ports.ControllerManager)+"/healthz"); err != nil {
			return err
		}
		if err := c.waitHealthy(ctx, "kube-scheduler", admin, "https://127.0.0.1:"+strconv.Itoa(c.ports.Scheduler)+"/healthz"); err != nil {
			return err
		}
		return c.waitDefaultServiceAccount(ctx)
	}); err != nil {
		return err
	}

	informerCtx, cancel := context.WithCancel(context.Background())
	c.stopInformers = cancel
	c.informers = informers.NewSharedInformerFactory(c.client, 0)
	c.informers.Core().V1().ConfigMaps().Informer()
	c.informers.Core().V1().Secrets().Informer()
	c.informers.Core().V1().Services().Informer()
	c.informers.Start(informerCtx.Done())
	c.events = record.NewBroadcaster()
	c.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: c.client.CoreV1().Events(metav1.NamespaceAll)})
	c.addresses = provider.NewAddresses(c.ports.APIServer)

	if len(c.options.Nodes) == 0 {
		return nil
	}
	names := make([]string, 0, len(c.options.Nodes))
	for _, node := range c.options.Nodes {
		names = append(names, node.Name)
	}
	return c.step("nodes "+strings.Join(names, ", "), func() error {
		results := make(chan error, len(c.options.Nodes))
		for _, node := range c.options.Nodes {
			go func() { results <- c.addNode(ctx, node) }()
		}
		var all []error
		for range c.options.Nodes {
			all = append(all, <-results)
		}
		return errors.Join(all...)
	})
}

// prepare makes everything that needs no process: directories, lock,
// certificates, ports, kubeconfigs.
func (c *Cluster) prepare(ctx context.Context) error {
	for _, dir := range []string{c.options.Dir, c.options.LogDir, c.path("run"), c.path("kubeconfig")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("localcluster: %w", err)
		}
	}
	var err error
	if c.lock, err = lockDir(c.options.Dir); err != nil {
		return err
	}
	if err := endLeftovers(ctx, c.path("run")); err != nil {
		return err
	}
	if err := os.RemoveAll(c.podLogDir()); err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	if c.pki, err = preparePKI(c.path("pki")); err != nil {
		return err
	}
	if c.ports, err = choosePorts(c.path("ports.json")); err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	c.etcdSocket = c.path("run", "etcd.sock")
	// sun_path holds 108 bytes, and etcd's peer socket is a little longer.
	if len(c.etcdSocket) > 95 {
		if c.socketDir, err = os.MkdirTemp("", "localcluster"); err != nil {
			return fmt.Errorf("localcluster: %w", err)
		}
		c.etcdSocket = filepath.Join(c.socketDir, "etcd.sock")
	}
	for name, leaf := range map[string]string{
		"admin":                   "admin",
		"kube-controller-manager": "kube-controller-manager",
		"kube-scheduler":          "kube-scheduler",
	} {
		cfg, err := c.leafConfig(leaf)
		if err != nil {
			return err
		}
		if err := WriteKubeconfig(c.path("kubeconfig", name), cfg); err != nil {
			return err
		}
		if name == "admin" {
			c.admin = cfg
		}
	}
	c.client, err = kubernetes.NewForConfig(c.admin)
	return err
}

func (c *Cluster) leafConfig(leaf string) (*rest.Config, error) {
	certPEM, err := os.ReadFile(c.pki.path(leaf + ".crt"))
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	keyPEM, err := os.ReadFile(c.pki.path(leaf + ".key"))
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return c.config(rest.TLSClientConfig{CertData: certPEM, KeyData: keyPEM}), nil
}

// URL is the kube-apiserver's address.
func (c *Cluster) URL() string {
	return "https://127.0.0.1:" + strconv.Itoa(c.ports.APIServer)
}

// Kubeconfig is the path of the admin kubeconfig (group system:masters).
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig", "admin") }

// Client returns a client of group system:masters.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// LogDir is where the logs are.
func (c *Cluster) LogDir() string { return c.options.LogDir }

// Failed is closed when a component of the control plane ended by itself; Err says which.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Err says why Failed is closed, nil while it is open.
func (c *Cluster) Err() error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return nil
	}
}

// stopLimits bound how long each component may take to end by itself. The
// kube-apiserver waits for open watches up to a minute; nothing is lost without
// that, since etcd has every acknowledged write.
var stopLimits = map[string]time.Duration{
	"etcd":                    10 * time.Second,
	"kube-apiserver":          3 * time.Second,
	"kube-controller-manager": 5 * time.Second,
	"kube-scheduler":          5 * time.Second,
}

// Stop ends the pods' processes, then the components in reverse order of their
// start. It returns when all processes have ended, after some 20 s at worst.
// Objects in the API stay, and so do the pods: they run again after the next start.
func (c *Cluster) Stop() {
	c.stopOnce.Do(func() {
		c.mu.Lock()
		c.stopping = true
		nodes := make([]*virtualNode, 0, len(c.nodes))
		for _, node := range c.nodes {
			nodes = append(nodes, node)
		}
		components := c.components
		c.mu.Unlock()

		var group sync.WaitGroup
		for _, node := range nodes {
			group.Go(node.stop)
		}
		group.Wait()
		if c.stopInformers != nil {
			c.stopInformers()
			c.informers.Shutdown()
			c.events.Shutdown()
		}
		byName := map[string]*child.Process{}
		for _, process := range components {
			byName[process.Name()] = process
		}
		for _, together := range [][]string{{"kube-scheduler", "kube-controller-manager"}, {"kube-apiserver"}, {"etcd"}} {
			for _, name := range together {
				if process := byName[name]; process != nil {
					group.Go(func() { process.Stop(context.Background(), stopLimits[name]) })
				}
			}
			group.Wait()
		}
		if c.socketDir != "" {
			_ = os.RemoveAll(c.socketDir)
		}
		if c.lock != nil {
			_ = os.Remove(c.path("run", clusterPidFile))
			_ = c.lock.Close()
		}
	})
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.options.Dir}, elements...)...)
}

func (c *Cluster) step(name string, do func() error) error {
	c.progress(name, 0)
	begin := time.Now()
	if err := do(); err != nil {
		return err
	}
	c.progress(name, max(time.Since(begin), 1))
	return nil
}

func (c *Cluster) progress(step string, took time.Duration) {
	if c.options.Progress == nil {
		return
	}
	c.progressMu.Lock()
	defer c.progressMu.Unlock()
	c.options.Progress(step, took)
}

func (c *Cluster) podLogDir() string { return filepath.Join(c.options.LogDir, "pods") }

func (c *Cluster) logFile(component string) string {
	return filepath.Join(c.options.LogDir, component+".log")
}

func (c *Cluster) startComponent(name string, args []string) error {
	// The log of the start before is kept as well, and no older one.
	_ = os.Rename(c.logFile(name), c.logFile(name)+".previous")
	log, err := os.OpenFile(c.logFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	defer log.Close()
	process, err := child.Start(child.Spec{
		Name:    name,
		Path:    filepath.Join(c.options.BinDir, name),
		Args:    append(args, c.options.ExtraArgs[name]...),
		Dir:     c.options.Dir,
		Output:  log,
		PidFile: c.path("run", name+".pid"),
	})
	if err != nil {
		return fmt.Errorf("%w (build.sh builds it)", err)
	}
	c.mu.Lock()
	c.components = append(c.components, process)
	c.mu.Unlock()
	go func() {
		<-process.Done()
		c.mu.Lock()
		stopping := c.stopping
		c.mu.Unlock()
		if !stopping {
			c.failOnce.Do(func() {
				c.failure = fmt.Errorf("%s ended by itself with code %d, see %s:\n%s", name, process.ExitCode(), c.logFile(name), child.Tail(c.logFile(name), 10))
				close(c.failed)
			})
		}
	}()
	return nil
}

// waitHealthy polls url until it answers 200.
func (c *Cluster) waitHealthy(ctx context.Context, component string, client *http.Client, url string) error {
	defer client.CloseIdleConnections()
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-c.failed:
			return false, c.failure
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			last = err
			return false, nil
		}
		response.Body.Close()
		last = fmt.Errorf("%s answered %s", url, response.Status)
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s is not ready: %w (last: %v), see %s:\n%s", component, ctx.Err(), last, c.logFile(component), child.Tail(c.logFile(component), 10))
	}
	return err
}

// waitDefaultServiceAccount waits until pods can be created: admission refuses
// them as long as the controller has not made the namespace's ServiceAccount.
func (c *Cluster) waitDefaultServiceAccount(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Err(); err != nil {
			return false, err
		}
		_, last = c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if last != nil && !apierrors.IsNotFound(last) && ctx.Err() == nil {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for ServiceAccount default/default: %w (last: %v)", err, last)
	}
	return nil
}

func (c *Cluster) unixClient(socket string) *http.Client {
	return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

// httpClient has the admin's credentials and trusts the cluster's CA.
func (c *Cluster) httpClient() (*http.Client, error) {
	transportConfig, err := c.admin.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(transportConfig)
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: tlsConfig}}, nil
}

// lockDir makes sure that one cluster at a time runs on dir.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("localcluster: %w", err)
	}
	pidFile := filepath.Join(dir, "run", clusterPidFile)
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("localcluster: a cluster already runs on %s (pid %d)", dir, child.Alive(pidFile))
	}
	return lock, child.WritePidFile(pidFile, os.Getpid())
}
