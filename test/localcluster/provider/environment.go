package provider

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// command is everything needed to start a container's process.
type command struct {
	path string
	args []string
	env  []string
	dir  string
}

// environment returns a container's variables in the order in which they are
// defined, before paths are rewritten.
func (r *podRunner) environment(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (map[string]string, error) {
	host, port := r.p.config.APIServerHost, r.p.config.APIServerPort
	vars := map[string]string{
		"KUBERNETES_SERVICE_HOST":       host,
		"KUBERNETES_SERVICE_PORT":       port,
		"KUBERNETES_SERVICE_PORT_HTTPS": port,
		"HOSTNAME":                      pod.Name,
	}
	for _, from := range container.EnvFrom {
		var content map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			content, err = r.configMapText(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			content, err = r.secretText(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for key, value := range content {
			vars[from.Prefix+key] = value
		}
	}
	lookup := func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
	for _, env := range container.Env {
		if env.ValueFrom == nil {
			vars[env.Name] = expand(env.Value, lookup)
			continue
		}
		value, ok, err := r.valueFrom(ctx, pod, container, env.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", env.Name, err)
		}
		if ok {
			vars[env.Name] = value
		}
	}
	return vars, nil
}

// valueFrom resolves an environment source; ok is false where an optional one is missing.
func (r *podRunner) valueFrom(ctx context.Context, pod *corev1.Pod, container *corev1.Container, source *corev1.EnvVarSource) (value string, ok bool, err error) {
	pick := func(kind, name, key string, content map[string]string, optional *bool) (string, bool, error) {
		value, ok := content[key]
		if !ok && !isTrue(optional) {
			return "", false, fmt.Errorf("%s %s has no key %q", kind, name, key)
		}
		return value, ok, nil
	}
	switch {
	case source.FieldRef != nil:
		value, err = fieldValue(pod, r.ip, source.FieldRef.FieldPath)
		return value, err == nil, err
	case source.ResourceFieldRef != nil:
		value, err = resourceValue(pod, container.Name, r.p.config.Allocatable, source.ResourceFieldRef)
		return value, err == nil, err
	case source.ConfigMapKeyRef != nil:
		ref := source.ConfigMapKeyRef
		content, err := r.configMapText(ctx, ref.Name, ref.Optional)
		if err != nil {
			return "", false, err
		}
		return pick("ConfigMap", ref.Name, ref.Key, content, ref.Optional)
	case source.SecretKeyRef != nil:
		ref := source.SecretKeyRef
		content, err := r.secretText(ctx, ref.Name, ref.Optional)
		if err != nil {
			return "", false, err
		}
		return pick("Secret", ref.Name, ref.Key, content, ref.Optional)
	}
	return "", false, fmt.Errorf("source is not supported")
}

func (r *podRunner) configMapText(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	configMap, err := r.p.configMap(ctx, r.namespace, name)
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return configMap.Data, nil
}

func (r *podRunner) secretText(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	secret, err := r.p.secret(ctx, r.namespace, name)
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text := map[string]string{}
	for key, value := range secret.Data {
		text[key] = string(value)
	}
	return text, nil
}

// command works out what to run for a container: the program named like its
// command or image, with variables expanded and mounted paths rewritten.
func (r *podRunner) command(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (*command, error) {
	vars, err := r.environment(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
	mounts := mountsOf(container, r.volumeDir, lookup)

	words := slices.Concat(container.Command, container.Args)
	program := imageProgram(container.Image)
	if len(container.Command) > 0 {
		program, words = path.Base(expand(words[0], lookup)), words[1:]
	}
	c := &command{path: filepath.Join(r.p.config.BinDir, program)}
	if info, err := os.Stat(c.path); err != nil || info.IsDir() {
		return nil, fmt.Errorf("container %s: there is no program %q in %s", container.Name, program, r.p.config.BinDir)
	}
	for _, word := range words {
		c.args = append(c.args, rewrite(expand(word, lookup), mounts))
	}

	home := filepath.Join(r.dir, "containers", container.Name)
	tmp := rewrite("/tmp", mounts)
	if tmp == "/tmp" {
		tmp = filepath.Join(home, "tmp")
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	c.dir = home
	if container.WorkingDir != "" {
		if dir := rewrite(container.WorkingDir, mounts); dir != container.WorkingDir {
			c.dir = dir
		}
	}
	for key, value := range vars {
		vars[key] = rewrite(value, mounts)
	}
	for key, value := range map[string]string{
		"PATH":   r.p.config.BinDir + ":/usr/local/bin:/usr/bin:/bin",
		"HOME":   home,
		"TMPDIR": tmp,
		// Coverage of programs built with -cover goes where the tests ask for it.
		"GOCOVERDIR": os.Getenv("GOCOVERDIR"),
	} {
		if _, ok := vars[key]; !ok && value != "" {
			vars[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(vars)) {
		c.env = append(c.env, key+"="+vars[key])
	}
	return c, nil
}

// imageProgram is the base name of an image without tag and digest.
func imageProgram(image string) string {
	image, _, _ = strings.Cut(image, "@")
	base := path.Base(image)
	base, _, _ = strings.Cut(base, ":")
	return base
}

func isTrue(b *bool) bool { return b != nil && *b }
