package etcd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Req: A-02
func TestPrepareDataDir(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(t *testing.T, dir string)
		want  string
	}{
		{name: "a directory that does not exist is made", setup: func(*testing.T, string) {}},
		{name: "parents are made too", setup: func(t *testing.T, dir string) { must(t, os.Remove(filepath.Dir(dir))) }},
		{name: "an empty directory with a wide mode is narrowed", setup: func(t *testing.T, dir string) { makeDir(t, dir, 0o755) }},
		{name: "a store that fsGroup has widened is narrowed again", setup: func(t *testing.T, dir string) {
			makeDir(t, dir, 0o770)
			makeDir(t, filepath.Join(dir, memberDir), 0o700)
		}},
		{name: "somebody else's directory is left alone", want: "holds other files", setup: func(t *testing.T, dir string) {
			makeDir(t, dir, 0o755)
			must(t, os.WriteFile(filepath.Join(dir, "passwd"), nil, 0o644))
		}},
		{name: "a file is no directory", want: "not a directory", setup: func(t *testing.T, dir string) {
			must(t, os.WriteFile(dir, nil, 0o600))
		}},
		{name: "another user's directory is refused", want: "belongs to uid 1", setup: func(t *testing.T, dir string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			makeDir(t, dir, 0o700)
			must(t, os.Chown(dir, 1, -1))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "parent")
			makeDir(t, parent, 0o755)
			dir := filepath.Join(parent, "store")
			tc.setup(t, dir)
			var before fs.FileMode
			if info, err := os.Stat(dir); err == nil {
				before = info.Mode()
			}

			got, err := prepareDataDir(dir)

			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--data-dir") {
					t.Fatalf("want an error with --data-dir and %q, got %v", tc.want, err)
				}
				if info, err := os.Stat(dir); err != nil || info.Mode() != before {
					t.Fatalf("a refused path was changed from %v to %v", before, info.Mode())
				}
				return
			}
			must(t, err)
			info, err := os.Stat(got)
			must(t, err)
			if info.Mode().Perm() != 0o700 {
				t.Errorf("mode is %#o, want 0700", info.Mode().Perm())
			}
		})
	}

	t.Run("an empty path is refused", func(t *testing.T) {
		if _, err := prepareDataDir(""); err == nil {
			t.Fatal("want an error")
		}
	})
	t.Run("a link leads to the directory behind it, so that one lock guards both names", func(t *testing.T) {
		parent := t.TempDir()
		makeDir(t, filepath.Join(parent, "store"), 0o700)
		must(t, os.Symlink("store", filepath.Join(parent, "link")))
		got, err := prepareDataDir(filepath.Join(parent, "link"))
		must(t, err)
		if filepath.Base(got) != "store" {
			t.Errorf("got %s", got)
		}
	})
}

func makeDir(t *testing.T, dir string, mode fs.FileMode) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
