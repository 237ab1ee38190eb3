// Package provider is a virtual-kubelet provider that runs pods as local
// processes: each container is the program named like its command or image, with
// its own loopback address per pod and its volumes as files, to which the mounted
// paths in arguments and environment are rewritten.
//
// What it leaves out: images, namespaces and cgroups (limits bind nothing), exec,
// attach and port-forward, exec and gRPC probes, lifecycle hooks, sidecar and
// ephemeral containers, readiness gates, persistent volumes. Files that a program
// names by itself, not by argument or environment, are the host's.
package provider

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// Config is what a node's provider works with.
type Config struct {
	// Dir receives one directory per pod, LogDir one per pod with its logs.
	Dir, LogDir string
	// PidDir receives a pid file per running container.
	PidDir string
	// BinDir holds the programs that containers run.
	BinDir    string
	Client    kubernetes.Interface
	Recorder  record.EventRecorder
	Addresses *Addresses
	// NetworkNamespace is the network namespace that pods run in; empty is that of the cluster.
	NetworkNamespace string
	Allocatable      corev1.ResourceList
	// APIServerHost and APIServerPort are where pods find the API.
	APIServerHost, APIServerPort string
	// VolumeRefresh is how long after its change a ConfigMap or Secret reaches files.
	VolumeRefresh time.Duration
	Clock         clock.Clock
}

// ObjectKind is a kind of object that volumes show.
type ObjectKind string

// The kinds of objects that volumes show.
const (
	ConfigMap ObjectKind = "ConfigMap"
	Secret    ObjectKind = "Secret"
)

// Provider runs the pods of one node. It implements virtual-kubelet's
// PodLifecycleHandler and PodNotifier.
type Provider struct {
	config Config
	// partitioned: the node is cut off from the API; its pods run on.
	partitioned atomic.Bool

	mu      sync.Mutex
	runners map[types.NamespacedName]*podRunner
	pods    corev1listers.PodLister
	notify  func(*corev1.Pod)
	stopped bool
}

// New returns a provider without pods.
func New(config Config) *Provider {
	return &Provider{config: config, runners: map[types.NamespacedName]*podRunner{}}
}

// Attach gives the provider the lister of a new virtual-kubelet controller and
// ends a partition.
func (p *Provider) Attach(pods corev1listers.PodLister) {
	p.mu.Lock()
	p.pods = pods
	p.mu.Unlock()
	p.partitioned.Store(false)
}

// Partition cuts the provider off from the API until Attach: statuses are not
// reported and volumes not refreshed, processes run on.
func (p *Provider) Partition() { p.partitioned.Store(true) }

// NotifyPods implements virtual-kubelet's PodNotifier.
func (p *Provider) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	p.mu.Lock()
	p.notify = notify
	runners := p.all()
	p.mu.Unlock()
	// After a partition the API is behind.
	for _, r := range runners {
		r.stateChanged()
	}
}

func (p *Provider) all() []*podRunner {
	var all []*podRunner
	for _, r := range p.runners {
		all = append(all, r)
	}
	return all
}

func (p *Provider) notifyPod(pod *corev1.Pod) {
	p.mu.Lock()
	notify := p.notify
	p.mu.Unlock()
	if notify != nil && !p.partitioned.Load() {
		notify(pod)
	}
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func (p *Provider) runner(key types.NamespacedName) *podRunner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runners[key]
}

func (p *Provider) forget(r *podRunner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := keyOf(r.currentPod())
	if p.runners[key] == r {
		delete(p.runners, key)
	}
}

// CreatePod implements virtual-kubelet's PodLifecycleHandler. What goes wrong
// later shows in the pod's status and is tried again; the call itself succeeds.
func (p *Provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	if old := p.runner(keyOf(pod)); old != nil {
		if old.currentPod().UID == pod.UID {
			old.update(pod)
			return nil
		}
		// The old pod of that name was deleted without grace.
		old.terminate(0)
		<-old.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errdefs.InvalidInput("the node is being stopped")
	}
	r := newPodRunner(p, pod)
	p.runners[keyOf(pod)] = r
	go r.run()
	return nil
}

// UpdatePod implements virtual-kubelet's PodLifecycleHandler.
func (p *Provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	if r := p.runner(keyOf(pod)); r != nil {
		r.update(pod)
	}
	return nil
}

// DeletePod implements virtual-kubelet's PodLifecycleHandler: with the pod's
// grace period if it is being deleted, at once if it is gone from the API.
func (p *Provider) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	r := p.runner(keyOf(pod))
	if r == nil || r.currentPod().UID != pod.UID {
		if pod.DeletionTimestamp != nil {
			// It was being deleted when the cluster was stopped; nothing runs any more.
			go p.deleteObject(pod)
		}
		return errdefs.NotFoundf("pod %s/%s does not run here", pod.Namespace, pod.Name)
	}
	var grace time.Duration
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	p.config.Recorder.Event(pod, corev1.EventTypeNormal, "Killing", "Stopping the pod's containers")
	r.terminate(grace)
	return nil
}

// GetPod implements virtual-kubelet's PodLifecycleHandler. A pod that was replaced by
// another one of its name counts as not found, or the new one would never start.
func (p *Provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	r := p.runner(types.NamespacedName{Namespace: namespace, Name: name})
	if r == nil {
		return nil, errdefs.NotFoundf("pod %s/%s does not run here", namespace, name)
	}
	pod := r.snapshot()
	p.mu.Lock()
	lister := p.pods
	p.mu.Unlock()
	if lister != nil {
		if inAPI, err := lister.Pods(namespace).Get(name); err == nil && inAPI.UID != pod.UID {
			return nil, errdefs.NotFoundf("pod %s/%s was replaced", namespace, name)
		}
	}
	return pod, nil
}

// GetPodStatus implements virtual-kubelet's PodLifecycleHandler.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods implements virtual-kubelet's PodLifecycleHandler.
func (p *Provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.mu.Lock()
	runners := p.all()
	p.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(runners))
	for _, r := range runners {
		pods = append(pods, r.snapshot())
	}
	return pods, nil
}

// ObjectChanged tells that a ConfigMap or Secret has changed.
func (p *Provider) ObjectChanged(kind ObjectKind, namespace, name string) {
	p.mu.Lock()
	runners := p.all()
	p.mu.Unlock()
	for _, r := range runners {
		if r.namespace == namespace && mountsObject(r.currentPod(), kind, name) {
			signal(r.objects)
		}
	}
}

// Stop ends all processes, each pod within its grace period but at most limit.
// The pods stay in the API.
func (p *Provider) Stop(limit time.Duration) {
	p.mu.Lock()
	p.stopped = true
	runners := p.all()
	for _, r := range runners {
		r.keep.Store(true)
	}
	p.mu.Unlock()
	for _, r := range runners {
		r.terminate(min(limit, time.Duration(*graceOf(r.currentPod()))*time.Second))
	}
	for _, r := range runners {
		<-r.done
	}
}

// Synced tells that the lister given to Attach shows all pods of the node. The
// directories of pods that left the API while the node was stopped are removed,
// and all statuses reported again: one that was lost on the way is made up for.
func (p *Provider) Synced() {
	p.mu.Lock()
	lister, runners := p.pods, p.all()
	p.mu.Unlock()
	for _, r := range runners {
		r.stateChanged()
	}
	pods, err := lister.List(labels.Everything())
	if err != nil {
		return
	}
	entries, err := os.ReadDir(p.config.Dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		_, uid, _ := cutLast(entry.Name(), "_")
		inAPI := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return string(pod.UID) == uid })
		runs := slices.ContainsFunc(runners, func(r *podRunner) bool { return string(r.currentPod().UID) == uid })
		if !inAPI && !runs {
			_ = os.RemoveAll(filepath.Join(p.config.Dir, entry.Name()))
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// configMap reads from the API itself, not from an informer: an annotation that
// announces a change must find the change.
func (p *Provider) configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return p.config.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (p *Provider) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return p.config.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}
