package probe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secretVolume is a directory as the kubelet makes it: links to files in a directory that is swapped by a link.
func secretVolume(t *testing.T, version string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	update(t, dir, version, files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func update(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "..data_"+version), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "..data_"+version, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := errors.Join(os.Symlink("..data_"+version, next), os.Rename(next, filepath.Join(dir, "..data"))); err != nil {
		t.Fatal(err)
	}
}

// Req: P-13
func TestCredentialsAreReadAnewEveryTime(t *testing.T) {
	dir := secretVolume(t, "1", map[string]string{"mixer-password": "one"})
	credentials := CredentialFiles(dir)
	if got, err := credentials.Read("mixer-password"); err != nil || string(got) != "one" {
		t.Errorf("%q, %v", got, err)
	}
	update(t, dir, "2", map[string]string{"mixer-password": "two"})
	if got, err := credentials.Read("mixer-password"); err != nil || string(got) != "two" {
		t.Errorf("after the change: %q, %v", got, err)
	}
	update(t, dir, "3", nil)
	if got, err := credentials.Read("mixer-password"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its end: %q, %v", got, err)
	}
}

// Req: P-12
func TestNothingOutsideTheDirectoryIsRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := secretVolume(t, "1", map[string]string{"inside": "inside", "large": strings.Repeat("x", maxCredential+1)})
	rel, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.Symlink(outside, filepath.Join(dir, "absolute")),
		os.Symlink(rel, filepath.Join(dir, "relative")),
		os.Mkdir(filepath.Join(dir, "directory"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"", ".", "..", "..data", "../" + filepath.Base(filepath.Dir(outside)) + "/secret", outside, rel, "inside/", "./inside", "..data/inside",
		"inside\x00", "a\nb", strings.Repeat("a", 254), "absolute", "relative", "directory", "large",
	} {
		if got, err := CredentialFiles(dir).Read(key); err == nil {
			t.Errorf("key %q gave %d bytes", key, len(got))
		} else if strings.Contains(err.Error(), "outside") && !strings.Contains(key, "outside") {
			t.Errorf("key %q: the error tells what is there: %v", key, err)
		}
	}
	for _, nowhere := range []CredentialFiles{"", CredentialFiles(filepath.Join(dir, "missing"))} {
		if _, err := nowhere.Read("inside"); err == nil {
			t.Errorf("directory %q gave something", nowhere)
		}
	}
}
