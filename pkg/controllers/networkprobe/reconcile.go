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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
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
		after = earliest(after, soon)
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
				c.events.warn(moduleReference(module), "TooLargeForProbe",
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
		node, err := c.nodeOf(ctx, pod)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if node.lost || pod.DeletionTimestamp == nil {
			errs = append(errs, c.deletePod(ctx, pod, node.lost, "it has no modules"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configMaps)) {
		if wanted[name] || configMaps[name].DeletionTimestamp != nil {
			continue
		}
		klog.FromContext(ctx).Info("Removing a probe's ConfigMap", "configMap", klog.KObj(configMaps[name]))
		uid := configMaps[name].UID
		err := c.host.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete ConfigMap %s/%s: %w", namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

// ensure makes one probe's ConfigMap and pod.
func (c *Controller) ensure(ctx context.Context, namespace string, s shard, configMap *corev1.ConfigMap, pod *corev1.Pod) (time.Duration, error) {
	configMap, err := c.ensureConfigMap(ctx, namespace, s, configMap)
	if err != nil {
		return 0, err
	}
	if configMap == nil {
		return takenAfter, nil
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
		after = earliest(after, takenAfter)
	}
	return after, c.setProblem(ctx, configMap, problem)
}

// ensureConfigMap returns the ConfigMap as written, or nil if somebody else's has the name.
func (c *Controller) ensureConfigMap(ctx context.Context, namespace string, s shard, have *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	client := c.host.CoreV1().ConfigMaps(namespace)
	if have == nil {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}}
		s.describe(made)
		created, err := client.Create(ctx, made, metav1.CreateOptions{})
		switch {
		case err == nil:
			klog.FromContext(ctx).Info("Made a probe's ConfigMap", "configMap", klog.KObj(created), "modules", len(s.modules))
			return created, nil
		case apierrors.IsAlreadyExists(err):
			live, getErr := client.Get(ctx, s.name, metav1.GetOptions{})
			if getErr != nil {
				return nil, fmt.Errorf("ConfigMap %s/%s: %w", namespace, s.name, getErr)
			}
			if probepod.IsProbe(live) {
				return nil, fmt.Errorf("ConfigMap %s/%s: is newer than what is known of it", namespace, s.name)
			}
			c.events.warn(reference("v1", "ConfigMap", live), "ProbeNameTaken", nameTaken("ConfigMap", s.name))
			return nil, nil
		default:
			return nil, ignoreGoing(fmt.Errorf("create ConfigMap %s/%s: %w", namespace, s.name, err))
		}
	}
	updated := have.DeepCopy()
	s.describe(updated)
	if equality.Semantic.DeepEqual(have, updated) {
		return have, nil
	}
	// With the resourceVersion that the plan was made from: whoever reads old assignments writes nothing.
	updated, err := client.Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("update ConfigMap %s/%s: %w", namespace, s.name, err)
	}
	return updated, nil
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
	node := nodeHealth{}
	if have != nil {
		if node, err = c.nodeOf(ctx, have); err != nil {
			return "", 0, err
		}
	}
	d := decide(have, want, node, c.clock.Now())
	client := c.host.CoreV1().Pods(want.Namespace)
	switch d.action {
	case createPod:
		problem, err = c.createPod(ctx, want)
		return problem, d.after, err
	case patchPod:
		// A merge patch of the one annotation, for the one pod that was looked at.
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`,
			have.UID, probepod.ConfigHashAnnotation, want.Annotations[probepod.ConfigHashAnnotation])
		if _, err = client.Patch(ctx, have.Name, mergePatch, []byte(patch), metav1.PatchOptions{}); err != nil {
			return "", d.after, fmt.Errorf("patch pod %s/%s: %w", have.Namespace, have.Name, err)
		}
	case remakePod:
		return "", d.after, c.deletePod(ctx, have, false, d.why)
	case forceRemakePod:
		c.events.warn(reference("v1", "Pod", have), "ProbeNodeLost", fmt.Sprintf("%s: the probe is made anew", sentence(d.why)))
		return "", d.after, c.deletePod(ctx, have, true, d.why)
	case keepPod, awaitPod:
	}
	if s.controller != nil && node.lost && c.clock.Since(node.since) >= NodeLostAfter {
		c.events.warn(reference(v1alpha1.SchemeGroupVersion.String(), "Controller", s.controller), "ProbeNodeLost",
			fmt.Sprintf("%s: probe %s measures nothing, and can run on no other node", sentence(node.why), s.name))
	}
	if unschedulable(have) {
		places, err := c.placesFor(s)
		if err != nil {
			return "", d.after, err
		}
		c.events.warn(reference("v1", "Pod", have), "ProbeUnschedulable", places)
	}
	return "", d.after, nil
}

func (c *Controller) createPod(ctx context.Context, want *corev1.Pod) (problem string, err error) {
	client := c.host.CoreV1().Pods(want.Namespace)
	created, err := client.Create(ctx, want, metav1.CreateOptions{})
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Made a probe", "pod", klog.KObj(created), "nodeSelector", want.Spec.NodeSelector, "controller", want.Annotations[ControllerAnnotation])
		return "", nil
	case apierrors.IsAlreadyExists(err):
		live, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("pod %s/%s: %w", want.Namespace, want.Name, err)
		}
		if probepod.IsProbe(live) {
			return "", fmt.Errorf("pod %s/%s: is newer than what is known of it", want.Namespace, want.Name)
		}
		problem := nameTaken("Pod", want.Name)
		c.events.warn(reference("v1", "Pod", live), "ProbeNameTaken", problem)
		return problem, nil
	default:
		return "", ignoreGoing(fmt.Errorf("create pod %s/%s: %w", want.Namespace, want.Name, err))
	}
}

func (c *Controller) deletePod(ctx context.Context, pod *corev1.Pod, force bool, why string) error {
	klog.FromContext(ctx).Info("Removing a probe", "pod", klog.KObj(pod), "reason", why, "force", force)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if force {
		options.GracePeriodSeconds = new(int64)
	}
	err := c.host.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
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

// ignoreGoing drops the error of a create in a namespace that has begun to go away, or is gone: its modules go with it.
func ignoreGoing(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
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
