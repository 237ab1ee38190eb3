package provider

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount maps a path inside a container to the place where it is in the host's
// file system: processes share that, so paths are rewritten instead of mounted.
type mount struct {
	containerPath string
	hostPath      string
}

// mountsOf lists where a container's mounts are, given the directory of each volume.
func mountsOf(container *corev1.Container, volumeDir func(name string) string, lookup func(string) (string, bool)) []mount {
	var mounts []mount
	for _, m := range container.VolumeMounts {
		host := volumeDir(m.Name)
		switch {
		case m.SubPath != "":
			host = filepath.Join(host, filepath.FromSlash(m.SubPath))
		case m.SubPathExpr != "":
			host = filepath.Join(host, filepath.FromSlash(expand(m.SubPathExpr, lookup)))
		}
		mounts = append(mounts, mount{containerPath: path.Clean(m.MountPath), hostPath: host})
	}
	// The longest path first: a mount inside another one wins.
	slices.SortStableFunc(mounts, func(a, b mount) int { return cmp.Compare(len(b.containerPath), len(a.containerPath)) })
	return mounts
}

const (
	// beforePath are the characters after which a path may begin inside an argument.
	beforePath = "=,:;@ \t\n\"'("
	// afterPath are the characters that end a path or continue it below the mount.
	afterPath = "/,:; \t\n\"')"
)

// rewrite replaces mounted paths in an argument or an environment value by the
// place where their content is.
func rewrite(s string, mounts []mount) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		matched := false
		if s[i] == '/' && (i == 0 || strings.IndexByte(beforePath, s[i-1]) >= 0) {
			for _, m := range mounts {
				rest, found := strings.CutPrefix(s[i:], m.containerPath)
				if found && (rest == "" || strings.IndexByte(afterPath, rest[0]) >= 0) {
					out.WriteString(m.hostPath)
					i += len(m.containerPath)
					matched = true
					break
				}
			}
		}
		if !matched {
			out.WriteByte(s[i])
			i++
		}
	}
	return out.String()
}
