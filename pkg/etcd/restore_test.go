package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const objects = "/fieldplane"

func restoreOf(snapshot, dataDir string) RestoreOptions {
	return RestoreOptions{Snapshot: snapshot, DataDir: dataDir, Prefix: objects, Mark: Mark{ID: "restore-1", RestoredAt: noon}}
}

// snapshotOf is a snapshot of a store that holds key=value, taken before the store went on for a while.
func snapshotOf(t *testing.T) (path string, info SnapshotInfo) {
	t.Helper()
	s := startServer(t, Options{DataDir: filepath.Join(t.TempDir(), "store")})
	putAndGet(t, s.Endpoint(), "value")
	path = filepath.Join(t.TempDir(), "snapshot.db")
	info, err := SaveSnapshot(deadline(t, 20*time.Second), s.Snapshot, path)
	must(t, err)
	must(t, s.Close(deadline(t, 20*time.Second)))
	return path, info
}

func copyOf(t *testing.T, path string, change func([]byte) []byte) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	changed := filepath.Join(t.TempDir(), "changed.db")
	must(t, os.WriteFile(changed, change(data), 0o600))
	return changed
}

// tree is every file below a directory with its size.
func tree(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if entry.Type().IsRegular() {
			files[path] = info.Size()
		} else {
			files[path] = -1
		}
		return err
	}))
	return files
}

// Req: A-02
func TestARestoredStoreHoldsWhatTheSnapshotHoldsAndNeverGoesBackInTime(t *testing.T) {
	dataDir := filepath.Join(t.TempDir(), "store")
	s := startServer(t, Options{DataDir: dataDir})
	client := newClient(t, s.Endpoint())
	ctx := deadline(t, time.Minute)
	before, err := client.Put(ctx, "/fieldplane/kept", "as of the snapshot")
	must(t, err)
	_, err = client.Put(ctx, "/fieldplane/deleted later", "")
	must(t, err)

	// Another process takes the snapshot through the socket.
	endpoint, running, closed := RunningStore(dataDir)
	defer closed()
	if !running {
		t.Fatal("the server is not found to run")
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	saved, err := SaveSnapshot(ctx, StreamFrom(newClient(t, endpoint)), path)
	must(t, err)
	if saved.Revision != before.Header.Revision+1 || saved.Keys != 2 || len(saved.SHA256) != 64 {
		t.Errorf("saved %+v", saved)
	}

	_, err = client.Put(ctx, "/fieldplane/kept", "changed")
	must(t, err)
	_, err = client.Delete(ctx, "/fieldplane/deleted later")
	must(t, err)
	last, err := client.Put(ctx, "/fieldplane/made later", "")
	must(t, err)
	must(t, client.Close())
	must(t, s.Close(ctx))
	if _, running, _ := RunningStore(dataDir); running {
		t.Error("a server that has stopped is found to run")
	}

	opts := restoreOf(path, dataDir)
	opts.SetAside = true
	restored, err := Restore(ctx, opts)
	must(t, err)
	if restored.Revision <= last.Header.Revision || restored.Snapshot != saved {
		t.Errorf("restored %+v", restored)
	}
	if restored.SetAside != filepath.Join(dataDir, "member.20260301T120000Z") {
		t.Errorf("the former store is at %q", restored.SetAside)
	}
	if _, err := os.Stat(filepath.Join(restored.SetAside, "wal")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v (%v)", info.Mode(), err)
	}

	s = startServer(t, Options{DataDir: dataDir})
	client = newClient(t, s.Endpoint())
	got, err := client.Get(ctx, "/fieldplane/", clientv3.WithPrefix())
	must(t, err)
	var held []string
	for _, kv := range got.Kvs {
		held = append(held, string(kv.Key)+"="+string(kv.Value))
	}
	if want := []string{"/fieldplane/deleted later=", "/fieldplane/kept=as of the snapshot"}; !slices.Equal(held, want) {
		t.Errorf("it holds %q, want %q", held, want)
	}
	if got.Header.Revision < restored.Revision {
		t.Errorf("it goes on at revision %d, and said %d", got.Header.Revision, restored.Revision)
	}

	t.Run("a watch from a revision that the lost store gave out is told to begin anew", func(t *testing.T) {
		for _, from := range []int64{before.Header.Revision, last.Header.Revision, last.Header.Revision + 1} {
			response, open := <-client.Watch(deadline(t, 10*time.Second), "/fieldplane/", clientv3.WithPrefix(), clientv3.WithRev(from))
			if !open || !errors.Is(response.Err(), rpctypes.ErrCompacted) {
				t.Errorf("from %d: %v", from, response.Err())
			}
		}
	})
	t.Run("and is marked until the mark is removed", func(t *testing.T) {
		marks := NewMarks(client, objects)
		mark, err := marks.Read(ctx)
		must(t, err)
		if mark == nil || mark.ID != "restore-1" || !mark.RestoredAt.Equal(noon) || mark.Revision != restored.Revision {
			t.Fatalf("the mark is %+v", mark)
		}
		for _, kv := range got.Kvs {
			if kv.ModRevision >= mark.Revision {
				t.Errorf("%s is of revision %d, and the mark of %d", kv.Key, kv.ModRevision, mark.Revision)
			}
		}
		must(t, marks.Remove(ctx, *mark))
		if mark, err := marks.Read(ctx); err != nil || mark != nil {
			t.Errorf("there still is %+v (%v)", mark, err)
		}
	})
	t.Run("and can be restored again", func(t *testing.T) {
		opts := restoreOf(path, filepath.Join(t.TempDir(), "again"))
		opts.RevisionBump = 1
		again, err := Restore(ctx, opts)
		must(t, err)
		if again.Revision <= saved.Revision || again.SetAside != "" {
			t.Errorf("restored %+v", again)
		}
	})
}

// Req: A-02
func TestAMarkThatWasWrittenMeanwhileIsNotRemoved(t *testing.T) {
	s := startServer(t, Options{DataDir: filepath.Join(t.TempDir(), "store")})
	client, ctx := newClient(t, s.Endpoint()), deadline(t, 20*time.Second)
	marks := NewMarks(client, objects)
	first, err := marks.Set(ctx, Mark{ID: "first", RestoredAt: noon})
	must(t, err)
	_, err = marks.Set(ctx, Mark{ID: "second", RestoredAt: noon})
	must(t, err)
	if err := marks.Remove(ctx, first); err == nil {
		t.Error("the first mark was removed, and the second with it")
	}
	if mark, err := marks.Read(ctx); err != nil || mark == nil || mark.ID != "second" {
		t.Errorf("the mark is %+v (%v)", mark, err)
	}
	// Other installations in the same etcd have their own.
	if mark, err := NewMarks(client, "/other").Read(ctx); err != nil || mark != nil {
		t.Errorf("another prefix has the mark %+v (%v)", mark, err)
	}
	// Whatever is there means that the store was restored.
	_, err = client.Put(ctx, "/fieldplane.restored", "yes")
	must(t, err)
	if mark, err := marks.Read(ctx); err != nil || mark == nil || mark.ID == "" || mark.Revision == 0 {
		t.Errorf("the mark is %+v (%v)", mark, err)
	}
}

// Req: A-02
func TestWhatIsNoWholeSnapshotIsRefusedAndNothingIsTouched(t *testing.T) {
	good, _ := snapshotOf(t)
	for name, broken := range map[string]string{
		"cut short":               copyOf(t, good, func(b []byte) []byte { return b[:len(b)-1000] }),
		"cut short at a page":     copyOf(t, good, func(b []byte) []byte { return b[:len(b)/2/4096*4096+sha256.Size] }),
		"without its checksum":    copyOf(t, good, func(b []byte) []byte { return b[:len(b)-sha256.Size] }),
		"one bit is another":      copyOf(t, good, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		"its checksum is another": copyOf(t, good, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		"empty":                   copyOf(t, good, func([]byte) []byte { return nil }),
		"a checksum alone":        copyOf(t, good, func(b []byte) []byte { return b[:sha256.Size] }),
		"another file": copyOf(t, good, func([]byte) []byte {
			text := []byte(strings.Repeat("x", 4096))
			sum := sha256.Sum256(text)
			return append(text, sum[:]...)
		}),
		"a directory": t.TempDir(),
		"absent":      filepath.Join(t.TempDir(), "absent.db"),
	} {
		t.Run(name, func(t *testing.T) {
			if info, err := CheckSnapshot(broken); err == nil {
				t.Errorf("it passes as %+v", info)
			}
			absent := filepath.Join(t.TempDir(), "store")
			if _, err := Restore(deadline(t, 20*time.Second), restoreOf(broken, absent)); err == nil {
				t.Error("it was restored")
			}
			if _, err := os.Lstat(absent); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory was made: %v", err)
			}

			// Nor does what is there suffer, even where it may be replaced.
			dataDir := filepath.Join(t.TempDir(), "store")
			s := startServer(t, Options{DataDir: dataDir})
			putAndGet(t, s.Endpoint(), "value")
			must(t, s.Close(deadline(t, 20*time.Second)))
			before := tree(t, dataDir)
			opts := restoreOf(broken, dataDir)
			opts.SetAside = true
			if _, err := Restore(deadline(t, 20*time.Second), opts); err == nil {
				t.Error("it was restored")
			}
			if after := tree(t, dataDir); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the directory held %v, and holds %v", before, after)
			}
		})
	}
}

// Req
func TestADirectoryThatIsNotFreeIsNotRestoredInto(t *testing.T) {
	snapshot, _ := snapshotOf(t)
	for _, tc := range []struct {
		name     string
		setAside bool
		fill     func(t *testing.T, dataDir string)
		says     []string
	}{
		{name: "it holds a store", fill: aStore, says: []string{"holds a store already", "--set-aside"}},
		{name: "it holds other files", fill: otherFiles, says: []string{"is not empty", "thesis.txt"}},
		{name: "it holds other files, which are never put aside", setAside: true, fill: otherFiles, says: []string{"is not empty", "thesis.txt"}},
		{name: "a server runs on it", setAside: true, fill: func(t *testing.T, dataDir string) {
			startChild(t, dataDir, nil)
		}, says: []string{"is in use by pid", "stop that server first"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dataDir := filepath.Join(t.TempDir(), "store")
			tc.fill(t, dataDir)
			before := tree(t, dataDir)
			opts := restoreOf(snapshot, dataDir)
			opts.SetAside = tc.setAside
			_, err := Restore(deadline(t, 20*time.Second), opts)
			for _, text := range tc.says {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not say %q: %v", text, err)
				}
			}
			if after := tree(t, dataDir); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the directory held %v, and holds %v", before, after)
			}
		})
	}
}

func aStore(t *testing.T, dataDir string) {
	t.Helper()
	s := startServer(t, Options{DataDir: dataDir})
	putAndGet(t, s.Endpoint(), "value")
	must(t, s.Close(deadline(t, 20*time.Second)))
}

func otherFiles(t *testing.T, dataDir string) {
	t.Helper()
	makeDir(t, dataDir, 0o755)
	must(t, os.WriteFile(filepath.Join(dataDir, "thesis.txt"), []byte("my only copy"), 0o600))
}

// Req: A-02. A power cut between the two renamings leaves no store; an empty one in its place would pass for the restored one.
func TestAfterAnInterruptedRestoreNoEmptyStoreIsMade(t *testing.T) {
	snapshot, _ := snapshotOf(t)
	dataDir := filepath.Join(t.TempDir(), "store")
	aStore(t, dataDir)
	aside := filepath.Join(dataDir, "member.20260101T000000Z")
	must(t, os.Rename(filepath.Join(dataDir, memberDir), aside))
	makeDir(t, filepath.Join(dataDir, stagingDir), 0o700)

	_, err := Start(deadline(t, 20*time.Second), Options{DataDir: dataDir})
	if err == nil || !strings.Contains(err.Error(), "a restore was interrupted") {
		t.Fatalf("the start says %v", err)
	}
	t.Run("and it can be done again", func(t *testing.T) {
		_, err := Restore(deadline(t, 20*time.Second), restoreOf(snapshot, dataDir))
		must(t, err)
		putAndGet(t, startServer(t, Options{DataDir: dataDir}).Endpoint(), "value")
		if _, err := os.Stat(aside); err != nil {
			t.Error(err)
		}
	})
}

// Req: A-02
func TestASnapshotNeverReplacesAnother(t *testing.T) {
	path, _ := snapshotOf(t)
	before, err := os.ReadFile(path)
	must(t, err)
	s := startServer(t, Options{DataDir: filepath.Join(t.TempDir(), "store")})
	if _, err := SaveSnapshot(deadline(t, 20*time.Second), s.Snapshot, path); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("have %v", err)
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if string(after) != string(before) {
		t.Error("the file is another")
	}

	// One that is not finished leaves nothing behind.
	dir := t.TempDir()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := SaveSnapshot(ended, s.Snapshot, filepath.Join(dir, "snapshot.db")); err == nil {
		t.Error("it was saved although its time was over")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
