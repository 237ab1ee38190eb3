package provider

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultFileMode is what a volume's files have if nothing else is asked for.
const defaultFileMode int32 = 0o644

// token is a ServiceAccount token that a pod's projected volume shows.
type token struct {
	value     string
	refreshAt time.Time
}

func (r *podRunner) volumeDir(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, volume := range r.pod.Spec.Volumes {
		if volume.Name == name && volume.HostPath != nil {
			return volume.HostPath.Path
		}
	}
	return filepath.Join(r.dir, "volumes", name)
}

// syncVolumes brings the files of all volumes up to date. A volume that fails
// keeps its former content; the error names the first one.
func (r *podRunner) syncVolumes(ctx context.Context) error {
	pod := r.currentPod()
	var first error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := r.syncVolume(ctx, pod, volume); err != nil && first == nil {
			first = fmt.Errorf("volume %q: %w", volume.Name, err)
		}
	}
	return first
}

func (r *podRunner) syncVolume(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) error {
	dir := filepath.Join(r.dir, "volumes", volume.Name)
	files := map[string]file{}
	var err error
	switch {
	case volume.EmptyDir != nil:
		return os.MkdirAll(dir, 0o777)
	case volume.HostPath != nil:
		return nil
	case volume.ConfigMap != nil:
		err = r.addConfigMap(ctx, files, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.DefaultMode, volume.ConfigMap.Optional)
	case volume.Secret != nil:
		err = r.addSecret(ctx, files, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.DefaultMode, volume.Secret.Optional)
	case volume.DownwardAPI != nil:
		err = r.addDownward(files, pod, volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		err = r.addProjected(ctx, files, pod, volume)
	default:
		return fmt.Errorf("this kind of volume is not supported on a local node")
	}
	if err != nil {
		return err
	}
	_, err = writeVolume(dir, files)
	return err
}

func (r *podRunner) addProjected(ctx context.Context, files map[string]file, pod *corev1.Pod, volume *corev1.Volume) error {
	mode := volume.Projected.DefaultMode
	for _, source := range volume.Projected.Sources {
		var err error
		switch {
		case source.ConfigMap != nil:
			err = r.addConfigMap(ctx, files, source.ConfigMap.Name, source.ConfigMap.Items, mode, source.ConfigMap.Optional)
		case source.Secret != nil:
			err = r.addSecret(ctx, files, source.Secret.Name, source.Secret.Items, mode, source.Secret.Optional)
		case source.DownwardAPI != nil:
			err = r.addDownward(files, pod, source.DownwardAPI.Items, mode)
		case source.ServiceAccountToken != nil:
			err = r.addToken(ctx, files, pod, source.ServiceAccountToken, mode)
		default:
			err = fmt.Errorf("this kind of projection is not supported on a local node")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *podRunner) addConfigMap(ctx context.Context, files map[string]file, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	configMap, err := r.p.configMap(ctx, r.namespace, name)
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil
	}
	if err != nil {
		return err
	}
	content := maps.Clone(configMap.BinaryData)
	if content == nil {
		content = map[string][]byte{}
	}
	for key, value := range configMap.Data {
		content[key] = []byte(value)
	}
	return addKeys(files, "ConfigMap "+name, content, items, mode, optional)
}

func (r *podRunner) addSecret(ctx context.Context, files map[string]file, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	secret, err := r.p.secret(ctx, r.namespace, name)
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil
	}
	if err != nil {
		return err
	}
	return addKeys(files, "Secret "+name, secret.Data, items, mode, optional)
}

// addKeys adds all keys of an object, or the items that are asked for.
func addKeys(files map[string]file, object string, content map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	if len(items) == 0 {
		for key, value := range content {
			files[key] = file{data: value, mode: fileMode(nil, mode)}
		}
		return nil
	}
	for _, item := range items {
		value, ok := content[item.Key]
		if !ok {
			if isTrue(optional) {
				continue
			}
			return fmt.Errorf("%s has no key %q", object, item.Key)
		}
		files[filepath.FromSlash(item.Path)] = file{data: value, mode: fileMode(item.Mode, mode)}
	}
	return nil
}

func (r *podRunner) addDownward(files map[string]file, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldValue(pod, r.ip, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resourceValue(pod, "", r.p.config.Allocatable, item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		files[filepath.FromSlash(item.Path)] = file{data: []byte(value), mode: fileMode(item.Mode, mode)}
	}
	return nil
}

// addToken asks for a token bound to the pod, and for a new one when four fifths
// of its life are over.
func (r *podRunner) addToken(ctx context.Context, files map[string]file, pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection, mode *int32) error {
	key := projection.Path + "\x00" + projection.Audience
	now := r.p.config.Clock.Now()
	held, ok := r.tokens[key]
	if !ok || !now.Before(held.refreshAt) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: projection.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}}
		if projection.Audience != "" {
			request.Spec.Audiences = []string{projection.Audience}
		}
		answer, err := r.p.config.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ServiceAccount token: %w", err)
		}
		life := answer.Status.ExpirationTimestamp.Sub(now)
		held = token{value: answer.Status.Token, refreshAt: now.Add(life * 4 / 5)}
		r.tokens[key] = held
	}
	files[filepath.FromSlash(projection.Path)] = file{data: []byte(held.value), mode: fileMode(nil, mode)}
	return nil
}

// nextTokenRefresh says in how long the first token has to be renewed; never if
// there is none.
func (r *podRunner) nextTokenRefresh() (time.Duration, bool) {
	var next time.Time
	for _, held := range r.tokens {
		if next.IsZero() || held.refreshAt.Before(next) {
			next = held.refreshAt
		}
	}
	if next.IsZero() {
		return 0, false
	}
	return max(next.Sub(r.p.config.Clock.Now()), time.Second), true
}

// mountsObject reports whether a volume shows the ConfigMap or Secret of that name.
func mountsObject(pod *corev1.Pod, kind ObjectKind, name string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		switch {
		case kind == ConfigMap && volume.ConfigMap != nil:
			return volume.ConfigMap.Name == name
		case kind == Secret && volume.Secret != nil:
			return volume.Secret.SecretName == name
		case volume.Projected != nil:
			return slices.ContainsFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
				return kind == ConfigMap && source.ConfigMap != nil && source.ConfigMap.Name == name ||
					kind == Secret && source.Secret != nil && source.Secret.Name == name
			})
		}
		return false
	})
}

func fileMode(item, volume *int32) os.FileMode {
	mode := defaultFileMode
	if volume != nil {
		mode = *volume
	}
	if item != nil {
		mode = *item
	}
	return os.FileMode(mode)
}
