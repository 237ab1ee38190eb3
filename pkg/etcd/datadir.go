package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	lockFile  = "LOCK"
	memberDir = "member"

	// wantedMode keeps everybody else away from the sockets: etcd creates those
	// 0755, so that the directory above them is the whole protection.
	wantedMode = fs.FileMode(0o700)
)

// prepareDataDir makes the data directory, or takes over an existing one, and
// returns its absolute path.
//
// A mode that lets others in is repaired, not only refused: a kubelet that
// applies fsGroup widens it again at each mount. A directory with somebody
// else's files is never touched, since --data-dir=/tmp run as root would
// otherwise lock a whole machine out of it.
func prepareDataDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("--data-dir must not be empty")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	if err := os.MkdirAll(abs, wantedMode); err != nil {
		return "", fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", fmt.Errorf("--data-dir %q: %w", dir, err)
	}

	info, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("--data-dir %q is not a directory", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("--data-dir %q belongs to uid %d, and this process runs as uid %d: "+
			"name a directory that does not exist yet, so that it is made with the right owner", dir, stat.Uid, os.Geteuid())
	}
	if isPrivate(info) {
		return abs, nil
	}

	ours, err := emptyOrOurs(abs)
	if err != nil {
		return "", fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	if !ours {
		return "", fmt.Errorf("--data-dir %q has mode %#o and holds other files: "+
			"name a directory of its own, or run `chmod 0700` on it", dir, info.Mode().Perm())
	}
	if err := os.Chmod(abs, wantedMode); err != nil {
		return "", fmt.Errorf("--data-dir %q must have mode 0700 and has %#o: %w", dir, info.Mode().Perm(), err)
	}
	// Some file systems accept a chmod and ignore it.
	if info, err = os.Stat(abs); err != nil {
		return "", fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	if !isPrivate(info) {
		return "", fmt.Errorf("--data-dir %q must have mode 0700, and its file system keeps %#o", dir, info.Mode().Perm())
	}
	return abs, nil
}

func isPrivate(info fs.FileInfo) bool { return info.Mode().Perm() == wantedMode }

func emptyOrOurs(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		if entry.Name() == lockFile || entry.Name() == memberDir {
			return true, nil
		}
	}
	return len(entries) == 0, nil
}
