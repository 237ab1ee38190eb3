package provider

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// visible reads a volume as a program would, without the volume's own names.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := filepath.Join(rel, entry.Name())
			if strings.HasPrefix(entry.Name(), "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(name)
				continue
			}
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			found[name] = string(content)
		}
	}
	walk("")
	return found
}

func TestWriteVolumeShowsExactlyTheGivenFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	steps := []struct {
		name    string
		files   map[string]string
		changed bool
	}{
		{"the first content", map[string]string{"a": "1", "b": "2"}, true},
		{"the same content again changes nothing", map[string]string{"a": "1", "b": "2"}, false},
		{"a changed file", map[string]string{"a": "1", "b": "3"}, true},
		{"a file less", map[string]string{"a": "1"}, true},
		{"files in directories", map[string]string{"a": "1", "d/e/f": "4", "d/g": "5"}, true},
		{"a directory less", map[string]string{"a": "1"}, true},
		{"nothing at all, as for a missing optional Secret", map[string]string{}, true},
		{"content after nothing", map[string]string{"a": "9"}, true},
	}
	for _, step := range steps {
		files := map[string]file{}
		for name, content := range step.files {
			files[name] = file{data: []byte(content), mode: 0o640}
		}
		changed, err := writeVolume(dir, files)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if changed != step.changed {
			t.Errorf("%s: changed is %t", step.name, changed)
		}
		if got := visible(t, dir); !maps.Equal(got, step.files) {
			t.Errorf("%s: the volume shows %v, want %v", step.name, got, step.files)
		}
		versions, err := filepath.Glob(filepath.Join(dir, "..v*"))
		if err != nil || len(versions) != 1 {
			t.Errorf("%s: %d versions on disk, want 1", step.name, len(versions))
		}
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil || info.Mode() != fs.FileMode(0o640) {
		t.Errorf("mode is %v, %v; want 0640", info.Mode(), err)
	}
}

func TestWriteVolumeRefusesNamesOutsideTheVolume(t *testing.T) {
	for _, name := range []string{"../x", "/x", "..data", "a/../../x"} {
		if _, err := writeVolume(t.TempDir(), map[string]file{name: {mode: 0o644}}); err == nil {
			t.Errorf("%q was written", name)
		}
	}
}

func TestReadersSeeOneVersionOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(content string) {
		files := map[string]file{}
		for _, name := range []string{"a", "b"} {
			files[name] = file{data: []byte(content), mode: 0o644}
		}
		if _, err := writeVolume(dir, files); err != nil {
			t.Error(err)
		}
	}
	write("0")
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		defer close(done)
		for i := range 200 {
			write(strings.Repeat("x", i%7))
		}
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		// A reader that resolves ..data once sees one version, however long it takes.
		version, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
		if err != nil {
			continue
		}
		var contents []string
		for _, name := range []string{"a", "b"} {
			if content, err := os.ReadFile(filepath.Join(version, name)); err == nil {
				contents = append(contents, string(content))
			}
		}
		if len(slices.Compact(contents)) > 1 {
			t.Fatalf("a reader saw %q", contents)
		}
	}
	group.Wait()
}
