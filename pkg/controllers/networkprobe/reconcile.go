package networkprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// ProblemAnnotation of a probe's ConfigMap says why it has no pod of its own, for the modules' status.
	ProblemAnnotation = "fieldplane.dev/probe-problem"
	// SelectorAnnotation of a probe's ConfigMap is its selector as text: the name holds only a hash of it.
	SelectorAnnotation = "fieldplane.dev/node-selector"
	// ControllerAnnotation of a probe's pod and ConfigMap names the Controller whose probe it is (P-04).
	ControllerAnnotation = "fieldplane.dev/controller"

	// resyncAfter is when a namespace with probes is looked at again if nothing happens; its certificate is renewed so.
	resyncAfter = 10 * time.Minute
	// takenAfter is when a name that somebody else has is tried again: informers that select by label do not tell.
	takenAfter = 15 * time.Second
)

// shard is one probe as it should be.
type shard struct {
	*group
	name    string
	modules []string
	config  []byte
}

// reconcile makes one namespace's probes what its modules ask for, and says when to look again.
func (c *Controller) reconcile(ctx context.Context, namespace string) (time.Duration, error) {
	if going, err := c.terminating(namespace); err != nil || going {
		// The namespace controller removes everything, and refuses what would be created.
		return 0, err
	}
	modules, err := c.modules.IOModules(namespace).List(labels.Everything())
	if err != nil {
		return 0, err
	}
	configMaps, err := c.ownConfigMaps(namespace)
	if err != nil {
		return 0, err
	}
	pods, err := c.ownPods(namespace)
	if err != nil {
		return 0, err
	}
	controllers, err := c.controllersOf(namespace)
	if err != nil {
		return 0, err
	}
	shards, err := c.plan(modules, controllers, configMaps)
	if err != nil {
		return 0, err
	}

	// What goes comes first, and of what stays first the probes that lose a module: many devices serve one connection at a
	// time, and a module that moves must not meet its former probe there.
	errs := []error{c.removeExcept(ctx, namespace, shards, configMaps, pods)}
	if len(shards) == 0 {
		return 0, errors.Join(errs...)
	}
	certificateErr := c.ensureCertificate(ctx, namespace)
	errs = append(errs, certificateErr)
	slices.SortStableFunc(shards, func(a, b shard) int {
		return losses(configMaps[b.name], b) - losses(configMaps[a.name], a)
	})
	after := resyncAfter
	for _, s := range shards {
		if certificateErr != nil && pods[s.name] == nil {
			// A new pod would only wait for the Secret; the pods that run are kept up to date.
			continue
		}
		soon, err := c.ensure(ctx, namespace, s, configMaps[s.name], pods[s.name])
		after = hosted.Earliest(after, soon)
		errs = append(errs, err)
	}
	return after, errors.Join(errs...)
}

// losses is how many modules a ConfigMap lists that its shard no longer has.
func losses(configMap *corev1.ConfigMap, s shard) int {
	if configMap == nil {
		return 0
	}
	lost := 0
	for _, name := range ListedModules(configMap) {
		if _, keeps := slices.BinarySearch(s.modules, name); !keeps {
			lost++
		}
	}
	return lost
}

// plan says which probes there should be, and what each of them watches.
func (c *Controller) plan(modules []*v1alpha1.IOModule, controllers map[string]*v1alpha1.Controller, configMaps map[string]*corev1.ConfigMap) ([]shard, error) {
	listed := map[string]map[int][]string{}
	for name, configMap := range configMaps {
		base, n, ok := parseName(name)
		if !ok {
			continue
		}
		if listed[base] == nil {
			listed[base] = map[int][]string{}
		}
		listed[base][n] = ListedModules(configMap)
	}
	var shards []shard
	for _, g := range groups(modules, controllers) {
		entries := make(map[string][]byte, len(g.modules))
		items := make([]item, 0, len(g.modules))
		for _, module := range g.modules {
			encoded, err := encodeEntry(module)
			if err != nil {
				return nil, err
			}
			size := len(encoded) + entryOverhead
			if size > MaxConfigBytes-len(configBegin)-len(configEnd) {
				c.events.Warn(hosted.Reference(v1alpha1.SchemeGroupVersion.String(), "IOModule", module), "TooLargeForProbe",
					fmt.Sprintf("The specification takes %d bytes of a probe's configuration, which holds %d", size, MaxConfigBytes))
				continue
			}
			entries[module.Name] = encoded
			items = append(items, item{module.Name, size})
		}
		byShard := map[int][]string{}
		assigned := assign(items, listed[g.base])
		for _, i := range items {
			byShard[assigned[i.name]] = append(byShard[assigned[i.name]], i.name)
		}
		for _, n := range slices.Sorted(maps.Keys(byShard)) {
			lines := make([][]byte, len(byShard[n]))
			for i, name := range byShard[n] {
				lines[i] = entries[name]
			}
			shards = append(shards, shard{group: g, name: shardName(g.base, n), modules: byShard[n], config: encodeConfig(lines)})
		}
	}
	return shards, nil
}

// removeExcept removes every probe of ours that is not among shards: the pod first, so that it never sees its
// configuration go.
func (c *Controller) removeExcept(ctx context.Context, namespace string, shards []shard, configMaps map[string]*corev1.ConfigMap, pods map[string]*corev1.Pod) error {
	wanted := map[string]bool{}
	for _, s := range shards {
		wanted[s.name] = true
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if wanted[name] {
			continue
		}
		pod := pods[name]
		node, err := hosted.NodeOf(ctx, c.host, c.nodes, pod)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if node.Lost || pod.DeletionTimestamp == nil {
			errs = append(errs, c.objects.RemovePod(ctx, pod, node.Lost, "it has no modules"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configMaps)) {
		if !wanted[name] {
			errs = append(errs, c.objects.RemoveConfigMap(ctx, configMaps[name]))
		}
	}
	return errors.Join(errs...)
}

// ensure makes one probe's ConfigMap and pod.
func (c *Controller) ensure(ctx context.Context, namespace string, s shard, configMap *corev1.ConfigMap, pod *corev1.Pod) (time.Duration, error) {
	configMap, taken, err := c.objects.EnsureConfigMap(ctx, namespace, s.name, configMap, s.describe)
	if taken != nil {
		c.events.Warn(hosted.Reference("v1", "ConfigMap", taken), "ProbeNameTaken", nameTaken("ConfigMap", s.name))
	}
	if err != nil || configMap == nil {
		return takenAfter, err
	}
	probe := probepod.Pod{
		Namespace:    namespace,
		Name:         s.name,
		Kind:         s.kind(),
		Image:        c.image,
		ConfigHash:   configHash(s.config),
		NodeSelector: s.selector,
		NodeName:     NodeOf(s.controller),
	}
	if s.controller != nil {
		owner := ownerOf(s.controller)
		probe.Owner = &owner
	}
	want := probepod.Build(probe)
	if s.controller != nil {
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, ControllerAnnotation, s.controller.Name)
	}
	problem, after, err := c.ensurePod(ctx, s, pod, want)
	if err != nil {
		return after, err
	}
	if problem != "" {
		after = hosted.Earliest(after, takenAfter)
	}
	return after, c.setProblem(ctx, configMap, problem)
}

// describe makes a ConfigMap the shard's.
func (s *shard) describe(configMap *corev1.ConfigMap) {
	configMap.Data = map[string]string{probepod.ConfigKey: string(s.config)}
	configMap.BinaryData = nil
	if configMap.Labels == nil {
		configMap.Labels = map[string]string{}
	}
	maps.Copy(configMap.Labels, probepod.Labels(s.kind()))
	if s.controller == nil {
		metav1.SetMetaDataAnnotation(&configMap.ObjectMeta, SelectorAnnotation, labels.Set(s.selector).String())
		return
	}
	metav1.SetMetaDataAnnotation(&configMap.ObjectMeta, ControllerAnnotation, s.controller.Name)
	configMap.OwnerReferences = []metav1.OwnerReference{ownerOf(s.controller)}
}

// ownerOf lets the host cluster's garbage collector remove what is left of a Controller's probe, should this server be away
// when the Controller goes. It does not block the Controller's deletion: nothing has to be gone first.
func ownerOf(controller *v1alpha1.Controller) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Controller",
		Name: controller.Name, UID: controller.UID, Controller: ptr.To(true),
	}
}

// ensurePod makes the pod what it should be. The problem it returns is why there can be none; "" is no problem.
func (c *Controller) ensurePod(ctx context.Context, s shard, have, want *corev1.Pod) (problem string, after time.Duration, err error) {
	node := hosted.NodeHealth{}
	if have != nil {
		if node, err = hosted.NodeOf(ctx, c.host, c.nodes, have); err != nil {
			return "", 0, err
		}
	}
	d := hosted.Decide(have, want, node, c.clock.Now())
	switch d.Action {
	case hosted.Create:
		taken, err := c.objects.CreatePod(ctx, want)
		if taken != nil {
			problem = nameTaken("Pod", want.Name)
			c.events.Warn(hosted.Reference("v1", "Pod", taken), "ProbeNameTaken", problem)
		}
		return problem, d.After, err
	case hosted.Patch:
		if err := c.objects.TellConfig(ctx, have, want.Annotations[probepod.ConfigHashAnnotation]); err != nil {
			return "", d.After, err
		}
	case hosted.Remake:
		return "", d.After, c.objects.RemovePod(ctx, have, false, d.Why)
	case hosted.ForceRemake:
		c.events.Warn(hosted.Reference("v1", "Pod", have), "ProbeNodeLost", fmt.Sprintf("%s: the probe is made anew", sentence(d.Why)))
		return "", d.After, c.objects.RemovePod(ctx, have, true, d.Why)
	case hosted.Keep, hosted.Await:
	}
	if s.controller != nil && node.Lost && c.clock.Since(node.Since) >= hosted.NodeLostAfter {
		c.events.Warn(hosted.Reference(v1alpha1.SchemeGroupVersion.String(), "Controller", s.controller), "ProbeNodeLost",
			fmt.Sprintf("%s: probe %s measures nothing, and can run on no other node", sentence(node.Why), s.name))
	}
	if hosted.Unschedulable(have) {
		places, err := c.placesFor(s)
		if err != nil {
			return "", d.After, err
		}
		c.events.Warn(hosted.Reference("v1", "Pod", have), "ProbeUnschedulable", places)
	}
	return "", d.After, nil
}

// setProblem leaves word for the status of the modules.
func (c *Controller) setProblem(ctx context.Context, configMap *corev1.ConfigMap, problem string) error {
	if configMap.Annotations[ProblemAnnotation] == problem {
		return nil
	}
	updated := configMap.DeepCopy()
	if problem == "" {
		delete(updated.Annotations, ProblemAnnotation)
	} else {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, ProblemAnnotation, problem)
	}
	if _, err := c.host.CoreV1().ConfigMaps(updated.Namespace).Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update ConfigMap %s/%s: %w", updated.Namespace, updated.Name, err)
	}
	return nil
}

func nameTaken(kind, name string) string {
	return fmt.Sprintf("%s %s is not fieldplane's, and is left alone: the modules it should serve are not watched until it is renamed or removed", kind, name)
}

// placesFor says where a probe could run.
func (c *Controller) placesFor(s shard) (string, error) {
	nodes, err := c.nodes.List(labels.SelectorFromSet(s.selector))
	if err != nil {
		return "", err
	}
	where := "any node"
	switch {
	case s.controller != nil:
		where = "node " + NodeOf(s.controller)
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return n.Name != NodeOf(s.controller) })
	case len(s.selector) > 0:
		where = "a node with " + labels.Set(s.selector).String()
	}
	return "The probe " + hosted.Places(where, nodes), nil
}

func (c *Controller) terminating(namespace string) (bool, error) {
	ns, err := c.namespaces.Get(namespace)
	if apierrors.IsNotFound(err) {
		// Just made, or just gone: the first create will tell.
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating, nil
}

func (c *Controller) ownConfigMaps(namespace string) (map[string]*corev1.ConfigMap, error) {
	all, err := c.configMaps.ConfigMaps(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	own := map[string]*corev1.ConfigMap{}
	for _, configMap := range all {
		if probepod.IsProbe(configMap) {
			own[configMap.Name] = configMap
		}
	}
	return own, nil
}

func (c *Controller) ownPods(namespace string) (map[string]*corev1.Pod, error) {
	all, err := c.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	own := map[string]*corev1.Pod{}
	for _, pod := range all {
		if probepod.IsProbe(pod) {
			own[pod.Name] = pod
		}
	}
	return own, nil
}

func (c *Controller) controllersOf(namespace string) (map[string]*v1alpha1.Controller, error) {
	all, err := c.controllers.Controllers(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	named := make(map[string]*v1alpha1.Controller, len(all))
	for _, controller := range all {
		named[controller.Name] = controller
	}
	return named, nil
}

// sentence begins with a capital letter.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
