package provider

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is one file of a volume that is made from API objects.
type file struct {
	data []byte
	mode os.FileMode
}

const (
	dataLink    = "..data"
	dataLinkNew = "..data_tmp"
)

// writeVolume makes dir show exactly the given files, by path relative to dir,
// all at once: they are written into a new directory, and then the link ..data,
// through which every visible name leads, is replaced by a rename. This is a
// kubelet's layout, so programs that watch ..data see what they see there. It
// reports whether anything changed.
func writeVolume(dir string, files map[string]file) (changed bool, err error) {
	for name := range files {
		// "..": names beginning so are the volume's own.
		if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
			return false, fmt.Errorf("volume file %q: not a path below the volume", name)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if old != "" && sameFiles(filepath.Join(dir, old), files) {
		return false, nil
	}
	fresh, err := os.MkdirTemp(dir, "..v")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(fresh)
		}
	}()
	if err := os.Chmod(fresh, 0o755); err != nil {
		return false, err
	}
	for name, f := range files {
		path := filepath.Join(fresh, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return false, err
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return false, err
		}
		// WriteFile's mode is subject to the umask.
		if err := os.Chmod(path, f.mode); err != nil {
			return false, err
		}
	}
	newLink := filepath.Join(dir, dataLinkNew)
	if err := os.Remove(newLink); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.Symlink(filepath.Base(fresh), newLink); err != nil {
		return false, err
	}
	if err := os.Rename(newLink, filepath.Join(dir, dataLink)); err != nil {
		return false, err
	}
	if err := linkVisibleNames(dir, files); err != nil {
		return true, err
	}
	if old != "" {
		return true, os.RemoveAll(filepath.Join(dir, old))
	}
	return true, nil
}

// linkVisibleNames makes one link through ..data per first path element, and
// removes those whose content is gone.
func linkVisibleNames(dir string, files map[string]file) error {
	wanted := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		wanted[first] = true
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !wanted[entry.Name()] && !strings.HasPrefix(entry.Name(), "..") {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameFiles reports whether dir holds exactly the given files.
func sameFiles(dir string, files map[string]file) bool {
	found := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		want, ok := files[name]
		if !ok {
			return fs.ErrExist
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if info.Mode().Perm() != want.mode.Perm() || !bytes.Equal(content, want.data) {
			return fs.ErrExist
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}
