package probe

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	// maxConfigSize bounds what is read: a ConfigMap holds 1 MiB.
	maxConfigSize = 4 << 20
	// configPoll is how often the file is looked at when no notification comes, as on some file systems.
	configPoll = time.Second
)

// ConfigFile follows a file that a ConfigMap is mounted at: there, the kubelet swaps a symlink beside the file, which
// only the directory's watcher sees. C is what is read from it.
type ConfigFile[C any] struct {
	Path  string
	Clock clock.WithTicker
	Log   logr.Logger
	Parse func(data []byte) (C, error)
	// Apply takes every new version; Refuse takes what is wrong with one, once for each.
	Apply  func(C)
	Refuse func(error)
}

// Run loads the file, and again whenever it changed, until ctx ends. A file that is not there yet is waited for.
func (f *ConfigFile[C]) Run(ctx context.Context) {
	var events chan fsnotify.Event
	var failures chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		err = watcher.Add(filepath.Dir(f.Path))
		events, failures = watcher.Events, watcher.Errors
	}
	if err != nil {
		f.Log.Info("No file notifications; the config file is looked at every second instead", "error", err.Error())
	}
	ticker := f.Clock.NewTicker(configPoll)
	defer ticker.Stop()

	var last version
	for {
		last = f.load(last)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case _, ok := <-events:
			if !ok {
				events = nil
			}
		case err, ok := <-failures:
			if !ok {
				failures = nil
			} else {
				f.Log.Info("File notifications were lost; the config file is looked at every second", "error", err.Error())
			}
		}
	}
}

// version tells two versions of the file apart without reading it.
type version struct {
	info    os.FileInfo
	refused string
}

// load reads the file if it is another one than last.
func (f *ConfigFile[C]) load(last version) version {
	// Opened first, so that a file which goes between two looks is told in one way.
	file, err := os.Open(f.Path)
	if err != nil {
		return f.refuse(last, nil, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return f.refuse(last, nil, err)
	}
	if last.info != nil && os.SameFile(last.info, info) && last.info.ModTime().Equal(info.ModTime()) && last.info.Size() == info.Size() {
		return last
	}
	data, err := read(file)
	if err != nil {
		return f.refuse(last, nil, err)
	}
	config, err := f.Parse(data)
	if err != nil {
		return f.refuse(last, info, fmt.Errorf("%s: %w", f.Path, err))
	}
	f.Apply(config)
	return version{info: info}
}

// refuse tells an error once, however often the file is looked at.
func (f *ConfigFile[C]) refuse(last version, info os.FileInfo, err error) version {
	if info != nil || last.refused != err.Error() {
		f.Refuse(err)
	}
	return version{info: info, refused: err.Error()}
}

func read(file *os.File) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, maxConfigSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfigSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", file.Name(), maxConfigSize)
	}
	return data, nil
}
