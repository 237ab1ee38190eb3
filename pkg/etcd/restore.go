package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"k8s.io/klog/v2"
)

const (
	// DefaultRevisionBump is how far beyond the snapshot's revision a restored store goes on. Clients remember revisions that the
	// lost store gave out after the snapshot, and must never meet one of them again: with 1,000 writes a second this is
	// enough for a snapshot that is 115 days old, and leaves room for 900,000 restores before a revision exceeds 2^53.
	DefaultRevisionBump = 10_000_000_000

	// stagingDir is where a restored store is built. It is moved into its place as a whole.
	stagingDir = ".restore"
	// asidePrefix begins the name of what a restore has put aside.
	asidePrefix = memberDir + "."
)

// RestoreOptions say what is restored, and where to.
type RestoreOptions struct {
	// Snapshot is the file.
	Snapshot string
	// DataDir is made if absent, and must hold no store, unless SetAside is set.
	DataDir string
	// SetAside keeps the store that is there under another name in the directory, instead of refusing.
	SetAside bool
	// RevisionBump is added to the snapshot's revision; 0 means DefaultRevisionBump.
	RevisionBump uint64
	// Prefix is the one below which the objects are.
	Prefix string
	// Mark is written into the restored store.
	Mark Mark
}

// Restored is what a restore has made.
type Restored struct {
	Snapshot SnapshotInfo
	// Revision at which the restored store goes on. All before it count as compacted, so that whoever watches from one of them
	// is told to read everything anew.
	Revision int64
	// SetAside is where the store that was there is now; empty if there was none.
	SetAside string
}

// Restore makes a store from a snapshot, marked as restored. As long as it fails, nothing that was there has changed.
func Restore(ctx context.Context, opts RestoreOptions) (restored Restored, err error) {
	if opts.RevisionBump == 0 {
		opts.RevisionBump = DefaultRevisionBump
	}
	info, err := CheckSnapshot(opts.Snapshot)
	if err != nil {
		return Restored{}, err
	}
	if err := inUse(opts.DataDir); err != nil {
		return Restored{}, err
	}
	if err := mayRestoreInto(opts.DataDir, opts.SetAside); err != nil {
		return Restored{}, err
	}
	dir, err := prepareDataDir(opts.DataDir)
	if err != nil {
		return Restored{}, err
	}
	lock, err := lockDataDir(dir)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, unlockDataDir(lock)) }()
	// Now nobody else can change the answer.
	if err := mayRestoreInto(dir, opts.SetAside); err != nil {
		return Restored{}, err
	}

	staging := filepath.Join(dir, stagingDir)
	if err := os.RemoveAll(staging); err != nil {
		return Restored{}, err
	}
	done := false
	defer func() {
		if !done {
			err = errors.Join(err, os.RemoveAll(staging))
		}
	}()
	revision, err := stage(ctx, staging, opts, info)
	if err != nil {
		return Restored{}, fmt.Errorf("restore %s: %w", opts.Snapshot, err)
	}
	if revision <= info.Revision {
		return Restored{}, fmt.Errorf("restore %s: the store would go on at revision %d, and the snapshot's is %d", opts.Snapshot, revision, info.Revision)
	}

	aside, err := putAside(dir, opts.Mark.RestoredAt)
	if err != nil {
		return Restored{}, err
	}
	// From here until the next renaming there is no store: a server that starts then must not make an empty one, which the
	// staging directory keeps it from.
	if err := os.Rename(filepath.Join(staging, memberDir), filepath.Join(dir, memberDir)); err != nil {
		if aside != "" {
			err = errors.Join(err, os.Rename(aside, filepath.Join(dir, memberDir)))
		}
		return Restored{}, err
	}
	done = true
	return Restored{Snapshot: info, Revision: revision, SetAside: aside}, errors.Join(syncDir(dir), os.RemoveAll(staging))
}

// stage builds the store, starts it once to see that it works, and leaves the mark in it.
func stage(ctx context.Context, staging string, opts RestoreOptions, info SnapshotInfo) (int64, error) {
	if err := os.Mkdir(staging, wantedMode); err != nil {
		return 0, err
	}
	logger := newLogger(klog.Background().WithName("etcd"), make(chan struct{}))
	if err := snapshot.NewV3(logger).Restore(snapshot.RestoreConfig{
		SnapshotPath: opts.Snapshot, OutputDataDir: staging,
		Name: memberName, PeerURLs: []string{peerURL}, InitialCluster: memberName + "=" + peerURL, InitialClusterToken: "fieldplane",
		RevisionBump: opts.RevisionBump, MarkCompacted: true,
	}); err != nil {
		return 0, err
	}
	// A server with a larger quota than the usual one may have taken the snapshot, and the mark must fit.
	store, err := Start(ctx, Options{DataDir: staging, QuotaBytes: max(DefaultQuotaBytes, 2*info.Size)})
	if err != nil {
		return 0, err
	}
	mark, err := func() (Mark, error) {
		client, err := Endpoints{Servers: []string{store.Endpoint()}}.Dial()
		if err != nil {
			return Mark{}, err
		}
		defer client.Close()
		return NewMarks(client, opts.Prefix).Set(ctx, opts.Mark)
	}()
	if err := errors.Join(err, store.Close(ctx)); err != nil {
		return 0, err
	}
	return mark.Revision, nil
}

// mayRestoreInto says why a directory is not to be restored into, and touches nothing.
func mayRestoreInto(dir string, setAside bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || dir == "" {
		return nil // prepareDataDir makes it, or says what is wrong with it
	}
	if err != nil {
		return fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	var store bool
	var foreign []string
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == memberDir:
			store = true
		case slices.Contains([]string{lockFile, clientSocket, httpSocket, stagingDir}, name), strings.HasPrefix(name, asidePrefix):
		default:
			foreign = append(foreign, name)
		}
	}
	switch {
	case len(foreign) > 0:
		return fmt.Errorf("--data-dir %q is not empty: it holds %s: name a directory of its own", dir, strings.Join(foreign[:min(len(foreign), 4)], ", "))
	case store && !setAside:
		return fmt.Errorf("--data-dir %q holds a store already, which stays as it is: name another directory, or have it put aside (--set-aside)", dir)
	}
	return nil
}

// inUse says who holds a data directory, if anybody does. It is a look, not a lock: by the next moment it may be wrong.
func inUse(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--data-dir %q: %w", dir, err)
	}
	defer file.Close()
	if err := flockNonBlocking(file); err != nil {
		return &DataDirInUseError{DataDir: dir, Holder: holderOf(file)}
	}
	return nil
}

// putAside moves the store that is there, if one is, to a name of its own.
func putAside(dir string, at time.Time) (string, error) {
	from := filepath.Join(dir, memberDir)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	to := filepath.Join(dir, asidePrefix+at.UTC().Format("20060102T150405Z"))
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s exists already: nothing was restored", to)
	}
	return to, os.Rename(from, to)
}

// restoreInterrupted says that a restore ended in its middle. Then there may be no store, and to start would make an empty one.
func restoreInterrupted(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, stagingDir)); err != nil {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, memberDir)); err == nil {
		return nil // it ended before, or after, anything was replaced
	}
	return fmt.Errorf("--data-dir %q: a restore was interrupted before the store was in its place: restore again, or rename a %s* in it to %s and remove %s",
		dir, asidePrefix, memberDir, stagingDir)
}
