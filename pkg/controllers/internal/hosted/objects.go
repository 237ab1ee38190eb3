package hosted

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// Objects makes, changes and removes the pods and ConfigMaps of one kind of program.
type Objects struct {
	Host kubernetes.Interface
	// Ours tells whether this server made an object for such a program. No other is changed or removed.
	Ours func(metav1.Object) bool
	// What they are for, in the log, such as "a probe".
	What string
}

// EnsureConfigMap makes a ConfigMap what describe makes of it. It returns the ConfigMap as written; where somebody else's has the name,
// that one is taken instead, and is left alone.
func (o Objects) EnsureConfigMap(ctx context.Context, namespace, name string, have *corev1.ConfigMap, describe func(*corev1.ConfigMap)) (written, taken *corev1.ConfigMap, err error) {
	client := o.Host.CoreV1().ConfigMaps(namespace)
	if have == nil {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		describe(made)
		created, err := client.Create(ctx, made, metav1.CreateOptions{})
		switch {
		case err == nil:
			klog.FromContext(ctx).Info("Made a ConfigMap", "for", o.What, "configMap", klog.KObj(created))
			return created, nil, nil
		case apierrors.IsAlreadyExists(err):
			live, getErr := client.Get(ctx, name, metav1.GetOptions{})
			if getErr != nil {
				return nil, nil, fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, getErr)
			}
			if o.Ours(live) {
				return nil, nil, fmt.Errorf("ConfigMap %s/%s: is newer than what is known of it", namespace, name)
			}
			return nil, live, nil
		default:
			return nil, nil, ignoreGoing(fmt.Errorf("create ConfigMap %s/%s: %w", namespace, name, err))
		}
	}
	updated := have.DeepCopy()
	describe(updated)
	if equality.Semantic.DeepEqual(have, updated) {
		return have, nil, nil
	}
	// With the resourceVersion that the plan was made from: whoever reads what is old writes nothing.
	updated, err = client.Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("update ConfigMap %s/%s: %w", namespace, name, err)
	}
	return updated, nil, nil
}

// RemoveConfigMap removes the one that was looked at.
func (o Objects) RemoveConfigMap(ctx context.Context, configMap *corev1.ConfigMap) error {
	if configMap.DeletionTimestamp != nil {
		return nil
	}
	klog.FromContext(ctx).Info("Removing a ConfigMap", "for", o.What, "configMap", klog.KObj(configMap))
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &configMap.UID}}
	err := o.Host.CoreV1().ConfigMaps(configMap.Namespace).Delete(ctx, configMap.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ConfigMap %s/%s: %w", configMap.Namespace, configMap.Name, err)
	}
	return nil
}

// CreatePod makes a pod; taken is the one of somebody else that has the name, and is left alone.
func (o Objects) CreatePod(ctx context.Context, want *corev1.Pod) (taken *corev1.Pod, err error) {
	client := o.Host.CoreV1().Pods(want.Namespace)
	created, err := client.Create(ctx, want, metav1.CreateOptions{})
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Made a pod", "for", o.What, "pod", klog.KObj(created), "nodeSelector", want.Spec.NodeSelector)
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		live, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", want.Namespace, want.Name, err)
		}
		if o.Ours(live) {
			return nil, fmt.Errorf("pod %s/%s: is newer than what is known of it", want.Namespace, want.Name)
		}
		return live, nil
	default:
		return nil, ignoreGoing(fmt.Errorf("create pod %s/%s: %w", want.Namespace, want.Name, err))
	}
}

// TellConfig has the kubelet refresh the ConfigMap of the one pod that was looked at.
func (o Objects) TellConfig(ctx context.Context, pod *corev1.Pod, configHash string) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, probepod.ConfigHashAnnotation, configHash)
	if _, err := o.Host.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// RemovePod removes the one that was looked at; by force it does not wait for a kubelet that does not answer.
func (o Objects) RemovePod(ctx context.Context, pod *corev1.Pod, force bool, why string) error {
	klog.FromContext(ctx).Info("Removing a pod", "of", o.What, "pod", klog.KObj(pod), "reason", why, "force", force)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if force {
		options.GracePeriodSeconds = new(int64)
	}
	err := o.Host.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// ignoreGoing drops the error of a create in a namespace that has begun to go away, or is gone: what it is for goes with it.
func ignoreGoing(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
