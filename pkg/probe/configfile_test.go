package probe

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// mount is a directory as the kubelet mounts a ConfigMap: file → ..data/file, ..data → a directory that is swapped.
type mount struct {
	dir string
	n   int
}

func (m *mount) write(t *testing.T, text string) {
	t.Helper()
	m.n++
	version := "..version" + strings.Repeat("x", m.n)
	if err := os.Mkdir(filepath.Join(m.dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, version, "config.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(m.dir, "..data_tmp")
	if err := os.Symlink(version, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(m.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if m.n == 1 {
		if err := os.Symlink(filepath.Join("..data", "config.json"), filepath.Join(m.dir, "config.json")); err != nil {
			t.Fatal(err)
		}
	}
}

// Req: P-11
func TestConfigFileFollowsAMountedConfigMap(t *testing.T) {
	m := &mount{dir: t.TempDir()}
	applied, refused := make(chan *Config, 10), make(chan error, 10)
	file := ConfigFile[*Config]{
		Path:   filepath.Join(m.dir, "config.json"),
		Clock:  clock.RealClock{},
		Log:    logr.Discard(),
		Parse:  ParseConfig,
		Apply:  func(c *Config) { applied <- c },
		Refuse: func(err error) { refused <- err },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); file.Run(ctx) }()

	wantRefused := func(says string) {
		t.Helper()
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), says) {
				t.Errorf("refused with %v, want one that says %q", err, says)
			}
		case c := <-applied:
			t.Fatalf("applied %+v, want an error that says %q", c, says)
		case <-time.After(5 * time.Second):
			t.Fatalf("not told of %q within 5 s", says)
		}
	}
	wantApplied := func(modules int) {
		t.Helper()
		select {
		case err := <-refused:
			t.Fatalf("refused with %v", err)
		case c := <-applied:
			if len(c.Modules) != modules {
				t.Errorf("%d modules, want %d", len(c.Modules), modules)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("not applied within 5 s")
		}
	}
	wantRefused("no such file")
	m.write(t, `{"modules":[]}`)
	wantApplied(0)
	m.write(t, `{"modules":[`+goodEntry+`]}`)
	wantApplied(1)
	m.write(t, `{"modules":`)
	wantRefused("unexpected end")
	m.write(t, `{"modules":[`+goodEntry+`]}`)
	wantApplied(1)
	m.write(t, strings.Repeat(" ", maxConfigSize)+`{"modules":[]}`)
	wantRefused("larger than")
	if err := os.Remove(filepath.Join(m.dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	wantRefused("no such file")

	cancel()
	<-ended
	if len(applied)+len(refused) != 0 {
		t.Errorf("%d more applied, %d more refused, want each version told once", len(applied), len(refused))
	}
}

// Req: P-11 (a file system without notifications)
func TestConfigFileIsLookedAtWhenNotificationsAreMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	count := 0
	file := ConfigFile[*Config]{Path: path, Log: logr.Discard(), Parse: ParseConfig, Apply: func(*Config) { count++ }, Refuse: func(err error) { t.Error(err) }}
	var last version
	for i, text := range []string{`{"modules":[]}`, `{"modules":[] }`} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			last = file.load(last)
		}
		if count != i+1 {
			t.Errorf("applied %d times after version %d", count, i+1)
		}
	}
}
