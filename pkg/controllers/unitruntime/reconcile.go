package unitruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/work"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// resyncAfter is when a Unit is looked at again if nothing happens; its namespace's certificate is renewed so.
	resyncAfter = 10 * time.Minute
	// takenAfter is when a name that somebody else has is tried again: informers that select by label do not tell.
	takenAfter = 15 * time.Second
)

// reconcile makes a Unit's runtime what the Unit and its ControlModules ask for, and says when to look again.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (work.Again, error) {
	if going, err := c.terminating(key.Namespace); err != nil || going {
		// The namespace controller removes everything, and refuses what would be created.
		return work.Again{}, err
	}
	name := probepod.RuntimeName(key.Name)
	pod, err := own(c.pods.Pods(key.Namespace).Get(name))
	if err != nil {
		return work.Again{}, err
	}
	configMap, err := own(c.configMaps.ConfigMaps(key.Namespace).Get(name))
	if err != nil {
		return work.Again{}, err
	}
	unit, err := c.units.Units(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && unit.DeletionTimestamp != nil {
		return work.Again{}, c.remove(ctx, pod, configMap)
	}
	if err != nil {
		return work.Again{}, err
	}
	after, trouble, err := c.ensure(ctx, unit, configMap, pod)
	if trouble != nil {
		// What is in the way of a runtime is told, whatever else failed.
		err = errors.Join(err, c.tell(ctx, unit, *trouble))
	}
	return work.After(hosted.Earliest(after, resyncAfter)), err
}

// own is the object if it is one of ours.
func own[T metav1.Object](object T, err error) (T, error) {
	var none T
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil || !probepod.IsOurs(object, probepod.Unit) {
		return none, err
	}
	return object, nil
}

// remove removes the runtime of a Unit that is gone: the pod first, so that it never sees its configuration go. The host's garbage
// collector would do the same by the owner references; it is slower, and may be away.
func (c *Controller) remove(ctx context.Context, pod *corev1.Pod, configMap *corev1.ConfigMap) error {
	var errs []error
	if pod != nil {
		node, err := hosted.NodeOf(ctx, c.host, c.nodes, pod)
		switch {
		case err != nil:
			errs = append(errs, err)
		case node.Lost || pod.DeletionTimestamp == nil:
			errs = append(errs, c.objects.RemovePod(ctx, pod, node.Lost, "its Unit is gone"))
		}
	}
	if configMap != nil {
		errs = append(errs, c.objects.RemoveConfigMap(ctx, configMap))
	}
	return errors.Join(errs...)
}

// ensure makes the Unit's certificate, ConfigMap and pod. What is in the way, if it got so far that it can tell, is told in the Unit's
// status; a nil trouble says nothing.
func (c *Controller) ensure(ctx context.Context, unit *v1alpha1.Unit, configMap *corev1.ConfigMap, pod *corev1.Pod) (time.Duration, *trouble, error) {
	certificateErr := c.certificates.ensure(ctx, unit.Namespace)
	if certificateErr != nil && pod == nil {
		// A new pod would only wait for the Secret; one that runs is kept up to date.
		return 0, nil, certificateErr
	}
	after, found, err := c.ensureRuntime(ctx, unit, configMap, pod)
	return after, found, errors.Join(certificateErr, err)
}

func (c *Controller) ensureRuntime(ctx context.Context, unit *v1alpha1.Unit, configMap *corev1.ConfigMap, pod *corev1.Pod) (time.Duration, *trouble, error) {
	is, err := c.configOf(unit, configMap)
	if err != nil {
		return 0, nil, err
	}
	name := probepod.RuntimeName(unit.Name)
	problem := trouble{}
	if is.tooLarge() {
		problem = tooLarge(is, configMap != nil)
		if configMap == nil {
			return 0, &problem, nil
		}
		// It goes on with what it has.
		is.file = fileIn(configMap)
	}
	configMap, taken, err := c.objects.EnsureConfigMap(ctx, unit.Namespace, name, configMap, func(configMap *corev1.ConfigMap) {
		describe(configMap, unit, is.file)
	})
	if taken != nil {
		problem = nameTaken("ConfigMap", name)
		return takenAfter, &problem, nil
	}
	if err != nil || configMap == nil {
		return 0, nil, err
	}
	want := probepod.Build(probepod.Pod{
		Namespace: unit.Namespace, Name: name, Kind: probepod.Unit, Image: c.image,
		ConfigHash: configHash(is.file), NodeSelector: unit.Spec.NodeSelector, Owner: ownerOf(unit),
	})
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, probepod.UnitAnnotation, unit.Name)
	after, podProblem, err := c.ensurePod(ctx, unit, pod, want)
	if problem.reason == "" {
		problem = podProblem
	}
	return after, &problem, err
}

// describe makes a ConfigMap the Unit's.
func describe(configMap *corev1.ConfigMap, unit *v1alpha1.Unit, file []byte) {
	configMap.Data, configMap.BinaryData = nil, nil
	if utf8.Valid(file) {
		configMap.Data = map[string]string{probepod.ConfigKey: string(file)}
	} else {
		configMap.BinaryData = map[string][]byte{probepod.ConfigKey: file}
	}
	if configMap.Labels == nil {
		configMap.Labels = map[string]string{}
	}
	maps.Copy(configMap.Labels, probepod.Labels(probepod.Unit))
	metav1.SetMetaDataAnnotation(&configMap.ObjectMeta, probepod.UnitAnnotation, unit.Name)
	configMap.OwnerReferences = []metav1.OwnerReference{*ownerOf(unit)}
}

// ownerOf lets the host cluster's garbage collector remove what is left of a Unit, should this server be away when it goes. It does
// not block the Unit's deletion: nothing has to be gone first.
func ownerOf(unit *v1alpha1.Unit) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Unit",
		Name: unit.Name, UID: unit.UID, Controller: ptr.To(true),
	}
}

// ensurePod makes the pod what it should be, as far as it goes.
func (c *Controller) ensurePod(ctx context.Context, unit *v1alpha1.Unit, have, want *corev1.Pod) (time.Duration, trouble, error) {
	node := hosted.NodeHealth{}
	if have != nil {
		var err error
		if node, err = hosted.NodeOf(ctx, c.host, c.nodes, have); err != nil {
			return 0, trouble{}, err
		}
	}
	d := hosted.Decide(have, want, node, c.clock.Now())
	problem := trouble{}
	if node.Lost && c.clock.Since(node.Since) >= hosted.NodeLostAfter {
		problem = nodeLost(node.Why)
	}
	switch d.Action {
	case hosted.Create:
		taken, err := c.objects.CreatePod(ctx, want)
		if taken != nil {
			return takenAfter, nameTaken("Pod", want.Name), err
		}
		return d.After, problem, err
	case hosted.Patch:
		if err := c.objects.TellConfig(ctx, have, want.Annotations[probepod.ConfigHashAnnotation]); err != nil {
			return d.After, problem, err
		}
	case hosted.Remake:
		return d.After, problem, c.objects.RemovePod(ctx, have, false, d.Why)
	case hosted.ForceRemake:
		c.events.Warn(unitReference(unit), "RuntimeNodeLost", sentence(d.Why)+": the runtime is made anew")
		return d.After, problem, c.objects.RemovePod(ctx, have, true, d.Why)
	case hosted.Keep, hosted.Await:
	}
	if hosted.Unschedulable(have) {
		nodes, err := c.nodes.List(labels.SelectorFromSet(unit.Spec.NodeSelector))
		if err != nil {
			return d.After, problem, err
		}
		where := "any node"
		if len(unit.Spec.NodeSelector) > 0 {
			where = "a node with " + labels.Set(unit.Spec.NodeSelector).String()
		}
		problem = unschedulable("The runtime " + hosted.Places(where, nodes))
	}
	return d.After, problem, nil
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

func unitReference(unit *v1alpha1.Unit) *corev1.ObjectReference {
	return hosted.Reference(v1alpha1.SchemeGroupVersion.String(), "Unit", unit)
}

// sentence begins with a capital letter.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return fmt.Sprint(strings.ToUpper(s[:1]), s[1:])
}
